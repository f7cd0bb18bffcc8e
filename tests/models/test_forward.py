import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import LSTM
from flax_attn.models.forward import forward, in_order


def test_a_model_that_carries_state_predicts_each_example_alone():
    model = LSTM(features=5)
    signals = np.random.default_rng(0).normal(size=(3, 7, 1)).astype(np.float32)
    drawn = model.init(jax.random.key(0), jnp.asarray(signals))
    together = forward(model, drawn["params"], signals)
    for row, outputs in zip(signals, together):
        alone, _ = model.apply(drawn, jnp.asarray(row[None]))
        np.testing.assert_allclose(outputs, alone[0], atol=1e-6)
    in_turn, _ = model.apply(drawn, jnp.asarray(signals))
    assert np.abs(in_turn - together).max() > 1e-3


class Identity(nn.Module):
    def __call__(self, inputs):
        return inputs, {}


def test_blocks_stand_in_their_order():
    names = [*(f"block{i}" for i in range(1, 13)), "pooling"]
    assert list(in_order(dict.fromkeys(sorted(names), 0))) == names


@pytest.mark.parametrize("count", [3, 64, 70, 130])
def test_every_row_is_there_once(count):
    inputs = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)
    np.testing.assert_array_equal(forward(Identity(), {}, inputs), inputs)
