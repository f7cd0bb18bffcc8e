"""Changes the code in one place after another, and says which changes no test notices.

    python -m tests.mutate [--only runs/] [--manual_dir FOLDER] [--jobs 2]

Every mutant of `tests/mutants.py` is written into a copy of the project. The tests that belong to
the changed file run there until one fails: the mutant is killed. One that passes all survives.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.mutants import MUTANTS, TESTS

ROOT = Path(__file__).parent.parent
PARTS = ("flax_attn", "tests", "configs", "docs", "benchmarks", "train.py", "pyproject.toml")
PARTS += ("README.md", "LICENSE", "CHANGELOG.md")
SURVIVED, KILLED = 0, 1  # exit codes of pytest; any other says that the tests did not run


class Mutant(NamedTuple):
    """A file below `flax_attn/`, what stands there, and what is written in its place."""

    file: str
    before: str
    after: str

    def __str__(self) -> str:
        shorten = lambda text: " ".join(text.split())
        return f"{self.file}: {shorten(self.before)}  ->  {shorten(self.after)}"


def tests_of(file: str) -> list[str]:
    """The tests that belong to a file: those of its name, and those that `TESTS` adds."""
    own = Path("tests", Path(file).parent, f"test_{Path(file).name}")
    names = [str(own)] if (ROOT / own).exists() else []
    return names + [f"tests/{name}" for name in TESTS.get(file, ())]


def write(mutant: Mutant, root: Path) -> None:
    """Writes a mutant into a copy of the project."""
    file = root / "flax_attn" / mutant.file
    file.write_text(file.read_text().replace(mutant.before, mutant.after))


def check(mutant: Mutant) -> None:
    """Ends the program where a mutant has no tests, or its code does not stand there once."""
    tests_of(mutant.file) or sys.exit(f"no tests belong to {mutant.file}")
    number = (ROOT / "flax_attn" / mutant.file).read_text().count(mutant.before)
    if number != 1:
        sys.exit(f"expected the code once, got it {number} times: {mutant}")


def copy(folder: Path) -> Path:
    """A copy of the project in a folder."""
    for name in PARTS:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return folder


def run_tests(root: Path, names: list[str], manual_dir: Path | None) -> tuple[int, str]:
    """Runs tests in a copy of the project until one fails. Returns pytest's exit code and words."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += [f"--manual_dir={manual_dir}"] if manual_dir else []
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, *names], cwd=root, env=environment, capture_output=True)
    return done.returncode, done.stdout.decode()


def try_mutant(mutant: Mutant, names: list[str], manual_dir: Path | None) -> tuple[int, str, float]:
    """What the tests say of a mutant, and the seconds that they take."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        root = copy(Path(folder))
        write(mutant, root)
        code, said = run_tests(root, names, manual_dir)
    return code, said, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="the beginning of the files to change")
    parser.add_argument("--manual_dir", type=Path, help="a folder with one folder a data set")
    parser.add_argument("--jobs", type=int, default=2, help="how many run side by side")
    args = parser.parse_args()
    manual_dir = args.manual_dir and args.manual_dir.resolve()
    mutants = [
        Mutant(file, *change)
        for file, changes in MUTANTS.items()
        if file.startswith(args.only)
        for change in changes
    ]
    for mutant in mutants:
        check(mutant)
    os.environ.setdefault(
        "JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="flax_attn-mutants-")
    )
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    began, survivors = time.perf_counter(), []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        tries = [pool.submit(try_mutant, m, tests_of(m.file), manual_dir) for m in mutants]
        for mutant, future in zip(mutants, tries):
            code, said, seconds = future.result()
            verdict = {KILLED: "killed", SURVIVED: "SURVIVED"}.get(code, f"ended with {code}")
            failed = re.search(r"^(?:FAILED|ERROR) \S*?(\w+\.py\S*)", said, re.MULTILINE)
            by = f" by {failed[1]}" if failed else ""
            print(f"{verdict:9} {seconds:5.0f} s  {mutant}{by}", flush=True)
            survivors += [mutant] if code != KILLED else []
    killed = len(mutants) - len(survivors)
    minutes = (time.perf_counter() - began) / 60
    print(
        f"{killed} of {len(mutants)} killed ({killed / len(mutants):.0%}) in {minutes:.0f} minutes"
    )


if __name__ == "__main__":
    main()
