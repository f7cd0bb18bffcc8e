"""Scores of attention in a loop are those that its weights are made of, at every step."""

import jax
import numpy as np

from flax_attn.attention import masked_softmax
from flax_attn.models.series import InputAttentionRNN
from flax_attn.tasks.step_scores import of_series
from tests.models.variables import draw


def test_the_scores_of_series_make_the_weights_of_every_step():
    """The states are those of the real weights."""
    model = InputAttentionRNN(features=4)
    inputs = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    variables = draw(model, inputs)
    _, aux = jax.jit(model.apply)(variables, inputs)
    scores = jax.jit(lambda params: of_series(model, params, inputs))(variables["params"])
    np.testing.assert_allclose(masked_softmax(scores), aux["attention"]["input"], atol=1e-6)
