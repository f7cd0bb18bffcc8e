"""The additive score of width 64 in a window of 256: a mask of positions, in `attend`."""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.additive import WIDTH, arrays
from benchmarks.attention_cases import IN_WINDOW, WINDOW, Visible
from benchmarks.attention_forms import Call, blocking, check
from benchmarks.attention_rows import Row, milliseconds
from flax_attn.attention import additive, attend

LENGTH, CHECKED = 8192, 1024  # PyTorch's plain form of 8,192 would take 16 GiB


def rows(shrink: int, repeats: int) -> Iterator[Row]:
    """The window beside all keys."""
    length = CHECKED // shrink
    check({"PyTorch": in_torch(length), "ours": ours(length, IN_WINDOW)})
    length = LENGTH // shrink
    calls = {"ours": ours(length, IN_WINDOW), "all keys": ours(length, None)}
    figures = milliseconds(calls, repeats)
    ratios = {"ours / all keys": figures["ours"] / figures["all keys"]}
    name, passes = f"additive {WIDTH}, window of {WINDOW}", "forward and backward"
    yield Row(name, length, 1, None, passes, "ms", figures, ratios)


def ours(length: int, mask: Visible | None) -> Call:
    """The gradients of kernels, vector, query, key and value."""

    def loss(*arrays: jax.Array) -> jax.Array:
        *kernels, query, key, value = arrays
        names = ("query_kernel", "key_kernel", "vector")
        score = functools.partial(additive, **dict(zip(names, kernels)))
        attended = attend(query, key, value, score=score, mask=mask, need_weights=False)
        return jnp.sum(jnp.square(attended.context))

    gradients = jax.jit(jax.grad(loss, argnums=range(6)))
    return blocking(gradients, tuple(map(jnp.asarray, arrays(length))))


def in_torch(length: int) -> Call:
    """The same in PyTorch, in its plain form and in the window."""
    import torch

    inputs = [torch.from_numpy(array).requires_grad_() for array in arrays(length)]
    positions = np.arange(length)
    hidden = torch.from_numpy(~IN_WINDOW(positions[:, None], positions[None]))

    def gradients() -> tuple:
        query_kernel, key_kernel, vector, query, key, value = inputs
        queries, keys = query @ query_kernel, key @ key_kernel
        scores = torch.tanh(queries[:, :, None] + keys[:, None]) @ vector
        context = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value
        return torch.autograd.grad(context.square().sum(), inputs)

    return gradients
