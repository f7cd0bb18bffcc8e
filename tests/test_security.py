"""What `SECURITY.md` promises: no code comes from a run directory or a data file."""

import ast
import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path

import msgpack
import numpy as np
import pytest
from flax import serialization
from flax_attn.runs.sums import SUMS

import flax_attn
from flax_attn.__main__ import main
from flax_attn.errors import UsageError
from flax_attn.experiment.programs import shapes_of_states
from flax_attn.explore.server import Explorer
from flax_attn.page.data import changes
from flax_attn.runs import checkpoints, metrics_log, sums
from tests import tiny
from tests.ending import ending
from tests.written_runs import vouch

PACKAGE = Path(flax_attn.__file__).parent
NEVER = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "subprocess", "yaml"}
EXECUTE = {"eval", "exec", "__import__", "system", "popen", "import_module", "run_path"}
MAY_IMPORT = {  # the classes that a caller allows, the configs that a user names, and lazy imports
    "experiment/config.py",
    "config_files.py",
    "__init__.py",
    "attention/__init__.py",
}


def test_nothing_is_unpickled_or_executed():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not NEVER & {alias.name.split(".")[0] for alias in node.names}, name
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in NEVER, name
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert called not in EXECUTE or name in MAY_IMPORT, f"{name} calls {called}"
                for option in node.keywords:
                    is_false = isinstance(option.value, ast.Constant) and not option.value.value
                    assert option.arg != "allow_pickle" or is_false, name


OVERRIDES = tiny.SHAPES | tiny.CNN


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    with tiny.untrained():
        run = flax_attn.train("shapes_cnn:quick", workdir=path, num_epochs=1, overrides=OVERRIDES)
    return run.path


@pytest.mark.parametrize("key", ["model", "data"])
@pytest.mark.parametrize("name", ["os:system", "antigravity:fly"])
def test_a_run_that_names_a_function_runs_nothing(run, tmp_path, key, name):
    copy = shutil.copytree(run, tmp_path / "run")
    config = json.loads((copy / "config.json").read_text())
    config[key]["name"] = name
    (copy / "config.json").write_text(json.dumps(config))
    vouch(copy)
    with pytest.raises(UsageError, match=f"{key}.name"):
        flax_attn.load(copy)


DAMAGE = {
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a link to a file of the same contents": lambda path, outside: path.symlink_to(outside),
    "a link to itself": lambda path, outside: path.symlink_to(path.name),
    "a link to zeros without an end": lambda path, outside: path.symlink_to("/dev/zero"),
    "a folder": lambda path, outside: path.mkdir(),
    "4 GB of zeros": lambda path, outside: (path.touch(), os.truncate(path, 4 << 30)),
    "deep lists": lambda path, outside: path.write_text("[" * 100_000),
    "deep objects": lambda path, outside: path.write_text('{"a":' * 900 + "1" + "}" * 900),
    "nothing": lambda path, outside: path.touch(),
}
NAMES = ("config.json", "metrics.jsonl", "summary.json", "examples.npz", "sums.json")
OF_CHECKPOINT = (checkpoints.METADATA, SUMS, checkpoints.STATE, "metrics.jsonl")
COMMANDS = {
    "compare": ["compare", "run", "--output", "compared"],
    "report": ["report", "run", "-o", "page.html", "--no-model"],
    "predict": ["predict", "run", "--input", "inputs.npy", "--output", "outputs.csv"],
}


@pytest.fixture(scope="module")
def here(run, tmp_path_factory):
    """A directory to run commands in, and what each command prints of the undamaged run."""
    folder = tmp_path_factory.mktemp("here")
    shutil.copytree(run, folder / "run")
    np.save(folder / "inputs.npy", np.zeros((1, 100), np.float32))
    with contextlib.chdir(folder):
        return folder, {name: called(words) for name, words in COMMANDS.items()}


def called(words):
    """The exit code of a command, what it printed, and its lines on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue().splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_a_stranger_has_replaced_is_one_line(here, name, tmp_path):
    folder, expected = here
    path = folder / "run" / name
    content = path.read_bytes()
    (tmp_path / "outside").write_bytes(content)
    for damage, replace in DAMAGE.items():
        path.unlink()
        replace(path, tmp_path / "outside")
        for command, words in COMMANDS.items():
            with contextlib.chdir(folder), ending():
                code, out, err = called(words)
            said = f"{damage}, {command}: {code} {err}"
            right = (code, out, err) == expected[command]
            one_line = code == 2 and len(err) == 1 and err[0].startswith("error: ")
            assert right or (one_line and len(err[0]) < 1_000), said
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        path.write_bytes(content)


@pytest.fixture(scope="module")
def template(run):
    """The shapes of the states in the checkpoints of a run."""
    loaded = flax_attn.load(run)
    return shapes_of_states(loaded.config, loaded.model, loaded.task.sample())


@pytest.mark.parametrize("name", OF_CHECKPOINT)
def test_a_file_of_a_checkpoint_that_a_stranger_has_replaced_is_damage(
    run, template, name, tmp_path
):
    copy = shutil.copytree(run, tmp_path / "run")
    path = copy / "checkpoints" / "1" / name
    content = path.read_bytes()
    (tmp_path / "outside").write_bytes(content)
    for replace in DAMAGE.values():
        path.unlink()
        replace(path, tmp_path / "outside")
        with ending():
            if name == SUMS and not path.exists():  # it was not written to its end
                assert checkpoints.restore(copy / "checkpoints", template, print) is None
            else:
                with pytest.raises(UsageError, match=f"1 is damaged .*{re.escape(name)}"):
                    checkpoints.restore(copy / "checkpoints", template, print)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        path.write_bytes(content)
    assert checkpoints.restore(copy / "checkpoints", template, print).progress == (1, 0)


@pytest.mark.parametrize("name", ["labels.json", "checkpoints", "figures", "config.json", ".lock"])
@pytest.mark.parametrize("kind", ["a pipe", "a link to a folder", "a link to a file"])
def test_training_writes_through_no_link_and_waits_for_no_pipe(run, tmp_path, name, kind, capsys):
    """It neither follows nor replaces what a stranger has put into a run directory."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for victim in ("1", "loss.png", ".x.partial.png"):
        (outside / victim).write_text("mine")
    copy = shutil.copytree(run, tmp_path / "run")
    path = copy / name
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(outside if "folder" in kind else outside / "1")
    words = [f"--{key}={value}" for key, value in OVERRIDES.items()]
    with ending():
        code = main(["train", "shapes_cnn:quick", *words, "--num_epochs=1", f"--workdir={copy}"])
    assert code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert {path.read_text() for path in outside.iterdir()} == {"mine"}
    assert len(list(outside.iterdir())) == 3


def test_a_finished_run_removes_nothing_outside(run, tmp_path, capsys):
    copy, victim = shutil.copytree(run, tmp_path / "run"), tmp_path / "victim.txt"
    victim.write_text("mine")
    listed = sums.read(copy)
    words = [f"--{key}={value}" for key, value in OVERRIDES.items()]
    words = ["train", "shapes_cnn:quick", *words, "--num_epochs=1", f"--workdir={copy}"]
    for name in ("figures/../../victim.txt", str(victim)):
        (copy / SUMS).write_text(json.dumps(listed | {name: {"bytes": 1, "sha256": "x"}}))
        for command in (["compare", str(copy)], ["predict", str(copy), "--input", "x.npy"]):
            assert main(command) == 2
            assert "expected the names of files of a run" in capsys.readouterr().err
    with tiny.untrained():
        assert main(words) == 0
    assert "mending it" in capsys.readouterr().out
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("command", ["report", "explore", "show"])
def test_no_file_under_the_name_of_a_config_is_run(run, tmp_path, monkeypatch, command):
    copy = shutil.copytree(run, tmp_path / "run")
    for folder in (tmp_path, copy):
        for name in ("shapes_cnn", "shapes_cnn.py"):
            (folder / name).write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')")
    monkeypatch.setattr(Explorer, "serve_forever", lambda self, *_: None)
    for folder in (tmp_path, copy):
        monkeypatch.chdir(folder)
        if command == "show":
            flax_attn.show(copy, model=False)
        else:
            more = ["-o", "r.html", "--no-model"] if command == "report" else ["--no-open"]
            assert main([command, str(copy), *more]) == 0
        assert not (tmp_path / "PWNED").exists()
    assert changes({"name": "shapes_cnn:quick", "num_epochs": 1})[1]


def rewrite_checkpoint(name, content):
    """Another file in a checkpoint, for which its list of sums vouches."""

    def do(path):
        folder = path / "checkpoints" / "1"
        (folder / name).write_bytes(content)
        sums.write(folder, sums.read(folder))

    return do


def edit(name, change):
    """An edit of a JSON file of a run, for which the run vouches."""

    def do(path):
        content = json.loads((path / name).read_text())
        change(content)
        (path / name).write_text(json.dumps(content))

    return do


def one_array(path):
    with open(path / "examples.npz", "wb") as file:
        np.save(file, np.zeros(3))


def packed(content):
    return serialization.msgpack_serialize(content)


METADATA = {"epoch": 1, "step": 0, "train_seconds": 1, "config": {}}
EDITS = {
    "many epochs": edit("summary.json", lambda summary: summary.update(epochs=10**9)),
    "many epochs in both": lambda path: [
        edit("summary.json", lambda summary: summary.update(epochs=10**6))(path),
        edit("config.json", lambda config: config.update(num_epochs=10**6))(path),
    ],
    "many seeds": edit("config.json", lambda config: config.update(num_seeds=10_000)),
    "a negative size": edit("config.json", lambda config: config.update(batch_size=-1)),
    "every seed diverged": edit(
        "summary.json", lambda summary: summary.update(diverged={"0": {"step": 1}})
    ),
    "unknown pictures": edit("summary.json", lambda summary: summary.update(pictures="x")),
    "no summary": edit("summary.json", lambda summary: summary.clear()),
    "strange metrics": edit("summary.json", lambda summary: summary.update(metrics=[1])),
    "a strange epoch": edit("summary.json", lambda summary: summary.update(epochs=True)),
    "strange rows": lambda path: (path / "metrics.jsonl").write_text("[1]\n"),
    "one array": one_array,
    "seconds without an end": edit(
        "summary.json", lambda summary: summary.update(train_seconds=float("inf"))
    ),
    "a metric that is too large": lambda path: (path / "metrics.jsonl").write_text(
        (path / "metrics.jsonl").read_text().replace('"step": 0', '"step": 0, "test/x": 1e999', 1)
    ),
    "a model of many features": edit(
        "config.json", lambda config: config["model"].update(features=2**31 - 1)
    ),
}


OF_STATES = {
    "no state": rewrite_checkpoint("state.msgpack", b""),
    "a state that is a list": rewrite_checkpoint("state.msgpack", b"\x93\x01\x02\x03"),
    "a state nested deep": rewrite_checkpoint("state.msgpack", b"\x81\xa1a" * 2000 + b"\xc0"),
    "a state of numbers": rewrite_checkpoint("state.msgpack", packed({"a": {"b": 1}})),
    "another state": rewrite_checkpoint("state.msgpack", packed({"a": np.zeros(3)})),
    "objects": rewrite_checkpoint(
        "state.msgpack", msgpack.packb({"a": msgpack.ExtType(1, msgpack.packb(((1,), "O", b"8")))})
    ),
    "metadata that are a list": rewrite_checkpoint("metadata.json", b"[]"),
    "metadata without a config": rewrite_checkpoint("metadata.json", b'{"epoch": 1, "step": 0}'),
    "another epoch": rewrite_checkpoint(
        "metadata.json", json.dumps(METADATA | {"epoch": 2}).encode()
    ),
    "no epoch": rewrite_checkpoint("metadata.json", json.dumps(METADATA | {"epoch": "x"}).encode()),
    "an epoch of many digits": rewrite_checkpoint(
        "metadata.json", json.dumps(METADATA | {"epoch": 10**400}).encode()
    ),
}


@pytest.mark.parametrize("change", EDITS)
def test_what_a_stranger_writes_with_care_is_one_line_or_changes_nothing(here, tmp_path, change):
    folder, expected = here
    copy = shutil.copytree(folder / "run", tmp_path / "run")
    shutil.copy(folder / "inputs.npy", tmp_path)
    EDITS[change](copy)
    vouch(copy)
    codes = []
    for command, words in COMMANDS.items():
        with contextlib.chdir(tmp_path), ending():
            code, out, err = called(words)
        one_line = code == 2 and len(err) == 1 and err[0].startswith("error: ")
        assert one_line or (code, out, err) == expected[command], f"{command}: {code} {out} {err}"
        codes.append(code)
    assert 2 in codes


@pytest.mark.parametrize("change", OF_STATES)
def test_a_checkpoint_that_a_stranger_writes_with_care_is_one_line(run, template, tmp_path, change):
    copy = shutil.copytree(run, tmp_path / "run")
    OF_STATES[change](copy)
    with ending(), pytest.raises(UsageError) as error:
        checkpoints.restore(copy / "checkpoints", template, print)
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1]\n", "a row"),
        (b'{"epoch": 0, "seed": 0, "step": 0}\n' * 1_001, "more than 1,000 rows"),
        (b'{"epoch": 0, "seed": 0, "step": 0, "test/mse": 1e999}\n', "finite numbers"),
    ],
)
def test_rows_of_a_checkpoint_that_a_stranger_writes_with_care_are_one_line(
    run, tmp_path, monkeypatch, content, said
):
    monkeypatch.setattr(metrics_log, "MOST_ROWS", 1_000)
    copy = shutil.copytree(run, tmp_path / "run")
    rewrite_checkpoint("metrics.jsonl", content)(copy)
    vouch(copy)
    with ending(), pytest.raises(UsageError, match=rf"1/metrics\.jsonl \(.*{said}") as error:
        flax_attn.load(copy)
    assert len(str(error.value)) < 1_000


def test_a_checkpoint_of_other_sizes_is_not_read(run, tmp_path):
    """Neither zeros for which the lists vouch nor the batch of a config take memory."""
    copy = shutil.copytree(run, tmp_path / "run")
    state = copy / "checkpoints" / "1" / "state.msgpack"
    os.truncate(state, 2**40)
    listed = sums.read(state.parent)
    listed[state.name]["bytes"] = 2**40
    (state.parent / SUMS).write_text(json.dumps(listed))
    sums.write(copy, sums.read(copy))
    with ending(), pytest.raises(UsageError, match=r"state\.msgpack has 1,099,511,627,776 bytes"):
        flax_attn.load(copy)


def test_a_checkpoint_of_another_epoch_than_the_results_is_told(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    edit("summary.json", lambda summary: summary.update(epochs=0, stopped=True))(copy)
    (copy / "metrics.jsonl").write_text((copy / "metrics.jsonl").read_text().splitlines()[0] + "\n")
    vouch(copy)
    with pytest.raises(UsageError, match=r"a checkpoint of epoch 0, as the results .* of epoch 1"):
        flax_attn.load(copy)
