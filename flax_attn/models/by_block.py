"""A stack of blocks in parts: what stands before them, each block, and what stands after.

Each part is a program of its own, and blocks that are alike share one. So compiling takes no longer
the deeper a model is. Within another program, parts that are alike are traced once.
"""

import functools
from typing import Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flax_attn.attention.lens import also, current, layer_of
from flax_attn.models.forward import Inputs, Params
from flax_attn.types import Tree

# Numbers in a block. Where there are fewer, to start a program for each block takes longer than to
# read them, and one program for all blocks is faster.
LARGE = 2_000_000


@runtime_checkable
class InBlocks(Protocol):
    """A model whose parts are methods. The parameters of block `i` are `blocks_{i}`.

    Of an encoder and a decoder, states are a dict, and weights of a block a tuple with `names(i)`.
    """

    num_blocks: int

    def apply(self, variables: Tree, *args: Tree, **options: Tree) -> Tree: ...

    def begin(self, *inputs: Tree, **options: Tree) -> Tree:
        """Computes the states before the first block."""
        ...

    def block(
        self, number: int, x: Tree, *, cache: Tree, lengths: Tree, need_weights: bool
    ) -> tuple[Tree, Tree, Tree]:
        """Computes the states after a block, its weights or None, and its longer cache or None."""
        ...

    def end(self, x: Tree) -> Tree:
        """Computes the outputs from the states after the last block."""
        ...

    def alike(self, number: int) -> int:
        """Returns the first block that differs from this one by its parameters alone."""
        ...


def is_large(model: object, params: Params) -> TypeGuard[InBlocks]:
    """Returns whether a model has blocks that are large enough for a program each."""
    block = params.get("blocks_0", {}) if isinstance(model, InBlocks) else {}
    return sum(np.size(leaf) for leaf in jax.tree.leaves(block)) >= LARGE


def outside(params: Params) -> Params:
    """Returns the parameters that are those of no block."""
    return {name: layer for name, layer in params.items() if not name.startswith("blocks_")}


def lengths_of(inputs: Inputs) -> Int[Array | np.ndarray, " b"] | None:
    """Returns the lengths of inputs that have some, of pairs those of the sources."""
    return inputs.get("lengths", inputs.get("source_lengths")) if isinstance(inputs, dict) else None


def of_block(model: InBlocks, params: Params, i: int) -> tuple[int, Params]:
    """Returns the first block that is like a block, with parameters that make it this block.

    It is the block itself within a lens that changes sites, which have the names of their blocks.
    """
    lens = current()
    number = i if lens is not None and lens.change else model.alike(i)
    return number, {**outside(params), f"blocks_{number}": params[f"blocks_{i}"]}


def begin(model: InBlocks, params: Params, *inputs: Tree) -> Tree:
    """Computes the states before the first block."""
    return _begin(model, outside(params), *inputs)


def end(
    model: InBlocks,
    params: Params,
    x: Tree,
    last: Int[Array | np.ndarray, " b"] | None = None,
) -> Tree:
    """Computes the outputs after the last block, or those of the token `last` in each row alone."""
    return _end(model, outside(params), x, last)


def through(
    model: InBlocks,
    params: Params,
    x: Tree,
    *,
    caches: Tree = None,
    lengths: Tree = None,
    need_weights: bool = False,
) -> tuple[Tree, dict[str, Array], Tree]:
    """Calls all blocks. Returns the states, the weights by block if needed, and longer caches.

    The caches that are passed cannot be used again: they are extended in place.
    """
    attention, extended = {}, []
    for i in range(model.num_blocks):
        number, own = of_block(model, params, i)
        arrays = own, x, caches and caches[i], lengths
        x, weights, longer = _block(model, number, *arrays, need_weights=need_weights)
        attention |= named(model, i, weights) if need_weights else {}
        extended.append(longer)
    return x, attention, tuple(extended)


def named(model: object, i: int, weights: Tree) -> dict[str, Tree]:
    """Returns the weights of a block by name."""
    names: Tree = getattr(model, "names", None)
    return dict(zip(names(i), weights)) if names else {f"block{i}": weights}


def with_contexts(
    model: InBlocks, params: Params, inputs: Inputs
) -> tuple[list[Tree], dict[str, Float[Array, "b t heads e"]]]:
    """Returns the states before each block and after the last, and the contexts by path."""
    states, contexts = [begin(model, params, inputs)], {}
    for i in range(model.num_blocks):
        x, own = patched(model, params, i, states[-1], inputs)
        states.append(x)
        contexts |= {f"blocks_{i}/{name}": context for name, context in own.items()}
    return states, contexts


def patched(
    model: InBlocks,
    params: Params,
    i: int,
    x: Tree,
    inputs: Inputs,
    patch: dict[str, tuple[Array, Array]] | None = None,
) -> tuple[Tree, dict[str, Array]]:
    """Calls a block whose contexts are patched with `(b, t, heads, e)` by shares `(b, heads)`.

    Returns the states, and the contexts by path within the block, as those of the patch are.
    """
    number, own = of_block(model, params, i)
    return _patched(model, number, own, x, lengths_of(inputs), patch or {})


def at(x: Float[Array, "b t d"], last: Int[Array | np.ndarray, " _"]) -> Float[Array, "b d"]:
    """Returns the states of one token in each row: `last` `(b,)`, or `(1,)` for all rows."""
    return jnp.take_along_axis(x, last[:, None, None], axis=1)[:, 0]


@functools.partial(jax.jit, static_argnames="model")
def _begin(model: InBlocks, params: Params, *inputs: Tree) -> Tree:
    return model.apply({"params": params}, *inputs, method="begin")


@functools.partial(jax.jit, static_argnames="model")
def _end(model: InBlocks, params: Params, x: Tree, last: Array | None) -> Tree:
    x = x if last is None else at(x, last)
    return model.apply({"params": params}, x, method="end")


@functools.partial(
    jax.jit, static_argnames=("model", "number", "need_weights"), donate_argnames="cache"
)
def _block(
    model: InBlocks,
    number: int,
    params: Params,
    x: Tree,
    cache: Tree,
    lengths: Tree,
    *,
    need_weights: bool,
) -> tuple[Tree, Tree, Tree]:
    options = {"cache": cache, "lengths": lengths, "need_weights": need_weights}
    return model.apply({"params": params}, number, x, **options, method="block")


@functools.partial(jax.jit, static_argnames=("model", "number"))
def _patched(
    model: InBlocks,
    number: int,
    params: Params,
    x: Tree,
    lengths: Array | None,
    patch: dict[str, tuple[Array, Array]],
) -> tuple[Tree, dict[str, Array]]:
    contexts = {}

    def change(site: str, context: Array) -> Array:
        if (name := layer_of(site).partition("/")[2]) in patch:  # its path in the block
            other, shares = patch[name]
            context = context + shares[:, None, :, None] * (other - context)
        return contexts.setdefault(name, context)

    with also(("*/context",), change):
        options: Tree = {"cache": None, "lengths": lengths, "need_weights": False}
        x, *_ = model.apply({"params": params}, number, x, **options, method="block")
    return x, contexts
