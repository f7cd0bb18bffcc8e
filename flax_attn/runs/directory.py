"""The run directory as it is written.

It is what a run leaves behind, and all that pictures and predictions read.

config.json      the resolved config, and under "derived" what the data decided, with the
instruction set
                 of the machine that began the run
metrics.jsonl    one line per epoch and seed, epoch 0 before training
tokenizer.json   for texts, and labels.json for classes
examples.npz     some test inputs, targets and predictions, with attention and what marks the
pictures
summary.json     the results, written when all of the above is there and removed before a run grows
checkpoints/     the newest two epochs
figures/         pictures, drawn from the rest
"""

import json
from pathlib import Path

from flax_attn.errors import UsageError
from flax_attn.files import PARTIAL, replacing
from flax_attn.types import Json, JsonObject

GROWABLE = "num_epochs"
FREE = "reference."  # what results are shown beside; it decides nothing
MEND = "run the command that made it again to mend it"
BEFORE_RECORDED = "avx2"  # the instruction set whose forms every run took that records none


class RunDirectory:
    """A run directory open for writing.

    Every file is replaced whole or appended to by whole lines.
    """

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"

    @classmethod
    def open(cls, path: Path, config: JsonObject) -> "RunDirectory":
        """The directory of a run of this config, one that exists or is to be made.

        Nothing is written yet.

        Raises:
            UsageError: the directory holds something else, or a run of another config.
        """
        try:
            if path.exists() and not path.is_dir():
                raise UsageError(
                    f"expected --workdir to be a directory, but {path} is a file; choose another"
                )
            if path.is_dir() and any(PARTIAL not in entry.name for entry in path.iterdir()):
                _check_same(path, read_config(path), config)
        except OSError as error:
            raise UsageError(
                f"cannot read run directory {path} ({error.strerror}); choose another --workdir"
            ) from error
        return cls(path)

    def begin(self, config: JsonObject) -> None:
        """Makes a new directory, and leaves one that is there.

        A run stopped at any later point is then known as this one.

        Raises:
            UsageError: it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with replacing(self.path / "config.json", keep=True) as partial:
                partial.write_text(_as_text(config))
        except OSError as error:
            raise UsageError(
                f"cannot write to run directory {self.path} ({error.strerror}); "
                f"choose another --workdir"
            ) from error

    def go_on(self, config: JsonObject, rows: list[JsonObject]) -> None:
        """Sets the directory back to where training goes on.

        It then has no summary, the config, and the metrics until there.
        """
        (self.path / "summary.json").unlink(missing_ok=True)
        self.write_json("config.json", config)
        with replacing(self.path / "metrics.jsonl") as partial:
            partial.write_text(_as_lines(rows))

    def write_json(self, name: str, content: Json) -> None:
        self.write_text(name, _as_text(content))

    def write_text(self, name: str, content: str) -> None:
        with replacing(self.path / name) as partial:
            partial.write_text(content, encoding="utf-8")

    def instruction_set(self) -> str | None:
        """The instruction set that the run's forms were chosen by.

        None for a run that has not begun to train.
        """
        if not (self.path / "config.json").exists():
            return None
        derived = read_config(self.path).get("derived")
        return None if derived is None else derived.get("instruction_set", BEFORE_RECORDED)

    def last_epoch(self) -> int:
        """The epoch of the last row of the metrics."""
        return json.loads((self.path / "metrics.jsonl").read_text().splitlines()[-1])["epoch"]

    def append_metrics(self, rows: list[JsonObject]) -> None:
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(_as_lines(rows))


def read_config(path: Path) -> JsonObject:
    """The config of a run directory.

    Raises:
        UsageError: there is no such directory, or it is not one of ours.
    """
    try:
        config = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        if not path.exists():
            raise UsageError(
                f"no run directory {path}; give one that train.py has made, such as "
                f"runs/shapes_attention"
            ) from None
        raise UsageError(
            f"expected a run directory, but {path} has no config.json; nothing was touched, "
            f"choose another directory"
        ) from None
    except OSError as error:
        raise UsageError(
            f"expected a run directory, but {path} cannot be read "
            f"({error.strerror}); choose another"
        ) from None
    except ValueError as error:
        raise UsageError(
            f"expected JSON in {path / 'config.json'} ({error}); choose another directory"
        ) from None
    known = {"name": str, "model": dict, "data": dict, GROWABLE: int}
    if not isinstance(config, dict) or not all(
        isinstance(config.get(key), kind) for key, kind in known.items()
    ):
        raise UsageError(
            f"expected the config of a run in {path / 'config.json'}, found "
            f"something else; choose another directory"
        )
    return config


def flatten(config: JsonObject, prefix: str = "") -> JsonObject:
    """Nested dicts as one, with dotted keys."""
    flat = {}
    for key, value in config.items():
        flat |= (
            flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return flat


def _as_text(content: Json) -> str:
    return json.dumps(content, indent=2) + "\n"


def _as_lines(rows: list[JsonObject]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _check_same(path: Path, stored: JsonObject, config: JsonObject) -> None:
    before = flatten({key: value for key, value in stored.items() if key != "derived"})
    now = flatten(json.loads(json.dumps(config)))
    falls = before.get("optimizer.schedule") == "cosine"
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if (
            old == new
            or key.startswith(FREE)
            or (key == GROWABLE and not falls and old is not None and old < new)
        ):
            continue
        only = (
            (" (the rate of that run falls to 0 by then)" if falls else " (it may only grow)")
            if key == GROWABLE
            else ""
        )
        raise UsageError(
            f"config key '{key}' was {old!r} when {path} was started and is now {new!r}{only}; "
            f"undo it or choose another --workdir"
        )
