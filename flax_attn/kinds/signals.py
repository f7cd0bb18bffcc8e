"""Signals that become other signals, measured by the squared error in normalised units."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array

from flax_attn.data.contents import float32
from flax_attn.data.normalization import Normalization
from flax_attn.data.sets import SignalData
from flax_attn.data.sets.kinds import SignalRows
from flax_attn.errors import UsageError
from flax_attn.kinds import replies, user_files
from flax_attn.kinds.asking import Asked
from flax_attn.kinds.requests import (
    Load,
    Request,
    ToWrite,
    check_figure,
    picture_to_write,
    write_all,
)
from flax_attn.kinds.task import (
    Examples,
    Kept,
    Look,
    Measured,
    Prediction,
    Recipe,
    Rows,
    Task,
    channels_of,
    check_no_classes,
    check_shape,
    first_attention,
    first_of,
    outputs_of,
    to_store,
)
from flax_attn.models.forward import Inputs, Params, apply, forward
from flax_attn.runs.examples import FLOATS, SIGNALS, Form
from flax_attn.runs.reading import Record
from flax_attn.training.metrics import mask_of, squared_error
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

NUM_EXAMPLES = 16  # test examples kept for the pictures
LEVELLED = {
    "by_shape": "sets both shapes of a kind to their mean height",
    "by_location": "sets the two shapes on each side to their mean height",
}


@dataclass(frozen=True)
class Signals(Task):
    """A task on signals.

    Its normalisation is by one mean and one deviation of inputs and targets together. `shape` is
    the length and the number of channels of the inputs.
    """

    name = "signals"
    problem = "regression"
    score = "mse"
    measured = "mse"
    data_class = SignalData
    form = Form(
        SIGNALS
        | {
            "centers?": (FLOATS, "ns"),
            "heights?": (FLOATS, "ns"),
            "widths?": (FLOATS, "ns"),
        },
        attends="tt",
    )
    try_it = "explore", ""
    draws_together = True

    data: SignalData
    recipe: Recipe
    kept: Kept
    normalization: Normalization
    rows: Rows
    test: SignalRows
    shape: tuple[int, int]

    @classmethod
    def load(cls, data: SignalData, recipe: Recipe, manual_dir: Path | None) -> "Signals":
        check_no_classes(recipe, "signals, which have")
        splits = data.load(manual_dir)
        check_rows(data, splits)
        normalization = fit_normalization(
            *(array for name in ("train", "valid") for array in splits[name][:2])
        )
        inputs, targets, _ = splits["train"]
        used = SignalRows(inputs[: data.num_used], targets[: data.num_used], {})
        train = _batch(used, normalization)
        measured = {
            name: train if name == "train" else _batch(splits[name], normalization)
            for name in recipe.evaluate
        }

        def draw(_: Batch, key: Array) -> Batch:  # every example is new
            return _batch(data.draw(key, recipe.batch_size), normalization)

        measured = {name: batch for name, batch in measured.items() if len(batch["inputs"])}
        rows = Rows(train, measured, draw if data.draws_afresh else None)
        _, length, channels = inputs.shape
        derived = {**normalization._asdict(), "shape": [length, channels], "files": data.files()}
        kept = Kept(derived, {}, {})
        return cls(data, recipe, kept, normalization, rows, splits["test"], (length, channels))

    @classmethod
    def restore(cls, data: SignalData, recipe: Recipe, kept: Kept) -> "Signals":
        normalization = Normalization.restore(kept.derived)
        length, channels = data.shape or kept.derived["shape"]
        shape = length, channels
        check_shape(shape)
        nothing = np.zeros((0, *shape), np.float32)
        test = SignalRows(nothing, nothing, {})
        return cls(data, recipe, kept, normalization, Rows({}, {}), test, shape)

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
        predictions = self.normalization.undo(outputs)
        arrays = {"inputs": inputs, "targets": targets, "predictions": predictions}
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

    @classmethod
    def respond(cls, request: Request, load: Load, console: "Console") -> list[Path]:
        """Writes predictions in the shape and units of the signals.

        They go beside the signals unless the user says where.
        """
        run = load()
        assert isinstance(run.task, Signals)
        source, shape = request.source, run.task.shape
        if request.texts or request.as_json or source is None:
            raise UsageError(
                f"expected --input FILE with signals of {shape[0]} points, and neither a text nor "
                f"--json, for a run on signals"
            )
        signals = check_signals(user_files.read_signals(source), shape, str(source))
        output = request.output or source.with_suffix(".predictions" + source.suffix)
        user_files.check_destination(output, "--output", user_files.ARRAYS, source)
        check_figure(request.figure, request.source)
        prediction = run.predict(signals)
        to_write: ToWrite = {
            output: lambda path: user_files.write_signals(path, outputs_of(prediction))
        }
        inputs = signals.reshape(-1, *shape)
        picture = picture_to_write(request, lambda: draw(inputs, prediction, source.name))
        return write_all(to_write | picture)

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        signal = check_signals(asked.numbers(), self.shape, "the input")
        looked = look(signal.reshape(1, *self.shape))
        if not np.isfinite(looked["outputs"]).all():
            raise UsageError("expected a signal in the range of training; the answer overflows")
        return replies.attended(looked) | {"outputs": replies.array(looked["outputs"][0])}

    @classmethod
    def does(cls, run: Record) -> str:
        return LEVELLED.get(run.config["data"].get("task"), "turns signals into others")

    @classmethod
    def sentence(cls, run: Record) -> str:
        unit = float(np.mean(run.config.get("derived", {}).get("std", 1.0)))
        error = float(np.sqrt(run.mean("mse"))) * unit
        tallest = float(np.max(run.examples["targets"], initial=0))
        return f"{cls.does(run)}, with an error of {error:.2g} for heights up to {tallest:.3g}"

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import shapes

        return shapes.draw(run)

    @classmethod
    def draw_together(cls, runs: list[Record]) -> "dict[str, Figure]":
        from flax_attn.analysis import shapes

        return {"predictions": shapes.predictions(runs)}

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Channels `(channels, t)` of a signal, and the shapes in it."""
        from flax_attn.analysis import shapes

        shown = shapes.marks_of(run, index)
        heights = shown["heights"].tolist() if shown else []
        marks = [
            {"kind": kind, "center": center, "first": first, "last": last, "height": height}
            for (center, first, last, kind, _, _), height in zip(shapes.spans(shown), heights)
        ]
        return channels_of(run, index) | {"marks": marks}


def draw(inputs: np.ndarray, prediction: Prediction, source: str) -> "Figure":
    """Draws signals `(n, t, channels)` of a file, their predictions, and the first attention."""
    from flax_attn.analysis import shapes

    _, weights = first_attention(prediction)
    outputs = outputs_of(prediction).reshape(len(inputs), -1, 1)
    title = f"{first_of('signal', shapes.SHOWN, len(inputs))} of {source}: the prediction"
    title += "" if weights is None else "\nbeside what each position attends to"
    return shapes.predicted(inputs, outputs, weights, title)


def fit_normalization(*arrays: Array | np.ndarray) -> Normalization:
    """Fits on signals to train on. Raises a UsageError for one number everywhere."""
    normalization = Normalization.of(*arrays)
    if normalization.std == 0:
        raise UsageError(
            "expected signals to train on that vary, got one number everywhere; nothing can be "
            "learned from it"
        )
    return normalization


def check_signals(
    signals: UserInput, shape: tuple[int, int], source: str = "the inputs"
) -> np.ndarray:
    """The signals as float32.

    Raises a UsageError for another shape, and for what are no finite numbers.
    """
    signals, (length, channels) = float32(source, signals), shape
    rows = [shape, (length,)] if channels == 1 else [shape]
    is_one, is_rows = signals.shape in rows, signals.ndim > 1 and signals.shape[1:] in rows
    if not (is_one or is_rows) or not signals.size:
        flat = f"({length},), (n, {length}) or " if channels == 1 else ""
        raise UsageError(
            f"expected signals of {length} points, {flat}(n, {length}, {channels}), got "
            f"{signals.shape} in {source}"
        )
    if not np.isfinite(signals).all():
        raise UsageError(
            f"expected finite numbers in {source}, got some that are infinite, too large for "
            f"float32, or not a number"
        )
    return signals


def check_rows(data: SignalData, splits: dict[str, SignalRows]) -> None:
    """Raises a UsageError for signals that are not finite, or not of the shape of the data set."""
    for name, (inputs, targets, _) in splits.items():
        shape, expected = inputs.shape, ("n", *(data.shape or ("t", "channels")))
        if len(shape) != 3 or (data.shape is not None and shape[1:] != tuple(data.shape)):
            raise UsageError(
                f"expected inputs ({', '.join(map(str, expected))}) in the {name} split of "
                f"{type(data).__name__}, got {shape}"
            )
        if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
            raise UsageError(
                f"expected finite signals in the {name} split of {type(data).__name__}, got NaN or "
                f"infinity"
            )


def _batch(rows: SignalRows, normalization: Normalization) -> Batch:
    """Inputs and targets, normalised."""
    return {
        "inputs": normalization.apply(rows.inputs),
        "targets": normalization.apply(rows.targets),
    }
