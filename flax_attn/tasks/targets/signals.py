"""A signal for each signal, trained on the squared error in normalized units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flax_attn.data.raw import Raw
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies
from flax_attn.tasks.artifacts import (
    Evaluation,
    LossAndMetrics,
    Prediction,
    outputs_of,
)
from flax_attn.tasks.comparison import ExampleScores
from flax_attn.tasks.inputs.signals import Signals, channels_of
from flax_attn.tasks.targets.base import Headline, Target
from flax_attn.training.metrics import Metric, mask_of, squared_error, weighted_mean
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

LEVELLED = {
    "by_shape": "level each pair of shapes of a kind",
    "by_location": "level the two shapes on each side",
}


@dataclass(frozen=True)
class Signal(Target):
    """A signal in the units of its input, so both have one normalization.

    Where the data set says which input series is `relevant`, the weight of input attention on it is
    the metric `gate`.
    """

    name = "signal"
    score = "mse"
    measured = "mse"
    of_first_seed = True

    inputs: Signals

    @property
    def relevant(self) -> int | None:
        """Returns the input series that decides the output, where the data set knows it."""
        return getattr(self.data, "relevant", None)

    def encode(self, raw: UserInput) -> Array | np.ndarray:
        return self.inputs.normalize(raw)

    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        mask = mask_of(batch, len(outputs))  # (b,)
        error = squared_error(outputs, batch["targets"], mask)
        metrics: dict[str, Metric] = {"mse": error}
        if self.relevant is not None:
            gate = aux["attention"]["input"][..., self.relevant].mean(axis=-1)  # (b,)
            metrics["gate"] = weighted_mean(gate, mask)
        return error.compute(), metrics

    def decode(self, outputs: Sequence[Array | np.ndarray]) -> Array:
        first, normalization = jnp.asarray(outputs[0]), self.inputs.normalization  # (b, t, d)
        return first if normalization is None else normalization.undo(first)  # (b, t, d)

    def predicted(self, outputs: np.ndarray, inputs: UserInput) -> Prediction:
        """Returns signals in the shape of the inputs where they have as many numbers."""
        same = outputs.size == np.size(inputs)
        return Prediction(outputs.reshape(np.shape(inputs)) if same else outputs)

    def results(
        self, outputs: Sequence[np.ndarray], targets: np.ndarray, shown: int, raw: UserInput
    ) -> Evaluation:
        first = np.asarray(self.decode([outputs[0][:shown]]))  # (shown, t, d)
        scores = np.mean([self.errors(one, targets) for one in outputs], axis=0)  # (n,)
        arrays = {"targets": np.asarray(raw[:shown]), "predictions": first}
        return Evaluation(arrays, scores={"mse": scores})

    def errors(self, outputs: Tree, targets: Tree) -> np.ndarray:
        """Computes the mean squared error of each signal, in normalized units."""
        squares = np.square(np.asarray(outputs) - np.asarray(targets))  # (n, t, d)
        return squares.reshape(len(squares), -1).mean(axis=1)  # (n,)

    def baselines(self, raw: Raw) -> dict[str, ExampleScores]:
        """Measures regression from all points to all, and what takes none.

        That is the input itself where it is a signal like the target; else the mean of all targets,
        and at each point the target of the point before.
        """
        (_, targets, _), (tested, right, _) = (raw.splits[name] for name in ("train", "test"))
        targets, right = np.asarray(targets), np.asarray(right)  # (n, t, 1)
        flat = self.regressed(raw, targets.reshape(len(targets), -1))  # (n, t) each
        answers = {name: answer.reshape(right.shape) for name, answer in flat.items()}
        if np.shape(tested) == right.shape:
            answers["the input itself"] = np.asarray(tested)
        else:
            before = np.roll(right, 1, axis=1)  # (n, t, 1)
            before[:, 0] = targets.mean()  # the first point has none before
            answers |= {"the value before": before}
            answers |= {"the mean alone": np.full_like(right, targets.mean())}
        coded = self.encode(right)
        scores = {name: self.errors(self.encode(one), coded) for name, one in answers.items()}
        return {name: {"mse": score} for name, score in scores.items()}

    def reply(self, output: np.ndarray) -> JsonObject:
        return {"outputs": replies.array(output)}

    def describe(self, names: Sequence[str], prediction: Prediction) -> list[JsonObject]:
        pairs = zip(names, outputs_of(prediction).reshape(len(names), -1))
        return [{"input": name, "outputs": replies.numbers(row)} for name, row in pairs]

    def show(self, row: JsonObject, console: "Console") -> None:
        console.print_json(data=row)

    @classmethod
    def summary(cls, run: Record) -> str:
        data = run.config["data"]
        if "relevant" in data:
            return f"predict one series from {run.examples['inputs'].shape[-1]}"
        return LEVELLED.get(data.get("task"), "turn signals into others")

    @classmethod
    def headline(cls, run: Record) -> Headline:
        unit, name, about = 1.0, "RMSE in standard deviations", []
        if "relevant" not in run.config["data"]:
            unit, name = run.config["derived"].get("inputs", {}).get("std", 1.0), "RMSE"
            about = [f"heights up to {float(np.max(run.examples['targets'], initial=0)):.3g}"]
        return Headline("mse", name, lambda mse: f"{unit * max(mse, 0) ** 0.5:.2g}", about)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        names = ("targets", "predictions")
        return {name: channels_of(run, name, index) for name in names}

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import series, shapes

        return series.draw(run) if "relevant" in run.config["data"] else shapes.draw(run)
