"""From texts to integers and back: preprocessing, tokenizers, labels, padding.

All of it is JSON on disk, and invertible.

A tokenizer is fitted on the training split alone; token 0 is padding and token 1 stands for all
that it does not know.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32

from flax_attn.data.stop_words import STOP_WORDS
from flax_attn.errors import UsageError, one_line
from flax_attn.types import JsonObject

PADDING, UNKNOWN = "<PAD>", "<UNK>"
START, END = "<S>", "</S>"

_STOP_WORDS = re.compile(
    rf"\b({'|'.join(map(re.escape, sorted(STOP_WORDS, key=len, reverse=True)))})\b\s*"
)


def clean_news(text: str) -> str:
    """The AG News tutorial's preprocessing: `Great week for the NYSE!` becomes `great week nyse`.

    Lower case; without stop words, and what stands in brackets; runs of all but letters and digits
    become one space.
    """
    text = _STOP_WORDS.sub("", text.lower())
    text = _without(text, "(", ")")
    text = re.sub(r"([-;.,!?<=>])", r" \1 ", text)
    return re.sub(r"[^a-z0-9]+", " ", text).strip()


def split_words(text: str) -> str:
    """Lower case, with spaces between words, clitics and punctuation.

    `It's a hit.` becomes `it 's a hit .`.
    """
    return " ".join(
        re.findall(r"n't\b|'(?:s|re|ve|ll|d|m)\b|\w+(?=n't\b)|\w+(?:-\w+)*|[^\w\s]", text.lower())
    )


def join_words(text: str) -> str:
    """What `split_words` split, joined again as English is written.

    `it 's a hit .` becomes `it's a hit.`

    Numbers (`3.5`), other apostrophes and quotation marks stay apart, for what stood there is not
    known; byte pairs lose nothing.
    """
    text = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text)
    return re.sub(r"([(\[]) ", r"\1", re.sub(r" ([.,;:!?%)\]])", r"\1", text))


def lower(text: str) -> str:
    """Lower case, with one space between words."""
    return " ".join(text.lower().split())


def mark_ends(text: str) -> str:
    """Lower case, split at spaces as it is, between marks of the start and the end."""
    return " ".join([START, *re.findall("[^ ]+", text.lower()), END])


def split_news(text: str) -> str:
    """Lower case, without markup, words, numbers and marks apart: `U.S. stocks&lt;b&gt; up 12%`
    becomes `us stocks up 00 %`.

    Entities are restored, also those that lost their `&`; digits become zeros, but for years.
    """
    text = re.sub(r"(?<!&)(#\d+|\b(?:quot|amp|lt|gt|nbsp));", r"&\1;", text.replace("\\", " "))
    text = _without(_unescape(_unescape(text)), "<", ">", " ").lower()
    text = re.sub(r"\b([a-z])\.(?=[a-z]\.)", r"\1", text)
    words = re.findall(r"[a-z]+|\d+|[$%?!()\-:]", text.replace("'s ", " ").replace("'", ""))
    return " ".join(
        "0" * min(len(word), 5) if word.isdigit() and len(word) != 4 else word for word in words
    )


def _without(text: str, first: str, last: str, instead: str = "") -> str:
    """`instead` from each `first` to the next `last`; nothing is searched behind the final one."""
    head, end, tail = text.rpartition(last)
    return re.sub(f"[{first}][^{last}]*[{last}]", instead, head + end) + tail


def _unescape(text: str) -> str:
    """As in `html`. A number with too many digits for Python becomes U+FFFD."""
    return html.unescape(re.sub(r"&#\d{600,};?", "\ufffd", text))


PREPROCESSING: dict[str, Callable[[str], str]] = {
    "news": clean_news,
    "news words": split_news,
    "words": split_words,
    "lower": lower,
    "marked": mark_ends,
}


@runtime_checkable
class Tokenizer(Protocol):
    """What every tokenizer does.

    It turns texts to integers and back, and to the parts that the integers stand for, and itself to
    JSON.
    """

    @property
    def size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Iterable[int]) -> str: ...

    def split(self, text: str) -> list[str]: ...

    def to_json(self) -> JsonObject: ...


class Vocabulary(NamedTuple):
    """Words or characters: the most frequent ones of the texts it was fitted on.

    Of equally frequent ones, the one met first comes first.

    Encoding and decoding give back the text, but for what is unknown and for runs of spaces between
    words.
    """

    level: str  # "word" or "character"
    entries: tuple[str, ...]
    index: dict[str, int]

    @classmethod
    def of(cls, level: str, entries: Sequence[str]) -> "Vocabulary":
        return cls(level, tuple(entries), {entry: i for i, entry in enumerate(entries)})

    @classmethod
    def fit(cls, level: str, texts: Iterable[str], size: int) -> "Vocabulary":
        counts = Counter(part for text in texts for part in _parts(level, text))
        return cls.of(
            level, (PADDING, UNKNOWN, *(entry for entry, _ in counts.most_common(size - 2)))
        )

    @property
    def size(self) -> int:
        return len(self.entries)

    def encode(self, text: str) -> list[int]:
        return [self.index.get(part, 1) for part in _parts(self.level, text)]

    def decode(self, tokens: Iterable[int]) -> str:
        return (" " if self.level == "word" else "").join(self.entries[token] for token in tokens)

    def split(self, text: str) -> list[str]:
        return list(_parts(self.level, text))

    def to_json(self) -> JsonObject:
        return {"kind": self.level, "entries": list(self.entries)}


class BytePairs:
    """Byte-pair encoding by the package `tokenizers`, the extra `bpe`.

    Source: Sennrich, Haddow & Birch 2016 (arXiv:1508.07909).
    """

    def __init__(self, model: Any):
        self.model = model
        self.size = model.get_vocab_size()

    @classmethod
    def fit(cls, texts: Iterable[str], size: int) -> "BytePairs":
        tokenizers = _tokenizers()
        model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN))
        parts = tokenizers.pre_tokenizers
        model.pre_tokenizer = parts.Sequence([parts.Metaspace(), parts.Punctuation("isolated")])
        model.decoder = tokenizers.decoders.Metaspace()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size,
            limit_alphabet=max(size - 2, 0),
            special_tokens=[PADDING, UNKNOWN],
            show_progress=False,
        )
        model.train_from_iterator(texts, trainer)
        return cls(model)

    def encode(self, text: str) -> list[int]:
        return self.model.encode(text).ids

    def decode(self, tokens: Iterable[int]) -> str:
        return self.model.decode(list(tokens))

    def split(self, text: str) -> list[str]:
        encoding = self.model.encode(text)
        known = [token.replace("▁", "") or " " for token in encoding.tokens]
        return [
            text[slice(*place)] if token == 1 else part
            for part, token, place in zip(known, encoding.ids, encoding.offsets)
        ]

    def to_json(self) -> JsonObject:
        return {"kind": "bpe", "model": json.loads(self.model.to_str())}


KINDS = ("word", "character", "bpe")


def fit_tokenizer(kind: str, texts: Iterable[str], size: int) -> Tokenizer:
    """A tokenizer of at most `size` tokens for texts like these, padding and unknown among them."""
    return BytePairs.fit(texts, size) if kind == "bpe" else Vocabulary.fit(kind, texts, size)


def tokenizer_from_json(content: JsonObject) -> Tokenizer:
    """The tokenizer that `to_json` gave. Raises a UsageError for anything else."""
    try:
        if content["kind"] == "bpe":
            return BytePairs(_tokenizers().Tokenizer.from_str(json.dumps(content["model"])))
        if content["kind"] not in KINDS or content["entries"][:2] != [PADDING, UNKNOWN]:
            raise ValueError(f"kind {content['kind']!r}")
        if not all(isinstance(entry, str) for entry in content["entries"]):
            raise ValueError("entries that are no text")
        return Vocabulary.of(content["kind"], content["entries"])
    except UsageError:
        raise
    except Exception as error:  # whatever the package makes of a damaged model
        raise UsageError(
            f"expected a tokenizer as training wrote it, got another file ({one_line(error)}); "
            f"restore it"
        ) from error


def known_parts(tokenizer: Tokenizer, text: str) -> list[tuple[str, bool]]:
    """The parts that the tokens of a text stand for, and whether the tokenizer knows them."""
    return [
        (part, token != 1) for part, token in zip(tokenizer.split(text), tokenizer.encode(text))
    ]


def bracketed(parts: Iterable[tuple[str, bool]]) -> list[str]:
    """The parts as pictures show them, in brackets those that are not known."""
    return [part if known else f"({part})" for part, known in parts]


def pad(
    rows: Sequence[Sequence[int]], length: int | None = None
) -> tuple[Int32[np.ndarray, "n t"], Int32[np.ndarray, " n"]]:
    """Rows of tokens as one array, filled up with padding, and their lengths.

    None pads to the longest, at least to 1.
    """
    lengths = np.array([len(row) for row in rows], np.int32)
    length = max(int(lengths.max(initial=0)), 1) if length is None else length
    lengths = np.minimum(lengths, length)
    tokens = np.zeros((len(rows), length), np.int32)
    for i, row in enumerate(rows):
        tokens[i, : lengths[i]] = row[:length]
    return tokens, lengths


def encode_labels(labels: Sequence[str], classes: Sequence[str]) -> Int32[np.ndarray, " n"]:
    """The place of each label among the classes.

    Raises a UsageError for one that is none of them.
    """
    index = {label: i for i, label in enumerate(classes)}
    for label in labels:
        if label not in index:
            known = f"{', '.join(classes[:10])}{', ...' if len(classes) > 10 else ''}"
            raise UsageError(
                f"expected a label that the training split has, {known}, got '{label}'"
            )
    return np.array([index[label] for label in labels], np.int32)


def _parts(level: str, text: str) -> Sequence[str]:
    return (
        re.findall("[^ ]+", text) if level == "word" else text
    )  # a space that does not break is part of a word


def _tokenizers() -> Any:
    try:
        import tokenizers  # pyright: ignore
    except ImportError as error:
        raise UsageError(
            'expected the package tokenizers for data.tokenizer=bpe; pip install "flax-attn[bpe]"'
        ) from error
    return tokenizers
