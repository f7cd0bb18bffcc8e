"""Metrics as sums and counts, so that batches add up exactly whatever their padding."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Mean(NamedTuple):
    """A mean that is still to be divided. Adding the leaves of two of them gives the mean over both."""

    total: Float[Array, "*s"]
    count: Float[Array, "*s"]

    def compute(self) -> Float[Array, "*s"]:
        return self.total / self.count


def squared_error(outputs: Float[Array, "b *d"], targets: Float[Array, "b *d"], mask: Bool[Array, " b"]) -> Mean:
    """Mean squared error, `mean (y - t)^2` over the examples that the mask allows and all their elements."""
    chex.assert_equal_shape([outputs, targets])
    weights = mask.reshape(mask.shape + (1,) * (outputs.ndim - 1)) * jnp.ones_like(outputs)
    return Mean(jnp.sum(weights * jnp.square(outputs - targets)), jnp.sum(weights))


def accumulate(metrics: dict[str, Mean]) -> dict[str, Mean]:
    """Adds up metrics stacked along a leading axis, as a scan over batches returns them."""
    return jax.tree.map(lambda leaf: leaf.sum(axis=0), metrics)


def compute(metrics: dict[str, Mean]) -> dict[str, Array]:
    """Divides every total by its count."""
    return {name: metric.compute() for name, metric in metrics.items()}
