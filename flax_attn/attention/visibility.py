"""What each query sees: mask, bias, causality, window, prefix, lengths and segments, as one value.

A `Visibility` is made and checked once, where the arguments come in, and is then passed on whole.
This file alone knows its limits. It answers for all pairs of a query and a key, or for a block of
them, so nothing of the size of the weights need exist. It also tells which queries, keys and blocks
of them see each other at all.

An index counts from the start of an array. A position counts along the keys: query `i` is at
position `query_offset + i`, key `j` at position `j`.
"""

import dataclasses
import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypedDict, TypeVar, Unpack, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int

from flax_attn.attention.arrays import aligned, split, take, with_rank
from flax_attn.attention.checks import (
    PerPair,
    Window,
    as_floats,
    as_integers,
    as_lengths,
    as_mask,
    as_window,
    broadcastable,
    broadcasts,
    check_expected,
)
from flax_attn.attention.masks import both
from flax_attn.types import Options, Tree

Reached = Bool[Array | np.ndarray, "..."]
Function = TypeVar("Function", bound=Callable[..., object])
KEYWORD = inspect.Parameter.KEYWORD_ONLY

MOST_PAIRS = 2**22  # of a row and head that are looked at at once


class Limits(TypedDict, total=False):
    """The arguments that say what a query sees, as `dot_product_attention` describes them."""

    mask: PerPair | None
    bias: PerPair | None
    causal: bool
    window: Window | None
    query_offset: ArrayLike
    prefix_lengths: ArrayLike | None
    query_lengths: ArrayLike | None
    key_lengths: ArrayLike | None
    query_segments: ArrayLike | None
    key_segments: ArrayLike | None


class SelfLimits(TypedDict, total=False):
    """The limits of a sequence that attends to itself."""

    mask: PerPair | None
    bias: PerPair | None
    causal: bool
    window: Window | None
    prefix_lengths: ArrayLike | None
    lengths: ArrayLike | None
    segments: ArrayLike | None


def of_self(
    lengths: ArrayLike | None = None, segments: ArrayLike | None = None, **limits: Unpack[Limits]
) -> Limits:
    """Makes limits in which lengths and segments are those of queries and keys.

    Raises a TypeError for a limit that is none of `SelfLimits`, such as `key_lengths`.
    """
    check_expected(limits.keys() - SelfLimits.__annotations__)
    return {
        **limits,
        "query_lengths": lengths,
        "key_lengths": lengths,
        "query_segments": segments,
        "key_segments": segments,
    }


def with_keys_as_queries(limits: Limits) -> Limits:
    """Makes limits in which lengths and segments of keys are by default those of queries."""
    lengths, segments = limits.get("key_lengths"), limits.get("key_segments")
    return {
        **limits,
        "key_lengths": limits.get("query_lengths") if lengths is None else lengths,
        "key_segments": limits.get("query_segments") if segments is None else segments,
    }


def with_limits(function: Function) -> Function:
    """Shows the limits one by one in the signature of a function that takes them as `**limits`."""
    signature = inspect.signature(function)
    *others, limits = signature.parameters.values()
    (names,) = get_args(limits.annotation)  # of `Unpack`
    defaults = {"causal": False, "query_offset": 0}
    for name, kind in names.__annotations__.items():
        default = defaults.get(name)
        others.append(limits.replace(name=name, kind=KEYWORD, default=default, annotation=kind))
    function.__signature__ = signature.replace(parameters=others)  # pyright: ignore
    return function


class Indices(NamedTuple):
    """Which queries and keys some arrays hold.

    Attributes:
        queries, keys: their indices, `(q,)` and `(k,)`, in any order. A key at an index beyond the
            last one is none; it pads the array.
        bias: the array of their biases `(..., q, k)`, with axes of full size or 1. None where there
            is none, and where the bias is a function.
        is_padded: whether there may be keys that pad.
    """

    queries: Int[Array, " q"]
    keys: Int[Array, " k"]
    bias: Array | None = None
    is_padded: bool = False

    def in_blocks(
        self, query_size: int, key_size: int, num_keys: int
    ) -> tuple[Int[Array, "i q"], Int[Array, "j k"]]:
        """Cuts the indices of queries and of keys into blocks.

        The last query pads its block. What pads the last block of keys has the index `num_keys`,
        beyond the last key.
        """
        padded = jnp.pad(self.keys, (0, -len(self.keys) % key_size), constant_values=num_keys)
        return split(self.queries, query_size, -1), padded.reshape(-1, key_size)  # (i, q), (j, k)


@dataclasses.dataclass(frozen=True)
class Visibility:
    """What each query sees, for weights of the given shape. `make_visibility` makes it.

    Attributes:
        shape: of the weights, `(..., q, k)`, or `(..., heads, q, k)`.
        heads: the head axes of that shape: `()`, `(heads,)`, or `(key heads, group)`.
        mask, bias: arrays with the rank of the weights, functions of positions, or None.
        lens_mask: a further mask, that of a `Lens`.
        left, right: the number of keys before and after a query's position; None for no bound.
        prefix_lengths: the number of first keys that every query sees, whatever `left` and `right`
            say; as the lengths.
        query_lengths, key_lengths: `()` or `(..., 1, 1)` with the rank of the weights, or None.
        query_segments, key_segments: ids `(..., q, 1)` and `(..., 1, k)`, or None.
        is_packed: whether queries and keys have one array of ids, so each sees itself.
        query_offset: an integer, or `(..., 1, 1)` with the rank of the weights.
    """

    shape: tuple[int, ...]
    heads: tuple[int, ...] = ()
    mask: Array | Callable[..., Array] | None = None
    bias: Array | Callable[..., Array] | None = None
    lens_mask: Array | Callable[..., Array] | None = None
    left: int | None = None
    right: int | None = None
    prefix_lengths: Array | None = None
    query_lengths: Array | None = None
    key_lengths: Array | None = None
    query_segments: Array | None = None
    key_segments: Array | None = None
    is_packed: bool = False
    query_offset: int | Array = 0

    @functools.cached_property
    def limits(self) -> frozenset[str]:
        """Returns the names of the limits that are set."""
        others = {"shape", "heads", "is_packed", "query_offset"}
        names = {field.name for field in dataclasses.fields(self)} - others
        return frozenset(name for name in names if getattr(self, name) is not None)

    @property
    def all_visible(self) -> bool:
        """Returns whether every query sees every key, without a bias."""
        return not self.limits

    @property
    def hides_single_pairs(self) -> bool:
        """Returns whether each pair must be looked at: for a mask, a bias or segments."""
        return bool(self.limits & {"mask", "lens_mask", "bias", "query_segments"})

    @property
    def window_size(self) -> int | None:
        """Returns the number of keys in a window; None without a bound on both sides."""
        is_bounded = {"left", "right"} <= self.limits and "prefix_lengths" not in self.limits
        return self.left + self.right + 1 if is_bounded else None  # pyright: ignore

    @property
    def is_symbolic(self) -> bool:
        """Returns whether some size is not known, as in a program that is exported for any size."""
        return any(map(jax.export.is_symbolic_dim, self.shape))

    @property
    def rows(self) -> tuple[int, ...]:
        """Returns the batch axes of the weights."""
        return self.shape[: -2 - len(self.heads)]

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Returns the shape of the weights with one head axis of two: `(..., heads, q, k)`."""
        heads = (math.prod(self.heads),) if self.heads else ()  # (key heads, group) are one axis
        return (*self.rows, *heads, *self.shape[-2:])

    def all_indices(self) -> Indices:
        """Returns the indices of all queries and keys in their order."""
        num_queries, num_keys = self.shape[-2:]
        bias = self.bias if isinstance(self.bias, jax.Array) else None  # a function is called later
        return Indices(jnp.arange(num_queries), jnp.arange(num_keys), bias)  # (q,), (k,)

    def under_lens(self, mask: PerPair | None) -> "Visibility":
        """Adds the mask of a lens. Raises unless it broadcasts to the weights."""
        shape = self.weights_shape
        ungrouped = Visibility(shape, shape[-3:-2] if self.heads else ())  # a lens knows no groups
        mask = _per_pair(ungrouped, "mask", mask)  # (..., heads, q, k); axes of 1 stay
        if len(self.heads) == 2:
            grouped = dataclasses.replace(ungrouped, lens_mask=mask).in_groups(self.heads[1])
            mask = grouped.lens_mask  # (..., key heads, group, q, k)
        return dataclasses.replace(self, lens_mask=mask)

    def with_bias(self, change: Callable[[Array], Array]) -> "Visibility":
        """Changes the bias, where there is one."""
        bias = self.bias
        if callable(bias):
            changed = lambda queries, keys: change(jnp.asarray(bias(queries, keys)))
            return dataclasses.replace(self, bias=changed)
        return self if bias is None else dataclasses.replace(self, bias=change(bias))

    def in_groups(self, size: int) -> "Visibility":
        """Makes two head axes of one, for heads in groups that share a key head."""
        (heads,) = self.heads
        groups = (heads // size, size)  # (key heads, group)

        def grouped(array: Array) -> Array:
            axes = groups if array.shape[-3] > 1 else (1, 1)  # an axis of 1 still broadcasts
            return array.reshape(*array.shape[:-3], *axes, *array.shape[-2:])

        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {
            name: grouped(value)
            for name, value in fields.items()
            if isinstance(value, jax.Array) and value.ndim  # one number for all rows stays `()`
        }
        fields |= {"shape": (*self.shape[:-3], *groups, *self.shape[-2:]), "heads": groups}
        return Visibility(**fields)

    def block(self, indices: Indices | None = None) -> tuple[Array | None, Array | None]:
        """Computes the mask and the bias of some queries and keys, or of all.

        Both have the rank of the weights. The mask is None where all is visible. It hides what a
        bias of `-inf` hides, and the bias is 0 there.
        """
        if self.all_visible:
            return None, None
        indices = self.all_indices() if indices is None else indices
        keys = indices.keys  # (k,)
        if indices.is_padded:  # what pads stands as the last key
            keys = jnp.minimum(keys, self.shape[-1] - 1)
        positions = indices.queries[:, None], keys[None, :]  # (q, 1), (1, k)
        bias = (
            self._at_positions("bias", self.bias, *positions)
            if callable(self.bias)
            else indices.bias
        )
        visible = list(self._masks(*positions))  # each broadcasts to (..., q, k)
        if bias is not None:
            finite = bias != -jnp.inf
            visible.append(finite)
            bias = jnp.where(finite, bias, 0)  # (..., q, k); axes of 1 stay
        mask = functools.reduce(both, visible) if visible else None  # (..., q, k); axes of 1 stay
        return None if mask is None else with_rank(mask, len(self.shape)), bias

    def shown(
        self, query: Array, key: Array, value: Array, indices: Indices | None = None
    ) -> tuple[Array, Array, Array, Array | None, Array | None]:
        """Zeros what is not seen. Returns the arrays, and the mask and bias of their block.

        Queries without a visible key, and keys and values that no query sees, are zeros: a NaN
        there must not reach values or gradients.
        """
        mask, bias = self.block(indices)
        if mask is not None:
            if indices is None and not self.hides_single_pairs:
                has_key, has_query = self.reachable()  # without a look at each pair
            else:
                has_key, has_query = mask.any(axis=-1), mask.any(axis=-2)  # (..., q), (..., k)
            query, key, value = hide_unseen(query, key, value, has_key, has_query)
        return query, key, value, mask, bias

    def without_unreachable(
        self, query: Array, key: Array, value: Array
    ) -> tuple[Array, Array, Array]:
        """Zeros what is not seen, by the limits that need no look at each pair."""
        if self.hides_single_pairs:
            return query, key, value
        return hide_unseen(query, key, value, *self.reachable())

    def _masks(self, queries: Array, keys: Array) -> Iterator[Array]:
        """Yields the mask of each limit that is set, at indices `(q, 1)` and `(1, k)`."""
        for mask in (self.mask, self.lens_mask):
            if callable(mask):
                yield self._at_positions("mask", mask, queries, keys)  # (..., q, k); axes of 1 stay
            elif mask is not None:
                yield take(mask, queries, keys)  # (..., q, k); axes of 1 stay
        yield from self._near(queries, queries, keys, keys)
        if self.query_lengths is not None:
            yield jnp.less(*aligned(queries, self.query_lengths))  # (..., q, 1)
        if self.key_lengths is not None:
            yield jnp.less(*aligned(keys, self.key_lengths))  # (..., 1, k)
        if self.query_segments is not None and self.key_segments is not None:
            of_queries = jnp.take(self.query_segments, queries[:, 0], axis=-2, mode="clip")
            yield of_queries == jnp.take(self.key_segments, keys[0], axis=-1, mode="clip")

    def _near(
        self, first_query: Array, last_query: Array, first_key: Array, last_key: Array
    ) -> Iterator[Array]:
        """Yields whether causality, window and prefix let a range of queries see one of keys."""
        start, _ = self.window_of(first_query)  # (..., q or i, 1)
        _, end = self.window_of(last_query)  # (..., q or i, 1)
        near = [] if start is None else [jnp.less_equal(*aligned(start, last_key))]  # (..., q, k)
        near += [] if end is None else [jnp.less_equal(*aligned(first_key, end))]  # (..., q, k)
        if not near:  # a prefix shows keys; without a window it changes nothing
            return
        near = functools.reduce(both, near)  # (..., q, k), or (..., i, j) of blocks
        if self.prefix_lengths is not None:
            near = jnp.logical_or(
                *aligned(near, jnp.less(*aligned(first_key, self.prefix_lengths)))
            )
        yield near

    def window_of(self, queries: Tree) -> tuple[Tree, Tree]:
        """Returns the first and last key that causality and window leave to queries at indices.

        None stands for no bound. The numbers may lie outside the keys. The queries are an array of
        JAX or NumPy, or a number.
        """
        if isinstance(self.query_offset, int):
            positions = queries + self.query_offset  # known while tracing if the queries are
        else:
            positions = jnp.add(*aligned(jnp.asarray(queries), self.query_offset))  # (..., q, 1)
        first = None if self.left is None else positions - self.left
        return first, None if self.right is None else positions + self.right

    def reachable(self, chunk_size: int | None = None) -> tuple[Reached, Reached]:
        """Finds the queries `(..., q)` that see a key, and the keys `(..., k)` that a query sees.

        The axes before are those of the weights, or 1. A mask, a bias and segments are looked at
        pair by pair, for `chunk_size` queries at once. None looks at `MOST_PAIRS` pairs at once.
        """
        if not self.hides_single_pairs:
            return self._reachable_in_window()
        num_queries, num_keys = self.shape[-2:]
        if chunk_size is None and not self.is_symbolic:
            chunk_size = max(MOST_PAIRS // max(num_keys, 1), 1)
        size = num_queries if chunk_size is None else min(chunk_size, max(num_queries, 1))
        whole = self.all_indices()

        def of_queries(start: Array) -> tuple[Array, Array]:
            queries = jnp.minimum(start + jnp.arange(size), num_queries - 1)  # (size,)
            bias = whole.bias
            if bias is not None:
                bias = take(bias, queries[:, None], whole.keys[None, :])  # (..., size, k)
            mask, _ = self.block(whole._replace(queries=queries, bias=bias))
            mask = jnp.ones((1,) * len(self.shape), bool) if mask is None else mask
            mask = jnp.broadcast_to(mask, (*mask.shape[:-2], size, num_keys))  # (..., size, k)
            return mask.any(axis=-1), mask.any(axis=-2)  # (..., size), (..., k)

        if size == num_queries:
            return of_queries(jnp.asarray(0))
        has_key, has_query = jax.lax.map(of_queries, jnp.arange(0, num_queries, size))
        has_key = jnp.moveaxis(has_key, 0, -2).reshape(*has_key.shape[1:-1], -1)  # (..., n size)
        return has_key[..., :num_queries], has_query.any(axis=0)  # (..., q), (..., k)

    def reachable_in_any_head(self, chunk_size: int | None = None) -> tuple[Reached, Reached]:
        """Reduces `reachable` over the head axes."""
        axes = tuple(range(-1 - len(self.heads), -1))  # before the last, which is queries or keys
        has_key, has_query = self.reachable(chunk_size)
        return has_key.any(axis=axes), has_query.any(axis=axes)  # pyright: ignore

    def _reachable_in_window(self) -> tuple[Reached, Reached]:
        """Computes `reachable` by causality, window, prefix and lengths, without all pairs.

        The windows of neighbouring queries touch. So all queries together see one stretch of keys.
        """
        num_queries, num_keys = self.shape[-2:]
        lengths = self.query_lengths, self.key_lengths, self.prefix_lengths
        known = isinstance(self.query_offset, int) and not self.is_symbolic
        known = known and all(length is None for length in lengths)  # lengths are arrays of JAX
        xp: Tree = np if known else jnp  # NumPy where all is known while tracing
        real = lambda number, length: number if length is None else jnp.minimum(number, length)
        real_queries, real_keys = real(num_queries, lengths[0]), real(num_keys, lengths[1])
        rank = (1,) * (len(self.shape) - 2)  # of the axes before queries and keys
        queries, keys = xp.arange(num_queries).reshape(*rank, -1, 1), xp.arange(num_keys)
        keys = keys.reshape(*rank, 1, -1)  # (..., 1, k)
        first, last = self.window_of(queries)  # (..., q, 1)
        first = 0 if first is None else xp.maximum(first, 0)
        has_key = first <= (real_keys - 1 if last is None else xp.minimum(last, real_keys - 1))
        (start, _), (_, end) = self.window_of(0), self.window_of(real_queries - 1)
        near = [keys >= start] if start is not None else []  # (..., 1, k)
        near += [keys <= end] if end is not None else []  # (..., 1, k)
        if self.prefix_lengths is not None:
            has_key |= jnp.minimum(self.prefix_lengths, real_keys) > 0  # every query sees a prefix
            near = [functools.reduce(operator.and_, near) | (keys < self.prefix_lengths)]
        has_query = functools.reduce(operator.and_, near, keys < real_keys)  # (..., 1, k)
        has_key = xp.logical_and(has_key, queries < real_queries)  # (..., q, 1)
        has_query = xp.logical_and(has_query, real_queries > 0)  # (..., 1, k)
        return has_key[..., 0], has_query[..., 0, :]  # (..., q), (..., k)

    def visible_blocks(self, rows: Array, columns: Array) -> Bool[Array, "i j"]:
        """Finds the blocks of keys that the queries of a block may see, in any batch row and head.

        A block counts as visible unless it is known to be hidden. A bias and the mask of a lens
        are not looked at. Of segments, only the least and the largest id of a block are compared.

        Args:
            rows, columns: the indices of queries `(i, q)` and keys `(j, k)` in blocks. A key at an
                index beyond the last one is none.
        """
        num_keys = self.shape[-1]
        first_query, last_query = rows.min(axis=-1)[:, None], rows.max(axis=-1)[:, None]  # (i, 1)
        first_key = columns.min(axis=-1)[None, :]  # (1, j)
        last_key = jnp.minimum(columns.max(axis=-1), num_keys - 1)[None, :]  # (1, j)
        visible = [jnp.broadcast_to(first_key < num_keys, (len(rows), len(columns)))]  # (i, j)
        visible += self._near(first_query, last_query, first_key, last_key)  # (..., i, j)
        if self.query_lengths is not None:
            visible.append(jnp.less(*aligned(first_query, self.query_lengths)))  # (..., i, 1)
        if self.key_lengths is not None:
            visible.append(jnp.less(*aligned(first_key, self.key_lengths)))  # (..., 1, j)
        columns = jnp.minimum(columns, num_keys - 1)  # (j, k)
        if self.query_segments is not None and self.key_segments is not None:
            least, most = _ends(jnp.swapaxes(self.query_segments, -1, -2), rows)  # (..., 1, i)
            least_key, most_key = _ends(self.key_segments, columns)  # (..., 1, j)
            visible.append(least[..., 0, :, None] <= most_key)  # (..., i, j)
            visible.append(least_key <= most[..., 0, :, None])  # (..., i, j)
        blocks = functools.reduce(both, visible)  # (..., i, j)
        blocks = blocks.any(axis=tuple(range(blocks.ndim - 2)))  # (i, j)
        if self.mask is None:
            return blocks
        masked = Visibility(self.shape, self.heads, self.mask, query_offset=self.query_offset)

        def of_row(row: Array) -> Array:
            mask, _ = masked.block(Indices(row, columns.ravel()))  # (..., q, j k); axes of 1 stay
            assert mask is not None
            some = jnp.broadcast_to(mask, (*mask.shape[:-2], len(row), columns.size))
            some = some.any(axis=tuple(range(some.ndim - 1)))  # (j k,)
            return some.reshape(columns.shape).any(axis=-1)  # (j,)

        return blocks & jax.lax.map(of_row, rows)  # (i, j); the mask of all pairs never exists

    def _at_positions(
        self, name: str, function: Callable[..., Array], queries: Array, keys: Array
    ) -> Array:
        """Calls a mask or bias function, and gives its result the head axes of the weights.

        With an offset for each batch row the function gets query positions `(..., q, 1)`. A result
        without a head axis then gets one.
        """
        shape, offset = (queries.shape[0], keys.shape[1]), self.query_offset  # (q, k) of the block
        if isinstance(offset, int) or not offset.ndim:
            term = function(queries + offset, keys)  # (..., q, k); axes of 1 stay
        else:
            offset = offset.reshape(*self.rows, 1, 1)  # (..., 1, 1), without axes of heads
            term = function(jnp.add(*aligned(queries, offset)), keys)  # (..., q, k); axes of 1 stay
            has_heads = jax.eval_shape(function, queries, keys).ndim > 2  # rank without batch rows
            if self.heads and not has_heads and jnp.ndim(term) >= offset.ndim:
                term = term[..., None, :, :]  # (..., 1, q, k)
        heads = (math.prod(self.heads),) if self.heads else ()
        term = as_mask(term) if name == "mask" else as_floats(name, term)
        term = broadcastable(name, term, (*self.rows, *heads, *shape))
        if len(self.heads) < 2:
            return term
        groups = self.heads if term.shape[-3] > 1 else (1, 1)  # (key heads, group)
        return term.reshape(*term.shape[:-3], *groups, *term.shape[-2:])


def make_visibility(
    shape: tuple[int, ...],
    heads: tuple[int, ...] = (),
    *,
    mask: PerPair | None = None,
    bias: PerPair | None = None,
    causal: bool = False,
    window: Window | None = None,
    query_offset: ArrayLike = 0,
    prefix_lengths: ArrayLike | None = None,
    query_lengths: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    query_segments: ArrayLike | None = None,
    key_segments: ArrayLike | None = None,
    **others: object,
) -> Visibility:
    """Checks the limits of what a query sees, and makes one value of them.

    `dot_product_attention` describes the arguments and errors; `shape` and `heads` are those of
    `Visibility`.
    """
    check_expected(others)
    made = Visibility(shape, heads)
    fields: Options = {"mask": _per_pair(made, "mask", mask)}
    fields["bias"] = _per_pair(made, "bias", bias)
    fields["left"], fields["right"] = as_window(window, causal)
    if not isinstance(query_offset, int) or isinstance(query_offset, bool):  # True is an int, too
        query_offset = _per_row(made, "query_offset", as_integers("query_offset", query_offset))
    lengths = {"query_lengths": query_lengths, "key_lengths": key_lengths}
    lengths |= {"prefix_lengths": prefix_lengths}
    for name, array in lengths.items():
        fields[name] = None if array is None else _per_row(made, name, as_lengths(name, array))
    if prefix_lengths is not None and fields["left"] is fields["right"] is None:
        raise ValueError("expected causal=True or a window with prefix_lengths, got neither")
    if (query_segments is None) != (key_segments is None):
        raise ValueError("expected query_segments and key_segments together, got one of them")
    if query_segments is not None and key_segments is not None:
        queries = _per_token(made, "query_segments", query_segments, shape[-2])  # (..., q)
        keys = _per_token(made, "key_segments", key_segments, shape[-1])  # (..., k)
        fields |= {"query_segments": queries[..., :, None], "key_segments": keys[..., None, :]}
        fields["is_packed"] = query_segments is key_segments  # traced ids cannot be compared
    return dataclasses.replace(made, query_offset=query_offset, **fields)


def hide(array: Array, real: Array | np.ndarray) -> Array:
    """Zeros the vectors `(..., t, d)` where `real` `(..., t)` is False.

    A product with 0 would keep a NaN, in values and in gradients; a selection does not.
    """
    if isinstance(real, np.ndarray) and real.all():  # known while tracing: nothing to select
        return array
    return jnp.where(real[..., None], array, 0)  # (..., t, d)


def real_tokens(
    lengths: ArrayLike | None, rows: tuple[int, ...], length: int
) -> Bool[Array, "..."] | None:
    """Returns which tokens `(..., t)` are no padding, for lengths `(...)`; None for all."""
    if lengths is None:
        return None
    lengths = jnp.broadcast_to(as_lengths("lengths", lengths), rows)
    return with_rank(jnp.arange(length), len(rows) + 1) < lengths[..., None]  # (..., t)


def hide_unseen(
    query: Array, key: Array, value: Array, has_key: Reached, has_query: Reached
) -> tuple[Array, Array, Array]:
    """Zeros queries without a key, and keys and values without a query."""
    return hide(query, has_key), hide(key, has_query), hide(value, has_query)


def _per_pair(visible: Visibility, name: str, term: PerPair | None) -> Tree:
    """Gives a mask or bias the rank of the weights; a function of positions stays.

    Of `(n, q, k)` beside batch rows nobody knows whether `n` are rows or heads.
    """
    if term is None:
        return None
    if callable(term):
        return term
    array = as_mask(term) if name == "mask" else as_floats("bias", term)
    if visible.heads and array.ndim == 3 < len(visible.shape) and array.shape[0] > 1:
        raise ValueError(
            f"expected a {name} with all axes of the weights {visible.shape}, got {array.shape}; "
            f"write {name}[:, None] for one a batch row, {name}[None] for one a head"
        )
    return broadcastable(name, array, visible.shape)


def _per_row(visible: Visibility, name: str, array: Array) -> Array:
    """Gives integers `(...)`, one a batch row, the rank of the weights; those of `()` stay."""
    if not array.ndim:
        return array
    if not broadcasts(array.shape, visible.rows):
        raise ValueError(f"expected {name} of shape {visible.rows}, got {array.shape}")
    ones = (1,) * (len(visible.heads) + 2)  # for the axes of heads, queries and keys
    return jnp.broadcast_to(array.reshape(*array.shape, *ones), (*visible.rows, *ones))


def _per_token(visible: Visibility, name: str, ids: ArrayLike, length: int) -> Array:
    """Gives integers `(..., t)`, one for each token, the rank of the weights less one."""
    rows, ids = visible.rows, as_integers(name, ids)
    is_of_rows = ids.ndim == 1 or broadcasts(ids.shape[:-1], rows)
    if ids.shape[-1:] != (length,) or not is_of_rows:
        raise ValueError(f"expected {name} of shape {(*rows, length)}, got {ids.shape}")
    leading = ids.shape[:-1] or (1,) * len(rows)  # ids `(t,)` are those of every row
    return ids.reshape(*leading, *(1,) * len(visible.heads), length)  # (..., t); heads are 1


def _ends(ids: Array, blocks: Array) -> tuple[Array, Array]:
    """Returns the least and the largest id in each block of indices, for ids `(..., t)`."""
    in_blocks = jnp.take(ids, blocks, axis=-1, mode="clip")  # (..., n, size)
    return in_blocks.min(axis=-1), in_blocks.max(axis=-1)  # (..., n)
