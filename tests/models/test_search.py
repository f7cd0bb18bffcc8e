"""Greedy and beam search against loops over every sequence there is, on a decoder small enough for
that.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import search

VOCABULARY, SOURCE, STEPS, BATCH, WIDTH = 4, 3, 4, 2, 8
END = VOCABULARY - 1
rng = np.random.default_rng(0)
RECURRENT, OUT, LOOK = (
    rng.normal(size=(WIDTH, n)).astype(np.float32) for n in (WIDTH, VOCABULARY, SOURCE)
)
EMBEDDING = rng.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
START = rng.normal(size=(BATCH, 1, WIDTH)).astype(np.float32)


def step(state, tokens):
    state = jnp.tanh(state @ RECURRENT + jnp.asarray(EMBEDDING)[tokens])
    return 2 * state @ OUT, state, jax.nn.softmax(state @ LOOK)


@functools.partial(jax.jit, static_argnames=("beam", "length_penalty", "num_best", "forbidden"))
def search_all(start, **options):
    return search.beam_search(step, start, end=END, max_length=STEPS, **options)


def beam_by_hand(start, *, beam, length_penalty, num_best, forbidden, max_length):
    """The sequences from a state `(WIDTH,)`: score, tokens without the mark, their weights, and
    whether they ended.
    """
    going, ended = [(0.0, [END], [], start)], []
    for length in range(1, max_length + 1):
        longer = []
        for score, tokens, weights, state in going:
            state = np.tanh(state @ RECURRENT + EMBEDDING[tokens[-1]])
            logits, look = 2 * state @ OUT, np.exp(state @ LOOK)
            gains = logits - np.log(np.exp(logits).sum())
            weights = [*weights, look / look.sum()]
            longer += [
                (score + gains[new], [*tokens, new], weights, state)
                for new in range(VOCABULARY)
                if new not in forbidden
            ]
        longer.sort(key=lambda beginning: -beginning[0])
        divisor = ((5 + length) / 6) ** length_penalty
        ended += [
            (score / divisor, tokens[1:-1], weights[:-1], True)
            for score, tokens, weights, _ in longer[:beam]
            if tokens[-1] == END
        ]
        ended = sorted(ended, key=lambda beginning: -beginning[0])[:beam]
        going = [beginning for beginning in longer[: 2 * beam] if beginning[1][-1] != END][:beam]
        if len(ended) == beam:
            break
    return (
        ended
        + [(score / divisor, tokens[1:], weights, False) for score, tokens, weights, _ in going]
    )[:num_best]


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 2, "length_penalty": 0.0, "num_best": 2, "forbidden": ()},
        {"beam": 3, "length_penalty": 2.0, "num_best": 3, "forbidden": (0,)},
        {"beam": 40, "length_penalty": 1.0, "num_best": 5, "forbidden": ()},
    ],
)
def test_a_narrow_beam_finds_what_a_loop_finds(options):
    starts = np.random.default_rng(1).normal(size=(16, 1, WIDTH)).astype(np.float32)
    options = options | {"max_length": 9}
    decoded = jax.jit(lambda start: search.beam_search(step, start, end=END, **options))(starts)
    lengths = set()
    for row, start in enumerate(starts):
        for i, (score, tokens, weights, ended) in enumerate(beam_by_hand(start[0], **options)):
            lengths.add(len(tokens))
            assert decoded.tokens[row, i].tolist() == tokens + [0] * (9 - len(tokens))
            assert (int(decoded.lengths[row, i]), bool(decoded.ended[row, i])) == (
                len(tokens),
                ended,
            )
            np.testing.assert_allclose(decoded.scores[row, i], score, atol=1e-4)
            np.testing.assert_allclose(
                decoded.alignment[row, i, : len(tokens)],
                np.reshape(weights, (-1, SOURCE)),
                atol=1e-5,
            )
    assert len(lengths) > 3


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_beam_of_one_is_greedy(length_penalty):
    options = {"end": END, "max_length": STEPS, "length_penalty": length_penalty}
    greedy = jax.jit(lambda start: search.greedy(step, start, **options))(START)
    chex.assert_trees_all_close(
        search_all(START, beam=1, length_penalty=length_penalty), greedy, atol=1e-5
    )
    for row in range(BATCH):
        state, token, tokens = START[row, 0], END, []
        while len(tokens) < STEPS and tokens[-1:] != [END]:
            state = np.tanh(state @ RECURRENT + EMBEDDING[token])
            token = int(np.argmax(state @ OUT))
            tokens.append(token)
        assert greedy.tokens[row, 0].tolist() == [t for t in tokens if t != END] + [0] * (
            STEPS - sum(t != END for t in tokens)
        )


def chain(probabilities):
    """A step whose next token depends on the last one alone."""
    table = np.log(np.array(probabilities, np.float32))
    return lambda state, tokens: (jnp.asarray(table)[tokens], state, jnp.ones((*tokens.shape, 1)))


def test_a_sequence_that_has_ended_is_not_lost_to_better_beginnings():
    """After 0 comes the end, or with more probability 1, which has two continuations that are
    better at first and never end well.
    """
    low = 1e-6
    step = chain(
        [
            [low, 0.7, low, 0.3],
            [low, 0.5, 0.5, low],
            [low, 0.5, 0.5, low],
            [1 - 3 * low, low, low, low],
        ]
    )
    decoded = search.beam_search(step, jnp.zeros((1, 1)), end=3, max_length=8, beam=2)
    assert decoded.tokens[0, 0].tolist() == [0, 0, 0, 0, 0, 0, 0, 0]
    assert int(decoded.lengths[0, 0]) == 1
    np.testing.assert_allclose(decoded.scores[0, 0], np.log(0.3), atol=1e-4)
    assert bool(decoded.ended[0, 0])


def test_the_search_goes_on_while_a_longer_sequence_may_become_the_best():
    """The end comes first with 0.6. The only longer sequence that ends well has 0.4 and 5 steps."""
    sink, first, end = 0, 1, 5
    probabilities = np.full((6, 6), 1e-6)
    probabilities[end, [end, first, sink]] = 0.6, 0.4, 1e-4
    probabilities[[sink, 1, 2, 3, 4], [sink, 2, 3, 4, end]] = 1
    options = {"end": end, "max_length": 5, "beam": 2, "length_penalty": 3.0}
    decoded = search.beam_search(chain(probabilities), jnp.zeros((1, 1)), **options)
    assert decoded.tokens[0, 0].tolist() == [1, 2, 3, 4, 0]
    np.testing.assert_allclose(decoded.scores[0, 0], np.log(0.4) / (10 / 6) ** 3, atol=1e-3)
    np.testing.assert_allclose(search.probabilities(decoded, 3.0), [[0.4]], atol=1e-3)


def test_what_does_not_end_is_said_to_be_cut():
    """Its score is of the tokens that came, without an end."""
    step, options = chain([[0.5, 0.4, 0.1]] * 3), {"end": 2, "max_length": 3, "length_penalty": 1.0}
    for decoded in (
        search.beam_search(step, jnp.zeros((1, 1)), beam=1, **options),
        search.greedy(step, jnp.zeros((1, 1)), **options),
    ):
        assert (int(decoded.lengths[0, 0]), bool(decoded.ended[0, 0])) == (3, False)
        np.testing.assert_allclose(decoded.scores, [[3 * np.log(0.5) / (8 / 6)]], rtol=1e-5)
        np.testing.assert_allclose(search.probabilities(decoded, 1.0), [[0.125]], rtol=1e-5)


def test_what_is_forbidden_never_comes():
    every = np.asarray(search_all(START, beam=16, num_best=16).tokens)
    assert (every == 1).any()
    allowed = search_all(START, beam=16, num_best=8, forbidden=(0, 1))
    assert not ((np.asarray(allowed.tokens) == 1) & np.isfinite(allowed.scores)[..., None]).any()


def test_rows_do_not_know_of_each_other():
    alone = [search_all(START[i : i + 1], beam=3, num_best=2) for i in range(BATCH)]
    chex.assert_trees_all_close(
        search_all(START, beam=3, num_best=2),
        jax.tree.map(lambda *rows: jnp.concatenate(rows), *alone),
        atol=1e-5,
    )


def test_more_than_the_beam_is_told():
    with pytest.raises(ValueError, match="num_best from 1 to the beam of 2, got 3"):
        search.beam_search(step, START, end=END, max_length=STEPS, beam=2, num_best=3)
