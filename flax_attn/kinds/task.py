"""What an experiment is about: its data, its loss, and what is said and drawn of its predictions.

There is one class a kind of task. A task is a kind with its data, and is made in two ways. `load`
reads data, to train on. `restore` takes what a run has kept, to predict with.
"""
# pyright: strict, reportUnknownMemberType=false

import abc
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array, Int

from flax_attn.data.sets import DataSet
from flax_attn.errors import UsageError, counted, shortened
from flax_attn.kinds.asking import Asked
from flax_attn.kinds.replies import by_heads, numbers
from flax_attn.models.decoding import Decoding, Translation
from flax_attn.models.forward import Inputs, Params
from flax_attn.runs.examples import Form
from flax_attn.runs.reading import Record
from flax_attn.training.metrics import Metric
from flax_attn.types import Batch, Json, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure
    from flax_attn.kinds.language import Generated
    from flax_attn.kinds.requests import Load, Request

SERVED = "flax-attn explore RUN asks it"


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
            translations the texts, the best for each. Of inputs with a number each the numbers
            `(n,)`, the mean over the seeds. Of a published encoder without a head the states
            `(n, tokens, features)`.
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
# from inputs, and perhaps the number of keys to hide some of, to what `Task.look` computes
Look = Callable[..., dict[str, Tree]]


class Task(abc.ABC):
    """A kind of task, with its data.

    Attributes:
        name: of the kind, of its file and of its view in the page, such as `signals`.
        problem: what it is called in results, such as `regression`.
        score: the metric that validation is judged by, lower is better.
        measured: the metric that a run is known by.
        data_class: the data sets of this kind are its subclasses.
        data_sets: those of them that stand in the file of the kind, by the name in a config.
        form: of the arrays of the test examples.
        try_it: the command that a run is tried with, and what follows the run directory.
        in_terminal: whether `flax-attn predict` answers for it.
        tells_why: whether it says which words mattered.
        takes_beam: whether predictions are searched for, by a beam.
        keeps_scores: whether scores of its attention can be told from outside of the model. None
            leaves a loop.
        draws_together: whether `draw_together` draws runs that were tested on the same data.
    """

    name: ClassVar[str]
    problem: ClassVar[str]
    score: ClassVar[str]
    measured: ClassVar[str]
    data_class: ClassVar[type[DataSet]]
    data_sets: ClassVar[Mapping[str, type[DataSet]]] = {}
    form: ClassVar[Form]
    try_it: ClassVar[tuple[str, str] | None] = None
    in_terminal: ClassVar[bool] = True
    tells_why: ClassVar[bool] = False
    takes_beam: ClassVar[bool] = False
    keeps_scores: ClassVar[bool] = True
    draws_together: ClassVar[bool] = False

    recipe: Recipe
    kept: Kept
    rows: Rows

    # training

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

    # predictions

    @classmethod
    def to_try(cls, data: DataSet, model: type[nn.Module]) -> tuple[str, str] | None:
        """Returns `try_it`, or what fits the data set and the class of the model better."""
        return cls.try_it

    @abc.abstractmethod
    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """What a run says of a user's own inputs, by the parameters of every seed.

        Raises:
            UsageError: inputs that are not of this kind.
        """

    def generate(
        self, model: nn.Module, params: Sequence[Params], prompts: UserInput, **options: UserInput
    ) -> "Generated":
        """Continues texts. Only a language model does."""
        raise UsageError(
            f"expected the run of a language model, such as shakespeare_char, got one of the task "
            f"{self.problem}"
        )

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

    @classmethod
    def respond(cls, request: "Request", load: "Load", console: "Console") -> list[Path]:
        """Answers `flax-attn predict`: prints, writes and draws. Returns the paths of files.

        Args:
            request: what the user asks for, which is checked before the run is loaded.
            load: loads the run.
            console: where to print.

        Raises:
            UsageError: an option that is not for this kind, inputs that are not of it, or a place
                that cannot be written. Nothing is written then.
        """
        raise NotImplementedError

    @classmethod
    def tell_words(cls, request: "Request", load: "Load", console: "Console") -> None:
        """Answers `flax-attn words`: prints which words mattered for each class.

        Errors are those of `respond`.
        """
        raise NotImplementedError

    # the page

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """Computes what a page shows of inputs: `compute`, perhaps with more."""
        return self.compute(model, params, inputs)

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        """Replies to a page, whose settings `look` takes into account.

        Raises:
            UsageError: an input that is not of this kind.
        """
        raise NotImplementedError

    def live_inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes of one example by name, for a model that lives in a page.

        Raises:
            UsageError: a task whose inputs need Python.
        """
        sample: Tree = self.sample()
        if isinstance(sample, dict):  # tokens and their lengths
            raise needs_python()
        make: Callable[..., jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct
        return {"inputs": make((1, *sample.shape[1:]), sample.dtype)}

    def class_names(self) -> list[str] | None:
        """Returns the names of what outputs are probabilities of; None for other outputs."""
        return None

    def tokenization(self) -> JsonObject | None:
        """Says how a page makes tokens of a text; None where it need not."""
        return None

    # a finished run

    @classmethod
    @abc.abstractmethod
    def does(cls, run: Record) -> str:
        """Says what the model of a run does, in a few words that begin with a verb."""

    @classmethod
    @abc.abstractmethod
    def sentence(cls, run: Record) -> str:
        """Says what the model of a run does, and how well it does it on test data."""

    @classmethod
    def comparison(cls, run: Record) -> str:
        """Says what the figure of the sentence is to be compared with; empty for nothing."""
        return ""

    @classmethod
    def remarks(cls, run: Record, data: DataSet) -> list[str]:
        """Says after training what the results are to be compared with, and what to try next."""
        return []

    @classmethod
    @abc.abstractmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        """Draws the figures of a run, by name."""

    @classmethod
    def draw_together(cls, runs: list[Record]) -> "dict[str, Figure]":
        """Draws what runs predict of the same examples, by name."""
        raise NotImplementedError

    @classmethod
    @abc.abstractmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Returns an example of a run as its view in the page takes it, without attention."""

    @classmethod
    def beside_examples(cls, run: Record) -> JsonObject:
        """Returns what the view in the page shows of the whole test, beside the examples."""
        return {}

    @classmethod
    def num_examples(cls, run: Record) -> int:
        """Counts the examples of a run that a page may show."""
        return len(run.examples["inputs"])

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        """Returns the attention of an example by name, `(heads, q, k)` without padding.

        Hops stand where heads do, with one query each. Pooling without queries has one.
        """
        return {name: by_heads(name, weights[index]) for name, weights in run.attention.items()}


def to_store(attention: dict[str, Tree]) -> dict[str, Tree]:
    """Attention by the names that the kept test examples have for it."""
    return {f"attention/{name}": weights for name, weights in attention.items()}


def needs_python() -> UsageError:
    """Makes the error for a model that cannot live in a page."""
    return UsageError(f"its texts become tokens in Python; {SERVED}")


def check_no_classes(
    recipe: Recipe, owner: str, names: Sequence[str] = ("class_weights", "label_smoothing")
) -> None:
    """Raises a UsageError for what a recipe says of classes, where a task has none.

    `owner` is what the error goes on from, such as `signals, which have`.
    """
    plain = Recipe()
    for name in names:
        if value := getattr(recipe, name):
            expected = f"{name}={getattr(plain, name)}"
            raise UsageError(f"expected {expected} for {owner} no classes, got {value}")


def outputs_of(prediction: Prediction) -> np.ndarray:
    """Returns the outputs on signals, texts or images, which are an array."""
    assert isinstance(prediction.outputs, np.ndarray)
    return prediction.outputs


def first_attention(prediction: Prediction) -> tuple[str, np.ndarray | None]:
    """Returns the name and the weights, over all inputs, of the first attention; None for none."""
    for name, weights in prediction.attention.items():
        return name, np.asarray(weights)
    return "", None


def first_of(kind: str, shown: int, number: int) -> str:
    """Says what a picture shows that has room for `shown` of `number` inputs."""
    if number > shown:
        return f"the first {shown} of {number} {kind}s"
    return counted(number, kind)


def channels_of(run: Record, index: int) -> JsonObject:
    """Returns inputs, targets and predictions of an example as channels `(channels, t)`."""
    names = ("inputs", "targets", "predictions")
    return {name: numbers(np.atleast_2d(run.examples[name][index].T)) for name in names}


def check_shape(shape: Sequence[Json]) -> None:
    """Raises a ValueError unless a shape that a run keeps is of two whole numbers above 0."""
    if not all(isinstance(number, int) and number > 0 for number in shape):
        raise ValueError(f"got shape {shape}")


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


def for_buckets(rows: Batch, num_buckets: int) -> Batch:
    """Sorts rows by their lengths where there are several buckets, each of like lengths."""
    if num_buckets == 1:
        return rows
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
