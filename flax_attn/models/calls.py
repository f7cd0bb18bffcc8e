"""The calls of the modules within a model, which a function may watch and change.

A model is a module of `flax.linen`, or the `nnx.GraphDef` of one of `flax.nnx`, whose parameters
are its state.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention.arrays import wide, with_rank
from flax_attn.attention.checks import as_array
from flax_attn.attention.layers.multi_head import InHeads
from flax_attn.models.forward import Inputs, Params
from flax_attn.types import Options, Tree

if TYPE_CHECKING:
    from flax import nnx

    Model = nn.Module | nnx.GraphDef
    Module = nn.Module | nnx.Module

Path = tuple[str, ...]
ModuleCall = Callable[..., Tree]
Around = Callable[..., Tree]  # (module, path, call, *args) -> outputs, in place of a call
Objective = Callable[[Tree], Float[Array, ""]]  # from the outputs of a model to one number
_patching = threading.RLock()  # classes are changed for all threads
_as_it_is: Around = lambda module, path, call, *args: call(*args)


def library_of(module: object) -> Any:
    """Returns the package of a module, `flax.linen` or `flax.nnx`."""
    if isinstance(module, nn.Module):
        return nn
    from flax import nnx  # to import it takes as long as linen

    return nnx


def outputs_of(model: "Model", params: Params, inputs: Inputs, around: Around = _as_it_is) -> Tree:
    """Applies a model with `around` at each call of a module. Returns its first output."""
    if not isinstance(model, nn.Module):
        module: Any = library_of(model).merge(model, params)
        with _patching, _intercepted_nnx(module, around):
            return first(module(inputs))

    with intercepted(around):
        return first(model.apply({"params": params}, inputs))


def intercepted(around: Around) -> contextlib.AbstractContextManager[None]:
    """Calls `around` at each call of a module of linen."""

    def intercept(call: ModuleCall, args: Tree, options: Options, at: Tree) -> Tree:
        if at.method_name != "__call__":
            return call(*args, **options)
        return around(at.module, at.module.path, functools.partial(call, **options), *args)

    return nn.intercept_methods(intercept)


@contextlib.contextmanager
def _intercepted_nnx(model: "nnx.Module", around: Around) -> Iterator[None]:
    """Calls `around` at each call of a module of nnx, which has no interceptors."""
    modules = list(library_of(model).iter_modules(model))
    paths = {id(module): tuple(map(str, path)) for path, module in modules}
    classes = {type(module) for _, module in modules if callable(module)}
    calls: dict[type, Any] = {kind: kind.__call__ for kind in classes}
    own = {kind: vars(kind).get("__call__") for kind in classes}

    def intercept(kind: type) -> ModuleCall:
        @functools.wraps(calls[kind])
        def call(module: "nnx.Module", *args: Tree, **options: Tree) -> Tree:
            bound = functools.partial(calls[kind], module, **options)
            if type(module) is not kind or id(module) not in paths:  # called by a subclass
                return bound(*args)
            return around(module, paths[id(module)], bound, *args)

        return call

    try:
        for kind in classes:
            kind.__call__ = intercept(kind)  # pyright: ignore
        yield
    finally:
        for kind, call in own.items():
            if call is None:
                del kind.__call__  # it was inherited
            else:
                kind.__call__ = call  # pyright: ignore


def first(outputs: Tree) -> Tree:
    """Returns outputs that are alone, or the first of a tuple."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def number_of(measure: Objective, outputs: Tree) -> Array:
    """Calls a measure. Raises a ValueError unless it makes one number of the outputs."""
    number = as_array(measure(outputs))
    if number.shape:
        raise ValueError(f"expected measure to return one number, got shape {number.shape}")
    return number


def parts_of(module: "Module", path: Path) -> list[Path]:
    """Returns the paths of what a block, with attention in heads, adds to its input; or nothing."""
    library, fields = library_of(module), vars(module).items()
    modules = {name: field for name, field in fields if isinstance(field, library.Module)}
    modules.pop("parent", None)  # the module above, not a part
    at = lambda name, field: field.path if library is nn else (*path, name)
    parts = [at(name, field) for name, field in modules.items() if not is_norm(field)]
    has_attention = any(isinstance(field, InHeads) for field in modules.values())
    return parts if has_attention and path else []


def is_norm(module: object) -> bool:
    library = library_of(module)
    return isinstance(module, library.LayerNorm | library.RMSNorm)


def along_residuals(through: str = "") -> Around:
    """Makes derivatives pass blocks along residual connections. Norms hold their deviation.

    Of the parts of blocks, they pass the layer whose path is `through` alone.
    """
    blocks, parts = set(), set()

    def hold(module: "Module", path: Path, call: ModuleCall, *args: Tree) -> Tree:
        name, at = type(module).__name__, "/".join(path)
        if isinstance(module, library_of(module).Dropout):
            return call(*args)
        if is_norm(module):
            return _held(module, call, *args)
        is_within = lambda paths: any(path[: len(block)] == block for block in paths)
        if (isinstance(module, InHeads) and path not in parts) or "norm" in name.lower():
            expected = f"attention in blocks and norms of Flax, got {name}"
            raise ValueError(f"expected {expected}; make the attention a field of the block")
        if is_within(blocks) and not is_within(parts):
            raise ValueError(f"expected parts of a block to be its fields, got {at} ({name})")
        inner = parts_of(module, path)
        blocks.update([path] if inner else [])
        parts.update(inner)
        is_held = path in parts and "/".join(path) != through
        return call(*(jax.lax.stop_gradient(args) if is_held else args))

    return hold


def _held(norm: Any, call: ModuleCall, inputs: Array, *args: Tree) -> Array:
    """Calls a norm. The derivative of its outputs is the one it has if its deviation is held."""
    x, stop = inputs.astype(wide(inputs.dtype)), jax.lax.stop_gradient
    outputs = stop(call(inputs, *args))  # the value; `x` has the derivative
    library, axes = library_of(norm), norm.reduction_axes
    x = x - x.mean(axis=axes, keepdims=True) if isinstance(norm, library.LayerNorm) else x
    x = x / stop(jnp.sqrt(jnp.square(x).mean(axis=axes, keepdims=True) + norm.epsilon))
    if norm.use_scale:
        scale = norm.get_variable("params", "scale") if library is nn else norm.scale[...]
        x = x * with_rank(scale, x.ndim)
    return outputs + (x - stop(x)).astype(outputs.dtype)  # value of `outputs`, gradient of `x`
