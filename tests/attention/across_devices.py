"""Attention across eight virtual devices, beside one device, printed as JSON.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.attention.across_devices CASES
"""

import functools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import flax_attn.attention as fa
from flax_attn.attention import masks

B, Q, K, HEADS, KEY_HEADS, D, E = 2, 61, 59, 4, 2, 5, 3  # no number of devices divides the lengths


def mesh(*sizes):
    axes = ("data", "sequence")[-len(sizes) :]
    number = int(np.prod(sizes))
    return jax.make_mesh(sizes, axes, (AxisType.Auto,) * len(sizes), devices=jax.devices()[:number])


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def arrays():
    shapes = (B, Q, HEADS, D), (B, K, KEY_HEADS, D), (B, K, KEY_HEADS, E)
    return [normal(seed, *shape) for seed, shape in enumerate(shapes)]


def cases():
    """Arguments of `dot_product_attention` by name."""
    lengths = {"key_lengths": jnp.array([40, 3]), "query_lengths": jnp.array([Q, 20])}
    dropout = {"dropout_rate": 0.3, "dropout_rng": jax.random.key(1)}
    return {
        "causal window at an offset": {"causal": True, "window": (9, 0), "query_offset": 20},
        "lengths": lengths,
        "causal bias": {"bias": normal(11, 1, HEADS, Q, K), "causal": True},
        "causal dropout": {"causal": True} | dropout,
    }


def ways():
    """`across` and `chunk_size` by name."""
    ring, gathered = (fa.Across(mesh(2, 4), ring=ring) for ring in (True, False))
    return {"ring": (ring, 3), "gathered": (gathered, None)}


def apart(a, b):
    """The largest difference, relative to the largest entry of each array, or to 1."""
    distance = lambda x, y: jnp.abs(x - y).max() / jnp.maximum(jnp.abs(y).max(), 1)
    return float(max(jax.tree.leaves(jax.tree.map(distance, a, b))))


def with_gradients(function, inputs):
    """The result, and the gradients of all inputs, under a gradient of the result."""

    def both(inputs):
        result, pull = jax.vjp(function, inputs)
        along = jnp.cos(jnp.arange(result.size, dtype=result.dtype)).reshape(result.shape)
        return result, pull(along)

    return jax.jit(both)(inputs)


def limits():
    """How far the context and gradients of each case come apart, by case and way."""
    result = {}
    for name, options in cases().items():
        bias = options.get("bias")
        bias = None if callable(bias) else bias

        def attend(inputs, across=None, chunk_size=None, options=options):
            if inputs["bias"] is not None:
                options = options | {"bias": inputs["bias"]}
            options = options | {"across": across, "chunk_size": chunk_size}
            return fa.dot_product_attention(*inputs["arrays"], **options).context

        inputs = {"arrays": arrays(), "bias": bias}
        one = with_gradients(attend, inputs)
        for way, (across, chunk_size) in ways().items():
            over = functools.partial(attend, across=across, chunk_size=chunk_size)
            result[f"{name}, {way}"] = apart(with_gradients(over, inputs), one)
    return result


def mapped_cases():
    """By name: a function of arrays and the device's number; arrays that are cut over two devices,
    arrays that both have, and limits that are cut; and the axis along which they are cut.
    """
    shapes = {
        "query": (B, 30, HEADS, D),
        "key": (B, K, KEY_HEADS, D),
        "value": (B, K, KEY_HEADS, E),
    }
    whole = {name: normal(seed, *shape) for seed, (name, shape) in enumerate(shapes.items())}
    vectors = {name: array[:, :, 0] for name, array in whole.items()}
    one_row = {name: array[:1] for name, array in whole.items()}
    questions = {name: one_row[name] for name in ("query", "key")}
    memory = {name: whole[name] for name in ("key", "value")}
    ids = jnp.asarray(np.sort(np.random.default_rng(7).integers(0, 4, (B, K))))
    segments = {"query_segments": ids[:, :30], "key_segments": ids}
    lengths = {"key_lengths": jnp.array([40, 3])}
    long = dict.fromkeys(whole, normal(6, B, 1600, 1, 2))
    few = {name: array.astype(jnp.float32) for name, array in long.items()}
    few["query"] = few["query"][:, :1]

    def heads(arrays, number, **options):
        return fa.dot_product_attention(**arrays, **options).context

    def of_queries(arrays, number):
        return heads(arrays, number, causal=True, query_offset=15 * number, chunk_size=16)

    def learned(arrays, number):
        score = functools.partial(fa.bilinear, kernel=arrays.pop("kernel"))
        mask = masks.from_lengths(arrays.pop("key_lengths"), K)
        return fa.attend(**arrays, score=score, mask=mask, chunk_size=8).context

    def dropped(arrays, number, chunk_size):
        rng = jax.random.fold_in(jax.random.key(0), number)
        dropout = {"dropout_rate": 0.3, "dropout_rng": rng}
        return heads(arrays, number, chunk_size=chunk_size, **dropout)

    def rows(arrays, number, **options):
        return fa.attend(**arrays, **options).context

    limited = functools.partial(heads, chunk_size=16, causal=True, window=(9, 0))
    free = functools.partial(heads, causal=True, need_weights=False)
    of_few = functools.partial(heads, need_weights=False)
    sparse = functools.partial(rows, normalizer=fa.sparsemax, chunk_size=16)
    monotonic = functools.partial(rows, normalizer=fa.monotonic_expectation)
    return {
        "blocks": (limited, whole, {}, lengths | segments, 0),
        "bias": (functools.partial(limited, bias=fa.alibi(HEADS)), whole, {}, {}, 0),
        "queries": (of_queries, {"query": whole["query"]}, memory, {}, 1),
        "values": (limited, {"value": whole["value"]}, questions, {}, 0),
        "lengths": (functools.partial(heads, chunk_size=16), {}, one_row, lengths, 0),
        "learned score": (learned, vectors, {"kernel": normal(3, D, D)}, lengths, 0),
        "dropout": (functools.partial(dropped, chunk_size=None), {}, whole, {}, 0),
        "dropout in blocks": (functools.partial(dropped, chunk_size=16), {}, whole, {}, 0),
        "long": (free, long, {}, {}, 0),
        "few queries": (of_few, few, {}, {}, 0),
        "sparsemax": (sparse, vectors, {}, {}, 0),
        "monotonic": (monotonic, vectors, {}, {}, 0),
    }


def inside(function, limits, axis, devices):
    """The function inside a `jax.shard_map`, of arrays that are cut and of arrays that are not."""

    def on_device(pieces, common, limits):
        return function(pieces | common | limits, jax.lax.axis_index("sequence"))

    along = P(*[None] * axis, "sequence")
    specs = {"in_specs": (along, P(), along), "out_specs": along}
    mapped = jax.shard_map(on_device, mesh=devices, **specs)
    return lambda inputs: mapped(*inputs, limits)


def mapped(names):
    """How far attention inside a `jax.shard_map` comes apart from the same without, by case."""
    result = {}
    for name in names.split(","):
        function, pieces, common, limits, axis = mapped_cases()[name]

        def on_one(inputs, function=function, limits=limits, axis=axis):
            def half(number):
                cut = lambda array: jnp.split(array, 2, axis)[number]
                return jax.tree.map(cut, inputs[0] | limits) | inputs[1]

            return jnp.concatenate([function(half(i), i) for i in range(2)], axis)

        inputs = pieces, common
        over = with_gradients(inside(function, limits, axis, mesh(2)), inputs)
        result[name] = apart(over, with_gradients(on_one, inputs))
    return result


def hidden():
    """Whether NaN in padded keys and values reaches a result or a gradient."""
    query, key, value = arrays()
    key, value = (array.at[:, 40:].set(jnp.nan) for array in (key, value))
    result = {}
    for way, (across, chunk_size) in ways().items():

        def attend(inputs, across=across, chunk_size=chunk_size):
            options = {"key_lengths": jnp.array([40, 3]), "across": across}
            return fa.dot_product_attention(*inputs, chunk_size=chunk_size, **options).context

        leaves = jax.tree.leaves(with_gradients(attend, (query, key, value)))
        result[way] = all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)
    return result


def over_heads():
    """A layer whose heads are cut over an explicit axis, beside one device: outputs, gradients."""
    devices = jax.make_mesh((2, 4), ("data", "heads"), (AxisType.Explicit,) * 2)
    layer, x = fa.MultiHeadAttention(HEADS), normal(3, B, Q, 8)
    variables = layer.init(jax.random.key(0), x)
    axes = {"query": (None, "heads"), "key": (None, "heads"), "value": (None, "heads")}
    axes |= {"out": ("heads",)}

    def cut(path, leaf):
        _, name, kind = (key.key for key in path)
        spec = P(*(axes[name] if kind == "kernel" else axes[name][1:]))
        return jax.device_put(leaf, jax.NamedSharding(devices, spec))

    def loss(variables, x):
        return jnp.sum(jnp.square(layer.apply(variables, x, causal=True).context))

    step = jax.jit(jax.value_and_grad(loss, (0, 1)))
    expected = step(variables, x)
    with jax.set_mesh(devices):
        x = jax.device_put(x, jax.NamedSharding(devices, P("data")))
        result = jax.device_get(step(jax.tree.map_with_path(cut, variables), x))
    return apart(result, jax.device_get(expected))


def everything(mapped_names):
    """Everything above, in one process."""
    results = {"across": limits(), "mapped": mapped(mapped_names), "hidden": hidden()}
    return results | {"over heads": over_heads()}


if __name__ == "__main__":
    print(json.dumps(everything(sys.argv[1])))
