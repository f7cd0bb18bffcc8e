"""The values that tasks hand on: options, rows to train on, what a run keeps, predictions."""
# pyright: strict, reportUnknownMemberType=false

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from flax_attn.models.decoding import Decoding, Translation
from flax_attn.training.metrics import Metric
from flax_attn.types import Batch, Json, Tree


class Recipe(NamedTuple):
    """Training options of a task, as the keys of a config with these names."""

    batch_size: int = 64
    evaluate: tuple[str, ...] = ("test",)
    class_weights: bool = False
    label_smoothing: float = 0.0
    decoding: Decoding = Decoding()


class Rows(NamedTuple):
    """The rows of a run.

    Attributes:
        train: rows to train on; sorted by length where there are tokens.
        splits: rows to evaluate on, by split.
        draw: `draw(train, key)` makes the batch of every step; None for rows as they are stored.
    """

    train: Batch
    splits: dict[str, Batch]
    draw: Callable[[Batch, Array], Batch] | None = None


class Kept(NamedTuple):
    """Facts about the training data that predictions need.

    Attributes:
        derived: what the data decided, as JSON.
        sizes: fields of the model that the data decided.
        files: the contents of further files of the run, as JSON by name.
    """

    derived: dict[str, Json] = {}
    sizes: dict[str, int] = {}
    files: dict[str, Json] = {}


class Evaluation(NamedTuple):
    """Test results beside the metrics of training.

    Attributes:
        arrays: of some test examples, which the pictures are drawn from.
        metrics: further figures by name, one a seed, or one of all seeds together.
        summary: further entries of `summary.json`.
        texts: further files of the run directory, by name.
        scores: of each test example, the mean over the seeds, by metric.
    """

    arrays: Tree
    metrics: dict[str, list[float]] = {}
    summary: dict[str, Json] = {}
    texts: dict[str, str] = {}
    scores: Mapping[str, np.ndarray] = {}


@dataclass
class Prediction:
    """Predictions for a user's own inputs.

    Attributes:
        outputs: of signals the predictions in the user's units, in the shape of the inputs; of
            classes the probabilities `(n, classes)`, the mean over the seeds; of numbers `(n,)`,
            the mean over the seeds; of translations the texts, the best for each. Of a published
            encoder without a head the states `(n, tokens, features)`, or with classes of tokens
            their probabilities `(n, tokens, classes)`.
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


LossAndMetrics = tuple[Array, dict[str, Metric]]
# from inputs, and perhaps the number of keys to mask some of, to what `Task.look` computes
Look = Callable[..., dict[str, Tree]]


def outputs_of(prediction: Prediction) -> np.ndarray:
    """Returns the outputs that are an array: all but translations."""
    assert isinstance(prediction.outputs, np.ndarray)
    return prediction.outputs


def first_attention(prediction: Prediction) -> tuple[str, np.ndarray | None]:
    """Returns the name and the weights, over all inputs, of the first attention; None for none."""
    for name, weights in prediction.attention.items():
        return name, np.asarray(weights)
    return "", None


def to_store(attention: dict[str, Tree]) -> dict[str, Tree]:
    """Returns attention by the names that it has among the stored test examples."""
    return {f"attention/{name}": weights for name, weights in attention.items()}


def first_rows(tree: Tree, number: int) -> Tree:
    """Returns the first rows of every array of a tree."""
    return jax.tree.map(operator.itemgetter(slice(number)), tree)
