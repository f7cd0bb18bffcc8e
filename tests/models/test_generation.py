"""Texts are what the model says without a cache, and chance is what the probabilities say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import GPT, by_block
from flax_attn.models.generation import Sampling, draw_noise, generate, sample
from tests.models.variables import draw

SMALL = {"vocabulary_size": 13, "max_length": 12, "features": 8, "num_heads": 2, "num_blocks": 2}
GREEDY = Sampling(temperature=0.0)
PROMPTS = [[5], [3, 9, 4, 12, 7], list(range(2, 13)) * 2]


def write(model, params, prompts, length, sampling=GREEDY, seed=0):
    parts = list(generate(model, params, prompts, length, sampling, seed))
    return np.concatenate(parts, axis=1)


def without_cache(model, params, prompt, length, room):
    """Greedy text, where the last 6 tokens are read anew when there is no room for 3 more."""
    logits, text = jax.jit(model.apply), list(prompt)
    start = max(len(text) - 9, 0)
    for step in range(length):
        if step % 3 == 0:
            if room < 3:
                start = max(len(text) - 6, 0)
                room = 12 - max(len(text[start:]), 1)
            room -= 3
        window = text[start:]
        padded = np.array([window + [0] * (12 - len(window))], np.int32)
        scores = np.array(logits({"params": params}, padded)[0][0, len(window) - 1])
        scores[:2] = -np.inf
        text.append(int(scores.argmax()))
    return text[len(prompt) :]


def varied():
    """A model with learned positions, whose texts have many different tokens."""
    model = GPT(**SMALL)
    params = draw(model, np.zeros((1, 12), np.int32))["params"]
    params["embedding"]["embedding"] *= 9
    params["position_table"]["embedding"] *= 9
    return model, params


def with_rotary_positions():
    model = GPT(**SMALL, positions="rotary", window=5)
    return model, draw(model, np.zeros((1, 12), np.int32))["params"]


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("make", "least"), [(varied, 5), (with_rotary_positions, 2)])
def test_a_greedy_text_is_that_of_the_model_without_a_cache(make, least, is_large, monkeypatch):
    monkeypatch.setattr(by_block, "is_large", lambda model, params: is_large)
    model, params = make()
    for prompt in PROMPTS:
        written = write(model, params, [prompt], 31)[0].tolist()
        assert written == without_cache(model, params, prompt, 31, room=12 - min(len(prompt), 9))
        assert len(set(written)) >= least


def test_a_text_is_the_same_beside_shorter_and_longer_prompts():
    model, params = varied()
    together = write(model, params, PROMPTS, 31)
    for prompt, written in zip(PROMPTS, together):
        np.testing.assert_array_equal(written, write(model, params, [prompt], 31)[0])
    draws = {"length": 31, "sampling": Sampling(1.0), "seed": 3}
    short, middle, long = PROMPTS
    drawn = write(model, params, [short, middle, long], **draws)
    others = write(model, params, [long, middle, short], **draws)
    np.testing.assert_array_equal(drawn[1], others[1])
    np.testing.assert_array_equal(drawn[0], write(model, params, [short], **draws)[0])
    assert (drawn[0] != others[2]).any()  # the index of a prompt matters


def test_a_text_depends_on_the_seed_and_not_on_the_other_texts():
    model = GPT(**SMALL)
    params = draw(model, np.zeros((1, 12), np.int32))["params"]
    alone = write(model, params, [[5]], 20, Sampling(1.0), seed=3)
    beside = write(model, params, [[5], [5], [5]], 20, Sampling(1.0), seed=3)
    np.testing.assert_array_equal(alone[0], beside[0])
    assert (beside[0] != beside[1]).any()
    assert (write(model, params, [[5]], 20, Sampling(1.0), seed=4) != alone).any()


def test_every_token_of_a_text_is_drawn_with_the_noise_of_its_step():
    """Also in the next parts of a text. Where all tokens are alike, the noise alone decides."""
    model, seed = GPT(**SMALL), 3
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 12), jnp.int32))["params"]
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
    written = write(model, params, [[5]], 7, Sampling(1.0), seed)
    noise = [draw_noise(jax.random.key(seed), jnp.asarray(step), 1, 13)[0] for step in range(7)]
    np.testing.assert_array_equal(written[0], [2 + own[2:].argmax() for own in noise])


def test_tokens_come_as_often_as_their_probabilities_say():
    logits = jnp.array([5.0, 5.0, 1.0, 0.0, -1.0, 2.0])
    noise = jax.random.gumbel(jax.random.key(0), (40_000, 6))
    rows = jnp.broadcast_to(logits, (40_000, 6))
    for temperature, top_k, allowed in ((1.0, 0, [2, 3, 4, 5]), (0.5, 2, [2, 5])):
        tokens = jax.jit(sample, static_argnames="top_k")(
            rows, noise, temperature=temperature, top_k=top_k
        )
        shares = np.bincount(tokens, minlength=6) / 40_000
        expected = np.zeros(6)
        expected[allowed] = jax.nn.softmax(logits[jnp.array(allowed)] / temperature)
        np.testing.assert_allclose(shares, expected, atol=0.01)


def test_a_temperature_of_0_and_one_candidate_are_the_most_probable_token():
    logits = jnp.array([[9.0, 9.0, 1.0, 3.0, 2.0]])
    noise = jax.random.gumbel(jax.random.key(1), (1, 5))
    assert sample(logits, noise, temperature=0.0, top_k=0)[0] == 3
    assert sample(logits, noise, temperature=5.0, top_k=1)[0] == 3


def test_every_step_of_every_text_has_its_own_noise():
    key = jax.random.key(0)
    noise = np.stack([draw_noise(key, jnp.asarray(step), 2, 5) for step in range(6)])
    assert len(np.unique(noise)) == noise.size
    np.testing.assert_array_equal(draw_noise(key, jnp.asarray(3), 1, 5), noise[3, :1])
