"""Heads of a model of `flax.nnx` have the same effects as those of the same model of linen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from flax_attn import heads
from flax_attn.models import GPT
from tests.models.variables import draw
from tests.nnx_gpt import of_linen

TOKENS, OTHERS = np.random.default_rng(0).integers(2, 11, (2, 3, 8))


def logit(outputs):
    return outputs[:, -1, 4].sum()


@pytest.fixture(scope="module")
def models():
    model = GPT(11, 8, features=12, num_heads=3, num_blocks=2)
    params = draw(model, TOKENS)["params"]
    return model, params, of_linen(model, params)


def test_a_model_of_nnx_computes_and_decodes_what_that_of_linen_does(models):
    model, params, module = models
    expected, _ = jax.jit(model.apply)({"params": params}, TOKENS)
    assert_array_equal(nnx.jit(lambda module: module(TOKENS))(module), expected)
    caches, logits = module.start(3), []
    decode = nnx.jit(lambda module, tokens, caches: module.decode(tokens, caches))
    for t in range(8):
        written, caches = decode(module, TOKENS[:, t : t + 1], caches)
        logits.append(written)
    assert_allclose(jnp.concatenate(logits, axis=1), expected, atol=1e-5)


MEASURES = {
    "effects": lambda *args: heads.effects(*args, logit),
    "patching": lambda *args: heads.effects(*args, logit, source=OTHERS),
    "direct": lambda *args: heads.direct(*args, logit),
    "logit lens": lambda *args: {"": heads.logits_by_block(*args)},
    "contexts": heads.contexts_of,
    "factors": heads.heads_of,
}


@pytest.mark.parametrize("name", MEASURES)
def test_what_is_measured_of_heads_is_that_of_linen(name, models):
    model, params, module = models
    own = MEASURES[name](module, nnx.state(module), TOKENS)
    expected = MEASURES[name](model, params, TOKENS)
    assert list(own) == [path.replace("blocks_", "blocks/") for path in expected]
    for values, others in zip(own.values(), expected.values()):
        assert_allclose(values, others, rtol=1e-6, atol=1e-6)
        assert np.abs(others).max() > 1e-3


def test_a_head_that_is_cut_by_its_path_is_that_of_linen(models):
    model, params, module = models
    with heads.cut({"blocks/1/attention": [2]}):
        outputs = module(jnp.asarray(TOKENS))
    with heads.cut({"blocks_1/attention": [2]}):
        expected, _ = model.apply({"params": params}, jnp.asarray(TOKENS))
    assert_allclose(outputs, expected, atol=1e-6)
    assert np.abs(outputs - module(jnp.asarray(TOKENS))).max() > 1e-3


def test_heads_are_measured_without_dropout_and_the_model_stays_as_it_was(models):
    _, _, module = models
    expected = heads.effects(module, nnx.state(module), TOKENS, logit)
    dropping = nnx.clone(module)
    for block in dropping.blocks:
        block.dropout_rate, block.stream = 0.5, nnx.data(nnx.Rngs(0).dropout.fork())
    measured = heads.effects(dropping, nnx.state(dropping), TOKENS, logit)
    for name, values in expected.items():
        assert_allclose(measured[name], values, atol=1e-6)
    assert not dropping.blocks[0].deterministic
    assert nnx.LayerNorm.__call__.__qualname__ == "LayerNorm.__call__"
