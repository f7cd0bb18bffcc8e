"""Reads what a model computes where, and measures which heads matter.

A head has the path of its layer in the model, such as `blocks_1/attention`, and a number from 0. A
model is a Flax module that returns its outputs, alone or first of a tuple. The parts of its blocks,
such as layers `MultiHeadAttention`, are fields, as in `EncoderBlock` and `DecoderBlock`. Of a model
of `flax.nnx`, the parameters are `nnx.state(model)`.

Source: Michel et al. 2019 (arXiv:1905.10650), `cut`; Wang et al. 2022 (arXiv:2211.00593),
`patched`; Elhage et al. 2021 (transformer-circuits.pub), `direct`; nostalgebraist 2020, the logit
lens; Abnar & Zuidema 2020 (arXiv:2005.00928), `rollout`.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from flax_attn.attention import Lens
from flax_attn.attention.arrays import with_rank
from flax_attn.attention.checks import as_array
from flax_attn.attention.lens import also, fits, layer_of
from flax_attn.models import by_block
from flax_attn.models.by_block import InBlocks
from flax_attn.models.calls import (
    ModuleCall,
    Objective,
    Path,
    along_residuals,
    first,
    number_of,
    outputs_of,
    parts_of,
)
from flax_attn.models.forward import Inputs, Params, as_constant, compiled, in_order
from flax_attn.models.sizes import ROWS_OF_LARGE
from flax_attn.types import Tree

if TYPE_CHECKING:
    from flax_attn.models.calls import Model, Module

PerHead = Mapping[str, Float[Array, " heads"]]  # a number for each head, by the path of its layer


CONTEXTS = "*/context"  # the sites of the outputs of heads


def _times(context: Array, name: str, numbers: PerHead) -> Array:
    """Multiplies contexts `(..., heads, e)` by the numbers `(heads,)` of a layer."""
    return jax.vmap(jnp.multiply, (-2, 0), -2)(context, as_array(numbers[name]))


class _OfLayers(Lens):
    """A lens that changes the contexts of layers, by their paths.

    Where layers attended within it, and none of its own, its end is a ValueError with their paths.
    """

    def __init__(self, paths: Iterable[str], change: Callable[[str, Array], Array]) -> None:
        self.paths, self.there = set(paths), set()

        def change_known(site: str, context: Array) -> Array:
            self.there.add(name := layer_of(site))
            return change(name, context) if name in self.paths else context

        super().__init__(change={CONTEXTS: change_known})

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if error[:1] == (None,) and self.paths and self.there and not self.paths & self.there:
            raise ValueError(
                f"expected a path of a layer among {sorted(self.there)}, got {sorted(self.paths)}"
            )


def cut(heads: Mapping[str, Sequence[int]]) -> Lens:
    """Makes a lens in which the contexts `(..., q, heads, e)` of some heads are 0.

    `{"blocks_1/attention": [3]}` cuts a head. A number that its layer does not have is a ValueError
    within the lens. So are paths of which no layer within it has one, at its end; this holds for
    `scaled` and `patched`, too.
    """

    def change(name: str, context: Array) -> Array:
        numbers, count = list(heads[name]), context.shape[-2]
        if wrong := [number for number in numbers if number not in range(count)]:
            raise ValueError(f"expected heads of {name} from 0 to {count - 1}, got {wrong[0]}")
        return context.at[..., jnp.array(numbers, int), :].set(0)  # (..., q, heads, e)

    return _OfLayers(heads, change)


def scaled(factors: PerHead) -> Lens:
    """Makes a lens that multiplies the contexts of heads by factors `(heads,)`: 0 ablates a head.

    Factors may be traced, so that one compiled program serves all of them. Other layers stay.
    """
    return _OfLayers(factors, lambda name, context: _times(context, name, factors))


def patched(contexts: Mapping[str, Float[Array, "*b q heads e"]], shares: PerHead) -> Lens:
    """Makes a lens that patches contexts from other inputs, `own + share (other - own)`.

    The contexts are those of `contexts_of` on the other inputs, or broadcast to `(..., q, heads,
    e)`, such as their mean. A share of 0 leaves a head, 1 replaces it. Shares `(heads,)` may be
    traced. Layers without them stay. Contexts that do not fit are a ValueError.
    """

    def change(name: str, context: Array) -> Array:
        return context + _times(contexts[name] - context, name, shares)  # (..., q, heads, e)

    return _OfLayers(shares, change)


@compiled
def read(
    model: "Model", params: Params, inputs: Inputs, patterns: tuple[str, ...] = ("*",)
) -> dict[str, Array]:
    """Returns the arrays of a model's sites, by name.

    - `BLOCK/before`, `middle` and `after`: the states `(..., t, d)` before a block, after its
      attention, and after its feed-forward network.
    - `LAYER/query`, `key` and `value`: `(..., t, heads, width)`, with key heads for keys and
      values, after the projection and its norm, before positions turn them.
    - `LAYER/scores` and `weights`: `(..., heads, q, k)`. Scores are those before temperature and
      mask.
    - `LAYER/context`: the outputs of heads, `(..., t, heads, width)`.
    - `LAYER/output`: of an attention or a feed-forward network, `(..., t, d)`, before the norm of
      outputs if there is one.

    Paths of layers and blocks are those of their parameters, such as `blocks_0/attention`.
    `Lens(change=...)` changes the same sites.

    Args:
        patterns: a tuple of patterns of sites, as in `fnmatch`, such as `("*/query", "*/after")`.

    Raises:
        ValueError: a pattern that fits no site, a site in a loop, and one that is computed twice.
    """
    found = _found(model, params, inputs, patterns)
    for pattern in patterns:
        if not any(fits(site, pattern) for site in found):
            raise ValueError(f"expected patterns of sites, of which '*' reads all, got {pattern!r}")
    return found


def _found(
    model: "Model", params: Params, inputs: Inputs, patterns: tuple[str, ...]
) -> dict[str, Array]:
    """Returns the arrays of the sites that patterns fit, each computed once and in no loop."""
    found, trace = {}, get_opaque_trace_state()

    def keep(site: str, array: Array) -> Array:
        if get_opaque_trace_state() != trace:
            raise ValueError(f"expected no loop, for {site!r}")
        if found.setdefault(site, array) is not array:
            raise ValueError(f"expected one call of layer {layer_of(site)!r}, for {site!r}")
        return array

    with also(patterns, keep):
        outputs_of(model, params, inputs)
    return found


@compiled
def attributed(
    model: "Model",
    params: Params,
    inputs: Inputs,
    measure: Objective,
    source: dict[str, Array],
) -> dict[str, Array]:
    """Estimates by one derivative what patching each number of some sites does.

        (other - own) * d measure / d own

    The sum over any numbers estimates by how much the measure rises if they alone are replaced by
    those of the source. Over the batch, positions and width of a head it approximates
    `effects(source=...)`. It is of first order.

    Source: Nanda 2023 (neelnanda.io, attribution patching).

    Args:
        source: arrays by site, of `read` on other inputs, or what broadcasts to them.
    """
    own = read(model, params, inputs, tuple(source))

    def measured(added: dict[str, Array]) -> Array:
        with also(source, lambda site, array: array + added[site]):
            return number_of(measure, outputs_of(model, params, inputs))

    source = {site: jnp.broadcast_to(source[site], own[site].shape) for site in own}
    slopes = jax.grad(measured)(jax.tree.map(jnp.zeros_like, own))
    return {site: (source[site] - own[site]) * slopes[site] for site in own}


def contexts_of(model: "Model", params: Params, inputs: Inputs) -> dict[str, Array]:
    """Returns the contexts of heads, `(..., q, heads, e)`, by the path of their layer.

    No such layer, one in a loop, and one that is called twice are a ValueError.
    """
    if by_block.is_large(model, params):
        return by_block.with_contexts(model, params, inputs)[1]
    return _contexts(model, params, inputs)


@compiled
def _contexts(model: "Model", params: Params, inputs: Inputs) -> dict[str, Array]:
    found = _found(model, params, inputs, (CONTEXTS,))
    if not found:
        raise ValueError("expected a model with attention in heads, got one without")
    return {layer_of(site): context for site, context in found.items()}


def heads_of(model: "Model", params: Params, inputs: Inputs) -> dict[str, Array]:
    """Returns a 1 for each head, `(heads,)`, by the path of its layer: factors for `scaled`."""
    contexts = jax.eval_shape(functools.partial(_contexts, as_constant(model)), params, inputs)
    return {name: jnp.ones(context.shape[-2]) for name, context in in_order(contexts).items()}


def effects(
    model: "Model",
    params: Params,
    inputs: Inputs,
    measure: Objective,
    source: Inputs | None = None,
) -> dict[str, Array]:
    """Returns what each head does to a number, `(heads,)`, by the path of its layer.

    Without `source` it is by how much the number falls if this head alone is cut. With other inputs
    as source, it is by how much it rises if this head alone is patched from them. One program
    serves all heads, and of a large model all blocks. A measure that does not make one number `()`
    of the outputs is a ValueError.
    """
    if by_block.is_large(model, params):
        return _effects_by_block(model, params, inputs, measure, source)
    return _effects(model, params, inputs, measure, source)


@compiled
def _effects(
    model: "Model", params: Params, inputs: Inputs, measure: Objective, source: Inputs | None
) -> dict[str, Array]:
    ones, by_layer = ravel_pytree(heads_of(model, params, inputs))  # (heads of all layers,)
    contexts = {} if source is None else contexts_of(model, params, source)

    def measured(factors: Array) -> Array:
        def change(site: str, own: Array) -> Array:
            name = layer_of(site)
            return own + _times(contexts.get(name, 0) - own, name, by_layer(1 - factors))

        with also((CONTEXTS,), change):
            number = number_of(measure, outputs_of(model, params, inputs))
        return number.astype(ones.dtype)

    numbers = jax.lax.map(measured, jnp.concatenate([ones[None], 1 - jnp.eye(len(ones))]))
    return by_layer((numbers[1:] - numbers[0]) * (-1 if source is None else 1))


def _effects_by_block(
    model: InBlocks, params: Params, inputs: Inputs, measure: Objective, source: Inputs | None
) -> dict[str, Array]:
    """Computes the effects from the block of a head on: what comes before it does not change."""
    states, contexts = by_block.with_contexts(model, params, inputs)
    others = jax.tree.map(jnp.zeros_like, contexts)
    others |= {} if source is None else by_block.with_contexts(model, params, source)[1]
    (before,) = _numbers(model, params, jax.tree.map(lambda x: x[None], states[-1]), measure)
    numbers, sign, most = {}, -1 if source is None else 1, ROWS_OF_LARGE[-1]
    for name, context in contexts.items():
        rows, count = len(context), context.shape[-2]
        first = int(re.findall("[0-9]+", name)[0])
        # some heads at once: more rows than these gain nothing, and need their memory
        some = max(n for n in range(1, count + 1) if not count % n and n * rows <= max(most, rows))
        repeated = lambda array, n=some: jnp.tile(array, (n, *[1] * (jnp.ndim(array) - 1)))
        of_inputs = jax.tree.map(repeated, inputs)  # (some b, ...)
        other, found = repeated(jnp.broadcast_to(others[name], context.shape)), []
        for shares in jnp.eye(count).reshape(-1, some, count):  # shares (some, heads)
            patch = {name.partition("/")[2]: (other, jnp.repeat(shares, rows, axis=0))}
            x = jax.tree.map(repeated, states[first])
            for i in range(first, model.num_blocks):
                own = patch if i == first else {}
                x, _ = by_block.patched(model, params, i, x, of_inputs, own)
            x = jax.tree.map(lambda x, size=(some, rows): x.reshape(*size, *x.shape[1:]), x)
            found.append(_numbers(model, params, x, measure))
        numbers[name] = sign * (jnp.concatenate(found) - before)  # (heads,)
    return numbers


@functools.partial(jax.jit, static_argnames=("model", "measure"))
def _numbers(model: InBlocks, params: Params, x: Tree, measure: Objective) -> Float[Array, " n"]:
    """Measures the outputs after the last block, one after another as they may be large."""
    return jax.lax.map(lambda one: number_of(measure, by_block.end(model, params, one)), x)


@compiled
def direct(model: "Model", params: Params, inputs: Inputs, measure: Objective) -> dict[str, Array]:
    """Returns what each head adds to a logit by itself, from each position, `(..., q, heads)`.

        context_h · d measure / d context_h, along the residual connections alone

    What later layers make of the head is left out, and norms hold their deviation. It is exact if
    norms and linear maps alone follow the last block, and the measure is a sum of outputs. Else it
    is of first order. Parts of a block must be its fields: others, and norms that are not of Flax,
    are a ValueError, as a measure that does not make one number is.
    """
    contexts = contexts_of(model, params, inputs)

    def measured(contexts: dict[str, Array]) -> Array:
        with also((CONTEXTS,), lambda site, _: contexts[layer_of(site)]):
            return number_of(measure, outputs_of(model, params, inputs, along_residuals()))

    slopes = jax.grad(measured)(contexts)  # (..., q, heads, e)
    return {name: jnp.sum(contexts[name] * slopes[name], axis=-1) for name in contexts}


@compiled
def jacobians(model: "Model", params: Params, inputs: Inputs) -> dict[str, Float[Array, "d d"]]:
    """Computes how the last states depend on those after each block, for the Jacobian lens.

        J_i = mean over t of  d (sum over s of x_last,s) / d x_i,t

    The mean is over positions and the batch, so that it is of many texts, all of one length. For
    the last block it is the identity. Use it with `logits_by_block`.

    Source: Gurnee et al. 2026 (transformer-circuits.pub, "Verbalizable Representations Form a
    Global Workspace in Language Models").
    """
    *_, last = own = read(model, params, inputs, ("*/after",))

    def ends(added: dict[str, Array]) -> Array:
        with also(own, lambda site, array: array + added[site]):
            return read(model, params, inputs, (last,))[last]

    _, pull = jax.vjp(ends, jax.tree.map(jnp.zeros_like, own))

    def row(unit: Float[Array, " d"]) -> dict[str, Array]:
        (slopes,) = pull(jnp.broadcast_to(unit, own[last].shape))  # (b, t, d) by site
        return {layer_of(site): slope.mean(axis=(0, 1)) for site, slope in slopes.items()}

    units = jnp.eye(own[last].shape[-1], dtype=own[last].dtype)
    return jax.lax.map(row, units, batch_size=16)  # (d, d) by block


@compiled
def logits_by_block(
    model: "Model",
    params: Params,
    inputs: Inputs,
    maps: Mapping[str, Float[Array, "d d"]] | None = None,
) -> Float[Array, "n *_"]:
    """Returns the outputs `(blocks, ...)` if the model ended after each block: the logit lens.

    With maps by block, such as `jacobians`, it ends with `maps[block] @ x`: the Jacobian lens.

    A block returns an array, alone or first of a tuple. Attention in no block, a block that is
    called twice, and several stacks are a ValueError.
    """
    states = []

    def keep(module: "Module", path: Path, call: ModuleCall, *args: Tree) -> Tree:
        outputs = call(*args)
        if parts_of(module, path):
            states.append((path, first(outputs)))
        return outputs

    outputs_of(model, params, inputs, keep)
    stacks = sorted({"/".join(path).rstrip("0123456789") for path, _ in states})
    if len(stacks) != 1 or len(dict(states)) < len(states):
        raise ValueError(f"expected one stack of blocks, each called once, got {stacks}")

    def end(state: Array, module: "Module", path: Path, call: ModuleCall, *args: Tree) -> Tree:
        leaves, tree = jax.tree.flatten(outputs := call(*args))
        is_last = path == states[-1][0]
        return jax.tree.unflatten(tree, [state, *leaves[1:]]) if is_last else outputs

    ended = lambda state: outputs_of(model, params, inputs, functools.partial(end, state))
    move = lambda path, x: x if maps is None else x @ maps["/".join(path)].T  # (b, t, d)
    mapped = [move(path, x) for path, x in states]
    return jax.vmap(ended)(jnp.stack(mapped))  # (blocks, ...)


def rollout(attention: Mapping[str, Array | np.ndarray]) -> Float[Array, "*b t t"]:
    """Returns how much each position takes from each input, over all blocks, `(..., t, t)`.

        R = A_n ... A_2 A_1,   A_i = (mean over heads of the weights of block i + I) / 2

    The weights `(..., heads, t, t)` are by block, `block2` before `block10`.
    """
    blocks = []
    for weights in in_order(attention).values():
        identity = with_rank(jnp.eye(weights.shape[-1]), weights.ndim - 1)  # (..., t, t)
        blocks.append((weights.mean(axis=-3) + identity) / 2)  # (..., t, t)
    return functools.reduce(lambda product, block: block @ product, blocks)  # (..., t, t)
