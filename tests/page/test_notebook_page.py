"""A notebook that shows a run, executed and made into HTML by nbconvert, lives in a browser."""

import os
import subprocess
import sys

import pytest

from tests import tiny
from tests.faults import ROOT

pytestmark = pytest.mark.slow

TRAIN = f"""
import flax_attn

overrides = {tiny.ATTENTION | tiny.SHAPES!r}
run = flax_attn.train("shapes_attention:quick", num_epochs=1, overrides=overrides)
"""
SHOW = "flax_attn.show(run)"
REACH = "() => { try { return parent.document.title; } catch { return 'refused'; } }"


@pytest.fixture
def page_of_notebook(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(code) for code in (TRAIN, SHOW)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "user.ipynb")
    own = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)}
    own["JUPYTER_RUNTIME_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "nbconvert", "--to=html", "--execute", "user.ipynb"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "user.html"


def test_the_frame_of_a_run_lives_in_what_nbconvert_makes(page_of_notebook, browser):
    context = browser.new_context(offline=True)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(page_of_notebook.as_uri(), wait_until="domcontentloaded")
    assert page.locator("iframe").count() == 1
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    frame = page.frame_locator("iframe")
    frame.locator("#page[data-ready]").wait_for(timeout=60_000)
    frame.locator(".try-figure[aria-busy=false]").wait_for(timeout=60_000)
    inside = page.frames[1]
    assert inside.evaluate("document.querySelector('.heat canvas').width") > 100
    said = frame.locator(".try-said > span").first
    before = said.inner_text()
    handle = frame.get_by_role("slider", name="triangle 1")
    for _ in range(3):
        handle.press("PageUp")  # the model in the page answers
    playwright = pytest.importorskip("playwright.sync_api")
    playwright.expect(said).not_to_have_text(before, timeout=30_000)
    assert inside.evaluate(REACH) == "refused"
    assert inside.evaluate("origin") == "null"
    assert page.frame_locator("iframe").locator("h1").inner_text()
    context.close()
    assert [error for error in errors if "require" not in error and "MathJax" not in error] == []
