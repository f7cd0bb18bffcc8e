"""Convolution along a sequence, with the form that is fastest on the device it runs on.

XLA's own convolution is used on accelerators. On CPU it falls off a cliff inside a loop, and a training epoch is one
(`benchmarks/convolution.py` measures it). There, two forms made of matrix products take its place: products over
concatenated shifts, and where both widths are large the Cook-Toom algorithm (Winograd 1980; Lavin & Gray 2015,
arXiv:1509.09308), which computes 4 outputs of a 5-tap filter in 8 products in place of 20. With AVX-512 the 8 products
are one batched product.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import Initializer
from jaxtyping import Array, Float

from flax_attn.attention.projection import project
from flax_attn.models import instruction_set
from flax_attn.models.initializers import torch_kernel, torch_uniform

OUTPUTS_PER_TILE = 4  # larger tiles take fewer products and round worse: float32 errors are 5e-6 here, 1e-6 direct
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0)


class Conv1D(nn.Module):
    """Convolution with zero padding to the same length: `y_t = b + sum_j W_j x_{t + j - r//2}` for a kernel of r taps.

    Initialised as PyTorch does. Parameters: `kernel (r, in, features)`, `bias (features,)`, as in `flax.linen.Conv`.
    """

    features: int
    kernel_size: int
    kernel_init: Initializer = torch_kernel

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t d"]) -> Float[Array, "b t e"]:
        shape = (self.kernel_size, inputs.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        bias = self.param("bias", torch_uniform(shape[0] * shape[1]), (self.features,))
        return convolve(inputs, kernel) + bias[None, None, :]


def convolve(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    """Convolves along `t` with zero padding to the same length, in the fastest form for the device and the widths."""
    taps, *widths = kernel.shape
    if taps % 2 == 0:
        raise ValueError(f"expected an odd kernel_size, whose padding is even on both sides, got {taps}")
    wide = 3 <= taps <= len(POINTS) - OUTPUTS_PER_TILE + 2 and min(widths) >= 16
    at_tiles = by_batched_tiles if instruction_set.current() == instruction_set.AVX512 else by_tiles
    on_cpu = at_tiles if wide else by_shifts
    if jax.default_backend() == "cpu":  # both forms would be traced and differentiated, and one of them thrown away
        return on_cpu(inputs, kernel)
    return jax.lax.platform_dependent(inputs, kernel, cpu=on_cpu, default=by_xla)


def by_xla(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    """XLA's convolution."""
    return jax.lax.conv_general_dilated(inputs, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


def by_shifts(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    """One matrix product: of `r` shifts of the input side by side, or where outputs are narrower, to `r` outputs that are shifted after."""
    taps, features, outputs = kernel.shape
    shifts = lambda array: (array[:, j : j + inputs.shape[1]] for j in range(taps))
    if features <= outputs:
        return project(jnp.concatenate([*shifts(_pad(inputs, taps, inputs.shape[1]))], axis=-1), kernel.reshape(taps * features, -1))
    products = project(inputs, kernel.swapaxes(0, 1).reshape(features, -1))  # (b, t, r e)
    parts = [part[..., j * outputs : (j + 1) * outputs] for j, part in enumerate(shifts(_pad(products, taps, inputs.shape[1])))]
    return functools.reduce(jnp.add, parts)


@jax.jit  # layers of the same sizes are traced once
def by_tiles(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    """Cook-Toom, F(4, r): for each tile of 4 outputs `A^T [(G W) * (B^T x)]`, with one product of `(d, e)` a point.

    The transforms are written as sums of slices, which XLA fuses into single passes over the data. The terms that the
    sums cancel leave a trace of 1e-6 of an input in outputs of its tile that it should not reach.
    """
    products = [project(x, w) for x, w in zip(*_at_points(inputs, kernel))]
    return _at_outputs(products, inputs.shape[1], len(kernel))


@jax.jit
def by_batched_tiles(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    """`by_tiles` with one batched product for all points.

    XLA computes the factors of all points in one pass. The gradient of the kernel contracts the rows, a product
    that XLA on CPU does not give to YNNPACK. It takes 1.3 times as long for all rows at once as for two halves.
    """
    xs, ws = _at_points(inputs, kernel)
    halves = 2 if len(inputs) % 2 == 0 else 1
    x = jnp.stack(xs).reshape(len(xs) * halves, -1, inputs.shape[-1])  # (points halves, n, d)
    w = jnp.repeat(jnp.stack(ws), halves, axis=0)  # (points halves, d, e)
    products = jnp.einsum("pnd,pde->pne", x, w).reshape(len(xs), *xs[0].shape[:2], -1)
    points = jax.lax.split(products, (1,) * len(xs))  # its transpose is one concatenation
    return _at_outputs([point[0] for point in points], inputs.shape[1], len(kernel))


def _at_points(inputs: Array, kernel: Array) -> tuple[list[Array], list[Array]]:
    """What is multiplied at each point, `B^T x (b, tiles, d)` and `G W (d, e)`."""
    taps, m = len(kernel), OUTPUTS_PER_TILE
    _, kernel_of, inputs_of = cook_toom(m, taps)
    tiles = -(-inputs.shape[1] // m)
    padded = _pad(inputs, taps, tiles * m)
    slices = [padded[:, j : j + tiles * m : m] for j in range(m + taps - 1)]  # each (b, tiles, d)
    return _combine(inputs_of, slices), _combine(kernel_of, list(kernel))


def _at_outputs(products: list[Array], length: int, taps: int) -> Array:
    """`A^T` times the products `(b, tiles, e)` of all points, the outputs `(b, length, e)`."""
    outputs_of, _, _ = cook_toom(OUTPUTS_PER_TILE, taps)
    outputs = jnp.stack(_combine(outputs_of, products), axis=2)  # (b, tiles, m, e)
    batch, tiles, m, features = outputs.shape
    return outputs.reshape(batch, tiles * m, features)[:, :length]


def cook_toom(m: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices `(A^T, G, B^T)` with `A^T [(G w) * (B^T x)]_i = sum_j w_j x_{i+j}` for `m` outputs.

    A polynomial product of degree n - 1 is fixed by its values at n points, the last of them infinity: evaluate both
    factors (`A`, `G`), multiply, interpolate (`C`). Filtering is the transpose of that product in `x`, so `B = C`.
    """
    n = m + taps - 1

    def evaluate(degree: int) -> np.ndarray:
        rows = np.power.outer(np.array(POINTS[: n - 1]), np.arange(degree))
        return np.concatenate([rows, np.eye(degree)[-1:]])  # at infinity only the leading coefficient counts

    interpolate = np.linalg.inv(evaluate(n))
    size = np.abs(interpolate).max(axis=0)  # balance the two factors, for the rounding's sake
    return evaluate(m).T, evaluate(taps) * size[:, None], (interpolate / size).T


def _pad(inputs: Array, taps: int, length: int) -> Array:
    """Zeroes before and after, so that windows of `taps` points centre on each of `length` positions."""
    before = taps // 2
    return jnp.pad(inputs, ((0, 0), (before, length - inputs.shape[1] + taps - 1 - before), (0, 0)))


def _combine(matrix: np.ndarray, arrays: list[Array]) -> list[Array]:
    """The rows of `matrix @ arrays`, each a sum over its non-zero entries."""

    def sums(arrays: list[Array]) -> list[Array]:
        return [sum(float(c) * a for c, a in zip(row, arrays) if abs(c) > 1e-12) for row in matrix]  # pyright: ignore

    linear = jax.custom_jvp(sums)  # its own derivative, which JAX would find operation by operation: a third of tracing a step
    linear.defjvp(lambda primals, tangents: (linear(*primals), sums(*tangents)))
    return linear(arrays)
