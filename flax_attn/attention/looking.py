"""How attention looks through the lens that is entered: `lenses` says what a lens is."""

import dataclasses
import functools
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.all_queries import needs_all_queries
from flax_attn.attention.arrays import wide
from flax_attn.attention.checks import check_function
from flax_attn.attention.how import How
from flax_attn.attention.lenses import Lens, current, keep
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.types import Normalizer, Score


def through(pairs: Pairs, how: How) -> tuple[Pairs, How]:
    """The pairs and the way to attend as they are through the lens, where there is one.

    Softmax stays softmax, so that it can be computed in blocks: the temperature then divides score
    and bias. Any other normaliser gets the scores divided.
    """
    lens = current()
    if lens is None:
        return pairs, how
    check_function("score", how.score)
    check_function("normalizer", how.normalizer)
    normalizer = _normalizer(lens, how.normalizer, pairs)
    pairs = pairs.through_lens(lens.mask)
    if lens.keep_scores:
        return pairs, _all_at_once(lens, normalizer, pairs, how)
    if normalizer is masked_softmax:
        pairs, score = _divided(pairs, how.score, lens.temperature)
        return pairs, how._replace(score=score, normalizer=normalizer)
    return pairs, how._replace(normalizer=_of_divided(lens, normalizer, pairs))


def normalized(normalizer: Normalizer, scores: Array) -> Array:
    """The weights `(..., k)` of one query's scores, as they are through the lens."""
    lens = current()
    if lens is None:
        return normalizer(scores)
    pairs = Pairs((*scores.shape[:-1], 1, scores.shape[-1])).through_lens(lens.mask)
    weigh = _of_divided(lens, _normalizer(lens, normalizer, pairs), pairs)
    mask = None if pairs.all_visible else pairs.whole().mask
    return weigh(scores[..., None, :], mask=mask)[..., 0, :]


def of_softmax(pairs: Pairs, score: Score) -> tuple[Pairs, Score]:
    """The pairs and the score through the lens, of what there is for softmax alone."""
    lens = current()
    if lens is None:
        return pairs, score
    if lens.normalizer not in (None, masked_softmax):
        raise ValueError(
            f"expected softmax in log_sum_exp, got a lens with the normalizer {lens.normalizer}"
        )
    return _divided(pairs.through_lens(lens.mask), score, lens.temperature)


def around(make: Callable[[Normalizer], Normalizer], inner: Normalizer) -> Normalizer:
    """The normaliser `make(inner)`. A lens replaces the inner one alone."""
    normalizer = make(inner)
    normalizer.with_inner = make  # pyright: ignore
    return normalizer


def replaced(normalizer: Normalizer) -> Normalizer:
    """The normaliser of a layer, or the one that a lens puts in its place."""
    lens = current()
    if lens is None or lens.normalizer is None:
        return normalizer
    make = getattr(normalizer, "with_inner", None)
    return lens.normalizer if make is None else make(lens.normalizer)


def check_no_mask(where: str) -> None:
    """Raises a ValueError for a lens with a mask, which does not fit here."""
    lens = current()
    if lens is not None and lens.mask is not None:
        raise ValueError(f"expected no mask of a lens beside {where}")


def _normalizer(lens: Lens, own: Normalizer, pairs: Pairs) -> Normalizer:
    """The lens's normaliser, or else the layer's own.

    Raises:
        ValueError: a lens's normaliser that needs all queries, where queries come one at a time.
    """
    if lens.normalizer is not None and needs_all_queries(lens.normalizer) and pairs.shape[-2] == 1:
        raise ValueError(
            f"expected a normalizer that sees one query at a time for weights {pairs.shape}, "
            f"got a lens with {lens.normalizer}, which needs all queries"
        )
    return replaced(own)


def _of_divided(lens: Lens, normalizer: Normalizer, pairs: Pairs) -> Normalizer:
    """The normaliser of scores that are kept, if they shall be, and then divided."""

    @functools.wraps(normalizer)
    def weigh(scores: Array, mask: Array | None = None) -> Array:
        keep(lens, scores.reshape(pairs.shape) if lens.keep_scores else scores)
        return normalizer(_quotient(scores, lens.temperature), mask=mask)

    weigh.across_queries = needs_all_queries(normalizer)  # pyright: ignore
    return weigh


def _all_at_once(lens: Lens, normalizer: Normalizer, pairs: Pairs, how: How) -> How:
    """The way to attend with all scores in one array; weights are wanted where they were."""
    on_ring = how.across is not None and how.across.ring
    need_weights = how.need_weights and how.chunk_size is None and not on_ring
    if 0 in pairs.shape:  # no normaliser is called
        keep(lens, jnp.zeros(pairs.shape))
    return How(how.score, _of_divided(lens, normalizer, pairs), None, need_weights)


def _divided(pairs: Pairs, score: Score, temperature: float | Array | None) -> tuple[Pairs, Score]:
    """The pairs with the bias divided by the temperature, and the score divided by it."""
    if temperature is None:
        return pairs, score
    bias = own = pairs.bias
    if callable(own):
        bias = lambda queries, keys: _quotient(jnp.asarray(own(queries, keys)), temperature)
    elif own is not None:
        bias = _quotient(own, temperature)
    of_score = lambda query, key: _quotient(score(query, key), temperature)
    return dataclasses.replace(pairs, bias=bias), of_score


def _quotient(scores: Array, temperature: float | Array | None) -> Array:
    """The scores divided by the temperature, in float32 or better.

    What is not finite stays as it is, and does not reach the gradient of the temperature.
    """
    if temperature is None:
        return scores
    scores = scores.astype(wide(scores.dtype))
    if isinstance(temperature, float):
        return scores / temperature
    temperature = jnp.where(temperature > 0, temperature, jnp.nan).astype(scores.dtype)
    finite = jnp.isfinite(scores)
    return jnp.where(finite, jnp.where(finite, scores, 0) / temperature, scores)
