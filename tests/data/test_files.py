"""Data sets from files: read whole, or told what is wrong and where; prepared once, by what is in
them.
"""

import functools
import gzip
import hashlib
import http.server
import logging
import re
import struct
import tempfile
import threading
import time

import numpy as np
import pytest

from flax_attn.data import ag_news, builders, mnist, sst, table
from flax_attn.data.sets import SST
from flax_attn.errors import UsageError


@pytest.fixture(autouse=True)
def own_data_dir(tmp_path, monkeypatch, request):
    if "manual_dir" not in request.fixturenames:
        monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))


def idx(array):
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(np.uint8).tobytes()
    )


IMAGES, LABELS = np.arange(3 * 784).reshape(3, 28, 28) % 251, np.array([7, 0, 2])


def write_mnist(folder, **changes):
    (folder / "mnist").mkdir(parents=True, exist_ok=True)
    for split in ("train", "t10k"):
        for name, content in (("images-idx3", idx(IMAGES)), ("labels-idx1", idx(LABELS))):
            path = folder / "mnist" / f"{split}-{name}-ubyte.gz"
            path.write_bytes(changes.get(f"{split}-{name}", gzip.compress(content)))
    return folder


def test_images_and_labels_come_in_the_order_of_the_files(tmp_path):
    arrays, sums = mnist.load_mnist(write_mnist(tmp_path))
    for split in ("train", "test"):
        np.testing.assert_array_equal(arrays[split][0], IMAGES)
        np.testing.assert_array_equal(arrays[split][1], LABELS)
    assert (
        sums["train-images-idx3-ubyte.gz"]
        == hashlib.sha256(
            (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").read_bytes()
        ).hexdigest()
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"train-images-idx3": gzip.compress(idx(IMAGES))[:-50]},
            "train-images-idx3-ubyte.gz is damaged",
        ),
        (
            {"t10k-labels-idx1": gzip.compress(idx(LABELS)[:-1])},
            r"t10k-labels-idx1-ubyte.gz is damaged \(its header says \(3,\), 3 bytes, and 2",
        ),
        ({"train-images-idx3": b"\x1f\x8bnonsense"}, "train-images-idx3-ubyte.gz is damaged"),
        ({"train-images-idx3": b"PNG"}, "begins with 00 00 08"),
        (
            {"train-images-idx3": idx(IMAGES[:, :, :27])},
            r"images of 28 x 28 pixels in .*, got "
            r"shape \(3, 28, 27\)",
        ),
        (
            {"train-labels-idx1": idx(LABELS + 3)},
            r"expected 3 labels below 10 in .*, got shape "
            r"\(3,\)",
        ),
        (
            {"train-labels-idx1": idx(LABELS[:2])},
            r"expected 3 labels below 10 in .*, got shape "
            r"\(2,\)",
        ),
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_left_of_it(tmp_path, change, said):
    with pytest.raises(UsageError, match=said):
        mnist.load_mnist(write_mnist(tmp_path, **change))
    left = [path for path in (tmp_path / "prepared").rglob("*") if "array_record" in path.name]
    assert left == []
    mnist.load_mnist(write_mnist(tmp_path))


def test_reading_leaves_the_loggers_as_they_were(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "absl")
    monkeypatch.setattr(logging.root, "handlers", [])
    mnist.load_mnist(write_mnist(tmp_path))
    assert logging.root.handlers == []
    assert logging.getLogger("absl").level == logging.INFO


@pytest.mark.parametrize("place", ["file", "file/below", "/dev/null/below", "/proc/none"])
def test_a_folder_that_cannot_hold_data_sets_is_told(place, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / place))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with pytest.raises(UsageError, match=r"cannot write prepared .*; set TFDS_DATA_DIR to another"):
        mnist.load_mnist(write_mnist(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mnist", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_nothing_is_left_among_temporary_files(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    mnist.load_mnist(write_mnist(tmp_path))
    with pytest.raises(UsageError):
        mnist.load_mnist(write_mnist(tmp_path, **{"t10k-labels-idx1": b"damaged"}))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_other_files_never_pass_for_those_prepared_before(tmp_path):
    mnist.load_mnist(write_mnist(tmp_path))
    arrays, _ = mnist.load_mnist(
        write_mnist(tmp_path, **{"train-labels-idx1": gzip.compress(idx(LABELS + 1))})
    )
    np.testing.assert_array_equal(arrays["train"][1], LABELS + 1)


def test_the_same_files_may_be_prepared_twice_at_once(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    read, first = mnist.read_idx, []

    def meanwhile(path):
        if not first:
            first.append(path)
            mnist.load_mnist(tmp_path)
        return read(path)

    monkeypatch.setattr(mnist, "read_idx", meanwhile)
    arrays, _ = mnist.load_mnist(tmp_path)
    np.testing.assert_array_equal(arrays["test"][0], IMAGES)


def test_a_missing_file_is_told_with_both_ways_to_get_it(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        UsageError,
        match=r"no file .*t10k-labels.*; put it there \(https://.*\), "
        r"or leave out --manual_dir to download it",
    ):
        mnist.load_mnist(tmp_path)


def test_without_files_and_network_it_is_told_within_a_second(monkeypatch):
    files = {
        name: file._replace(url=f"http://localhost:9/{name}")
        for name, file in ag_news.AGNews.FILES.items()
    }
    monkeypatch.setattr(ag_news.AGNews, "FILES", files)
    began = time.perf_counter()
    with pytest.raises(
        UsageError,
        match=r"cannot download http://localhost:9/.*; connect to the network, or "
        r"give the folder with ag_news/test.csv",
    ):
        ag_news.load_ag_news(("test",), None)
    assert time.perf_counter() - began < 2


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.mark.parametrize("whole", [True, False])
def test_a_download_is_checked_against_its_sum(tmp_path, monkeypatch, whole):
    content = b'"3","Title","Words"\n'
    (tmp_path / "served").mkdir()
    for name in ("train.csv", "test.csv"):
        (tmp_path / "served" / name).write_bytes(content if whole else content + b"\n")
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path / "served"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address, digest = f"http://127.0.0.1:{server.server_port}/", hashlib.sha256(content).hexdigest()
    files = {
        name: builders.File(address + name, len(content), digest)
        for name in ("train.csv", "test.csv")
    }
    monkeypatch.setattr(ag_news.AGNews, "FILES", files)
    try:
        if whole:
            rows, _ = ag_news.load_ag_news(("test",), None)
            assert rows == {"test": [ag_news.News("Title", "Words", 2)]}
        else:
            with pytest.raises(
                UsageError, match=r"cannot prepare data set ag_news: .*wrong checksum"
            ):
                ag_news.load_ag_news(("test",), None)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '"5","a class too far","x"',
            r"a class from 1 to 4 and one or two texts in .*, line 2, "
            r"got \['5'",
        ),
        ('"1"', "line 2, got"),
        ('"1","a","b","c"', "line 2, got"),
        ('"1","not closed\n', "expected a CSV row in .*, line 2"),
        ('"1","caf\xe9","Latin-1"', "text in UTF-8 in .*, line 2"),
    ],
)
def test_a_malformed_row_of_news_is_named(tmp_path, line, said):
    (tmp_path / "test.csv").write_text(
        f'"1","fine","words"\n{line}\n"2","fine","words"\n', encoding="latin-1"
    )
    with pytest.raises(UsageError, match=said):
        list(ag_news.read_news(tmp_path / "test.csv"))


def test_news_have_two_or_three_columns(tmp_path):
    (tmp_path / "train.csv").write_text(
        '\ufeff"1","title ""quoted""","words, more"\n\n"4","joined"\n\n', encoding="utf-8"
    )
    assert list(ag_news.read_news(tmp_path / "train.csv")) == [
        ag_news.News('title "quoted"', "words, more", 0),
        ag_news.News("joined", "", 3),
    ]


def test_a_tree_is_its_phrases_the_whole_first():
    phrases = sst.phrases("(3 (2 It) (4 (2 's) (4 (2 -LRB-) (1 hit))))")
    assert phrases[0] == sst.Phrase(("It", "'s", "(", "hit"), 3)
    assert sorted(" ".join(phrase.words) for phrase in phrases) == sorted(
        ["It 's ( hit", "It", "'s ( hit", "'s", "( hit", "(", "hit"]
    )
    assert [sst.in_classes(label, 3) for label in range(5)] == [0, 0, 1, 2, 2]
    assert [sst.in_classes(label, 5) for label in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "line",
    [
        "(3 (2 It)",
        "(3 It))",
        "(7 It)",
        "word",
        "",
        "(3 It) (2 is)",
        "(3 (2 ))",
        "( It)",
        "(3 It is)",
        "(3 stray (2 a) (2 b))",
        "(3 (2 a) (2 b) (2 c))",
        "(3 (2 a))",
    ],
)
def test_a_malformed_tree_is_named_with_its_line(tmp_path, line):
    (tmp_path / "sst").mkdir()
    for name in ("train", "dev", "test"):
        (tmp_path / "sst" / f"{name}.txt").write_text("(3 fine)\n")
    (tmp_path / "sst" / "dev.txt").write_text(f"(3 fine)\n{line}\n(2 fine)\n")
    with pytest.raises(UsageError, match=r"a tree of labels 0 to 4 and words in .*dev.txt, line 2"):
        sst.load_sst(tmp_path)


def test_training_alone_takes_phrases_and_each_once(tmp_path):
    (tmp_path / "sst").mkdir()
    for name in ("train", "dev", "test"):
        lines = f"(1 (2 a) (4 (0 {name}) (2 bit)))\n(3 (2 A) (3 {name}))\n"
        (tmp_path / "sst" / f"{name}.txt").write_text(lines)
    labels = ["negative", "positive"]
    for phrases in (False, True):
        splits = SST(phrases=phrases).load(tmp_path).splits
        assert splits["valid"] == (["a dev bit", "A dev"], labels)
        assert splits["test"] == (["a test bit", "A test"], labels)
        if not phrases:
            assert splits["train"] == (["a train bit", "A train"], labels)
    assert dict(zip(*splits["train"])) == {
        "a train bit": "negative",
        "a": "neutral",
        "train bit": "positive",
        "train": "neutral",  # 2, to which 1.5, the mean of 0 and 3, is rounded
        "bit": "neutral",
        "a train": "positive",
    }


@pytest.mark.full
def test_the_real_files(manual_dir):
    arrays, _ = mnist.load_mnist(manual_dir)
    assert {split: images.shape for split, (images, _) in arrays.items()} == {
        "train": (60_000, 28, 28),
        "test": (10_000, 28, 28),
    }
    assert arrays["train"][1][:5].tolist() == [5, 0, 4, 1, 9]
    news, _ = ag_news.load_ag_news(("train", "test"), manual_dir)
    assert [
        np.bincount([row.label for row in news[split]]).tolist() for split in ("train", "test")
    ] == [
        [5048, 3443, 3333, 5101],
        [1900] * 4,
    ]
    trees, _ = sst.load_sst(manual_dir)
    assert {split: len(sentences) for split, sentences in trees.items()} == {
        "train": 8_544,
        "valid": 1_101,
        "test": 2_210,
    }
    assert (
        len({word.lower() for sentence in trees["train"] for word in sentence[0].words}) == 16_581
    )


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ("text,label\na b,x\nc,y\n", ("text", "label"), (["a b", "c"], ["x", "y"])),
        ("y,q,one\nn,q,two\n", ("3", "1"), (["one", "two"], ["y", "n"])),
        ("q,text,label\nq,a b,x\n", ("2", "label"), (["a b"], ["x"])),
        ("1,2\nx,a b\n", ("2", "1"), (["a b"], ["x"])),
        ('\ufefflabel, text\n x ,"a, b"\n', ("text", "label"), (["a, b"], ["x"])),
    ],
)
def test_a_table_has_its_columns_by_name_or_number(tmp_path, content, columns, expected):
    (tmp_path / "own.csv").write_text(content, encoding="utf-8")
    assert table.read(tmp_path / "own.csv", *columns) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "got an empty file"),
        ("text,label\n", "got only a header"),
        (
            "words,label\na,b\n",
            "no column 'text' in .*, which has words, label; name others by data.text_column and "
            "data.label_column, or without a header give their numbers from 1",
        ),
        (f"{'a long review, ' * 20};pos\n", r"which has a long review, .{,40}, pos; name others"),
        ("text,label\na,b\nc\n", "2 columns in .*, line 3, as in the first, got 1"),
        (
            "text,label\na,b\nGreat, superb film,pos\n",
            "2 columns in .*, line 3, as in the first, got 3",
        ),
        ("text,label\na, \n", "a label in .*, line 2"),
        ('text,label\na,b\n"c,d\n', "a CSV row in .*, line 3"),
        ("text,label,label\na,b,c\n", "one column 'label' in .*, got 2; rename the others"),
    ],
)
def test_a_table_that_is_none_is_told(tmp_path, content, said):
    (tmp_path / "own.csv").write_text(content)
    with pytest.raises(UsageError, match=said):
        table.read(tmp_path / "own.csv", "text", "label")
    for name in ("gone.csv", "."):
        with pytest.raises(UsageError, match=r"cannot read .*; give a CSV or TSV file"):
            table.read(tmp_path / name, "text", "label")


QUOTED = '"Great; ""superb"", really\n\tlong";pos\n"Dull, or bad";neg\n' * 2
QUOTED_TEXTS = ['Great; "superb", really\n\tlong', "Dull, or bad"] * 2


@pytest.mark.parametrize("name", ["own.csv", "own.tsv", "own.txt"])
@pytest.mark.parametrize(
    ("content", "columns", "texts"),
    [
        ("\ufefftext;label\n" + QUOTED, ("text", "label"), QUOTED_TEXTS),
        (QUOTED, ("1", "2"), QUOTED_TEXTS),
        ("id;text, english;label\n7;a, b;x\n8;c;x\n", ("text, english", "label"), ["a, b", "c"]),
        ("text;label\na, b;x\nc, d;x\n", ("text", "label"), ["a, b", "c, d"]),
        ("schön, ja;3,5\ngut;4,0\nna;5,0\n", ("1", "2"), ["schön, ja", "gut", "na"]),
        ("a; b,x\nc,x\nd,x\n", ("1", "2"), ["a; b", "c", "d"]),
        ("text\tlabel\na, b; c\tx\nd\ty\n", ("text", "label"), ["a, b; c", "d"]),
        ("a\tb, c\tx\nd\te, f\ty\n", ("2", "3"), ["b, c", "e, f"]),
    ],
)
def test_the_separator_is_told_by_what_is_in_a_table(tmp_path, name, content, columns, texts):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert table.read_pairs(tmp_path / name, *columns, "label").column() == texts


def test_names_of_columns_tell_the_separator_before_the_rows_do(tmp_path):
    (tmp_path / "own.csv").write_text("text, in English;label\na, b;x\nc, d\n")
    with pytest.raises(UsageError, match=r"expected 2 columns in .*, line 3, .* got 1: \['c, d'\]"):
        table.read(tmp_path / "own.csv", "text, in English", "label")


def test_a_table_that_is_written_is_read_as_it_was(tmp_path):
    for content in ("\ufefftext;label\n" + QUOTED, "text\tlabel\na b\tx\n"):
        (tmp_path / "own.csv").write_text(content, encoding="utf-8")
        before = table.read_table(tmp_path / "own.csv", ["text"], "texts", "")
        labels = [f'{i}, a\t; "b"' for i in range(len(before.rows))]
        table.write(before, tmp_path / "out.csv", {"class": labels})
        after = table.read_table(tmp_path / "out.csv", ["text", "class"], "texts", "")
        assert after.header == ["text", "label", "class"]
        assert [row[:2] for row in after.rows] == before.rows
        is_tabbed = "\t" in content[:7]
        assert after.column(1) == [own.replace("\t", " ") if is_tabbed else own for own in labels]
        assert (tmp_path / "out.csv").read_text()[0] == content[0]
        with pytest.raises(
            UsageError, match=r"no column 'text' in .*, to which it is added; rename"
        ):
            table.write(before, tmp_path / "out.csv", {"text": labels})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_a_table_in_another_encoding_is_told(tmp_path, encoding):
    (tmp_path / "own.csv").write_text("text;label\nschön;x\n", encoding=encoding)
    with pytest.raises(UsageError, match=r"text in UTF-8 in .*; save it in UTF-8"):
        table.read(tmp_path / "own.csv", "text", "label")


@pytest.mark.parametrize(
    "content",
    [b"PK\x03\x04\x14\0\xff", gzip.compress(b"text,label", mtime=0), b"\x89PNG\r\n\x1a\n"],
)
def test_a_binary_file_as_a_table_is_told(tmp_path, content):
    (tmp_path / "own.csv").write_bytes(content)
    with pytest.raises(UsageError, match=r"a file of text, got the binary file .*own.csv; save a"):
        table.read(tmp_path / "own.csv", "text", "label")


def test_json_and_a_separator_of_no_table_are_told(tmp_path):
    (tmp_path / "own.json").write_text('[{"text": "a", "label": "x"}]')
    with pytest.raises(
        UsageError, match=r"expected a CSV or TSV file of .*, got .*own.json; write"
    ):
        table.read(tmp_path / "own.json", "text", "label")
    (tmp_path / "own.csv").write_text("text|label\na|x\n")
    with pytest.raises(UsageError, match=r"a comma, a semicolon or a tab separates columns; name"):
        table.read(tmp_path / "own.csv", "text", "label")


def test_a_table_with_tabs_has_no_quotes(tmp_path):
    (tmp_path / "own.TSV").write_text('text\tlabel\r\n"a, b\t x\r\n\r\nc "d"\ty\r\n')
    texts, labels = table.read(tmp_path / "own.TSV", "text", "label")
    assert (texts, labels) == (['"a, b', 'c "d"'], ["x", "y"])
    (tmp_path / "own.tsv").write_text("text\tlabel\na\tx\nb, c\n")
    with pytest.raises(
        UsageError, match=r"2 columns in .*, line 3, .* got 1: \['b, c'\]; mend it$"
    ):
        table.read(tmp_path / "own.tsv", "text", "label")


def test_a_header_that_would_pass_for_a_row_and_one_column_for_both_are_told(tmp_path):
    (tmp_path / "own.csv").write_text("text,label\na,x\nb,x\nc,y\n")
    with pytest.raises(
        UsageError,
        match=r"the label 'label' of line 1 comes in no other, as in a "
        r"header",
    ):
        table.read(tmp_path / "own.csv", "1", "2")
    with pytest.raises(UsageError, match="a column of texts and another of labels"):
        table.read(tmp_path / "own.csv", "text", "1")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("sep=;\ntext;label\na;x\nb;y\n", "a line for Excel, 'sep='; take line 1 out"),
        ("sep=,\ntext,label\na,x\nb,y\n", "a line for Excel, 'sep='; take line 1 out"),
        ("text,label\na,x\nb,y\nc,X\n", "got 'x' and 'X'; write each class in one way"),
    ],
)
def test_a_line_for_excel_and_a_class_in_two_spellings_are_told(tmp_path, content, said):
    (tmp_path / "own.csv").write_text(content)
    with pytest.raises(UsageError, match=re.escape(said)):
        table.read(tmp_path / "own.csv", "text", "label")


def test_only_the_files_that_are_wanted_are_read(tmp_path):
    (tmp_path / "ag_news").mkdir()
    (tmp_path / "ag_news" / "test.csv").write_text('"1","fine","words"\n')
    (tmp_path / "ag_news" / "train.csv").write_text("broken")
    rows, sums = ag_news.load_ag_news(("test",), tmp_path)
    assert (len(rows["test"]), list(sums)) == (1, ["test.csv"])


def test_a_damaged_data_set_that_was_prepared_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))
    (tmp_path / "ag_news").mkdir()
    (tmp_path / "ag_news" / "test.csv").write_text('"1","fine","words"\n')
    ag_news.load_ag_news(("test",), tmp_path)
    for path in (tmp_path / "prepared").rglob("dataset_info.json"):
        path.write_text("{")
    with pytest.raises(UsageError, match="remove that folder and run again"):
        ag_news.load_ag_news(("test",), tmp_path)


def test_a_proxy_is_asked_in_place_of_the_address(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://localhost:9")
    builders._check_reachable(ag_news.AGNews, ["test.csv"])


def test_a_quote_that_is_never_closed_is_told(tmp_path):
    (tmp_path / "own.csv").write_text('text,label\na,b\n"c,d\ne,f\n')
    with pytest.raises(UsageError, match=r"line 3 \(a quote is never closed\)"):
        table.read(tmp_path / "own.csv", "text", "label")
