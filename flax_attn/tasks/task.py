"""What the training loop, commands and pages need of a task.

`load` reads data to train on; `restore` takes what a run has kept, to predict with. `cell` has the
grid of inputs and targets; translation and language models have files of their own.
"""
# pyright: strict, reportUnknownMemberType=false

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Int

from flax_attn.data.sets import DataSet
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params
from flax_attn.runs.reading import Record
from flax_attn.tasks.artifacts import (
    Evaluation,
    Kept,
    Look,
    LossAndMetrics,
    Prediction,
    Recipe,
    Rows,
)
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.replies import by_heads
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure
    from flax_attn.tasks.language import Generated
    from flax_attn.tasks.requests import Load, Request

SERVED = "flax-attn explore RUN asks it"


class Task(abc.ABC):
    """A task with its data.

    Attributes:
        name: of its input and its target, such as `signal-classes`.
        score: the metric that validation is judged by, lower is better.
        measured: the metric that a run is known by.
        tells_why: whether the effect of each word on the prediction can be computed.
        takes_beam: whether predictions are searched for, by a beam.
        rows: to train on and to evaluate on; empty in a run that is restored.
        kept: what a run keeps of its data, so that it can predict without them.
    """

    name: ClassVar[str]
    score: ClassVar[str]
    measured: ClassVar[str]
    tells_why: ClassVar[bool] = False
    takes_beam: ClassVar[bool] = False

    recipe: Recipe
    rows: Rows
    kept: Kept

    # training

    @classmethod
    @abc.abstractmethod
    def load(cls, data: DataSet, recipe: Recipe, manual_dir: Path | None) -> "Task":
        """Reads a data set, with rows to train on.

        Raises:
            UsageError: data that are missing, damaged, or do not make a task.
        """

    @classmethod
    @abc.abstractmethod
    def restore(cls, data: DataSet, recipe: Recipe, kept: Kept) -> "Task":
        """Restores the task of a run, without rows.

        Raises:
            ValueError, KeyError, TypeError: what was kept is not what `load` makes.
        """

    @classmethod
    @abc.abstractmethod
    def file_names(cls, data: DataSet) -> tuple[str, ...]:
        """Returns the names of the further files of the run directory that `restore` needs."""

    @abc.abstractmethod
    def sample(self) -> Inputs:
        """Returns inputs of the shapes and dtypes that a model is built for."""

    @abc.abstractmethod
    def loss(self, outputs: Tree, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        """Computes the loss of a batch, and its metrics."""

    @abc.abstractmethod
    def examples(self, model: nn.Module, params: Sequence[Params]) -> Evaluation:
        """Evaluates the parameters of every seed on the test split, and keeps some examples."""

    # predictions

    @abc.abstractmethod
    def predict(
        self, model: nn.Module, params: Sequence[Params], inputs: UserInput, **options: UserInput
    ) -> Prediction:
        """Predicts from a user's own inputs, by the parameters of every seed."""

    def generate(
        self, model: nn.Module, params: Sequence[Params], prompts: UserInput, **options: UserInput
    ) -> "Generated":
        """Continues texts, where the task is a language model."""
        raise UsageError(
            f"expected the run of a language model, such as shakespeare_char, got one of the task "
            f"{self.name}"
        )

    @abc.abstractmethod
    def input_shapes(self) -> Tree:
        """Returns the shapes of the arrays that `compute` takes, as `jax.export` reads them.

        A letter is a size that may differ: `b` rows of the length `t`, or `s` of sources.
        """

    @abc.abstractmethod
    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """Computes `predict` as a pure function of encoded inputs in the user's units."""

    @classmethod
    @abc.abstractmethod
    def respond(cls, request: "Request", load: "Load", console: "Console") -> list[Path]:
        """Answers `flax-attn predict`: prints, writes and draws. Returns the paths of files."""

    # the page

    @abc.abstractmethod
    def keeps_scores(self, model: nn.Module) -> bool:
        """Returns whether scores of the attention can leave the model: none leaves a loop."""

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """Computes what a page shows of inputs: `compute`, perhaps with more."""
        return self.compute(model, params, inputs)

    @abc.abstractmethod
    def answer(self, asked: Asked, look: Look) -> JsonObject:
        """Replies to a page, whose settings `look` takes into account."""

    @abc.abstractmethod
    def live_inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes of one example by name, for a model that lives in a page."""

    def class_names(self) -> list[str] | None:
        """Returns the names of what outputs are probabilities of; None for other outputs."""
        return None

    def tokenization(self) -> JsonObject | None:
        """Returns how a page makes tokens of a text; None where it need not."""
        return None

    # a finished run, of which only the directory is read

    @classmethod
    @abc.abstractmethod
    def to_try(cls, data: DataSet, model: type[nn.Module]) -> tuple[str, str] | None:
        """Returns the command to try a run with, and what follows the run directory."""

    @classmethod
    @abc.abstractmethod
    def summary(cls, run: Record) -> str:
        """Returns what the model of a run does, in a few words that begin with a verb."""

    @classmethod
    @abc.abstractmethod
    def sentence(cls, run: Record) -> str:
        """Returns what the model of a run does, and how well it does it on test data."""

    @classmethod
    def baseline_note(cls, run: Record) -> str:
        """Returns what the figure of the sentence is to be compared with; empty for nothing."""
        return ""

    @classmethod
    def remarks(cls, run: Record, data: DataSet) -> list[str]:
        """Returns lines to print after training: baselines, and what to try next."""
        return []

    @classmethod
    @abc.abstractmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        """Draws the figures of a run, by name."""

    @classmethod
    def draw_together(cls, runs: list[Record]) -> "dict[str, Figure]":
        """Draws the predictions of several runs for the same examples, by name."""
        return {}

    @classmethod
    def num_examples(cls, run: Record) -> int:
        """Returns how many examples of a run a page may show."""
        return len(run.examples["inputs"])

    @classmethod
    @abc.abstractmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Returns a test example as a page draws it, without attention."""

    @classmethod
    def beside_examples(cls, run: Record) -> JsonObject:
        """Returns what a page shows of the whole test split, beside the examples."""
        return {}

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        """Returns the attention of an example by name, `(heads, q, k)` without padding.

        Hops stand where heads do, with one query each.
        """
        return {name: by_heads(name, weights[index]) for name, weights in run.attention.items()}


def needs_python() -> UsageError:
    """Makes the error for a model that cannot live in a page."""
    return UsageError(f"its texts become tokens in Python; {SERVED}")


def row_lengths(rows: Batch) -> Int[np.ndarray, " n"] | None:
    """Returns the length of each row, of several sequences the longest; None for equal lengths."""
    inputs = rows["inputs"]
    if not isinstance(inputs, dict):
        return None
    arrays = cast(dict[str, np.ndarray], inputs)
    lengths = [np.asarray(array) for key, array in arrays.items() if key.endswith("lengths")]
    return np.max(lengths, axis=0) if lengths else None


def for_buckets(rows: Batch, num_buckets: int) -> Batch:
    """Sorts rows by their lengths where there are several buckets, each of like lengths."""
    if num_buckets == 1:
        return rows
    lengths = row_lengths(rows)
    assert lengths is not None
    order = np.argsort(lengths, kind="stable")

    def ordered(array: np.ndarray) -> np.ndarray:
        return array[order]

    return cast(Batch, jax.tree.map(ordered, rows))
