"""Strict everywhere: shapes in annotations are checked as the code runs, and no array is broadcast
across ranks unasked.

What one test has compiled another need not compile again: XLA's cache is shared by the test
processes and those they start. One that reads an entry while another writes it, or after its writer
was killed, compiles it again, and need not warn.
"""

import gc
import os
import subprocess
import tempfile
from pathlib import Path

from tests import faults, tiny
from tests.quick_compiling import with_flags

# thousands of small programs that run once each: to compile them is the work
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["XLA_FLAGS"] = with_flags()
os.environ["PYTHONWARNINGS"] = "ignore:Error reading persistent compilation cache entry"
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = tempfile.TemporaryDirectory(prefix="flax_attn-tests-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

import jax
import jaxtyping
import pytest
from jaxtyping import install_import_hook

install_import_hook("flax_attn", "beartype.beartype")
jax.config.update("jax_numpy_rank_promotion", "raise")

gc.freeze()
# what jax keeps is never garbage, and looking through it takes a tenth of the time
gc.set_threshold(100_000, 20, 50)


if "TFDS_DATA_DIR" not in os.environ:
    prepared = tempfile.TemporaryDirectory(prefix="flax_attn-tests-", ignore_cleanup_errors=True)
    os.environ["TFDS_DATA_DIR"] = prepared.name


# the files that take longest, in order: two processes that begin with them end at the same time
LONGEST = ("test_site", "test_faults", "test_processes", "test_mesh", "test_live", "test_docs")
LONGEST += ("test_configs", "test_lenses", "test_running", "test_packaging")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    place = {stem: number for number, stem in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


CHROMIUM = Path("/usr/bin/chromium")
HOW = "apt-get install chromium and pip install playwright"


def pytest_addoption(parser):
    parser.addoption(
        "--manual_dir", type=Path, default=None, help="a folder with one folder a data set"
    )


@pytest.fixture(scope="session", autouse=True)
def children_hear_signals():
    """Tests pass under `nohup` and in a shell's background, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", faults.Hearing)
        yield


@pytest.fixture
def symbolic_sizes(monkeypatch):
    """Leaves annotations unchecked: the sizes of a program that is exported are no integers."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def no_pictures():
    """Runs draw none, where a test looks at none."""
    with tiny.no_pictures():
        yield


@pytest.fixture(scope="session")
def manual_dir(request):
    """The real data sets: of the folder given, or of the one beside the checkout; skips where there
    is neither.
    """
    folder, beside = (
        request.config.getoption("--manual_dir"),
        Path(__file__).parents[2] / "shared" / "data",
    )
    if folder is None and not beside.is_dir():
        pytest.skip("no --manual_dir with the real data sets")
    return folder or beside


@pytest.fixture(scope="session")
def trained_alone(tmp_path_factory):
    """Returns what one process leaves of the run that tests train in several."""
    from tests import processes

    workdir = tmp_path_factory.mktemp("alone") / "run"
    code, _, err = faults.train(processes.TASK, workdir)
    assert code == 0, err
    return faults.contents(workdir)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, one for all tests of pages. With CI set it must be there."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if sync_playwright is None or not CHROMIUM.exists():
        said = f"pages are tested in Chromium: {HOW}"
        if os.environ.get("CI"):
            pytest.fail(said)
        pytest.skip(said)
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=options)
        yield browser
        browser.close()
