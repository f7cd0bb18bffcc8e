"""Character n-grams of the words of a text, and pairs of neighbouring words."""

import functools
import itertools
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Integer

LENGTHS = (3, 4, 5, 6)
A_WORD = 12  # n-grams that are kept of a word


def pairs(text: str) -> str:
    """Joins each word with the next: `the stock market` becomes `the_stock stock_market`."""
    words = text.split()
    return " ".join(f"{word}_{following}" for word, following in itertools.pairwise(words))


def character_ngrams(words: Sequence[str], size: int) -> Integer[np.ndarray, "t n"]:
    """Hashes the n-grams of each word to rows of a table of `size`, filled up with 0.

    Of `<word>`, with its marks, come all parts of 3 to 6 characters but the whole; of a long word
    some, evenly. Source: Bojanowski et al. 2017, arXiv:1607.04606.
    """
    rows = [_hashed(word, size) for word in words]
    return np.array(rows, np.min_scalar_type(size - 1)).reshape(-1, A_WORD)  # (t, A_WORD)


@functools.cache
def _hashed(word: str, size: int) -> list[int]:
    marked = f"<{word}>"
    whole = len(marked)
    parts = [marked[i : i + n] for n in LENGTHS if n < whole for i in range(whole - n + 1)]
    if len(parts) > A_WORD:
        parts = [parts[i] for i in np.linspace(0, len(parts) - 1, A_WORD).astype(int)]
    rows = [1 + zlib.crc32(part.encode()) % (size - 1) for part in parts]
    return rows + [0] * (A_WORD - len(rows))
