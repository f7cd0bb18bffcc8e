"""Numbers without JAX, and functions and layers as one program: op by op they would be dozens, and
to compile is most of the work here.
"""

import jax
import jax.numpy as jnp
import numpy as np


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(function, *args, **options):
    """`function(*args, **options)` as one program that takes the arrays as arguments; what it
    returns is in NumPy.
    """
    program, arrays = _program(function, args, options)
    return jax.device_get(jax.jit(program)(arrays))


def init(layer, *args, **options):
    """Parameters of a layer, normal at random, biases too, without running its initialisers."""
    rng = np.random.default_rng(2)
    program, arrays = _program(layer.init, (jax.random.key(2), *args), options)
    return jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.4, leaf.shape).astype(leaf.dtype)),
        jax.eval_shape(program, arrays),
    )


def apply(layer, variables, *args, **options):
    return run(layer.apply, variables, *args, **options)


def _program(function, args, options):
    """A function of the arrays among the arguments, and these."""
    leaves, tree = jax.tree.flatten((args, options))

    def program(arrays):
        args, options = jax.tree.unflatten(
            tree, [arrays.get(index, leaf) for index, leaf in enumerate(leaves)]
        )
        return function(*args, **options)

    return program, {
        index: leaf for index, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)
    }
