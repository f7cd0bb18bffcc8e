"""The product of a dense layer, with all positions of a batch on one axis; and a layer norm."""

import math
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Array


def on_one_axis(inputs: Array, kernel: Array, dimension_numbers: Any, **options: Any) -> Array:
    """`jax.lax.dot_general` for `dot_general=` of `nn.Dense` and `nn.DenseGeneral`.

    The batch axes of the inputs become one axis before the product, and are put back after it. The
    result is the same. The gradient of the kernel then contracts one axis. With two axes, XLA first
    transposes both of its operands on a CPU.

    Args:
        inputs: `(..., *c)`.
        kernel: `(*c, *features)`.
        dimension_numbers: those of the product above.
        options: such as `precision`.

    Returns:
        `(..., *features)`.
    """
    (contracted, _), _ = dimension_numbers
    axes = inputs.ndim - len(contracted)
    batch, width = inputs.shape[:axes], math.prod(inputs.shape[axes:])
    flat = kernel.reshape(width, -1)
    product = jax.lax.dot(inputs.reshape(-1, width), flat, **options)
    return product.reshape(*batch, *kernel.shape[len(contracted) :])


def layer_norm(inputs: Array, **options: Any) -> Array:
    """`nn.LayerNorm` in a compact method, also where the user asked for strict promotion.

    In half precision it computes the mean in float32, and mixes both.
    """
    with jax.numpy_dtype_promotion("standard"):
        return nn.LayerNorm(**options)(inputs)
