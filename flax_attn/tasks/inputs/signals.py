"""Signals `(n, t, channels)`: one or several series of numbers, sampled at the same steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from flax_attn.data import contents
from flax_attn.data.contents import float32, is_within
from flax_attn.data.raw import Raw
from flax_attn.data.sets import DataSet
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs
from flax_attn.runs.reading import Record
from flax_attn.schema import require
from flax_attn.tasks import baselines, replies, user_files
from flax_attn.tasks.artifacts import Kept, Look, Prediction, first_attention
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.baselines import Features
from flax_attn.tasks.inputs.base import SERVED, Encoded, Input, Requested, title_of
from flax_attn.tasks.requests import Request
from flax_attn.types import Json, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure


STRETCHES = 10  # of a signal, of which two neighbours are covered in turn


class Normalization(NamedTuple):
    """`(x - mean) / std` and back."""

    mean: float
    std: float

    @classmethod
    def of(cls, *arrays: Tree) -> "Normalization":
        """Computes the mean and deviation of all elements of all arrays, in double precision."""
        parts = [part[~np.isnan(part)] for part in map(np.ravel, arrays)]  # NaN is behind an end
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
        shape: the length and the number of channels; of several lengths the longest.
        normalization: None for data that are used as they are.
        padded: whether lengths differ. Then NaN stands after the ends of shorter signals.
    """

    name = "signal"
    noun = "signals"

    shape: tuple[int, int]
    normalization: Normalization | None
    padded: bool = False

    @classmethod
    def fit(cls, data: DataSet, raw: Raw, with_targets: bool) -> "Signals":
        splits = [raw.splits[name] for name in ("train", "valid") if name in raw.splits]
        for split in splits:
            check_rows(data, split.inputs)
        _, length, channels = splits[0].inputs.shape
        padded = any(bool(np.isnan(split.inputs).any()) for split in raw.splits.values())
        if not getattr(data, "normalized", True):
            return cls(data, (length, channels), None, padded)
        arrays = [array for split in splits for array in split[:2]]
        normalization = Normalization.of(*arrays if with_targets else arrays[:1])
        require(normalization.std, "signals that vary in the training split, got one number")
        return cls(data, (length, channels), normalization, padded)

    @classmethod
    def restore(cls, data: DataSet, kept: Kept) -> "Signals":
        length, channels = kept.derived["shape"]
        stored = kept.derived.get("inputs")
        normalization = stored and Normalization.restore(stored)
        return cls(data, (length, channels), normalization, bool(kept.sizes.get("padded")))

    @property
    def kept(self) -> Kept:
        stored = self.normalization and {"inputs": self.normalization._asdict()}
        sizes: dict[str, int] = {"padded": True} if self.padded else {}
        return Kept({"shape": list(self.shape)} | (stored or {}), sizes)

    def encode(self, raw: UserInput) -> Inputs:
        return raw

    def normalize(self, arrays: Inputs) -> Inputs:
        return arrays if self.normalization is None else self.normalization.apply(arrays)

    def sample(self, number: int) -> Inputs:
        return np.zeros((number, *self.shape), np.float32)

    def shapes(self) -> Tree:
        return f"b, t, {self.shape[1]}"

    def live_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        if self.padded:
            raise UsageError(f"its signals have several lengths; {SERVED}")
        return super().live_shapes()

    def read(self, inputs: UserInput) -> Encoded:
        return Encoded(self.rows(inputs))

    def rows(self, inputs: UserInput, source: str = "the inputs") -> np.ndarray:
        """Returns signals `(t,)`, `(n, t)` or `(n, t, channels)` as float32 `(n, t, channels)`.

        Those of one channel have the length of training. Several series may have another, and so
        may a list of signals where training had several lengths.

        Raises:
            UsageError: signals of another shape, or numbers that are not finite.
        """
        length, channels = self.shape
        if self.padded:
            is_some = isinstance(inputs, list | tuple | np.ndarray) and np.size(inputs[:1])
            # a point of a signal that is given alone
            is_point = is_some and np.shape(inputs[0]) in ((), (channels,))
            rows = contents.signals(source, [inputs] if is_point else inputs)
            fits = rows.shape[-1] == channels
            require(fits, f"signals of {channels} channels in {source}, got {rows.shape[-1]}")
            longest = int(is_within(rows).sum(axis=1).max())  # of the longest signal
            require(longest <= length, f"at most {length} points in {source}, got {longest}")
            return contents.lengthened(list(rows[:, :longest]), length)
        signals = float32(source, inputs)
        if channels == 1:
            shapes = f"({length},), (n, {length}) or (n, {length}, 1)"
            rows = [self.shape, (length,)]
            fits = signals.shape in rows or (signals.ndim > 1 and signals.shape[1:] in rows)
        else:
            shapes = f"(t, {channels}) or (n, t, {channels})"
            fits = signals.ndim in (2, 3) and signals.shape[-1] == channels
        require(fits and signals.size, f"signals {shapes}, got {signals.shape} in {source}")
        is_finite = np.isfinite(signals).all()
        require(is_finite, f"finite numbers in {source}, got some that are not")
        return signals.reshape(-1, *(self.shape if channels == 1 else signals.shape[-2:]))

    def covered(self, row: np.ndarray) -> dict[str, np.ndarray]:
        """Draws a straight line in place of a fifth of the signal, every tenth of it."""
        length = int(is_within(row).sum())
        ends = np.linspace(0, length, max(2, min(length, STRETCHES)) + 1).astype(int)
        made = {}
        for first, last in zip(ends, ends[2:]):
            outer = [max(first - 1, 0), min(last, length - 1)]  # the points beside the part
            line = np.linspace(row[outer[0]], row[outer[1]], last - first + 2)[1:-1]
            made[f"points {first} to {last - 1}"] = np.concatenate([row[:first], line, row[last:]])
        return made

    def requested(self, request: Request) -> Requested:
        if request.texts or request.source is None:
            raise UsageError(
                f"expected --input FILE with signals of {self.shape[0]} points, and no text, for a "
                f"run on signals"
            )
        source = request.source
        names = {"label_column": "label", "id_column": "id", "time_column": "time"}
        columns = [getattr(self.data, name, default) for name, default in names.items()]
        signals, labels = user_files.read_signals(source, columns)
        lengths = {np.shape(one)[:1] for one in signals}
        if columns[0].isdecimal() and lengths == {(self.shape[0] - 1,)}:
            # a table without a header has no labels where its rows are the signals
            signals, labels = user_files.read_signals(source, ["", *columns[1:]])
        number = len(self.rows(signals, str(source)))
        return Requested([f"signal {i}" for i in range(number)], signals, labels=labels)

    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        rows = self.rows(asked.numbers(), "the input")
        looked, length = look(rows), int(is_within(rows[0]).sum())
        return looked, replies.attended(looked, rows.shape[1], length)

    def tested(self, raw: UserInput, arrays: Inputs) -> dict[str, np.ndarray]:
        return {"inputs": np.asarray(raw)}

    def features(self, train: UserInput, test: UserInput) -> Features | None:
        return baselines.of_signals(np.asarray(train), np.asarray(test))

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
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        """Returns the attention up to the end of the example."""
        array = run.examples["inputs"][index]
        length, weights = int(is_within(array).sum()), super().weights(run, index)
        if length == len(array):
            return weights
        return {name: matrix[:, :length, :length] for name, matrix in weights.items()}

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
    """Returns an array of an example as channels `(channels, t)`, up to its end."""
    array = run.examples[name][index]
    return replies.numbers(np.atleast_2d(array[is_within(array)].T))


def check_rows(data: DataSet, inputs: np.ndarray | jax.Array) -> None:
    """Raises a UsageError for signals of a data set that are of no shape, or not finite.

    NaN may stand after the end of a signal.
    """
    if inputs.ndim != 3 or not np.isfinite(inputs[:, 0]).all() or np.isinf(inputs).any():
        name, got = type(data).__name__, inputs.shape
        raise UsageError(f"expected finite signals (n, t, channels) from {name}, got {got}")
