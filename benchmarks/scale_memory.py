"""The memory of attention across devices, as XLA plans it. Nothing runs."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import flax_attn.attention as fa

HEADS, KEY_HEADS, WIDTH = 8, 2, 64
WAYS = {  # the devices, whether keys go round, and a window
    "one device, in blocks": (1, None, None),
    "8 devices, keys gathered": (8, False, None),
    "8 devices, a ring": (8, True, None),
    "8 devices, a ring, window of 1,024": (8, True, (1023, 0)),
}


def mesh_of(devices: int) -> Mesh:
    chosen = jax.devices()[:devices]
    return jax.make_mesh((devices,), ("sequence",), (AxisType.Auto,), devices=chosen)


def planned(length: int, devices: int, ring: bool | None, window: Any = None) -> int:
    """The bytes of a device for causal attention and its gradients, with arguments and results."""
    mesh = mesh_of(devices)
    across = None if ring is None else fa.Across(mesh, ring=ring)
    sharding = NamedSharding(mesh, P(None, "sequence"))
    shapes = [(1, length, heads, WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS)]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding) for shape in shapes]

    def attend(query: Any, key: Any, value: Any) -> Any:
        options: dict[str, Any] = {"causal": True, "window": window, "chunk_size": 256}
        return fa.dot_product_attention(query, key, value, across=across, **options).context

    def gradients(query: Any, key: Any, value: Any, gradient: Any) -> Any:
        return jax.vjp(attend, query, key, value)[1](gradient)

    compiled = jax.jit(gradients, out_shardings=sharding).lower(*arrays).compile()
    plan = compiled.memory_analysis()
    return plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes


def rows(lengths: list[int]) -> list[dict[str, Any]]:
    """MiB of a device by length, for each way."""
    mib = lambda length, way: round(planned(length, *way) / 2**20, 1)
    return [{"length": n} | {name: mib(n, way) for name, way in WAYS.items()} for n in lengths]
