"""Softmax attention on a ring of devices, with a derivative of its own.

Each device keeps its queries. Keys and values go round: a device adds those that it holds to its
running sums, while it sends them on to the next one. The gradients of keys and values travel with
them, and come home at the end. So a device holds the keys and values of two devices at most, and
nothing of the length of the sequence is stored for the gradient.

Source: Liu et al. 2023 (arXiv:2310.01889).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.arrays import merge
from flax_attn.attention.blocks import BlockFunctions, Blocks, in_blocks, in_order
from flax_attn.attention.cut import Cut
from flax_attn.attention.gradients import Sums, add_gradients, along, as_blocks, no_gradients
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.parts import Part
from flax_attn.attention.reach import visible_blocks
from flax_attn.attention.streaming import add_keys, finished, no_sums, refuse
from flax_attn.types import Tree


class Ring(NamedTuple):
    """Where keys come from: in hop `n`, device `i` holds those of device `i + first - n`.

    Attributes:
        axis: of the mesh.
        devices: on the axis.
        first: in hop 0, device `i` holds the keys of device `i + first`.
        hops: their number; fewer than devices where a window ends the ring.
    """

    axis: str
    devices: int
    first: int
    hops: int

    def source(self, number: Array, hop: Array | int) -> Array:
        """The device whose keys device `number` holds."""
        return (number + self.first - hop) % self.devices

    def send(self, tree: Tree, distance: int) -> Tree:
        """Sends what each device has to the one at a distance."""
        if distance % self.devices == 0:
            return tree
        to = [(i, (i + distance) % self.devices) for i in range(self.devices)]
        return jax.tree.map(lambda array: jax.lax.ppermute(array, self.axis, to), tree)


class BySource(NamedTuple):
    """The fields of `Blocks` that depend on whose keys a device holds, with an axis for that."""

    bias: Array | None
    columns: Array
    order: Array
    counts: Array


def make_ring(axis: str, pairs: Pairs, queries: Cut, keys: Cut) -> Ring:
    """The ring with as many hops as lead to keys that a query may attend to, in order."""
    devices = keys.devices
    everywhere = Ring(axis, devices, 0, devices)
    limits = pairs.left, pairs.right
    if limits == (None, None) or not isinstance(pairs.query_offset, int):
        return everywhere
    distances = []
    for i in range(devices):
        first = i * queries.size + pairs.query_offset
        last = min((i + 1) * queries.size, queries.length) - 1 + pairs.query_offset
        nearest = 0 if pairs.left is None else max(first - pairs.left, 0)
        farthest = keys.length - 1
        farthest = farthest if pairs.right is None else min(last + pairs.right, farthest)
        if first <= last and nearest <= farthest:
            distances += [nearest // keys.size - i, farthest // keys.size - i]
    if not distances:
        return everywhere._replace(hops=1)
    hops = max(distances) - min(distances) + 1
    return everywhere if hops >= devices else Ring(axis, devices, max(distances), hops)


def attend(
    arrays: tuple[Array, Array, Array],
    pairs: Pairs,
    score_and_sizes: tuple[Callable, int, int],
    ring: Ring,
    part: Part,
    number: Array,
) -> Array:
    """The context `(..., q, e)` of this device's queries. It is called inside `shard_map`.

    Args:
        arrays: this device's queries, keys and values.
        pairs: of all queries and keys.
        score_and_sizes: the score, and the sizes of blocks of queries and keys, which divide the
            arrays.
        ring: where keys come from.
        part: this device's queries, and the keys of all devices, one device after another.
        number: of this device.
    """
    functions, blocks = in_blocks(*arrays, pairs, score_and_sizes, part)

    def by_source(array: Array, axis: int) -> Array:
        shape = *array.shape[:axis], ring.devices, -1, *array.shape[axis + 1 :]
        return jnp.moveaxis(array.reshape(shape), axis, 0)

    order, counts = in_order(by_source(visible_blocks(pairs, blocks.rows, blocks.columns), 1))
    bias = None if blocks.bias is None else by_source(blocks.bias, 1)
    sources = BySource(bias, by_source(blocks.columns, 0), order, counts)
    context, _ = _go_round(functions, ring, Round(blocks, sources, number))  # pyright: ignore
    return merge(context, arrays[0].shape[-2])


class Round(NamedTuple):
    """What a device needs for its hops: the arrays of its blocks, and those for each source."""

    blocks: Blocks
    sources: BySource
    number: Array

    def at(self, ring: Ring, hop: Array | int, held: tuple[Array, Array]) -> Blocks:
        """The blocks of a hop, with the keys and values that the device holds."""
        source = ring.source(self.number, hop)
        own = jax.tree.map(lambda array: array[source], self.sources)
        return self.blocks._replace(keys=held[0], values=held[1], **own._asdict())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _go_round(of: BlockFunctions, ring: Ring, around: Round) -> tuple[Array, Array]:
    """The contexts and `l` of this device's queries, as `streaming` has them."""

    def hop(n: Array, carry: tuple) -> tuple:
        held, sums = carry
        sent = ring.send(held, 1)  # while they are attended to
        return sent, add_keys(of, around.at(ring, n, held), sums, lambda _, sums: sums)

    blocks, last = around.blocks, ring.hops - 1
    held = ring.send((blocks.keys, blocks.values), -ring.first)
    start = held, no_sums(of, (len(blocks.queries), *of.shape[:-1]), blocks.values.shape[-1])
    held, sums = jax.lax.fori_loop(0, last, hop, start)
    return add_keys(of, around.at(ring, last, held), sums, finished)


def _forward(of: BlockFunctions, ring: Ring, around: Round) -> tuple[Tree, tuple]:
    results = _go_round(of, ring, around)  # pyright: ignore
    return results, (around, *results)  # pyright: ignore


def _backward(of: BlockFunctions, ring: Ring, kept: tuple, gradients: tuple) -> tuple[Tree]:
    return (_gradients(of, ring, kept, gradients),)  # pyright: ignore


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _gradients(of: BlockFunctions, ring: Ring, kept: tuple, gradients: tuple) -> Tree:
    """The gradients of blocks and biases, from those of the contexts and of `l`."""
    around, contexts, logs = kept
    rows = logs, gradients[0], along(contexts, gradients)

    def add(n: Array | int, held: tuple, sums: Sums, of_bias: Array | None) -> tuple:
        sums, more = add_gradients(of, around.at(ring, n, held), rows, sums)
        if of_bias is not None:
            of_bias = of_bias.at[ring.source(around.number, n)].set(more)
        return sums, of_bias

    def hop(n: Array, carry: tuple) -> tuple:
        held, sums, of_bias = carry
        sent = ring.send(held, 1)  # while they are attended to
        sums, of_bias = add(n, held, sums, of_bias)
        return sent, _send(ring, sums, 1), of_bias

    blocks, last = around.blocks, ring.hops - 1
    held = ring.send((blocks.keys, blocks.values), -ring.first)
    of_bias = None if around.sources.bias is None else jnp.zeros_like(around.sources.bias)
    start = held, no_gradients(blocks, of.dtype), of_bias
    sums, of_bias = add(last, *jax.lax.fori_loop(0, last, hop, start))
    of_blocks = as_blocks(blocks, _send(ring, sums, ring.first - last), None)
    of_sources: Tree = dict.fromkeys(BySource._fields)  # None stands for no gradient
    return Round(of_blocks, BySource(**of_sources | {"bias": of_bias}), None)  # pyright: ignore


def _send(ring: Ring, sums: Sums, distance: int) -> Sums:
    """Sends the gradients of keys and values to the device at a distance."""
    of_keys, of_values = ring.send((sums.keys, sums.values), distance)
    return sums._replace(keys=of_keys, values=of_values)


_go_round.defvjp(_forward, _backward)
_gradients.defvjp(refuse, refuse)
