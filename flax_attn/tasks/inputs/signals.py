"""Signals `(n, t, channels)`: one or several series of numbers, sampled at the same steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from flax_attn.data.contents import float32
from flax_attn.data.raw import Raw
from flax_attn.data.sets import DataSet
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies, user_files
from flax_attn.tasks.artifacts import Kept, Look, Prediction, first_attention
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.inputs.base import Encoded, Input, Requested, title_of
from flax_attn.tasks.requests import Request
from flax_attn.types import Json, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure


class Normalization(NamedTuple):
    """`(x - mean) / std` and back."""

    mean: float
    std: float

    @classmethod
    def of(cls, *arrays: Tree) -> "Normalization":
        """Computes the mean and deviation of all elements of all arrays, in double precision."""
        parts = [np.ravel(array) for array in arrays]
        count = sum(len(part) for part in parts)
        mean = sum(part.sum(dtype=np.float64) for part in parts) / count
        squares = sum(np.square(np.subtract(part, mean, dtype=np.float64)).sum() for part in parts)
        return cls(float(mean), float(np.sqrt(squares / count)))

    @classmethod
    def restore(cls, values: Mapping[str, Json]) -> "Normalization":
        """Restores the one that a run keeps."""
        return cls(*(float(values[key]) for key in cls._fields))

    def apply(self, x: Tree) -> Tree:
        return (x - self.mean) / self.std

    def undo(self, x: Tree) -> Tree:
        return x * self.std + self.mean


@dataclass(frozen=True)
class Signals(Input):
    """Signals, normalized by one mean and one deviation.

    These are of the inputs of the training split. Where targets are signals too, they are of inputs
    and targets of the training and validation splits together, as in the tutorial on shapes.

    Attributes:
        shape: the length and the number of channels.
        normalization: None for data that are used as they are.
    """

    name = "signal"
    noun = "signals"

    shape: tuple[int, int]
    normalization: Normalization | None

    @classmethod
    def fit(cls, data: DataSet, raw: Raw, with_targets: bool) -> "Signals":
        splits = [raw.splits[name] for name in ("train", "valid") if name in raw.splits]
        for split in splits:
            check_rows(data, split.inputs)
        _, length, channels = splits[0].inputs.shape
        if not getattr(data, "normalized", True):
            return cls(data, (length, channels), None)
        arrays = [array for split in splits for array in split[:2]]
        normalization = Normalization.of(*arrays if with_targets else arrays[:1])
        if normalization.std == 0:
            raise UsageError("expected signals that vary in the training split, got one number")
        return cls(data, (length, channels), normalization)

    @classmethod
    def restore(cls, data: DataSet, kept: Kept) -> "Signals":
        length, channels = kept.derived["shape"]
        stored = kept.derived.get("inputs")
        return cls(data, (length, channels), stored and Normalization.restore(stored))

    @property
    def kept(self) -> Kept:
        stored = self.normalization and {"inputs": self.normalization._asdict()}
        return Kept({"shape": list(self.shape)} | (stored or {}))

    def encode(self, raw: UserInput) -> Inputs:
        return raw

    def normalize(self, arrays: Inputs) -> Inputs:
        return arrays if self.normalization is None else self.normalization.apply(arrays)

    def sample(self, number: int) -> Inputs:
        return np.zeros((number, *self.shape), np.float32)

    def shapes(self) -> Tree:
        return f"b, t, {self.shape[1]}"

    def read(self, inputs: UserInput) -> Encoded:
        return Encoded(self.rows(inputs))

    def rows(self, inputs: UserInput, source: str = "the inputs") -> np.ndarray:
        """Returns signals `(t,)`, `(n, t)` or `(n, t, channels)` as float32 `(n, t, channels)`.

        Those of one channel have the length of training. Several series may have another.

        Raises:
            UsageError: signals of another shape, or numbers that are not finite.
        """
        signals, (length, channels) = float32(source, inputs), self.shape
        if channels == 1:
            shapes = f"({length},), (n, {length}) or (n, {length}, 1)"
            rows = [self.shape, (length,)]
            fits = signals.shape in rows or (signals.ndim > 1 and signals.shape[1:] in rows)
        else:
            shapes = f"(t, {channels}) or (n, t, {channels})"
            fits = signals.ndim in (2, 3) and signals.shape[-1] == channels
        if not fits or not signals.size:
            raise UsageError(f"expected signals {shapes}, got {signals.shape} in {source}")
        if not np.isfinite(signals).all():
            raise UsageError(f"expected finite numbers in {source}, got some that are not")
        return signals.reshape(-1, *(self.shape if channels == 1 else signals.shape[-2:]))

    def requested(self, request: Request) -> Requested:
        if request.texts or request.source is None:
            raise UsageError(
                f"expected --input FILE with signals of {self.shape[0]} points, and no text, for a "
                f"run on signals"
            )
        source = request.source
        signals = user_files.read_signals(source)
        number = len(self.rows(signals, str(source)))
        return Requested([f"signal {i}" for i in range(number)], signals)

    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        looked = look(self.rows(asked.numbers(), "the input"))
        return looked, replies.attended(looked)

    def tested(self, raw: UserInput, arrays: Inputs) -> dict[str, np.ndarray]:
        return {"inputs": np.asarray(raw)}

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        from flax_attn.analysis import shapes

        shown = shapes.marks_of(run, index)
        heights = shown["heights"].tolist() if shown else []
        marks = [
            {"kind": kind, "center": center, "first": first, "last": last, "height": height}
            for (center, first, last, kind, _, _), height in zip(shapes.spans(shown), heights)
        ]
        return {"inputs": channels_of(run, "inputs", index), "marks": marks}

    @classmethod
    def draw_examples(
        cls, run: Record, name: str, weights: np.ndarray, verdicts: list[tuple[str, str]]
    ) -> "dict[str, Figure]":
        from flax_attn.analysis.signals import draw_signals

        title = f"{run.name}, {name}: test examples"
        return {name: draw_signals(run.examples["inputs"], verdicts, weights, title)}

    def draw(
        self, inputs: UserInput, prediction: Prediction, verdicts: list[tuple[str, str]], name: str
    ) -> "Figure":
        from flax_attn.analysis.signals import SHOWN, draw_signals

        _, weights = first_attention(prediction)
        signals = self.rows(inputs)
        title = title_of(len(signals), SHOWN, "signal")
        return draw_signals(signals, verdicts, weights, title)


def channels_of(run: Record, name: str, index: int) -> Json:
    """Returns an array of an example as channels `(channels, t)`."""
    return replies.numbers(np.atleast_2d(run.examples[name][index].T))


def check_rows(data: DataSet, inputs: np.ndarray | jax.Array) -> None:
    """Raises a UsageError for signals of a data set that are of no shape, or not finite."""
    if inputs.ndim != 3 or not np.isfinite(inputs).all():
        name, got = type(data).__name__, inputs.shape
        raise UsageError(f"expected finite signals (n, t, channels) from {name}, got {got}")
