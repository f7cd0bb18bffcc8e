"""Builds the site into `docs/_build/html`, and serves it on this machine.

    python -m docs [--port=8000] [--no-serve] [--out=FOLDER]

The lessons of the course are executed, and only again after their code has changed.
"""

import argparse
import functools
import http.server
import importlib.util
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PACKAGES = ("sphinx", "myst_nb", "furo", "sphinx_copybutton")
HOST = "127.0.0.1"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m docs", description="Builds the site.")
    parser.add_argument("--port", type=int, default=8000, help="to serve it at, on this machine")
    parser.add_argument("--no-serve", action="store_true", help="only build it")
    parser.add_argument("--out", type=Path, default=DOCS / "_build" / "html", help="its folder")
    options = parser.parse_args(arguments)
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return failed(f'the site needs {", ".join(missing)}; pip install -e ".[docs]"')
    if options.no_serve:
        return build(options.out)
    pages = functools.partial(Quiet, directory=str(options.out))
    try:
        server = http.server.ThreadingHTTPServer((HOST, options.port), pages)
    except (OSError, OverflowError) as error:
        return failed(f"cannot serve at port {options.port} ({error}); choose another by --port")
    with server:
        if code := build(options.out):
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


def failed(line: str) -> int:
    print(f"error: {line}", file=sys.stderr)
    return 2


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """A line for each file would hide the address."""


if __name__ == "__main__":
    sys.exit(main())
