"""Data sets whose contents are given from Python.

A config records their SHA-256, not the contents. A kind of task takes such data if there is a
subclass of `InMemory` that `replaces` its data sets.
"""

import abc
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from flax_attn.data import contents
from flax_attn.data.contents import SPLITS
from flax_attn.data.pairs import Pair
from flax_attn.data.sets.images import in_classes
from flax_attn.data.sets.kinds import (
    DataSet,
    ImageData,
    Images,
    LabelledTexts,
    PairData,
    Pairs,
    SignalData,
    SignalRows,
    TextData,
    Texts,
    Training,
)
from flax_attn.data.sets.signals import with_valid
from flax_attn.data.sets.texts import split
from flax_attn.data.splits import at_random
from flax_attn.errors import UsageError
from flax_attn.schema import Fraction, PositiveInt, Split, require
from flax_attn.types import JsonObject, UserInput

Rows = tuple[UserInput, UserInput]  # inputs and targets; arrays or lists of texts
Content = Mapping[str, Rows]  # by split: train, test, and perhaps valid


@dataclass(frozen=True, kw_only=True)
class InMemory(DataSet):
    """What all contents from Python have.

    Attributes:
        replaces: the data sets whose place these contents take in a config.
        sizes: the fields that hold the shape of a row of the inputs, if all rows have one.
        splits: those that were given; without `valid` a part of `train` is held out.
        valid_fraction: the share of `train` that is held out then.
        sha256: of the contents.
        content: inputs and targets by split; None for a run that is read back.
    """

    replaces: ClassVar[type[DataSet]]
    sizes: ClassVar[tuple[str, ...]] = ()

    splits: tuple[Split, ...]
    sha256: str
    valid_fraction: Fraction = 0.1
    content: Content | None = dataclasses.field(
        default=None, repr=False, compare=False, metadata={"stored": False}
    )

    @staticmethod
    @abc.abstractmethod
    def checked(where: str, inputs: UserInput, targets: UserInput) -> Rows:
        """Returns inputs and targets of a split as they are held; `where` names it in an error.

        Raises:
            UsageError: contents of another kind.
        """

    def check_training(self, training: Training) -> None:
        require(
            {"valid"} & {*self.splits} or self.valid_fraction or "valid" not in training.evaluate,
            "validation examples: data={'valid': ...} or a data.valid_fraction above 0",
        )

    def _content(self) -> Content:
        require(
            self.content is not None,
            "the data of this run, which were given from Python; go on with "
            "flax_attn.train(config, data=...)",
        )
        return self.content or {}


@dataclass(frozen=True, kw_only=True)
class SignalArrays(InMemory, SignalData):
    """Signals from Python, `(n, t)` or `(n, t, channels)`, and their targets `(n, t)`.

    Attributes:
        length, channels: of the inputs.
    """

    replaces = SignalData
    sizes = "length", "channels"

    length: PositiveInt
    channels: PositiveInt

    @staticmethod
    def checked(where: str, inputs: UserInput, targets: UserInput) -> Rows:
        return contents.signals(where, inputs, targets)

    @property
    def shape(self) -> tuple[int, int]:
        return self.length, self.channels

    def load(self, manual_dir: Path | None) -> dict[str, SignalRows]:
        rows = {name: SignalRows(*arrays, {}) for name, arrays in self._content().items()}
        return with_valid(rows, self.valid_fraction, self.seed)


@dataclass(frozen=True, kw_only=True)
class TextLists(InMemory, TextData):
    """Texts from Python, and the name of the class of each."""

    replaces = TextData

    @staticmethod
    def checked(where: str, inputs: UserInput, targets: UserInput) -> Rows:
        return contents.texts(where, inputs, targets)

    def load(self, manual_dir: Path | None) -> Texts:
        splits: dict[str, LabelledTexts] = dict(self._content())
        if "valid" not in splits and self.valid_fraction:
            splits |= split(*splits["train"], (self.valid_fraction, 0.0), self.seed, splits["test"])
        return Texts(splits, sorted(set(splits["train"][1])), {"data": self.sha256})


@dataclass(frozen=True, kw_only=True)
class ImageArrays(InMemory, ImageData):
    """Images from Python, and the name of the class of each.

    Images are `(n, height, width)`, of bytes or of numbers in [0, 1].

    Attributes:
        height, width: of the images.
    """

    replaces = ImageData
    sizes = "height", "width"

    height: PositiveInt
    width: PositiveInt

    @staticmethod
    def checked(where: str, inputs: UserInput, targets: UserInput) -> Rows:
        return contents.images(where, inputs, targets)

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.height, self.width

    def load(self, manual_dir: Path | None) -> Images:
        return in_classes(self._content(), self.valid_fraction, self.seed, {"data": self.sha256})


@dataclass(frozen=True, kw_only=True)
class PairLists(InMemory, PairData):
    """Texts from Python, and the texts that they become."""

    replaces = PairData

    @staticmethod
    def checked(where: str, inputs: UserInput, targets: UserInput) -> Rows:
        return contents.texts(where, inputs, targets)

    def load(self, manual_dir: Path | None) -> Pairs:
        splits = {
            name: [Pair(*pair) for pair in zip(*texts)] for name, texts in self._content().items()
        }
        if "valid" not in splits:
            pairs = splits["train"]
            splits["valid"], splits["train"] = (
                [pairs[i] for i in part]
                for part in at_random(len(pairs), (self.valid_fraction,), self.seed)
            )
        return Pairs(splits, {"data": self.sha256})


def from_python(
    kind: type[DataSet], data: Mapping[str, UserInput]
) -> tuple[type[InMemory], JsonObject, Content]:
    """Returns the class for contents of a kind, its own fields, and the contents as it holds them.

    Args:
        kind: the data set that the contents take the place of.
        data: `(inputs, targets)` by split.

    Raises:
        UsageError: other splits than `train`, `test` and `valid`, contents of unequal lengths, or
            of another kind.
    """
    replacing = {heir.replaces: heir for heir in InMemory.__subclasses__()}
    own_class = next((heir for base, heir in replacing.items() if issubclass(kind, base)), None)
    if own_class is None:
        *others, last = (base.topic for base in replacing)
        raise UsageError(
            f"expected a config on {', '.join(others)} or {last} for data from Python, got one on "
            f"{kind.topic}"
        )
    names = list(data) if isinstance(data, Mapping) else []
    require(
        {"train", "test"} <= set(names) <= set(SPLITS),
        "data={'train': (inputs, targets), 'test': (inputs, targets)}, and perhaps 'valid': splits "
        f"train and test, got {', '.join(map(str, names)) or type(data).__name__}",
    )
    for name, rows in data.items():
        is_pair = isinstance(rows, tuple | list) and len(rows) == 2
        require(is_pair, f"(inputs, targets) as {contents.place(name)}, got {type(rows).__name__}")
    content = {
        name: own_class.checked(contents.place(name), *data[name])
        for name in SPLITS
        if name in data
    }
    fields: JsonObject = {"splits": tuple(content), "sha256": digest(content)}
    if own_class.sizes:
        inputs = {name: np.asarray(rows) for name, (rows, _) in content.items()}
        contents.check_one_shape(inputs)
        fields |= zip(own_class.sizes, inputs["train"].shape[1:])
    return own_class, fields, content


def digest(content: Content) -> str:
    """Computes the SHA-256 of contents."""
    total = hashlib.sha256()
    for name, parts in content.items():
        total.update(name.encode())
        for part in parts:
            if isinstance(part, np.ndarray):
                total.update(f"{part.dtype}{part.shape}".encode())
                total.update(np.ascontiguousarray(part).tobytes())
            else:
                total.update(json.dumps(list(part)).encode())
    return total.hexdigest()
