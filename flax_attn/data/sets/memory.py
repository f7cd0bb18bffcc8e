"""Data sets whose contents are given from Python.

A config records their SHA-256, not the contents.
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from flax_attn.data import contents
from flax_attn.data.raw import SPLITS, Columns, Raw, complete
from flax_attn.data.sets.kinds import DataSet, ImageData, PairData, Rules, SignalData, TextData
from flax_attn.errors import UsageError
from flax_attn.schema import Fraction, Split, require
from flax_attn.types import JsonObject, UserInput

Content = Mapping[str, Columns]  # by split: train, test, and perhaps valid


@dataclass(frozen=True, kw_only=True)
class InMemory(DataSet):
    """What all contents from Python have.

    Attributes:
        splits: those that were given; without `valid` a part of `train` is held out.
        valid_fraction: the share of `train` that is held out then.
        sha256: of the contents.
        content: inputs and targets by split; None for a run that is read back.
    """

    splits: tuple[Split, ...]
    sha256: str
    valid_fraction: Fraction = 0.1
    content: Content | None = dataclasses.field(
        default=None, repr=False, compare=False, metadata={"stored": False}
    )

    def rules(self, evaluate: Collection[str]) -> Rules:
        is_given = "valid" in self.splits or self.valid_fraction > 0 or "valid" not in evaluate
        expected = "validation examples: data={'valid': ...} or a data.valid_fraction above 0"
        return super().rules(()) | {expected: is_given}

    def load(self, manual_dir: Path | None) -> Raw:
        if self.content is None:
            raise UsageError("expected the data of this run from Python: train(config, data=...)")
        splits = complete(self.content, self.target, self.valid_fraction, 0.0, self.seed)
        return Raw(splits, {"data": self.sha256})


@dataclass(frozen=True, kw_only=True)
class SignalArrays(InMemory, SignalData):
    """Signals from Python, `(n, t)` or `(n, t, channels)`, with signals, numbers or classes."""

    target: Literal["signal", "number", "classes"] = "signal"


@dataclass(frozen=True, kw_only=True)
class ImageArrays(InMemory, ImageData):
    """Images `(n, height, width)` or `(n, height, width, 3)` from Python, with targets.

    They are of bytes or of numbers in [0, 1].
    """

    target: Literal["classes", "number"] = "classes"


@dataclass(frozen=True, kw_only=True)
class TextLists(InMemory, TextData):
    """Texts from Python, with the name of the class or the number of each."""

    target: Literal["classes", "number"] = "classes"


@dataclass(frozen=True, kw_only=True)
class PairLists(InMemory, PairData):
    """Texts from Python, and the texts that they become."""


BY_INPUT = {"signal": SignalArrays, "image": ImageArrays, "text": TextLists}


def from_python(
    kind: type[DataSet], target: str, data: Mapping[str, UserInput]
) -> tuple[type[InMemory], JsonObject, Content]:
    """Returns the class of contents, its own fields, and the contents as it holds them.

    `kind` and `target` are those of the data set whose place the contents take.
    """
    held_by = PairLists if target == "text" else BY_INPUT.get(kind.input)
    if held_by is None:
        raise UsageError(f"expected a config on {', '.join(BY_INPUT)}s for data from Python")
    names = list(data) if isinstance(data, Mapping) else [type(data).__name__]
    example = "{'train': (inputs, targets), 'test': (inputs, targets)}"
    fit, got = {"train", "test"} <= set(names) <= set(SPLITS), ", ".join(map(str, names)) or "none"
    require(fit, f"data of train and test, and perhaps valid, such as {example}, got {got}")
    fields: JsonObject = {} if held_by is PairLists else {"target": target}
    holder = held_by(splits=("train", "test"), sha256="", **fields)
    content = {}
    for name in SPLITS:
        if name in data:
            rows = data[name]
            is_pair = isinstance(rows, tuple | list) and len(rows) == 2
            require(is_pair, f"(inputs, targets) as {contents.place(name)}")
            content[name] = contents.checked(contents.place(name), holder, *rows)
    if kind.input != "text":
        contents.check_one_shape(content)
    return held_by, fields | {"splits": tuple(content), "sha256": digest(content)}, content


def digest(content: Content) -> str:
    """Computes the SHA-256 of contents."""
    total = hashlib.sha256()
    for name, split in content.items():
        total.update(name.encode())
        for part in split[:2]:
            if isinstance(part, np.ndarray):
                total.update(f"{part.dtype}{part.shape}".encode())  # shape and dtype count, too
                total.update(np.ascontiguousarray(part).tobytes())
            else:
                total.update(json.dumps(list(part)).encode())
    return total.hexdigest()
