"""Measures the edges between the parts of a model, and why a head attends where it does.

Parts are heads and feed-forward networks, which read the states of the residual stream and add to
them. An edge leads from a part to a later one that reads what it has added.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from flax_attn.attention.lens import also, layer_of
from flax_attn.heads import read
from flax_attn.models.calls import ModuleCall, Objective, Path, number_of, outputs_of
from flax_attn.models.forward import Inputs, Params, compiled
from flax_attn.models.score_parts import ScoreParts as ScoreParts
from flax_attn.models.score_parts import score_parts as score_parts
from flax_attn.types import Tree

if TYPE_CHECKING:
    from flax_attn.models.calls import Model, Module

Arrays = dict[str, Array]  # by site
PARTS = ("before", "middle", "after", "query", "key", "value", "context", "output")
SITES = tuple(f"*/{part}" for part in PARTS)
READ = ("query", "key", "value")  # what heads make of the states that they read
AT_ONCE = 16  # parts, whose derivatives are computed together
Measured = Callable[[Array | float, Arrays], Array]  # at a share of the way, with arrays added


@struct.dataclass
class Edges:
    """What patching each edge does to a number.

    Attributes:
        sources: `embedding`, heads such as `blocks_0/attention[1]`, and `blocks_0/feed_forward`.
        targets: such as `blocks_1/attention/key[2]`, and `blocks_1/feed_forward`.
        effects: 0 where the target does not come after the source.
    """

    sources: tuple[str, ...] = struct.field(pytree_node=False)
    targets: tuple[str, ...] = struct.field(pytree_node=False)
    effects: Float[Array, "sources targets"]


class _Part(NamedTuple):
    """A source or a target: a head of a site, or all of it where `head` is None."""

    name: str
    site: str
    head: int | None
    step: int  # a target reads what sources of lower steps have added


class _Stack(NamedTuple):
    """A model on its inputs, as a stack of pre-norm blocks with one attention each."""

    run: Callable[[Callable[[str, Array], Array]], Tree]  # with a change of sites
    first: str  # the site of the embeddings
    states: Arrays  # before each block, and between its parts
    is_linear: bool  # no norm stands between the outputs of a part and the states
    sources: list[_Part]
    targets: list[_Part]

    def added(self, outputs: Arrays) -> Arrays:
        """Returns the states behind parts with other outputs; states before them stay."""
        found = {}

        def replace(site: str, array: Array) -> Array:
            found[site] = array
            return self.states.get(site, outputs.get(site, array))

        self.run(replace)
        return found

    def made(self, states: Arrays) -> Arrays:
        """Returns what each target makes of states."""
        found, sites = {}, {target.site for target in self.targets}

        def replace(site: str, array: Array) -> Array:
            if site in sites:
                found[site] = array
            return states.get(site, array)

        self.run(replace)
        return found


@compiled
def edges(
    model: "Model",
    params: Params,
    inputs: Inputs,
    measure: Objective,
    source: Inputs,
    steps: int = 1,
    exact: bool = False,
) -> Edges:
    """Estimates by derivatives what patching each edge between two parts does to a number.

        edge(u, v) = (what u adds on the source - what it adds) . d measure / d (what v reads)

    The derivative is that through `v` alone. With one step it is EAP. With more it is EAP-IG: the
    mean of the derivatives at `own + k / steps (source - own)` in place of the embeddings, for `k`
    from 0 to `steps - 1`.

    Source: Syed et al. 2023 (arXiv:2310.10348), EAP; Hanna et al. 2024 (arXiv:2403.17806), EAP-IG.

    Args:
        source: other inputs, of the shape of `inputs`.
        steps: the number of inputs at which derivatives are taken.
        exact: patches each edge in turn instead, in two passes for each.

    Raises:
        ValueError: a model whose blocks are not pre-norm, or do not have one attention each, and a
            source of another shape.
    """
    of_inputs, of_source = (jax.tree.map(jnp.shape, own) for own in (inputs, source))
    if of_inputs != of_source:
        raise ValueError(f"expected a source of the shape {of_inputs}, got {of_source}")
    if steps < 1:
        raise ValueError(f"expected at least 1 step, got {steps}")
    own, other = read(model, params, inputs, SITES), read(model, params, source, SITES)
    stack = _stack_of(model, params, inputs, own)
    change = {site: other[site] - own[site] for site in own}
    vectors = _vectors(stack, own, change)  # (sources, b, t, d)

    def number(share: Array | float, added: Arrays) -> Array:
        def replace(site: str, array: Array) -> Array:
            array = array + share * change[site] if site == stack.first else array
            return array + added[site] if site in added else array

        return number_of(measure, stack.run(replace))

    steps_of = lambda parts: np.array([part.step for part in parts])
    is_edge = steps_of(stack.sources)[:, None] < steps_of(stack.targets)  # (sources, targets)
    if exact:
        effects = _patched(stack, number, vectors, is_edge)  # (sources, targets)
    else:
        effects = jnp.where(is_edge, _derived(stack, number, vectors, steps), 0)
    sources, targets = (tuple(part.name for part in own) for own in (stack.sources, stack.targets))
    return Edges(sources, targets, effects)


def _derived(
    stack: _Stack, number: Measured, vectors: Float[Array, "sources b t d"], steps: int
) -> Float[Array, "sources targets"]:
    """Multiplies what sources add by the derivatives through each target alone."""
    made, pull = jax.vjp(stack.made, stack.states)
    zeros = jax.tree.map(jnp.zeros_like, made)
    slope_at = lambda share: jax.grad(number, argnums=1)(share, zeros)
    slopes = jax.lax.map(slope_at, jnp.arange(steps) / steps)  # (steps, ...) by site
    slopes = jax.tree.map(lambda slope: slope.mean(axis=0), slopes)

    def effects_on(mask: Arrays) -> Float[Array, " sources"]:
        (of_states,) = pull(jax.tree.map(jnp.multiply, slopes, mask))  # (b, t, d) by site
        return jnp.einsum("sbtd,btd->s", vectors, functools.reduce(jnp.add, of_states.values()))

    return jax.lax.map(effects_on, _masks(stack.targets, made), batch_size=AT_ONCE).T


def _patched(
    stack: _Stack,
    number: Measured,
    vectors: Float[Array, "sources b t d"],
    is_edge: Bool[np.ndarray, "sources targets"],
) -> Float[Array, "sources targets"]:
    """Lets one target at a time read states to which one source adds what it adds elsewhere."""
    made = stack.made(stack.states)
    masks = _masks(stack.targets, made)

    def effect(pair: Int[Array, "2"]) -> Array:
        moved = stack.made({site: x + vectors[pair[0]] for site, x in stack.states.items()})
        of_target = lambda new, old, mask: (new - old) * mask[pair[1]]
        return number(0.0, jax.tree.map(of_target, moved, made, masks))

    pairs = np.argwhere(is_edge)  # (edges, 2)
    before = number(0.0, jax.tree.map(jnp.zeros_like, made))
    effects = jax.lax.map(effect, pairs) - before  # (edges,)
    return jnp.zeros(is_edge.shape).at[tuple(pairs.T)].set(effects)  # (sources, targets)


def _vectors(stack: _Stack, own: Arrays, change: Arrays) -> Float[Array, "sources b t d"]:
    """Computes by how much more each source adds to the states on the source inputs."""
    outputs = {part.site: own[part.site] for part in stack.sources[1:]}
    if stack.is_linear:  # without the rounding of a difference of large states
        _, move = jax.linearize(stack.added, outputs)
    else:
        before = stack.added(outputs)
        moved_by = lambda step: stack.added(jax.tree.map(jnp.add, outputs, step))
        move = lambda step: jax.tree.map(jnp.subtract, moved_by(step), before)

    def add(mask: Arrays) -> Float[Array, "b t d"]:
        moved = move({site: change[site] * mask[site] for site in outputs})
        behind = [moved[site] for site in moved if site.endswith(("/middle", "/after"))]
        return functools.reduce(jnp.add, behind)  # of which one is not 0

    others = jax.lax.map(add, _masks(stack.sources[1:], outputs), batch_size=AT_ONCE)
    return jnp.concatenate([change[stack.first][None], others])  # (sources, b, t, d)


def _masks(parts: list[_Part], arrays: Arrays) -> Arrays:
    """Returns 1 for the numbers of each part, and else 0: `(parts, 1, 1, heads, 1)` or of one."""
    masks = {}
    for site, array in arrays.items():
        heads = [None] if site.endswith("/output") else range(array.shape[-2])
        rows = [[part.site == site and part.head == head for head in heads] for part in parts]
        shape = (len(parts), *[1] * (array.ndim - 2), len(heads), 1)
        masks[site] = jnp.array(rows, array.dtype).reshape(shape)
    return masks


def _stack_of(model: "Model", params: Params, inputs: Inputs, own: Arrays) -> _Stack:
    """Finds the parts of a model by its sites. Raises a ValueError for another stack."""
    parallel, normed = set(), set()

    def check(module: "Module", path: Path, call: ModuleCall, *args: Tree) -> Tree:
        if not getattr(module, "pre_norm", True):
            raise ValueError(f"expected blocks that are pre-norm, got {type(module).__name__}")
        if getattr(module, "parallel", False):
            parallel.add("/".join(path))
        if getattr(module, "output_norm", False):
            normed.add(path)
        return call(*args)

    def run(change: Callable[[str, Array], Array]) -> Tree:
        with also(SITES, change):
            return outputs_of(model, params, inputs, check)

    run(lambda site, array: array)
    at = lambda part: [layer_of(site) for site in own if site.endswith(f"/{part}")]
    blocks, layers = at("before"), at("context")
    networks = [name for name in at("output") if name not in layers]
    if not len(blocks) == len(layers) == len(networks):
        got = f"{layers} and {networks} in {blocks}"
        raise ValueError(f"expected one attention and one network in each block, got {got}")
    first = f"{blocks[0]}/before"
    sources, targets = [_Part("embedding", first, None, 0)], []
    for i, (block, layer, network) in enumerate(zip(blocks, layers, networks)):
        step = 2 * i + 1
        for part, parts in (("context", sources), *((name, targets) for name in READ)):
            site = f"{layer}/{part}"
            name = layer if part == "context" else site
            heads = range(own[site].shape[-2])
            parts += [_Part(f"{name}[{head}]", site, head, step) for head in heads]
        site = f"{network}/output"
        sources.append(_Part(network, site, None, step + 1))
        targets.append(_Part(network, site, None, step + (block not in parallel)))
    states = {site: own[site] for site in own if site.endswith(("/before", "/middle"))}
    return _Stack(run, first, states, not normed, sources, targets)
