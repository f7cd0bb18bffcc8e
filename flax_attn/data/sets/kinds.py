"""The kinds of data sets: frozen dataclasses, whose fields are the keys under `data` of a config.

Each kind says what `load` returns. A data set of one's own is a subclass of a kind.
"""

import abc
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Array
from msgspec import Meta

from flax_attn.data.raw import Columns, Raw
from flax_attn.data.text import Rule
from flax_attn.schema import LARGEST, NonNegativeInt, PositiveInt, Seed, SmallCount

Preprocessing = Literal["news", "news words", "words", "lower", "cased", "marked"]
Rules = dict[str, bool]  # whether each holds, by what it expects
VocabularySize = Annotated[int, Meta(ge=3, le=LARGEST)]  # two are for padding and the unknown


@dataclass(frozen=True, kw_only=True)
class DataSet(abc.ABC):
    """A data set. Its task is that of its input and its target.

    Attributes:
        topic: what the data are, as errors name it.
        input: `signal`, `image`, `text` or `tokens`.
        target: `signal`, `number`, `classes`, `text` or `next`. A data set with several has a field
            of this name.
        seed: decides the data and their splits, the same for all seeds of a run.
        subset: how many of the first training examples are trained on; 0 for all.
        fresh: whether every step draws new examples by `draw`.
    """

    topic: ClassVar[str] = "other data"
    input: ClassVar[str] = ""
    target: ClassVar[str] = ""
    subset: ClassVar[int] = 0
    fresh: ClassVar[bool] = False

    seed: Seed = 42

    def rules(self, evaluate: Collection[str]) -> Rules:
        """Returns the rules between fields, of data on which the splits `evaluate` are measured."""
        valid, test = (getattr(self, f"{name}_fraction", 0.0) for name in ("valid", "test"))
        is_held_out = valid > 0 or not hasattr(self, "valid_fraction")
        return {
            "data.valid_fraction and data.test_fraction together below 1": valid + test < 1,
            "data.valid_fraction above 0 with 'valid' in config key 'evaluate'": (
                is_held_out or "valid" not in evaluate
            ),
        }

    @abc.abstractmethod
    def load(self, manual_dir: Path | None) -> Raw:
        """Returns the splits `train` and `test`, and `valid` where one is held out.

        Raises a UsageError for data that are missing, damaged, or do not make a data set.
        """

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


@dataclass(frozen=True, kw_only=True)
class ImageData(DataSet):
    """Images `(n, height, width)` or, in colour, `(n, height, width, 3)`, numbers in [0, 1].

    By default, each has a class.

    Attributes:
        light_ink: whether they are light ink on a dark ground. Then a picture to predict that has a
            light ground is inverted.
    """

    topic = "images"
    input = "image"
    target = "classes"
    light_ink: ClassVar[bool] = False

    def prepare(self, images: np.ndarray) -> np.ndarray:
        """Scales images in [0, 1] where the data set scales its own."""
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

    def rules(self, evaluate: Collection[str]) -> Rules:
        in_order = "data.num_buckets=1 with data.shuffle=False"
        return super().rules(evaluate) | {in_order: self.shuffle or self.num_buckets == 1}


@dataclass(frozen=True, kw_only=True)
class ReadTexts(Tokens):
    """Texts that a model reads whole.

    Attributes:
        num_ngrams: rows of a table for the character n-grams of words; 0 for none.
        num_pairs: the number of the most frequent pairs of neighbouring words; 0 for none.
    """

    num_ngrams: NonNegativeInt = 0
    num_pairs: NonNegativeInt = 0

    def rules(self, evaluate: Collection[str]) -> Rules:
        return super().rules(evaluate) | {
            "data.num_ngrams of 0 (for none) or above 1": self.num_ngrams != 1,
            "data.tokenizer=word with data.num_ngrams or data.num_pairs": (
                self.tokenizer == "word" or not (self.num_ngrams or self.num_pairs)
            ),
        }


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
    """

    topic = "pairs"
    rules_of_preparing: ClassVar[Sequence[Rule]] = ()  # those of `prepare`
    input = "text"
    target = "text"

    preprocessing: Preprocessing = "lower"
    max_length: PositiveInt = 100
    num_buckets: SmallCount = 4
    shared_vocabulary: bool = False

    @property
    def is_natural(self) -> bool:
        """Returns whether texts are of languages, whose translations BLEU and chrF measure."""
        return True

    def prepare(self, source: str) -> str:
        """Writes a source of the user's as the data set writes its own."""
        return source
