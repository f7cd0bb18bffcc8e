"""A number for each input, trained on the squared error in normalized units.

A model gives it as its one logit `(b, 1)`. Of outputs `(b, t, 1)` it is the mean over positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.text import Text

from flax_attn.data.raw import Raw
from flax_attn.data.sets import DataSet
from flax_attn.errors import escaped
from flax_attn.runs.reading import Record
from flax_attn.schema import require
from flax_attn.tasks import replies
from flax_attn.tasks.artifacts import (
    Evaluation,
    Kept,
    LossAndMetrics,
    Prediction,
    Recipe,
    outputs_of,
)
from flax_attn.tasks.comparison import ExampleScores
from flax_attn.tasks.inputs import INPUTS
from flax_attn.tasks.inputs.base import Input
from flax_attn.tasks.inputs.signals import Normalization
from flax_attn.tasks.targets.base import Headline, Target, with_penalty
from flax_attn.tasks.token_rows import describe_tokens, print_tokens
from flax_attn.training.metrics import mask_of, squared_error, weighted_mean
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

NUM_POINTS = 2_000  # test examples of which a run keeps the target and the prediction


@dataclass(frozen=True)
class Number(Target):
    """A number, normalized by the mean and the deviation of the training split.

    The `penalty` of a model is added to the loss.
    """

    name = "number"
    score = "mse"
    measured = "mae"

    normalization: Normalization

    @classmethod
    def fit(cls, data: DataSet, raw: Raw, recipe: Recipe, inputs: Input) -> "Number":
        normalization = Normalization.of(raw.splits["train"].targets)
        got = f"{normalization.mean:g}"
        require(normalization.std, f"numbers that vary in the training split, got {got}")
        return cls(data, recipe, inputs, normalization)

    @classmethod
    def restore(cls, data: DataSet, recipe: Recipe, kept: Kept, inputs: Input) -> "Number":
        return cls(data, recipe, inputs, Normalization.restore(kept.derived["targets"]))

    @property
    def kept(self) -> Kept:
        # models of signals have one output by default, and those of users need no field for it
        sizes = {} if self.inputs.name == "signal" else {"num_classes": 1}
        return Kept({"targets": self.normalization._asdict()}, sizes)

    def encode(self, raw: UserInput) -> Array | np.ndarray:
        return self.normalization.apply(raw)

    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        mask, predicted = mask_of(batch, len(outputs)), number_of(outputs)  # (b,)
        error = squared_error(predicted, batch["targets"], mask)
        distance = jnp.abs(predicted - batch["targets"]) * self.normalization.std  # (b,)
        loss = with_penalty(error.compute(), aux, mask)
        return loss, {"mse": error, "mae": weighted_mean(distance, mask)}

    def decode(self, outputs: Sequence[Array | np.ndarray]) -> Array:
        numbers = jnp.stack([number_of(jnp.asarray(one)) for one in outputs])  # (seeds, b)
        return self.normalization.undo(numbers.mean(axis=0))  # (b,)

    def results(
        self, outputs: Sequence[np.ndarray], targets: np.ndarray, shown: int, raw: UserInput
    ) -> Evaluation:
        predicted, right = np.asarray(self.decode(outputs)), self.normalization.undo(targets)
        distances = [np.abs(np.asarray(self.decode([one])) - right) for one in outputs]  # (n,) each
        arrays = {"targets": right[:NUM_POINTS], "predictions": predicted[:NUM_POINTS]}
        metrics = {}
        if len(outputs) > 1:
            metrics["ensemble/test/mae"] = [float(np.abs(predicted - right).mean())]
        return Evaluation(arrays, metrics, scores={"mae": np.mean(distances, axis=0)})

    def baselines(self, raw: Raw) -> dict[str, ExampleScores]:
        numbers, right = (np.asarray(raw.splits[name].targets) for name in ("train", "test"))
        answers = self.regressed(raw, numbers) | {"the mean alone": numbers.mean()}
        return {name: {"mae": np.abs(answer - right)} for name, answer in answers.items()}

    def reply(self, output: np.ndarray) -> JsonObject:
        return {"outputs": replies.array(output[None])}

    def describe(self, names: Sequence[str], prediction: Prediction) -> list[JsonObject]:
        tokens = describe_tokens(prediction)
        rows: list[JsonObject] = []
        for i, (name, number) in enumerate(zip(names, outputs_of(prediction))):
            row: JsonObject = {"input": name, "number": float(f"{number:.6g}")}
            if prediction.attention and tokens:
                row["tokens"] = tokens[i]
            rows.append(row)
        return rows

    def show(self, row: JsonObject, console: "Console") -> None:
        console.print(Text(escaped(row["input"]), style="bold"), soft_wrap=True)
        console.print(Text(f"  {row['number']:.4g}"))
        if tokens := row.get("tokens"):
            print_tokens(tokens, console)

    def columns(self, prediction: Prediction) -> dict[str, list[str]]:
        return {"predicted_number": [f"{number:.6g}" for number in outputs_of(prediction)]}

    def verdicts(self, prediction: Prediction) -> list[str]:
        return [f"{number:.4g}" for number in outputs_of(prediction)]

    @classmethod
    def summary(cls, run: Record) -> str:
        return f"predict a number from {'an' if run.input[0] in 'aeiou' else 'a'} {run.input}"

    @classmethod
    def headline(cls, run: Record) -> Headline:
        targets = run.examples.get("targets", np.array([np.nan]))
        error = float(np.abs(targets - np.median(targets)).mean())
        about = [] if np.isnan(error) else [f"always the median {error:.2g}"]
        return Headline("mae", "Mean absolute error", lambda mae: f"{mae:.2g}", about)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        return {key: float(run.examples[f"{key}s"][index]) for key in ("target", "prediction")}

    @classmethod
    def beside_examples(cls, run: Record) -> JsonObject:
        return {name: replies.numbers(run.examples[name]) for name in ("targets", "predictions")}

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import drawing, numbers

        figures = {"predictions": numbers.scatter(run)}
        pairs = zip(run.examples["predictions"], run.examples["targets"])
        ink = drawing.theme().ink
        verdicts = [(f"{number:.3g}, target {right:.3g}", ink) for number, right in pairs]
        for name, weights in run.attention.items():
            figures |= INPUTS[run.input].draw_examples(run, name, weights, verdicts)
        return figures


def number_of(outputs: Tree) -> Tree:
    """Returns the number `(b,)` of outputs `(b, 1)`, or of `(b, t, 1)` by their mean over t."""
    number = outputs[..., 0]  # (b,) or (b, t)
    return number.mean(axis=1) if number.ndim == 2 else number  # (b,)
