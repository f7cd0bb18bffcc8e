"""Data sets whose contents are given from Python.

A config records their SHA-256, not the contents.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flax_attn.data.pairs import Pair
from flax_attn.data.sets.images import as_pixels, hold_out
from flax_attn.data.sets.kinds import (
    DataSet,
    ImageData,
    Images,
    LabelledTexts,
    PairData,
    Pairs,
    SeriesData,
    SignalData,
    SignalRows,
    TextData,
    Texts,
    Training,
)
from flax_attn.data.sets.texts import split
from flax_attn.errors import UsageError
from flax_attn.fields import shares
from flax_attn.types import JsonObject, UserInput

# inputs and targets by split: train, test, and perhaps valid
Content = Mapping[str, tuple[UserInput, UserInput]]
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class InMemory(DataSet):
    """What all contents from Python have.

    Attributes:
        splits: those that were given; without `valid` a part of `train` is held out.
        valid_fraction: the share of `train` that is held out then.
        sha256: of the contents.
        content: inputs and targets by split; None for a run that is read back.
    """

    splits: tuple | list
    sha256: str
    valid_fraction: float = 0.1
    content: UserInput = dataclasses.field(
        default=None, repr=False, compare=False, metadata={"stored": False}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        shares(self, "valid_fraction")

    def check_training(self, training: Training) -> None:
        if "valid" in training.evaluate and "valid" not in self.splits and not self.valid_fraction:
            raise UsageError(
                "expected validation examples; give data={'valid': ...} or a data.valid_fraction "
                "above 0"
            )

    def _content(self) -> Content:
        if self.content is None:
            raise UsageError(
                "expected the data of this run, which were given from Python; go on with "
                "flax_attn.train(config, data=...)"
            )
        return self.content

    def _held_out(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows that validate, and the rows that train."""
        order = np.random.default_rng(self.seed).permutation(number)
        held = round(number * self.valid_fraction)
        return np.sort(order[:held]), np.sort(order[held:])


@dataclass(frozen=True, kw_only=True)
class SignalArrays(InMemory, SignalData):
    """Signals from Python, `(n, t)` or `(n, t, channels)`, and their targets `(n, t)`.

    Attributes:
        length, channels: of the inputs.
    """

    length: int
    channels: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.length, self.channels

    def load(self, manual_dir: Path | None) -> dict[str, SignalRows]:
        del manual_dir
        rows = {name: SignalRows(*arrays, {}) for name, arrays in self._content().items()}
        if "valid" not in rows:
            train, (held, left) = rows["train"], self._held_out(len(rows["train"].inputs))
            rows["valid"], rows["train"] = (
                SignalRows(train.inputs[part], train.targets[part], {}) for part in (held, left)
            )
        return rows


@dataclass(frozen=True, kw_only=True)
class TextLists(InMemory, TextData):
    """Texts from Python, and the name of the class of each."""

    def load(self, manual_dir: Path | None) -> Texts:
        del manual_dir
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

    height: int
    width: int

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.height, self.width

    def load(self, manual_dir: Path | None) -> Images:
        del manual_dir
        content = self._content()
        classes = sorted({label for _, labels in content.values() for label in labels})
        number = {name: i for i, name in enumerate(classes)}
        splits = {
            name: (images, np.array([number[label] for label in labels], np.int32))
            for name, (images, labels) in content.items()
        }
        if "valid" not in splits and self.valid_fraction:
            splits |= hold_out(*splits["train"], self.valid_fraction, self.seed)
        return Images(splits, classes, {"data": self.sha256})


@dataclass(frozen=True, kw_only=True)
class PairLists(InMemory, PairData):
    """Texts from Python, and the texts that they become."""

    def load(self, manual_dir: Path | None) -> Pairs:
        del manual_dir
        splits = {
            name: [Pair(*pair) for pair in zip(*texts)] for name, texts in self._content().items()
        }
        if "valid" not in splits:
            held, left = self._held_out(len(splits["train"]))
            splits["valid"], splits["train"] = (
                [splits["train"][i] for i in part] for part in (held, left)
            )
        return Pairs(splits, {"data": self.sha256})


MEMORY: dict[type[DataSet], type[InMemory]] = {
    SignalData: SignalArrays,
    TextData: TextLists,
    ImageData: ImageArrays,
    PairData: PairLists,
}


def from_python(
    kind: type[DataSet], data: Mapping[str, UserInput]
) -> tuple[type[InMemory], JsonObject, Content]:
    """The class for contents of a kind, its own fields, and the contents as it holds them.

    Args:
        kind: the data set that the contents take the place of.
        data: `(inputs, targets)` by split.

    Raises:
        UsageError: other splits than `train`, `test` and `valid`, contents of unequal lengths, or
            of another kind.
    """
    if issubclass(kind, SeriesData):
        raise UsageError(
            "expected a config on signals, texts, images or pairs for data from Python, got one "
            "on series"
        )
    unknown = sorted(set(data) - set(SPLITS))
    if unknown or not {"train", "test"} <= set(data):
        raise UsageError(
            f"expected data of the splits train and test, and perhaps valid, got {', '.join(data)}"
        )
    cls = next(own for base, own in MEMORY.items() if issubclass(kind, base))
    convert = {SignalArrays: _signals, ImageArrays: _images}.get(cls, _texts)
    content = {name: convert(name, *_two(name, data[name])) for name in SPLITS if name in data}
    fields: JsonObject = {"splits": tuple(content), "sha256": digest(content)}
    inputs = content["train"][0]
    if cls is SignalArrays:
        fields |= {"length": inputs.shape[1], "channels": inputs.shape[2]}
    if cls is ImageArrays:
        fields |= {"height": inputs.shape[1], "width": inputs.shape[2]}
    return cls, fields, content


def digest(content: Content) -> str:
    """The SHA-256 of contents."""
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


def _two(name: str, rows: UserInput) -> tuple[UserInput, UserInput]:
    """Inputs and targets, equally many."""
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise UsageError(
            f"expected (inputs, targets) as the {name} split, got {type(rows).__name__}"
        )
    inputs, targets = rows
    if len(inputs) != len(targets) or not len(inputs):
        raise UsageError(
            f"expected as many targets as inputs in the {name} split, at least one, got "
            f"{len(inputs)} and {len(targets)}"
        )
    return inputs, targets


def _signals(name: str, inputs: UserInput, targets: UserInput) -> tuple[np.ndarray, np.ndarray]:
    inputs, targets = np.asarray(inputs, np.float32), np.asarray(targets, np.float32)
    inputs, targets = (
        array[..., None] if array.ndim == 2 else array for array in (inputs, targets)
    )
    if inputs.ndim != 3 or targets.shape != (*inputs.shape[:2], 1):
        raise UsageError(
            f"expected signals (n, t) or (n, t, channels) with targets (n, t) in the {name} "
            f"split, got {inputs.shape} and {targets.shape}"
        )
    if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
        raise UsageError(f"expected finite numbers in the {name} split, got some that are not")
    return inputs, targets


def _images(name: str, images: UserInput, labels: UserInput) -> tuple[np.ndarray, list[str]]:
    images = np.asarray(images)
    if images.ndim != 3:
        raise UsageError(
            f"expected images (n, height, width) in the {name} split, got {images.shape}"
        )
    return as_pixels(images, f"the {name} split"), [str(label) for label in labels]


def _texts(
    name: str, texts: Sequence[UserInput], others: Sequence[UserInput]
) -> tuple[list[str], list[str]]:
    """Texts, and their classes or the texts that they become."""
    if not all(isinstance(text, str) for text in texts):
        strange = next(text for text in texts if not isinstance(text, str))
        raise UsageError(f"expected texts in the {name} split, got {strange!r}")
    return list(texts), [str(other) for other in others]
