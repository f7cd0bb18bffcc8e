"""Data sets of texts, with the class or a number of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from flax_attn.data import table
from flax_attn.data.raw import ALL, Columns, Raw, complete
from flax_attn.data.sets.kinds import TextData
from flax_attn.data.sets.own import Given, OwnData
from flax_attn.files import expanded, sha256
from flax_attn.schema import Fraction, require
from flax_attn.types import JsonObject

if TYPE_CHECKING:
    from flax_attn.data.sst import Phrase


@dataclass(frozen=True, kw_only=True)
class AGNews(TextData):
    """News in four classes.

    Attributes:
        file: the file that is split in three, or `official` for the training file split in two and
            the test file.
        fields: `title`, or `title and description`.
        valid_fraction, test_fraction: shares that validate and test.
    """

    file: Literal["test.csv", "train.csv", "official"] = "official"
    fields: Literal["title", "title and description"] = "title and description"
    valid_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.0

    def load(self, manual_dir: Path | None) -> Raw:
        from flax_attn.data import ag_news, builders  # which take as long to import as jax

        names = ("train", "test") if self.file == "official" else (self.file.removesuffix(".csv"),)
        rows, files = builders.load(ag_news.AGNews, names, manual_dir)
        splits = {name: self._texts(name, rows[name], ag_news.CLASSES) for name in names}
        splits = splits if self.file == "official" else {ALL: splits[names[0]]}
        shares = self.valid_fraction, self.test_fraction
        splits = complete(splits, self.target, *shares, self.seed)
        return Raw(splits, files, sorted(ag_news.CLASSES))

    def _texts(self, name: str, rows: list[JsonObject], classes: Sequence[str]) -> Columns:
        fit = self.fields != "title" or any(news["description"] for news in rows)
        require(fit, f"titles in a column of their own in ag_news/{name}.csv, or other data.fields")
        fields = self.fields.split(" and ")
        texts = [" ".join(news[field] for field in fields if news[field]) for news in rows]
        return Columns(texts, [classes[news["label"]] for news in rows])


@dataclass(frozen=True, kw_only=True)
class SST(TextData):
    """Film reviews by sentiment.

    Attributes:
        num_classes: 3, or 5 as they were labelled.
        phrases: whether training takes all phrases, not the sentences alone.
    """

    num_classes: Literal[3, 5] = 3
    phrases: bool = False

    def load(self, manual_dir: Path | None) -> Raw:
        from flax_attn.data import builders, sst  # which take as long to import as jax

        rows, files = builders.load(sst.SST, ("train", "valid", "test"), manual_dir)
        classes = sst.CLASSES[self.num_classes]
        splits = {}
        for name, sentences in rows.items():
            trees = [sst.phrases(row["tree"]) for row in sentences]  # the whole of each first
            phrases = [tree[0] for tree in trees]
            if name == "train" and self.phrases:
                phrases = _distinct([phrase for tree in trees for phrase in tree])
            labels = [classes[sst.in_classes(phrase.label, self.num_classes)] for phrase in phrases]
            splits[name] = Columns([" ".join(phrase.words) for phrase in phrases], labels)
        return Raw(splits, files, classes)


def _distinct(phrases: "list[Phrase]") -> "list[Phrase]":
    """Returns every phrase once, in any case, with the rounded mean of its labels."""
    labels: dict[tuple[str, ...], list[int]] = {}
    for phrase in phrases:
        labels.setdefault(tuple(word.lower() for word in phrase.words), []).append(phrase.label)
    kind = type(phrases[0])
    return [kind(words, round(sum(numbers) / len(numbers))) for words, numbers in labels.items()]


@dataclass(frozen=True, kw_only=True)
class TextCSV(OwnData, TextData):
    """The user's own table of texts and labels, with commas, semicolons or tabs between.

    Attributes:
        text_column: by name, with a header in the first row, or by number from 1.
        label_column: as `text_column`.
    """

    text_column: str = "text"
    label_column: str = "label"

    def given(self, name: str) -> Given:
        path = expanded(name)
        rows = Columns(*table.read(path, self.text_column, self.label_column))
        return Given({ALL: rows}, sha256(path))


@dataclass(frozen=True, kw_only=True)
class NumberCSV(OwnData, TextData):
    """The user's own table of texts and numbers, as that of `TextCSV`.

    Attributes:
        text_column: by name, with a header in the first row, or by number from 1.
        number_column: as `text_column`.
    """

    target = "number"

    text_column: str = "text"
    number_column: str = "number"

    def given(self, name: str) -> Given:
        path = expanded(name)
        texts, numbers = table.read_numbers(path, self.text_column, self.number_column)
        return Given({ALL: Columns(texts, np.array(numbers, np.float32))}, sha256(path))
