"""Passages of a text: as many tokens as a language model reads at once."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flax_attn.data.sets.language import LanguageData
from flax_attn.data.text import pad
from flax_attn.data.tokenizers import Tokenizer
from flax_attn.errors import UsageError
from flax_attn.models.generation import NEVER
from flax_attn.types import Batch


def check_vocabulary(data: LanguageData, text: str) -> None:
    """Raises a UsageError for a text of one character, or of more than the vocabulary holds."""
    if len(set(text)) == 1:
        raise UsageError(
            f"expected a text to train on with several characters, got {text[0]!r} alone; nothing "
            f"can be learned from it"
        )
    kinds = len(set(text)) + NEVER
    if data.tokenizer == "character" and kinds > data.vocabulary_size:
        raise UsageError(
            f"expected data.vocabulary_size of at least {kinds:,} for the {kinds - NEVER:,} kinds "
            f"of characters of the text, got {data.vocabulary_size:,}"
        )


def to_rows(tokenizer: Tokenizer, text: str, data: LanguageData) -> Batch:
    """Passages one after another, with the token after each: inputs and targets `(n, max_length)`.

    A line that is a text of its own has a row. The end of the line before it is its first input.
    The last row, and rows of short lines, are filled up with padding.
    """
    if not data.by_line:
        tokens = tokenizer.encode(text)
        number = -(-max(len(tokens) - 1, 0) // data.max_length)
        padded = np.zeros(number * data.max_length + 1, np.int32)
        padded[: len(tokens)] = tokens[: len(padded)]
        shape = number, data.max_length
        return {"inputs": padded[:-1].reshape(shape), "targets": padded[1:].reshape(shape)}
    lines = [tokenizer.encode(f"\n{line}\n") for line in text.split("\n")]
    rows, _ = pad(lines, data.max_length + 1)
    targets = rows[:, 1:]
    return {"inputs": np.where(targets > 0, rows[:, :-1], 0), "targets": targets}


def check_lengths(data: LanguageData, batches: dict[str, Batch]) -> int:
    """The tokens of the text to train on.

    Raises:
        UsageError: there are too few of them to draw passages from, or a split that is measured is
            shorter than one passage.
    """
    lengths = {name: int((batch["targets"] > 0).sum()) + 1 for name, batch in batches.items()}
    for name, length in lengths.items():
        if length < data.max_length + (name == "train"):
            least = "more than" if name == "train" else "at least"
            share = "" if name == "train" else f", or raise data.{name}_fraction"
            raise UsageError(
                f"expected {least} data.max_length={data.max_length} tokens of text in the {name} "
                f"split, got {length}; give a longer text{share}"
            )
    return lengths["train"]


def draw_passages(train: Batch, key: Array, *, length: int, batch_size: int) -> Batch:
    """Passages that begin anywhere in the `length` tokens of the rows to train on."""
    max_length = train["inputs"].shape[1]
    text = jnp.concatenate([train["inputs"].ravel(), train["targets"][-1, -1:]])
    starts = jax.random.randint(key, (batch_size, 1), 0, length - max_length)
    windows = text[starts + jnp.arange(max_length + 1)[None]]
    return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}
