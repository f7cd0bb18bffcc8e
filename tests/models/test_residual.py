import jax
import numpy as np
from numpy.testing import assert_allclose

from flax_attn.models import ResidualAttention
from tests.models import variables
from tests.models.cpu.test_convolution import naive


def test_residual_attention_is_its_equation():
    model = ResidualAttention(features=4, kernel_size=3, key_features=3, num_attentions=2)
    signals = np.random.default_rng(0).normal(size=(2, 23, 1)).astype(np.float32)
    drawn = variables.draw(model, signals)
    outputs, aux = jax.jit(model.apply)(drawn, signals)
    p, relu = (
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), drawn["params"]),
        lambda x: np.maximum(x, 0),
    )
    same_convolution = lambda x, q: naive(x[None], q["kernel"])[0] + q["bias"]
    block = lambda x, q: relu(
        x + same_convolution(relu(same_convolution(x, q["conv1"])), q["conv2"])
    )
    for row, signal in enumerate(np.asarray(signals, np.float64)):
        x = block(relu(same_convolution(signal, p["conv_in"])), p["block0"])
        for i in (1, 2):
            query, key, value = (
                x @ p[f"attention{i}"][f"{name}_kernel"] for name in ("query", "key", "value")
            )
            shares = np.exp(query @ key.T / np.sqrt(3))
            weights = shares / shares.sum(axis=-1, keepdims=True)
            assert_allclose(aux["attention"][f"attention{i}"][row], weights, atol=1e-4)
            x = block(relu(x + weights @ value), p[f"block{i}"])
        assert_allclose(outputs[row], same_convolution(x, p["conv_out"]), rtol=1e-3, atol=1e-3)
