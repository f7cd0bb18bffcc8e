"""The mark of normalisers that need all queries at once, such as the monotonic ones.

`attend` may process queries in blocks. It then passes a marked normaliser all scores.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator
from typing import Any

from jaxtyping import Array

from flax_attn.attention.types import Normalizer

_IN_BLOCKS = contextvars.ContextVar("in_blocks", default=False)


def across_queries(normalizer: Normalizer) -> Normalizer:
    """Marks a normaliser that must see all queries at once. `attend` then passes it all scores.

    A function without the mark may call a marked normaliser. In blocks of queries, the marked
    normaliser then raises a ValueError.
    """

    @functools.wraps(normalizer)
    def whole(*args: Any, **kwargs: Any) -> Array:  # Any: a normaliser has options of its own
        if _IN_BLOCKS.get():
            name = getattr(normalizer, "__name__", normalizer)
            advice = "mark the function around it with across_queries"
            raise ValueError(f"{name} must see all queries at once, not blocks of them; {advice}")
        return normalizer(*args, **kwargs)

    whole.across_queries = True  # pyright: ignore
    return whole


def needs_all_queries(normalizer: Normalizer) -> bool:
    """Whether `across_queries` marks a normaliser, or the one inside a `functools.partial`."""
    while isinstance(normalizer, functools.partial):
        normalizer = normalizer.func
    return getattr(normalizer, "across_queries", False)


@contextlib.contextmanager
def in_blocks_of_queries() -> Iterator[None]:
    """Inside it, normalisers are called with some of the queries only."""
    token = _IN_BLOCKS.set(True)
    try:
        yield
    finally:
        _IN_BLOCKS.reset(token)
