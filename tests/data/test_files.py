"""Data sets that are made of files: downloaded by their sums, and prepared once."""

import functools
import gzip
import hashlib
import http.server
import logging
import struct
import threading
import time

import numpy as np
import pytest

from flax_attn.data import ag_news, builders, mnist, sst
from flax_attn.data.files import read_text
from flax_attn.data.sets import SST
from flax_attn.errors import UsageError
from flax_attn.files import LARGEST


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


def load_mnist(folder):
    """Returns the images and labels of each split, and the sums of the files."""
    rows, sums = builders.load(mnist.MNIST, ("train", "test"), folder)
    column = lambda split, name: np.stack([row[name] for row in rows[split]])
    return {split: (column(split, "image"), column(split, "label")) for split in rows}, sums


def test_images_and_labels_come_in_the_order_of_the_files(tmp_path):
    arrays, sums = load_mnist(write_mnist(tmp_path))
    for split in ("train", "test"):
        np.testing.assert_array_equal(arrays[split][0], IMAGES)
        np.testing.assert_array_equal(arrays[split][1], LABELS)
    name = "train-images-idx3-ubyte.gz"
    content = (tmp_path / "mnist" / name).read_bytes()
    assert sums[name] == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train-images-idx3", gzip.compress(idx(IMAGES), mtime=0)[:-50]),
        ("t10k-labels-idx1", gzip.compress(idx(LABELS)[:-1], mtime=0)),
        ("train-images-idx3", b"\x1f\x8bnonsense"),
        ("train-images-idx3", b"PNG"),
        ("train-images-idx3", idx(IMAGES[:, :, :27])),
        ("train-labels-idx1", idx(LABELS + 3)),
        ("train-labels-idx1", idx(LABELS[:2])),
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_left_of_it(tmp_path, name, content):
    with pytest.raises(UsageError, match=name):
        load_mnist(write_mnist(tmp_path, **{name: content}))
    left = [path for path in (tmp_path / "prepared").rglob("*") if "array_record" in path.name]
    assert left == []
    load_mnist(write_mnist(tmp_path))


def test_reading_leaves_the_loggers_as_they_were(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "absl")
    monkeypatch.setattr(logging.root, "handlers", [])
    load_mnist(write_mnist(tmp_path))
    assert logging.root.handlers == []
    assert logging.getLogger("absl").level == logging.INFO


def test_other_files_never_pass_for_those_prepared_before(tmp_path):
    load_mnist(write_mnist(tmp_path))
    arrays, _ = load_mnist(
        write_mnist(tmp_path, **{"train-labels-idx1": gzip.compress(idx(LABELS + 1))})
    )
    np.testing.assert_array_equal(arrays["train"][1], LABELS + 1)


def test_the_same_files_may_be_prepared_twice_at_once(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    read, first = mnist.read_idx, []

    def meanwhile(path):
        if not first:
            first.append(path)
            load_mnist(tmp_path)
        return read(path)

    monkeypatch.setattr(mnist, "read_idx", meanwhile)
    arrays, _ = load_mnist(tmp_path)
    np.testing.assert_array_equal(arrays["test"][0], IMAGES)


def test_a_missing_file_is_told_with_both_ways_to_get_it(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UsageError, match=r"t10k-labels.*https://.* --manual_dir"):
        load_mnist(tmp_path)


def test_without_files_and_network_it_is_told_within_a_second(monkeypatch):
    named = ag_news.AGNews.FILES.items()
    files = {name: file._replace(url=f"http://localhost:9/{name}") for name, file in named}
    monkeypatch.setattr(ag_news.AGNews, "FILES", files)
    began = time.perf_counter()
    with pytest.raises(UsageError, match=r"http://localhost:9/.* --manual_dir"):
        builders.load(ag_news.AGNews, ("test",), None)
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
    names = ("train.csv", "test.csv")
    files = {name: builders.File(address + name, len(content), digest) for name in names}
    monkeypatch.setattr(ag_news.AGNews, "FILES", files)
    try:
        if whole:
            rows, _ = builders.load(ag_news.AGNews, ("test",), None)
            assert rows == {"test": [{"title": "Title", "description": "Words", "label": 2}]}
        else:
            with pytest.raises(UsageError, match=r"ag_news .*checksum"):
                builders.load(ag_news.AGNews, ("test",), None)
    finally:
        server.shutdown()
        server.server_close()


def test_news_have_two_or_three_columns(tmp_path):
    (tmp_path / "train.csv").write_text(
        '\ufeff"1","title ""quoted""","words, more"\n\n"4","joined"\n\n', encoding="utf-8"
    )
    assert list(ag_news.read_news(tmp_path / "train.csv")) == [
        {"title": 'title "quoted"', "description": "words, more", "label": 0},
        {"title": "joined", "description": "", "label": 3},
    ]


def test_a_tree_is_its_phrases_the_whole_first():
    phrases = sst.phrases("(3 (2 It) (4 (2 's) (4 (2 -LRB-) (1 hit))))")
    assert phrases[0] == sst.Phrase(("It", "'s", "(", "hit"), 3)
    assert sorted(" ".join(phrase.words) for phrase in phrases) == sorted(
        ["It 's ( hit", "It", "'s ( hit", "'s", "( hit", "(", "hit"]
    )
    assert [sst.in_classes(label, 3) for label in range(5)] == [0, 0, 1, 2, 2]
    assert [sst.in_classes(label, 5) for label in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("line", ["(3 (2 It)", "(3 It))", "(7 It)", "word", "( It)"])
def test_a_malformed_tree_is_named_with_its_line(tmp_path, line):
    (tmp_path / "sst").mkdir()
    for name in ("train", "dev", "test"):
        (tmp_path / "sst" / f"{name}.txt").write_text("(3 fine)\n")
    (tmp_path / "sst" / "dev.txt").write_text(f"(3 fine)\n{line}\n(2 fine)\n")
    with pytest.raises(UsageError, match=r"dev.txt, line 2"):
        SST().load(tmp_path)


def test_training_alone_takes_phrases_and_each_once(tmp_path):
    (tmp_path / "sst").mkdir()
    for name in ("train", "dev", "test"):
        lines = f"(1 (2 a) (4 (0 {name}) (2 bit)))\n(3 (2 A) (3 {name}))\n"
        (tmp_path / "sst" / f"{name}.txt").write_text(lines)
    labels = ["negative", "positive"]
    for phrases in (False, True):
        splits = SST(phrases=phrases).load(tmp_path).splits
        assert splits["valid"][:2] == (["a dev bit", "A dev"], labels)
        assert splits["test"][:2] == (["a test bit", "A test"], labels)
        if not phrases:
            assert splits["train"][:2] == (["a train bit", "A train"], labels)
    assert dict(zip(*splits["train"][:2])) == {
        "a train bit": "negative",
        "a": "neutral",
        "train bit": "positive",
        "train": "neutral",  # 2, to which 1.5, the mean of 0 and 3, is rounded
        "bit": "neutral",
        "a train": "positive",
    }


@pytest.mark.slow
def test_the_real_files(manual_dir):
    arrays, _ = load_mnist(manual_dir)
    shapes = {split: images.shape for split, (images, _) in arrays.items()}
    assert shapes == {"train": (60_000, 28, 28), "test": (10_000, 28, 28)}
    assert arrays["train"][1][:5].tolist() == [5, 0, 4, 1, 9]
    news, _ = builders.load(ag_news.AGNews, ("train", "test"), manual_dir)
    counts = lambda split: np.bincount([row["label"] for row in news[split]]).tolist()
    assert (counts("train"), counts("test")) == ([5048, 3443, 3333, 5101], [1900] * 4)
    rows, _ = builders.load(sst.SST, ("train", "valid", "test"), manual_dir)
    trees = {name: [sst.phrases(row["tree"]) for row in own] for name, own in rows.items()}
    sizes = {split: len(sentences) for split, sentences in trees.items()}
    assert sizes == {"train": 8_544, "valid": 1_101, "test": 2_210}
    words = {word.lower() for sentence in trees["train"] for word in sentence[0].words}
    assert len(words) == 16_581


def test_only_the_files_that_are_wanted_are_read(tmp_path):
    (tmp_path / "ag_news").mkdir()
    (tmp_path / "ag_news" / "test.csv").write_text('"1","fine","words"\n')
    (tmp_path / "ag_news" / "train.csv").write_text("broken")
    rows, sums = builders.load(ag_news.AGNews, ("test",), tmp_path)
    assert (len(rows["test"]), list(sums)) == (1, ["test.csv"])


def test_a_file_of_more_than_four_gigabytes_is_refused(tmp_path):
    with open(tmp_path / "large.csv", "wb") as file:
        file.truncate(LARGEST + 1)  # it takes no space on the disk
    with pytest.raises(UsageError, match=f"at most {LARGEST:,} bytes"):
        read_text(tmp_path / "large.csv")
