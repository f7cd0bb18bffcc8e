"""Joins the modules of a page into one script, and the page into one file."""

import base64
import hashlib
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent
IMPORT = re.compile(r'^import \{ ([\w, $]+) \} from "(\.{1,2}/[\w./]+\.mjs)";$')
# a comment that begins its line, up to the end of its last line
COMMENT = re.compile(r"^[ ]*(?://.*|/\*(?:.|\n)*?\*/[ ]*)\n", re.MULTILINE)
DEFINED = re.compile(r"^(?:export )?(?:async )?(?:function\*?|const|let|var|class) ([\w$]+)")


def join(names: Iterable[str], folder: Path = FOLDER) -> str:
    """One script of some modules and all that they import, each once, before what imports it.

    Modules are named by their path in the folder. An import stands on a line of its own:
    `import { el, svg } from "../dom.mjs";`. All modules share one scope, so a name may be defined
    once. Comments and indentation stay behind, so that a page is small; to read, there are the
    modules.

    Raises:
        ValueError: an import of another form, of what no module exports, or a name defined twice.
    """
    texts: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name in names:
        if name not in texts:
            _add(name, folder, texts, owners)
    return "\n".join(f"// {name}\n{text}" for name, text in texts.items())


def _add(name: str, folder: Path, texts: dict[str, str], owners: dict[str, str]) -> None:
    """Adds a module to `texts` after those that it imports, and its names to `owners`."""
    source = (folder / name).read_text(encoding="utf-8")
    lines = []
    texts[name] = ""  # of a module that imports one that imports it
    for line in COMMENT.sub("", source).splitlines():
        if line.startswith("import"):
            _follow(line, name, folder, texts, owners)
            continue
        if defined := DEFINED.match(line):
            if defined[1] in owners:
                raise ValueError(f"{name} and {owners[defined[1]]} both define {defined[1]}")
            owners[defined[1]] = name
        text = line.strip().removeprefix("export ")
        lines += [text] if text else []
    del texts[name]
    texts[name] = "\n".join(lines)


def _follow(
    line: str, name: str, folder: Path, texts: dict[str, str], owners: dict[str, str]
) -> None:
    """Adds the module of an import, and checks that it exports what is imported."""
    parts = IMPORT.match(line)
    if parts is None:
        raise ValueError(f"{name}: expected an import of names on one line, got {line!r}")
    other = posixpath.normpath(posixpath.join(posixpath.dirname(name), parts[2]))
    if other not in texts:
        _add(other, folder, texts, owners)
    exported = (folder / other).read_text(encoding="utf-8")
    for wanted in parts[1].split(", "):
        if not re.search(rf"^export .*\b{re.escape(wanted)}\b", exported, re.MULTILINE):
            raise ValueError(f"{name} imports {wanted}, which {other} does not export")


def digest(text: str) -> str:
    """The hash of a script or style, as a content security policy names it."""
    hashed = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(hashed).decode()}'"
