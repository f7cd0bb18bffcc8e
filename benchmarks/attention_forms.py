"""The forms of attention that are measured, and the check that they do equal work.

A form takes a `Case` and whether the backward pass belongs to it. It returns a function without
arguments, which returns the context, or the gradients of the sum of its squares with respect to
query, key and value. JAX has arrays `(batch, length, heads, width)`, PyTorch has its own order
`(batch, heads, length, width)`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks.attention_cases import Case
from flax_attn.attention import dot_product_attention

Call = Callable[[], tuple]
TOLERANCE = 1e-4


def ours(case: Case, backward: bool) -> Call:
    """Calls `flax_attn` without weights."""
    function = functools.partial(dot_product_attention, need_weights=False, **case.options)
    return blocking(*jitted(function, case, backward))


def jax_nn(case: Case, backward: bool) -> Call:
    options: dict[str, Any] = {"is_causal": case.options.get("causal", False)}
    if "window" in case.options:
        options["local_window_size"] = case.options["window"]

    def attend(*inputs: Any, key_lengths: Any = None) -> tuple:
        lengths = {"key_value_seq_lengths": key_lengths}
        return jax.nn.dot_product_attention(*inputs, **options, **lengths), None

    return blocking(*jitted(attend, case, backward))


def with_mask(function: Callable[..., Any], case: Case, backward: bool) -> Call:
    """Calls a function of Flax, which takes the visible pairs as an array."""
    attend = lambda *inputs, mask=None: (function(*inputs, mask=mask), None)
    positions = np.arange(case.length)
    arrays = {}
    if case.visible is not None:
        visible = case.visible(positions[:, None], positions[None])
        arrays["mask"] = np.broadcast_to(visible, (1, 1, case.length, case.length))
    return blocking(*jitted(attend, dataclasses.replace(case, arrays=arrays), backward))


# Forms that keep all weights.
DENSE: dict[str, Callable[[Case, bool], Call]] = {
    "jax.nn": jax_nn,
    "flax.linen": functools.partial(with_mask, nn.dot_product_attention),
    "flax.nnx": functools.partial(with_mask, nnx.dot_product_attention),
}


def jitted(function: Callable[..., tuple], case: Case, backward: bool) -> tuple[Any, tuple]:
    """Returns a jitted function, and its arguments.

    `function(query, key, value, **arrays)` returns context and weights.
    """

    def forward(inputs: tuple, arrays: dict) -> tuple:
        return tuple(function(*inputs, **arrays))

    def loss(inputs: tuple, arrays: dict) -> tuple:
        context, weights = forward(inputs, arrays)
        return jnp.sum(jnp.square(context)), weights

    def both(inputs: tuple, arrays: dict) -> tuple:
        gradients, weights = jax.grad(loss, has_aux=True)(inputs, arrays)
        return *gradients, weights

    inputs = tuple(jnp.asarray(array) for array in case.inputs())
    arrays = {name: jnp.asarray(array) for name, array in case.arrays.items()}
    return jax.jit(both if backward else forward), (inputs, arrays)


def blocking(function: Callable[..., tuple], arguments: tuple) -> Call:
    """Wraps a call so that it returns when the result is there."""
    return lambda: jax.block_until_ready(function(*arguments))


def sdpa(case: Case, backward: bool) -> Call:
    """Calls PyTorch's `scaled_dot_product_attention`.

    A mask that `is_causal` cannot say is an array, which exists before the call.
    """
    import torch

    attention, options = torch.nn.functional.scaled_dot_product_attention, {}
    if case.visible is not None and case.options == {"causal": True}:
        options = {"is_causal": True}
    elif case.visible is not None:
        queries, keys = torch.arange(case.length)[:, None], torch.arange(case.length)[None]
        options = {"attn_mask": case.visible(queries, keys).expand(case.length, case.length)}
    return torch_call(functools.partial(attention, **options), case, backward)


def flex(case: Case, backward: bool) -> Call:
    """Calls PyTorch's `flex_attention`, compiled for this length and these visible pairs.

    On a CPU it has no backward pass.
    """
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # PyTorch compiles only a few programs for one function
    visible, length = case.visible, case.length
    block_mask = None
    if visible is not None:
        pairs = lambda batch, head, query, key: visible(query, key)
        block_mask = create_block_mask(pairs, None, None, length, length, device="cpu")
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return torch_call(functools.partial(compiled, block_mask=block_mask), case, backward)


def torch_call(function: Callable[..., Any], case: Case, backward: bool) -> Call:
    """Returns a call of `function(query, key, value)`, which returns the context."""
    import torch

    arrays = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for array in case.inputs()]
    inputs = [torch.from_numpy(array).requires_grad_(backward) for array in arrays]
    if backward:
        return lambda: torch.autograd.grad(function(*inputs).square().sum(), inputs)
    return torch.no_grad()(lambda: (function(*inputs),))


def check(calls: dict[str, Call]) -> None:
    """Compares what each call returns with the first's, to 1e-4 of the largest number.

    Weights, which only some calls return, come last and are not compared.
    """
    (first, wanted), *others = ((name, arrays(call)) for name, call in calls.items())
    for name, values in others:
        for i, (value, reference) in enumerate(zip(values, wanted)):
            error = np.abs(value - reference).max() / np.abs(reference).max()
            message = f"unequal work: {name} and {first} differ by {error:.1g} in result {i}"
            assert error <= TOLERANCE, message


def arrays(call: Call) -> list[np.ndarray]:
    """Returns the context, or the gradients, in our order of axes."""
    return [in_our_order(x) for x in call() if x is not None]


def in_our_order(x: Any) -> np.ndarray:
    if isinstance(x, jax.Array):
        return np.asarray(x)
    return (x.transpose(1, 2) if x.ndim == 4 else x).detach().numpy()
