"""Convolution along a sequence as matrix products.

XLA's own convolution has no fast path inside a loop on CPU, and a training epoch is a loop
(`benchmarks/convolution.py` measures it). Two forms take its place. One multiplies shifts of the
inputs, side by side. The other, where both widths are large, is the Cook-Toom algorithm (Winograd
1980; Lavin & Gray 2015, arXiv:1509.09308): it computes 4 outputs of a 5-tap filter in 8 products
instead of 20.

A training step of `shapes_cnn` takes 103 times as long with XLA's own convolution on jax 0.10, and
124 times on jax 0.12. With products of shifts alone it takes 2.0 and 2.2 times as long. If narrow
outputs come from shifts of the inputs, too, it takes 1.17 and 1.17 times as long.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from flax_attn.attention.scores import project

# Larger tiles take fewer products and round worse: float32 errors are 5e-6 here, 1e-6 direct.
OUTPUTS_PER_TILE = 4
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0)  # and infinity, the last one
LEAST_WIDTH = 16  # of inputs and outputs by tiles


def convolve(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    """Convolves along `t` with zero padding to the same length, for an odd number of taps."""
    taps, *widths = kernel.shape
    is_wide = 3 <= taps <= len(POINTS) - OUTPUTS_PER_TILE + 2 and min(widths) >= LEAST_WIDTH
    return by_tiles(inputs, kernel) if is_wide else by_shifts(inputs, kernel)


def by_shifts(
    inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]
) -> Float[Array, "b t e"]:
    """Convolves by one matrix product, of `r` shifts of the inputs side by side.

    Where the outputs are narrower, the product is with the inputs, to `r` outputs side by side.
    They are shifted afterwards, and added up.
    """
    (taps, features, outputs), length = kernel.shape, inputs.shape[1]
    if features <= outputs:
        padded = _pad(inputs, taps, length)  # (b, t + r - 1, d)
        shifts = [padded[:, j : j + length] for j in range(taps)]  # (b, t, d) each
        return project(jnp.concatenate(shifts, axis=-1), kernel.reshape(taps * features, -1))
    products = project(inputs, kernel.swapaxes(0, 1).reshape(features, -1))  # (b, t, r e)
    padded = _pad(products, taps, length)  # (b, t + r - 1, r e)
    shifts = [padded[:, j : j + length] for j in range(taps)]  # (b, t, r e) each
    parts = [shift[..., j * outputs : (j + 1) * outputs] for j, shift in enumerate(shifts)]
    return functools.reduce(jnp.add, parts)  # (b, t, e)


@jax.jit  # layers of the same sizes are traced once
def by_tiles(inputs: Float[Array, "b t d"], kernel: Float[Array, "r d e"]) -> Float[Array, "b t e"]:
    """Cook-Toom, F(4, r): for each tile of 4 outputs `A^T [(G W) * (B^T x)]`.

    There is one product of `(d, e)` for each point. The transforms are written as sums of slices,
    which XLA fuses into single passes over the data. An input leaves a trace of 1e-6 of itself in
    outputs of its tile that it should not reach, because the terms of the sums cancel inexactly.
    """
    products = [project(x, w) for x, w in zip(*_at_points(inputs, kernel))]  # (b, tiles, e) each
    return _at_outputs(products, inputs.shape[1], len(kernel))


def _at_points(inputs: Array, kernel: Array) -> tuple[list[Array], list[Array]]:
    """Computes the two factors at each point, `B^T x` `(b, tiles, d)` and `G W` `(d, e)`."""
    taps, m = len(kernel), OUTPUTS_PER_TILE
    _, kernel_of, inputs_of = cook_toom(m, taps)
    tiles = -(-inputs.shape[1] // m)
    padded = _pad(inputs, taps, tiles * m)  # (b, tiles m + r - 1, d)
    slices = [padded[:, j : j + tiles * m : m] for j in range(m + taps - 1)]  # each (b, tiles, d)
    return _combine(inputs_of, slices), _combine(kernel_of, list(kernel))


def _at_outputs(products: list[Array], length: int, taps: int) -> Array:
    """Multiplies `A^T` by the products `(b, tiles, e)` of all points: `(b, length, e)`."""
    outputs_of, _, _ = cook_toom(OUTPUTS_PER_TILE, taps)
    outputs = jnp.stack(_combine(outputs_of, products), axis=2)  # (b, tiles, m, e)
    batch, tiles, m, features = outputs.shape
    return outputs.reshape(batch, tiles * m, features)[:, :length]  # (b, length, e)


def cook_toom(m: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Makes `(A^T, G, B^T)`: `A^T [(G w) * (B^T x)]_i = sum_j w_j x_{i+j}` for `m` outputs.

    A polynomial product of degree n - 1 is fixed by its values at n points, the last of them
    infinity: evaluate both factors (`A`, `G`), multiply, interpolate (`C`). Filtering is the
    transpose of that product in `x`, so `B = C`.
    """
    n = m + taps - 1

    def evaluate(degree: int) -> np.ndarray:
        rows = np.power.outer(np.array(POINTS[: n - 1]), np.arange(degree))  # (n - 1, degree)
        at_infinity = np.eye(degree)[-1:]  # only the leading coefficient counts there
        return np.concatenate([rows, at_infinity])  # (n, degree)

    interpolate = np.linalg.inv(evaluate(n))  # (n, n)
    size = np.abs(interpolate).max(axis=0)  # balances the two factors, which rounds better
    return evaluate(m).T, evaluate(taps) * size[:, None], (interpolate / size).T


def _pad(inputs: Array, taps: int, length: int) -> Array:
    """Pads with zeros, for windows of `taps` points centred on `length` positions."""
    before = taps // 2
    after = length - inputs.shape[1] + taps - 1 - before
    return jnp.pad(inputs, ((0, 0), (before, after), (0, 0)))


def _combine(matrix: np.ndarray, arrays: list[Array]) -> list[Array]:
    """Computes the rows of `matrix @ arrays`, each a sum over its non-zero entries."""

    def weighted_sum(row: np.ndarray, arrays: list[Array]) -> Array:
        terms = [float(factor) * array for factor, array in zip(row, arrays) if abs(factor) > 1e-12]
        return sum(terms)  # pyright: ignore

    def sums(arrays: list[Array]) -> list[Array]:
        return [weighted_sum(row, arrays) for row in matrix]

    # A linear function is its own derivative. JAX would derive it operation by operation, which
    # takes a third of the time of tracing a step.
    linear = jax.custom_jvp(sums)
    linear.defjvp(lambda primals, tangents: (linear(*primals), sums(*tangents)))
    return linear(arrays)
