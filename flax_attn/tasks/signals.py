"""Signals that become other signals, measured by the squared error in normalised units."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array

from flax_attn.data.contents import real_numbers
from flax_attn.data.normalization import Normalization
from flax_attn.data.sets import SignalData
from flax_attn.data.sets.kinds import SignalRows
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params, apply, forward
from flax_attn.tasks.task import (
    Examples,
    Kept,
    Measured,
    Prediction,
    Recipe,
    Rows,
    Task,
    check_shape,
    mask_of,
    to_store,
)
from flax_attn.training.metrics import squared_error
from flax_attn.types import Batch, Tree, UserInput

NUM_EXAMPLES = 16  # test examples kept for the pictures


@dataclass(frozen=True)
class Signals(Task):
    """A task on signals.

    Its normalisation is by one mean and one deviation of inputs and targets together. `shape` is
    the length and the number of channels of the inputs, and `files` are the sums of what was read.
    """

    kind = "regression"
    score = "mse"
    measured = "mse"
    pictures = "signals"

    data: SignalData
    recipe: Recipe
    normalization: Normalization
    rows: Rows
    test: SignalRows
    shape: tuple[int, int]
    files: dict[str, str]

    @classmethod
    def load(cls, data: SignalData, recipe: Recipe, manual_dir: Path | None) -> "Signals":
        splits = data.load(manual_dir)
        normalization = Normalization.of(
            *(array for name in ("train", "valid") for array in splits[name][:2])
        )
        if normalization.std == 0:
            raise UsageError(
                "expected signals to train on that vary, got one number everywhere; nothing can be "
                "learned from it"
            )
        inputs, targets, _ = splits["train"]
        used = SignalRows(inputs[: data.num_used], targets[: data.num_used], {})
        train = _batch(used, normalization)
        measured = {
            name: train if name == "train" else _batch(splits[name], normalization)
            for name in recipe.evaluate
        }

        def draw(train: Batch, key: Array) -> Batch:
            del train  # every example is new
            return _batch(data.draw(key, recipe.batch_size), normalization)

        splits_measured = {name: batch for name, batch in measured.items() if len(batch["inputs"])}
        rows = Rows(train, splits_measured, draw if data.draws_afresh else None)
        _, length, channels = inputs.shape
        shape = length, channels
        return cls(data, recipe, normalization, rows, splits["test"], shape, data.files())

    @classmethod
    def restore(cls, data: SignalData, recipe: Recipe, kept: Kept) -> "Signals":
        derived = {
            key: value for key, value in kept.derived.items() if key in Normalization._fields
        }
        try:
            normalization = Normalization(**{key: float(value) for key, value in derived.items()})
        except TypeError as error:
            raise ValueError(str(error)) from error
        if not np.isfinite(normalization).all() or normalization.std <= 0:
            raise ValueError(f"got {kept.derived}")
        length, channels = data.shape or kept.derived["shape"]
        shape = length, channels
        check_shape(shape)
        nothing = np.zeros((0, *shape), np.float32)
        rows = SignalRows(nothing, nothing, {})
        files = kept.derived.get("files", {})
        return cls(data, recipe, normalization, Rows({}, {}), rows, shape, files)

    @property
    def kept(self) -> Kept:
        derived = {**self.normalization._asdict(), "shape": list(self.shape), "files": self.files}
        return Kept(derived, {}, {})

    def sample(self) -> Inputs:
        return np.zeros((self.recipe.batch_size, *self.shape), np.float32)

    def measure(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> Measured:
        """The mean squared error."""
        error = squared_error(outputs, batch["targets"], mask_of(batch, len(outputs)))
        return error.compute(), {"mse": error}

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Examples:
        """The first test examples as drawn, with predictions in their units by the first seed."""
        inputs, targets, marks = jax.tree.map(
            lambda array: np.asarray(array[:NUM_EXAMPLES]), self.test
        )
        outputs, attention = forward(model, params[0], self.normalization.apply(inputs))
        arrays = {
            "inputs": inputs,
            "targets": targets,
            "predictions": self.normalization.undo(outputs),
        }
        return Examples(arrays | marks | to_store(attention))

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """Predictions by the first seed, in the user's units.

        Signals are `(t,)`, `(n, t)` or `(n, t, channels)`.

        Raises:
            UsageError: signals of another shape, values that are not finite numbers, or predictions
                that overflow.
        """
        signals = check_signals(inputs, self.shape)
        normalized = self.normalization.apply(signals.reshape(-1, *self.shape))
        outputs, attention = forward(model, params[0], normalized, len(normalized))
        outputs = self.normalization.undo(outputs)
        if not np.isfinite(outputs).all():
            raise UsageError(
                "expected signals in the range that the model was trained on; the predictions "
                "overflow"
            )
        outputs = outputs.reshape(signals.shape) if outputs.size == signals.size else outputs
        return Prediction(outputs, attention=attention)

    def input_shapes(self) -> Tree:
        return f"b, t, {self.shape[1]}"

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """Predictions by the first seed, in the user's units."""
        outputs, attention = apply(model, params[0], self.normalization.apply(inputs))
        return {"outputs": self.normalization.undo(outputs), "attention": attention}


def check_signals(
    signals: UserInput, shape: tuple[int, int], source: str = "the inputs"
) -> np.ndarray:
    """The signals as float32.

    Raises a UsageError for another shape, and for what are no finite numbers.
    """
    signals, (length, channels) = real_numbers(source, signals), shape
    rows = [shape, (length,)] if channels == 1 else [shape]
    is_one, is_rows = signals.shape in rows, signals.ndim > 1 and signals.shape[1:] in rows
    if not (is_one or is_rows) or not signals.size:
        flat = f"({length},), (n, {length}) or " if channels == 1 else ""
        raise UsageError(
            f"expected signals of {length} points, {flat}(n, {length}, {channels}), got "
            f"{signals.shape} in {source}"
        )
    if signals.dtype == bool:
        raise UsageError(f"expected real numbers in {source}, got bool")
    with np.errstate(over="ignore"):
        signals = signals.astype(np.float32)
    if not np.isfinite(signals).all():
        raise UsageError(
            f"expected finite numbers in {source}, got some that are infinite, too large for "
            f"float32, or not a number"
        )
    return signals


def _batch(rows: SignalRows, normalization: Normalization) -> Batch:
    """Inputs and targets, normalised."""
    return {
        "inputs": normalization.apply(rows.inputs),
        "targets": normalization.apply(rows.targets),
    }
