"""Several input series. One decides the output. Which one does input attention weigh?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import flax.linen as nn
import numpy as np
from jaxtyping import Array

from flax_attn.data.contents import float32
from flax_attn.data.sets import SeriesData
from flax_attn.data.sets.kinds import SeriesRows
from flax_attn.errors import UsageError
from flax_attn.kinds import replies, step_scores
from flax_attn.kinds.asking import Asked
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
    to_store,
)
from flax_attn.models.forward import Inputs, Params, apply, forward
from flax_attn.runs.examples import SIGNALS, Form
from flax_attn.runs.reading import Record
from flax_attn.training.metrics import mask_of, squared_error, weighted_mean
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure

NUM_EXAMPLES = 16


@dataclass(frozen=True)
class Series(Task):
    """A task on series. The series number `relevant` decides the output."""

    name = "series"
    problem = "regression"
    score = "mse"
    measured = "mse"
    data_class = SeriesData
    form = Form(SIGNALS, attends="tc")
    in_terminal = False
    keeps_scores = False

    data: SeriesData
    recipe: Recipe
    relevant: int
    rows: Rows
    test: SeriesRows

    @classmethod
    def load(cls, data: SeriesData, recipe: Recipe, manual_dir: Path | None) -> "Series":
        check_no_classes(recipe, "series, which have")
        splits = data.load(manual_dir)
        batches: dict[str, Batch] = {name: rows._asdict() for name, rows in splits.items()}
        rows = Rows(batches["train"], {name: batches[name] for name in recipe.evaluate})
        return cls(data, recipe, data.relevant, rows, splits["test"])

    @classmethod
    def restore(cls, data: SeriesData, recipe: Recipe, kept: Kept) -> "Series":
        nothing = np.zeros((0, data.length, data.num_series), np.float32)
        test = SeriesRows(nothing, nothing[..., :1])
        return cls(data, recipe, int(kept.derived["relevant"]), Rows({}, {}), test)

    @property
    def kept(self) -> Kept:
        return Kept({"relevant": self.relevant}, {}, {})

    def sample(self) -> Inputs:
        shape = self.recipe.batch_size, self.data.length, self.data.num_series
        return np.zeros(shape, np.float32)

    def measure(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> Measured:
        """The mean squared error, and the mean weight of the series that decides the output."""
        mask = mask_of(batch, len(outputs))
        error = squared_error(outputs, batch["targets"], mask)
        gate = aux["attention"]["input"][..., self.relevant].mean(axis=-1)
        return error.compute(), {"mse": error, "gate": weighted_mean(gate, mask)}

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Examples:
        """The first test series with the predictions of the first seed."""
        inputs, targets = (np.asarray(array[:NUM_EXAMPLES]) for array in self.test)
        outputs, attention = forward(model, params[0], inputs)
        arrays = {"inputs": inputs, "targets": targets, "predictions": outputs}
        return Examples(arrays | to_store(attention))

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """Predictions by the first seed for series `(n, t, series)`.

        Raises:
            UsageError: series of another shape, or values that are not finite numbers.
        """
        series = float32("the inputs", inputs)
        if series.ndim != 3 or series.shape[2] != self.data.num_series or not series.size:
            raise UsageError(
                f"expected series of shape (n, t, {self.data.num_series}), got {series.shape}"
            )
        if not np.isfinite(series).all():
            raise UsageError("expected finite numbers in the series, got some that are not")
        outputs, attention = forward(model, params[0], series, len(series))
        return Prediction(outputs, attention=attention)

    def input_shapes(self) -> Tree:
        return f"b, t, {self.data.num_series}"

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """Predictions by the first seed."""
        outputs, attention = apply(model, params[0], inputs)
        return {"outputs": outputs, "attention": attention}

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """`compute`, and the scores of each step, which the loop of the model does not tell."""
        computed = self.compute(model, params, inputs)
        if not step_scores.has_scores(model):
            return computed
        return computed | {"scores": {"input": step_scores.of_series(model, params[0], inputs)}}

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        series, data = asked.numbers(), self.data
        if series.shape != (data.length, data.num_series):
            raise UsageError(
                f"expected {data.num_series} series of {data.length} steps, got {series.shape}"
            )
        looked = look(series[None])
        return replies.attended(looked) | {"outputs": replies.array(looked["outputs"][0])}

    @classmethod
    def does(cls, run: Record) -> str:
        return f"predicts one series from {run.examples['inputs'].shape[-1]}"

    @classmethod
    def sentence(cls, run: Record) -> str:
        error = float(np.sqrt(run.mean("mse")))
        return f"{cls.does(run)}, off by {error:.2g} of its standard deviation"

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import series

        return series.draw(run)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """The input series `(series, t)`, and the output beside what is predicted."""
        return channels_of(run, index)
