"""Bad files are refused before they take memory, and good ones take little more than they hold."""

import gzip
import io
import os
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flax_attn import bounded
from flax_attn.data import ag_news, mnist, multi30k, pairs, sst, table
from flax_attn.data.files import read_lines, read_rows
from flax_attn.errors import UsageError
from flax_attn.kinds import user_files as files
from flax_attn.kinds.signals import check_signals

MEGABYTE = 2**20
READERS = {
    "signals.npy": lambda path: check_signals(files.read_signals(path), (100, 1)),
    "signals.csv": lambda path: check_signals(files.read_signals(path), (100, 1)),
    "texts.txt": files.read_lines,
    "picture.png": lambda path: files.read_images(path, True),
    "images.idx": lambda path: files.read_images(path, True),
    "pairs.tsv": pairs.read,
    "trees.txt": lambda path: list(sst.SST._generate_examples(None, path)),
    "news.csv": lambda path: list(ag_news.read_news(path)),
    "table.csv": lambda path: table.read(path, "text", "label"),
    "sentences.gz": multi30k.read_lines,
    "arrays.npz": bounded.read_npz,
}


def peak_of(function, *arguments):
    """What a function returns or the UsageError it raises, and its peak of memory in bytes."""
    tracemalloc.start()
    try:
        result = function(*arguments)
    except UsageError as error:
        result = error
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return result, peak


def refused(reader, path, said):
    """Asserts that a reader refuses a file with few megabytes, and says so in one line."""
    result, peak = peak_of(reader, path)
    assert isinstance(result, UsageError), result
    assert said in str(result)
    assert "\n" not in str(result)
    assert peak < 40 * MEGABYTE


@pytest.mark.parametrize("name", READERS)
def test_folders_and_endless_devices_are_not_read(name, tmp_path):
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises((OSError, UsageError)):
        READERS[name](tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises((OSError, UsageError), match="directory"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize(
    ("read", "content", "expected"),
    [
        (files.read_lines, b"a good film\na bad one\n", ["a good film", "a bad one"]),
        (lambda path: files.read_signals(path).tolist(), b"1,2\n3,4\n", [[1, 2], [3, 4]]),
    ],
)
def test_what_a_pipe_holds_is_read(read, content, expected):
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    assert read(Path(f"/dev/fd/{reading}")) == expected
    os.close(reading)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_too_large_is_not_read(name, tmp_path):
    with open(tmp_path / name, "wb") as file:
        file.truncate(bounded.LARGEST_FILE + 1)  # without content on the disk
    largest = bounded.LARGEST_PICTURE if name == "picture.png" else bounded.LARGEST_FILE
    refused(READERS[name], tmp_path / name, f"at most {largest:,} bytes")


@pytest.mark.parametrize("name", READERS)
def test_a_gigabyte_of_zeros_is_refused_with_little_memory(name, tmp_path):
    largest = bounded.LARGEST_PICTURE if name == "picture.png" else 2**30
    with open(tmp_path / name, "wb") as file:
        file.truncate(largest)
    refused(READERS[name], tmp_path / name, str(tmp_path / name))


@pytest.mark.parametrize("name", ["texts.txt", "pairs.tsv", "trees.txt", "table.csv"])
def test_a_line_that_is_too_long_is_named(name, tmp_path):
    content = b"short\tshort\n" + b"x" * (bounded.LONGEST_LINE + 1)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=r"at most 10,000,000 characters in .*line 2"):
        READERS[name](tmp_path / name)
    (tmp_path / name).write_bytes(content[:-2])
    assert len(list(read_lines(tmp_path / name))) == 2


def test_a_row_whose_quotes_never_close_is_refused(tmp_path):
    (tmp_path / "open.csv").write_bytes(b'fine,row\n"open,' + (b"word " * 50 + b"\n") * 50_000)
    with pytest.raises(UsageError, match="that of line 2 has more; close its quotes"):
        list(read_rows(tmp_path / "open.csv"))


def test_a_table_is_as_long_as_it_likes(tmp_path):
    (tmp_path / "long.csv").write_bytes((b"word " * 200_000 + b",label\n") * 11)
    assert [line for line, _ in read_rows(tmp_path / "long.csv")] == list(range(1, 12))


def packed(shape, megabytes):
    """An IDX file of zeros, compressed a thousandfold."""
    header = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    return gzip.compress(header) + gzip.compress(bytes(10 * MEGABYTE)) * (megabytes // 10)


def test_600_megabytes_in_a_small_gzip_are_refused(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(packed((800_000, 28, 28), 600))
    assert path.stat().st_size < MEGABYTE
    refused(mnist.read_idx, path, "more than the 67,108,864 that it may hold")
    path.write_bytes(packed((4,), 600))
    refused(mnist.read_idx, path, "and more follow")
    path.write_bytes(gzip.compress(bytes(10 * MEGABYTE)) * 60)
    refused(mnist.read_idx, path, "which begins with 00 00 08")
    refused(multi30k.read_lines, path, "at most 10,000,000 characters")
    path.write_bytes(gzip.compress((b"a sentence " * 9_000 + b"\n") * 700))
    with pytest.raises(UsageError, match="at most 67,108,864 characters"):
        multi30k.read_lines(path)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((2**32 - 1, 2**32 - 1, 2**32 - 1), "more than the"),
        ((3, 0, 28), "something on each"),
        ((0, *[2**32 - 1] * 5), "something on each"),
        ((1,) * 9, "expected 1 to 8 axes"),
        ((1,) * 255, "expected 1 to 8 axes"),
        ((), "expected 1 to 8 axes"),
        ((30, 28, 28), "more than the"),
    ],
)
def test_the_header_of_an_idx_file_is_checked_first(tmp_path, shape, said):
    (tmp_path / "images").write_bytes(
        bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(10)
    )
    refused(mnist.read_idx, tmp_path / "images", said)


def npy(header, version=1, content=b"\0" * 80):
    """A .npy file with this text as its header."""
    head = header.encode("latin-1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(head))
    return b"\x93NUMPY" + bytes([version, 0]) + size + head + content


def described(shape, kind="'<f8'", order="False"):
    return f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "header",
    [
        described("(99999999999999999999, 100)"),
        described("(1000000000000, 100)"),
        described("(-1, -10)"),
        described("(0, 99999999999999999999)"),
        described("(1,) + (1,)"),
        described("(10.0,)"),
        described("(1,) " + "* 9" * 5),
        described(repr((1,) * 70)),
        described("(10,)", "'|O'"),
        described("(10,)", "[('a', '|O')]"),
        described("(10,)", "'<f999999999999'"),
        described("(10,)", "'|V0'"),
        described("(10,)", "__import__('os').system('false')"),
        described("(10,)", "(" * 200 + ")" * 200),
        described("(10,)", "[" * 4000 + "]" * 4000),
        "{" * 90,
        "'",
        "'''",
        "\\",
        "1e999",
        "x" * 9_000,
        "9" * 5_000,
        "",
        "\0",
    ],
)
def test_a_header_of_numpy_that_is_none_is_refused_without_its_advice(tmp_path, header):
    for version in (1, 2, 3):
        (tmp_path / "signals.npy").write_bytes(npy(header, version))
        result, peak = peak_of(READERS["signals.npy"], tmp_path / "signals.npy")
        assert isinstance(result, UsageError)
        assert "pickle" not in str(result)
        assert "\n" not in str(result)
        assert peak < 8 * MEGABYTE


def test_a_header_of_numpy_is_as_long_as_its_first_bytes_say(tmp_path):
    content = npy(described("(100,)"), content=np.arange(100.0).tobytes())
    (tmp_path / "whole.npy").write_bytes(content)
    read = READERS["signals.npy"]
    np.testing.assert_array_equal(read(tmp_path / "whole.npy"), np.arange(100, dtype=np.float32))
    (tmp_path / "cut.npy").write_bytes(content[:-1])
    refused(read, tmp_path / "cut.npy", "says 800 bytes, and 799 follow")
    with open(tmp_path / "long.npy", "wb") as file:
        file.write(b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1))
        file.truncate(2**30)
    refused(read, tmp_path / "long.npy", "a header of at most 10,000 bytes")


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_has_its_axes_in_whatever_order_numpy_saved_it(tmp_path, order):
    array = np.arange(24.0).reshape(2, 3, 4)
    np.save(tmp_path / "array.npy", np.asarray(array, order=order))
    np.testing.assert_array_equal(bounded.read_npy(tmp_path / "array.npy"), array)


def npz(arrays, save=np.savez_compressed):
    """The bytes of a .npz file."""
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def zipped(content, name="x.npy", kind=zipfile.ZIP_DEFLATED):
    """A zip file of one member."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def lying(content, says):
    """A zip file of one member, whose list says another size of it."""
    file = bytearray(zipped(content))
    place = file.rindex(b"PK\1\2") + 24
    file[place : place + 4] = struct.pack("<I", says)
    return bytes(file)


ARRAYS = {"x": np.arange(6.0).reshape(2, 3).T, "y": np.array(["a", "bc"]), "z": np.zeros((0, 3))}


def test_arrays_of_an_archive_are_read_by_name(tmp_path):
    path = tmp_path / "arrays.npz"
    for save in (np.savez, np.savez_compressed):
        path.write_bytes(npz(ARRAYS, save))
        with open(path, "rb") as file:
            file.seek(99)
            from_file = bounded.read_npz(path, file)
            assert not file.closed
        for arrays in (bounded.read_npz(path), from_file):
            assert list(arrays) == list(ARRAYS)
            for name, array in ARRAYS.items():
                np.testing.assert_array_equal(arrays[name], array)
                assert arrays[name].dtype == array.dtype


def test_arrays_that_are_not_chosen_are_left_alone(tmp_path):
    path = tmp_path / "arrays.npz"
    path.write_bytes(npz({"x": np.arange(3), "y": np.array([{}, None])}))
    assert list(bounded.read_npz(path, choose=lambda names: names[:1])) == ["x"]
    refused(bounded.read_npz, path, f"expected numbers in y.npy of {path}, got object of shape")


def test_100_megabytes_in_a_small_archive_are_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in "abcdefghij":
            archive.writestr(f"{name}.npy", npy(described("(1310720,)"), content=bytes(10 * 2**20)))
    refused(bounded.read_npz, path, "at most 67,108,864 bytes unpacked")
    one = bounded.read_npz(path, choose=lambda names: names[3:4])
    assert one["d"].shape == (1_310_720,)


SOME, EIGHTFOLD = npy(described("(10,)")), described("(4194304,)")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "another kind of file"),
        (b"no archive", "another kind of file"),
        (b"\x80\x04pickled", "another kind of file"),
        (SOME, "got one array"),
        (b"PK no archive", "not a zip file"),
        (npz(ARRAYS)[:-30], "not a zip file"),
        (zipped(SOME, "x"), "another kind of file"),
        (zipped(b"print()", "x.py"), "another kind of file"),
        (zipped(SOME, kind=zipfile.ZIP_BZIP2), "another kind of file"),
        (zipped(SOME, kind=zipfile.ZIP_LZMA), "another kind of file"),
        (
            zipped(SOME).replace(b"PK\1\2\x14\x03\x14\0\0", b"PK\1\2\x14\x03\x14\0\1"),
            "another kind",
        ),
        (zipped(b"no array"), "got no .npy file"),
        (zipped(SOME[:-1]), "bytes in x.npy of"),
        (zipped(SOME + b"more"), "bytes in x.npy of"),
        (zipped(npy(described("(1000000000000, 100)"))), "bytes in x.npy of"),
        (zipped(npy(described("(-10,)"))), "expected numbers in x.npy of"),
        (zipped(npy(described("(10,)", "'|V0'"))), "expected numbers in x.npy of"),
        (zipped(npy(described("(0, 99999999999999999999)"), content=b"")), "expected arrays in"),
        (lying(SOME, 2**32 - 2), "unpacked from"),
        (lying(SOME, 2**25), "bytes in x.npy of"),
        (lying(npy(EIGHTFOLD), 2**25 + len(npy(EIGHTFOLD, content=b""))), "expected arrays in"),
        (lying(SOME + bytes(100 * 2**20), len(SOME)), "Bad CRC-32"),
        (zipped(SOME, "x" * 60_000), "x...x"),
    ],
)
def test_an_archive_that_is_none_is_refused_without_the_advice_of_numpy(tmp_path, content, said):
    path = tmp_path / "arrays.npz"
    path.write_bytes(content)
    refused(bounded.read_npz, path, said)
    with pytest.raises(UsageError) as error:
        bounded.read_npz(path)
    assert "pickle" not in str(error.value)
    assert len(str(error.value)) < 500


def test_a_list_of_members_that_is_too_long_is_refused(tmp_path):
    path, size = tmp_path / "arrays.npz", 100 * MEGABYTE
    with open(path, "wb") as file:
        file.write(b"PK")
        file.truncate(size)
        file.seek(size)
        file.write(b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 1, 1, size, 0, 0))
    refused(
        bounded.read_npz, path, "with a list of at most 4,194,304 bytes, got one of 104,857,600"
    )


def chunk(kind, content):
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def blank(width, height, before=b""):
    """A white PNG of one bit a pixel, with chunks before its pixels."""
    packer, row = zlib.compressobj(9), b"\0" + b"\xff" * -(-width // 8)
    pixels = b"".join([*(packer.compress(row) for _ in range(height)), packer.flush()])
    header = struct.pack(">2I5B", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + before
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 28 28\n%%EndComments\nshowpage\n"
BOMB = b"key\0\0" + zlib.compress(bytes(20 * MEGABYTE), 9)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (EPS, "picture"),
        (b"GIF89a" + bytes(30), "picture"),
        (blank(13_000, 13_000), "at most 67,108,864 pixels"),
        (blank(28, 28)[:50], "damaged"),
        (blank(28, 28, chunk(b"zTXt", BOMB)), "damaged"),
        (blank(28, 28, chunk(b"iCCP", BOMB)), "damaged"),
        (blank(28, 28), "pixels that are all alike"),
        (blank(0, 28), "picture"),
        (blank(28, 28).replace(b"IHDR", b"IHDX"), "picture"),
        (b"", "picture"),
    ],
)
def test_only_pictures_are_decoded_and_only_by_their_readers(tmp_path, content, said):
    (tmp_path / "picture.png").write_bytes(content)
    refused(READERS["picture.png"], tmp_path / "picture.png", said)


def test_a_picture_of_more_pixels_than_pillow_allows_is_one_line(tmp_path):
    header = struct.pack(">2I5B", 30_000, 30_000, 1, 0, 0, 0, 0)
    content = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    )
    (tmp_path / "picture.png").write_bytes(content)
    refused(READERS["picture.png"], tmp_path / "picture.png", "at most 67,108,864 pixels")


def contents():
    """Good files of some megabytes, by name."""
    chance = np.random.default_rng(0)
    picture, images = io.BytesIO(), chance.integers(0, 256, (1_000, 28, 28), np.uint8)
    Image.fromarray(images[0]).save(picture, "PNG")
    lines = [f"text number {i} with some words {'and more ' * (i % 9)}" for i in range(6_000)]
    signals, file = chance.normal(size=(2_000, 100)), io.BytesIO()
    np.save(file, signals)
    rows = "\n".join(",".join(f"{x:.6g}" for x in row) for row in signals[:600])
    return {
        "signals.npy": file.getvalue(),
        "signals.csv": rows.encode(),
        "texts.txt": "\n".join(lines).encode(),
        "picture.png": picture.getvalue(),
        "images.idx": bytes([0, 0, 8, 3]) + struct.pack(">3I", *images.shape) + images.tobytes(),
        "pairs.tsv": "".join(f"{line}\t{line}\n" for line in lines).encode(),
        "trees.txt": b"(3 (2 It) (4 (2 's) (1 hit)))\n" * 6_000,
        "news.csv": "".join(f'"1","{line}","{line}"\n' for line in lines).encode(),
        "table.csv": ("text,label\n" + "".join(f"{x},a\n{x},b\n" for x in lines)).encode(),
        "sentences.gz": gzip.compress("\n".join(lines).encode()),
        "arrays.npz": npz({"x": signals, "y": images}),
    }


@pytest.mark.parametrize("name", READERS)
def test_a_good_file_takes_at_most_three_times_what_is_kept_of_it(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(contents()[name])
    tracemalloc.start()
    result = READERS[name](path)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(result) > 0
    assert peak <= 3 * kept + MEGABYTE / 4


def test_a_file_of_the_largest_size_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"four")
    with bounded.open_file(tmp_path / "a", 4) as file:
        assert file.read() == b"four"
    with pytest.raises(UsageError, match=r"at most 3 bytes in .*, got 4"):
        bounded.open_file(tmp_path / "a", 3)
