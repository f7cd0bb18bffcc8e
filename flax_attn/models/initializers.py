"""How parameters begin: as PyTorch's do, which the published figures of the tutorials' recipes rest on, or as Flax's."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer

# U(-1/sqrt(fan_in), 1/sqrt(fan_in)): what `torch.nn.Linear` and `torch.nn.Conv1d` do to a kernel.
torch_kernel = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def torch_uniform(fan_in: int) -> Initializer:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)) whatever the shape: PyTorch's biases, and all of a recurrent layer (its width)."""
    bound = fan_in**-0.5
    return lambda key, shape, dtype=float: jax.random.uniform(key, shape, dtype, -bound, bound)


def orthogonal_gates(width: int) -> Initializer:
    """An orthogonal matrix `(width, width)` for each gate of a recurrent layer, side by side."""
    each = nn.initializers.orthogonal()

    def init(key: jax.Array, shape: tuple[int, ...], dtype=float) -> jax.Array:
        return jnp.concatenate([each(k, (width, width), dtype) for k in jax.random.split(key, shape[1] // width)], axis=1)

    return init


class Initialization(NamedTuple):
    """Initialisers of dense kernels, embeddings, and by fan-in or width those of biases and recurrent layers."""

    kernel: Initializer
    embedding: Initializer
    bias: Callable[[int], Initializer]
    input_kernel: Callable[[int], Initializer]
    recurrent_kernel: Callable[[int], Initializer]

    def dense(self, features: int, fan_in: int, name: str) -> nn.Dense:
        return nn.Dense(features, kernel_init=self.kernel, bias_init=self.bias(fan_in), name=name)


torch = Initialization(torch_kernel, nn.initializers.normal(1.0), torch_uniform, torch_uniform, torch_uniform)
flax = Initialization(
    nn.initializers.lecun_normal(),
    nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0),
    lambda fan_in: nn.initializers.zeros,
    lambda width: nn.initializers.lecun_normal(),
    orthogonal_gates,
)
INITIALIZATIONS = {"torch": torch, "flax": flax}


def initialization(name: str) -> Initialization:
    """The initialisation of a name. Raises a ValueError for one that there is not."""
    if name not in INITIALIZATIONS:
        raise ValueError(f"expected initialization of {', '.join(INITIALIZATIONS)}, got {name!r}")
    return INITIALIZATIONS[name]
