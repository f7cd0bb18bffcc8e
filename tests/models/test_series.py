import jax
import numpy as np
from numpy.testing import assert_allclose

from flax_attn.models import InputAttentionRNN
from tests.models import variables

SIGNALS = np.random.default_rng(1).normal(size=(7, 2, 3)).astype(np.float32)


def test_input_attention_weighs_the_series_of_each_step():
    model = InputAttentionRNN(4)
    outputs, aux = jax.jit(model.apply)(variables.draw(model, SIGNALS), SIGNALS)
    assert outputs.shape == (7, 2, 1)
    assert_allclose(np.asarray(aux["attention"]["input"]).sum(axis=-1), np.ones((7, 2)), atol=1e-5)
