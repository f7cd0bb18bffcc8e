"""What a user gets by pip: the wheel trains without a checkout, and the source archive has all that
its tests need.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import flax_attn

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PARTS = ("flax_attn", "configs", "tests", "docs", "benchmarks", "launch")
FILES = (
    "pyproject.toml",
    "MANIFEST.in",
    "train.py",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Returns a folder with a wheel and a source archive, built from a copy."""
    pytest.importorskip("build")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for part in PARTS:
        shutil.copytree(
            ROOT / part, source / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in FILES:
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode and "No matching distribution" in done.stdout + done.stderr:
        pytest.skip("no network to build with")
    assert done.returncode == 0, done.stderr
    return out


def test_the_wheel_holds_configs_and_types(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "flax_attn/py.typed",
        "flax_attn/recipes.py",
        "flax_attn/configs/shapes_attention.py",
    } <= names
    page = ROOT / "flax_attn" / "page"
    parts = [path for path in page.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(parts) > 20
    assert {str(path.relative_to(ROOT)) for path in parts} <= names
    configs = {f"flax_attn/configs/{path.name}" for path in (ROOT / "configs").glob("*.py")}
    assert configs <= names
    assert not any(name.startswith(("configs/", "tests/", "benchmarks/")) for name in names)


def test_the_source_archive_holds_tests_configs_and_the_program(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "train.py",
        "CHANGELOG.md",
        "tests/conftest.py",
        "tests/attention/naive.py",
        "configs/shapes_attention.py",
    }
    assert wanted <= names
    assert any(name.startswith("docs/") for name in names)
    assert "flax_attn/page/page.css" in names


HERE = """
from pathlib import Path
import flax_attn

def test_the_package_is_that_of_the_archive():
    assert Path(flax_attn.__file__).parents[1] == Path(__file__).parents[1]
"""


def test_the_tests_of_the_source_archive_run_from_it(built, tmp_path):
    """The tests of `attend`, and one of where the package is from."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    (unpacked / "tests" / "test_here.py").write_text(HERE)
    command = [sys.executable, "-m", "pytest", "-n", "0", "tests/test_here.py"]
    done = subprocess.run(
        [
            *command,
            "tests/attention/test_core.py",
            "tests/test_docs.py",
            "-k",
            "core or here or links",
        ],
        cwd=unpacked,
        env=elsewhere(),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 60


def elsewhere():
    """Returns the environment of a user who has no checkout."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def test_the_command_of_a_wheel_trains_predicts_and_compares_without_a_checkout(built, tmp_path):
    """The wheel is installed into an environment that has, else, the packages of this one."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    installed = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "installed.pth").write_text("\n".join(installed))
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv"), "install", "--no-index"]
    install = [*pip, "--no-deps", str(wheel)]
    subprocess.run(install, env=elsewhere(), check=True, capture_output=True)

    def run(*command):
        done = subprocess.run(
            [tmp_path / "venv" / "bin" / command[0], *command[1:]],
            cwd=tmp_path,
            env=elsewhere(),
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    where = "import flax_attn; print(flax_attn.__file__)"
    assert Path(run("python", "-c", where).strip()).is_relative_to(packages)
    assert run("flax-attn", "--version") == f"flax-attn {flax_attn.__version__}\n"
    tiny = ("--num_epochs=1", "--steps_per_epoch=2", "--batch_size=16", "--model.features=8")
    run("flax-attn", "train", "shapes_attention:quick", "--data.num_train=200", *tiny)
    directory = tmp_path / "runs" / "shapes_attention-quick"
    assert (directory / "figures" / "attention.png").exists()
    np.save(tmp_path / "signals.npy", np.zeros((3, 100)))
    run("flax-attn", "predict", str(directory), "--input", "signals.npy")
    assert np.load(tmp_path / "signals.predictions.npy").shape == (3, 100)
    assert "test/mse" in run("flax-attn", "compare", str(directory))
    run("flax-attn", "report", "--no-model", str(directory))
    assert "shapes_attention-quick" in (tmp_path / "report.html").read_text(encoding="utf-8")
