"""Run directories from strangers, and every command that reads one.

    python -m tests.strangers [--number 600] [--seed 0] [--jobs 2]

In a copy of a run, a file is replaced: by a pipe, a link, a folder, zeros, deep or wrong JSON, and
more. Some copies vouch for it in their list of sums. Each command must say one line and exit with
2, or give the right result, in 5 seconds and 600 MB. It opens, changes and removes nothing outside
the run and its own outputs, and runs no code.
"""

import argparse
import contextlib
import functools
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flax_attn.runs import sums
from tests import faults
from tests.written_runs import vouch

TASKS = faults.TASKS | {"language": ["names", *faults.TINY, "--model.features=8"]}
SECONDS, MEGABYTES = 5, 600
ASKED = {
    "signals": ["--input", "../inputs.npy", "--output", "outputs.csv"],
    "attention": ["--input", "../inputs.npy", "--output", "outputs.csv"],
    "texts": ["word1 and word3", "--json"],
    "pairs": ["a b c", "--json"],
    "language": ["an", "--json"],
}
WHERE = ("", "figures/", "checkpoints/")


class Damage(NamedTuple):
    """What is done to a run: its name, and a function of the run, a file of it and an outside."""

    name: str
    do: Callable[[Path, str, Path], None]


def replaced(make: Callable[[Path, Path], object]) -> Callable[[Path, str, Path], None]:
    """Damage that puts something in the place of a file or folder."""

    def do(run: Path, name: str, outside: Path) -> None:
        path = run / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        make(path, outside)

    return do


@contextlib.contextmanager
def ending():
    """Raises an error where something hangs, and fails also if it is caught."""
    late = []

    def stop(number, frame):
        late.append(frame)
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert not late


def zeros(path: Path, outside: Path) -> None:
    """4 GB of zeros that take no room."""
    with open(path, "wb") as file:
        file.truncate(4 << 30)


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path, str, Path], None]:
    """Damage to the bytes of a file. A folder is left alone."""

    def do(run: Path, name: str, outside: Path) -> None:
        if (run / name).is_file():
            (run / name).write_bytes(change((run / name).read_bytes()))

    return do


def crossed(run: Path, name: str, outside: Path) -> None:
    """The contents of another file of the run."""
    if (run / name).is_file():
        others = sorted(path for path in run.rglob("*") if path.is_file() and path != run / name)
        shutil.copy(others[len(name) % len(others)], run / name)


STRANGE = ([], {}, "x", None, -1, 10**30, 1e999, True, [[1]], {"a": {"b": 1}}, 10**9, ["a"] * 5)


def mistyped(draw: random.Random) -> Callable[[bytes], bytes]:
    """JSON with a strange value somewhere, and other bytes where there is no JSON."""

    def change(content: bytes) -> bytes:
        try:
            lines = [json.loads(line) for line in content.splitlines()]
            values = lines
        except ValueError:
            lines = None
        try:
            values = json.loads(content) if lines is None else lines
        except ValueError:
            return content[:-10] + bytes(10)
        place = values
        while isinstance(place, dict | list) and place:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = draw.choice(list(keys))
            if not isinstance(place[key], dict | list) or draw.random() < 0.3:
                place[key] = draw.choice(STRANGE)
                break
            place = place[key]
        texts = [json.dumps(value) for value in (values if lines else [values])]
        return "\n".join(texts).encode()

    return change


def damages(draw: random.Random) -> list[Damage]:
    """What may be done to any file of a run."""
    return [
        Damage("a pipe", replaced(lambda path, _: os.mkfifo(path))),
        Damage("a link inside", replaced(lambda path, _: path.symlink_to("config.json"))),
        Damage("a link outside", replaced(lambda path, out: path.symlink_to(out / "victim.txt"))),
        Damage("a link to a folder", replaced(lambda path, out: path.symlink_to(out))),
        Damage("a link to itself", replaced(lambda path, _: path.symlink_to(path.name))),
        Damage("a link to zeros", replaced(lambda path, _: path.symlink_to("/dev/zero"))),
        Damage("a folder", replaced(lambda path, _: path.mkdir())),
        Damage("4 GB of zeros", replaced(zeros)),
        Damage("deep lists", rewritten(lambda _: b"[" * 100_000)),
        Damage("deep objects", rewritten(lambda _: b'{"a":' * 900 + b"1" + b"}" * 900)),
        Damage("wrong types", rewritten(mistyped(draw))),
        Damage("wrong types", rewritten(mistyped(draw))),
        Damage("cut", rewritten(lambda content: content[: len(content) // 2])),
        Damage("emptied", rewritten(lambda _: b"")),
        Damage("crossed", crossed),
        Damage("gone", replaced(lambda path, _: None)),
    ]


def edited(name: str, change: Callable[[dict], object]) -> Callable[[Path, str, Path], None]:
    """An edit of a JSON file, for which the run vouches."""

    def do(run: Path, _: str, outside: Path) -> None:
        content = json.loads((run / name).read_text())
        change(content)
        (run / name).write_text(json.dumps(content))
        if name != "sums.json":
            vouch(run)

    return do


def listed(*names: str) -> Callable[[dict], object]:
    """Names in the list of sums."""
    return lambda entries: entries.update({name: {"bytes": 1, "sha256": "x"} for name in names})


def with_checkpoint(name: str, content: bytes) -> Callable[[Path, str, Path], None]:
    """A file of the newest checkpoint with other bytes, for which all lists vouch."""

    def do(run: Path, _: str, outside: Path) -> None:
        folder = max(run.glob("checkpoints/[0-9]*"))
        (folder / name).write_bytes(content)
        sums.write(folder, sums.read(folder))
        vouch(run)

    return do


def with_code(run: Path, _: str, outside: Path) -> None:
    """Files under the name of the run's config, which write what is watched."""
    code = f"def get_config(v): pass\nopen({str(outside / 'victim.txt')!r}, 'w')\n"
    stem = json.loads((run / "config.json").read_text())["name"].partition(":")[0]
    for folder in (run, run.parent):
        for name in (stem, f"{stem}.py"):
            (folder / name).write_text(code)


def nested(*keys: str, value: object) -> Callable[[dict], object]:
    """Sets a value deep in a dict."""

    def change(content: dict) -> None:
        functools.reduce(lambda own, key: own.setdefault(key, {}), keys[:-1], content)[keys[-1]] = (
            value
        )

    return change


def one_array(run: Path, _: str, outside: Path) -> None:
    with open(run / "examples.npz", "wb") as file:
        np.save(file, np.zeros(3))
    vouch(run)


def state(**arrays: object) -> bytes:
    from flax import serialization

    return serialization.msgpack_serialize(arrays)


def manipulations() -> list[Damage]:
    """What a stranger writes with care: the sums fit."""
    metadata = b'{"epoch": 3, "step": 0, "train_seconds": 1'
    row = b'{"epoch": 0, "seed": 0, "step": 0}\n'
    return [
        Damage("code under the config's name", with_code),
        Damage("sums that lead outside", edited("sums.json", listed("figures/../../victim.txt"))),
        Damage("absolute sums", edited("sums.json", listed("/etc/passwd", "/proc/kmsg"))),
        Damage("sums of folders", edited("sums.json", listed("figures", "checkpoints/1"))),
        Damage("many epochs", edited("summary.json", nested("epochs", value=10**9))),
        Damage("many seeds", edited("config.json", nested("num_seeds", value=10_000))),
        Damage("too many seeds", edited("config.json", nested("num_seeds", value=10**12))),
        Damage("a large batch", edited("config.json", nested("batch_size", value=10**6))),
        Damage("large features", edited("config.json", nested("model", "features", value=2**30))),
        Damage("no metrics", edited("summary.json", nested("metrics", value={}))),
        Damage(
            "every seed diverged",
            edited("summary.json", nested("diverged", value={"0": {"step": 1}, "1": {"step": 1}})),
        ),
        Damage("strange pictures", edited("summary.json", nested("pictures", value="x" * 10**6))),
        Damage("another model", edited("config.json", nested("model", "name", value="os:system"))),
        Damage("another data set", edited("config.json", nested("data", "name", value="a:b"))),
        Damage("a long name", edited("config.json", nested("name", value="x" * 10**6))),
        Damage("a variant", edited("config.json", nested("name", value="shapes_cnn:../../x"))),
        Damage("one array", one_array),
        Damage("no state", with_checkpoint("state.msgpack", b"")),
        Damage("a list for a state", with_checkpoint("state.msgpack", b"\x93\x01\x02\x03")),
        Damage("a nested state", with_checkpoint("state.msgpack", b"\x81\xa1a" * 2000 + b"\xc0")),
        Damage("another state", with_checkpoint("state.msgpack", state(a=np.zeros(3)))),
        Damage("no arrays", with_checkpoint("state.msgpack", state(a={"b": 1}))),
        Damage("no metadata", with_checkpoint("metadata.json", b"[]")),
        Damage("no config in metadata", with_checkpoint("metadata.json", metadata + b"}")),
        Damage(
            "an empty config in metadata",
            with_checkpoint("metadata.json", metadata + b', "config": {}}'),
        ),
        Damage(
            "a strange epoch",
            with_checkpoint("metadata.json", metadata.replace(b"3", b'"x"') + b', "config": {}}'),
        ),
        Damage("no rows", with_checkpoint("metrics.jsonl", b"")),
        Damage("rows of another kind", with_checkpoint("metrics.jsonl", b"[1]\n")),
        Damage("many rows", with_checkpoint("metrics.jsonl", row * 200_000)),
    ]


def commands(task: str, run: str) -> dict[str, list[str]]:
    """The commands that read a run, by name; those of Python begin with a dot."""
    made = {
        "report": ["report", run, "-o", "page.html"],
        "report without its model": ["report", run, "-o", "page.html", "--no-model"],
        "compare": ["compare", run, "--output", "compared"],
        "train": ["train", *TASKS[task], f"--workdir={run}"],
        "explore": ["explore", run, "--no-open", "--port=0"],
        "show": [".show", run],
        "load": [".load", run],
        "export": [".export", run],
    }
    if task in ASKED:
        made["predict"] = ["predict", run, *ASKED[task]]
    if task == "language":
        made["generate"] = ["generate", run, "--length=5"]
    return made


def call(arguments: list[str]) -> int:
    """Runs a command, or a function of Python, as a user would."""
    import flax_attn
    from flax_attn.__main__ import main
    from flax_attn.errors import UsageError

    name, *rest = arguments
    if not name.startswith("."):
        return main(arguments)
    try:
        if name == ".export":
            flax_attn.export(rest[0], "exported")
        else:
            getattr(flax_attn, name[1:])(rest[0])
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def watch(outside: Path) -> None:
    """Ends the process with 77 where it opens, changes or removes what is outside."""
    events = ("open", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link")
    inside: list[bool] = []

    def hook(event: str, args: tuple) -> None:
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            os._exit(78)
        if event in events and not inside:
            inside.append(True)
            for arg in args[:2]:
                if isinstance(arg, str | bytes | os.PathLike):
                    real = os.path.realpath(arg) if event == "open" else os.path.abspath(arg)
                    if os.fsdecode(real).startswith(f"{outside}/"):
                        os._exit(77)
            inside.clear()

    sys.addaudithook(hook)


class Outcome(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str
    seconds: float
    megabytes: float


def fork(arguments: list[str], folder: Path, outside: Path) -> Outcome:
    """A command in a process of its own, which has imported JAX and not used it."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.chdir(folder)
            for number, name in ((1, "stdout"), (2, "stderr")):
                os.dup2(
                    os.open(folder.parent / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number
                )
            sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), "utf-8", write_through=True)
            sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb"), "utf-8", write_through=True)
            watch(outside)
            if arguments[0] == "explore":  # it has opened its page
                from flax_attn.explore.server import Explorer

                Explorer.serve_forever = lambda self, *_: None  # pyright: ignore
            code = call(arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    killer = threading.Timer(60, os.kill, (pid, 9))
    killer.start()
    _, status, usage = os.wait4(pid, 0)
    killer.cancel()
    seconds = time.monotonic() - began
    out, err = ((folder.parent / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    code = os.waitstatus_to_exitcode(status)
    return Outcome(code, out, err, seconds, usage.ru_maxrss / 1024)


def prepare(folder: Path, tasks: list[str]) -> dict[str, Path]:
    """A small run of each task."""
    np.save(folder / "inputs.npy", np.linspace(0, 9, 200).reshape(2, 100))
    runs = {}
    for task in tasks:
        runs[task] = folder / task / "run"
        runs[task].parent.mkdir()
        code, _, err = faults.train(TASKS[task], runs[task])
        assert code == 0, err
    return runs


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def outputs(folder: Path) -> dict[str, bytes]:
    """What a command wrote, but pictures and pages, whose bytes may differ."""
    names = ("outputs.csv",)
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def attack(
    original: Path, task: str, name: str, damage: Damage, vouches: bool, command: str
) -> tuple[str, Outcome | None]:
    """What is wrong with the outcome of a command on a damaged copy; empty where nothing is."""
    with tempfile.TemporaryDirectory(dir=original.parent.parent) as place:
        folder, outside = Path(place, "here"), Path(place, "outside")
        folder.mkdir(), outside.mkdir()
        for victim in ("victim.txt", "loss.png", ".x.partial.png"):
            (outside / victim).write_text('["canary", "bird"]')
        shutil.copy(original.parent.parent / "inputs.npy", place)
        if (original.parent / "texts.csv").exists():
            shutil.copy(original.parent / "texts.csv", folder)
        arguments = commands(task, "run")[command]
        shutil.copytree(original, folder / "run")
        right = fork(arguments, folder, outside)
        expected = right.out, outputs(folder)
        shutil.rmtree(folder / "run")
        shutil.copytree(original, folder / "run")
        for output in outputs(folder):
            (folder / output).unlink()
        damage.do(folder / "run", name, outside)
        with contextlib.suppress(Exception):
            if vouches:
                vouch(folder / "run")
        before = contents_of(outside)
        outcome = fork(arguments, folder, outside)
        if contents_of(outside) != before:
            return "changed what is outside", outcome
        if outcome.code in (77, 78):
            return "opened what is outside, or started a program", outcome
        if "canary" in outcome.out:
            return "showed what is outside", outcome
        # training that mends a run takes what training takes
        mends = command == "train" and outcome.code == 0
        if outcome.seconds > max(SECONDS, 2 * right.seconds) and not mends:
            return f"took {outcome.seconds:.1f} s", outcome
        if outcome.megabytes > max(MEGABYTES, 1.2 * right.megabytes) and not mends:
            return f"took {outcome.megabytes:.0f} MB", outcome
        if outcome.code == 2:
            lines = outcome.err.splitlines()
            one_line = len(lines) >= 1 and lines[-1].startswith("error: ")
            said = [line for line in lines[:-1] if not line.startswith(("checkpoint", "warning"))]
            return "" if one_line and not said and len(
                outcome.err
            ) < 3000 else "no one line", outcome
        if outcome.code != 0:
            return f"exit code {outcome.code}", outcome
        same = command in ("train", "explore") or (outcome.out, outputs(folder)) == expected
        return "" if same else "another result with exit code 0", outcome


def pairs(runs: dict[str, Path], draw: random.Random) -> list[tuple]:
    """Every damage of every file, with every command, in random order."""
    every = []
    for task, run in runs.items():
        names = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
        general = [(name, damage) for name in names for damage in damages(draw)]
        careful = [("config.json", damage) for damage in manipulations()]
        every += [
            (run, task, name, damage, draw.random() < 0.5, command)
            for name, damage in general
            for command in commands(task, "run")
        ]
        every += [
            (run, task, name, damage, False, command)
            for name, damage in careful
            for command in commands(task, "run")
        ]
    draw.shuffle(every)
    return every


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--only", default="", help="a part of the name of a damage")
    args = parser.parse_args()
    import jax  # imported, and not used: a process that forks may not have used it

    import flax_attn.experiment
    import flax_attn.explore.showing  # noqa: F401

    del jax
    draw, bad, codes = random.Random(args.seed), 0, {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        runs = prepare(Path(folder), args.tasks)
        chosen = [pair for pair in pairs(runs, draw) if args.only in pair[3].name][: args.number]
        for pair, (wrong, outcome) in zip(chosen, pool.map(lambda pair: attack(*pair), chosen)):
            _, task, name, damage, vouches, command = pair
            codes[outcome.code] = codes.get(outcome.code, 0) + 1
            bad += bool(wrong)
            if wrong:
                said = f"{task}, {name}: {damage.name}{', vouched for' if vouches else ''}"
                print(f"{said}; {command}: {wrong}\n    {outcome.err[-1500:]}", flush=True)
    print(f"{len(chosen)} pairs, {bad} wrong; exit codes {codes}")
    return bad


if __name__ == "__main__":
    sys.exit(bool(main()))
