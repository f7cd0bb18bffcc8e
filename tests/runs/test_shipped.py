"""Runs that come with the package: what they answer, and that a user's own paths go before them."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import flax_attn
import flax_attn.__main__ as command
from docs import ship
from flax_attn import config_files, schema
from flax_attn.__main__ import main
from flax_attn.data import dates, shapes
from flax_attn.experiment.config import Config
from flax_attn.experiment.loading import load_run
from flax_attn.runs import shipped
from tests.faults import ROOT


def test_they_are_small():
    sizes = {path.stem: path.stat().st_size for path in shipped.FOLDER.glob("*.zip")}
    assert sizes.keys() == {*shipped.NAMES}
    assert sum(sizes.values()) <= 1_000_000


@pytest.mark.parametrize("name", ship.RUNS)
def test_they_have_the_config_of_today(name):
    config, overrides, _ = ship.RUNS[name]
    now = Config.of(schema.flatten(config_files.read(config)) | overrides)
    with ship.unpacked(name) as path:
        assert load_run(path).config.values == now.values


def test_dates_are_rewritten():
    sources, answers = zip(*dates.generate(seed=7, num_examples=100))
    said = flax_attn.load("dates").predict(list(sources)).outputs
    assert np.mean([own == right for own, right in zip(said, answers)]) >= 0.99


def test_shapes_are_levelled():
    run = flax_attn.load("shapes")
    signals, targets, _ = shapes.generate(jax.random.key(7), 200)
    outputs = run.predict(signals).outputs
    error = np.square((outputs - targets) / run.task.inputs.normalization.std).mean()
    assert error < 0.001


def test_a_page_shows_them():
    assert "dates" in flax_attn.show("dates", model=False).html


def test_a_path_of_the_users_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = shipped.place(tmp_path / "dates")
    assert path == tmp_path / "dates"
    (tmp_path / "dates").mkdir()
    with pytest.raises(flax_attn.errors.UsageError, match=r"dates has no config\.json"):
        flax_attn.load("dates")


def test_commands_take_them(capsys):
    assert main(["predict", "dates", "24th of december 1999"]) == 0
    assert "1999-12-24" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "opened"), [([], ["dates"]), (["shapes", "dates", "shapes"], ["shapes", "dates"])]
)
def test_the_demo_opens_one_run_or_those_that_are_named(names, opened, monkeypatch):
    seen = []
    monkeypatch.setattr(command, "call", lambda _, args: seen.extend(args.runs))
    assert main(["demo", *names]) == 0
    assert [path.name for path in seen] == opened


def test_an_unknown_demo_is_told(capsys):
    assert main(["demo", "date"]) == 2
    assert "'dates'" in capsys.readouterr().err


def test_nothing_stays_behind(tmp_path):
    command = [
        sys.executable,
        "-c",
        "from flax_attn.runs import shipped; shipped.unpacked('dates')",
    ]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    assert not list(tmp_path.iterdir())
