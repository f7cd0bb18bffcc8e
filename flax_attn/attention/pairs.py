"""What depends on a pair of positions: mask, bias, causality, window, lengths, segments, dropout.

A `Pairs` is made and checked once, where the arguments come in, and is then passed on whole. It can
be asked for all pairs or for those of a block of queries and a block of keys, so nothing of the
size of the weights need exist.

An index counts from the start of an array. A position counts along the keys: query `i` is at
position `query_offset + i`, key `j` at position `j`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from flax_attn.attention import masks
from flax_attn.attention.arrays import aligned, take, with_rank
from flax_attn.attention.checks import (
    as_floats,
    as_integers,
    as_lengths,
    as_mask,
    as_window,
    broadcastable,
    check_dropout,
    weights_shape,
    weights_shape_in_heads,
)
from flax_attn.attention.dropout import drop
from flax_attn.attention.types import PerPair, Window


class Block(NamedTuple):
    """The pairs of some queries and keys: the mask, the bias, and where they are in the whole.

    The mask is None where all may be attended. It hides what a bias of `-inf` hides, and the bias
    is 0 there.
    """

    mask: Bool[Array, "..."] | None
    bias: Float[Array, "..."] | None
    queries: Int[Array, "q 1"]
    keys: Int[Array, "1 k"]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """What depends on a pair of positions, for weights of the given shape.

    Attributes:
        shape: of the weights, `(..., q, k)`, or `(..., heads, q, k)`.
        heads: the head axes of that shape: `()`, `(heads,)`, or `(key heads, group)`.
        mask, bias: arrays with the rank of the weights, functions of positions, or None.
        lens_mask: a further mask, that of a `Lens`.
        left, right: the number of keys before and after a query's position; None for no bound.
        query_offset: an integer, or `(..., 1, 1)` with the rank of the weights.
        query_lengths, key_lengths: `()` or `(..., 1, 1)` with the rank of the weights, or None.
        query_segments, key_segments: ids `(..., q, 1)` and `(..., 1, k)`, or None.
        dropout_rate, dropout_rng: the share of the weights that is dropped, and the key.
        all_visible: whether every query may attend to every key, without a bias.
    """

    shape: tuple[int, ...]
    heads: tuple[int, ...] = ()
    mask: Array | Callable[..., Array] | None = None
    bias: Array | Callable[..., Array] | None = None
    left: int | None = None
    right: int | None = None
    query_offset: int | Array = 0
    query_lengths: Array | None = None
    key_lengths: Array | None = None
    query_segments: Array | None = None
    key_segments: Array | None = None
    dropout_rate: float = 0.0
    dropout_rng: Array | None = None
    lens_mask: Array | Callable[..., Array] | None = None
    all_visible: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        limits = self.mask, self.lens_mask, self.bias, self.left, self.right
        limits += self.query_lengths, self.key_lengths, self.query_segments
        object.__setattr__(self, "all_visible", all(limit is None for limit in limits))

    @classmethod
    def in_heads(cls, *shape: int) -> "Pairs":
        """The pairs of weights `(..., heads, q, k)`."""
        return cls(shape, heads=shape[-3:-2])

    def under(self, mask: PerPair | None, bias: PerPair | None) -> "Pairs":
        """With a mask and a bias. Raises unless they broadcast to the weights."""
        if mask is not None and not callable(mask):
            mask = self._per_pair("mask", as_mask(mask))
        if bias is not None and not callable(bias):
            bias = self._per_pair("bias", as_floats("bias", bias))
        return dataclasses.replace(self, mask=mask, bias=bias)

    def through_lens(self, mask: PerPair | None) -> "Pairs":
        """With the mask of a lens beside their own. Raises unless it broadcasts to the weights."""
        return dataclasses.replace(self, lens_mask=self.under(mask, None).mask)

    def limited(self, causal: bool, window: Window | None, query_offset: ArrayLike = 0) -> "Pairs":
        """With causality and a window around the queries' positions."""
        left, right = as_window(window)
        if causal:
            right = 0
        offset = query_offset
        if not isinstance(offset, int) or isinstance(offset, bool):
            offset = self._per_row("query_offset", as_integers("query_offset", offset))
        return dataclasses.replace(self, left=left, right=right, query_offset=offset)

    def padded(self, query_lengths: ArrayLike | None, key_lengths: ArrayLike | None) -> "Pairs":
        """With the number of real queries and keys in each batch row."""
        lengths = {"query_lengths": query_lengths, "key_lengths": key_lengths}
        rows = {
            name: None if array is None else self._per_row(name, as_lengths(name, array))
            for name, array in lengths.items()
        }
        return dataclasses.replace(self, **rows)

    def packed(self, query_segments: ArrayLike | None, key_segments: ArrayLike | None) -> "Pairs":
        """With the ids of the packed sequences, `(..., q)` and `(..., k)`."""
        if query_segments is None and key_segments is None:
            return self
        if query_segments is None or key_segments is None:
            raise ValueError("expected query_segments and key_segments together, got one of them")
        queries = self._per_token("query_segments", query_segments, self.shape[-2])[..., :, None]
        keys = self._per_token("key_segments", key_segments, self.shape[-1])[..., None, :]
        return dataclasses.replace(self, query_segments=queries, key_segments=keys)

    def dropping(self, rate: float, rng: Array | None) -> "Pairs":
        """With dropout. Raises for a rate outside [0, 1), and for dropout without a key."""
        if rate == 0:
            return self
        check_dropout(rate, rng)
        return dataclasses.replace(self, dropout_rate=float(rate), dropout_rng=rng)

    def in_groups(self, size: int) -> "Pairs":
        """For heads in groups of this size, which share a key head: two head axes for one."""
        if size == 1:
            return self
        (heads,) = self.heads
        groups = (heads // size, size)

        def grouped(array):
            if not isinstance(array, jax.Array) or not array.ndim:
                return array
            axes = groups if array.shape[-3] > 1 else (1, 1)
            return array.reshape(*array.shape[:-3], *axes, *array.shape[-2:])

        per_pair = ("mask", "bias", "lens_mask", "query_offset", "query_lengths", "key_lengths")
        per_pair += ("query_segments", "key_segments")
        return dataclasses.replace(
            self,
            shape=(*self.shape[:-3], *groups, *self.shape[-2:]),
            heads=groups,
            **{name: grouped(getattr(self, name)) for name in per_pair},
        )

    @property
    def is_symbolic(self) -> bool:
        """Whether some size is not known, as in a program that is exported for any size."""
        return any(map(jax.export.is_symbolic_dim, self.shape))

    @property
    def only_causal(self) -> bool:
        """Whether causality alone limits what a query may attend to."""
        others = self.mask, self.lens_mask, self.bias, self.left
        others += self.query_lengths, self.key_lengths, self.query_segments
        return self.right == 0 and all(limit is None for limit in others)

    @property
    def may_hide_single_pairs(self) -> bool:
        """Whether single pairs may be hidden: by a mask, a bias or segments."""
        terms = self.mask, self.lens_mask, self.bias, self.query_segments
        return any(term is not None for term in terms)

    def whole(self) -> Block:
        """All pairs as one block."""
        return self.block(*masks.grid(*self.shape[-2:]))

    def block(self, queries: Array, keys: Array, bias: Array | None = None) -> Block:
        """The pairs at indices `(q, 1)` and `(1, k)`; `bias` is the array of biases there."""
        shape = (*self.shape[:-2], queries.shape[0], keys.shape[1])
        if callable(self.bias):
            bias = self._at_positions("bias", self.bias, queries, keys)
        elif bias is None and self.bias is not None:
            bias = take(self.bias, queries, keys)
        visible = list(self._limits(queries, keys))
        if bias is not None:
            finite = bias != -jnp.inf
            visible.append(finite)
            bias = jnp.where(finite, bias, 0)
        mask = functools.reduce(masks.both, visible) if visible else None
        return Block(None if mask is None else with_rank(mask, len(shape)), bias, queries, keys)

    def drop(self, weights: Array, block: Block) -> Array:
        """The weights of a block after dropout."""
        return drop(weights, self.dropout_rate, self.dropout_rng, block.queries, block.keys)

    def _limits(self, queries: Array, keys: Array) -> Iterator[Array]:
        """The masks that are set, at indices `(q, 1)` and `(1, k)`."""
        for mask in (self.mask, self.lens_mask):
            if callable(mask):
                yield self._at_positions("mask", mask, queries, keys)
            elif mask is not None:
                yield take(mask, queries, keys)
        if self.left is not None or self.right is not None:
            yield masks.window(self.positions(queries), keys, self.left, self.right)
        if self.query_lengths is not None:
            yield jnp.less(*aligned(queries, self.query_lengths))
        if self.key_lengths is not None:
            yield jnp.less(*aligned(keys, self.key_lengths))
        if self.query_segments is not None and self.key_segments is not None:
            own = jnp.take(self.query_segments, queries[:, 0], axis=-2, mode="clip")
            yield own == jnp.take(self.key_segments, keys[0], axis=-1, mode="clip")

    def positions(self, queries: Array) -> Array:
        """The positions of the queries at indices `(q, 1)`."""
        if isinstance(self.query_offset, int):
            return queries + self.query_offset
        return jnp.add(*aligned(queries, self.query_offset))

    def _at_positions(
        self, name: str, function: Callable[..., Array], queries: Array, keys: Array
    ) -> Array:
        """The checked result of a mask or bias function, with the head axes of the weights.

        With an offset for each batch row the function gets query positions `(..., q, 1)`. A result
        without a head axis then gets one.
        """
        rows, shape = self.shape[: -2 - len(self.heads)], (queries.shape[0], keys.shape[1])
        offset = self.query_offset
        if isinstance(offset, int) or not offset.ndim:
            term = function(queries + offset, keys)
        else:
            offset = offset.reshape(*rows, 1, 1)
            term = function(jnp.add(*aligned(queries, offset)), keys)
            has_heads = jax.eval_shape(function, queries, keys).ndim > 2
            if self.heads and not has_heads and jnp.ndim(term) >= offset.ndim:
                term = term[..., None, :, :]
        if term is None:
            raise TypeError(f"expected the {name} function to return an array, got None")
        heads = (math.prod(self.heads),) if self.heads else ()
        term = as_mask(term) if name == "mask" else as_floats(name, term)
        term = broadcastable(name, term, (*rows, *heads, *shape))
        if len(self.heads) < 2:
            return term
        groups = self.heads if term.shape[-3] > 1 else (1, 1)
        return term.reshape(*term.shape[:-3], *groups, *term.shape[-2:])

    def _per_pair(self, name: str, array: Array) -> Array:
        """An array with the rank of the weights. `(n, q, k)` does not say: of rows, or of heads."""
        if self.heads and array.ndim == 3 < len(self.shape) and array.shape[0] > 1:
            raise ValueError(
                f"expected a {name} with all axes of the weights {self.shape}, got {array.shape}; "
                f"write {name}[:, None] for one a batch row, {name}[None] for one a head"
            )
        return broadcastable(name, array, self.shape)

    def _per_row(self, name: str, array: Array) -> Array:
        """Integers `()`, or `(...)` with one a batch row, which get the rank of the weights."""
        rows = self.shape[: -2 - len(self.heads)]
        if array.shape not in ((), rows):
            raise ValueError(
                f"expected {name} of shape {rows}, one a row of the batch, got {array.shape}"
            )
        return array.reshape(*array.shape, *(1,) * (len(self.heads) + 2)) if array.ndim else array

    def _per_token(self, name: str, ids: ArrayLike, length: int) -> Array:
        """Integers `(..., t)`, one for each token, with the rank of the weights less one."""
        rows, ids = self.shape[: -2 - len(self.heads)], as_integers(name, ids)
        if ids.shape not in ((length,), (*rows, length)):
            raise ValueError(
                f"expected {name} of shape {(*rows, length)}, one a token, got {ids.shape}"
            )
        leading = ids.shape[:-1] or (1,) * len(rows)
        return ids.reshape(*leading, *(1,) * len(self.heads), length)


def arrays_and_pairs(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, *, in_heads: bool = False
) -> tuple[Array, Array, Array, Pairs]:
    """The arrays as floats, and the pairs of their queries and keys, with nothing hidden.

    Raises:
        TypeError: an array that is not of floats.
        ValueError: arrays that do not fit.
    """
    query, key, value = as_floats("query", query), as_floats("key", key), as_floats("value", value)
    if not in_heads:
        return query, key, value, Pairs(weights_shape(query, key, value))
    shape = weights_shape_in_heads(query, key, value)
    return query, key, value, Pairs(shape, heads=shape[-3:-2])
