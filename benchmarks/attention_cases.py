"""What is measured of attention: cases of float32 with heads of 64, as data.

`queries` and `keys` below are positions. They are integers of NumPy, JAX or PyTorch, so one
function describes the visible pairs to all of them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

WIDTH, WINDOW = 64, 256
Visible = Callable[[Any, Any], Any]
CAUSAL: Visible = lambda queries, keys: keys <= queries
IN_WINDOW: Visible = lambda queries, keys: (keys <= queries) & (queries - keys < WINDOW)


@dataclasses.dataclass(frozen=True)
class Case:
    """One attention: its sizes, and which keys a query may attend.

    Attributes:
        name: what it is called in tables.
        length, heads, batch: the sizes; all heads have width 64.
        visible: whether a query at one position may attend the key at another; None for all keys.
        options: the same for `dot_product_attention`, as keyword arguments.
        arrays: further keyword arguments, which a jitted function takes as its own arguments.
    """

    name: str
    length: int
    heads: int
    batch: int = 1
    visible: Visible | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def inputs(self) -> list[np.ndarray]:
        """Query, key and value, `(batch, length, heads, width)`, the same at every call."""
        rng = np.random.default_rng(0)
        shape = (self.batch, self.length, self.heads, WIDTH)
        return [rng.normal(size=shape).astype(np.float32) for _ in range(3)]


def all_keys(length: int, heads: int, batch: int = 1) -> Case:
    return Case("all keys", length, heads, batch)


def causal(length: int, heads: int, batch: int = 1) -> Case:
    """No key after the query."""
    return Case("causal", length, heads, batch, visible=CAUSAL, options={"causal": True})


def window(length: int, heads: int, batch: int = 1) -> Case:
    """Shows each query its own key and the 255 before it."""
    options = {"causal": True, "window": (WINDOW - 1, 0)}
    return Case(f"window of {WINDOW}", length, heads, batch, visible=IN_WINDOW, options=options)


def key_lengths(length: int, heads: int, batch: int = 1, share: int = 8) -> Case:
    """Shows the first eighth of the keys, or another share: the rest is padding."""
    valid = length // share
    name, arrays = f"key_lengths=[{valid}]", {"key_lengths": np.full(batch, valid, np.int32)}
    first: Visible = lambda queries, keys: keys < valid
    return Case(name, length, heads, batch, visible=first, arrays=arrays)


def segments(length: int, heads: int, batch: int = 1) -> Case:
    """Eight sequences of one length, packed into each row of the batch."""
    size = length // 8
    ids = np.tile(np.arange(length, dtype=np.int32) // size, (batch, 1))
    arrays = {"query_segments": ids, "key_segments": ids}
    same: Visible = lambda queries, keys: queries // size == keys // size
    return Case(f"8 segments of {size}", length, heads, batch, visible=same, arrays=arrays)
