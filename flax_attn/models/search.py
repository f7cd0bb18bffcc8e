"""From a decoder's steps to whole sequences, greedily or by beam search.

The functions are pure, batched, and of static shapes, so they can be jitted.

`step(state, tokens) -> (logits, state, weights)` continues `k` sequences of each row of a batch:
the last tokens `(b, k)` to logits `(b, k, vocabulary)` of what follows and weights `(b, k, s)` on
the source; every leaf of the state begins with the axes `(b, k)`.

    score(y) = log p(y) / ((5 + |y|) / 6)^alpha

Source: Graves 2012 (arXiv:1211.3711), section 2.6, for the beam; Wu et al. 2016 (arXiv:1609.08144),
eq. 14, for the length penalty.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flax_attn.models.cpu.largest import top_k
from flax_attn.types import Tree

SearchStep = Callable[
    [Tree, Int[Array, "b k"]], tuple[Float[Array, "b k v"], Tree, Float[Array, "b k s"]]
]


class Decoded(NamedTuple):
    """Sequences, the best first, with their alignment.

    `tokens` are `(b, n, t)` up to the end of sequence, then 0. `lengths` `(b, n)` leave it out.
    `scores` are those above. `ended` says which sequences ended before the search was over.
    `alignment` `(b, n, t, s)` holds the weights of each token, zeros from the end of sequence on.
    """

    tokens: Int[Array, "b n t"]
    lengths: Int[Array, "b n"]
    scores: Float[Array, "b n"]
    ended: Bool[Array, "b n"]
    alignment: Float[Array, "b n t s"]


def greedy(
    step: SearchStep,
    state: Tree,
    *,
    end: int,
    max_length: int,
    length_penalty: float = 0.0,
    forbidden: tuple[int, ...] = (),
    first: int | None = None,
) -> Decoded:
    """Searches greedily, by the most probable token at every step.

    Args:
        step, state: of the decoder, with `k = 1`.
        end: the token that ends a sequence.
        max_length: steps at most, the one that ends the sequence among them.
        length_penalty: `alpha` above; it changes the scores alone.
        forbidden: tokens that never come.
        first: the token that stands before the first; None for `end`.
    """
    batch = jax.tree.leaves(state)[0].shape[0]
    num_source = _num_source(step, state, batch, 1)

    def go_on(now: _Greedy) -> Array:
        return (now.i < max_length) & ~now.ended.all()

    def body(now: _Greedy) -> _Greedy:
        logits, state, weights = step(now.state, now.token)
        log_probabilities = _log_softmax(logits, forbidden)
        token = jnp.where(now.ended, end, jnp.argmax(log_probabilities, axis=-1))
        gain = jnp.where(now.ended, 0, log_probabilities.max(axis=-1))
        ended, score = now.ended | (token == end), now.score + gain
        put = functools.partial(jax.lax.dynamic_update_index_in_dim, index=now.i, axis=0)
        tokens, alignment = put(now.tokens, token), put(now.alignment, weights)
        return _Greedy(now.i + 1, state, token, ended, score, tokens, alignment)

    before = jnp.full((batch, 1), end if first is None else first)
    none, zero = jnp.zeros_like(before, bool), jnp.zeros(before.shape)
    tokens = jnp.full((max_length, batch, 1), end)
    alignment = jnp.zeros((max_length, batch, 1, num_source))
    start = _Greedy(jnp.asarray(0), state, before, none, zero, tokens, alignment)
    last = jax.lax.while_loop(go_on, body, start)
    decoded = _decoded(last.tokens, last.alignment, last.score, last.ended, end)
    lengths = decoded.lengths + last.ended
    return decoded._replace(scores=last.score / _penalty(lengths, length_penalty))


def probabilities(decoded: Decoded, length_penalty: float = 0.0) -> Float[Array, "b n"]:
    """Computes the probability of each sequence, with its end, from the score."""
    penalty = _penalty(decoded.lengths + decoded.ended, length_penalty)
    return jnp.exp(decoded.scores * penalty)


class _Greedy(NamedTuple):
    """A greedy search before step `i`: the decoder's state, the last token and what was found."""

    i: Array
    state: Tree
    token: Array
    ended: Array
    score: Array
    tokens: Array
    alignment: Array


class Ended(NamedTuple):
    """The best sequences `(b, k)` that have come to their end.

    `step` is the step that ended them, `place` their index in the beam then.
    """

    score: Float[Array, "b k"]
    step: Int[Array, "b k"]
    place: Int[Array, "b k"]


def beam_search(
    step: SearchStep,
    state: Tree,
    *,
    beam: int,
    end: int,
    max_length: int,
    length_penalty: float = 0.0,
    num_best: int = 1,
    forbidden: tuple[int, ...] = (),
    first: int | None = None,
) -> Decoded:
    """Searches for the best sequences, keeping the `beam` best beginnings at every step.

    A sequence ends when its end is among the `beam` best continuations, and is kept apart from the
    beginnings. The search of a row is over when `beam` sequences have ended, or none of the
    beginnings can become better than the `num_best` best of them: its log-probability can only
    fall, and is divided by no more than the penalty of `max_length`. Sequences that have not ended
    by then come behind all that have.

    Args:
        step, state, end, max_length, forbidden, first: as in `greedy`; the state is given for
            `k = 1`.
        beam: beginnings that are kept; with 1 the search is greedy.
        length_penalty: `alpha` above; 0 compares log-probabilities as they are.
        num_best: how many sequences are returned.
    """
    if not 1 <= num_best <= beam:
        raise ValueError(f"expected num_best from 1 to the beam of {beam}, got {num_best}")
    if length_penalty < 0:
        raise ValueError(f"expected a length_penalty of 0 or above, got {length_penalty}")
    batch = jax.tree.leaves(state)[0].shape[0]
    state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, beam, *leaf.shape[2:])), state)
    penalty = functools.partial(_penalty, alpha=length_penalty)

    def is_over(now: _Beam) -> Bool[Array, " b"]:
        enough = jnp.isfinite(now.ended.score).all(axis=-1)
        least = now.ended.score[:, num_best - 1]
        return enough | (least >= now.score[:, 0] / penalty(max_length))

    def go_on(now: _Beam) -> Array:
        return (now.i < max_length) & ~is_over(now).all()

    def body(now: _Beam) -> _Beam:
        is_searched = ~is_over(now)[:, None]
        logits, state, weights = step(now.state, now.token)
        log_probabilities = _log_softmax(logits, forbidden)
        return _extend(now, log_probabilities, state, weights, is_searched, end, penalty(now.i + 1))

    num_source = _num_source(step, state, batch, beam)
    before = end if first is None else first
    start = _start(state, (batch, beam), before, max_length, num_source)
    return _best(jax.lax.while_loop(go_on, body, start), penalty, num_best, end)


class _Beam(NamedTuple):
    """A beam search before step `i`.

    `token` and `score` are `(b, k)`, the last tokens of the beginnings and their log-probabilities.
    `history` holds of every step the tokens, the parents in the beam before, and the weights.
    """

    i: Array
    state: Tree
    token: Array
    score: Array
    ended: Ended
    history: list[Array]


def _start(
    state: Tree, shape: tuple[int, int], first: int, max_length: int, num_source: int
) -> _Beam:
    """Makes the beam before the first step: one beginning a row, with nothing in it."""
    places = jnp.broadcast_to(jnp.arange(shape[1])[None], shape)
    nothing = jnp.zeros((max_length, *shape), int)
    history = [nothing, nothing, jnp.zeros((max_length, *shape, num_source))]
    none = jnp.full(places.shape, -jnp.inf)
    ended = Ended(none, jnp.zeros_like(places), jnp.zeros_like(places))
    score = jnp.where(places == 0, 0, -jnp.inf)
    return _Beam(jnp.asarray(0), state, jnp.full_like(places, first), score, ended, history)


def _extend(
    now: _Beam,
    log_probabilities: Float[Array, "b k v"],
    state: Tree,
    weights: Float[Array, "b k s"],
    is_searched: Bool[Array, "b 1"],
    end: int,
    penalty: Array | float,
) -> _Beam:
    """Extends the beam by a step: the best continuations, and the best ended sequences."""
    batch, beam, size = log_probabilities.shape
    scores = (now.score[..., None] + log_probabilities).reshape(batch, -1)
    best, chosen = top_k(scores, 2 * beam)  # as many again, for those that end
    parent, token = jnp.divmod(chosen, size)
    ends = token == end
    ending = jnp.where((ends & is_searched)[:, :beam], best[:, :beam], -jnp.inf) / penalty
    new = Ended(ending, jnp.full_like(parent[:, :beam], now.i), parent[:, :beam])
    candidates = jax.tree.map(lambda *both: jnp.concatenate(both, axis=1), now.ended, new)
    kept = jax.lax.top_k(candidates.score, beam)[1]
    ended = jax.tree.map(lambda leaf: _take(leaf, kept), candidates)
    score, going = jax.lax.top_k(jnp.where(ends, -jnp.inf, best), beam)
    parent, token = _take(parent, going), _take(token, going)
    put = functools.partial(jax.lax.dynamic_update_index_in_dim, index=now.i, axis=0)
    history = list(map(put, now.history, (token, parent, weights)))
    state = jax.tree.map(lambda leaf: _take(leaf, parent), state)
    return _Beam(now.i + 1, state, token, score, ended, history)


def _best(
    last: _Beam, penalty: Callable[[Array], Array | float], num_best: int, end: int
) -> Decoded:
    """Returns the best sequences of a search; those that have not ended come last."""
    places = jnp.broadcast_to(jnp.arange(last.score.shape[1])[None], last.score.shape)
    # the end of these would be the next token
    cut = Ended(last.score / penalty(last.i), jnp.full_like(places, last.i), places)
    every = jax.tree.map(lambda *both: jnp.concatenate(both, axis=1), last.ended, cut)
    is_ended = jnp.isfinite(last.ended.score)
    has_ended = jnp.concatenate([is_ended, jnp.zeros_like(places, bool)], axis=1)
    order = jnp.lexsort((-every.score, ~has_ended), axis=-1)[:, :num_best]
    best, has_ended = jax.tree.map(lambda leaf: _take(leaf, order), (every, has_ended))
    return _decoded(*_follow(best, last.history, end), best.score, has_ended, end)


def _follow(ended: Ended, history: list[Array], end: int) -> tuple[Array, Array]:
    """Reads tokens `(t, b, n)` and weights `(t, b, n, s)` back from the step that ended each.

    What a step chose stands in the history by its place in the new beam, and its weights by their
    place in the beam before.
    """
    steps = jnp.arange(history[0].shape[0])

    def back(place: Array, now: tuple) -> tuple[Array, tuple]:
        i, token, parent, weights = now
        before, going = _take(parent, place), i < ended.step
        chosen = jnp.where(going, _take(token, place), end)
        return jnp.where(going, before, place), (chosen, _take(weights, before))

    _, (tokens, weights) = jax.lax.scan(back, ended.place, (steps, *history), reverse=True)
    return tokens, weights


def _penalty(length: Array | int, alpha: float) -> Array | float:
    """Computes the divisor of a log-probability; the length counts the end of sequence."""
    return ((5 + length) / 6) ** alpha


def _num_source(step: SearchStep, state: Tree, batch: int, beam: int) -> int:
    return jax.eval_shape(step, state, jnp.zeros((batch, beam), int))[2].shape[-1]


def _log_softmax(logits: Array, forbidden: tuple[int, ...]) -> Array:
    """Computes log-probabilities in float32, minus infinity for what is forbidden."""
    log_probabilities = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    never = np.isin(np.arange(logits.shape[-1]), forbidden)
    return jnp.where(never, -jnp.inf, log_probabilities) if forbidden else log_probabilities


def _take(leaf: Array, places: Array) -> Array:
    """Takes from each row `(b, k, ...)` the entries at indices `(b, n)`."""
    return jnp.take_along_axis(leaf, places.reshape(places.shape + (1,) * (leaf.ndim - 2)), axis=1)


def _decoded(tokens: Array, alignment: Array, scores: Array, ended: Array, end: int) -> Decoded:
    """Makes a result of tokens `(t, b, n)`, up to the end of sequence, and weights alike."""
    tokens, alignment = jnp.moveaxis(tokens, 0, -1), jnp.moveaxis(alignment, 0, -2)
    real = jnp.cumsum(tokens == end, axis=-1) == 0
    tokens, alignment = jnp.where(real, tokens, 0), jnp.where(real[..., None], alignment, 0)
    return Decoded(tokens, real.sum(axis=-1), scores, ended, alignment)
