"""The Stanford Sentiment Treebank: sentences of film reviews, each phrase of them judged.

Source: Socher et al. 2013.

A line is a tree, `(3 (2 It) (4 (2 's) (4 (2 a) (4 hit))))`: a label from 0, very negative, to 4,
very positive, and two parts or a word.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import tensorflow_datasets as tfds

from flax_attn.data.builders import File, FilesBuilder, load
from flax_attn.data.files import read_lines
from flax_attn.errors import UsageError
from flax_attn.types import JsonObject

CLASSES = {
    3: ("negative", "neutral", "positive"),
    5: ("very negative", "negative", "neutral", "positive", "very positive"),
}
ARCHIVE = "trainDevTestTrees_PTB.zip"
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}
MOST_WORDS = 1_000  # of a tree, whose phrases together may have half the square of them


class SST(FilesBuilder, skip_registration=True):
    """Sentences of film reviews with the tree of their judged phrases."""

    FILES = {
        ARCHIVE: File(
            f"https://nlp.stanford.edu/sentiment/{ARCHIVE}",
            789_539,
            "5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
        )
    }
    SPLITS = {"train": ("train.txt",), "valid": ("dev.txt",), "test": ("test.txt",)}
    FEATURES = {"tree": tfds.features.Text()}
    HOMEPAGE = "https://nlp.stanford.edu/sentiment/treebank.html"

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> JsonObject:
        if self.paths is not None:
            return super()._split_generators(dl_manager)
        archive = Path(dl_manager.download(self.FILES[ARCHIVE].url))
        with zipfile.ZipFile(archive) as files:
            content = {split: files.read(f"trees/{name}") for split, (name,) in self.SPLITS.items()}
        return {split: self._generate_examples(archive, text) for split, text in content.items()}

    def _generate_examples(
        self, path: Path, content: bytes | None = None
    ) -> Iterator[tuple[int, JsonObject]]:
        lines = read_lines(path) if content is None else content.decode("utf-8").split("\n")
        trees = list(lines)
        while len(trees) > 1 and not trees[-1]:
            trees.pop()
        for number, line in enumerate(trees or [""], 1):
            try:
                phrases(line)
            except ValueError as error:
                raise UsageError(
                    f"expected a tree of labels 0 to 4 and words in {path}, line {number} "
                    f"({error}); get the file again"
                ) from error
            yield number, {"tree": line}


class Phrase(NamedTuple):
    """Words with a label from 0, very negative, to 4, very positive."""

    words: tuple[str, ...]
    label: int


def load_sst(manual_dir: Path | None) -> tuple[dict[str, list[list[Phrase]]], dict[str, str]]:
    """The phrases of every sentence by split, and the sums of the files.

    The whole sentence comes first.

    Errors are those of `builders.load`.
    """
    rows, sums = load(SST, ("train", "valid", "test"), manual_dir)
    return {
        split: [phrases(row["tree"]) for row in of_split] for split, of_split in rows.items()
    }, sums


def phrases(tree: str) -> list[Phrase]:
    """All phrases of a tree, the whole of it first. Raises a ValueError where it is none."""
    all_phrases: list[Phrase | None] = []
    opened: list[
        tuple[int, int, int, list[str]]
    ] = []  # place among the phrases, label, first word, and the kinds of its parts
    words: list[str] = []
    tokens = re.findall(r"\(|\)|[^ ()]+", tree)
    i = 0
    while i < len(tokens):
        if all_phrases and not opened:
            raise ValueError(
                "more than one tree"
                if tokens[i] == "("
                else f"'{tokens[i]}' outside of the brackets"
            )
        if tokens[i] == "(":
            if i + 1 >= len(tokens) or tokens[i + 1] not in ("0", "1", "2", "3", "4"):
                raise ValueError(f"no label after bracket {len(all_phrases) + 1}")
            if opened:
                opened[-1][-1].append("part")
            opened.append((len(all_phrases), int(tokens[i + 1]), len(words), []))
            all_phrases.append(None)
            i += 2
            continue
        if not opened:
            raise ValueError(f"'{tokens[i]}' outside of the brackets")
        if tokens[i] == ")":
            bracket, label, first, parts = opened.pop()
            if parts not in (["word"], ["part", "part"]):
                raise ValueError(f"bracket {bracket + 1} holds neither one word nor two parts")
            all_phrases[bracket] = Phrase(tuple(words[first:]), label)
        else:
            opened[-1][-1].append("word")
            words.append(BRACKETS.get(tokens[i]) or tokens[i])
            if len(words) > MOST_WORDS:
                raise ValueError(f"more than {MOST_WORDS:,} words")
        i += 1
    if opened or not all_phrases:
        raise ValueError("a bracket is not closed" if opened else "no bracket")
    return [phrase for phrase in all_phrases if phrase is not None]


def in_classes(label: int, num_classes: int) -> int:
    """A label from 0 to 4 in three classes (0 and 1, 2, 3 and 4) or as it is."""
    return label if num_classes == 5 else (label > 1) + (label > 2)
