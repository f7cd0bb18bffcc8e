"""Published models: folders as `transformers` writes them, in layers of this library.

`folder` reads files, `modules` are the models, `families` describes how a family is laid out and
makes its model of a folder, and `tasks` are what it is asked.
"""

import json
from pathlib import Path


def is_published(folder: Path) -> bool:
    """Returns whether a folder has the options of a published model, not of a run."""
    try:
        content = json.loads((folder / "config.json").read_bytes())
    except (OSError, RecursionError, ValueError):
        return False
    return isinstance(content, dict) and "model_type" in content and "seed" not in content
