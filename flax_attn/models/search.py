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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

TOP_K_BLOCK = 32

Step = Callable[[Any, Int[Array, "b k"]], tuple[Float[Array, "b k v"], Any, Float[Array, "b k s"]]]


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
    step: Step,
    state: Any,
    *,
    end: int,
    max_length: int,
    length_penalty: float = 0.0,
    forbidden: tuple[int, ...] = (),
) -> Decoded:
    """The most probable token at every step.

    Args:
        step, state: of the decoder, with `k = 1`.
        end: the token that stands before the first, and that ends a sequence.
        max_length: steps at most, the one that ends the sequence among them.
        length_penalty: `alpha` above; it changes the scores alone.
        forbidden: tokens that never come.
    """
    batch = len(jax.tree.leaves(state)[0])
    num_source = _num_source(step, state, batch, 1)

    def go_on(carry: tuple) -> Array:
        i, _, _, ended, *_ = carry
        return (i < max_length) & ~ended.all()

    def body(carry: tuple) -> tuple:
        i, state, before, ended, score, tokens, alignment = carry
        logits, state, weights = step(state, before)
        log_probabilities = _log_softmax(logits, forbidden)
        token = jnp.where(ended, end, jnp.argmax(log_probabilities, axis=-1))
        score = score + jnp.where(ended, 0, log_probabilities.max(axis=-1))
        return (
            i + 1,
            state,
            token,
            ended | (token == end),
            score,
            tokens.at[i].set(token),
            alignment.at[i].set(weights),
        )

    first = jnp.full((batch, 1), end)
    tokens, alignment = (
        jnp.full((max_length, batch, 1), end),
        jnp.zeros((max_length, batch, 1, num_source)),
    )
    start = (
        0,
        state,
        first,
        jnp.zeros_like(first, bool),
        jnp.zeros(first.shape),
        tokens,
        alignment,
    )
    *_, ended, score, tokens, alignment = jax.lax.while_loop(go_on, body, start)
    found = _decoded(tokens, alignment, score, ended, end)
    return found._replace(scores=score / _penalty(found.lengths + ended, length_penalty))


class Ended(NamedTuple):
    """The best sequences `(b, k)` that have come to their end: score, the step that ended them, and
    where they stood in the beam then.
    """

    score: Float[Array, "b k"]
    step: Int[Array, "b k"]
    place: Int[Array, "b k"]


def beam_search(
    step: Step,
    state: Any,
    *,
    beam: int,
    end: int,
    max_length: int,
    length_penalty: float = 0.0,
    num_best: int = 1,
    forbidden: tuple[int, ...] = (),
) -> Decoded:
    """The best sequences that are found by keeping the `beam` best beginnings at every step.

    A sequence ends when its end is among the `beam` best continuations, and is kept apart from the
    beginnings. The search of a row is over when `beam` sequences have ended, or none of the
    beginnings can become better than the `num_best` best of them: its log-probability can only
    fall, and is divided by no more than the penalty of `max_length`. Sequences that have not ended
    by then come behind all that have.

    Args:
        step, state, end, max_length, forbidden: as in `greedy`; the state is given for `k = 1`.
        beam: beginnings that are kept; with 1 the search is greedy.
        length_penalty: `alpha` above; 0 compares log-probabilities as they are, which favours short
            sequences.
        num_best: how many sequences are returned.

    Raises:
        ValueError: more sequences wanted than the beam holds, or a penalty below 0.
    """
    if not 1 <= num_best <= beam:
        raise ValueError(f"expected num_best from 1 to the beam of {beam}, got {num_best}")
    if length_penalty < 0:
        raise ValueError(f"expected a length_penalty of 0 or above, got {length_penalty}")
    batch = len(jax.tree.leaves(state)[0])
    state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, beam, *leaf.shape[2:])), state)
    num_source = _num_source(step, state, batch, beam)
    penalty = functools.partial(_penalty, alpha=length_penalty)

    def over(score: Array, ended: Ended) -> Bool[Array, " b"]:
        enough = jnp.isfinite(ended.score).all(axis=-1)
        return enough | (ended.score[:, num_best - 1] >= score[:, 0] / penalty(max_length))

    def go_on(carry: tuple) -> Array:
        i, _, _, score, ended, _ = carry
        return (i < max_length) & ~over(score, ended).all()

    def body(carry: tuple) -> tuple:
        i, state, before, score, ended, history = carry
        searched = ~over(score, ended)[:, None]
        logits, state, weights = step(state, before)
        size = logits.shape[-1]
        scores = (score[..., None] + _log_softmax(logits, forbidden)).reshape(batch, -1)
        best, chosen = _top_k(scores, 2 * beam)  # as many again, for those that end
        parent, token = jnp.divmod(chosen, size)
        ends = token == end
        ending = jnp.where((ends & searched)[:, :beam], best[:, :beam], -jnp.inf) / penalty(i + 1)
        new = Ended(ending, jnp.full_like(parent[:, :beam], i), parent[:, :beam])
        joined = jax.tree.map(lambda *both: jnp.concatenate(both, axis=1), ended, new)
        kept = jax.lax.top_k(joined.score, beam)[1]
        ended = jax.tree.map(lambda leaf: _take(leaf, kept), joined)
        score, going = jax.lax.top_k(jnp.where(ends, -jnp.inf, best), beam)
        parent, token = _take(parent, going), _take(token, going)
        history = [past.at[i].set(now) for past, now in zip(history, (token, parent, weights))]
        return (
            i + 1,
            jax.tree.map(lambda leaf: _take(leaf, parent), state),
            token,
            score,
            ended,
            history,
        )

    places = jnp.broadcast_to(jnp.arange(beam)[None], (batch, beam))
    nothing = jnp.zeros((max_length, batch, beam), int)
    history = [nothing, nothing, jnp.zeros((max_length, batch, beam, num_source))]
    none = Ended(jnp.full(places.shape, -jnp.inf), jnp.zeros_like(places), jnp.zeros_like(places))
    start = (
        0,
        state,
        jnp.full_like(places, end),
        jnp.where(places == 0, 0, -jnp.inf),
        none,
        history,
    )
    last, _, _, score, ended, history = jax.lax.while_loop(go_on, body, start)

    cut = Ended(
        score / penalty(last), jnp.full_like(places, last), places
    )  # the end of these would be the next token
    every = jax.tree.map(lambda *both: jnp.concatenate(both, axis=1), ended, cut)
    has_ended = jnp.concatenate([jnp.isfinite(ended.score), jnp.zeros_like(places, bool)], axis=1)
    order = jnp.lexsort((-every.score, ~has_ended), axis=-1)[:, :num_best]
    found, has_ended = jax.tree.map(lambda leaf: _take(leaf, order), (every, has_ended))
    return _decoded(*_follow(found, history, end), found.score, has_ended, end)


def _follow(found: Ended, history: list[Array], end: int) -> tuple[Array, Array]:
    """Tokens `(t, b, n)` and weights `(t, b, n, s)` of sequences, from the step that ended each
    back to the first.

    What a step chose stands in the history by its place in the new beam, and its weights by their
    place in the beam before.
    """
    steps = jnp.arange(len(history[0]))

    def back(place: Array, now: tuple) -> tuple[Array, tuple]:
        i, token, parent, weights = now
        before, chosen = _take(parent, place), _take(token, place)
        going = i < found.step
        return jnp.where(going, before, place), (
            jnp.where(going, chosen, end),
            _take(weights, before),
        )

    _, (tokens, weights) = jax.lax.scan(back, found.place, (steps, *history), reverse=True)
    return tokens, weights


def _penalty(length: Array | int, alpha: float) -> Array | float:
    """The divisor of a log-probability; the length counts the end of sequence."""
    return ((5 + length) / 6) ** alpha


def _num_source(step: Step, state: Any, batch: int, beam: int) -> int:
    return jax.eval_shape(step, state, jnp.zeros((batch, beam), int))[2].shape[-1]


def _log_softmax(logits: Array, forbidden: tuple[int, ...]) -> Array:
    """Log-probabilities in float32, minus infinity for what is forbidden."""
    found = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return found.at[..., list(forbidden)].set(-jnp.inf) if forbidden else found


def _top_k(scores: Float[Array, "b n"], k: int) -> tuple[Array, Array]:
    """As `jax.lax.top_k`: the `k` largest lie in the `k` blocks with the largest maxima.

    Inside a loop XLA's own sorts the whole row on CPU, which takes fifty times as long as all else
    in a step.
    """
    blocks = -(-scores.shape[1] // TOP_K_BLOCK)
    padded = jnp.pad(
        scores, ((0, 0), (0, blocks * TOP_K_BLOCK - scores.shape[1])), constant_values=-jnp.inf
    )
    padded = padded.reshape(len(scores), blocks, TOP_K_BLOCK)
    _, block = jax.lax.top_k(padded.max(axis=-1), min(k, blocks))
    best, place = jax.lax.top_k(_take(padded, block).reshape(len(scores), -1), k)
    found = _take(block, place // TOP_K_BLOCK) * TOP_K_BLOCK + place % TOP_K_BLOCK
    return best, jnp.minimum(
        found, scores.shape[1] - 1
    )  # what fills up the last block is none of them


def _take(leaf: Array, places: Array) -> Array:
    """Of each row `(b, k, ...)` what stands at the places `(b, n)`."""
    return jnp.take_along_axis(leaf, places.reshape(places.shape + (1,) * (leaf.ndim - 2)), axis=1)


def _decoded(tokens: Array, alignment: Array, scores: Array, ended: Array, end: int) -> Decoded:
    """From tokens `(t, b, n)`, with the end of sequence behind the last, and weights likewise."""
    tokens, alignment = jnp.moveaxis(tokens, 0, -1), jnp.moveaxis(alignment, 0, -2)
    real = jnp.cumsum(tokens == end, axis=-1) == 0
    return Decoded(
        jnp.where(real, tokens, 0),
        real.sum(axis=-1),
        scores,
        ended,
        jnp.where(real[..., None], alignment, 0),
    )
