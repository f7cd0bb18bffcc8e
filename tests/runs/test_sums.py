"""The list of sums of a run directory."""

import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import sums


@pytest.fixture
def listed(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("config.json", "figures/loss.png"):
        (tmp_path / name).write_text("as it was")
    sums.write(tmp_path, ["config.json", "figures/loss.png"])
    return tmp_path


def test_what_was_written_is_unchanged(listed):
    assert sums.changed(listed) == []
    sums.check(listed)


def test_another_byte_is_a_change_and_so_is_a_file_that_is_gone(listed):
    (listed / "config.json").write_text("as it wss")
    with pytest.raises(UsageError, match=r"config\.json has changed since training wrote it"):
        sums.check(listed)
    (listed / "config.json").unlink()
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        sums.check(listed)
    assert sums.changed(listed) == ["config.json"]


def test_figures_decide_nothing(listed):
    (listed / "figures" / "loss.png").write_text("another")
    assert sums.changed(listed) == ["figures/loss.png"]
    sums.check(listed)


@pytest.mark.parametrize("content", ["{", "[]", '{"config.json": 1}', "[" * 100_000])
def test_a_list_that_is_none_is_told(listed, content):
    (listed / sums.SUMS).write_text(content)
    with pytest.raises(UsageError, match="expected sums in"):
        sums.check(listed)


def test_a_run_without_a_list_is_read_without(tmp_path):
    assert sums.read(tmp_path) == {}
    sums.check(tmp_path)
