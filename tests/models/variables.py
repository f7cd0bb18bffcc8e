"""Variables of a model where its initialiser does not matter: to compile one costs more than the
test.
"""

import jax
import jax.numpy as jnp
import numpy as np


def draw(model, *inputs):
    """Parameters from a normal distribution, each kernel's scaled to keep the size of what it
    multiplies; all else zero.
    """
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    normal = lambda leaf: (
        rng.normal(size=leaf.shape) / np.sqrt(leaf.size / (leaf.shape or (1,))[-1])
    ).astype(leaf.dtype)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.tree.map(jnp.asarray, {**zeros, "params": jax.tree.map(normal, shapes["params"])})
