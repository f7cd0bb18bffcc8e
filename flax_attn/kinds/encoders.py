"""Texts to the inputs of a model, and tokens back to text."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flax_attn.data import ngrams
from flax_attn.data.pairs import Pair
from flax_attn.data.sets import PairData
from flax_attn.data.sets.kinds import ReadTexts
from flax_attn.data.table import Table
from flax_attn.data.text import END, PREPROCESSING, START, join_words, pad
from flax_attn.data.tokenizers import (
    Tokenizer,
    bracketed,
    fit_tokenizer,
    known_parts,
    tokenizer_from_json,
)
from flax_attn.errors import UsageError
from flax_attn.kinds import replies
from flax_attn.kinds.asking import Asked, check_length, longer, rounded
from flax_attn.kinds.requests import (
    TEXT_COLUMN,
    Request,
    read_table,
    read_texts,
    usable_rows,
    warn,
)
from flax_attn.kinds.task import Kept, Look
from flax_attn.runs.reading import Record
from flax_attn.types import Batch, Json, JsonObject, Tree

MANY_UNKNOWN = 0.4  # of the words of a user's file, a share that is warned of
FIRST_WORD = 2  # of a vocabulary: before it are padding and the unknown word
Part = tuple[str, bool]  # of a text, as it is written, and whether the model knows it


class TextEncoder(NamedTuple):
    """Preprocessed texts to their tokens and lengths, and what else the data set asks for."""

    data: ReadTexts
    tokenizer: Tokenizer
    pairs: Tokenizer | None

    @classmethod
    def fit(cls, data: ReadTexts, texts: Sequence[str]):
        """Fits on preprocessed texts. Raises a UsageError where all of them are empty."""
        if not any(texts):
            raise UsageError(
                "expected texts to train on, but preprocessing leaves nothing of any; choose "
                "another data.preprocessing"
            )
        tokenizer = fit_tokenizer(data.tokenizer, texts, data.vocabulary_size)
        pairs = None
        if data.num_pairs:
            pairs = fit_tokenizer("word", map(ngrams.pairs, texts), data.num_pairs)
        return cls(data, tokenizer, pairs)

    @classmethod
    def restore(cls, data: ReadTexts, kept: Kept):
        """The encoder of a run. Raises a ValueError for other sizes than the model's."""
        pairs = tokenizer_from_json(kept.files["pairs.json"]) if data.num_pairs else None
        encoder = cls(data, tokenizer_from_json(kept.files["tokenizer.json"]), pairs)
        check_sizes(encoder.sizes(), kept.sizes)
        return encoder

    @staticmethod
    def file_names(data: ReadTexts) -> tuple[str, ...]:
        """The names of the files that hold the tokenizers."""
        return ("tokenizer.json", "pairs.json") if data.num_pairs else ("tokenizer.json",)

    def sizes(self) -> dict[str, int]:
        """The fields of the model that the tokenizers decide."""
        sizes = {"vocabulary_size": self.tokenizer.size}
        if self.pairs is not None:
            sizes["num_pairs"] = self.pairs.size
        if self.data.num_ngrams:
            sizes["num_ngrams"] = self.data.num_ngrams
        return sizes

    def files(self) -> dict[str, Json]:
        """The tokenizers as JSON, by the name of the file."""
        files = {"tokenizer.json": self.tokenizer.to_json()}
        return files if self.pairs is None else files | {"pairs.json": self.pairs.to_json()}

    def clean(self, text: str) -> str:
        """The text after preprocessing."""
        return PREPROCESSING[self.data.preprocessing](text)

    def inputs(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Tokens `(n, t)`, lengths `(n,)`, and pairs and n-grams where there are any."""
        tokens, lengths = pad(
            [self.tokenizer.encode(text)[: self.data.max_length] for text in texts]
        )
        inputs = {"tokens": tokens, "lengths": lengths}
        if self.pairs is not None:
            encode = self.pairs.encode
            inputs["pairs"], _ = pad(
                [encode(ngrams.pairs(text)) for text in texts], tokens.shape[1]
            )
        if size := self.data.num_ngrams:
            inputs["ngrams"] = np.zeros(
                (*tokens.shape, ngrams.A_WORD), np.min_scalar_type(size - 1)
            )
            for row, text, length in zip(inputs["ngrams"], texts, lengths):
                row[:length] = ngrams.character_ngrams(self.tokenizer.split(text)[:length], size)
        return inputs

    def encode(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """As `inputs`, of texts that are not yet preprocessed."""
        return self.inputs([self.clean(text) for text in texts])

    def parts(self, text: str) -> list[Part]:
        """The parts of a preprocessed text that the model sees."""
        return known_parts(self.tokenizer, text)[: self.data.max_length]

    def length(self, text: str) -> int:
        """The number of tokens of a text, also of those beyond what the model sees."""
        return len(known_parts(self.tokenizer, self.clean(text)))

    def words(self, text: str) -> list[str]:
        """The parts as pictures show them, in brackets those that the model does not know."""
        return bracketed(self.parts(text))

    def sample(self, number: int) -> dict[str, np.ndarray]:
        """Inputs of the shapes and dtypes that a model is built for, of some rows."""
        shape = number, 2
        inputs = {"tokens": np.zeros(shape, np.int32), "lengths": np.ones(number, np.int32)}
        if self.data.num_pairs:
            inputs["pairs"] = np.zeros(shape, np.int32)
        if self.data.num_ngrams:
            dtype = np.min_scalar_type(self.data.num_ngrams - 1)
            inputs["ngrams"] = np.zeros((*shape, ngrams.A_WORD), dtype)
        return inputs

    def input_shapes(self) -> dict[str, str]:
        """The shapes of the inputs as text, as `jax.export` reads them."""
        shapes = {"tokens": "b, t", "lengths": "b", "pairs": "b, t", "ngrams": "b, t, ..."}
        return {name: shapes[name] for name in self.sample(1)}

    def checked_parts(self, texts: Sequence[str]) -> list[list[Part]]:
        """The parts of each of a user's texts that the model sees.

        Raises:
            UsageError: no text, one without a token, or one of unknown words alone.
        """
        if not texts:
            raise UsageError("expected a text, got none")
        rows: list[list[Part]] = []
        for number, text in enumerate(texts, 1):
            cleaned = self.clean(text)
            parts = self.parts(cleaned)
            which = f", in text {number}" if len(texts) > 1 else ""
            if not text.strip() or not parts:
                left = f", of which '{cleaned[:60]}' is left" if text.strip() else ""
                raise UsageError(
                    f"expected a text with words in it, got {text[:60]!r}{left}{which}"
                )
            if not self.data.num_ngrams and not knows_any(words_among(parts)):
                raise UsageError(
                    f"expected a text with at least one word that the run has seen, got none in "
                    f"{text[:60]!r}{which}"
                )
            rows.append(parts)
        return rows

    def can_read(self, text: str) -> bool:
        """Whether a user's text has a word that the model knows."""
        try:
            self.checked_parts([text])
        except UsageError:
            return False
        return True

    def read(
        self, texts: Sequence[str]
    ) -> tuple[dict[str, np.ndarray], list[list[str]], list[list[bool]]]:
        """The inputs of a user's texts, their tokens, and which of these the model knows.

        Errors are those of `checked_parts`.
        """
        parts = self.checked_parts(texts)
        tokens = [[part for part, _ in row] for row in parts]
        known = [[is_known for _, is_known in row] for row in parts]
        return self.encode(texts), tokens, known

    def rows_of(self, request: Request) -> tuple[Table, list[int], list[str]]:
        """The table of a request, the indices of the rows that can be predicted, and their texts.

        Warns of the others, of unknown words, and of texts that are too long.

        Raises:
            UsageError: no table, or none of its rows can be predicted.
        """
        rows = read_table(request, getattr(self.data, "text_column", TEXT_COLUMN))
        usable = usable_rows(rows.column(), rows.lines, self.checked_parts)
        texts = [rows.column()[i] for i in usable]
        self.warn_of_unknown(rows.column())
        self.warn_of_length(texts)
        return rows, usable, texts

    def texts_of(self, request: Request, example: str) -> list[str]:
        """The texts of a request: as they are given, or the lines of a file that can be predicted.

        Warns of other lines, of unknown words, and of texts that are too long. `example` is a text
        that an error names.

        Raises:
            UsageError: no text, a given text that cannot be predicted, or no line that can.
        """
        texts = read_texts(request, example, getattr(self.data, "text_column", TEXT_COLUMN))
        usable = texts
        if request.source is None:
            self.checked_parts(texts)
        else:
            lines = [line for line, text in enumerate(texts, 1) if text.strip()]
            texts = [texts[line - 1] for line in lines]
            usable = [texts[i] for i in usable_rows(texts, lines, self.checked_parts)]
        self.warn_of_unknown(texts)
        self.warn_of_length(usable)
        return usable

    def warn_of_unknown(self, texts: Sequence[str]) -> None:
        """Warns of texts most of whose words the model does not know."""
        parts = [part for text in texts for part in words_among(self.parts(self.clean(text)))]
        words = [is_known for part, is_known in parts if part.strip()]
        unknown = words.count(False)
        if unknown > MANY_UNKNOWN * len(words):
            share = f"{unknown / len(words):.0%}" if any(words) else "all"
            warn(
                f"warning: {share} of the {len(words):,} words of the texts are unknown to the "
                "run, so its predictions mean little; give texts like those it was trained on"
            )

    def warn_of_length(self, texts: Sequence[str]) -> None:
        """Warns of texts whose end the model does not read."""
        most = self.data.max_length
        for number, text in enumerate(texts, 1):
            if (length := self.length(text)) > most:
                warn(
                    f"warning: text {number} has {length} tokens, and the run reads the first "
                    f"{most}"
                )

    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        """What a model computes of the text that a page asks about, and the reply but the outputs.

        Errors are those of `checked_parts`, and a text that is too long.
        """
        text = asked.words()
        (parts,) = self.checked_parts([text])
        check_length(len(parts))
        encoded = self.encode([text])
        length = encoded["tokens"].shape[1]
        looked = look(longer(encoded, rounded(length)))
        whole = len(self.tokenizer.encode(self.clean(text)))
        cut = f"the model reads the first {length} of {whole} tokens" if whole > length else None
        reply = replies.attended(looked, rounded(length), length) | replies.with_tokens(parts)
        return looked, reply | {"note": cut}

    def examples(self, inputs: Batch, words: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
        """The arrays that a run keeps of the first rows, whose words are these."""
        tokens, lengths = (inputs[key][: len(words)] for key in ("tokens", "lengths"))
        return {"inputs": tokens, "lengths": lengths, "words": table_of(words, tokens.shape[1])}


def example(run: Record, index: int) -> JsonObject:
    """The tokens of a text that a run has kept, and which of them the model knows."""
    length = int(run.examples["lengths"][index])
    tokens = replies.written(run.examples["words"][index, :length])
    known = (run.examples["inputs"][index, :length].ravel() >= FIRST_WORD).tolist()
    return {"tokens": tokens, "known": known}


def within(run: Record, index: int, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights of an example by name, without padding."""
    length = int(run.examples["lengths"][index])
    return {name: matrix[:, :length, :length] for name, matrix in weights.items()}


class PairEncoder(NamedTuple):
    """Texts to tokens of source and target, and tokens of the target back to text.

    The end of sequence is the number after those of the target's tokenizer. It also stands before
    the first token.
    """

    data: PairData
    source: Tokenizer
    target: Tokenizer

    @classmethod
    def fit(cls, data: PairData, pairs: Sequence[Pair]) -> "PairEncoder":
        """The encoder that is fitted on pairs."""
        clean = PREPROCESSING[data.preprocessing]
        sources, targets = ([clean(text) for text in texts] for texts in zip(*pairs))
        fit = lambda texts: fit_tokenizer(data.tokenizer, texts, data.vocabulary_size)
        if data.shared_vocabulary:
            shared = fit([*sources, *targets])
            return cls(data, shared, shared)
        return cls(data, fit(sources), fit(targets))

    @classmethod
    def restore(cls, data: PairData, kept: Kept) -> "PairEncoder":
        """The encoder of a run. Raises a ValueError for other sizes than the model's."""
        source = tokenizer_from_json(kept.files["tokenizer.json"])
        shared = data.shared_vocabulary
        target = source if shared else tokenizer_from_json(kept.files["target_tokenizer.json"])
        encoder = cls(data, source, target)
        check_sizes(encoder.sizes(), kept.sizes)
        return encoder

    @staticmethod
    def file_names(data: PairData) -> tuple[str, ...]:
        """The names of the files that hold the tokenizers."""
        names = "tokenizer.json", "target_tokenizer.json"
        return names[:1] if data.shared_vocabulary else names

    @property
    def end(self) -> int:
        """The token that stands for the end of a sequence."""
        return self.target.size

    def sizes(self) -> dict[str, int]:
        """The fields of the model that the tokenizers decide."""
        return {
            "source_vocabulary_size": self.source.size,
            "target_vocabulary_size": self.target.size + 1,
        }

    def files(self) -> dict[str, Json]:
        """The tokenizers as JSON, by the name of the file."""
        tokenizers = self.source, self.target
        return {
            name: tokenizer.to_json()
            for name, tokenizer in zip(self.file_names(self.data), tokenizers)
        }

    def clean(self, text: str) -> str:
        """The text after preprocessing."""
        return PREPROCESSING[self.data.preprocessing](text)

    def sources(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Tokens `(n, s)` and lengths `(n,)` of sources."""
        prepared = [self.clean(self.data.prepare(text)) for text in texts]
        tokens, lengths = pad([self.source.encode(text) for text in prepared])
        return {"source": tokens, "source_lengths": lengths}

    def rows(self, pairs: Sequence[Pair]) -> Batch:
        """The rows of pairs. Raises a UsageError where some are empty or too long."""
        most, inputs = self.data.max_length, self.sources([pair.source for pair in pairs])
        targets = [self.target.encode(self.clean(pair.target)) for pair in pairs]
        lengths = np.stack([inputs["source_lengths"], [len(target) for target in targets]])
        if unfit := np.flatnonzero(((lengths < 1) | (lengths > most)).any(axis=0)).tolist():
            source, target = lengths[:, unfit[0]]
            raise UsageError(
                f"expected from 1 to data.max_length={most} tokens in source and target, got "
                f"{source} and {target} for "
                f"'{pairs[unfit[0]].source[:40]}', and {len(unfit)} such pairs in all, the "
                f"longest with {lengths.max()}; "
                "raise it, or take them out"
            )
        tokens, target_lengths = pad([[self.end, *target] for target in targets])
        labels, _ = pad([[*target, self.end] for target in targets])
        return {
            "inputs": inputs | {"target": tokens, "target_lengths": target_lengths},
            "targets": labels,
        }

    def source_parts(self, text: str) -> list[Part]:
        """The parts of a source that the model sees."""
        return known_parts(self.source, self.clean(self.data.prepare(text)))

    def source_words(self, text: str) -> list[str]:
        """The parts as pictures show them, in brackets those that the model does not know."""
        return bracketed(self.source_parts(text))

    def target_words(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token of a target."""
        return [self.target.decode([token]).strip() or " " for token in tokens]

    def write(self, tokens: Sequence[int]) -> str:
        """The text of a target."""
        text = self.target.decode(tokens)
        return join_words(text) if self.data.preprocessing == "words" else text


def table_of(rows: Sequence[Sequence[str]], width: int) -> np.ndarray:
    """Makes one array of rows of words, filled up with empty ones."""
    return np.array([[*row, *[""] * (width - len(row))] for row in rows], dtype=str)


def words_among(parts: Sequence[Part]) -> list[Part]:
    """The parts of a text without the marks of its start and its end."""
    return [part for part in parts if part[0] not in (START, END)]


def knows_any(parts: Sequence[Part]) -> bool:
    """Whether the model knows one of the parts that is more than a space."""
    return any(known and part.strip() for part, known in parts)


def check_sizes(sizes: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Raises a ValueError for tokenizers of other sizes than those that a model was made for."""
    for name, size in sizes.items():
        if size != expected.get(name):
            raise ValueError(
                f"expected tokenizers of the run, with {name} {expected.get(name)}, got {size}"
            )
