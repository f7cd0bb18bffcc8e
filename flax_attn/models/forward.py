"""A trained model applied to any number of inputs."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.types import Tree

AT_ONCE = 64

Inputs = Tree  # an array `(n, ...)`, or a dict of them
Params = Tree  # a tree of arrays


def forward(
    model: nn.Module, params: Params, inputs: Inputs, num_attended: int = AT_ONCE
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Outputs `(n, ...)`, and by name the attention on the first inputs.

    The attention is that on at least `num_attended` inputs where there are as many. A model that
    carries state from one example to the next starts afresh for each, so no prediction depends on
    the others.
    """
    num_examples = len(jax.tree.leaves(inputs)[0])
    rows = lambda first, last: jax.tree.map(lambda array: jnp.asarray(array[first:last]), inputs)
    carry = jax.eval_shape(model.init, jax.random.key(0), rows(0, 1)).get("carry", {})
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), carry)
    variables, size = {"params": params, "carry": zeros}, 1 if carry else AT_ONCE
    outputs, attentions = [], []
    for first in range(0, num_examples, size):
        batch, aux = _apply(model, variables, rows(first, first + size))
        outputs.append(np.asarray(batch))
        if first < num_attended:
            attentions.append(jax.device_get(aux.get("attention", {})))
    return np.concatenate(outputs), jax.tree.map(
        lambda *batches: np.concatenate(batches), *attentions
    )


@functools.partial(jax.jit, static_argnames="model")
def _apply(model: nn.Module, variables: dict[str, Tree], inputs: Inputs) -> tuple[Tree, Tree]:
    return model.apply(variables, inputs)
