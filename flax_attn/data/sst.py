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

from flax_attn.data.builders import FilesBuilder, files
from flax_attn.data.files import read_lines
from flax_attn.schema import require
from flax_attn.types import JsonObject

THREE = ("negative", "neutral", "positive")
CLASSES = {3: THREE, 5: ("very negative", *THREE, "very positive")}
ARCHIVE = "trainDevTestTrees_PTB.zip"
LISTED = f"{ARCHIVE} 789539 5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc"
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


class SST(FilesBuilder, skip_registration=True):
    """Sentences of film reviews with the tree of their judged phrases."""

    FILES = files("https://nlp.stanford.edu/sentiment/", LISTED)
    SPLITS = {"train": ("train.txt",), "valid": ("dev.txt",), "test": ("test.txt",)}
    FEATURES = {"tree": tfds.features.Text()}

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> JsonObject:
        if self.paths is not None:
            return super()._split_generators(dl_manager)
        archive = Path(dl_manager.download(self.FILES[ARCHIVE].url))
        with zipfile.ZipFile(archive) as packed:
            content = {s: packed.read(f"trees/{name}") for s, (name,) in self.SPLITS.items()}
        return {split: self._generate_examples(archive, text) for split, text in content.items()}

    def _generate_examples(
        self, path: Path, content: bytes | None = None
    ) -> Iterator[tuple[int, JsonObject]]:
        lines = read_lines(path) if content is None else content.decode("utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            require(phrases(line), f"a tree of labels 0 to 4 and words in {path}, line {number}")
            yield number, {"tree": line}


class Phrase(NamedTuple):
    """Words with a label from 0, very negative, to 4, very positive."""

    words: tuple[str, ...]
    label: int


def phrases(tree: str) -> list[Phrase]:
    """Parses all phrases of a tree, the whole of it first. There are none in a damaged one."""
    parsed: dict[int, Phrase] = {}
    opened: list[tuple[int, int, int]] = []  # place among the phrases, label, first word
    words: list[str] = []
    for number, (label, word) in enumerate(re.findall(r"\(([0-4]) |\)|([^ ()]+)", tree)):
        if label:
            opened.append((number, int(label), len(words)))
        elif word:
            words.append(BRACKETS.get(word) or word)
        elif not opened:
            return []
        else:
            place, own, first = opened.pop()
            parsed[place] = Phrase(tuple(words[first:]), own)
    if opened:
        return []
    return [parsed[place] for place in sorted(parsed)]


def in_classes(label: int, num_classes: int) -> int:
    """Returns a label from 0 to 4 in three classes (0 and 1, 2, 3 and 4) or as it is."""
    return label if num_classes == 5 else (label > 1) + (label > 2)
