"""The kinds of data sets: frozen dataclasses, whose fields are the keys under `data` of a config.

Each kind says what `load` returns. A data set of one's own is a subclass of a kind.
"""

import abc
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Array
from msgspec import Meta

from flax_attn.data.raw import Columns, Raw
from flax_attn.schema import LARGEST, NonNegativeInt, PositiveInt, Seed, SmallCount, require

Preprocessing = Literal["news", "news words", "words", "lower", "marked"]
VocabularySize = Annotated[int, Meta(ge=3, le=LARGEST)]  # two are for padding and the unknown


class Training(NamedTuple):
    """The splits that are measured, the batch, and whether the best epoch is kept."""

    evaluate: tuple[str, ...]
    batch_size: int
    keep_best: bool


@dataclass(frozen=True, kw_only=True)
class DataSet(abc.ABC):
    """A data set. Its task is that of its input and its target.

    Attributes:
        topic: what the data are, as errors name it.
        input: `signal`, `image`, `text` or `tokens`.
        target: `signal`, `number`, `classes`, `text` or `next`. A data set with several has a field
            of this name.
        seed: decides the data and their splits, the same for all seeds of a run.
    """

    topic: ClassVar[str] = "other data"
    input: ClassVar[str] = ""
    target: ClassVar[str] = ""

    seed: Seed = 42

    def __post_init__(self) -> None:
        """Raises a UsageError if fields do not go together."""
        shares = [getattr(self, name, 0.0) for name in ("valid_fraction", "test_fraction")]
        require(sum(shares) < 1, "data.valid_fraction and data.test_fraction together below 1")

    def check_training(self, training: Training) -> None:
        """Raises a UsageError if the data cannot be trained on in this way."""
        fit = getattr(self, "valid_fraction", 1.0) or "valid" not in training.evaluate
        require(fit, "data.valid_fraction above 0 with 'valid' in config key 'evaluate'")

    @abc.abstractmethod
    def load(self, manual_dir: Path | None) -> Raw:
        """Returns the splits `train` and `test`, and `valid` where one is held out.

        Raises a UsageError for data that are missing, damaged, or do not make a data set.
        """

    @property
    def task_name(self) -> str:
        """Returns the name of the task, such as `signal-classes`."""
        return f"{self.input}-{self.target}"

    @property
    def num_used(self) -> int | None:
        """Returns how many of the first training examples are trained on; None for all."""
        return None

    @property
    def draws_afresh(self) -> bool:
        """Returns whether every step draws new examples by `draw`."""
        return False

    def draw(self, key: Array, number: int) -> Columns:
        """Draws new examples from a key."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SignalData(DataSet):
    """Signals `(n, t, channels)`, and by default a signal `(n, t, 1)` for each.

    Attributes:
        normalized: whether a run normalizes them.
    """

    topic = "signals"
    input = "signal"
    target = "signal"
    normalized: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int] | None:
        """Returns the length and the channels of the inputs; None where only the data say."""
        return None


@dataclass(frozen=True, kw_only=True)
class ImageData(DataSet):
    """Images `(n, height, width)` in [0, 1], and by default the class of each.

    Attributes:
        light_ink: whether they are light ink on a dark ground. Then a picture to predict that has a
            light ground is inverted.
    """

    topic = "images"
    input = "image"
    target = "classes"
    light_ink: ClassVar[bool] = False

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Returns the height and width of the images; None where only the data say."""
        return None

    def prepare(self, images: np.ndarray) -> np.ndarray:
        """Scales images `(n, height, width)` in [0, 1] where the data set scales its own."""
        return images


@dataclass(frozen=True, kw_only=True)
class Tokens(DataSet):
    """What all data of texts have.

    Attributes:
        preprocessing: what is done to a text before it is cut into tokens.
        tokenizer: `word`, `character` or `bpe`.
        vocabulary_size: tokens at most, with the two for padding and for what is unknown.
        max_length: tokens of a text at most.
        num_buckets: lengths of batches; each is compiled.
        shuffle: whether rows come in a new order in every epoch.
    """

    preprocessing: Preprocessing = "words"
    tokenizer: Literal["word", "character", "bpe"] = "word"
    vocabulary_size: VocabularySize = 5_000
    max_length: PositiveInt = 200
    num_buckets: SmallCount = 1
    shuffle: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.shuffle or self.num_buckets == 1, "data.num_buckets=1 with data.shuffle=False")


@dataclass(frozen=True, kw_only=True)
class ReadTexts(Tokens):
    """Texts that a model reads whole.

    Attributes:
        num_ngrams: rows of a table for the character n-grams of words; 0 for none.
        num_pairs: the number of the most frequent pairs of neighbouring words; 0 for none.
    """

    num_ngrams: NonNegativeInt = 0
    num_pairs: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_ngrams != 1, "data.num_ngrams of 0 (for none) or above 1")
        fit = self.tokenizer == "word" or not (self.num_ngrams or self.num_pairs)
        require(fit, "data.tokenizer=word with data.num_ngrams or data.num_pairs")


@dataclass(frozen=True, kw_only=True)
class TextData(ReadTexts):
    """Texts, and by default the class of each."""

    topic = "texts"
    input = "text"
    target = "classes"


@dataclass(frozen=True, kw_only=True)
class PairData(Tokens):
    """Texts that become other texts.

    Attributes:
        shared_vocabulary: whether one tokenizer serves source and target.
        is_natural: whether the texts are of languages, whose translations BLEU and chrF measure.
    """

    topic = "pairs"
    input = "text"
    target = "text"
    is_natural: ClassVar[bool] = True

    preprocessing: Preprocessing = "lower"
    max_length: PositiveInt = 100
    num_buckets: SmallCount = 4
    shared_vocabulary: bool = False

    @property
    def task_name(self) -> str:  # `target` may be the name of a language
        return "text-text"

    def prepare(self, source: str) -> str:
        """Writes a source of the user's as the data set writes its own."""
        return source
