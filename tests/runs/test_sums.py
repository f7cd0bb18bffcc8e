"""The list of sums of a run directory."""

import json

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


def test_a_folder_that_is_a_link_is_not_followed(listed):
    (listed / "figures").rename(listed / "moved")
    (listed / "figures").symlink_to("moved")
    assert (listed / "figures" / "loss.png").read_text() == "as it was"
    assert sums.changed(listed) == ["figures/loss.png"]


def test_a_link_above_the_folder_of_a_file_is_not_followed(listed):
    (listed / "checkpoints" / "1").mkdir(parents=True)
    (listed / "checkpoints" / "1" / "sha256.json").write_text("as it was")
    sums.write(listed, ["checkpoints/1/sha256.json"])
    assert sums.changed(listed) == []
    (listed / "checkpoints").rename(listed / "moved")
    (listed / "checkpoints").symlink_to("moved")
    assert sums.changed(listed) == ["checkpoints/1/sha256.json"]


def test_figures_decide_nothing(listed):
    (listed / "figures" / "loss.png").write_text("another")
    assert sums.changed(listed) == ["figures/loss.png"]
    sums.check(listed)


@pytest.mark.parametrize("content", ["{", "[]", '{"config.json": 1}', "[" * 100_000])
def test_a_list_that_is_none_is_told(listed, content):
    (listed / sums.SUMS).write_text(content)
    with pytest.raises(UsageError, match=r"expected JSON in .*sums\.json|sums\.json is damaged"):
        sums.check(listed)


def test_a_run_that_has_not_begun_has_no_list(tmp_path):
    assert sums.read(tmp_path) == {}
    sums.check(tmp_path)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "figures/../../x", "figures/a/b.png", "a\\..\\b", "c:x", ""]
)
def test_a_name_that_leads_elsewhere_is_refused(listed, name):
    (listed / sums.SUMS).write_text(json.dumps({name: {"bytes": 1, "sha256": "x"}}))
    with pytest.raises(UsageError, match="expected the names of files of a run"):
        sums.changed(listed)
