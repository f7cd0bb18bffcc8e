"""Attention of a sequence that is sharded over devices, as `Across` describes it.

*Gathered*, a device gets all keys and values, and attends from its queries to them.

On a *ring*, each device keeps its queries. Keys and values go round: a device adds those that it
holds to its running sums, while it sends them on to the next one. The gradients of keys and values
travel with them, and come home at the end. So a device holds the keys and values of two devices at
most, and nothing of the length of the sequence is stored for the gradient.

In order, device `i` of `n` holds the piece `i` of the sequence. Under causality the last device
would then have the most to attend to. So there the sequence has `2 n` pieces, and device `i` holds
the pieces `i` and `2 n - 1 - i`: an early and a late one. All devices then have the same number of
visible pairs.

Source: Liu et al. 2023 (arXiv:2310.01889) for the ring; Zhu 2024,
github.com/zhuzilin/ring-flash-attention, for the order, called zig-zag.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from flax_attn import platforms
from flax_attn.attention import masks
from flax_attn.attention.arrays import merge, padded
from flax_attn.attention.forms.blockwise import (
    Blocks,
    Functions,
    Gradients,
    add_gradients,
    add_keys,
    along,
    as_blocks,
    block_size,
    finished,
    in_blocks,
    in_order,
    no_gradients,
    no_sums,
    refuse,
)
from flax_attn.attention.normalizers import is_softmax, needs_all_queries
from flax_attn.attention.visibility import Indices, Visibility
from flax_attn.types import Tree

if TYPE_CHECKING:
    from flax_attn.attention.core import Across, Call

AnyMesh = Mesh | AbstractMesh


def attend(call: "Call") -> tuple[Array, Array | None]:
    """Computes context and weights of a sequence over the devices of `call.across`."""
    assert call.across is not None
    visible, axis, ring = call.visible, call.across.axis, None
    num_queries, num_keys = visible.shape[-2:]
    mesh = _mesh(call.across, call.query, call.key, call.value)
    devices = mesh.shape[axis]
    bias = visible.all_indices().bias
    queries, keys = lay_out(num_queries, devices), lay_out(num_keys, devices)
    if is_ring(call):
        most = _block_size(call, devices)
        queries, keys = lay_out(num_queries, devices, most), lay_out(num_keys, devices, most)
        ring = make_ring(axis, visible, queries, keys)
        is_causal = visible.right is not None or visible.mask is masks.causal
        if is_causal and ring.hops == devices:  # no window ends the ring early
            queries, keys = (lay_out(n, devices, most, True) for n in (num_queries, num_keys))
        if bias is not None and bias.shape[-1] > 1:
            bias = jnp.take(bias, np.minimum(keys.indices().ravel(), num_keys - 1), axis=-1)
    bias = queries.padded(bias) if bias is not None and bias.shape[-2] > 1 else bias  # (..., q, k)
    query, key, value = visible.without_unreachable(call.query, call.key, call.value)
    arrays = queries.padded(query), keys.padded(key), keys.padded(value), bias

    def on_device(local: "Call") -> Tree:
        if ring is None:
            return tuple(_gathered(local, axis))
        return _on_ring(local, ring, queries, keys), None

    results = _over_devices(on_device, mesh, axis, call._replace(across=None), queries, *arrays)
    context, weights = jax.tree.map(lambda array: array[..., :num_queries, :], results)
    return context.astype(call.query.dtype), weights


def is_ring(call: "Call") -> bool:
    """Tells whether keys go round.

    Raises:
        ValueError: a ring for another normaliser than softmax, or one that needs all queries.
    """
    assert call.across is not None
    if needs_all_queries(call.normalizer):
        raise ValueError(f"expected a normalizer for one query at a time, got {call.normalizer}")
    ring, softmax = call.across.ring, is_softmax(call.normalizer)
    if ring and not softmax:
        raise ValueError(f"expected softmax on a ring, got {call.normalizer}; pass ring=False")
    return (softmax and not call.wants_weights) if ring is None else ring


def _block_size(call: "Call", devices: int) -> int:
    """Returns the size of blocks: what the caller says, or what is best for one device's part."""
    local = lambda array: array[..., : -(-array.shape[-2] // devices), :]
    call = call._replace(query=local(call.query), key=local(call.key))
    return block_size(call) or max(call.query.shape[-2], call.key.shape[-2])


def _over_devices(
    function: Callable[["Call"], Tree],
    mesh: AnyMesh,
    axis: str,
    call: "Call",
    queries: "SequenceLayout",
    *arrays: Array | None,
) -> Tree:
    """Calls a function on each device, with the part of the call that the device holds.

    The indices of its keys are left out.
    """
    visible = call.visible
    fields = {field.name: getattr(visible, field.name) for field in dataclasses.fields(visible)}
    limits = {name: term for name, term in fields.items() if isinstance(term, jax.Array)}
    limits.pop("bias", None)  # its rows are cut, as the queries are

    def spec(array: Array | None) -> P:
        if array is None or array.shape[-2] == 1 < queries.devices:  # cannot be cut
            return P()
        return P(*[None] * (array.ndim - 2), axis, None)  # cuts the length of (..., t, _)

    def on_device(shared: Tree, indices: Array, *arrays: Tree) -> Tree:
        # inside another `shard_map`, such as that over seeds, a function may close over no array
        limits, rng = shared
        local = call._replace(
            visible=dataclasses.replace(visible, **limits),
            dropout_rng=rng,
            indices=Indices(indices, indices[:0], arrays[3]),  # (q,), (0,), (..., q, k)
        )
        return function(local._replace(query=arrays[0], key=arrays[1], value=arrays[2]))

    specs = [spec(array) for array in arrays]
    arrays = tuple(
        array if array is None or one != P() else addable(array)  # gradients are added up
        for array, one in zip(arrays, specs)
    )
    mapped = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(P(), P(axis), *specs),
        out_specs=specs[0],
        axis_names={axis},
        check_vma=False,  # a loop of hops starts with sums that are equal everywhere
    )
    shared = limits, call.dropout_rng
    return jax.jit(mapped)(shared, jnp.asarray(queries.indices().ravel()), *arrays)


def _gathered(local: "Call", axis: str) -> tuple[Array, Array | None]:
    """Gets all keys and values, and attends from a device's queries to them."""
    num_queries, num_keys = local.visible.shape[-2:]
    assert local.indices is not None

    def gather(array: Array) -> Array:
        whole = jax.lax.all_gather(addable(array), axis, axis=array.ndim - 2, tiled=True)
        return whole[..., :num_keys, :].astype(array.dtype)  # (..., k, _)

    queries = jnp.minimum(local.indices.queries, num_queries - 1)  # (q,)
    indices = local.indices._replace(queries=queries, keys=jnp.arange(num_keys))  # (q,), (k,)
    local = local._replace(key=gather(local.key), value=gather(local.value), indices=indices)
    return local.on_one_device()


def _on_ring(
    local: "Call", ring: "Ring", queries: "SequenceLayout", keys: "SequenceLayout"
) -> Array:
    """Attends from a device's queries to the keys that come round."""
    arrays, indices, axis = local[:3], local.indices, ring.axis
    assert indices is not None
    number, bias = indices.queries[0] // queries.size, indices.bias  # of its first piece
    if queries.is_zigzag:
        arrays = [to_zigzag(array, axis, number) for array in arrays]  # (..., t, _)
        if bias is not None and bias.shape[-2] > 1:
            bias = to_zigzag(bias, axis, number)  # (..., q, k)
    rows = jnp.minimum(indices.queries, queries.length - 1)  # (q,)
    indices = Indices(rows, jnp.asarray(keys.indices().ravel()), bias, keys.is_padded)
    local = local._replace(query=arrays[0], key=arrays[1], value=arrays[2], indices=indices)
    context = go_round(local, ring, queries.block, keys.block, number)  # (..., q, e)
    return to_zigzag(context, axis, number, back=True) if queries.is_zigzag else context


def addable(array: Array) -> Array:
    """Converts an array to a dtype that devices can add up: XLA aborts at bfloat16 on a CPU."""
    may_abort = platforms.current() in (platforms.CPU, platforms.PORTABLE)
    is_half = array.dtype == jnp.bfloat16
    return array.astype(jnp.float32) if is_half and may_abort else array


def _mesh(across: "Across", *arrays: Array) -> AnyMesh:
    """Returns the mesh of `across`, or the one around.

    Raises:
        ValueError: there is none, they differ, its axis is missing or already cut by a `shard_map`
            around, or axes are explicit around attention or in an array.
    """
    around = jax.sharding.get_abstract_mesh()
    mesh = around if across.mesh is None else across.mesh
    if across.axis not in mesh.axis_names:  # it has none without a mesh
        raise ValueError(
            f"expected an axis of the mesh {mesh.axis_names} in Across, or around it by "
            f"jax.set_mesh, got {across.axis!r}"
        )
    if not around.empty and dict(mesh.shape) != dict(around.shape):
        raise ValueError(f"expected the mesh around, {around.shape}, in Across, got {mesh.shape}")
    if across.axis in around.manual_axes:
        raise ValueError(f"expected no shard_map over the axis {across.axis!r} around attention")
    for one in (around, *(jax.typeof(array).sharding.mesh for array in arrays)):
        if AxisType.Explicit in one.axis_types:
            raise ValueError(
                f"expected automatic axes around attention and in its arrays, got {one}; make the "
                "mesh with axis_types=(jax.sharding.AxisType.Auto,) for each axis"
            )
    if not around.empty:
        return around
    assert isinstance(mesh, Mesh)
    return Mesh(mesh.devices, mesh.axis_names, (AxisType.Auto,) * len(mesh.axis_names))


class SequenceLayout(NamedTuple):
    """How a sequence of `length` lies on `devices`.

    Each device holds one piece of `size`, or two in zig-zag. `block` divides `size`.
    """

    length: int
    devices: int
    size: int
    block: int
    is_zigzag: bool = False

    @property
    def on_device(self) -> int:
        """Returns the number of tokens on each device."""
        return self.size * (2 if self.is_zigzag else 1)

    @property
    def is_padded(self) -> bool:
        """Returns whether there are more places than tokens."""
        return self.on_device * self.devices > self.length

    def indices(self) -> Int[np.ndarray, "n t"]:
        """Returns the indices of tokens on each device. Padding has those beyond the last one."""
        indices = np.arange(self.on_device * self.devices).reshape(-1, self.size)  # (pieces, size)
        if not self.is_zigzag:
            return indices  # (n, t)
        return np.concatenate([indices[: self.devices], indices[: self.devices - 1 : -1]], axis=1)

    def padded(self, array: Array) -> Array:
        """Pads an array `(..., t, d)` by its last token, to a place for each token."""
        return padded(array, self.on_device * self.devices)


def lay_out(
    length: int, devices: int, most: int | None = None, is_zigzag: bool = False
) -> SequenceLayout:
    """Lays out a sequence in pieces of equal blocks of at most `most`."""
    size = -(-length // (devices * (2 if is_zigzag else 1)))
    number = 1 if most is None else -(-size // most)
    block = -(-size // number)  # the blocks of a piece are equal
    return SequenceLayout(length, devices, number * block, block, is_zigzag)


def to_zigzag(array: Array, axis: str, number: Array, back: bool = False) -> Array:
    """Moves the pieces of `(..., t, d)`, inside `shard_map`, from order to zig-zag, or back.

    In order, device `number` holds the pieces `2 number` and `2 number + 1`. Each device sends the
    even one to the device that it belongs to, and the odd one to another. In zig-zag an even device
    has the even piece first.
    """
    devices = jax.lax.axis_size(axis)
    owner = lambda piece: min(piece, 2 * devices - 1 - piece)
    to_even = [(i, owner(2 * i)) for i in range(devices)]  # (from, to)
    to_odd = [(i, owner(2 * i + 1)) for i in range(devices)]  # (from, to)
    first, second = jnp.split(array, 2, axis=-2)  # (..., t/2, d)
    in_turn = lambda a, b: (jnp.where(number % 2 == 0, a, b), jnp.where(number % 2 == 0, b, a))
    if back:
        home = lambda pairs: [(to, i) for i, to in pairs]  # the inverse
        even, odd = in_turn(first, second)
        pieces = [
            jax.lax.ppermute(even, axis, home(to_even)),
            jax.lax.ppermute(odd, axis, home(to_odd)),
        ]
    else:
        even = jax.lax.ppermute(first, axis, to_even)  # (..., t/2, d)
        pieces = in_turn(even, jax.lax.ppermute(second, axis, to_odd))  # (..., t/2, d)
    return jnp.concatenate(pieces, axis=-2)  # (..., t, d)


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
        """Returns the device whose keys device `number` holds."""
        return (number + self.first - hop) % self.devices

    def send(self, tree: Tree, distance: int) -> Tree:
        """Sends what each device has to the one at a distance."""
        if distance % self.devices == 0:
            return tree
        to = [(i, (i + distance) % self.devices) for i in range(self.devices)]  # (from, to)
        return jax.tree.map(lambda array: jax.lax.ppermute(array, self.axis, to), tree)


class BySource(NamedTuple):
    """The fields of `Blocks` that depend on whose keys a device holds, one for each device."""

    bias: Array | None  # (n, i, j, ..., q, k); axes of 1 stay
    columns: Array  # (n, j, k)
    order: Array  # (n, i, j)
    counts: Array  # (n, i)


def make_ring(
    axis: str, visible: Visibility, queries: SequenceLayout, keys: SequenceLayout
) -> Ring:
    """Makes the ring with as many hops as lead to keys that a query may see, in order."""
    devices = keys.devices
    everywhere = Ring(axis, devices, 0, devices)
    is_known = isinstance(visible.query_offset, int) and visible.prefix_lengths is None
    if visible.left is visible.right is None or not is_known:
        return everywhere
    distances = []  # in devices, from one to those whose keys its queries see
    for i in range(devices):
        first, last = i * queries.size, min((i + 1) * queries.size, queries.length) - 1
        (nearest, _), (_, farthest) = visible.window_of(first), visible.window_of(last)
        nearest = max(nearest or 0, 0)  # before key 0 there is none
        farthest = keys.length - 1 if farthest is None else min(farthest, keys.length - 1)
        if first <= last and nearest <= farthest:
            distances += [nearest // keys.size - i, farthest // keys.size - i]
    if not distances:
        return everywhere._replace(hops=1)  # no query sees a key
    hops = max(distances) - min(distances) + 1
    return everywhere if hops >= devices else Ring(axis, devices, max(distances), hops)


def go_round(local: "Call", ring: Ring, query_size: int, key_size: int, number: Array) -> Array:
    """Computes the context `(..., q, e)` of this device's queries, inside `shard_map`.

    Args:
        part: this device's queries, keys and values. Its indices are those of its queries, and of
            the keys of all devices, one device after another.
        ring: where keys come from.
        query_size, key_size: of blocks, which divide the arrays.
        number: of this device.
    """
    functions, blocks = in_blocks(local, query_size, key_size)

    def by_source(array: Array, axis: int) -> Array:
        shape = *array.shape[:axis], ring.devices, -1, *array.shape[axis + 1 :]
        return jnp.moveaxis(array.reshape(shape), axis, 0)  # (n, ...)

    visible = local.visible.visible_blocks(blocks.rows, blocks.columns)  # (i, n j)
    order, counts = in_order(by_source(visible, 1))  # (n, i, j), (n, i)
    bias = None if blocks.bias is None else by_source(blocks.bias, 1)  # (n, i, j, ..., q, k)
    sources = BySource(bias, by_source(blocks.columns, 0), order, counts)
    context, _ = _go_round(functions, ring, Round(blocks, sources, number))  # pyright: ignore
    return merge(context, local.query.shape[-2])  # (..., q, e)


class Round(NamedTuple):
    """The arrays of a device for its hops: those of its blocks, and those for each source."""

    blocks: Blocks
    sources: BySource
    number: Array

    def at(self, ring: Ring, hop: Array | int, held: tuple[Array, Array]) -> Blocks:
        """Returns the blocks of a hop, with the keys and values that the device holds."""
        source = ring.source(self.number, hop)
        fields = jax.tree.map(lambda array: array[source], self.sources)  # without the axis `n`
        return self.blocks._replace(keys=held[0], values=held[1], **fields._asdict())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _go_round(functions: Functions, ring: Ring, around: Round) -> tuple[Array, Array]:
    """Computes the contexts and `l` of this device's queries, as `blockwise` has them."""

    def hop(n: Array, carry: tuple) -> tuple:
        held, sums = carry
        sent = ring.send(held, 1)  # while they are attended to
        return sent, add_keys(functions, around.at(ring, n, held), sums, lambda _, sums: sums)

    blocks, last = around.blocks, ring.hops - 1  # the last hop sends nothing on
    held = ring.send((blocks.keys, blocks.values), -ring.first)  # those of device i + first
    start = (
        held,
        no_sums(functions, (len(blocks.queries), *functions.shape[:-1]), blocks.values.shape[-1]),
    )
    held, sums = jax.lax.fori_loop(0, last, hop, start)
    return add_keys(functions, around.at(ring, last, held), sums, finished)


def _forward(functions: Functions, ring: Ring, around: Round) -> tuple[Tree, tuple]:
    results = _go_round(functions, ring, around)  # pyright: ignore
    return results, (around, *results)  # pyright: ignore


def _backward(functions: Functions, ring: Ring, results: tuple, gradients: tuple) -> tuple[Tree]:
    return (_gradients(functions, ring, results, gradients),)  # pyright: ignore


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _gradients(functions: Functions, ring: Ring, results: tuple, gradients: tuple) -> Tree:
    """Computes the gradients of blocks and biases, from those of the contexts and of `l`."""
    around, contexts, logs = results
    rows = logs, gradients[0], along(contexts, gradients)  # (i, ..., q, _)

    def add(n: Array | int, held: tuple, sums: Gradients, of_bias: Array | None) -> tuple:
        sums, more = add_gradients(functions, around.at(ring, n, held), rows, sums)
        if of_bias is not None:
            of_bias = of_bias.at[ring.source(around.number, n)].set(more)  # (n, i, j, ..., q, k)
        return sums, of_bias

    def hop(n: Array, carry: tuple) -> tuple:
        held, sums, of_bias = carry
        sent = ring.send(held, 1)  # while they are attended to
        sums, of_bias = add(n, held, sums, of_bias)
        return sent, _send(ring, sums, 1), of_bias

    blocks, last = around.blocks, ring.hops - 1
    held = ring.send((blocks.keys, blocks.values), -ring.first)  # those of device i + first
    of_bias = None if around.sources.bias is None else jnp.zeros_like(around.sources.bias)
    start = held, no_gradients(blocks, functions.dtype), of_bias
    sums, of_bias = add(last, *jax.lax.fori_loop(0, last, hop, start))
    of_blocks = as_blocks(blocks, _send(ring, sums, ring.first - last), None)  # to their owners
    of_sources: Tree = dict.fromkeys(BySource._fields)  # None stands for no gradient
    return Round(of_blocks, BySource(**of_sources | {"bias": of_bias}), None)  # pyright: ignore


def _send(ring: Ring, sums: Gradients, distance: int) -> Gradients:
    """Sends the gradients of keys and values to the device at a distance."""
    of_keys, of_values = ring.send((sums.keys, sums.values), distance)
    return sums._replace(keys=of_keys, values=of_values)


_go_round.defvjp(_forward, _backward)
_gradients.defvjp(refuse, refuse)
