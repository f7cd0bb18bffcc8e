"""Data sets of texts in classes."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from flax_attn.data import table
from flax_attn.data.sets.kinds import (
    LabelledTexts,
    ReadTexts,
    TextData,
    Texts,
    Training,
    check_fractions,
    check_validation,
)
from flax_attn.data.splits import by_class, taken
from flax_attn.errors import UsageError
from flax_attn.files import expanded
from flax_attn.schema import FilePath, Fraction, require
from flax_attn.types import Tree

if TYPE_CHECKING:
    from flax_attn.data.ag_news import News
    from flax_attn.data.sst import Phrase

TextRows = tuple[Sequence[str], Tree]  # texts, and an array or a list of what stands beside each


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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fractions(self.valid_fraction, self.test_fraction)

    def check_training(self, training: Training) -> None:
        check_validation(self.valid_fraction, training)

    def load(self, manual_dir: Path | None) -> Texts:
        from flax_attn.data import ag_news  # its reader takes as long to import as jax

        names = ("train", "test") if self.file == "official" else (self.file.removesuffix(".csv"),)
        rows, files = ag_news.load_ag_news(names, manual_dir)
        texts = {name: self._texts(name, rows[name], ag_news.CLASSES) for name in names}
        test = texts["test"] if self.file == "official" else None
        shares = self.valid_fraction, self.test_fraction
        return Texts(
            split(*texts[names[0]], shares, self.seed, test), sorted(ag_news.CLASSES), files
        )

    def _texts(self, name: str, rows: "list[News]", classes: Sequence[str]) -> LabelledTexts:
        if self.fields == "title" and not any(news.description for news in rows):
            raise UsageError(
                f"expected titles and descriptions in columns of their own in ag_news/{name}.csv, "
                f"got them joined; get the "
                "file with three columns, or set --config.data.fields='title and description'"
            )
        texts = [news.title for news in rows]
        if self.fields == "title and description":
            texts = [" ".join(filter(None, (news.title, news.description))) for news in rows]
        return texts, [classes[news.label] for news in rows]


@dataclass(frozen=True, kw_only=True)
class SST(TextData):
    """Film reviews by sentiment.

    Attributes:
        num_classes: 3, or 5 as they were labelled.
        phrases: whether training takes all phrases, not the sentences alone.
    """

    num_classes: Literal[3, 5] = 3
    phrases: bool = False

    def load(self, manual_dir: Path | None) -> Texts:
        from flax_attn.data import sst  # its reader takes as long to import as jax

        sentences, files = sst.load_sst(manual_dir)
        classes = sst.CLASSES[self.num_classes]
        splits = {}
        for name, trees in sentences.items():
            phrases = [tree[0] for tree in trees]
            if name == "train" and self.phrases:
                phrases = _distinct([phrase for tree in trees for phrase in tree])
            labels = [classes[sst.in_classes(phrase.label, self.num_classes)] for phrase in phrases]
            splits[name] = [" ".join(phrase.words) for phrase in phrases], labels
        return Texts(splits, classes, files)


def _distinct(phrases: "list[Phrase]") -> "list[Phrase]":
    """Returns every phrase once, in any case, with the rounded mean of its labels."""
    labels: dict[tuple[str, ...], list[int]] = {}
    for phrase in phrases:
        labels.setdefault(tuple(word.lower() for word in phrase.words), []).append(phrase.label)
    kind = type(phrases[0])
    return [kind(words, round(sum(numbers) / len(numbers))) for words, numbers in labels.items()]


@dataclass(frozen=True, kw_only=True)
class TextTable(ReadTexts):
    """The user's own table of texts, with commas, semicolons or tabs between.

    Attributes:
        beside: what stands beside each text. Its column is a field too, such as `label_column`.
        file: a table FILE.csv or FILE.tsv; split in three, or in two with a `test_file`.
        test_file: a table for the test; '' for none.
        text_column: by name, with a header in the first row, or by number from 1.
        valid_fraction, test_fraction: shares that validate and test.
    """

    beside: ClassVar[str]

    file: FilePath
    test_file: str = ""
    text_column: str = "text"
    valid_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fractions(self.valid_fraction, self.test_fraction)
        require(
            self.test_file or self.test_fraction, "data.test_fraction above 0, or a data.test_file"
        )

    def check_training(self, training: Training) -> None:
        check_validation(self.valid_fraction, training)

    def sums(self) -> dict[str, str]:
        """Computes the SHA-256 of the files. Raises a UsageError for one that cannot be read."""
        return {path: table.sha256(expanded(path)) for path in (self.file, self.test_file) if path}

    @abc.abstractmethod
    def rows_in(self, path: str) -> TextRows:
        """Reads the rows of a file. Raises a UsageError for a bad one."""

    def read(self) -> tuple[TextRows, TextRows | None]:
        """Reads the rows of the file, and those of the test file if there is one.

        Raises a UsageError for texts that cannot be learned from, or that cannot be a test.
        """
        rows = self.rows_in(self.file)
        test = self.rows_in(self.test_file) if self.test_file else None
        texts = rows[0]
        if len(set(texts)) == 1 < len(texts):
            raise UsageError(
                f"expected texts that differ in {self.file}, got {texts[0][:60]!r} in every row; "
                "nothing can be learned from it"
            )
        if test is not None and set(test[0]) <= set(texts):
            raise UsageError(
                f"expected texts in data.test_file={self.test_file} that {self.file} does not "
                "have, got none; leave data.test_file out to test on a share of the rows"
            )
        return rows, test

    def check_splits(self, splits: Mapping[str, TextRows], number: int) -> None:
        """Raises a UsageError for a split without rows. `number` is that of the file's."""
        if not all(texts for texts, _ in splits.values()):
            raise UsageError(
                f"expected enough rows in {self.file} for training, validation and test, "
                f"got {number}"
            )


@dataclass(frozen=True, kw_only=True)
class TextCSV(TextTable, TextData):
    """The user's own table of texts and labels, as `TextTable` reads it.

    Attributes:
        label_column: as `text_column`.
    """

    beside = "label"

    label_column: str = "label"

    def load(self, manual_dir: Path | None) -> Texts:
        (texts, labels), test = self.read()
        splits = split(texts, labels, (self.valid_fraction, self.test_fraction), self.seed, test)
        self.check_splits(splits, len(texts))
        return Texts(splits, sorted(set(splits["train"][1])), self.sums())

    def rows_in(self, path: str) -> LabelledTexts:
        return table.read(expanded(path), self.text_column, self.label_column)


def split(
    texts: Sequence[str],
    labels: Sequence[str],
    fractions: tuple[float, float],
    seed: int,
    test: LabelledTexts | None = None,
) -> dict[str, LabelledTexts]:
    """Splits texts alike in every class, as `splits.by_class` does; a given test is kept.

    Raises:
        UsageError: a class with fewer rows than there are splits.
    """
    parts = by_class(labels, fractions, seed, has_test=test is not None)
    splits: dict[str, LabelledTexts] = taken((texts, labels), parts)
    return splits if test is None else splits | {"test": test}
