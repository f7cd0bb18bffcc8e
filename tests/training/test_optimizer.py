import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx

import flax_attn.attention as fa
from flax_attn.attention.nnx import MultiHeadAttention as NnxAttention
from flax_attn.models import GPT, LSTM, PatchTransformer, Seq2Seq, TranslationTransformer
from flax_attn.training.optimizer import Optimizer

TOKENS, SIGNALS = np.zeros((1, 5), np.int32), np.zeros((1, 8, 4), np.float32)
TEXTS = {"source": TOKENS, "source_lengths": np.array([5]), "target": TOKENS}
TEXTS |= {"target_lengths": np.array([5])}
SMALL = {"features": 8, "num_heads": 2, "num_blocks": 1}


def shapes(model, *inputs):
    return lambda: jax.eval_shape(model.init, jax.random.key(0), *inputs)["params"]


class Placed(nn.Module):
    """A layer whose bias is said to lie on the devices of a mesh."""

    @nn.compact
    def __call__(self, x):
        init = nn.with_partitioning(nn.initializers.zeros, (None, "heads"))
        return nn.DenseGeneral((2, 3), bias_init=init)(x)


# parameters, and how many biases among them have two axes
PARAMS = {
    "GPT": (shapes(GPT(11, 5, **SMALL), TOKENS), 3),
    "patches": (shapes(PatchTransformer(3, **SMALL), np.zeros((1, 8, 8), np.float32)), 3),
    "translation": (shapes(TranslationTransformer(11, 11, **SMALL), TEXTS), 9),
    "Bahdanau": (shapes(Seq2Seq(11, 11), TEXTS), 0),
    "LSTM": (shapes(LSTM(), SIGNALS), 0),
    "gated": (shapes(fa.MultiHeadAttention(2, output_gate=True, sinks=True), SIGNALS), 4),
    "nnx": (lambda: nnx.state(NnxAttention(2, in_features=4, rngs=nnx.Rngs(0)), nnx.Param), 3),
    "partitioned": (shapes(Placed(), SIGNALS), 1),
}


@pytest.mark.parametrize("name", PARAMS)
def test_decay_shrinks_kernels_and_tables_and_spares_all_else(name):
    make, num_biases = PARAMS[name]
    params = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), make())
    optimizer = Optimizer(weight_decay=0.01).build(1e-3, 10)
    gradients = jax.tree.map(np.zeros_like, params)
    update = jax.jit(lambda gradients: optimizer.update(gradients, optimizer.init(params), params))
    of_two_axes = 0
    for path, change in jax.tree_util.tree_leaves_with_path(update(gradients)[0]):
        name = jax.tree_util.keystr(path)
        is_decayed = change.ndim > 1 and any(word in name for word in ("kernel", "embedding"))
        np.testing.assert_allclose(change, -1e-5 if is_decayed else 0, rtol=1e-5, err_msg=name)
        of_two_axes += change.ndim > 1 and not is_decayed
    assert of_two_axes == num_biases
