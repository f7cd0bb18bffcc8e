"""Attention across eight virtual devices, beside one device, printed as JSON.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.attention.across_devices NAME
    [ARG ...]
"""

import functools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
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
    rng = np.random.default_rng(7)
    queries, keys = (jnp.asarray(np.sort(rng.integers(0, 4, (B, n)))) for n in (Q, K))
    lengths = {"key_lengths": jnp.array([40, 3]), "query_lengths": jnp.array([Q, 20])}
    segments = {"query_segments": queries, "key_segments": keys}
    dropout = {"dropout_rate": 0.3, "dropout_rng": jax.random.key(1)}
    return {
        "plain": {},
        "causal": {"causal": True},
        "window": {"window": (7, 5)},
        "causal window": {"causal": True, "window": (9, 0)},
        "causal window at an offset": {"causal": True, "window": (9, 0), "query_offset": 20},
        "prefix": {"window": (3, 0), "prefix_lengths": jnp.array([9, 2])} | lengths,
        "lengths": lengths,
        "causal lengths": {"causal": True} | lengths,
        "mask": {"mask": jnp.asarray(rng.random((B, 1, Q, K)) < 0.5)},
        "mask function": {"mask": masks.causal},
        "segments": segments,
        "causal segments": {"causal": True} | segments,
        "alibi": {"bias": fa.alibi(HEADS)},
        "bias": {"bias": normal(8, B, HEADS, Q, K)},
        "bias of keys": {"bias": normal(9, 1, K), "causal": True},
        "bias of queries": {"bias": normal(10, 1, HEADS, Q, 1), "window": (9, 4)},
        "causal bias": {"bias": normal(11, 1, HEADS, Q, K), "causal": True},
        "offset": {"causal": True, "query_offset": 7},
        "offset of rows": {"causal": True, "query_offset": jnp.array([3, 0])},
        "soft-cap": {"softcap": 5.0},
        "nothing": {"key_lengths": jnp.array([0, 0])},
        "dropout": dropout,
        "causal dropout": {"causal": True} | dropout,
    }


def ways():
    """`across` and `chunk_size` by name."""
    ring, gathered = (functools.partial(fa.Across, ring=ring) for ring in (True, False))
    return {
        "ring": (ring(mesh(2, 4)), 3),
        "gathered": (gathered(mesh(2, 4)), None),
        "ring of 8": (ring(mesh(8)), None),
        "ring of 8 in small blocks": (ring(mesh(8)), 2),
        "ring of 1": (ring(mesh(1)), 16),
        "gathered in blocks": (gathered(mesh(8)), 5),
    }


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


def limits(names, chosen=None):
    """How far the context and gradients of each case come apart, by case and way."""
    result = {}
    for name in names.split(","):
        options = cases()[name]
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
            if chosen is None or way in chosen.split(","):
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


def across_and_mapped(limits_names, ways_names, mapped_names):
    """`limits` and `mapped`."""
    return {"across": limits(limits_names, ways_names), "mapped": mapped(mapped_names)}


def normalizers():
    """A learned score under every normaliser of rows, with its weights."""
    query, key, value = (array[:, :, 0] for array in arrays())
    weights = {name: normal(i, D, 4) for i, name in enumerate(("query", "key"))}
    result = {}
    for name in ("masked_softmax", "sparsemax", "entmax15", "hard", "top_k"):
        normalizer = getattr(fa, name)
        if name == "top_k":
            normalizer = functools.partial(normalizer, k=3)

        def attend(inputs, across=None, normalizer=normalizer, **options):
            def score(query, key):
                queries, keys = query @ inputs["query"], key @ inputs["key"]
                return jnp.tanh(queries[..., None, :] + keys[..., None, :, :]).sum(axis=-1)

            options |= {"score": score, "normalizer": normalizer, "mask": masks.causal}
            attended = fa.attend(*inputs["arrays"], across=across, **options)
            if attended.weights is None:
                return attended.context
            return jnp.concatenate([attended.context, attended.weights], axis=-1)

        inputs = weights | {"arrays": (query, key, value)}
        for way, options in {"whole": {}, "blocks": {"chunk_size": 5}}.items():
            one = with_gradients(functools.partial(attend, **options), inputs)
            over = functools.partial(attend, across=fa.Across(mesh(2, 4)), **options)
            result[f"{name}, {way}"] = apart(with_gradients(over, inputs), one)
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


def small():
    """Lengths below the number of devices, and one token beside many."""
    result = {}
    for queries, keys in ((1, 1), (3, 2), (1, 61), (61, 1)):
        inputs = [normal(i, 2, n, 2, 3) for i, n in enumerate((queries, keys, keys))]
        for way in ("ring", "gathered", "ring of 8"):
            across, _ = ways()[way]

            def attend(arrays, across=None, offset=keys - queries):
                options = {"causal": True, "query_offset": offset, "across": across}
                return fa.dot_product_attention(*arrays, **options).context

            over = with_gradients(functools.partial(attend, across=across), inputs)
            result[f"{queries}, {keys}, {way}"] = apart(over, with_gradients(attend, inputs))
    return result


def half():
    """bfloat16, also with a bias of one row, which all devices have."""
    inputs = [array.astype(jnp.bfloat16) for array in (*arrays(), normal(9, 1, K))]
    result = {}
    for way in ("ring", "gathered"):
        across, chunk_size = ways()[way]
        attend = lambda inputs, across=None, chunk_size=None: (
            fa.dot_product_attention(
                *inputs[:3], bias=inputs[3], across=across, chunk_size=chunk_size
            ).context
        )
        options = {"across": across, "chunk_size": chunk_size}
        over = with_gradients(functools.partial(attend, **options), inputs)
        result[way] = apart(over, with_gradients(attend, inputs))
    return result


def on_the_mesh():
    """Inputs that lie on the mesh, which is also the one around."""
    devices = mesh(2, 4)
    inputs = [jax.device_put(array[:, :56], rows_and_tokens(devices)) for array in arrays()]

    def attend(inputs, across=None):
        options = {"causal": True, "need_weights": False, "across": across}
        return fa.dot_product_attention(*inputs, **options).context

    one = with_gradients(attend, jax.device_get(inputs))
    with jax.set_mesh(devices):
        over = with_gradients(functools.partial(attend, across=fa.Across()), inputs)
    return apart(jax.device_get(over), one)


def rows_and_tokens(devices):
    return NamedSharding(devices, P("data", "sequence"))


def layers():
    """Layers with `across` beside the same layers without."""
    inputs = normal(3, 4, 37, 12)
    lengths = jnp.array([37, 5, 0, 20])
    wide = {"param_dtype": jnp.float64}
    score = fa.AdditiveScore(5, **wide)
    kinds = {
        "heads": (fa.MultiHeadAttention(4, rotary=True, key_features=16, **wide), "query_lengths"),
        "shared": (fa.MultiHeadAttention(4, num_key_heads=2, **wide), "query_lengths"),
        "additive": (fa.MultiHeadAttention(2, score=score, **wide), "query_lengths"),
        "self": (fa.SelfAttention(8, 6, **wide), "lengths"),
    }
    result = {}
    for name, (layer, argument) in kinds.items():
        variables = layer.init(jax.random.key(0), inputs)
        for need_weights in (True, False):

            def attend(all_inputs, layer, argument=argument, need_weights=need_weights):
                options = {argument: lengths, "causal": True, "need_weights": need_weights}
                return layer.apply(*all_inputs, **options).context

            one, over = (
                with_gradients(functools.partial(attend, layer=kind), (variables, inputs))
                for kind in (layer, layer.clone(across=fa.Across(mesh(2, 4))))
            )
            result[f"{name}, {need_weights}"] = apart(over, one)
    return result


def lens():
    """Softmax on a ring, and softmax and another normaliser with gathered keys, through a lens
    whose temperature and mask are traced, beside one device.
    """
    visible = jnp.asarray(np.random.default_rng(7).random((Q, K)) < 0.6)
    result = {}
    for name, ring, normalizer in (
        ("ring", True, None),
        ("gathered", False, None),
        ("sparsemax", None, fa.sparsemax),
    ):

        def attend(inputs, across=None, normalizer=normalizer):
            *inputs, temperature = inputs
            settings = {"temperature": temperature, "mask": visible & (temperature > 0)}
            options = {"causal": True, "bias": fa.alibi(HEADS), "need_weights": False}
            with fa.Lens(normalizer=normalizer, **settings):
                return fa.dot_product_attention(*inputs, **options, across=across).context

        inputs = [*arrays(), jnp.asarray(0.4)]
        over = functools.partial(attend, across=fa.Across(mesh(2, 4), ring=ring))
        result[name] = apart(with_gradients(over, inputs), with_gradients(attend, inputs))
    return result


def planned(length, devices, ring):
    """The bytes of a device for causal attention and its gradients, with arguments and results."""
    cut = mesh(devices)
    across = None if ring is None else fa.Across(cut, ring=ring)
    sharding = jax.sharding.NamedSharding(cut, P(None, "sequence"))
    shapes = [(1, length, heads, 64) for heads in (8, 2, 2, 8)]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding) for shape in shapes]
    options = {"causal": True, "chunk_size": 256, "across": across}

    def gradients(query, key, value, gradient):
        attend = lambda *arrays: fa.dot_product_attention(*arrays, **options).context
        return jax.vjp(attend, query, key, value)[1](gradient)

    compiled = jax.jit(gradients, out_shardings=sharding).lower(*arrays).compile()
    plan = compiled.memory_analysis()
    return plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes


def memory(*lengths):
    """The bytes of one device, and of each of eight on a ring, by length."""
    ways = {"one": (1, None), "ring": (8, True)}
    return {name: [planned(int(length), *way) for length in lengths] for name, way in ways.items()}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
