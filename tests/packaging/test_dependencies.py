"""The attention library needs few packages: where no others are installed, it computes, and all of
its tests are collected. To run them all takes minutes, so those of two files are run.

The environment of this process has more. So one is made that has links to these packages, to what
they require, and to the tools of the tests.
"""

import importlib.metadata
import os
import subprocess
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LIBRARY = ("jax", "flax", "numpy", "jaxtyping", "chex")
TOOLS = ("pytest", "hypothesis", "beartype")
COMPUTE = """
import importlib, importlib.util, pkgutil
import jax
from flax import nnx
import flax_attn.attention as fa
import flax_attn.attention.nnx, flax_attn.testing
for module in pkgutil.walk_packages(fa.__path__, "flax_attn.attention."):
    importlib.import_module(module.name)
x = jax.numpy.ones((1, 3, 4))
print(fa.attend(x, x, x).context.shape)
print(fa.MultiHeadAttention(2).init_with_output(jax.random.key(0), x)[0].context.shape)
print(fa.nnx.MultiHeadAttention(2, in_features=4, rngs=nnx.Rngs(0))(x).context.shape)
print([name for name in ("msgspec", "matplotlib") if importlib.util.find_spec(name)])
"""


def require(requirement: Requirement, extras: dict[str, set[str]]) -> None:
    """Adds a package with its extras, and all that it requires."""
    name, wanted = canonicalize_name(requirement.name), {"", *requirement.extras}
    if wanted <= extras.setdefault(name, set()):
        return
    extras[name] |= wanted
    for other in map(Requirement, importlib.metadata.requires(name) or ()):
        marker = other.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras[name]):
            require(other, extras)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Runs Python from the root of the checkout, and returns what it prints."""
    folder = tmp_path_factory.mktemp("library")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    extras = {}
    for name in (*LIBRARY, *TOOLS):
        require(Requirement(name), extras)
    for name in extras:
        installed = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in installed.files} - {"..", "__pycache__"}:
            if not (packages / top).exists():  # packages share the folder `google`
                (packages / top).symlink_to(installed.locate_file(top))

    def run(*arguments):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [folder / "bin" / "python", *arguments]
        pipes = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run(command, **pipes)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_every_module_is_imported_and_layers_compute(python):
    assert python("-c", COMPUTE).split("\n")[:4] == [*["(1, 3, 4)"] * 3, "[]"]


@pytest.mark.slow
def test_its_tests_are_collected_and_pass(python):
    options = ["-q", "-o", "addopts=--import-mode=importlib", "-m", "not slow"]
    files = ["-k", "test_core or test_multi_head"]
    assert " passed" in python("-m", "pytest", *options, *files, "tests/attention")
