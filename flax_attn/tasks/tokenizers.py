"""The tokenizers of a run, read back from its directory."""

import json
from pathlib import Path
from typing import Any

from flax_attn.data.table import sha256
from flax_attn.data.text import Tokenizer, tokenizer_from_json
from flax_attn.errors import UsageError, one_line

MEND = "run the command that made the run again to mend it"


def restore(run: Path, name: str) -> Tokenizer:
    """The tokenizer in a file of a run. Raises a UsageError where it is lost, damaged, or not the one that the summary knows."""
    try:
        found = tokenizer_from_json(json.loads((run / name).read_text()))
        summary = run / "summary.json"
        known = json.loads(summary.read_text())["files"][name] if summary.exists() else None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"expected the tokenizer of the run in {run / name} ({one_line(error)}); {MEND}") from error
    if known is not None and known != sha256(run / name):
        raise UsageError(f"expected the tokenizer of the run in {run / name}, got other contents than the run ended with; {MEND}")
    return found


def check_sizes(run: Path, found: dict[str, int], expected: dict[str, Any]) -> None:
    """Raises a UsageError where tokenizers are not of the sizes that the model of the run was made for."""
    for name, size in found.items():
        if size != expected.get(name):
            raise UsageError(f"expected the tokenizers that the run in {run} began with, {name} {expected.get(name)}, got {size}; {MEND}")
