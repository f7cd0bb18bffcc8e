"""Data sets of pairs of texts."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from flax_attn.data import dates, pairs, toy
from flax_attn.data.pairs import Pair
from flax_attn.data.raw import SPLITS, Columns, Raw
from flax_attn.data.sets.kinds import PairData, Rules
from flax_attn.data.text import replace
from flax_attn.files import expanded, sha256
from flax_attn.schema import Count, FilePath, NonNegativeInt, PositiveInt, SmallCount, require

MANY = 10  # letters in a word; no run draws all such words
LanguageCode = Literal["en", "de", "fr"]
HeldOut = Annotated[float, Meta(gt=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class MadePairs(PairData):
    """Pairs made in code, whose answers are known."""

    num_train: Count = 10_000
    num_valid: Count = 500
    num_test: Count = 1_000

    @property
    def is_natural(self) -> bool:
        return False

    def _split(self, draw: Callable[[int, int], list[Pair]], most: int) -> Raw:
        """Splits pairs of `draw(seed, number)`, of which there are `most`, or fewer.

        No two splits have a source in common.
        """
        counts = {"train": self.num_train, "valid": self.num_valid, "test": self.num_test}
        distinct: list[Pair] = []
        if (wanted := sum(counts.values())) <= most:
            distinct = list(dict.fromkeys(draw(self.seed, 2 * wanted)))
            most = len(distinct)
        require(wanted <= most, f"at most the {most:,} examples that there are, got {counts}")
        ends = np.cumsum([0, *counts.values()])
        split = zip(counts, ends, ends[1:])
        return Raw({name: columns_of(distinct[first:last]) for name, first, last in split})


@dataclass(frozen=True, kw_only=True)
class Reverse(MadePairs):
    """Words of letters, which become the same letters in reverse."""

    rules_of_preparing = (replace(" ", ""), replace(r"(\S)(?=\S)", r"\1 "))

    min_letters: SmallCount = 3
    max_letters: SmallCount = 12

    def rules(self, evaluate: Collection[str]) -> Rules:
        ordered = self.min_letters <= self.max_letters
        return super().rules(evaluate) | {"data.min_letters of at most data.max_letters": ordered}

    def prepare(self, source: str) -> str:
        """Puts spaces between letters, so `abc` is the same as `a b c`."""
        return " ".join(source.replace(" ", ""))

    def load(self, manual_dir: Path | None) -> Raw:
        sizes = {"min_length": self.min_letters, "max_length": self.max_letters}
        draw = lambda seed, number: toy.reversed_letters(seed, number, **sizes)
        lengths = range(self.min_letters, min(self.max_letters, self.min_letters + MANY) + 1)
        return self._split(draw, sum(len(toy.LETTERS) ** min(length, MANY) for length in lengths))


@dataclass(frozen=True, kw_only=True)
class Dates(MadePairs):
    """Dates in words, which become `yyyy-mm-dd`."""

    def load(self, manual_dir: Path | None) -> Raw:
        num_days = (dates.LAST - dates.FIRST).days + 1
        return self._split(dates.generate, num_days * len(dates.FORMS))


@dataclass(frozen=True, kw_only=True)
class Multi30k(PairData):
    """Captions of pictures in English, German and French.

    Attributes:
        source, target: languages.
        max_words: leave out pairs with more words on a side; 0 for all.
        num_train: use the first pairs only, this many; 0 for all.
    """

    source: LanguageCode = "de"
    target: LanguageCode = "en"
    max_words: NonNegativeInt = 0
    num_train: NonNegativeInt = 0

    def rules(self, evaluate: Collection[str]) -> Rules:
        differ = self.source != self.target
        return super().rules(evaluate) | {"two languages as data.source and data.target": differ}

    def load(self, manual_dir: Path | None) -> Raw:
        from flax_attn.data import builders, multi30k  # which take as long to import as jax

        languages, splits = (self.source, self.target), {}
        names = tuple(f"{name}_{language}" for name in SPLITS for language in languages)
        rows, files = builders.load(multi30k.Multi30k, names, manual_dir)
        for name in SPLITS:
            texts = [[row["text"] for row in rows[f"{name}_{language}"]] for language in languages]
            got = " and ".join(f"{len(own)} in {of}" for own, of in zip(texts, languages))
            are_alike = len(texts[0]) == len(texts[1])
            require(are_alike, f"as many lines in both files of the {name} split, got {got}")
            splits[name] = [Pair(*both) for both in zip(*texts)]
        if self.max_words:
            has_few = lambda pair: max(len(text.split()) for text in pair) <= self.max_words
            splits = {name: list(filter(has_few, pairs)) for name, pairs in splits.items()}
            require(all(splits.values()), f"captions of at most {self.max_words} words, got none")
        splits |= {"train": splits["train"][: self.num_train or None]}
        return Raw({name: columns_of(pairs) for name, pairs in splits.items()}, files)


@dataclass(frozen=True, kw_only=True)
class PairsTSV(PairData):
    """The user's own table of pairs, one a row, with tabs, commas or semicolons between.

    Attributes:
        file: a table without a header, FILE.tsv or FILE.csv.
        source_column, target_column: numbers from 1.
        valid_fraction, test_fraction: shares of the sources that validate and test.
    """

    file: FilePath
    source_column: PositiveInt = 1
    target_column: PositiveInt = 2
    valid_fraction: HeldOut = 0.05
    test_fraction: HeldOut = 0.05

    def rules(self, evaluate: Collection[str]) -> Rules:
        differ = self.source_column != self.target_column
        expected = "two columns as data.source_column and data.target_column"
        return super().rules(evaluate) | {expected: differ}

    @property
    def is_natural(self) -> bool:
        return self.tokenizer != "character"  # pairs of words, of which there is one right answer

    def rows_in(self, name: str) -> Columns:
        """Reads all pairs of a file."""
        return columns_of(pairs.read(expanded(name), self.source_column, self.target_column))

    def load(self, manual_dir: Path | None) -> Raw:
        """Splits the pairs in three at random, each once, and all of a source in one part."""
        path = expanded(self.file)
        by_source: dict[str, dict[Pair, None]] = {}
        for pair in pairs.read(path, self.source_column, self.target_column):
            by_source.setdefault(pair.source, {})[pair] = None
        groups = list(by_source.values())
        shares = self.valid_fraction, self.test_fraction
        num_valid, num_test = (max(1, round(share * len(groups))) for share in shares)
        is_enough = num_valid + num_test < len(groups)
        require(is_enough, f"more sources that differ in {self.file}, got {len(groups)}")
        order = np.random.default_rng(self.seed).permutation(len(groups))
        parts = np.split(order, [num_valid, num_valid + num_test])
        rows = (columns_of([pair for i in part for pair in groups[i]]) for part in parts)
        splits: dict[str, Columns] = dict(zip(("valid", "test", "train"), rows))
        texts = [text for rows in splits.values() for text in (*rows.inputs, *rows.targets)]
        is_lowered = self.preprocessing != "cased" and any(text != text.lower() for text in texts)
        notes = ["letters are lower-cased; --data.preprocessing=cased keeps their case"]
        return Raw(splits, {self.file: sha256(path)}, notes=notes * is_lowered)


def columns_of(pairs: Sequence[Pair]) -> Columns:
    """Returns the sources and the targets of pairs."""
    return Columns([pair.source for pair in pairs], [pair.target for pair in pairs])
