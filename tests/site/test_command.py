"""`python -m docs`: one line where it cannot begin, and a site that is served on this machine."""

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

import docs.__main__ as command
from tests.site.conftest import ROOT

pytestmark = pytest.mark.slow
SERVE = """
import sys
import docs.__main__ as command
command.build = lambda out: 0
command.PACKAGES = ()
command.FOLDER = sys.argv[1]
sys.exit(command.main(["--port=0"]))
"""


def test_a_port_that_is_taken_is_one_line_before_anything_is_built(monkeypatch, capsys):
    monkeypatch.setattr(command, "PACKAGES", ())
    monkeypatch.setattr(command, "build", None)
    with socket.socket() as taken:
        taken.bind((command.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert command.main([f"--port={port}"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"port {port}" in said
    assert command.main(["--port=70000"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_site_is_built_for_a_host(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "PACKAGES", ())
    monkeypatch.setattr(command, "FRESH", tmp_path / "built")
    pages = ["live/shapes.html", "old.html"]

    def build(out):
        assert not out.exists()
        for page in pages:
            (out / page).parent.mkdir(parents=True, exist_ok=True)
            (out / page).write_text(f"<p>{page}")
        return 0

    monkeypatch.setattr(command, "build", build)
    site = tmp_path / "site"
    assert command.main([f"--output={site}"]) == 0
    assert (site / "live" / "shapes.html").read_text() == "<p>live/shapes.html"
    outside = tmp_path / "outside.html"
    for own in (site / "CNAME", outside):
        own.write_text("of the user")
    with open(site / command.LIST, "a") as file:
        file.write("../outside.html\n")
    pages.remove("old.html")
    assert command.main([f"--output={site}"]) == 0
    names = {path.name for path in site.rglob("*") if path.is_file()}
    assert names == {"shapes.html", "CNAME", command.LIST}
    assert outside.exists()


def test_the_site_is_served_until_ctrl_c(tmp_path):
    (tmp_path / "index.html").write_text("<p>first")
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVE, str(tmp_path)], **options) as process:
        try:
            line = process.stdout.readline()
            address = line.split()[4].rstrip(".")
            with urllib.request.urlopen(address, timeout=20) as answer:
                assert answer.read() == b"<p>first"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    assert said == ""
    assert address.startswith(f"http://{command.HOST}:")
