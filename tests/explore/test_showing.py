"""A page of runs with their models: what is read, and how often."""

import json
import re
from collections import Counter

from flax_attn.__main__ import main
from flax_attn.explore.showing import page_of
from flax_attn.runs import reading
from flax_attn.runs.reading import read
from tests.written_runs import write_run


def test_a_report_with_models_reads_and_checks_a_run_once(tmp_path, monkeypatch, capsys):
    path = write_run(tmp_path / "run")  # its model cannot be made, which comes after all is read
    times = Counter()

    def counted(module, name):
        function = getattr(module, name)

        def call(*args, **options):
            times[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(module, name, call)

    counted(reading, "read_arrays")
    assert main(["report", str(path), "-o", str(tmp_path / "report.html")]) == 0
    assert (
        "This model does not answer in a page, because " in (tmp_path / "report.html").read_text()
    )
    assert times == {"read_arrays": 1}
    assert "are in the page" not in capsys.readouterr().err


def test_a_run_that_is_named_twice_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    output = tmp_path / "report.html"
    assert main(["report", "run", "./run", "--no-model", "-o", str(output)]) == 0
    held = re.search(r'id="data">(.*?)</script>', output.read_text(), re.DOTALL)[1]
    assert [run["name"] for run in json.loads(held)["runs"]] == ["run"]


def test_two_runs_of_one_name_have_their_own_lines(tmp_path):
    records = [read(write_run(tmp_path / folder / "run")) for folder in "ab"]
    page = page_of(records)
    held = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["runs"]
    assert [run["name"] for run in held] == [str(record.path) for record in records]
    assert all("This model does not answer in a page, because " in run["note"] for run in held)
