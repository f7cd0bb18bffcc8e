"""Convolution along a sequence."""

import flax.linen as nn
import jax
from flax.typing import Initializer
from jaxtyping import Array, Float

from flax_attn import platforms
from flax_attn.models.cpu import convolution as on_cpu
from flax_attn.models.initializers import torch_kernel, torch_uniform


class Conv1D(nn.Module):
    """Convolution with zero padding to the same length, for a kernel of `r` taps.

        y_t = b + sum_j W_j x_{t + j - r//2}

    It is initialised as PyTorch's. The parameters are those of `flax.linen.Conv`: `kernel`
    `(r, in, features)` and `bias` `(features,)`.

    Attributes:
        features: width of the outputs.
        kernel_size: `r`, an odd number.
        kernel_init: initialiser of the kernel.
    """

    features: int
    kernel_size: int
    kernel_init: Initializer = torch_kernel

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t d"]) -> Float[Array, "b t e"]:
        shape = (self.kernel_size, inputs.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)  # (r, d, e)
        bias = self.param("bias", torch_uniform(shape[0] * shape[1]), (self.features,))
        return convolve(inputs, kernel) + bias[None, None, :]


def convolve(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    """Convolves along `t` with zero padding to the same length, for an odd number of taps."""
    if len(kernel) % 2 == 0:
        raise ValueError(f"expected an odd kernel_size, got {len(kernel)}")
    if platforms.current() == platforms.CPU:
        return on_cpu.convolve(inputs, kernel)  # XLA's has no fast path in a loop there
    return by_xla(inputs, kernel)


def by_xla(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    numbers = ("NWC", "WIO", "NWC")  # (b, t, d), (r, d, e), (b, t, e)
    return jax.lax.conv_general_dilated(inputs, kernel, (1,), "SAME", dimension_numbers=numbers)
