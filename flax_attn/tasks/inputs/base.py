"""What every input of a task offers."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import numpy as np

from flax_attn.data.raw import Raw
from flax_attn.errors import counted
from flax_attn.models.forward import Inputs
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies
from flax_attn.tasks.artifacts import Kept, Look, Prediction
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.baselines import Features
from flax_attn.tasks.requests import Request
from flax_attn.types import JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure
    from flax_attn.data.table import Table

Data = Any  # the data set, of the class that an input is for
SERVED = "flax-attn explore RUN asks it"


class Encoded(NamedTuple):
    """The user's inputs as arrays, and of texts their tokens, and which of them the model knows."""

    arrays: Inputs
    tokens: list[list[str]] = []
    known: list[list[bool]] = []


class Requested(NamedTuple):
    """The inputs of `flax-attn predict`, a name for each, and the table that they stand in.

    Attributes:
        usable: rows of the table.
        labels: what a file says of each input, such as its class; '' where it says nothing.
    """

    names: list[str]
    inputs: UserInput
    table: "Table | None" = None
    usable: Sequence[int] = ()
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Input(abc.ABC):
    """One kind of input: from what a user has to the arrays of a model, and back to pictures.

    Attributes:
        name: in run directories and pages.
        noun: several of them, in a sentence.
        places: what attention weighs in one, in JSON.
        num_examples: how many test examples a run shows.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    places: ClassVar[str] = "weights"
    num_examples: ClassVar[int] = 16

    data: Data

    @classmethod
    @abc.abstractmethod
    def fit(cls, data: Data, raw: Raw, with_targets: bool) -> "Input":
        """Fits on the training split; `with_targets` where targets share the units of inputs."""

    @classmethod
    @abc.abstractmethod
    def restore(cls, data: Data, kept: Kept) -> "Input":
        """Restores what `fit` has found from the run directory."""

    @classmethod
    def file_names(cls, data: Data) -> tuple[str, ...]:
        """Returns the names of further files of the run directory that `restore` needs."""
        return ()

    @property
    @abc.abstractmethod
    def kept(self) -> Kept:
        """Returns what the inputs of the training split decided."""

    @abc.abstractmethod
    def encode(self, raw: UserInput) -> Inputs:
        """Returns raw inputs of a data set as arrays."""

    def normalize(self, arrays: Inputs) -> Inputs:
        """Returns encoded arrays as the model takes them. Pure."""
        return arrays

    @abc.abstractmethod
    def sample(self, number: int) -> Inputs:
        """Returns inputs of the shapes and dtypes that a model is built for."""

    def to_size(self, arrays: Inputs) -> Inputs:
        """Pads encoded arrays to one of a few sizes, for which a model is compiled."""
        return arrays

    def of_sizes(self, number: int, longest: int) -> list[Inputs]:
        """Returns a sample of each size up to a length."""
        return [self.sample(number)]

    @abc.abstractmethod
    def shapes(self) -> Tree:
        """Returns the shapes of the arrays of `encode`, as `jax.export` reads them.

        A letter is a size that may differ: `b` rows of the length `t`, or `s` of sources.
        """

    def live_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes of one example by name, for a model that lives in a page."""
        sample = self.sample(1)
        return {"inputs": jax.ShapeDtypeStruct(sample.shape, sample.dtype)}

    def tokenization(self) -> JsonObject | None:
        """Returns how a page makes tokens of a text; None where it need not."""
        return None

    @abc.abstractmethod
    def read(self, inputs: UserInput) -> Encoded:
        """Encodes a user's inputs. Raises a UsageError for inputs of another kind."""

    def covered(self, row: np.ndarray) -> dict[str, np.ndarray]:
        """Returns an input with one part after another covered, by the name of the part."""
        raise NotImplementedError

    @abc.abstractmethod
    def requested(self, request: Request) -> Requested:
        """Reads the inputs of a command."""

    @abc.abstractmethod
    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        """Computes what a page asks about; returns it with the reply, without outputs."""

    def tested(self, raw: UserInput, arrays: Inputs) -> dict[str, np.ndarray]:
        """Returns the arrays that a run keeps of its first test examples."""
        return {"inputs": np.asarray(arrays)}

    def features(self, train: UserInput, test: UserInput) -> Features | None:
        """Computes numbers for a simple model by scikit-learn; None for inputs without any."""
        return None

    @classmethod
    @abc.abstractmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Returns the input of a test example as a page draws it."""

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        """Returns the attention of an example by name, `(heads, q, k)` without padding.

        Hops stand where heads do, with one query each.
        """
        named = run.attention.items()
        return {name: replies.by_heads(name, weights[index]) for name, weights in named}

    @classmethod
    def draw_examples(
        cls, run: Record, name: str, weights: np.ndarray, verdicts: list[tuple[str, str]]
    ) -> "dict[str, Figure]":
        """Draws an attention on test examples, each with a verdict and its colour."""
        return {}

    @abc.abstractmethod
    def draw(
        self, inputs: UserInput, prediction: Prediction, verdicts: list[tuple[str, str]], name: str
    ) -> "Figure":
        """Draws a user's inputs with the verdict of each and the first attention."""


def title_of(number: int, shown: int, noun: str) -> str:
    """Returns how many of some inputs a picture shows."""
    title = counted(number, noun)
    return f"the first {shown} of {title}" if number > shown else title
