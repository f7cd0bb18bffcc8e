"""Published models: folders as `transformers` writes them, in layers of this library.

`folder` reads files, `modules` are the models, `families` says how a family is laid out and makes
its model of a folder, and `tasks` says what it is asked.
"""

import json
from pathlib import Path

from flax_attn.errors import UsageError, one_line
from flax_attn.runs import directory
from flax_attn.types import JsonObject

LARGEST_JSON = 2**27  # bytes; a vocabulary of 256,000 tokens takes 2**25


def read_bytes(path: Path) -> bytes:
    """Reads a JSON file. Links are followed: the Hugging Face cache is made of them."""
    with open(path, "rb") as file:
        content = file.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise UsageError(f"expected at most {LARGEST_JSON:,} bytes in {path}, got more")
    return content


def read_json(path: Path) -> JsonObject:
    """Reads the object in a JSON file."""
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"expected JSON in {path} ({one_line(error)}); copy it again") from error
    if not isinstance(content, dict):
        raise UsageError(f"expected an object in {path}, got {type(content).__name__}")
    return content


def is_published(folder: Path) -> bool:
    """Whether a folder has the options of a published model, and not the config of a run."""
    path = folder / "config.json"
    try:
        return path.is_file() and directory.is_published(read_json(path))
    except (OSError, UsageError):
        return False
