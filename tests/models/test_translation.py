"""Encoder-decoders: a step of decoding is a step of training, padding changes nothing, and
alignments are weights.
"""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import Seq2Seq, TranslationTransformer, decoding
from flax_attn.models.translation import SCORES
from tests.models.variables import draw

rng = np.random.default_rng(0)
LENGTHS, TARGET_LENGTHS = np.array([7, 4, 1]), np.array([5, 3, 2])
tokens = lambda shape, lengths: np.where(
    np.arange(shape[1]) < lengths[:, None], rng.integers(2, 11, shape), 0
).astype(np.int32)
TEXTS = {
    "source": tokens((3, 7), LENGTHS),
    "source_lengths": LENGTHS.astype(np.int32),
    "target": tokens((3, 5), TARGET_LENGTHS),
    "target_lengths": TARGET_LENGTHS.astype(np.int32),
}
ARRAYS = jax.tree.map(jnp.asarray, TEXTS)
SOURCES = ("source", "source_lengths")
REAL = np.arange(5) < TARGET_LENGTHS[:, None]
SIZES = {"source_vocabulary_size": 11, "target_vocabulary_size": 13}
SMALL = SIZES | {
    "embedding_features": 6,
    "features": 6,
    "attention_features": 6,
    "dropout_rate": 0.5,
}
MODELS = {f"bahdanau, {score}": Seq2Seq(**SMALL, attention=score) for score in SCORES}
MODELS |= {
    "luong": Seq2Seq(**SMALL, decoder="luong", attention="general"),
    "luong, local-p": Seq2Seq(
        **SMALL, decoder="luong", attention="general", reach=2, tied_embeddings=True
    ),
    "bahdanau, local-p": Seq2Seq(**SMALL, reach=2),
    "LSTM, two layers": Seq2Seq(**SMALL, cell="lstm", num_layers=2, tied_embeddings=True),
    "LSTM, luong": Seq2Seq(**SMALL, cell="lstm", decoder="luong", attention="dot"),
    "RNN, shared": Seq2Seq(**SMALL, cell="rnn", tied_embeddings=True, shared_embeddings=True),
    "Transformer": TranslationTransformer(
        **SIZES, features=8, num_heads=2, num_blocks=2, hidden_features=5, dropout_rate=0.5
    ),
}


def with_models(*quick):
    return pytest.mark.parametrize("name", quick)


@functools.cache
def evaluate(name):
    """A function of variables and texts: `((loss over the real, (logits, alignment)), gradient)`
    without dropout, compiled.
    """

    def loss(variables, texts):
        logits, aux = MODELS[name].apply(variables, texts)
        real = jnp.pad(REAL, ((0, 0), (0, logits.shape[1] - REAL.shape[1])))
        return jnp.sum(jnp.where(real[..., None], jnp.sin(logits), 0)), (
            logits,
            aux["attention"]["alignment"],
        )

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


@with_models("bahdanau, additive", "luong, local-p", "Transformer")
def test_a_step_of_decoding_is_a_step_of_teacher_forcing(name):
    model, variables = MODELS[name], draw(MODELS[name], TEXTS)

    apply = functools.partial(model.apply, variables)

    @jax.jit
    def begin(texts):
        memory = apply(texts, method="encode")
        return memory, apply(memory, 5, method="start")

    step = jax.jit(functools.partial(apply, method="decode_step"))
    memory, state = begin({key: ARRAYS[key] for key in ("source", "source_lengths")})
    decoded = []
    for i in range(5):
        logits, state, weights = step(state, ARRAYS["target"][:, i : i + 1], memory)
        decoded.append((logits, weights))
    together = jax.tree.map(lambda *steps: np.concatenate(steps, axis=1), *decoded)
    (_, expected), _ = evaluate(name)(variables, TEXTS)
    chex.assert_trees_all_close(together, expected, atol=1e-5)


def test_embeddings_are_scaled_up_before_positions_are_added():
    model = TranslationTransformer(**SIZES, features=8, num_heads=2, num_blocks=0)
    variables = draw(model, TEXTS)
    params = jax.tree.map(np.asarray, variables["params"])
    embeddings, norm = params["target_embedding"]["embedding"], params["decoder_norm"]
    angles = np.arange(5)[:, None] / 10_000.0 ** (np.arange(0, 8, 2) / 8)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(5, 8)
    x = 8**0.5 * embeddings[TEXTS["target"]] + waves
    deviations = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6)
    x = (x - x.mean(axis=-1, keepdims=True)) / deviations * norm["scale"] + norm["bias"]
    logits = jax.jit(model.apply)(variables, TEXTS)[0]
    np.testing.assert_allclose(logits, x @ embeddings.T + params["logit_bias"], atol=1e-5)


def gru(hidden, inputs, recurrent):
    """The next state from `inputs` and `recurrent(hidden)`, whose columns are the reset gate, the
    update gate and the new state.
    """
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    (a, b, c), (d, e, f) = np.split(inputs, 3, axis=-1), np.split(recurrent, 3, axis=-1)
    update = sigmoid(b + e)
    return (1 - update) * np.tanh(c + sigmoid(a + d) * f) + update * hidden


@pytest.mark.parametrize("name", ["bahdanau, additive", "luong"])
def test_the_decoders_equations_hold_in_a_loop(name):
    model, variables = MODELS[name], draw(MODELS[name], TEXTS)
    (_, (logits, alignment)), _ = evaluate(name)(variables, TEXTS)
    p, values = (
        jax.tree.map(np.asarray, variables["params"]),
        np.asarray(model.apply(variables, ARRAYS, method="encode").values),
    )
    step, dense = p["step"], lambda name, x: x @ p[name]["kernel"] + p[name].get("bias", 0)
    # the state that has read from the end to the start
    hidden = np.tanh(dense("bridge", values[:, 0, 3:]))
    output, keys = np.zeros_like(hidden), values @ p["keys"]["kernel"]
    for i in range(5):
        embedded = p["target_embedding"]["embedding"][TEXTS["target"][:, i]]
        recurrent, inputs = (
            hidden @ step["recurrent_kernel"] + step["recurrent_bias"],
            dense("inputs", embedded),
        )
        if name == "luong":
            hidden = gru(hidden, inputs + output @ step["read_kernel"], recurrent)
            scores = np.einsum("bh,bsh->bs", hidden, keys)
        else:
            scores = (
                np.tanh((hidden @ step["score"]["query_kernel"])[:, None] + keys)
                @ step["score"]["vector"]
            )
        weights = np.where(np.arange(7) < LENGTHS[:, None], np.exp(scores), 0)
        weights /= weights.sum(axis=-1, keepdims=True)
        context = np.einsum("bs,bsd->bd", weights, values)
        if name == "luong":
            output = np.tanh(np.concatenate([context, hidden], axis=-1) @ step["output"]["kernel"])
        else:
            hidden = gru(hidden, inputs + context @ step["read_kernel"], recurrent)
            both = dense("output", np.concatenate([hidden, context], axis=-1)) + dense(
                "output_of_embedding", embedded
            )
            output = np.tanh(both)
        np.testing.assert_allclose(weights, alignment[:, i], atol=1e-5)
        np.testing.assert_allclose(dense("logits", output), logits[:, i], atol=1e-4)


def test_what_is_shared_and_normalised():
    names = lambda name: set(draw(MODELS[name], TEXTS)["params"])
    assert "source_embedding" not in names("RNN, shared")
    assert "source_embedding" in names("LSTM, two layers")
    assert {"encoder_norm", "decoder_norm", "source_embedding"} <= names("Transformer")


@pytest.mark.parametrize("name", ["bahdanau, additive", "Transformer"])
def test_dropout_is_of_training_alone(name):
    model, variables = MODELS[name], draw(MODELS[name], TEXTS)
    (_, (logits, _)), _ = evaluate(name)(variables, TEXTS)
    train = jax.jit(
        lambda key: model.apply(variables, ARRAYS, train=True, rngs={"dropout": key})[0]
    )
    one, other = train(jax.random.key(0)), train(jax.random.key(1))
    for a, b in ((one, other), (one, logits)):
        assert (np.abs(a - b).max(axis=-1) > 1e-4)[REAL].all()
    if name != "Transformer":
        dropped = model.apply(
            variables, ARRAYS, train=True, rngs={"dropout": jax.random.key(0)}, method="encode"
        ).values
        assert 0.2 < (np.asarray(dropped)[0] == 0).mean() < 0.8


@with_models("bahdanau, additive", "luong, local-p", "Transformer")
def test_padding_of_either_side_changes_nothing(name):
    variables = draw(MODELS[name], TEXTS)
    wide = lambda array, by: (
        np.pad(array, ((0, 0), (0, by)), constant_values=4) if array.ndim > 1 else array
    )
    longer = {
        key: wide(array, {"source": 3, "target": 2}.get(key, 0)) for key, array in TEXTS.items()
    }
    # whatever padding holds
    longer["source"] = np.where(np.arange(10) < LENGTHS[:, None], longer["source"], 5)
    ((value, (logits, alignment)), gradient), ((other, (others, weights)), same) = (
        evaluate(name)(variables, t) for t in (TEXTS, longer)
    )
    np.testing.assert_allclose(other, value, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(others)[:, :5][REAL], np.asarray(logits)[REAL], atol=1e-5)
    np.testing.assert_allclose(
        np.asarray(weights)[:, :5, :7][REAL], np.asarray(alignment)[REAL], atol=1e-6
    )
    chex.assert_trees_all_close(same, gradient, atol=1e-4)


@with_models("bahdanau, additive", "luong, local-p", "Transformer")
def test_alignments_are_weights_on_the_real_source(name):
    (_, (_, alignment)), _ = evaluate(name)(draw(MODELS[name], TEXTS), TEXTS)
    alignment = np.asarray(alignment)
    np.testing.assert_array_equal(np.where(np.arange(7) < LENGTHS[:, None, None], 0, alignment), 0)
    total = alignment.sum(axis=-1)
    if "local" in name:
        assert (total <= 1 + 1e-6).all()
        assert (np.count_nonzero(alignment, axis=-1) <= 5).all()
    else:
        np.testing.assert_allclose(total, 1, atol=1e-5)


@with_models("bahdanau, additive", "Transformer")
def test_a_later_target_changes_nothing_before_it_and_the_source_changes_all(name):
    variables = draw(MODELS[name], TEXTS)
    (_, (logits, _)), _ = evaluate(name)(variables, TEXTS)
    changed = TEXTS | {
        "target": np.where(np.arange(5) == 2, 9 - TEXTS["target"] % 3, TEXTS["target"]).astype(
            np.int32
        )
    }
    moved = np.abs(np.asarray(evaluate(name)(variables, changed)[0][1][0]) - logits)[0].max(axis=-1)
    np.testing.assert_array_equal(moved[:2], 0)
    assert moved[2] > 1e-4
    other = TEXTS | {
        "source": np.where(TEXTS["source"] > 0, 12 - TEXTS["source"], 0).astype(np.int32)
    }
    assert (
        np.abs(np.asarray(evaluate(name)(variables, other)[0][1][0]) - logits)[0].max(axis=-1)
        > 1e-4
    ).all()


@with_models("luong, local-p")
def test_translations_do_not_depend_on_the_batch(name):
    model = MODELS[name]
    params = draw(model, TEXTS)["params"]
    texts = {key: TEXTS[key] for key in ("source", "source_lengths")}
    options = {"decoding": decoding.Decoding(3, 1.0), "end": 12, "max_length": 9, "num_best": 2}
    together = decoding.translate(model, params, texts, **options)
    for i in range(3):
        (alone,) = decoding.translate(
            model, params, {key: array[i : i + 1] for key, array in texts.items()}, **options
        )
        assert [translation.tokens for translation in alone] == [
            translation.tokens for translation in together[i]
        ]
        np.testing.assert_allclose(
            [translation.score for translation in alone],
            [translation.score for translation in together[i]],
            atol=1e-5,
        )
        for translation in alone:
            assert translation.alignment.shape == (len(translation.tokens), LENGTHS[i])
            assert not {0, 1} & set(translation.tokens)
            assert max(translation.tokens, default=0) < 12


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"attention": "addative"}, "addative"),
        ({"decoder": "loung"}, "loung"),
        ({"cell": "gruu"}, "gruu"),
        ({"features": 7}, "an even number of features"),
        ({"decoder": "luong", "features": 8, "tied_embeddings": True}, "embedding_features"),
        (
            {"source_vocabulary_size": 14, "shared_embeddings": True},
            "one vocabulary of source and target",
        ),
    ],
)
def test_a_model_that_cannot_be_is_told(fields, said):
    with pytest.raises(ValueError, match=said):
        jax.eval_shape(Seq2Seq(**SMALL | fields).init, jax.random.key(0), TEXTS)


class Tempted(nn.Module):
    """A decoder to which padding and the unknown word are the most probable tokens."""

    def encode(self, inputs):
        return inputs["source"]

    def start(self, memory, max_length):
        return jnp.zeros((len(memory), 1))

    def decode_step(self, state, tokens, memory):
        logits = jnp.broadcast_to(jnp.array([9.0, 8.0, 2.0, 1.0]), (*tokens.shape, 4))
        return logits, state, jnp.ones((*tokens.shape, memory.shape[1]))


@pytest.mark.parametrize("beam", [1, 2])
def test_padding_and_the_unknown_word_are_never_written(beam):
    search = {"decoding": decoding.Decoding(beam), "end": 3, "max_length": 4, "num_best": beam}
    rows = decoding.translate(Tempted(), {}, {name: TEXTS[name] for name in SOURCES}, **search)
    assert {token for row in rows for best in row for token in best.tokens} == {2}
