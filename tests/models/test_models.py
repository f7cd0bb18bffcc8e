import functools

import chex
import jax
import numpy as np
import pytest

from flax_attn.models import CNN, LSTM, BiLSTM, CNNAttention, ResidualAttention
from tests.models import variables

SIGNALS = np.random.default_rng(0).normal(size=(3, 100, 1)).astype(np.float32)
PARAMETERS = {
    CNN(): 62_337,
    CNNAttention(): 58_177,
    ResidualAttention(): 95_169,
    LSTM(): 130_660,
    BiLSTM(): 34_433,
}
by_model = functools.partial(pytest.mark.parametrize, ids=lambda value: type(value).__name__)


@functools.cache
def compiled(model):
    """Outputs and attention on signals of the given parameters."""
    return jax.jit(lambda drawn, signals: model.apply(drawn, signals))


@by_model("model", PARAMETERS)
def test_parameters(model):
    params = jax.eval_shape(model.init, jax.random.key(0), SIGNALS)["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == PARAMETERS[model]


@by_model("model", PARAMETERS)
def test_outputs_have_the_shape_of_the_inputs(model):
    outputs, aux = compiled(model)(variables.draw(model, SIGNALS), SIGNALS)
    chex.assert_equal_shape([outputs, SIGNALS])
    assert np.isfinite(outputs).all()
    assert set(aux) <= {"attention"}


def depends_on(model, position):
    """Which inputs the output at a position depends on, seen by its gradient, rounding apart."""
    drawn = jax.jit(model.init)(jax.random.key(0), SIGNALS[:1])
    gradient = jax.jit(jax.grad(lambda x: model.apply(drawn, x)[0][0, position, 0]))(SIGNALS[:1])
    size = np.abs(np.asarray(gradient[0, :, 0]))
    return np.flatnonzero(size > 1e-5 * size.max())


def test_a_cnn_sees_21_points_and_attention_sees_all():
    inputs = depends_on(CNN(features=8), 50)
    assert (inputs.min(), inputs.max()) == (40, 60)
    assert len(depends_on(CNNAttention(features=8, key_features=12), 50)) == 100
    inputs = depends_on(BiLSTM(features=8), 50)  # farther, and less the farther
    assert inputs.min() < 40 and inputs.max() > 60  # noqa: PT018


def test_attention_without_positions_is_blind_to_order_and_with_them_is_not():
    """A bump moved far from the borders moves the output with it, unless the model knows where it
    is.
    """
    bump = np.zeros((3, 100, 1), np.float32)
    bump[0, 30:36] = 2.0
    moved = np.roll(bump, 31, axis=1)
    for positions, same in ((False, True), (True, False)):
        model = CNNAttention(binary_positions=positions)
        drawn = variables.draw(model, bump)
        here, there = (np.asarray(compiled(model)(drawn, x)[0])[0, :, 0] for x in (bump, moved))
        assert np.allclose(here[25:41], there[56:72], atol=1e-5) is same


def test_attention_weights_are_returned_and_sum_to_one():
    model = CNNAttention()
    _, aux = compiled(model)(variables.draw(model, SIGNALS), SIGNALS)
    weights = np.asarray(aux["attention"]["attention"])
    chex.assert_shape(weights, (3, 100, 100))
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
