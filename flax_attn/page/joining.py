"""Joins the modules of a page into one script, and the page into one file."""

import base64
import hashlib
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent
IMPORT = re.compile(r'^import \{ [\w, $]+ \} from "(\.{1,2}/[\w./]+\.mjs)";$')
# a comment that begins its line, up to the end of its last line
COMMENT = re.compile(r"^[ ]*(?://.*|/\*(?:.|\n)*?\*/[ ]*)\n", re.MULTILINE)


def join(names: Iterable[str], folder: Path = FOLDER) -> str:
    """Returns one script of some modules and all that they import, each before what imports it.

    Modules are named by their path in the folder. An import stands on a line of its own:
    `import { el, svg } from "../dom.mjs";`. All modules share one scope, so a name may be defined
    once. Comments and indentation stay behind, so that a page is small; to read, there are the
    modules.
    """
    texts: dict[str, str] = {}
    for name in names:
        _add(name, folder, texts)
    return "\n".join(f"// {name}\n{text}" for name, text in texts.items())


def _add(name: str, folder: Path, texts: dict[str, str]) -> None:
    """Adds a module to `texts`, unless it is there, after those that it imports."""
    if name in texts:
        return
    texts[name] = ""  # of a module that imports one that imports it
    lines = []
    for line in COMMENT.sub("", (folder / name).read_text(encoding="utf-8")).splitlines():
        if imported := IMPORT.match(line):
            path = posixpath.join(posixpath.dirname(name), imported[1])
            _add(posixpath.normpath(path), folder, texts)
        elif text := line.strip().removeprefix("export "):
            lines.append(text)
    del texts[name]
    texts[name] = "\n".join(lines)


def digest(text: str) -> str:
    """Returns the hash of a script or style, as a content security policy names it."""
    hashed = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(hashed).decode()}'"
