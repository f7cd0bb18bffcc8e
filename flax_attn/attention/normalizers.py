"""Normalisers: from energies to weights. Pure functions `(scores, mask) -> weights` along the last axis, the keys.

What stands at a masked place, even a NaN, is never read; it gets weight 0. A row with no key allowed has weights 0 and
finite gradients. All run in float32 or better, and return what they ran in.

A normaliser looks at one row of keys at a time, so that `attend` may hand it some of the queries only. One that does not
says so with the decorator `across_queries`.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from flax_attn.attention.dropout import positional_bits
from flax_attn.attention.masks import grid

Scores = Float[Array, "*b k"]
Mask = Bool[Array, "*#b #k"]
Weights = Float[Array, "*b k"]

FLOOR = -4.0  # below the largest score: no weight of sparsemax or entmax-1.5 is left there, whose supports end at -1 and -2


_IN_BLOCKS = contextvars.ContextVar("in_blocks", default=False)


def across_queries(normalizer: Callable[..., Array]) -> Callable[..., Array]:
    """Marks a normaliser that must see all queries at once: `attend` then gives it the whole of the scores.

    One that is given some of them all the same, because a function around it is not marked, raises a ValueError.
    """

    @functools.wraps(normalizer)
    def whole(*args: Any, **kwargs: Any) -> Array:
        if _IN_BLOCKS.get():
            name = normalizer.__name__
            raise ValueError(
                f"{name} must see all queries at once, not blocks of them; mark the function around it with across_queries"
            )
        return normalizer(*args, **kwargs)

    whole.across_queries = True  # pyright: ignore
    return whole


@contextlib.contextmanager
def in_blocks() -> Iterator[None]:
    """While it lasts, normalisers are given some of the queries only."""
    token = _IN_BLOCKS.set(True)
    try:
        yield
    finally:
        _IN_BLOCKS.reset(token)


def needs_all_queries(normalizer: Callable[..., Array]) -> bool:
    """Whether a normaliser, or the one inside a `functools.partial`, is marked by `across_queries`."""
    while isinstance(normalizer, functools.partial):
        normalizer = normalizer.func
    return getattr(normalizer, "across_queries", False)


def masked_softmax(scores: Scores, mask: Mask | None = None) -> Weights:
    """Softmax over the keys that the mask allows, `w_k = exp(e_k) / sum_j exp(e_j)` for allowed `k` and `j`, else 0.

    Args:
        scores: energies of any sign and size.
        mask: True where a key may be attended; broadcasts to the scores.
    """
    scores = _widened(scores)
    if mask is None:
        return _softmax(scores, None)
    mask = jnp.broadcast_to(mask, scores.shape)
    return _softmax(jnp.where(mask, scores, 0), mask)


@jax.custom_jvp
def _softmax(scores: Array, mask: Array | None) -> Array:
    """Softmax with the derivative `dw = w (de - sum w de)`: it needs the weights alone, not what they were made of."""
    return jax.nn.softmax(scores, axis=-1, where=mask)


@_softmax.defjvp
def _softmax_jvp(
    primals: tuple[Array, Array | None], tangents: tuple[Array, Any]
) -> tuple[Array, Array]:
    weights, change = _softmax(*primals), tangents[0]
    return weights, weights * (change - jnp.sum(weights * change, axis=-1, keepdims=True))


def sparsemax(scores: Scores, mask: Mask | None = None) -> Weights:
    """The point of the simplex nearest to the scores, `w_k = max(e_k - tau, 0)` with `sum w = 1`; many weights are exactly 0.

    Source: Martins & Astudillo 2016 (arXiv:1602.02068), algorithm 1; its gradient is that of the support held fixed (eq. 14).
    """
    shifted, mask = _shifted(*_prepared(scores, mask))
    ordered = jax.lax.stop_gradient(jnp.sort(shifted, axis=-1, descending=True))
    rank, total = _ranks(ordered), jnp.cumsum(ordered, axis=-1)
    support = mask & (shifted > _at_last((total - 1) / rank, 1 + rank * ordered > total))
    tau = _mean(shifted, support) - 1 / _size(support)
    return jnp.where(support, shifted - tau, 0)


def entmax15(scores: Scores, mask: Mask | None = None) -> Weights:
    """Between softmax and sparsemax: `w_k = max(e_k / 2 - tau, 0)^2` with `sum w = 1`, the 1.5-entmax.

    Source: Peters, Niculae & Martins 2019 (arXiv:1905.05702), algorithm 2; its gradient is that of the support held fixed.
    """
    shifted, mask = _shifted(*_prepared(scores, mask))
    halves = shifted / 2
    ordered = jax.lax.stop_gradient(jnp.sort(halves, axis=-1, descending=True))
    rank = _ranks(ordered)
    mean = jnp.cumsum(ordered, axis=-1) / rank
    spread = jnp.cumsum(jnp.square(ordered), axis=-1) - rank * jnp.square(mean)
    tau = mean - jnp.sqrt(jnp.maximum(1 - spread, 0) / rank)
    support = mask & (halves > _at_last(tau, tau <= ordered))
    center = _mean(halves, support)
    spread = jnp.where(support, jnp.square(halves - center), 0).sum(axis=-1, keepdims=True)
    tau = center - jnp.sqrt((1 - spread) / _size(support))
    return jnp.square(jnp.where(support, halves - tau, 0))


def hard(scores: Scores, mask: Mask | None = None, *, temperature: float = 1.0) -> Weights:
    """All weight on the largest score, the first of equal ones; backward it is `softmax(e / temperature)` (straight-through).

    Source: Xu et al. 2015 (arXiv:1502.03044), section 4.1, for hard attention; Bengio et al. 2013 (arXiv:1308.3432) for
    the estimator.
    """
    if not temperature > 0:
        raise ValueError(f"expected a temperature above 0, got {temperature}")
    scores, mask = _prepared(scores, mask)
    soft = masked_softmax(scores / temperature, mask)
    largest = jnp.argmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    chosen = jnp.where(mask, jax.nn.one_hot(largest, scores.shape[-1], dtype=soft.dtype), 0)
    return chosen + (soft - jax.lax.stop_gradient(soft))


@across_queries
def sampled_hard(
    scores: Scores, mask: Mask | None = None, *, rng: Key[Array, ""], temperature: float = 1.0
) -> Weights:
    """All weight on one key, drawn with the probabilities of softmax; backward it is the Gumbel-softmax (straight-through).

    `argmax_k (e_k + g_k)` with `g` from the Gumbel distribution is a draw from `softmax(e)`; the gradient is that of
    `softmax((e + g) / temperature)`.

    Source: Jang, Gu & Poole 2017 (arXiv:1611.01144), section 2.2.
    """
    scores = _widened(scores)
    *leading, num_queries, num_keys = (1, *scores.shape) if scores.ndim == 1 else scores.shape
    bits = positional_bits(rng, tuple(leading), *grid(num_queries, num_keys)).reshape(
        scores.shape
    )  # more queries or keys change no draw
    uniform = (
        (bits >> 9).astype(scores.dtype) + 0.5
    ) / 2**23  # in (0, 1), both ends left out; one bit more would round to 1
    return hard(scores - jnp.log(-jnp.log(uniform)), mask, temperature=temperature)


def top_k(scores: Scores, mask: Mask | None = None, *, k: int) -> Weights:
    """Softmax over the `k` largest scores of those allowed, the first of equal ones; the others get 0 and no gradient.

    Source: Gupta et al. 2021 (arXiv:2106.06899), section 2.

    Raises:
        ValueError: `k` below 1.
    """
    if k < 1 or k != int(k):
        raise ValueError(f"expected k to be an integer of 1 or above, got {k}")
    scores, mask = _prepared(scores, mask)
    rank = jnp.argsort(
        jnp.argsort(jnp.where(mask, scores, -jnp.inf), axis=-1, descending=True), axis=-1
    )
    return masked_softmax(scores, mask & (rank < k))


def _widened(scores: Array) -> Array:
    return scores.astype(jnp.promote_types(scores.dtype, jnp.float32))


def _prepared(scores: Array, mask: Array | None) -> tuple[Array, Array]:
    """The scores in float32 or better, and a mask of their shape."""
    return _widened(scores), jnp.broadcast_to(True if mask is None else mask, scores.shape)


def _shifted(scores: Array, mask: Array) -> tuple[Array, Array]:
    """The scores below the largest of them, which is held fixed, but no further than `FLOOR`; all that is masked is there."""
    largest = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
    return jnp.where(mask, jnp.maximum(scores - jax.lax.stop_gradient(largest), FLOOR), FLOOR), mask


def _ranks(ordered: Array) -> Array:
    return jnp.broadcast_to(
        jnp.arange(1, ordered.shape[-1] + 1, dtype=ordered.dtype), ordered.shape
    )


def _at_last(values: Array, inside: Array) -> Array:
    """The value `(..., 1)` at the last place that is inside; places inside come first."""
    last = jnp.maximum(inside.sum(axis=-1, keepdims=True) - 1, 0)
    return jnp.take_along_axis(values, last, axis=-1)


def _size(support: Array) -> Array:
    return jnp.maximum(support.sum(axis=-1, keepdims=True), 1)


def _mean(values: Array, support: Array) -> Array:
    return jnp.where(support, values, 0).sum(axis=-1, keepdims=True) / _size(support)
