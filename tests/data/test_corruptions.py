"""Readers read a damaged file, or refuse it with a UsageError. They raise nothing else."""

import gzip
import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from flax_attn import bounded
from flax_attn.data import ag_news, mnist, multi30k, pairs, sst, table
from flax_attn.errors import UsageError
from flax_attn.kinds import user_files as files
from flax_attn.kinds.signals import check_signals

SHAPE = (6, 5)
SIGNALS = np.arange(12.0).reshape(2, 6)
TEXT = "\ufeffA man asleep, 3.5 km off\r\nein Mann schläft ('tief')\n\n日本語 🙂\u202e\n".encode()
NEWS = b"""\
"1","A title","Some words, ""quoted\"""
"4","joined
in two lines"\r
3,bare,cells
"""
TREES = b"(3 (2 It) (4 (2 's) (4 (2 -LRB-) (1 hit))))\n(0 (1 no) (2 way))\n"
TABLE = '\ufefftext,label\ngood one,yes\n"bad, one",no\nfine ü,yes\nawful,no\n'.encode()
TSV = "ein Mann\ta man\nzwei Männer\ttwo men\textra\n\n".encode()


def npy(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def npz(save):
    file = io.BytesIO()
    save(file, x=SIGNALS, y=np.array(["a", "bc"]))
    return file.getvalue()


def png():
    """A picture with all that Pillow reads besides pixels: texts, a palette, transparency."""
    notes = PngImagePlugin.PngInfo()
    notes.add_text("title", "a title")
    notes.add_text("long", "zipped " * 30, zip=True)
    notes.add_itxt("international", "grüße", "de", zip=True)
    file = io.BytesIO()
    picture = Image.fromarray((np.arange(30).reshape(SHAPE) * 8).astype(np.uint8)).convert("P")
    picture.save(file, "PNG", pnginfo=notes, transparency=3, icc_profile=b"\0" * 40)
    return file.getvalue()


def idx():
    return bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, *SHAPE) + bytes(range(60))


def with_sums(content):
    """A PNG with the right sum behind every chunk, so that its damage goes deeper."""
    content, place = bytearray(content), 8
    while place + 12 <= len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        end = place + 8 + length
        content[end : end + 4] = struct.pack(">I", zlib.crc32(content[place + 4 : end]))
        place = end + 4
    return bytes(content)


SENTENCES = TEXT.replace(b"\n\n", b"\n")
as_it_is = bytes
READERS = {  # the whole content, what is done to it when it is damaged, and its reader
    "signals.npy": (
        npy(SIGNALS),
        as_it_is,
        lambda path: check_signals(files.read_signals(path), (6, 1)),
    ),
    "fortran.npy": (
        npy(np.asfortranarray(SIGNALS.astype(np.float32)), (2, 0)),
        as_it_is,
        lambda path: check_signals(files.read_signals(path), (6, 1)),
    ),
    "signals.csv": (
        "\ufeff# a header\n1,2.5,-3e4,4,5,6\n1, 2,3,+4,.5,6\n".encode(),
        as_it_is,
        lambda path: check_signals(files.read_signals(path), (6, 1)),
    ),
    "texts.txt": (TEXT, as_it_is, files.read_lines),
    "picture.png": (png(), as_it_is, lambda path: files.read_images(path, True)),
    "sums.png": (png(), with_sums, lambda path: files.read_images(path, True)),
    "images.idx": (idx(), as_it_is, lambda path: files.read_images(path, True)),
    "images.gz": (gzip.compress(idx()), as_it_is, mnist.read_idx),
    "inner.gz": (idx(), gzip.compress, mnist.read_idx),
    "pairs.tsv": (TSV, as_it_is, pairs.read),
    "trees.txt": (TREES, as_it_is, lambda path: list(sst.SST._generate_examples(None, path))),
    "news.csv": (NEWS, as_it_is, lambda path: list(ag_news.read_news(path))),
    "table.csv": (TABLE, as_it_is, lambda path: table.read(path, "text", "label")),
    "sentences.gz": (gzip.compress(SENTENCES), as_it_is, multi30k.read_lines),
    "arrays.npz": (npz(np.savez), as_it_is, bounded.read_npz),
    "packed.npz": (npz(np.savez_compressed), as_it_is, bounded.read_npz),
    "lines.gz": (SENTENCES, gzip.compress, multi30k.read_lines),
}


def corrupted(content, seed):
    """The content with one to three things done to it, at places that the seed decides."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(content) + 1)
        before, after = content[:place], content[place:]
        some = chance.randbytes(chance.randint(1, 8))
        content = chance.choice(
            [
                before + bytes(byte ^ 1 << chance.randrange(8) for byte in after[:1]) + after[1:],
                before
                + chance.choice([b"\0", b"\xff", b'"', b"\n", b"\r", b"(", b","])
                + after[1:],
                before,
                before + some + after,
                before + before[-chance.randint(1, 40) :] * chance.choice([1, 2, 300]) + after,
                before + after[chance.randint(1, 40) :],
            ]
        )
    return content


@pytest.mark.parametrize("name", READERS)
def test_a_whole_file_is_read(name, tmp_path):
    content, pack, read = READERS[name]
    (tmp_path / name).write_bytes(pack(content))
    assert len(read(tmp_path / name)) > 0


@pytest.mark.parametrize("number", [50, pytest.param(300, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(name, number, tmp_path):
    content, pack, read = READERS[name]
    path, num_refused = tmp_path / name, 0
    for seed in range(number):
        path.write_bytes(pack(corrupted(content, seed)))
        try:
            read(path)
        except UsageError as refusal:
            num_refused += 1
            said = str(refusal)
            assert len(said.splitlines()) == 1, f"seed {seed}: {said}"
            assert "allow_pickle" not in said, f"seed {seed}"
        except Exception as error:
            raise AssertionError(f"seed {seed}: {path.read_bytes()}") from error
    assert num_refused > 0  # or no damage was done
