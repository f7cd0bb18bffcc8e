"""Linear projection of the last axis."""

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


def project(
    inputs: Float[Array, "*b d"], kernel: Float[Array, "d e"], dtype: DTypeLike | None = None
) -> Float[Array, "*b e"]:
    """Projects the last axis, `y = x W`, as one matrix product over all leading axes together.

    `einsum("...d,de->...e")` says the same, but its gradient with respect to the kernel contracts several axes, and for
    that XLA on CPU leaves its fast product: a training step of the shapes CNN takes 1.7 times as long.
    """
    product = jnp.matmul(inputs.reshape(-1, inputs.shape[-1]), kernel, preferred_element_type=dtype)
    return product.reshape(*inputs.shape[:-1], kernel.shape[-1])


def project_wide(inputs: Float[Array, "*b d"], kernel: Float[Array, "d e"]) -> Float[Array, "*b e"]:
    """`project` with half precision added up in float32, and left in it, so that no sum overflows."""
    return project(inputs, kernel, jnp.promote_types(jnp.result_type(inputs, kernel), jnp.float32))
