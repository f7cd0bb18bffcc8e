"""What a user gets by pip: the wheel trains without a checkout, and the source archive has all that
its tests need.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("flax_attn", "configs", "tests", "docs", "benchmarks")
FILES = (
    "pyproject.toml",
    "MANIFEST.in",
    "train.py",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with a wheel and a source archive, built from a copy."""
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


@pytest.mark.full
def test_the_wheel_holds_configs_and_types(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "flax_attn/py.typed",
        "flax_attn/recipes.py",
        "flax_attn/configs/shapes_attention.py",
    } <= names
    configs = {f"flax_attn/configs/{path.name}" for path in (ROOT / "configs").glob("*.py")}
    assert configs <= names
    assert not any(name.startswith(("configs/", "tests/", "benchmarks/")) for name in names)


@pytest.mark.full
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


@pytest.mark.full
def test_a_wheel_trains_and_predicts_elsewhere(built, tmp_path):
    """Its files alone are on the path, beside the packages that are installed here."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}

    def run(*arguments):
        command = [sys.executable, "-m", "flax_attn", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import flax_attn; print(flax_attn.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "site") in found.stdout
    assert run("--version").startswith("flax-attn ")
    run(
        "train",
        "shapes_by_location_best:quick",
        "--num_epochs=1",
        "--steps_per_epoch=2",
        "--data.num_train=200",
        "--batch_size=16",
    )
    assert (tmp_path / "runs" / "shapes_by_location_best-quick" / "summary.json").exists()
    assert "test/mse" in run("compare", "runs/shapes_by_location_best-quick")
