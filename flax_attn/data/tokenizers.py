"""Tokenizers: from texts to integers and back. They are JSON on disk, and invertible.

A tokenizer is fitted on the training split alone; token 0 is padding and token 1 stands for all
that it does not know.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from flax_attn.errors import UsageError, one_line
from flax_attn.types import JsonObject

PADDING, UNKNOWN = "<PAD>", "<UNK>"
LONGEST_TOKEN = 1_000  # letters; a longer word is unknown


@runtime_checkable
class Tokenizer(Protocol):
    """Turns texts to integers and back, and to the parts that the integers stand for."""

    @property
    def size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Iterable[int]) -> str: ...

    def split(self, text: str) -> list[str]: ...

    def to_json(self) -> JsonObject: ...


class Vocabulary(NamedTuple):
    """Words or characters: the most frequent ones of the texts it was fitted on.

    Of equally frequent ones, the one met first comes first. Encoding and decoding give back the
    text, except for unknown characters and runs of spaces between words.
    """

    level: str  # "word" or "character"
    entries: tuple[str, ...]
    index: dict[str, int]

    @classmethod
    def of(cls, level: str, entries: Sequence[str]) -> "Vocabulary":
        return cls(level, tuple(entries), {entry: i for i, entry in enumerate(entries)})

    @classmethod
    def fit(cls, level: str, texts: Iterable[str], size: int) -> "Vocabulary":
        parts = itertools.chain.from_iterable(_parts(level, text) for text in texts)
        counts = Counter(parts)
        short = Counter({part: n for part, n in counts.items() if len(part) <= LONGEST_TOKEN})
        frequent = [entry for entry, _ in short.most_common(size - 2)]
        return cls.of(level, (PADDING, UNKNOWN, *frequent))

    @property
    def size(self) -> int:
        return len(self.entries)

    def encode(self, text: str) -> list[int]:
        return list(map(self.index.get, _parts(self.level, text), itertools.repeat(1)))

    def decode(self, tokens: Iterable[int]) -> str:
        return (" " if self.level == "word" else "").join(self.entries[token] for token in tokens)

    def split(self, text: str) -> list[str]:
        return list(_parts(self.level, text))

    def to_json(self) -> JsonObject:
        return {"kind": self.level, "entries": list(self.entries)}


class BytePairs:
    """Byte-pair encoding of words by the package `tokenizers`, the extra `bpe`.

    Source: Sennrich, Haddow & Birch 2016 (arXiv:1508.07909).
    """

    KIND = "bpe"

    def __init__(self, model: Any):
        self.model = model
        self.size = model.get_vocab_size()

    @staticmethod
    def rules() -> Any:
        """Returns how texts are cut into parts and put together again, without a pair yet."""
        tokenizers = _tokenizers()
        model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN))
        parts = tokenizers.pre_tokenizers
        model.pre_tokenizer = parts.Sequence([parts.Metaspace(), parts.Punctuation("isolated")])
        model.decoder = tokenizers.decoders.Metaspace()
        return model

    @staticmethod
    def alphabet(size: int) -> JsonObject:
        """Returns the options of the trainer for the tokens before the first pair."""
        return {"limit_alphabet": max(size - 2, 0)}

    @classmethod
    def fit(cls, texts: Iterable[str], size: int) -> "BytePairs":
        model = cls.rules()
        options = cls.alphabet(size) | {"vocab_size": size, "special_tokens": [PADDING, UNKNOWN]}
        options |= {"max_token_length": LONGEST_TOKEN, "show_progress": False}
        model.train_from_iterator(texts, _tokenizers().trainers.BpeTrainer(**options))
        return cls(model)

    @classmethod
    def of(cls, content: JsonObject) -> "BytePairs":
        return cls(_tokenizers().Tokenizer.from_str(json.dumps(content)))

    def encode(self, text: str) -> list[int]:
        return self.model.encode(text).ids

    def decode(self, tokens: Iterable[int]) -> str:
        return self.model.decode(list(tokens))

    def split(self, text: str) -> list[str]:
        encoding = self.model.encode(text)
        known = [token.replace("▁", "") or " " for token in encoding.tokens]
        parts = zip(known, encoding.ids, encoding.offsets)
        return [text[slice(*at)] if token == 1 else part for part, token, at in parts]

    def to_json(self) -> JsonObject:
        return {"kind": self.KIND, "model": json.loads(self.model.to_str())}


class BytesInPairs(BytePairs):
    """Byte-pair encoding of bytes. Every text comes back as it was, with its spaces and line ends.

    Source: Radford et al. 2019 ("Language Models are Unsupervised Multitask Learners"), section
    2.2.
    """

    KIND = "bytes"

    def __init__(self, model: Any):
        super().__init__(model)
        self.model.encode_special_tokens = True  # what a user writes is text

    @staticmethod
    def rules() -> Any:
        tokenizers = _tokenizers()
        model = tokenizers.Tokenizer(tokenizers.models.BPE())
        model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = tokenizers.decoders.ByteLevel()
        return model

    @staticmethod
    def alphabet(size: int) -> JsonObject:
        del size
        return {"initial_alphabet": _tokenizers().pre_tokenizers.ByteLevel.alphabet()}

    def split(self, text: str) -> list[str]:
        return [self.model.decode([token]) for token in self.encode(text)]


PATTERNS = {"word": "[^ ]+", "character": r"[\s\S]"}  # of the parts of a text
PAIRS = {cls.KIND: cls for cls in (BytePairs, BytesInPairs)}


def fit_tokenizer(kind: str, texts: Iterable[str], size: int) -> Tokenizer:
    """Fits a tokenizer of at most `size` tokens, padding and unknown among them."""
    return PAIRS[kind].fit(texts, size) if kind in PAIRS else Vocabulary.fit(kind, texts, size)


def tokenizer_from_json(content: JsonObject) -> Tokenizer:
    """Returns the tokenizer that `to_json` gave. Raises a UsageError for anything else."""
    try:
        kind = content["kind"]
        if kind in PAIRS:
            return PAIRS[kind].of(content["model"])
        return Vocabulary.of(kind, [str(entry) for entry in content["entries"]])
    except UsageError:
        raise
    except Exception as error:  # the package has no class of its own for a damaged model
        raise UsageError(f"expected a tokenizer, got a damaged one ({one_line(error)})") from error


def described(content: JsonObject) -> JsonObject:
    """Describes to other programs how a tokenizer, as JSON, makes tokens of a preprocessed text.

    A token is the index of a match of `pattern` among the `entries`, or that of the unknown.
    """
    if "kind" not in content:  # of a published model
        read = "tokenizers.Tokenizer.from_file(path).encode(text).ids"
        return {"kind": "published", "package": "tokenizers", "read": read}
    kind, tokens = content["kind"], {"padding": 0, "unknown": 1}
    if kind in PAIRS:
        read = "tokenizers.Tokenizer.from_str(json.dumps(model)).encode(text).ids"
        return {"kind": kind, "package": "tokenizers", "read": read, **tokens}
    return {"kind": kind, "pattern": PATTERNS[kind], **tokens}


def known_parts(tokenizer: Tokenizer, text: str) -> list[tuple[str, bool]]:
    """Returns the parts that the tokens of a text stand for, and whether each is known."""
    return [(p, i != 1) for p, i in zip(tokenizer.split(text), tokenizer.encode(text))]


def bracketed(parts: Iterable[tuple[str, bool]]) -> list[str]:
    """Returns the parts as pictures show them, in brackets those that are not known."""
    return [part if known else f"({part})" for part, known in parts]


def _parts(level: str, text: str) -> Sequence[str]:
    # what the pattern finds; a space that does not break is part of a word
    return [part for part in text.split(" ") if part] if level == "word" else text


def _tokenizers() -> Any:
    try:
        import tokenizers  # pyright: ignore
    except ImportError as error:
        raise UsageError(
            'expected the package tokenizers for byte pairs; pip install "flax-attn[bpe]"'
        ) from error
    return tokenizers
