"""What every target of a task offers."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import jax
import numpy as np
from jaxtyping import Array

from flax_attn.data.raw import Raw
from flax_attn.data.sets import DataSet
from flax_attn.runs.reading import Record
from flax_attn.tasks.artifacts import Evaluation, Kept, LossAndMetrics, Prediction, Recipe
from flax_attn.tasks.inputs.base import Input
from flax_attn.training.metrics import weighted_mean
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure


@dataclass(frozen=True)
class Target(abc.ABC):
    """One kind of output: its loss, its metrics, and how it is shown.

    Attributes:
        name: in run directories and pages.
        score: the metric that validation is judged by, lower is better.
        measured: the metric that a run is known by.
        of_first_seed: whether predictions are those of the first seed, not the mean over all.
    """

    name: ClassVar[str]
    score: ClassVar[str]
    measured: ClassVar[str]
    of_first_seed: ClassVar[bool] = False

    data: DataSet
    recipe: Recipe

    @classmethod
    @abc.abstractmethod
    def fit(cls, data: DataSet, raw: Raw, recipe: Recipe, inputs: Input) -> "Target":
        """Fits on the training split. `inputs` are fitted already."""

    @classmethod
    @abc.abstractmethod
    def restore(cls, data: DataSet, kept: Kept, recipe: Recipe) -> "Target":
        """Restores what `fit` has found from the run directory."""

    @classmethod
    def file_names(cls) -> tuple[str, ...]:
        """Returns the names of further files of the run directory that `restore` needs."""
        return ()

    def kept(self, inputs: Input) -> Kept:
        """Returns what the targets of the training split decided."""
        return Kept()

    @abc.abstractmethod
    def encode(self, raw: UserInput) -> Array | np.ndarray:
        """Returns raw targets of a data set as an array that `loss` takes."""

    @abc.abstractmethod
    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        """Computes the loss of a batch, and metrics as sums and counts. Pure."""

    @abc.abstractmethod
    def decode(self, outputs: Sequence[Array | np.ndarray]) -> Array:
        """Returns the outputs of all seeds as predictions in the user's units. Pure."""

    def predicted(self, outputs: np.ndarray, inputs: UserInput) -> Prediction:
        """Returns decoded outputs as a prediction for a user's inputs."""
        return Prediction(outputs)

    @abc.abstractmethod
    def results(
        self, outputs: Sequence[np.ndarray], targets: np.ndarray, shown: int, raw: UserInput
    ) -> Evaluation:
        """Evaluates the outputs of every seed on the test split.

        Args:
            outputs: `(n, ...)` by seed.
            targets: encoded ones.
            shown: how many examples a run keeps.
            raw: the targets in the user's units.
        """

    @abc.abstractmethod
    def reply(self, output: np.ndarray) -> JsonObject:
        """Returns the decoded output of one example as a page shows it."""

    @abc.abstractmethod
    def describe(self, names: Sequence[str], prediction: Prediction) -> list[JsonObject]:
        """Returns a prediction as JSON, one entry an input."""

    @abc.abstractmethod
    def show(self, row: JsonObject, console: "Console") -> None:
        """Prints an entry of `describe`."""

    @abc.abstractmethod
    def columns(self, prediction: Prediction) -> dict[str, list[str]]:
        """Returns a prediction as columns of a table."""

    @abc.abstractmethod
    def verdicts(self, prediction: Prediction) -> list[str]:
        """Returns each prediction in a word, for a picture."""

    def class_names(self) -> list[str] | None:
        """Returns the names of what outputs are probabilities of; None for other outputs."""
        return None

    @classmethod
    @abc.abstractmethod
    def summary(cls, run: Record, inputs: type[Input]) -> str:
        """Returns what the model of a run does, in a few words that begin with a verb."""

    @classmethod
    @abc.abstractmethod
    def sentence(cls, run: Record, inputs: type[Input]) -> str:
        """Returns what the model of a run does, and how well it does it on test data."""

    @classmethod
    def baseline_note(cls, run: Record) -> str:
        """Returns what the figure of the sentence is to be compared with; empty for nothing."""
        return ""

    @classmethod
    def remarks(cls, run: Record, data: DataSet) -> list[str]:
        """Returns lines to print after training."""
        note = cls.baseline_note(run)
        return [note] if note else []

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
    def figures(cls, run: Record, inputs: type[Input]) -> "dict[str, Figure]":
        """Draws the figures of a run, by name."""


def probabilities(logits: Tree) -> np.ndarray:
    """Computes the softmax of logits."""
    return np.asarray(jax.nn.softmax(jax.numpy.asarray(logits), axis=-1))


def with_penalty(loss: Array, aux: Tree, mask: Array) -> Array:
    """Adds the mean of the `penalty` of a model to a loss, where the model has one."""
    return loss + weighted_mean(aux["penalty"], mask).compute() if "penalty" in aux else loss
