"""Run directories with damaged files, and trainings on disks that are full.

python -m tests.damage bytes [--offsets 20]
python -m tests.damage disk [--number 10]      (as root, who may mount small disks)
"""

import argparse
import contextlib
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from flax_attn.__main__ import main
from tests.faults import TASKS, contents, train

INPUTS = {
    "signals": ["--input", "inputs.npy", "--output", "outputs.csv"],
    "texts": ["word1 and word3", "--json"],
}


def call(*args: str) -> tuple[int, str]:
    """A command's exit code, and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(list(args))
    return code, out.getvalue()


def variants(content: bytes, offsets: int) -> Iterator[tuple[str, bytes | None]]:
    """A file deleted, cut, and with one bit flipped at each of some offsets."""
    yield "deleted", None
    yield "emptied", b""
    yield "halved", content[: len(content) // 2]
    for place in sorted({len(content) * i // offsets for i in range(offsets)}):
        if content:
            yield f"flipped at {place}", flipped(content, place)


def flipped(content: bytes, place: int) -> bytes:
    """Bytes with one bit flipped."""
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def damage_bytes(offsets: int) -> int:
    """Damages every file of a run in turn. Returns how often other numbers came with code 0."""
    bad, tried = 0, 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        np.save("inputs.npy", np.linspace(0, 9, 200).reshape(2, 100))
        for task, example in INPUTS.items():
            run = Path(folder, task)
            assert train(TASKS[task], run)[0] == 0

            def numbers(run=run, example=example) -> tuple[tuple[int, str], tuple[int, str]]:
                outputs = Path("outputs.csv")
                outputs.unlink(missing_ok=True)
                code, out = call("predict", str(run), *example)
                out += outputs.read_text() if outputs.exists() else ""
                return (code, out), call("compare", str(run), "--output", "compared")

            expected = numbers()
            assert expected[0][0] == expected[1][0] == 0, expected
            for path in sorted(path for path in run.rglob("*") if path.is_file()):
                content = path.read_bytes()
                for what, damaged in variants(content, offsets):
                    path.unlink()
                    if damaged is not None:
                        path.write_bytes(damaged)
                    tried += 1
                    pairs = zip(numbers(), expected)
                    wrong = any(after[0] == 0 and after != before for after, before in pairs)
                    bad += wrong
                    if wrong:
                        print(f"{path.relative_to(run)} {what}: other numbers with exit code 0")
                    path.write_bytes(content)
            print(f"{task}: {tried} damages so far, {bad} wrong", flush=True)
    print(f"{tried} damages, {bad} with other numbers and exit code 0")
    return bad


@contextlib.contextmanager
def disk(folder: Path, size: int) -> Iterator[Path]:
    """Mounts a disk of `size` bytes in memory."""
    folder.mkdir(exist_ok=True)
    mount(folder, f"size={size}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


def is_one_line(code: int, err: str) -> bool:
    return code == 2 and err.startswith("error: ") and len(err.splitlines()) == 1


def fill_disks(number: int) -> int:
    """Trains on disks that are full, read-only, or hold small files alone, and then on more.

    Returns how many ended otherwise than in one line and exit code 2, or went on to other numbers.
    """
    task, bad = TASKS["attention"], 0

    def finish(what: str, outcome: tuple[int, str, str], workdir: Path) -> None:
        nonlocal bad
        code, _, err = outcome
        again, _, err_again = train(task, workdir)
        same = again == 0 and contents(workdir) == expected
        good = same and is_one_line(code, err)
        bad += not good
        print(f"{what}: {code} {err.strip()[-200:]}; {'same' if same else err_again}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert train(task, folder / "unbroken")[0] == 0
        expected = contents(folder / "unbroken")
        files = [path for path in (folder / "unbroken").rglob("*") if path.is_file()]
        whole = sum(-(-path.stat().st_size // 4096) * 4096 for path in files)
        for i in range(number):
            size = 4096 * (2 + whole * i // number // 4096)
            with disk(folder / "disk", size) as small:
                outcome = train(task, small / "run")
                mount(small, "remount,size=1g")
                finish(f"disk of {size // 1024} of {whole // 1024} kB", outcome, small / "run")
        with disk(folder / "disk", 1 << 30) as small:
            mount(small, "remount,ro")
            outcome = train(task, small / "run")
            mount(small, "remount,rw")
            finish("read-only disk", outcome, small / "run")
        for largest in (1_000, 4_000, 16_000):
            workdir = folder / f"limited-to-{largest}"
            outcome = train(task, workdir, largest=largest)
            finish(f"files of at most {largest} bytes", outcome, workdir)
    print(f"{bad} of {number + 4} ended in more than a line, or went on to other numbers")
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("bytes").add_argument("--offsets", type=int, default=20)
    commands.add_parser("disk").add_argument("--number", type=int, default=10)
    args = parser.parse_args()
    failed = damage_bytes(args.offsets) if args.what == "bytes" else fill_disks(args.number)
    sys.exit(bool(failed))
