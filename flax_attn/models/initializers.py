"""Initialisations: PyTorch's, which the published figures of the tutorials need, or Flax's."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Key

# U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as in the kernels of `torch.nn.Linear` and `torch.nn.Conv1d`.
torch_kernel = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def torch_uniform(fan_in: int) -> Initializer:
    """Draws from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), for any shape.

    It is that of PyTorch's biases. For all parameters of a recurrent layer `fan_in` is its width.
    """
    bound = fan_in**-0.5
    return lambda key, shape, dtype=float: jax.random.uniform(key, shape, dtype, -bound, bound)


def orthogonal_gates(width: int) -> Initializer:
    """Makes an orthogonal matrix `(width, width)` for each gate, side by side."""
    orthogonal = nn.initializers.orthogonal()

    def init(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike = float) -> Array:
        keys = jax.random.split(key, shape[1] // width)
        gates = [orthogonal(key, (width, width), dtype) for key in keys]  # (width, width) each
        return jnp.concatenate(gates, axis=1)  # (width, gates width)

    return init


class Initialization(NamedTuple):
    """Initialisers of a model's parameters.

    Attributes:
        kernel, embedding: of dense kernels, and of embeddings.
        bias: of biases, by the fan-in of their layer.
        input_kernel, recurrent_kernel: of a recurrent layer, by its width.
    """

    kernel: Initializer
    embedding: Initializer
    bias: Callable[[int], Initializer]
    input_kernel: Callable[[int], Initializer]
    recurrent_kernel: Callable[[int], Initializer]

    def dense(self, features: int, fan_in: int, name: str) -> nn.Dense:
        """Makes a dense layer from `fan_in` to `features`."""
        return nn.Dense(features, kernel_init=self.kernel, bias_init=self.bias(fan_in), name=name)


torch = Initialization(
    kernel=torch_kernel,
    embedding=nn.initializers.normal(1.0),
    bias=torch_uniform,
    input_kernel=torch_uniform,
    recurrent_kernel=torch_uniform,
)
flax = Initialization(
    kernel=nn.initializers.lecun_normal(),
    embedding=nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0),
    bias=lambda fan_in: nn.initializers.zeros,
    input_kernel=lambda width: nn.initializers.lecun_normal(),
    recurrent_kernel=orthogonal_gates,
)
INITIALIZATIONS = {"torch": torch, "flax": flax}


def initialization(name: str) -> Initialization:
    """Returns the initialisation of a name."""
    if name not in INITIALIZATIONS:
        raise ValueError(f"expected initialization of {', '.join(INITIALIZATIONS)}, got {name!r}")
    return INITIALIZATIONS[name]
