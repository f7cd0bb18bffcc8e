"""Texts as tokens, by a tokenizer that is fitted on the training split alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np

from flax_attn.analysis.token_weights import of_hops
from flax_attn.data import ngrams, tokenizers
from flax_attn.data.raw import Raw
from flax_attn.data.sets.kinds import ReadTexts
from flax_attn.data.text import (
    END,
    PREPROCESSING,
    RULES,
    START,
    UNESCAPE,
    Rule,
    cleaned,
    pad,
    rules_of_javascript,
)
from flax_attn.data.tokenizers import Tokenizer
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs
from flax_attn.models.sizes import lengths_to, longer, rounded
from flax_attn.runs.reading import Record
from flax_attn.tasks import baselines, replies, requests
from flax_attn.tasks.artifacts import Kept, Look, Prediction, first_attention
from flax_attn.tasks.asking import Asked, check_length
from flax_attn.tasks.baselines import Features
from flax_attn.tasks.inputs.base import SERVED, Encoded, Input, Requested, title_of
from flax_attn.tasks.token_rows import STRONG, token_weights
from flax_attn.types import JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure

FIRST_WORD = 2  # of a vocabulary: before it are padding and the unknown word
MANY_UNKNOWN = 0.4  # share of the words of a user's file that is warned of
EXAMPLE = '"The final starts next week."'

Part = tuple[str, bool]  # of a text, as it is written, and whether the model knows it


@dataclass(frozen=True)
class Texts(Input):
    """Texts, read whole: tokens, lengths, and pairs and n-grams where the data set asks for them.

    `pairs` is the tokenizer of the most frequent pairs of neighbouring words.
    """

    name = "text"
    noun = "texts"

    data: ReadTexts
    tokenizer: tokenizers.Tokenizer
    pairs: tokenizers.Tokenizer | None

    @classmethod
    def fit(cls, data: ReadTexts, raw: Raw, with_targets: bool) -> "Texts":
        clean = PREPROCESSING[data.preprocessing]
        texts = [clean(text) for text in raw.splits["train"].inputs]
        if not any(texts):
            raise UsageError(
                "expected texts to train on, but preprocessing leaves nothing of any; choose "
                "another data.preprocessing"
            )
        tokenizer = tokenizers.fit_tokenizer(data.tokenizer, texts, data.vocabulary_size)
        pairs = None
        if data.num_pairs:
            pairs = tokenizers.fit_tokenizer("word", map(ngrams.pairs, texts), data.num_pairs)
        return cls(data, tokenizer, pairs)

    @classmethod
    def restore(cls, data: ReadTexts, kept: Kept) -> "Texts":
        pairs = tokenizers.tokenizer_from_json(kept.files["pairs.json"]) if data.num_pairs else None
        restored = cls(data, tokenizers.tokenizer_from_json(kept.files["tokenizer.json"]), pairs)
        check_sizes(restored.kept.sizes, kept.sizes)
        return restored

    @classmethod
    def file_names(cls, data: ReadTexts) -> tuple[str, ...]:
        return ("tokenizer.json", "pairs.json") if data.num_pairs else ("tokenizer.json",)

    @property
    def kept(self) -> Kept:
        sizes = {"vocabulary_size": self.tokenizer.size}
        files = {"tokenizer.json": self.tokenizer.to_json()}
        if self.pairs is not None:
            sizes["num_pairs"], files["pairs.json"] = self.pairs.size, self.pairs.to_json()
        if self.data.num_ngrams:
            sizes["num_ngrams"] = self.data.num_ngrams
        return Kept({}, sizes, files)

    def clean(self, text: str) -> str:
        """Returns the text after preprocessing."""
        return cleaned(self.data.preprocessing, text)

    def encode(self, raw: UserInput) -> Inputs:
        return self.inputs([self.clean(text) for text in raw])

    def inputs(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Returns preprocessed texts as `tokens` `(n, t)`, `lengths` `(n,)`, `pairs`, `ngrams`."""
        most = self.data.max_length
        tokens, lengths = pad([self.tokenizer.encode(text)[:most] for text in texts])
        inputs = {"tokens": tokens, "lengths": lengths}
        if self.pairs is not None:
            pairs = [self.pairs.encode(ngrams.pairs(text)) for text in texts]
            inputs["pairs"], _ = pad(pairs, tokens.shape[1])  # (n, t)
        if size := self.data.num_ngrams:
            shape = *tokens.shape, ngrams.A_WORD
            inputs["ngrams"] = np.zeros(shape, np.min_scalar_type(size - 1))  # (n, t, A_WORD)
            for row, text, length in zip(inputs["ngrams"], texts, lengths):
                row[:length] = ngrams.character_ngrams(self.tokenizer.split(text)[:length], size)
        return inputs

    def parts(self, text: str) -> list[Part]:
        """Returns the parts of a preprocessed text that the model sees."""
        return tokenizers.known_parts(self.tokenizer, text)[: self.data.max_length]

    def length(self, text: str) -> int:
        """Returns the number of tokens of a text, also of those beyond what the model sees."""
        return len(tokenizers.known_parts(self.tokenizer, self.clean(text)))

    def sample(self, number: int) -> dict[str, np.ndarray]:
        shape = number, 2
        inputs = {"tokens": np.zeros(shape, np.int32), "lengths": np.ones(number, np.int32)}
        if self.data.num_pairs:
            inputs["pairs"] = np.zeros(shape, np.int32)
        if self.data.num_ngrams:
            dtype = np.min_scalar_type(self.data.num_ngrams - 1)
            inputs["ngrams"] = np.zeros((*shape, ngrams.A_WORD), dtype)
        return inputs

    def to_size(self, arrays: Inputs) -> Inputs:
        length = arrays["tokens"].shape[1]
        return longer(arrays, min(rounded(length), self.data.max_length))

    def of_sizes(self, number: int, longest: int) -> list[Inputs]:
        sample, most = self.sample(number), self.data.max_length
        return [longer(sample, min(width, most)) for width in lengths_to(min(longest, most))]

    def live_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        if self.data.num_pairs or self.data.num_ngrams:
            raise UsageError(f"it reads pairs and parts of words, which Python makes; {SERVED}")
        return live_shapes("tokens", "lengths", self.data.max_length)

    def tokenization(self) -> JsonObject:
        most = {"most": self.data.max_length, "cut": True, "ends": [START, END]}
        return reading(self.tokenizer, RULES[self.data.preprocessing]) | most

    def shapes(self) -> dict[str, str]:
        shapes = {"tokens": "b, t", "lengths": "b", "pairs": "b, t", "ngrams": "b, t, ..."}
        return {name: shapes[name] for name in self.sample(1)}

    def checked_parts(self, texts: Sequence[str]) -> list[list[Part]]:
        """Returns the parts of each of a user's texts that the model sees.

        Raises:
            UsageError: a text without a token, or of unknown words alone.
        """
        rows = [self.parts(self.clean(text)) for text in texts]
        for number, (text, parts) in enumerate(zip(texts, rows), 1):
            if not parts or not (self.data.num_ngrams or knows_any(words_among(parts))):
                words = "at least one word that the run has seen, got none" if parts else "words"
                which = f"text {number}, " if len(texts) > 1 else ""
                raise UsageError(f"expected a text with {words} in {which}{text[:60]!r}")
        return rows

    def can_read(self, text: str) -> bool:
        """Returns whether a user's text has a word that the model knows."""
        try:
            self.checked_parts([text])
        except UsageError:
            return False
        return True

    def read(self, inputs: UserInput) -> Encoded:
        texts = as_texts(inputs)
        parts = self.checked_parts(texts)
        tokens = [[part for part, _ in row] for row in parts]
        known = [[is_known for _, is_known in row] for row in parts]
        return Encoded(self.encode(texts), tokens, known)

    def requested(self, request: requests.Request) -> Requested:
        column = getattr(self.data, "text_column", requests.TEXT_COLUMN)
        if requests.has_table(request):
            table = requests.read_table(request, column)
            texts, lines = table.column(), list(table.lines)
        else:
            table, texts = None, requests.read_texts(request, EXAMPLE, column)
            lines = [line for line, text in enumerate(texts, 1) if text.strip()]
            texts = [texts[line - 1] for line in lines] if request.source else texts
        if request.source is None:
            self.checked_parts(texts)
            usable = list(range(len(texts)))
        else:
            usable = requests.usable_rows(texts, lines, self.checked_parts)
        self.warn_of_unknown(texts)
        chosen = [texts[i] for i in usable]
        self.warn_of_length(chosen)
        column = getattr(self.data, "number_column", getattr(self.data, "label_column", "label"))
        labels = [] if table is None else table.cells(column)
        return Requested(chosen, chosen, table, usable, [labels[i] for i in usable if labels])

    def warn_of_unknown(self, texts: Sequence[str]) -> None:
        """Warns of texts most of whose words the model does not know."""
        parts = [part for text in texts for part in words_among(self.parts(self.clean(text)))]
        words = [is_known for part, is_known in parts if part.strip()]
        unknown = words.count(False)
        if unknown > MANY_UNKNOWN * len(words):
            share = f"{unknown / len(words):.0%}" if any(words) else "all"
            requests.warn(
                f"warning: {share} of the {len(words):,} words of the texts are unknown to the "
                "run, so its predictions mean little; give texts like those it was trained on"
            )

    def warn_of_length(self, texts: Sequence[str]) -> None:
        """Warns of texts whose end the model does not read."""
        most = self.data.max_length
        for number, text in enumerate(texts, 1):
            if (length := self.length(text)) > most:
                note = f"has {length} tokens, of which the first {most} are read"
                requests.warn(f"warning: text {number} {note}")

    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        text = asked.words()
        (parts,) = self.checked_parts([text])
        check_length(len(parts))
        encoded = self.encode([text])
        length = encoded["tokens"].shape[1]
        padded = self.to_size(encoded)  # so that few programs are compiled
        looked = look(padded)
        whole = self.length(text)
        cut = f"the model reads the first {length} of {whole} tokens" if whole > length else None
        width = padded["tokens"].shape[1]
        reply = replies.attended(looked, width, length) | replies.with_tokens(parts)
        return looked, reply | {"note": cut}

    def tested(self, raw: UserInput, arrays: Inputs) -> dict[str, np.ndarray]:
        words = [tokenizers.bracketed(self.parts(self.clean(text))) for text in raw]
        tokens = arrays["tokens"]
        width = tokens.shape[1]
        return {"inputs": tokens, "lengths": arrays["lengths"], "words": table_of(words, width)}

    def features(self, train: UserInput, test: UserInput) -> Features | None:
        return baselines.of_words(*([self.clean(text) for text in rows] for rows in (train, test)))

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        length = int(run.examples["lengths"][index])
        tokens = replies.written(run.examples["words"][index, :length])
        known = (run.examples["inputs"][index, :length] >= FIRST_WORD).tolist()
        return {"tokens": tokens, "known": known}

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        length = int(run.examples["lengths"][index])
        padded = super().weights(run, index)
        return {name: matrix[:, :length, :length] for name, matrix in padded.items()}

    @classmethod
    def draw_examples(
        cls, run: Record, name: str, weights: np.ndarray, verdicts: list[tuple[str, str]]
    ) -> "dict[str, Figure]":
        from flax_attn.analysis import texts

        return texts.draw_attention(run, name, weights, verdicts)

    def draw(
        self, inputs: UserInput, prediction: Prediction, verdicts: list[tuple[str, str]], name: str
    ) -> "Figure":
        from flax_attn.analysis import texts as figures

        kind, weights = first_attention(prediction)
        if weights is None:
            raise UsageError(f"the model of {name} does not attend; leave out --figure")
        rows = zip(prediction.tokens, prediction.known)
        words = [tokenizers.bracketed(zip(row, known)) for row, known in rows]
        if len(words) == 1 and weights.ndim == 3:
            reader = "hop" if of_hops(kind) else "token"
            title = f"{verdicts[0][0]}: what each {reader} attends to"
            return figures.attention_map(words[0], weights[0], of_hops(kind), title)
        weights, shown = token_weights(prediction), figures.SHOWN
        if len(words) == 1:
            return figures.attention_on_tokens(words, weights, [], f"{verdicts[0][0]}: {STRONG}")
        title = f"{title_of(len(words), shown, 'text')}: {STRONG}"
        return figures.attention_on_tokens(words[:shown], weights[:shown], verdicts[:shown], title)


def live_shapes(tokens: str, lengths: str, most: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of one text in a page, by name: its tokens, and how many there are."""
    shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, np.dtype(np.int32))
    return {tokens: shape(1, most), lengths: shape(1)}


def reading(tokenizer: Tokenizer, rules: Sequence[Rule]) -> JsonObject:
    """Returns how a page makes tokens of a text.

    Characters go by their code points, as a page shows entries with escapes.

    Raises:
        UsageError: byte pairs, or the entities of HTML, which become tokens in Python.
    """
    content = tokenizer.to_json()
    if "entries" not in content or UNESCAPE in rules:
        raise UsageError(f"its texts become tokens in Python; {SERVED}")
    entries, is_word = content["entries"], content["kind"] == "word"
    codes = None if is_word else [ord(one) if len(one) == 1 else None for one in entries]
    part = tokenizers.PATTERNS["word"] if is_word else r"[\s\S]"
    rules = rules_of_javascript(rules)
    return {"rules": rules, "part": part, "entries": entries, "codes": codes}


def as_texts(inputs: UserInput) -> list[str]:
    """Returns one text or several as a list. Raises a UsageError for anything else."""
    texts = [inputs] if isinstance(inputs, str) else inputs
    is_list = isinstance(texts, Sequence | np.ndarray) and len(texts) > 0
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"expected a text, or a list of texts, got {str(inputs)[:60]!r}")
    return list(texts)


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
