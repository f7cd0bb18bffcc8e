"""Linear projection of the last axis."""

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention.arrays import wide


def project(
    inputs: Float[Array, "*b d"], kernel: Float[Array, "d e"], dtype: DTypeLike | None = None
) -> Float[Array, "*b e"]:
    """Projects the last axis, `y = x W`, in one matrix product.

    The leading axes are flattened into one. `einsum("...d,de->...e")` computes the same, but there
    the gradient of the kernel contracts several axes. XLA has no fast product for that on CPU: a
    training step of the shapes CNN took 1.7 times as long.

    Args:
        inputs: `x`, `(..., d)`.
        kernel: `W`, `(d, e)`.
        dtype: dtype of the sums and of the result; None for the promoted dtype.
    """
    product = jnp.matmul(inputs.reshape(-1, inputs.shape[-1]), kernel, preferred_element_type=dtype)
    return product.reshape(*inputs.shape[:-1], kernel.shape[-1])


def project_wide(inputs: Float[Array, "*b d"], kernel: Float[Array, "d e"]) -> Float[Array, "*b e"]:
    """`project` with sums in float32 or better, so that half precision does not overflow.

    The result keeps the dtype of the sums.
    """
    return project(inputs, kernel, wide(inputs.dtype, kernel.dtype))
