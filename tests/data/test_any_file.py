"""Readers of files of any content: what was written is read, and all else is refused in a line."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as of
from hypothesis import settings
from hypothesis import strategies as st

from flax_attn import bounded
from flax_attn.data import files
from flax_attn.errors import UsageError

anything = settings(max_examples=150, deadline=None, derandomize=True)
cells = st.text(st.characters(codec="utf-8", exclude_characters="\ufeff"), max_size=12)
tables = st.lists(st.lists(cells, min_size=1, max_size=3), max_size=5)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("files") / "file"


@anything
@of(tables, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_table_is_read_as_it_was_written(path, rows, end, is_marked):
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=end).writerows(rows)
    mark = "\ufeff" if is_marked else ""
    path.write_bytes((mark + text.getvalue()).encode())
    assert [row for _, row in files.read_rows(path)] == rows


def open_picture(path: Path) -> list[np.ndarray]:
    with bounded.open_picture(path) as picture:
        return [np.asarray(picture)]


READERS = {
    "CSV": lambda path: list(files.read_rows(path)),
    "TSV": lambda path: list(files.read_rows(path, files.TAB)),
    "text": lambda path: list(files.read_lines(path)),
    "npy": bounded.read_npy,
    "PNG": open_picture,
}
HEADS = [b"", b"\x89PNG\r\n\x1a\n", b"\x93NUMPY\x01\x00", b"\xef\xbb\xbf"]
HEADS += [b"\x1f\x8b\x08", b"PK\x03\x04"]


@pytest.mark.parametrize("name", READERS)
@anything
@of(head=st.sampled_from(HEADS), rest=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_a_line(path, name, head, rest):
    path.write_bytes(head + rest)
    said = ""
    try:
        READERS[name](path)
    except UsageError as refusal:
        said = str(refusal)
    assert len(said.splitlines()) <= 1
