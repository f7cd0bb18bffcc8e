"""The growing log of metrics."""

import math

import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import metrics_log
from flax_attn.runs.metrics_log import MetricsLog

ROWS = [[{"epoch": epoch, "seed": 0, "step": 0, "mse": 1 / (epoch + 3)}] for epoch in range(4)]


@pytest.fixture
def log(tmp_path):
    """A log with three epochs."""
    log = MetricsLog(tmp_path)
    log.begin(ROWS[0])
    log.append(ROWS[1])
    log.append(ROWS[2])
    return log


def test_the_rows_are_read_as_they_were_appended(log, tmp_path):
    assert log.path == tmp_path / "metrics.jsonl"
    assert metrics_log.read(tmp_path) == ROWS[0] + ROWS[1] + ROWS[2]
    log.append([ROWS[3][0] | {"mse": math.nan}])
    assert math.isnan(metrics_log.read(tmp_path)[3]["mse"])


def test_the_content_is_that_of_the_file(log):
    assert log.content == log.path.read_bytes()
    log.append(ROWS[3])
    assert log.content == log.path.read_bytes()
    assert len(log.content.splitlines()) == 4


def test_a_log_begins_anew_with_the_rows_of_a_checkpoint(log, tmp_path):
    log.begin(ROWS[0] + ROWS[1])
    assert metrics_log.read(tmp_path) == ROWS[0] + ROWS[1]
    log.append(ROWS[2])
    assert metrics_log.read(tmp_path) == ROWS[0] + ROWS[1] + ROWS[2]
    assert log.content == log.path.read_bytes()


def test_what_is_damaged_meanwhile_stays_out_of_the_content(log, tmp_path):
    log.path.write_text(log.path.read_text().replace("0.25", "0.26"))
    log.append(ROWS[3])
    assert metrics_log.read(tmp_path)[1]["mse"] == 0.26
    log.write()
    assert metrics_log.read(tmp_path) == ROWS[0] + ROWS[1] + ROWS[2] + ROWS[3]


def test_more_rows_than_a_run_may_have_are_told(log, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_log, "MOST_ROWS", 3)
    assert len(metrics_log.read(tmp_path)) == 3
    log.append(ROWS[3])
    with pytest.raises(UsageError, match="more than 3 rows"):
        metrics_log.read(tmp_path)


def test_lines_that_are_no_rows_are_told(log, tmp_path):
    for line in ("{}", "[]", '{"epoch": 1, "seed": 0, "step": -1}', '{"torn'):
        log.path.write_text(line + "\n")
        with pytest.raises(UsageError, match=r"expected rows in .*metrics\.jsonl \(.*; run the"):
            metrics_log.read(tmp_path)
