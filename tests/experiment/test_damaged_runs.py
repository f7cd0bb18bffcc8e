"""A damaged file of a run is one line, or changes no number; and training repairs it."""

import contextlib
import shutil

import numpy as np
import pytest

from flax_attn import experiment
from flax_attn.__main__ import main
from flax_attn.errors import UsageError
from flax_attn.runs import reading
from tests import faults, tiny

TEXTS = ["a fine film", "a poor film"]
CONFIG = {"num_epochs": 2, "data.file": "own.csv"} | tiny.TEXTS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The command of a finished run, and its directory."""
    folder = tmp_path_factory.mktemp("runs")
    lines = [f"a {word} film {i},{word}" for i, word in enumerate(["fine", "poor"] * 40)]
    (folder / "own.csv").write_text("\n".join(["text,label", *lines]))
    changes = CONFIG | {"data.file": str(folder / "own.csv")}
    command = ["train", "text_csv", *(f"--{key}={value}" for key, value in changes.items())]
    with tiny.no_pictures():
        assert main([*command, f"--workdir={folder / 'run'}"]) == 0
    return command, folder / "run"


def flip(content, is_text, rng):
    """Flips one bit. In a text it is one that no text has: another digit is not noticed."""
    place, damaged = int(rng.integers(len(content))), bytearray(content)
    damaged[place] ^= 0x80 if is_text else 1 << int(rng.integers(8))
    return bytes(damaged)


DAMAGES = {
    "removed": lambda content, is_text, rng: None,
    "cut": lambda content, is_text, rng: content[: int(rng.integers(len(content) - 1))],
    "flipped": flip,
}
NAMES = ("config.json", "metrics.jsonl", "summary.json", "examples.npz", "labels.json")
NAMES += ("tokenizer.json", "checkpoints/1.npz", "checkpoints/2.npz")


def damaged(run, path, name, damage, seed):
    """Copies a run and damages one of its files."""
    shutil.copytree(run, path)
    content = (path / name).read_bytes()
    content = DAMAGES[damage](content, not name.endswith(".npz"), np.random.default_rng(seed))
    (path / name).unlink()
    if content is not None:
        (path / name).write_bytes(content)
    return path


def same_or_refused(ask, expected):
    """Compares numbers, unless the error for the user is raised, which is one line."""
    with contextlib.suppress(UsageError):
        np.testing.assert_array_equal(ask(), expected)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_no_damage_gives_other_numbers(run, tmp_path, name, damage):
    predict = lambda path: experiment.load(path).predict(TEXTS).outputs
    results = lambda path: [row["test/accuracy"] for row in reading.read(path).rows]
    expected = predict(run[1]), results(run[1])
    for seed in range(4):
        path = damaged(run[1], tmp_path / str(seed), name, damage, seed)
        same_or_refused(lambda path=path: predict(path), expected[0])
        same_or_refused(lambda path=path: results(path), expected[1])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "checkpoints/1.npz"])
def test_the_same_command_repairs_a_run(run, tmp_path, name, no_pictures, capsys):
    command, original = run
    damage = list(DAMAGES)[NAMES.index(name) % 3]
    path = damaged(original, tmp_path / "run", name, damage, 0)
    assert main([*command, f"--workdir={path}"]) == 0
    shutil.rmtree(path / "figures", ignore_errors=True)  # of a run that needed no repair
    assert faults.contents(path) == faults.contents(original)


def test_a_command_on_a_damaged_run_ends_with_2_and_one_line(run, tmp_path, capsys):
    path = damaged(run[1], tmp_path / "run", "labels.json", "cut", 0)
    assert main(["predict", str(path), *TEXTS]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "labels.json" in err
