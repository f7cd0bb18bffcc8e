"""The calls of the modules within a model, which a function may watch and change."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention import MultiHeadAttention
from flax_attn.attention.arrays import wide, with_rank
from flax_attn.models.forward import Inputs, Params
from flax_attn.types import Options, Tree

ModuleCall = Callable[..., Tree]
Around = Callable[..., Tree]  # (module, call, *args) -> outputs, in place of a call of a module
_as_it_is: Around = lambda module, call, *args: call(*args)


def outputs_of(
    model: nn.Module, params: Params, inputs: Inputs, around: Around = _as_it_is
) -> Tree:
    """Applies a model with `around` at each call of a module. Returns its first output."""

    def intercept(call: ModuleCall, args: Tree, options: Options, at: Tree) -> Tree:
        if at.method_name != "__call__":
            return call(*args, **options)
        return around(at.module, functools.partial(call, **options), *args)

    with nn.intercept_methods(intercept):
        return first(model.apply({"params": params}, inputs))


def first(outputs: Tree) -> Tree:
    """Returns outputs that are alone, or the first of a tuple."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def parts_of(module: nn.Module) -> list[nn.Module]:
    """Returns what a block, which has attention in heads, adds to its input; else nothing."""
    fields = (field for name, field in vars(module).items() if name != "parent")
    parts = [field for field in fields if isinstance(field, nn.Module)]
    has_attention = any(isinstance(part, MultiHeadAttention) for part in parts)
    return parts if has_attention and module.path else []


def along_residuals() -> Around:
    """Makes derivatives pass blocks along residual connections. Norms hold their deviation."""
    blocks, parts = set(), set()

    def hold(module: nn.Module, call: ModuleCall, *args: Tree) -> Tree:
        name, path, at = type(module).__name__, module.path, "/".join(module.path)
        if isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.Dropout):
            return call(*args) if isinstance(module, nn.Dropout) else _held(module, call, *args)
        is_within = lambda paths: any(path[: len(block)] == block for block in paths)
        if (isinstance(module, MultiHeadAttention) and path not in parts) or "norm" in name.lower():
            expected = f"attention in blocks and norms of flax.linen, got {name}"
            raise ValueError(f"expected {expected}; make the attention a field of the block")
        if is_within(blocks) and not is_within(parts):
            raise ValueError(f"expected parts of a block to be its fields, got {at} ({name})")
        inner = [part.path for part in parts_of(module)]
        blocks.update([path] if inner else [])
        parts.update(inner)
        return call(*(jax.lax.stop_gradient(args) if path in parts else args))

    return hold


def _held(norm: nn.LayerNorm | nn.RMSNorm, call: ModuleCall, inputs: Array, *args: Tree) -> Array:
    """Calls a norm. The derivative of its outputs is the one it has if its deviation is held."""
    x, stop = inputs.astype(wide(inputs.dtype)), jax.lax.stop_gradient
    outputs = stop(call(inputs, *args))
    x = x - x.mean(axis=-1, keepdims=True) if isinstance(norm, nn.LayerNorm) else x
    x = x / stop(jnp.sqrt(jnp.square(x).mean(axis=-1, keepdims=True) + norm.epsilon))
    x = x * with_rank(norm.get_variable("params", "scale"), x.ndim) if norm.use_scale else x
    return outputs + (x - stop(x)).astype(outputs.dtype)
