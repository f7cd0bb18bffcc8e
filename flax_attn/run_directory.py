"""The run directory as it is written: what a run leaves behind, and the only thing that pictures and predictions read.

config.json      the resolved config, and under "derived" what the data decided
metrics.jsonl    one line per epoch and seed, epoch 0 before training
summary.json     the results, written last: it is there only when the run is finished
examples.npz     some test inputs, targets and predictions, with attention and what marks the pictures
checkpoints/     the newest two epochs
figures/         pictures
"""

import json
import os
from pathlib import Path
from typing import Any

from flax_attn.errors import UsageError

GROWABLE = "num_epochs"


class RunDirectory:
    """A run directory open for writing. Every file is replaced whole or appended to by whole lines."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.figures = path / "figures"

    @classmethod
    def open(cls, path: Path, config: dict[str, Any]) -> "RunDirectory":
        """Creates the directory, or opens it to resume a run of the same config.

        Raises:
            UsageError: the directory holds something else, a run of another config, or cannot be written.
        """
        directory = cls(path)
        try:
            if path.exists() and not path.is_dir():
                raise UsageError(f"expected --workdir to be a directory, but {path} is a file; choose another")
            if path.is_dir() and any(path.iterdir()):
                _check_same(path, read_config(path), config)
            directory.figures.mkdir(parents=True, exist_ok=True)
            probe = path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UsageError(f"cannot write to run directory {path} ({error.strerror}); choose another --workdir") from error
        return directory

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        partial = self.path / (name + ".partial")
        partial.write_text(json.dumps(content, indent=2) + "\n")
        os.replace(partial, self.path / name)

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))

    def keep_metrics_until(self, epoch: int) -> None:
        """Drops the lines after an epoch, and a last one that was cut short: training goes on from there."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return
        kept = []
        for line in path.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                break
            if row["epoch"] <= epoch:
                kept.append(line + "\n")
        partial = path.with_suffix(".partial")
        partial.write_text("".join(kept))
        os.replace(partial, path)

    def summary(self) -> dict[str, Any] | None:
        """The results of a finished run, or None; one that cannot be read is made anew from the checkpoints."""
        try:
            return json.loads((self.path / "summary.json").read_text())
        except (FileNotFoundError, ValueError):
            return None


def read_config(path: Path) -> dict[str, Any]:
    """The config of a run directory.

    Raises:
        UsageError: there is no such directory, or it is not one of ours.
    """
    try:
        config = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        if not path.exists():
            raise UsageError(f"no run directory {path}; give one that train.py has made, such as runs/shapes_attention") from None
        raise UsageError(
            f"expected a run directory, but {path} has no config.json; nothing was touched, choose another directory"
        ) from None
    except NotADirectoryError:
        raise UsageError(f"expected a run directory, but {path} is a file; choose another") from None
    except ValueError as error:
        raise UsageError(f"expected JSON in {path / 'config.json'} ({error}); choose another directory") from None
    if not isinstance(config, dict) or "model" not in config:
        raise UsageError(f"expected the config of a run in {path / 'config.json'}, found something else; choose another directory")
    return config


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, with dotted keys."""
    flat = {}
    for key, value in config.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _check_same(path: Path, stored: dict[str, Any], config: dict[str, Any]) -> None:
    before = flatten({key: value for key, value in stored.items() if key != "derived"})
    now = flatten(json.loads(json.dumps(config)))
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if key == GROWABLE and isinstance(old, int) and isinstance(new, int) and new >= old:
            continue
        if old != new:
            only = " (it may only grow)" if key == GROWABLE else ""
            raise UsageError(
                f"config key '{key}' was {old!r} when {path} was started and is now {new!r}{only}; undo it or choose another --workdir"
            )
