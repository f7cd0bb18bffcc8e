"""From a decoder's steps to whole sequences: greedily, or by beam search, as pure functions of static shapes, batched, to be jitted;
and `translate`, which runs them over any number of sources.

`step(state, tokens) -> (logits, state, weights)` continues `k` sequences of each row of a batch: the last tokens `(b, k)` to logits
`(b, k, vocabulary)` of what follows and weights `(b, k, s)` on the source; every leaf of the state begins with the axes `(b, k)`.

    score(y) = log p(y) / ((5 + |y|) / 6)^alpha

Source: Graves 2012 (arXiv:1211.3711), section 2.6, for the beam; Wu et al. 2016 (arXiv:1609.08144), eq. 14, for the length penalty.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

TRANSLATED_AT_ONCE = 64
ROUNDED_TO = 8  # the length of a batch of sources, so that few are compiled

Step = Callable[[Any, Int[Array, "b k"]], tuple[Float[Array, "b k v"], Any, Float[Array, "b k s"]]]


class Decoded(NamedTuple):
    """Sequences, the best first: `tokens` `(b, n, t)` up to the mark of the end, then 0, with their alignment.

    `lengths` `(b, n)` leave the mark out; a sequence that has not come to its end has none. `scores` are those above, and
    `alignment` `(b, n, t, s)` holds the weights of each token, zeros from the mark on.
    """

    tokens: Int[Array, "b n t"]
    lengths: Int[Array, "b n"]
    scores: Float[Array, "b n"]
    alignment: Float[Array, "b n t s"]


def greedy(step: Step, state: Any, *, mark: int, max_length: int, forbidden: tuple[int, ...] = ()) -> Decoded:
    """The most probable token at every step; `scores` are the sums of their log-probabilities.

    Args:
        step, state: of the decoder, with `k = 1`.
        mark: the token that stands before the first, and that ends a sequence.
        max_length: steps at most, the one that ends the sequence among them.
        forbidden: tokens that never come.
    """
    batch = len(jax.tree.leaves(state)[0])

    def body(carry: tuple, _: None) -> tuple[tuple, tuple]:
        state, before, ended, score = carry
        logits, state, weights = step(state, before)
        log_probabilities = _log_softmax(logits, forbidden)
        token = jnp.where(ended, mark, jnp.argmax(log_probabilities, axis=-1))
        score = score + jnp.where(ended, 0, log_probabilities.max(axis=-1))
        return (state, token, ended | (token == mark), score), (token, weights)

    marks = jnp.full((batch, 1), mark)
    (_, _, _, score), (tokens, weights) = jax.lax.scan(
        body, (state, marks, jnp.zeros_like(marks, bool), jnp.zeros(marks.shape)), None, max_length
    )
    return _decoded(jnp.moveaxis(tokens, 0, -1), jnp.moveaxis(weights, 0, -2), score, mark)


def beam_search(
    step: Step,
    state: Any,
    *,
    beam: int,
    mark: int,
    max_length: int,
    length_penalty: float = 0.0,
    num_best: int = 1,
    forbidden: tuple[int, ...] = (),
) -> Decoded:
    """The best sequences that are found by keeping the `beam` best beginnings at every step.

    A sequence that has come to its end keeps its place as long as it is among the best; the search ends when all have.

    Args:
        step, state, mark, max_length, forbidden: as in `greedy`; the state is given for `k = 1`.
        beam: beginnings that are kept; with 1 the search is greedy.
        length_penalty: `alpha` above; 0 compares log-probabilities as they are, which favours short sequences.
        num_best: how many of the beam are returned.

    Raises:
        ValueError: more sequences wanted than the beam holds.
    """
    if not 1 <= num_best <= beam:
        raise ValueError(f"expected num_best from 1 to the beam of {beam}, got {num_best}")
    batch = len(jax.tree.leaves(state)[0])
    repeat = lambda leaf: jnp.broadcast_to(leaf, (batch, beam, *leaf.shape[2:]))
    state = jax.tree.map(repeat, state)
    num_source = jax.eval_shape(step, state, jnp.zeros((batch, beam), int))[2].shape[-1]
    places = jnp.broadcast_to(jnp.arange(beam)[None], (batch, beam))

    def go_on(carry: tuple) -> Array:
        i, _, _, ended, *_ = carry
        return (i < max_length) & ~ended.all()

    def body(carry: tuple) -> tuple:
        i, state, before, ended, lengths, score, history = carry
        logits, state, weights = step(state, before)
        log_probabilities = _log_softmax(logits, forbidden)
        only_mark = jnp.where(jnp.arange(logits.shape[-1]) == mark, 0, -jnp.inf)
        log_probabilities = jnp.where(ended[..., None], only_mark[None, None], log_probabilities)
        lengths = lengths + ~ended
        scores = (score[..., None] + log_probabilities).reshape(batch, -1)
        penalty = jnp.repeat(((5 + lengths) / 6) ** length_penalty, logits.shape[-1], axis=1)
        chosen = jax.lax.top_k(scores / penalty, beam)[1]
        parent, token = jnp.divmod(chosen, logits.shape[-1])
        state, ended, lengths, weights = jax.tree.map(lambda leaf: _take(leaf, parent), (state, ended, lengths, weights))
        history = [kept.at[i].set(new) for kept, new in zip(history, (token, parent, weights))]
        return i + 1, state, token, ended | (token == mark), lengths, _take(scores, chosen), history

    history = [
        jnp.full((max_length, batch, beam), mark),
        jnp.broadcast_to(places, (max_length, batch, beam)),
        jnp.zeros((max_length, batch, beam, num_source)),
    ]
    first_alone = jnp.where(places == 0, 0, -jnp.inf)
    start = (0, state, jnp.full_like(places, mark), jnp.zeros_like(places, bool), jnp.zeros_like(places), first_alone, history)
    _, _, _, _, lengths, score, history = jax.lax.while_loop(go_on, body, start)

    def back(place: Array, step: tuple) -> tuple[Array, tuple]:
        token, parent, weights = step
        return _take(parent, place), (_take(token, place), _take(weights, place))

    _, (tokens, weights) = jax.lax.scan(back, places[:, :num_best], tuple(history), reverse=True)
    score = (score / ((5 + lengths) / 6) ** length_penalty)[:, :num_best]
    return _decoded(jnp.moveaxis(tokens, 0, -1), jnp.moveaxis(weights, 0, -2), score, mark)


def _log_softmax(logits: Array, forbidden: tuple[int, ...]) -> Array:
    """Log-probabilities in float32, minus infinity for what is forbidden."""
    found = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return found.at[..., list(forbidden)].set(-jnp.inf) if forbidden else found


def _take(leaf: Array, places: Array) -> Array:
    """Of each row `(b, k, ...)` what stands at the places `(b, n)`."""
    return jnp.take_along_axis(leaf, places.reshape(places.shape + (1,) * (leaf.ndim - 2)), axis=1)


def _decoded(tokens: Array, alignment: Array, scores: Array, mark: int) -> Decoded:
    real = jnp.cumsum(tokens == mark, axis=-1) == 0
    return Decoded(jnp.where(real, tokens, 0), real.sum(axis=-1), scores, jnp.where(real[..., None], alignment, 0))


class Translation(NamedTuple):
    """One sequence that a source became: its tokens without the mark, its score, and the weights `(t, s)` of each on the source."""

    tokens: list[int]
    score: float
    alignment: Float[np.ndarray, "t s"]


def translate(model: Any, params: Any, inputs: dict[str, np.ndarray], *, mark: int, beam: int, **options: Any) -> list[list[Translation]]:
    """The best sequences for each source, in the order of the sources.

    Args:
        model: with the methods `encode(inputs) -> memory`, `start(memory, max_length) -> state` and
            `decode_step(state, tokens, memory) -> (logits, state, weights)`.
        inputs: `source` `(n, s)` and `source_lengths` `(n,)`.
        mark: as in `greedy`. Tokens 0 and 1, which stand for padding and for what is unknown, never come.
        beam: 1 is greedy. Further options are `length_penalty` and `num_best` of `beam_search`.
    """

    @functools.partial(jax.jit, static_argnames="max_length")
    def search(params: Any, inputs: dict[str, Array], max_length: int) -> Decoded:
        apply = functools.partial(model.apply, {"params": params})
        memory = apply(inputs, method="encode")
        step = lambda state, tokens: apply(state, tokens, memory, method="decode_step")
        state, common = apply(memory, max_length, method="start"), {"mark": mark, "max_length": max_length, "forbidden": (0, 1)}
        return greedy(step, state, **common) if beam == 1 else beam_search(step, state, beam=beam, **common, **options)

    lengths = np.asarray(inputs["source_lengths"])
    order, found = np.argsort(lengths, kind="stable"), {}
    for rows in np.split(order, range(TRANSLATED_AT_ONCE, len(order), TRANSLATED_AT_ONCE)):
        longest = -(-int(lengths[rows].max()) // ROUNDED_TO) * ROUNDED_TO
        some = np.resize(rows, TRANSLATED_AT_ONCE)  # the last batch is filled up
        source = inputs["source"][some, :longest]
        source = np.pad(source, ((0, 0), (0, longest - source.shape[1])))
        decoded = jax.device_get(search(params, {"source": source, "source_lengths": lengths[some]}, 2 * longest + ROUNDED_TO))
        found |= {int(row): _translations(decoded, i, int(lengths[row])) for i, row in enumerate(rows)}
    return [found[i] for i in range(len(lengths))]


def _translations(decoded: Decoded, i: int, num_source: int) -> list[Translation]:
    cut = zip(decoded.tokens[i], decoded.lengths[i], decoded.scores[i], decoded.alignment[i])
    return [Translation(tokens[:length].tolist(), float(score), weights[:length, :num_source]) for tokens, length, score, weights in cut]
