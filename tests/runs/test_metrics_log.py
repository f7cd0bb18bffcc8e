"""The growing log of metrics, and its copy."""

import pytest

from flax_attn.errors import UsageError
from flax_attn.runs.metrics_log import MetricsLog, read_until
from tests.runs.conftest import as_on_disk

ROWS = [[{"epoch": epoch, "seed": 0, "step": 0, "mse": 1 / (epoch + 1)}] for epoch in range(4)]


@pytest.fixture
def marked(tmp_path):
    """A log with three epochs, and the mark after the second."""
    log = MetricsLog(tmp_path)
    log.begin(ROWS[0])
    log.append(ROWS[1])
    mark = log.mark()
    log.append(ROWS[2])
    return tmp_path, mark


def test_rows_are_read_until_the_mark(marked):
    assert read_until(*marked) == ROWS[0] + ROWS[1]


def test_every_row_is_on_the_disk_before_a_mark_refers_to_it(tmp_path, synced):
    log = MetricsLog(tmp_path)
    files = [tmp_path / name for name in ("metrics.jsonl", "checkpoints/metrics.jsonl")]
    log.begin(ROWS[0])
    for rows in ROWS[1:]:
        for file in files:
            assert synced[file.stat().st_ino] == as_on_disk(file)
            assert file.name in synced[file.parent.stat().st_ino]
        log.append(rows)
        assert log.mark()["bytes"] == files[0].stat().st_size
    for file in files:
        assert synced[file.stat().st_ino] == as_on_disk(file)


def test_every_row_counts_for_a_later_mark(tmp_path):
    log = MetricsLog(tmp_path)
    log.begin(ROWS[0])
    for rows in ROWS[1:]:
        log.append(rows)
    assert read_until(tmp_path, log.mark()) == sum(ROWS, [])  # noqa: RUF017


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints/metrics.jsonl"])
def test_one_of_two_may_be_damaged(marked, name):
    run, mark = marked
    (run / name).write_text((run / name).read_text().replace("0.5", "0.6"))
    assert read_until(run, mark) == ROWS[0] + ROWS[1]
    (run / name).unlink()
    assert read_until(run, mark) == ROWS[0] + ROWS[1]


def test_both_damaged_are_told_with_a_way_out(marked):
    run, mark = marked
    for name in ("metrics.jsonl", "checkpoints/metrics.jsonl"):
        (run / name).write_text("{}")
    with pytest.raises(UsageError, match=r"remove .*checkpoints to train from the start"):
        read_until(run, mark)
