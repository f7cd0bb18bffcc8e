"""The lens reaches every model: its weights are those of the temperature, the normaliser and the
mask, and without it they are the old ones.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.attention import Lens, masked_softmax, sparsemax
from flax_attn.models import (
    GPT,
    MODELS,
    CNNAttention,
    GRUAttention,
    InputAttentionRNN,
    NGramAttention,
    PatchAttention,
    PatchTransformer,
    ResidualAttention,
    RNNAttention,
    Seq2Seq,
    StructuredAttention,
    TranslationTransformer,
    decoding,
)
from tests.models.variables import draw

rng = np.random.default_rng(0)
SIGNALS = rng.normal(size=(2, 12, 1)).astype(np.float32)
SERIES = rng.normal(size=(3, 5, 4)).astype(np.float32)
IMAGES = rng.random((2, 8, 8)).astype(np.float32)
TEXTS = {
    "tokens": rng.integers(2, 7, (3, 5)).astype(np.int32),
    "lengths": np.array([5, 3, 1], np.int32),
}
NGRAMS = TEXTS | {
    "pairs": rng.integers(1, 6, (3, 5)).astype(np.int32),
    "ngrams": rng.integers(1, 11, (3, 5, 3)).astype(np.int32),
}
PAIRS = {
    "source": rng.integers(2, 11, (3, 7)).astype(np.int32),
    "source_lengths": np.array([7, 4, 1], np.int32),
    "target": rng.integers(2, 11, (3, 5)).astype(np.int32),
}
TOKENS = rng.integers(2, 11, (3, 9)).astype(np.int32)
CLASSES = {"vocabulary_size": 7, "num_classes": 3, "embedding_features": 5, "features": 4}
LANGUAGES = {"source_vocabulary_size": 11, "target_vocabulary_size": 13}
SEQUENCES = LANGUAGES | {"embedding_features": 6, "features": 6, "attention_features": 6}
WORDS = NGramAttention(
    **CLASSES,
    num_ngrams=11,
    num_pairs=6,
    encoders=("convolution", "rnn"),
    attention_features=3,
    num_hops=2,
)
GENERATOR = GPT(vocabulary_size=11, max_length=9, features=8, num_heads=4, num_key_heads=2)
ALL = {
    "cnn_attention": (CNNAttention(8), SIGNALS),
    "residual_attention": (ResidualAttention(8, num_attentions=2), SIGNALS),
    "patch_attention": (PatchAttention(3, 4), IMAGES),
    "patch_transformer": (PatchTransformer(3, 4, 8, 2, 2, 5), IMAGES),
    "rnn_attention": (RNNAttention(**CLASSES), TEXTS),
    "gru_attention": (GRUAttention(**CLASSES), TEXTS),
    "structured_attention": (StructuredAttention(**CLASSES, num_hops=2), TEXTS),
    "ngram_attention": (WORDS, NGRAMS),
    "input_attention": (InputAttentionRNN(4), SERIES),
    "seq2seq": (Seq2Seq(**SEQUENCES), PAIRS),
    "seq2seq, luong": (Seq2Seq(**SEQUENCES, decoder="luong", attention="general"), PAIRS),
    "seq2seq, local-p": (Seq2Seq(**SEQUENCES, reach=3), PAIRS),
    "translation_transformer": (
        TranslationTransformer(
            **LANGUAGES, features=8, num_heads=2, num_blocks=2, hidden_features=5
        ),
        PAIRS,
    ),
    "gpt": (GENERATOR, TOKENS),
}
WITHOUT = {"cnn", "lstm", "bilstm", "mlp"}  # models that do not attend
# The weights that no attention comes before: each array's index of these.
FIRST = {
    "cnn_attention": ("attention", ...),
    "patch_attention": ("attention", ...),
    "patch_transformer": ("block0", ...),
    "rnn_attention": ("attention", ...),
    "structured_attention": ("hops", ...),
    "ngram_attention": ("hops_rnn", ...),
    "input_attention": ("input", np.s_[:, 0]),
    "seq2seq": ("alignment", np.s_[:, 0]),
    "seq2seq, luong": ("alignment", np.s_[:, 0]),
    "gpt": ("block0", ...),
}
QUICK = ("cnn_attention", "rnn_attention", "seq2seq, luong", "gpt")
NOT_0 = lambda queries, keys: keys != 0
NO_KEY = -1


def test_no_model_that_attends_is_left_out():
    assert {name.partition(",")[0] for name in ALL} == set(MODELS) - WITHOUT


@functools.cache
def evaluate(name):
    """`(outputs, weights)` without a lens, and within one of a temperature, a normalizer and a key
    that is masked: two programs, and one for each other normalizer.
    """
    model, inputs = ALL[name]
    variables = draw(model, inputs)
    options = {"need_weights": True} if isinstance(model, GPT) else {}

    @functools.partial(jax.jit, static_argnames="normalizer")
    def within(inputs, temperature, masked, normalizer=None):
        mask = lambda queries, keys: keys != masked
        with Lens(temperature=temperature, normalizer=normalizer, mask=mask):
            return call(inputs)

    def call(inputs):
        outputs, aux = model.apply(variables, inputs, **options)
        return outputs, aux["attention"]

    plain = jax.jit(call)
    return lambda *lens: jax.device_get(within(inputs, *lens) if lens else plain(inputs))


@pytest.mark.parametrize("name", ALL)
def test_every_model_follows(name):
    call = evaluate(name)
    outputs, plain = call()
    assert plain
    flatter_outputs, flatter = call(4.0, NO_KEY)
    _, without_0 = call(1.0, 0)
    for key, weights in plain.items():
        assert np.abs(flatter[key] - weights).max() > 1e-4, key
        assert without_0[key].any()
        if key != "hops_pairs":  # key 0 of their attention is a word
            assert weights[..., 0].any()
            assert not without_0[key][..., 0].any()
    assert np.abs(flatter_outputs - outputs).max() > 1e-5
    chex.assert_trees_all_equal(call(), (outputs, plain))


SETTINGS = {"temperature": (4.0, NO_KEY), "all": (0.3, 0, sparsemax)}
NAMES_AND_SETTINGS = [(name, "temperature") for name in FIRST] + [(name, "all") for name in QUICK]


@pytest.mark.parametrize(("name", "setting"), NAMES_AND_SETTINGS)
def test_the_first_weights_are_those_computed_by_hand(name, setting):
    """Softmax of scores divided by 4 is the softmax of a fourth of the logarithms of the weights,
    which are the scores but for a number a row.
    """
    call, (key, index) = evaluate(name), FIRST[name]
    weights = jnp.asarray(call()[1][key][index])
    scores = jnp.log(weights)  # -inf where the model hides a key
    temperature, masked, *others = SETTINGS[setting]
    got = call(*SETTINGS[setting])[1][key][index]
    normalizer = others[0] if others else masked_softmax
    visible = jnp.broadcast_to(jnp.arange(scores.shape[-1]) != masked, scores.shape)
    expected = normalizer(scores / temperature, mask=visible)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", QUICK)
def test_gradients_are_finite_where_the_lens_leaves_nothing(name):
    """A text of one word, a first token and a source of one word have no key but the first."""
    model, inputs = ALL[name]
    variables = draw(model, inputs)

    @jax.jit
    def gradient(variables, inputs, temperature):
        def loss(variables, temperature):
            with Lens(temperature=temperature, mask=NOT_0):
                return jnp.sum(jnp.sin(model.apply(variables, inputs)[0]))

        return jax.grad(loss, argnums=(0, 1))(variables, temperature)

    of_variables, of_temperature = gradient(variables, inputs, 0.7)
    chex.assert_tree_all_finite((of_variables, of_temperature))
    assert of_temperature != 0


KEPT = ["cnn_attention", "residual_attention", "patch_transformer", "ngram_attention", "gpt"]


@pytest.mark.parametrize("name", KEPT)
def test_scores_of_models_are_in_the_order_of_calls(name):
    model, inputs = ALL[name]
    variables = draw(model, inputs)
    options = {"need_weights": True} if isinstance(model, GPT) else {}

    @jax.jit
    def look(inputs):
        with Lens(keep_scores=True, temperature=2.0) as lens:
            _, aux = model.apply(variables, inputs, **options)
        return aux["attention"], lens.scores

    attention, scores = look(inputs)
    attention = dict(attention)
    if name == "ngram_attention":  # the hops of words and pairs are of one attention
        parts = [attention.pop(f"hops_{part}") for part in ("words", "pairs")]
        attention["both"] = jnp.concatenate(parts, axis=-1)
    assert len(scores) == len(attention)
    for weights, own in zip(attention.values(), scores):
        weights = weights if weights.ndim == own.ndim else weights[..., None, :]
        visible = weights > 0
        expected = masked_softmax(own / 2.0, mask=visible)
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["input_attention", "seq2seq"])
def test_scores_inside_a_loop_over_steps_are_told(name):
    with Lens(keep_scores=True), pytest.raises(ValueError, match="which scores cannot leave"):
        evaluate(name)()


def test_a_search_that_was_compiled_before_follows():
    model, _ = ALL["seq2seq, luong"]
    params = draw(model, PAIRS)["params"]
    search = functools.partial(
        decoding.translate, model, params, PAIRS, decoding.Decoding(beam=2), end=5, max_length=4
    )
    alignments = lambda: [best.alignment for (best, *_) in search()]
    before = alignments()
    with Lens(mask=NOT_0):
        within = alignments()
    assert any(weights[:, 0].any() for weights in before)
    assert not any(weights[:, 0].any() for weights in within)
    assert any(weights.any() for weights in within)
    chex.assert_trees_all_equal(alignments(), before)
