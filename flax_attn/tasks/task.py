"""What an experiment is about: data as arrays, a loss, and what is said of a prediction.

There is one class a kind of task. A task is made in two ways. `load` reads data, to train on.
`restore` takes what a run has kept, to predict with. Data, loss and predictions meet here. A task
gets arrays and never a run.
"""
# pyright: strict, reportUnknownMemberType=false

import abc
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from flax_attn.data.sets import DataSet
from flax_attn.errors import UsageError, shortened
from flax_attn.models.decoding import Decoding, Translation
from flax_attn.models.forward import Inputs, Params
from flax_attn.training.metrics import Metric
from flax_attn.types import Batch, Json, Tree, UserInput


class Recipe(NamedTuple):
    """What a task takes from a config beside its data.

    Attributes:
        batch_size: examples of a batch.
        evaluate: the splits that are measured.
        class_weights: whether each class is weighed by one over its training examples.
        label_smoothing: share of the target that is spread over all classes in training.
        decoding: how translations are searched for.
    """

    batch_size: int = 64
    evaluate: tuple[str, ...] = ("test",)
    class_weights: bool = False
    label_smoothing: float = 0.0
    decoding: Decoding = Decoding()


class Rows(NamedTuple):
    """The rows of a run.

    Attributes:
        train: rows to train on; sorted by length where there are tokens.
        splits: rows to be measured on, by split.
        draw: `draw(train, key)` makes the batch of every step; None for rows as they are stored.
    """

    train: Batch
    splits: dict[str, Batch]
    draw: Callable[[Batch, Array], Batch] | None = None


class Kept(NamedTuple):
    """What a run keeps of its data for predictions.

    Attributes:
        derived: what the data decided, as JSON.
        sizes: fields of the model that the data decided.
        files: the contents of further files of the run, as JSON by name.
    """

    derived: dict[str, Json]
    sizes: dict[str, int]
    files: dict[str, Json]


class Examples(NamedTuple):
    """What is said of the test at the end of a run.

    Attributes:
        arrays: of some test examples, which the pictures are drawn from.
        metrics: further figures by name, one a seed, or one of all seeds together.
        summary: further entries of `summary.json`.
        texts: further files of the run directory, by name.
    """

    arrays: Tree
    metrics: dict[str, list[float]] = {}
    summary: dict[str, Json] = {}
    texts: dict[str, str] = {}


@dataclass
class Prediction:
    """What a run says of a user's own inputs.

    Attributes:
        outputs: of signals the predictions in the user's units, in the shape of the inputs; of
            texts and images the probabilities `(n, classes)`, the mean over the seeds; of
            translations the texts, the best for each.
        names: the classes in the order of the probabilities.
        classes: the most probable class of each input.
        tokens: of each text the tokens that the model sees.
        known: whether the model knows each of them.
        attention: weights by name, of the first seed: an array over all inputs, or a list of one
            array an input where lengths differ.
        translations: of each source the best translations, the best first, with scores and
            alignments; empty for a source without a word that the run knows.
        written: the text of each of these translations.
        target_tokens: their tokens as text.
    """

    outputs: np.ndarray | list[str]
    names: list[str] = field(default_factory=list[str])
    classes: list[str] = field(default_factory=list[str])
    tokens: list[list[str]] = field(default_factory=list[list[str]])
    known: list[list[bool]] = field(default_factory=list[list[bool]])
    attention: Mapping[str, np.ndarray | list[np.ndarray]] = field(
        default_factory=dict[str, np.ndarray]
    )
    translations: list[list[Translation]] = field(default_factory=list[list[Translation]])
    written: list[list[str]] = field(default_factory=list[list[str]])
    target_tokens: list[list[list[str]]] = field(default_factory=list[list[list[str]]])


Measured = tuple[Array, dict[str, Metric]]  # the loss, and metrics by name


class Task(abc.ABC):
    """A kind of task, with its data.

    Attributes:
        kind: the config's `task`.
        score: the metric that validation is judged by, lower is better.
        measured: the metric that a run is known by.
        pictures: the name of the kind under which pictures are drawn.
    """

    kind: ClassVar[str]
    score: ClassVar[str]
    measured: ClassVar[str]
    pictures: ClassVar[str]

    recipe: Recipe
    kept: Kept
    rows: Rows

    @classmethod
    @abc.abstractmethod
    def load(cls, data: DataSet, recipe: Recipe, manual_dir: Path | None) -> "Task":
        """The task of a data set of this kind, with rows to train on.

        Raises:
            UsageError: data that are not there, are damaged, or do not make a task.
        """

    @classmethod
    @abc.abstractmethod
    def restore(cls, data: DataSet, recipe: Recipe, kept: Kept) -> "Task":
        """The task of a run that is there, without rows.

        Raises:
            ValueError, KeyError, TypeError: what was kept is not what `load` makes.
        """

    @classmethod
    def file_names(cls, data: DataSet) -> tuple[str, ...]:
        """The names of the further files that a run keeps for `restore`."""
        del data
        return ()

    @abc.abstractmethod
    def sample(self) -> Inputs:
        """Inputs of the shapes and dtypes that a model is built for."""

    @abc.abstractmethod
    def measure(self, outputs: Tree, aux: Tree, batch: Batch, train: bool) -> Measured:
        """The loss of a batch, and its metrics."""

    @abc.abstractmethod
    def examples(self, model: nn.Module, params: Sequence[Params]) -> Examples:
        """What is said of the test, by the parameters of every seed."""

    @abc.abstractmethod
    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """What a run says of a user's own inputs, by the parameters of every seed.

        Raises:
            UsageError: inputs that are not of this kind.
        """

    @abc.abstractmethod
    def input_shapes(self) -> Tree:
        """The shapes of the arrays that `compute` takes, each as text, as `jax.export` reads them.

        A letter is a size that may differ: `b` rows of the length `t`, or `s` of sources.
        """

    @abc.abstractmethod
    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """`predict` as a pure function from arrays to arrays by name, which JAX can export.

        Inputs are those of `sample`, but signals are in the user's units.
        """


def to_store(attention: dict[str, Tree]) -> dict[str, Tree]:
    """Attention by the names that the kept test examples have for it."""
    return {f"attention/{name}": weights for name, weights in attention.items()}


def check_shape(shape: Sequence[Json]) -> None:
    """Raises a ValueError unless a shape that a run keeps is of two whole numbers above 0."""
    if not all(isinstance(number, int) and number > 0 for number in shape):
        raise ValueError(f"got shape {shape}")


def mask_of(batch: Batch, num_rows: int) -> Bool[Array, " b"]:
    """Which rows of a batch are real; all of them where it does not say."""
    return batch["mask"] if "mask" in batch else jnp.ones(num_rows, bool)


def row_lengths(rows: Batch) -> Int[np.ndarray, " n"] | None:
    """The length of each row; None for rows of one shape.

    Where a row has several sequences, it is that of the longest.
    """
    inputs = rows["inputs"]
    if not isinstance(inputs, dict):
        return None
    arrays = cast(dict[str, np.ndarray], inputs)
    lengths = [np.asarray(array) for key, array in arrays.items() if key.endswith("lengths")]
    return np.max(lengths, axis=0) if lengths else None


def by_length(rows: Batch) -> Batch:
    """The rows in ascending order of their lengths."""
    lengths = row_lengths(rows)
    assert lengths is not None
    order = np.argsort(lengths, kind="stable")

    def sort(array: np.ndarray) -> np.ndarray:
        return array[order]

    ordered: Batch = jax.tree.map(sort, rows)
    return ordered


def as_texts(inputs: UserInput) -> list[str]:
    """One text or several, as a list. Raises a UsageError for anything else."""
    try:
        has_order = not isinstance(inputs, Mapping | Set)
        texts = [inputs] if isinstance(inputs, str) else list(inputs) if has_order else []
    except TypeError:
        texts = []
    if not texts or not all(isinstance(text, str) for text in texts):
        got = shortened(repr(cast(object, inputs)))
        raise UsageError(f"expected a text, or a list of texts, got {got}")
    return texts
