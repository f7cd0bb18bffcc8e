"""Files of a run directory, which may come from anyone."""

import os

import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import untrusted


@pytest.mark.parametrize(
    "name", ["../x", "a/../x", "./x", "a//x", "a/", "/x", "", ".", "..", "a\\x", "c:x", "a\0x"]
)
def test_a_name_that_is_no_plain_one_is_refused(tmp_path, name):
    (tmp_path / "x").write_text("outside")
    (tmp_path / "run").mkdir()
    with pytest.raises(UsageError, match=r"^expected the name of a file in "):
        untrusted.open_file(tmp_path / "run", name, 10)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "got a pipe; remove it"),
        (os.mkdir, "got a directory; remove it"),
        (lambda path: path.symlink_to("run"), "got a link; copy the files themselves"),
        (lambda path: path.write_bytes(b"01234567890"), "expected at most 10 bytes in .*, got 11;"),
    ],
)
def test_what_is_no_regular_file_of_at_most_so_many_bytes_is_not_opened(tmp_path, make, told):
    make(tmp_path / "file")
    with pytest.raises(UsageError, match=told):
        untrusted.open_file(tmp_path, "file", 10)
    (tmp_path / "good").write_bytes(b"0123456789")
    assert untrusted.read_bytes(tmp_path, "good", 10) == b"0123456789"


def test_json_has_at_most_so_many_levels(tmp_path):
    write = lambda levels: (tmp_path / "deep.json").write_text("[" * levels + "]" * levels)
    write(untrusted.DEEPEST)
    untrusted.read_json(tmp_path, "deep.json")
    write(untrusted.DEEPEST + 10)
    with pytest.raises(UsageError, match=rf"\(more than {untrusted.DEEPEST} levels\)"):
        untrusted.read_json(tmp_path, "deep.json")
