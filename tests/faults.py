"""Trainings that are killed, told to stop, or started twice, and then run again.

    python -m tests.faults kills [--number 200] [--seed 0]
    python -m tests.faults signals [--number 50] [--seed 0]
    python -m tests.faults starts [--number 20]

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
import time
from pathlib import Path

import numpy as np

from flax_attn.runs import checkpoints

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


def signals(number: int, seed: int) -> int:
    """Signals at random times. Returns how many were answered late or not resumed alike."""
    draw, bad = random.Random(seed), 0
    task = [*TASKS["attention"][:-1], "--steps_per_epoch=150"]
    with tempfile.TemporaryDirectory() as folder:
        unbroken = Path(folder, "unbroken")
        train(task, unbroken)
        began = time.monotonic()
        shutil.rmtree(unbroken)
        train(task, unbroken)
        total = time.monotonic() - began
        for i in range(number):
            workdir = Path(folder, "run")
            shutil.rmtree(workdir, ignore_errors=True)
            number_of = draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
            process, delay = start(task, workdir), draw.uniform(0.3 * total, total)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            sent = time.monotonic()
            process.send_signal(number_of)
            _, err = process.communicate(timeout=120)
            took, line = time.monotonic() - sent, err.strip().splitlines()[-1:]
            answered = process.returncode in (0, 128 + number_of) and took < 5
            code, _, err = train(task, workdir)
            same = code == 0 and contents(workdir) == contents(unbroken)
            bad += not (answered and same)
            said = f"code {process.returncode} in {took:.1f} s {line}"
            after = "same" if same else f"DIFFERENT {err}"
            print(f"{i + 1} {number_of.name} after {delay:.1f} s: {said}, {after}", flush=True)
    print(f"{number - bad} of {number} answered within 5 s and resumed to the last bit")
    return bad


def starts(number: int, seed: int) -> int:
    """Second starts beside a first, later and later. Returns how many went wrong.

    The one that comes too late says one line and exits with 2, within 2 seconds if it is the
    second. The other comes out as if it had been alone.
    """
    del seed  # the moments are spread evenly
    task, bad = [*TASKS["signals"], "--steps_per_epoch=1500"], 0
    with tempfile.TemporaryDirectory() as folder:
        unbroken, workdir = Path(folder, "unbroken"), Path(folder, "run")
        train(task, unbroken)
        shutil.rmtree(unbroken)
        began = time.monotonic()
        train(task, unbroken)
        total = time.monotonic() - began
        expected = contents(unbroken)
        for i in range(number):
            shutil.rmtree(workdir, ignore_errors=True)
            first = start(task, workdir)
            time.sleep(total * i / number)
            began = time.monotonic()
            code, _, err = train(task, workdir)
            took = time.monotonic() - began
            _, first_err = first.communicate(timeout=120)
            ends = [(first.returncode, first_err), (code, err)]
            refused = [line for code, line in ends if code == 2]
            ended = [code for code, _ in ends].count(0)
            one_line = all(
                "is in use by" in line and len(line.splitlines()) == 1 for line in refused
            )
            good = ended + len(refused) == 2 and ended and one_line
            good = good and (took < 2 or not code) and contents(workdir) == expected
            bad += not good
            said = f"first {first.returncode}, second {code} in {took:.1f} s {err.strip()}"
            after = f"after {total * i / number:.1f} s"
            print(f"{i + 1} {after}: {said}{'' if good else ' WRONG'}", flush=True)
    print(f"{number - bad} of {number} left one that was refused, and one as if it had been alone")
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    for name, default in (("kills", 200), ("signals", 50), ("starts", 20)):
        command = commands.add_parser(name)
        command.add_argument("--number", type=int, default=default)
        command.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try_all = {"kills": kills, "signals": signals, "starts": starts}[args.what]
    sys.exit(bool(try_all(args.number, args.seed)))
