"""The site, built once from nothing, and a browser."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.__main__ import PACKAGES

ROOT = Path(__file__).parents[2]
# what the tests set to compile quickly, and users do not
OWN = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS", "PYTHONWARNINGS")


class Site(NamedTuple):
    """The folders with its pages, with the lessons as notebooks, and with the record of their
    execution; and what Sphinx wrote.
    """

    pages: Path
    notebooks: Path
    outputs: Path
    log: str


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Returns the site. With CI set, what builds it must be there."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        said = f'the site needs {", ".join(missing)}; pip install -e ".[docs]"'
        if os.environ.get("CI"):
            pytest.fail(said)
        pytest.skip(said)
    folder = tmp_path_factory.mktemp("site")
    build = "import pathlib, sys; from docs.__main__ import build; "
    build += "sys.exit(build(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", build, str(folder / "html")]
    environment = {name: value for name, value in os.environ.items() if name not in OWN}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr
    (outputs,) = (folder / "outputs").iterdir()
    return Site(folder / "html", folder / "jupyter_execute", outputs, done.stdout + done.stderr)
