"""The files of users: good ones are read, and bad ones are one line that names the file."""

import csv
import gzip
import io
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given as of
from hypothesis import settings
from hypothesis import strategies as st
from PIL import Image

from flax_attn.data import ag_news, archive, files, mnist, multi30k, pairs, pictures, sst, table
from flax_attn.errors import UsageError
from flax_attn.files import open_arrays
from flax_attn.tasks import user_files

SIGNALS = np.arange(12.0).reshape(2, 6)
TEXT = "\ufeffA man asleep, 3.5 km off\r\nein Mann schläft ('tief')\n日本語 🙂\u202e\n".encode()


def saved(save, *arguments, **options):
    file = io.BytesIO()
    save(file, *arguments, **options)
    return file.getvalue()


def picture(array, kind="PNG"):
    return saved(lambda file: Image.fromarray(array).save(file, kind))


def npz(save=np.savez, **arrays):
    return saved(save, **arrays)


IDX = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 6, 5) + bytes(range(60))
X, Y = np.arange(6).reshape(2, 3), np.arange(2)
GOOD = {  # a file, and how it is read
    "signals.npy": (saved(np.save, SIGNALS), user_files.read_signals),
    "signals.csv": ("\ufeff1,2.5,-3e4\n1, 2,3\n".encode(), user_files.read_signals),
    "texts.txt": (TEXT, user_files.read_lines),
    "picture.png": (picture(np.eye(6, dtype=np.uint8) * 255), pictures.read_ink),
    "picture.jpg": (picture(np.eye(6, dtype=np.uint8) * 255, "JPEG"), pictures.read),
    "images.idx": (IDX, mnist.read_idx),
    "images.gz": (gzip.compress(IDX), mnist.read_idx),
    "pairs.tsv": (b"ein Mann\ta man\nzwei\ttwo\textra\n\n", pairs.read),
    "trees.txt": (
        b"(0 (1 no) (2 way))\n",
        lambda path: list(sst.SST._generate_examples(None, path)),
    ),
    "news.csv": (b'"1","A title","Some ""words"""\n', lambda path: list(ag_news.read_news(path))),
    "table.csv": (b"text,label\na,x\nb,y\nc,x\n", lambda path: table.read(path, "text", "label")),
    "sentences.gz": (gzip.compress(TEXT), multi30k.read_lines),
    "arrays.npz": (npz(x=X, y=Y), lambda path: archive.read(path, "x", "y")),
    "packed.npz": (npz(np.savez_compressed, x=X, y=Y), lambda path: archive.read(path, "x", "y")),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_file_is_read_and_a_missing_one_is_named(name, tmp_path):
    content, read = GOOD[name]
    with pytest.raises((OSError, UsageError), match=name):
        read(tmp_path / name)
    (tmp_path / name).write_bytes(content)
    assert len(read(tmp_path / name)) > 0


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n%%EndComments\nshowpage\n%%EOF\n"
DEEP = picture(np.arange(30, dtype=np.uint16).reshape(5, 6))
LATIN = "text;label\nschön;x\n".encode("latin-1")
BAD = {  # a name of `GOOD`, the content, and what the line names
    "a spreadsheet": ("table.csv", b"PK\3\4\x14\0", "CSV"),
    "an old spreadsheet": ("table.csv", b"\xd0\xcf\x11\xe0", "CSV"),
    "Latin-1": ("table.csv", LATIN, "line 2.* Latin-1.* UTF-8"),
    "UTF-16": ("table.csv", "text,label\na,x\n".encode("utf-16-le"), "UTF-8"),
    "an empty table": ("table.csv", b"", "rows of texts and labels"),
    "a header alone": ("table.csv", b"text,label\n", "rows of texts and labels"),
    "other columns": ("table.csv", b"words,label\na,b\n", "'text' .* words, label"),
    "a column twice": ("table.csv", b"text,label,label\na,b,c\n", "'label'"),
    "a separator of no table": ("table.csv", b"text|label\na|x\n", "comma"),
    "a short row": ("table.csv", b"text,label\na,b\nc\n", "line 3"),
    "a comma in a text": ("table.csv", b"text,label\na,b\nso, so,x\n", "line 3.* quotes"),
    "no label": ("table.csv", b"text,label\na, \n", "line 2"),
    "an open quote": ("table.csv", b'text,label\na,b\n"c,d\ne,f\n', "line 3.* never closed"),
    "a class in two spellings": ("table.csv", b"text,label\na,x\nb,y\nc,X\n", "'x' and 'X'"),
    "sep=, for Excel": ("table.csv", b"sep=,\ntext,label\na,x\n", "'text'.* sep="),
    "a row that is no pair": ("pairs.tsv", b"a\tb\nalone\n", "tab.* line 2.* 'alone'"),
    "an empty target": ("pairs.tsv", b"a\tb\nc\t \n", "line 2"),
    "numbers for sources": ("pairs.tsv", b"1276\tTry.\n1277\tDo.\n", "data.source_column"),
    "no pair": ("pairs.tsv", b"", "pairs"),
    "a class too far": ("news.csv", b'"1","a"\n"5","b"\n', "line 2"),
    "a damaged tree": ("trees.txt", b"(3 fine)\n(3 (2 It)\n", "line 2"),
    "an empty sentence": ("sentences.gz", gzip.compress(b"one\n\nthree\n"), "every line"),
    "no gzip": ("sentences.gz", b"words", "gzip"),
    "words for numbers": ("signals.csv", b"1,2\n3,three\n", "three"),
    "several arrays": ("signals.npy", npz(first=X, second=Y), "first, second"),
    "objects": ("signals.npy", pickle.dumps(X), "numpy.savez"),
    "no lines": ("texts.txt", b"\n\n", "got none"),
    "another array": ("arrays.npz", npz(x=X), "x and y.* got x"),
    "a split is missing": ("arrays.npz", npz(train_x=X, train_y=Y), "test_x.* got train_x"),
    "another split": ("arrays.npz", npz(x=X, y=Y, val_x=X, val_y=Y), "valid_x"),
    "one array": ("arrays.npz", saved(np.save, X), "x and y"),
    "arrays of objects": ("arrays.npz", npz(x=np.array([{}, None]), y=Y), "dtype=str"),
    "no archive": ("arrays.npz", b"words", "numpy.savez"),
    "PostScript": ("picture.png", EPS, "PNG"),
    "16 bits a pixel": ("picture.png", DEEP, "8 bits"),
    "nothing drawn": ("picture.png", picture(np.zeros((5, 5), np.uint8)), "drawn"),
    "a cut picture": ("picture.png", GOOD["picture.png"][0][:45], "PNG"),
    "another kind of array": ("images.idx", b"PNG", "50 4e 47"),
    "a cut array": ("images.idx", IDX[:-1], "whole"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_line_that_names_it(kind, tmp_path):
    name, content, said = BAD[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=said) as told:
        GOOD[name][1](tmp_path / name)
    assert name in str(told.value)
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize(
    "names", [("x", "y"), ("train_x", "train_y", "test_x", "test_y", "valid_x", "valid_y", "note")]
)
def test_arrays_come_by_split_and_others_are_left_alone(tmp_path, names):
    note = {"note": np.array([{}])} if "note" in names else {}
    own = {name: X if name.endswith("x") else Y for name in names} | note
    np.savez_compressed(tmp_path / "own.npz", **own)
    read = archive.read(tmp_path / "own.npz", "x", "y")
    assert list(read) == (["train", "valid", "test"] if note else ["all"])
    for inputs, targets in read.values():
        np.testing.assert_array_equal(inputs, X)
        np.testing.assert_array_equal(targets, Y)


def test_an_array_has_its_axes_in_whatever_order_numpy_saved_it(tmp_path):
    np.save(tmp_path / "own.npy", np.asfortranarray(SIGNALS))
    with open_arrays(tmp_path / "own.npy") as arrays:
        np.testing.assert_array_equal(arrays[""], SIGNALS)


cells = st.text(st.characters(codec="utf-8", exclude_characters="\ufeff\0"), max_size=12)
tables = st.lists(st.lists(cells, min_size=1, max_size=3), max_size=5)


@settings(max_examples=150, deadline=None, derandomize=True)
@of(tables, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_table_is_read_as_it_was_written(tmp_path_factory, rows, end, is_marked):
    path, text = tmp_path_factory.getbasetemp() / "own.csv", io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=end).writerows(rows)
    path.write_bytes((("\ufeff" if is_marked else "") + text.getvalue()).encode())
    assert [row for _, row in files.read_rows(path)] == rows


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ("text,label\na b,x\nc,y\n", ("text", "label"), (["a b", "c"], ["x", "y"])),
        ("y,q,one\nn,q,two\n", ("3", "1"), (["one", "two"], ["y", "n"])),
        ("q,text,label\nq,a b,x\n", ("2", "label"), (["a b"], ["x"])),
        ("1,2\nx,a b\n", ("2", "1"), (["a b"], ["x"])),
        ('\ufefflabel, text\n x ,"a, b"\n', ("text", "label"), (["a, b"], ["x"])),
        (
            'text\tlabel\r\n"a, b\t x\r\n\r\nc "d"\ty\r\n',
            ("text", "label"),
            (['"a, b', 'c "d"'], ["x", "y"]),
        ),
    ],
)
def test_a_table_has_its_columns_by_name_or_number(tmp_path, content, columns, expected):
    (tmp_path / "own.csv").write_text(content, encoding="utf-8", newline="")
    assert table.read(tmp_path / "own.csv", *columns) == expected


QUOTED = '"Great; ""superb"", really\n\tlong";pos\n"Dull, or bad";neg\n' * 2
QUOTED_TEXTS = ['Great; "superb", really\n\tlong', "Dull, or bad"] * 2


@pytest.mark.parametrize("name", ["own.csv", "own.tsv"])
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
def test_the_separator_is_found_by_what_is_in_a_table(tmp_path, name, content, columns, texts):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert table.read_pairs(tmp_path / name, *columns, "label").column() == texts


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
        with pytest.raises(UsageError, match="'text'"):
            table.write(before, tmp_path / "out.csv", {"text": labels})


def test_lines_end_at_line_feeds_alone(tmp_path):
    (tmp_path / "own.txt").write_bytes("\ufeffa\u2028b\r\n\r\nc\x0bd".encode())
    assert files.read_lines(tmp_path / "own.txt") == ["a\u2028b", "", "c\x0bd"]
