"""Attention of a sequence that is cut over devices, as `Across` describes it."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

from flax_attn.attention import masks, ring
from flax_attn.attention.all_queries import needs_all_queries
from flax_attn.attention.block_size import best_chunk_size
from flax_attn.attention.cut import Cut, cut, to_zigzag
from flax_attn.attention.how import Across, How
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.parts import Part
from flax_attn.attention.reach import hide_unreachable
from flax_attn.attention.types import Score
from flax_attn.types import Tree

AnyMesh = Mesh | AbstractMesh
# from the pairs, the indices of a device's queries, its arrays, and its rows of biases
OnDevice = Callable[[Pairs, Array, Array, Array, Array, Array | None], Tree]


def attend(
    attend_part: Callable[..., tuple[Array, Array | None]],
    query: Array,
    key: Array,
    value: Array,
    pairs: Pairs,
    how: How,
) -> tuple[Array, Array | None]:
    """Context and weights of a sequence over the devices of `how.across`.

    `attend_part` attends from some of the queries to all keys, on one device.
    """
    assert how.across is not None
    axis, (num_queries, num_keys) = how.across.axis, pairs.shape[-2:]
    mesh = _mesh(how.across, query, key, value)
    devices = mesh.shape[axis]
    bias = pairs.bias if isinstance(pairs.bias, jax.Array) else None
    if _is_ring(how):
        block_size = _block_size(query, key, pairs, how, devices)
        queries, keys = (cut(n, devices, block_size) for n in (num_queries, num_keys))
        keys_go = ring.make_ring(axis, pairs, queries, keys)
        is_causal = pairs.right is not None or pairs.mask is masks.causal
        if is_causal and keys_go.hops == devices:  # no window ends the ring early
            queries, keys = (cut(n, devices, block_size, True) for n in (num_queries, num_keys))
        on_device = _on_ring(keys_go, how.score, queries, keys)
        if bias is not None and bias.shape[-1] > 1:
            bias = jnp.take(bias, np.minimum(keys.indices().ravel(), num_keys - 1), axis=-1)
    else:
        queries, keys = cut(num_queries, devices), cut(num_keys, devices)
        on_device = _gathered(attend_part, how._replace(across=None), axis)
    query, key, value = hide_unreachable(query, key, value, pairs)
    bias = queries.filled(bias) if bias is not None and bias.shape[-2] > 1 else bias
    arrays = queries.filled(query), keys.filled(key), keys.filled(value), bias
    results = _over_devices(on_device, mesh, axis, pairs, queries, *arrays)
    context, weights = jax.tree.map(lambda array: array[..., :num_queries, :], results)
    return context, weights


def _gathered(
    attend_part: Callable[..., tuple[Array, Array | None]], how: How, axis: str
) -> OnDevice:
    """A device gets all keys and values, and attends from its queries to them."""

    def on_device(
        pairs: Pairs, indices: Array, query: Array, key: Array, value: Array, bias: Array | None
    ) -> Tree:
        num_queries, num_keys = pairs.shape[-2:]

        def gather(array: Array) -> Array:
            whole = jax.lax.all_gather(addable(array), axis, axis=array.ndim - 2, tiled=True)
            return whole[..., :num_keys, :].astype(array.dtype)

        key, value = gather(key), gather(value)
        part = Part(jnp.minimum(indices, num_queries - 1), jnp.arange(num_keys), bias)
        return tuple(attend_part(query, key, value, pairs, how, part))

    return on_device


def _on_ring(keys_go: ring.Ring, score: Score, queries: Cut, keys: Cut) -> OnDevice:
    """A device attends from its queries to the keys that come round."""
    score_and_sizes, axis = (score, queries.block, keys.block), keys_go.axis
    is_zigzag = queries.is_zigzag

    def on_device(
        pairs: Pairs, indices: Array, query: Array, key: Array, value: Array, bias: Array | None
    ) -> Tree:
        number = indices[0] // queries.size  # a device's first piece has its own number
        if is_zigzag:
            query, key, value = (to_zigzag(array, axis, number) for array in (query, key, value))
            if bias is not None and bias.shape[-2] > 1:
                bias = to_zigzag(bias, axis, number)
        own, all_keys = jnp.minimum(indices, queries.length - 1), keys.indices().ravel()
        part = Part(own, jnp.asarray(all_keys), bias, keys.is_filled)
        context = ring.attend((query, key, value), pairs, score_and_sizes, keys_go, part, number)
        return to_zigzag(context, axis, number, back=True) if is_zigzag else context, None

    return on_device


def _over_devices(
    function: OnDevice,
    mesh: AnyMesh,
    axis: str,
    pairs: Pairs,
    queries: Cut,
    *arrays: Array | None,
) -> Tree:
    """The function on each device, with the indices of its queries and its part of the arrays."""
    fields = [field.name for field in dataclasses.fields(pairs) if field.name != "bias"]
    of_pairs = {name: getattr(pairs, name) for name in fields}
    of_pairs = {name: term for name, term in of_pairs.items() if isinstance(term, jax.Array)}

    def spec(array: Array | None) -> P:
        if array is None or array.shape[-2] == 1 < queries.devices:
            return P()
        return P(*[None] * (array.ndim - 2), axis, None)

    def on_device(of_pairs: dict[str, Array], *args: Tree) -> Tree:
        # inside another `shard_map`, such as that over seeds, a function may close over no array
        return function(dataclasses.replace(pairs, **of_pairs), *args)

    specs = [spec(array) for array in arrays]
    arrays = tuple(
        array if array is None or own != P() else addable(array)
        for array, own in zip(arrays, specs)
    )
    call = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(P(), P(axis), *specs),
        out_specs=specs[0],
        axis_names={axis},
        check_vma=False,  # a loop of hops starts with sums that are equal everywhere
    )
    return jax.jit(call)(of_pairs, jnp.asarray(queries.indices().ravel()), *arrays)


def addable(array: Array) -> Array:
    """The array in a dtype that devices can add up: XLA aborts at bfloat16 on a CPU."""
    is_half = array.dtype == jnp.bfloat16 and jax.default_backend() == "cpu"
    return array.astype(jnp.float32) if is_half else array


def _mesh(across: Across, *arrays: Array) -> AnyMesh:
    """The mesh of `across`, or the one around.

    Raises:
        ValueError: there is none, they differ, its axis is missing or already cut by a `shard_map`
            around, or axes are explicit around attention or in an array.
    """
    around = jax.sharding.get_abstract_mesh()
    mesh = around if across.mesh is None else across.mesh
    if mesh.empty:
        raise ValueError("expected a mesh in Across, or around it by jax.set_mesh, got none")
    if across.axis not in mesh.axis_names:
        raise ValueError(f"expected an axis of the mesh {mesh.axis_names}, got {across.axis!r}")
    shapes = [dict(one.shape) for one in (mesh, around)]
    if shapes[0] != shapes[1] and not around.empty:
        raise ValueError(
            f"expected the mesh of Across to be the one around, got {shapes[0]} and {shapes[1]}"
        )
    if across.axis in around.manual_axes:
        raise ValueError(
            f"expected the axis {across.axis!r} to be free around attention, got a shard_map over "
            f"it; leave it out of its axis_names"
        )
    for one in (around, *(jax.typeof(array).sharding.mesh for array in arrays)):
        if AxisType.Explicit in one.axis_types:
            raise ValueError(
                f"expected automatic axes around attention and in its arrays, got "
                f"{one.axis_types}; make the mesh with axis_types=(jax.sharding.AxisType.Auto,) * "
                f"{len(one.axis_types)}"
            )
    if not around.empty:
        return around
    assert isinstance(mesh, Mesh)
    return Mesh(mesh.devices, mesh.axis_names, (AxisType.Auto,) * len(mesh.axis_names))


def _is_ring(how: How) -> bool:
    """Whether keys go round.

    Raises:
        ValueError: a ring for another normaliser than softmax, or one that needs all queries.
    """
    assert how.across is not None
    if needs_all_queries(how.normalizer):
        raise ValueError(
            f"expected a normalizer that sees one query at a time across devices, "
            f"got {how.normalizer}"
        )
    is_softmax = how.normalizer is masked_softmax
    if how.across.ring and not is_softmax:
        raise ValueError(f"expected softmax on a ring, got {how.normalizer}; pass ring=False")
    wants_weights = how.need_weights and how.chunk_size is None
    return (is_softmax and not wants_weights) if how.across.ring is None else how.across.ring


def _block_size(query: Array, key: Array, pairs: Pairs, how: How, devices: int) -> int:
    """The size of blocks: what the caller says, or what is best for one device's part."""
    if how.chunk_size is not None:
        return how.chunk_size
    query, key = (array[..., : -(-array.shape[-2] // devices), :] for array in (query, key))
    return best_chunk_size(query, key, pairs, how.score) or max(query.shape[-2], key.shape[-2])
