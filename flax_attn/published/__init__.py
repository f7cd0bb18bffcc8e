"""Published models: folders as `transformers` writes them, in layers of this library.

`folder` reads files, `modules` are the models, `families` says how a family is laid out and makes
its model of a folder, and `tasks` says what it is asked.
"""

from pathlib import Path

from flax_attn.errors import UsageError
from flax_attn.runs import directory, untrusted


def is_published(folder: Path) -> bool:
    """Whether a folder has the options of a published model, and not the config of a run."""
    try:
        content = untrusted.read_json(folder, "config.json")
    except (FileNotFoundError, NotADirectoryError, UsageError):
        return False
    return directory.is_published(content)
