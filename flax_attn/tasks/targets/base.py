"""What every target of a task offers."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from flax_attn.data.raw import Columns, Raw
from flax_attn.runs.reading import Record
from flax_attn.tasks import baselines
from flax_attn.tasks.artifacts import Evaluation, Kept, LossAndMetrics, Prediction, Recipe
from flax_attn.tasks.comparison import ExampleScores
from flax_attn.tasks.inputs.base import Data, Input
from flax_attn.training.metrics import (
    largest,
    mask_of,
    token_cross_entropy,
    weighted_mean,
)
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure


class Headline(NamedTuple):
    """How good a run is: a metric of the test by its key and its name, and what it compares with.

    `write` makes a text of its value, in the units that a reader knows.
    """

    metric: str
    name: str
    write: Callable[[float], str]
    about: Sequence[str] = ()


@dataclass(frozen=True)
class Target(abc.ABC):
    """One kind of output: its loss, its metrics, and how it is shown.

    Attributes:
        name: in run directories and pages.
        score: the metric that validation is judged by, lower is better.
        measured: the metric that a run is known by.
        of_first_seed: whether predictions are those of the first seed, not the mean over all.
        takes_beam: whether predictions are searched for, by a beam.
    """

    name: ClassVar[str]
    score: ClassVar[str]
    measured: ClassVar[str]
    of_first_seed: ClassVar[bool] = False
    takes_beam: ClassVar[bool] = False

    data: Data
    recipe: Recipe
    inputs: Any  # the input, of the class that a target is for

    @classmethod
    def fit(cls, data: Data, raw: Raw, recipe: Recipe, inputs: Input) -> "Target":
        """Fits on the training split. `inputs` are fitted already."""
        return cls(data, recipe, inputs)

    @classmethod
    def restore(cls, data: Data, recipe: Recipe, kept: Kept, inputs: Input) -> "Target":
        """Restores what `fit` has found from the run directory."""
        return cls(data, recipe, inputs)

    @classmethod
    def file_names(cls) -> tuple[str, ...]:
        """Returns the names of further files of the run directory that `restore` needs."""
        return ()

    @property
    def kept(self) -> Kept:
        """Returns what the targets of the training split decided."""
        return Kept()

    def batch(self, rows: Columns) -> Batch:
        """Encodes rows of a data set as a batch that `loss` takes."""
        arrays = self.inputs.normalize(self.inputs.encode(rows.inputs))
        return {"inputs": arrays, "targets": self.encode(rows.targets)}

    def sampler(self, batches: Mapping[str, Batch]) -> Callable[[Batch, Array], Batch] | None:
        """Returns `(rows, key) -> batch` where batches are sampled; None for rows as stored."""
        if not self.data.fresh:
            return None
        return lambda _, key: self.batch(self.data.draw(key, self.recipe.batch_size))

    def encode(self, raw: UserInput) -> Array | np.ndarray:
        """Returns raw targets of a data set as an array that `loss` takes."""
        raise NotImplementedError

    @abc.abstractmethod
    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        """Computes the loss of a batch, and metrics as sums and counts. Pure."""

    def decode(self, outputs: Sequence[Array | np.ndarray]) -> Array:
        """Returns the outputs of all seeds as predictions in the user's units. Pure."""
        raise NotImplementedError

    def predicted(self, outputs: np.ndarray, inputs: UserInput) -> Prediction:
        """Returns decoded outputs as a prediction for a user's inputs."""
        return Prediction(outputs)

    def results(
        self, outputs: Sequence[np.ndarray], targets: np.ndarray, shown: int, raw: UserInput
    ) -> Evaluation:
        """Evaluates the outputs `(n, ...)` of every seed on the test split.

        The targets are encoded, and `raw` in the user's units. A run keeps the first `shown` rows.
        """
        raise NotImplementedError

    def baselines(self, raw: Raw) -> dict[str, ExampleScores]:
        """Measures simple models on the test split, by name and metric."""
        return {}

    def regressed(self, raw: Raw, targets: np.ndarray) -> dict[str, np.ndarray]:
        """Predicts the test split by regression on features of the inputs, by name.

        It is empty without scikit-learn, or for inputs that have no features.
        """
        if not baselines.has_sklearn():
            return {}
        features = self.inputs.features(raw.splits["train"].inputs, raw.splits["test"].inputs)
        return baselines.predicted(features, targets, self.name == "classes")

    def reply(self, output: np.ndarray) -> JsonObject:
        """Returns the decoded output of one example as a page shows it."""
        raise NotImplementedError

    @abc.abstractmethod
    def describe(self, names: Sequence[str], prediction: Prediction) -> list[JsonObject]:
        """Returns a prediction as JSON, one entry an input."""

    @abc.abstractmethod
    def show(self, row: JsonObject, console: "Console") -> None:
        """Prints an entry of `describe`."""

    def columns(self, prediction: Prediction) -> dict[str, list[str]]:
        """Returns a prediction as columns of a table."""
        raise NotImplementedError

    def verdicts(self, prediction: Prediction) -> list[str]:
        """Returns each prediction in a word, for a picture."""
        return []

    def class_names(self) -> list[str] | None:
        """Returns the names of what outputs are probabilities of; None for other outputs."""
        return None

    @classmethod
    @abc.abstractmethod
    def summary(cls, run: Record) -> str:
        """Returns the task of a run in a few words that begin with a verb, such as "translate"."""

    @classmethod
    @abc.abstractmethod
    def headline(cls, run: Record) -> Headline:
        """Returns the metric that a page begins with."""

    @classmethod
    def sentence(cls, run: Record) -> str:
        """Returns the task of a run and its metric, with the interval and the best other model."""
        metric, name, write, about = cls.headline(run)
        known = []
        for one in run.summary.get("comparisons", []):
            if one["metric"] == metric.replace("_", " "):
                low, high = (write(one["run"][end]) for end in ("low", "high"))
                known.append(f"95 % interval {low} to {high}")
                others = sorted(one["beside"], key=lambda other: other["gain"]["mean"])
                known += [f"{other['name']} {write(other['mean'])}" for other in others[:1]]
        inside = ", ".join([*known, *about])
        compared = f" ({inside})" if inside else ""
        return f"task: {cls.summary(run)}. {name} {write(run.mean(metric))}{compared}"

    @classmethod
    def remarks(cls, run: Record, data: Data) -> list[str]:
        """Returns lines to print after training, below the comparison with simple models."""
        return []

    @classmethod
    @abc.abstractmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Returns the target and the prediction of a test example as a page draws them."""

    @classmethod
    def beside_examples(cls, run: Record) -> JsonObject:
        """Returns what a page shows of the whole test split, beside the examples."""
        return {}

    @classmethod
    @abc.abstractmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        """Draws the figures of a run, by name."""


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def probabilities(logits: Tree) -> np.ndarray:
    """Computes the softmax of logits."""
    return np.asarray(jax.nn.softmax(jax.numpy.asarray(logits), axis=-1))  # (..., classes)


def with_penalty(loss: Array, aux: Tree, mask: Array) -> Array:
    """Adds the mean of the `penalty` of a model to a loss, where the model has one."""
    return loss + weighted_mean(aux["penalty"], mask).compute() if "penalty" in aux else loss


def token_loss(recipe: Recipe, outputs: Array, batch: Batch, train: bool) -> LossAndMetrics:
    """Computes the cross-entropy of each token, and the share of tokens with the largest logit.

    Padding counts nothing. In training, labels are smoothed.
    """
    labels, smoothing = batch["targets"], recipe.label_smoothing
    mask = (labels > 0) & mask_of(batch, len(labels))[:, None]  # (b, t)
    error = token_cross_entropy(outputs, labels, mask)
    hits = weighted_mean(largest(outputs, labels).astype(outputs.dtype), mask)
    loss = token_cross_entropy(outputs, labels, mask, smoothing) if train and smoothing else error
    return loss.compute(), {"loss": error, "accuracy": hits}
