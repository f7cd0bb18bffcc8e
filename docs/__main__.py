"""Builds the site into `docs/_build/html`, and serves it on this machine.

    python -m docs [--port=8000]
    python -m docs --output FOLDER

The second command builds it into a folder that any static host serves as it is. Pages of an earlier
build that are gone from the site are removed from the folder; other files in it stay.

The lessons of the course are executed, and only again after their code has changed.
"""

import argparse
import functools
import http.server
import importlib.util
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
FOLDER = DOCS / "_build" / "html"
FRESH = DOCS / "_build" / "fresh"  # emptied before each build for a host
LIST = ".files-of-the-site"  # in the folder for a host: the names of all files that were built
PACKAGES = ("sphinx", "myst_nb", "furo", "sphinx_copybutton", "jupytext", "sklearn", "tokenizers")
HOST = "127.0.0.1"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m docs", description="Builds the site.")
    parser.add_argument("--port", type=int, default=8000, help="to serve it at, on this machine")
    parser.add_argument("--output", type=Path, help="only build it, and copy it here")
    options = parser.parse_args(arguments)
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return failed(f'the site needs {", ".join(missing)}; pip install -e ".[docs]"')
    if options.output is not None:
        shutil.rmtree(FRESH, ignore_errors=True)
        if code := build(FRESH):
            return code
        try:
            publish(FRESH, options.output)
        except OSError as error:
            return failed(f"cannot write into {options.output} ({error}); choose another folder")
        return 0
    pages = functools.partial(Quiet, directory=str(FOLDER))
    try:
        server = http.server.ThreadingHTTPServer((HOST, options.port), pages)
    except (OSError, OverflowError) as error:
        return failed(f"cannot serve at port {options.port} ({error}); choose another by --port")
    with server:
        if code := build(FOLDER):
            return code
        print(f"The site is at http://{HOST}:{server.server_port}/. Ctrl-C ends.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def build(out: Path) -> int:
    """Builds the site into a folder. A warning is an error. Returns the exit code."""
    from sphinx.cmd.build import build_main

    out = out.resolve()
    folders = ["--conf-dir", str(DOCS), "--doctree-dir", str(out.parent / "doctrees")]
    return build_main(["-W", "--keep-going", *folders, str(DOCS.parent), str(out)])


def publish(site: Path, folder: Path) -> None:
    """Copies a site into a folder, and removes what the build before had and this one has not."""
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    own = folder / LIST
    earlier = own.read_text(encoding="utf-8").splitlines() if own.is_file() else []
    shutil.copytree(site, folder, dirs_exist_ok=True)
    for name in set(earlier) - files:
        path = folder / name
        # the list may come from anyone, so nothing outside of the folder is touched
        if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            path.unlink()
    own.write_text("".join(f"{name}\n" for name in sorted(files)), encoding="utf-8")


def failed(line: str) -> int:
    print(f"error: {line}", file=sys.stderr)
    return 2


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Prints nothing: a line for each file would hide the address."""


if __name__ == "__main__":
    sys.exit(main())
