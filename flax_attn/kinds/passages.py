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
    """Raises a UsageError for a text with more kinds of characters than the vocabulary holds."""
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


def draw_passages(train: Batch, key: Array, *, length: int, batch_size: int) -> Batch:
    """Passages that begin anywhere in the `length` tokens of the rows to train on."""
    max_length = train["inputs"].shape[1]
    text = jnp.concatenate([train["inputs"].ravel(), train["targets"][-1, -1:]])
    starts = jax.random.randint(key, (batch_size, 1), 0, length - max_length)
    windows = text[starts + jnp.arange(max_length + 1)[None]]
    return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}
