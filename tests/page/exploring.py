"""The explorer in Chromium: the command in a process of its own, or its server in this one."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from flax_attn.explore.server import open_explorer
from flax_attn.page.report import report
from tests.faults import ROOT

FIGURE = ".try-figure"
READY = f"{FIGURE}[aria-busy=false]"


@contextlib.contextmanager
def command(*runs):
    """`flax-attn explore` until it is stopped by Ctrl-C; gives the process and its address."""
    arguments = [sys.executable, "-m", "flax_attn", "explore", *map(str, runs), "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(arguments, cwd=ROOT, env=os.environ, **pipes)
    try:
        line = process.stdout.readline()
        assert "http" in line, process.communicate()
        yield process, re.search(r"http://\S+", line)[0]
    finally:
        process.kill()
        process.communicate()


def stop(process):
    """Ctrl-C; the exit code and what was written on standard error."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    return process.returncode, err


@contextlib.contextmanager
def serving(records, answers, port=0):
    """The same page from a server in this process; gives its address."""
    with serving_page(lambda: report(records, mode="explore"), answers, port) as url:
        yield url


@contextlib.contextmanager
def serving_page(make, answers, port=0):
    """A page from a server in this process; gives its address."""
    with open_explorer(port, make(), answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


class Visit:
    """A page of the explorer that is open, and all that its console said."""

    def __init__(self, browser, url, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.said = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(url)

    def wait(self):
        """Until the newest answer is there."""
        self.page.wait_for_selector(READY)

    def sentence(self):
        return self.page.locator(".try-said > span").first.text_content()

    def select(self, normalizer):
        self.page.locator(".try-controls select").select_option(label=normalizer)


def choose_example(box, number, name="Test example"):
    """Chooses an example: texts are in a list, others have buttons with their numbers."""
    texts = box.locator("label.control", has_text=name).locator("select")
    if texts.count():
        texts.first.select_option(index=number)
    else:
        box.get_by_role("button", name=f"{name} {number}", exact=True).first.click()


def settle(page):
    """Until the newest answer is there, and all that is measured after it."""
    page.wait_for_selector(READY)
    page.wait_for_timeout(500)  # measuring begins a moment after the answer
    page.wait_for_selector("body:not(:has([aria-busy=true]))")


def axe_finds(page):
    """What axe finds, in words, once nothing is waited for: what is old until then is pale."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    if page.locator(FIGURE).count():
        settle(page)
    results = axe.run(page)
    return results.generate_report() if results.violations_count else ""


@contextlib.contextmanager
def visiting(browser, url, **options):
    """A visit, whose console stays empty."""
    opened = Visit(browser, url, **options)
    try:
        opened.wait()
        yield opened
        assert opened.said == []
    finally:
        opened.context.close()
