"""Data sets of running text, for language models."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from flax_attn.data import recall, toy
from flax_attn.data.files import read_text
from flax_attn.data.raw import Columns, Raw, at_random
from flax_attn.data.sets.kinds import DataSet, Rules, VocabularySize
from flax_attn.files import expanded, sha256
from flax_attn.schema import LARGEST, Count, FilePath, Fraction, require

NUM_BYTES = 258  # with the two for padding and for what is unknown
Letters = Annotated[int, Meta(ge=2, le=len(toy.LETTERS))]


@dataclass(frozen=True, kw_only=True)
class LanguageData(DataSet):
    """Text that a model learns to continue.

    Attributes:
        tokenizer: `character`, or `bytes` for byte pairs.
        vocabulary_size: the largest number of tokens. Padding and what is unknown are two of them.
        max_length: the tokens of a passage, which a model reads at most.
        valid_fraction, test_fraction: shares that validate and test: the end of the text, or lines
            at random.
        by_line: whether every line is a text of its own. Else a passage begins anywhere.
    """

    topic = "a text to continue"
    input = "tokens"
    target = "next"
    by_line: ClassVar[bool] = False

    tokenizer: Literal["character", "bytes"] = "character"
    vocabulary_size: VocabularySize = 512
    max_length: Annotated[int, Meta(ge=2, le=LARGEST)] = 64
    valid_fraction: Fraction = 0.0
    test_fraction: Annotated[float, Meta(gt=0, lt=1)] = 0.1

    def rules(self, evaluate: Collection[str]) -> Rules:
        fit = self.tokenizer == "character" or self.vocabulary_size >= NUM_BYTES
        expected = f"data.vocabulary_size of {NUM_BYTES} or above for data.tokenizer=bytes"
        return super().rules(evaluate) | {expected: fit}

    @property
    def most_repeated(self) -> int:
        """Returns the length of the longest string that can come twice in a passage."""
        start = 1 if self.by_line else 0  # a line follows the end of another
        return (self.max_length - start) // 2

    def scored(self, line: str) -> slice:
        """Returns which characters of a line count in the loss and the accuracy."""
        return slice(None)

    def split(self, text: str) -> dict[str, Columns]:
        """Returns the splits of a text. Raises a UsageError for a text that is too short."""
        fractions = {"test": self.test_fraction, "valid": self.valid_fraction}
        wanted = ["train", *(name for name, share in fractions.items() if share)]
        if self.by_line:
            lines = [line for line in text.split("\n") if line]
            parts = at_random(len(lines), list(fractions.values()), self.seed)
            named = zip((*fractions, "train"), parts)
            splits = {name: "\n".join(lines[i] for i in part) for name, part in named}
        else:
            held_out = self.test_fraction + self.valid_fraction, self.test_fraction
            first, last = (int(len(text) * (1 - share)) for share in held_out)
            splits = {"train": text[:first], "valid": text[first:last], "test": text[last:]}
        is_enough = all(splits[name] for name in wanted)
        require(is_enough, f"enough text for {', '.join(wanted)}, got {len(text)} characters")
        # a text is both: each token is the target of those before it
        return {name: Columns(splits[name], splits[name]) for name in wanted}


@dataclass(frozen=True, kw_only=True)
class Tinyshakespeare(LanguageData):
    """Parts of Shakespeare's plays. By default the last tenth tests, as in nanoGPT."""

    def load(self, manual_dir: Path | None) -> Raw:
        from flax_attn.data import builders, tinyshakespeare  # which take as long to import as jax

        rows, files = builders.load(tinyshakespeare.Tinyshakespeare, ("text",), manual_dir)
        return Raw(self.split(rows["text"][0]["text"]), files)


@dataclass(frozen=True, kw_only=True)
class TextFile(LanguageData):
    """The user's own text, in UTF-8.

    Attributes:
        file: the path of a text, FILE.txt.
    """

    file: FilePath

    def load(self, manual_dir: Path | None) -> Raw:
        path = expanded(self.file)
        text = read_text(path)
        require(text.strip(), f"a text in {self.file}, got an empty file")
        return Raw(self.split(text), {self.file: sha256(path)})


@dataclass(frozen=True, kw_only=True)
class MadeLines(LanguageData):
    """Lines made in code.

    Attributes:
        num_lines: of all splits together.
    """

    num_lines: Count = 20_000

    def _make(self, draw: Callable[[int, int], list[str]]) -> Raw:
        return Raw(self.split("\n".join(draw(self.seed, self.num_lines))))


@dataclass(frozen=True, kw_only=True)
class Names(MadeLines):
    """Names of an invented language. All vowels of a name are of one kind."""

    def load(self, manual_dir: Path | None) -> Raw:
        return self._make(toy.names)


@dataclass(frozen=True, kw_only=True)
class Repeats(MadeLines):
    """Letters at random, each at most once, and the same letters again: `dafdaf`.

    Attributes:
        min_letters, max_letters: of what is repeated.
    """

    by_line: ClassVar[bool] = True

    max_length: Annotated[int, Meta(ge=2, le=LARGEST)] = 50
    min_letters: Letters = 5
    max_letters: Letters = 24

    def rules(self, evaluate: Collection[str]) -> Rules:
        least, most = self.min_letters, self.max_letters
        return super().rules(evaluate) | {
            "data.min_letters of at most data.max_letters": least <= most,
            "data.max_length above twice data.max_letters": self.max_length > 2 * most,
        }

    @property
    def most_repeated(self) -> int:
        return self.max_letters

    def load(self, manual_dir: Path | None) -> Raw:
        sizes = {"min_length": self.min_letters, "max_length": self.max_letters}
        return self._make(lambda seed, number: toy.repeated_letters(seed, number, **sizes))


@dataclass(frozen=True, kw_only=True)
class Recall(MadeLines):
    """Pairs of a key and a value, then each key with its newest value: `d3f8d5f1?f1d5`.

    The values after the question mark are scored, and nothing else.

    Attributes:
        max_keys: the most keys of a line, which has one or more.
        writes: the pairs of each key.
    """

    by_line: ClassVar[bool] = True

    max_keys: Annotated[int, Meta(ge=1, le=len(recall.KEYS))] = 7
    writes: Count = 3

    def rules(self, evaluate: Collection[str]) -> Rules:
        least = 2 * self.max_keys * (self.writes + 1) + 2
        expected = f"data.max_length of at least {least}, a line of data.max_keys"
        return super().rules(evaluate) | {expected: self.max_length >= least}

    def scored(self, line: str) -> slice:
        return slice(line.index(recall.QUESTION) + 2, None, 2)

    def load(self, manual_dir: Path | None) -> Raw:
        def draw(seed: int, number: int) -> list[str]:
            numbers = range(1, self.max_keys + 1)
            made = [
                recall.lines(seed, -(-number // self.max_keys), n, self.writes) for n in numbers
            ]
            return [line for of_equal in zip(*made) for line in of_equal][:number]

        return self._make(draw)
