"""Runs side by side: what is drawn of them together."""

import io

import pytest
from rich.console import Console

from flax_attn.commands.comparing import compare, draw
from flax_attn.runs.reading import read
from tests.written_runs import write_run


@pytest.mark.parametrize(("moved", "names"), [(0, ["loss", "predictions"]), (1, ["loss"])])
def test_predictions_are_drawn_together_where_the_test_data_are_the_same(moved, names, tmp_path):
    run, output = read(write_run(tmp_path / "run")), io.StringIO()
    inputs = {"inputs": run.examples["inputs"] + moved}
    other = run._replace(name="other", examples=run.examples | inputs)
    assert sorted(draw([run, other], Console(file=output))) == names
    assert ("tested on different data" in output.getvalue()) == bool(moved)


@pytest.mark.parametrize("sums", [("1", "1"), ("1", "2")])
def test_runs_of_different_files_are_told_to_be_none_to_compare(sums, tmp_path, no_pictures):
    of_files = lambda name, own: {"derived": {"std": 1.0, "files": {f"{name}.npz": 64 * own}}}
    runs = [write_run(tmp_path / n, config=of_files(n, own)) for n, own in zip("ab", sums)]
    output = io.StringIO()
    compare(runs, tmp_path / "figures", Console(file=output, width=200))
    said = "the runs are of different data, so their figures cannot be compared"
    assert (said in output.getvalue()) == (len(set(sums)) > 1)
