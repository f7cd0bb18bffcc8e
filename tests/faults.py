"""Trainings that are killed, and then run again.

    python -m tests.faults kills [--number 200] [--seed 0]

What comes of a run with faults is compared with that of the unbroken one, to the last bit.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
TINY = ["--batch_size=16", "--steps_per_epoch=6", "--num_seeds=2", "--num_epochs=3"]
SHAPES = [*TINY, "--data.num_train=200", "--data.num_test=20"]
PAIRS = ["--data.num_train=200", "--data.num_valid=20", "--data.num_test=20"]
TASKS = {
    "signals": ["shapes_lstm", *SHAPES],
    "attention": ["shapes_attention", *SHAPES, "--model.features=8"],
    "series": ["series_input_attention", *TINY, *PAIRS, "--model.features=8"],
    "pairs": ["reverse_bahdanau", *TINY, *PAIRS, "--model.features=8", "--model.dropout_rate=0.2"],
    "texts": ["text_csv", *TINY, "--data.file=texts.csv", "--model.features=8"],
}
# counts the file operations on a folder, and kills its own process before one of them
KILLER = """
import os, signal, sys
left, folder = int(sys.argv[1]), sys.argv[2]
EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")
def count(event, args):
    global left
    if event in EVENTS and any(folder in str(arg) for arg in args[:2]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
from flax_attn.__main__ import main
code = main(["train", *sys.argv[3:], f"--workdir={folder}"])
print(f"operations left: {left}")
sys.exit(code)
"""
LAST = 10**9  # an operation that never comes
SIGNALS = signal.SIGINT, signal.SIGHUP, signal.SIGTERM


class Hearing(subprocess.Popen):
    """A process that hears signals, also where the one that starts it ignores them.

    Under `nohup`, and in a shell's background, a process ignores signals, and so does every process
    that it starts. A handler is not handed on: while the process starts, one that does nothing
    stands in. So the process that starts it goes on ignoring them.
    """

    def __init__(self, *args, **options):
        is_main = threading.current_thread() is threading.main_thread()  # which alone sets handlers
        ignored = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
        with contextlib.ExitStack() as stack:
            for number in ignored if is_main else ():
                signal.signal(number, lambda *_: None)
                stack.callback(signal.signal, number, signal.SIG_IGN)
            super().__init__(*args, **options)


def start(task: list[str], workdir: Path, kill_at: int = LAST) -> subprocess.Popen:
    """A process that trains."""
    if "--data.file=texts.csv" in task:
        rows = [f"word{i % 7} and word{i % 5},{'ab'[i % 2]}\n" for i in range(200)]
        (workdir.parent / "texts.csv").write_text("text,label\n" + "".join(rows))
    command = [sys.executable, "-u", "-c", KILLER, str(kill_at), str(workdir), *task]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return Hearing(command, cwd=workdir.parent, env=environment, **pipes)


def train(task: list[str], workdir: Path, kill_at: int = LAST) -> tuple[int, str, str]:
    """Trains to the end, or to its death: the exit code, and what was said."""
    process = start(task, workdir, kill_at)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def operations(out: str) -> int:
    """How many file operations a run took, by what it printed."""
    return LAST - int(out.rpartition("operations left: ")[2])


def contents(workdir: Path) -> dict:
    """Returns all that a run leaves, without seconds and the bytes of figures."""
    # not above: `conftest.py` imports this file, and tests of the library run without msgspec
    from flax_attn.runs import checkpoints

    summary = json.loads((workdir / "summary.json").read_text()) | {"train_seconds": 0}
    kept = {path.name: path.read_text() for path in workdir.glob("*.json")}
    with np.load(workdir / "examples.npz") as examples:
        arrays = dict(examples)
    for path in (workdir / "checkpoints").glob("*.npz"):
        note, leaves = checkpoints.read(path)
        kept[path.name] = (note.progress, note.rows, note.config)
        arrays |= {f"{path.name}/{name}": leaf for name, leaf in leaves.items()}
    return {
        "names": sorted(str(path.relative_to(workdir)) for path in workdir.rglob("*")),
        "kept": {name: content for name, content in kept.items() if name != "summary.json"},
        "metrics": (workdir / "metrics.jsonl").read_text(),
        "summary": summary,
        "arrays": {name: (str(array.dtype), array.tobytes()) for name, array in arrays.items()},
    }


def difference(ours: dict, expected: dict) -> str:
    """In what the contents of two runs differ, in words; empty where in nothing."""
    names = set(ours["names"]) ^ set(expected["names"])
    parts = [part for part in expected if ours[part] != expected[part]]
    return f"DIFFERENT in {parts}, files {sorted(names)}" if parts else ""


def kills(number: int, seed: int) -> int:
    """Kills at random file operations, some twice. Returns how many runs came out different."""
    draw, bad = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        unbroken = {}
        for name, task in TASKS.items():
            code, out, err = train(task, Path(folder, f"unbroken-{name}"))
            assert code == 0, err
            unbroken[name] = (contents(Path(folder, f"unbroken-{name}")), operations(out))
        for i in range(number):
            name = draw.choice(list(TASKS))
            expected, last = unbroken[name]
            workdir, moments = Path(folder, "run"), []
            shutil.rmtree(workdir, ignore_errors=True)
            for _ in range(draw.choice((1, 1, 2))):
                moments.append(draw.randint(1, last))
                train(TASKS[name], workdir, moments[-1])
            code, _, err = train(TASKS[name], workdir)
            different = difference(contents(workdir), expected) if code == 0 else err
            bad += bool(different)
            said = different or "same"
            print(f"{i + 1} {name} killed at {moments} of {last}: {said}", flush=True)
    print(f"{number - bad} of {number} bit-identical")
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["kills"])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    sys.exit(bool(kills(args.number, args.seed)))
