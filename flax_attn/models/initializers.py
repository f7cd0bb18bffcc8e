"""PyTorch's default initialisation, which the published figures of the tutorials' recipes rest on."""

import flax.linen as nn
import jax
from flax.typing import Initializer

# U(-1/sqrt(fan_in), 1/sqrt(fan_in)): what `torch.nn.Linear` and `torch.nn.Conv1d` do to a kernel.
torch_kernel = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def torch_uniform(fan_in: int) -> Initializer:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)) whatever the shape: PyTorch's biases, and all of a recurrent layer (its width)."""
    bound = fan_in**-0.5
    return lambda key, shape, dtype=float: jax.random.uniform(key, shape, dtype, -bound, bound)
