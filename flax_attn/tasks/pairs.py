"""Pairs of texts as tokens, and tokens back to text."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flax_attn.data import tokenizers
from flax_attn.data.pairs import Pair
from flax_attn.data.sets import PairData
from flax_attn.data.text import END, PREPROCESSING, START, join_words, pad
from flax_attn.errors import UsageError
from flax_attn.tasks.artifacts import Kept
from flax_attn.types import Batch

FIRST_WORD = 2  # of a vocabulary: before it are padding and the unknown word
Part = tuple[str, bool]  # of a text, as it is written, and whether the model knows it


class PairEncoder(NamedTuple):
    """Texts to tokens of source and target, and tokens of the target back to text.

    The end of sequence is the number after those of the target's tokenizer. It also stands before
    the first token.
    """

    data: PairData
    source: tokenizers.Tokenizer
    target: tokenizers.Tokenizer

    @classmethod
    def fit(cls, data: PairData, pairs: Sequence[Pair]) -> "PairEncoder":
        """Fits tokenizers on pairs."""
        clean = PREPROCESSING[data.preprocessing]
        sources, targets = ([clean(text) for text in texts] for texts in zip(*pairs))
        fit = lambda texts: tokenizers.fit_tokenizer(data.tokenizer, texts, data.vocabulary_size)
        if data.shared_vocabulary:
            shared = fit([*sources, *targets])
            return cls(data, shared, shared)
        return cls(data, fit(sources), fit(targets))

    @classmethod
    def restore(cls, data: PairData, kept: Kept) -> "PairEncoder":
        """Restores the encoder of a run. Raises a ValueError for other sizes than the model's."""
        names = cls.file_names(data)
        restored = [tokenizers.tokenizer_from_json(kept.files[name]) for name in names]
        encoder = cls(data, restored[0], restored[-1])
        check_sizes(encoder.kept.sizes, kept.sizes)
        return encoder

    @staticmethod
    def file_names(data: PairData) -> tuple[str, ...]:
        """Returns the names of the files that hold the tokenizers."""
        names = "tokenizer.json", "target_tokenizer.json"
        return names[:1] if data.shared_vocabulary else names

    @property
    def end(self) -> int:
        """Returns the token that stands for the end of a sequence."""
        return self.target.size

    @property
    def kept(self) -> Kept:
        """Returns the tokenizers, and the fields of the model that they decide."""
        sizes = self.source.size, self.target.size + 1
        named = zip(self.file_names(self.data), (self.source, self.target))
        return Kept(
            sizes=dict(zip(("source_vocabulary_size", "target_vocabulary_size"), sizes)),
            files={name: tokenizer.to_json() for name, tokenizer in named},
        )

    def clean(self, text: str) -> str:
        """Returns the text after preprocessing."""
        return PREPROCESSING[self.data.preprocessing](text)

    def sources(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Encodes sources as tokens `(n, s)` and lengths `(n,)`."""
        prepared = [self.clean(self.data.prepare(text)) for text in texts]
        tokens, lengths = pad([self.source.encode(text) for text in prepared])
        return {"source": tokens, "source_lengths": lengths}

    def rows(self, pairs: Sequence[Pair]) -> Batch:
        """Encodes pairs as rows. Raises a UsageError where some are empty or too long."""
        most, inputs = self.data.max_length, self.sources([pair.source for pair in pairs])
        targets = [self.target.encode(self.clean(pair.target)) for pair in pairs]
        lengths = np.stack([inputs["source_lengths"], [len(target) for target in targets]])
        if unfit := np.flatnonzero(((lengths < 1) | (lengths > most)).any(axis=0)).tolist():
            source, target = lengths[:, unfit[0]]
            raise UsageError(
                f"expected from 1 to data.max_length={most} tokens in source and target, got "
                f"{source} and {target} for '{pairs[unfit[0]].source[:40]}', and {len(unfit)} such "
                f"pairs in all, the longest with {lengths.max()}; raise it, or take them out"
            )
        tokens, target_lengths = pad([[self.end, *target] for target in targets])
        labels, _ = pad([[*target, self.end] for target in targets])
        inputs |= {"target": tokens, "target_lengths": target_lengths}
        return {"inputs": inputs, "targets": labels}

    def source_parts(self, text: str) -> list[Part]:
        """Returns the parts of a source that the model sees."""
        return tokenizers.known_parts(self.source, self.clean(self.data.prepare(text)))

    def source_words(self, text: str) -> list[str]:
        """Returns the parts of a source, in brackets those that the model does not know."""
        return tokenizers.bracketed(self.source_parts(text))

    def target_words(self, tokens: Sequence[int]) -> list[str]:
        """Decodes each token of a target."""
        return [self.target.decode([token]).strip() or " " for token in tokens]

    def write(self, tokens: Sequence[int]) -> str:
        """Decodes a target."""
        text = self.target.decode(tokens)
        return join_words(text) if self.data.preprocessing == "words" else text


def table_of(rows: Sequence[Sequence[str]], width: int) -> np.ndarray:
    """Makes one array of rows of words, filled up with empty ones."""
    return np.array([[*row, *[""] * (width - len(row))] for row in rows], dtype=str)


def words_among(parts: Sequence[Part]) -> list[Part]:
    """Returns the parts of a text without the marks of its start and its end."""
    return [part for part in parts if part[0] not in (START, END)]


def knows_any(parts: Sequence[Part]) -> bool:
    """Returns whether the model knows one of the parts that is more than a space."""
    return any(known and part.strip() for part, known in parts)


def check_sizes(sizes: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Raises a ValueError for tokenizers of other sizes than those that a model was made for."""
    for name, size in sizes.items():
        if size != expected.get(name):
            raise ValueError(
                f"expected tokenizers of the run, with {name} {expected.get(name)}, got {size}"
            )
