"""The numbers of a fixed set of cases of attention: those before a change beside those after it.

    python -m tests.attention.numbers write FILE.npz
    python -m tests.attention.numbers compare FILE.npz

Every function and layer, in every form, gives its results and the gradients of all its arrays. A
case that is not equal to the last bit is printed, with its largest difference.
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterator

if "jax" not in sys.modules:
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np

import flax_attn.attention as fa
from flax_attn.attention import masks
from flax_attn.types import Tree
from tests.attention import across_devices
from tests.attention.test_mechanisms import LENGTHS, MECHANISMS, RNGS, X

Case = Callable[[], Tree]
B, Q, K, HEADS, D, E = 2, 13, 11, 4, 6, 5


def normal(seed: int, *shape: int, dtype=jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def with_gradients(function: Callable, *arrays: jax.Array) -> Tree:
    """Results, and the gradients of a sum of all of them with weights that differ."""

    def total(*arrays: jax.Array) -> tuple[jax.Array, Tree]:
        results = function(*arrays)
        leaves = [leaf.astype(jnp.float32) for leaf in jax.tree.leaves(results)]
        parts = [
            jnp.sum(leaf * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape)) for leaf in leaves
        ]
        return functools.reduce(jnp.add, parts), results

    numbers = tuple(range(len(arrays)))
    (_, results), gradients = jax.value_and_grad(total, numbers, has_aux=True)(*arrays)
    return results, gradients


def limits() -> dict[str, dict]:
    """Arguments of `dot_product_attention` by name."""
    draw = np.random.default_rng(5)
    segments = [jnp.asarray(np.sort(draw.integers(0, 3, (B, n)))) for n in (Q, K)]
    packed = {"query_segments": segments[0], "key_segments": segments[1]}
    lengths = {"query_lengths": jnp.array([Q, 4]), "key_lengths": jnp.array([7, 0])}
    dropout = {"dropout_rate": 0.4, "dropout_rng": jax.random.key(3)}
    offsets = {"query_offset": jnp.array([2, 0])}
    return {
        "plain": {},
        "causal": {"causal": True},
        "window": {"window": (3, 2)},
        "causal window": {"causal": True, "window": (4, None)},
        "offset": {"causal": True, "query_offset": 3},
        "offsets": {"causal": True} | offsets,
        "offsets and a window": {"window": (2, 2)} | offsets,
        "lengths": lengths,
        "causal lengths": {"causal": True} | lengths,
        "prefix": {"causal": True, "prefix_lengths": jnp.array([5, 0])},
        "segments": packed,
        "causal segments": {"causal": True} | packed,
        "mask": {"mask": jnp.asarray(draw.random((B, 1, Q, K)) < 0.6)},
        "mask of heads": {"mask": jnp.asarray(draw.random((B, HEADS, Q, K)) < 0.6)},
        "mask function": {"mask": masks.causal, "query_offset": 1},
        "bias": {"bias": normal(6, B, HEADS, Q, K)},
        "bias that hides": {"bias": jnp.where(normal(7, 1, HEADS, Q, K) > 0, 0.5, -jnp.inf)},
        "bias function": {"bias": fa.alibi(HEADS), "causal": True},
        "scale and cap": {"scale": 0.7, "softcap": 2.0},
        "dropout": dropout,
        "all": {"causal": True, "window": (6, None), "bias": fa.alibi(HEADS)} | lengths | dropout,
    }


FORMS = {
    "dense": {},
    "without weights": {"need_weights": False},
    "blocks of 4": {"chunk_size": 4},
    "blocks of 5": {"chunk_size": 5, "need_weights": False},
}


def in_heads() -> Iterator[tuple[str, Case]]:
    """`dot_product_attention` under every limit, in every form of small arrays."""
    for name, arguments in limits().items():
        for form, options in FORMS.items():
            for key_heads in (HEADS, 2):
                for dtype in (jnp.float32, jnp.bfloat16):
                    shapes = (B, Q, HEADS, D), (B, K, key_heads, D), (B, K, key_heads, E)
                    arrays = [normal(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
                    function = functools.partial(fa.dot_product_attention, **arguments, **options)
                    title = f"heads, {name}, {form}, {key_heads}, {dtype.__name__}"
                    yield title, functools.partial(with_gradients, function, *arrays)


def long() -> Iterator[tuple[str, Case]]:
    """Sizes that choose blocks and the form for few queries by themselves."""
    shapes = {"many": (1, 1536, 2, 8), "few": (2, 2, 4, 8), "one": (1, 1, 4, 8)}
    for name, shape in shapes.items():
        keys = (shape[0], 1536 if name == "many" else 700, 2, 8)
        arrays = [normal(i, *shape) for i, shape in enumerate((shape, keys, keys))]
        offset = keys[1] - shape[1]
        options = {
            "plain": {},
            "causal": {"causal": True, "query_offset": offset},
            "window": {"causal": True, "window": (99, None), "query_offset": offset},
            "lengths": {"key_lengths": jnp.full(shape[0], 301)},
            "cap": {"softcap": 3.0},
        }
        for limit, arguments in options.items():
            function = functools.partial(fa.dot_product_attention, need_weights=False, **arguments)
            yield f"{name}, {limit}", functools.partial(with_gradients, function, *arrays)


def without_heads() -> Iterator[tuple[str, Case]]:
    """`attend` with every score and normaliser, and `log_sum_exp`."""
    query, key, value = normal(0, B, Q, D), normal(1, B, K, D), normal(2, B, K, E)
    kernels = normal(3, D, 7), normal(4, D, 7), normal(5, 7)
    scores = {
        "dot": fa.dot,
        "scaled_dot": fa.scaled_dot,
        "cosine": fa.cosine,
        "no_score": fa.no_score,
        "additive": functools.partial(
            fa.additive, query_kernel=kernels[0], key_kernel=kernels[1], vector=kernels[2]
        ),
        "bilinear": functools.partial(fa.bilinear, kernel=normal(8, D, D)),
    }
    normalizers = {
        "softmax": fa.masked_softmax,
        "entmax15": fa.entmax15,
        "sparsemax": fa.sparsemax,
        "top_k": functools.partial(fa.top_k, k=3),
        "hard": fa.hard,
        "monotonic": fa.monotonic_expectation,
        "monotonic_hard": fa.monotonic_hard,
    }
    hidden = {
        "nothing": {},
        "mask": {"mask": jnp.asarray(np.random.default_rng(9).random((B, Q, K)) < 0.6)},
        "causal": {"mask": masks.causal},
        "bias": {"bias": normal(9, Q, K)},
        "dropout": {"dropout_rate": 0.3, "dropout_rng": jax.random.key(4)},
    }
    pairs = [(score, "softmax") for score in scores]
    pairs += [("scaled_dot", normalizer) for normalizer in normalizers]
    for score, normalizer in dict.fromkeys(pairs):
        for name, arguments in hidden.items():
            for chunk_size in (None, 4):
                function = functools.partial(
                    fa.attend,
                    score=scores[score],
                    normalizer=normalizers[normalizer],
                    chunk_size=chunk_size,
                    **arguments,
                )
                title = f"attend, {score}, {normalizer}, {name}, {chunk_size}"
                yield title, functools.partial(with_gradients, function, query, key, value)
    for name in ("nothing", "mask", "causal", "bias"):
        for chunk_size in (None, 4):
            function = functools.partial(fa.log_sum_exp, chunk_size=chunk_size, **hidden[name])
            yield (
                f"log_sum_exp, {name}, {chunk_size}",
                functools.partial(with_gradients, function, query, key),
            )


def mechanisms() -> Iterator[tuple[str, Case]]:
    """Every mechanism of `test_mechanisms`, with the gradients of inputs and parameters."""
    for name, mechanism in MECHANISMS.items():
        yield f"mechanism, {name}", functools.partial(of_mechanism, mechanism)


def of_mechanism(mechanism) -> Tree:
    x, lengths = jnp.asarray(X), jnp.asarray(LENGTHS)
    variables = mechanism.init(x, lengths)
    leaves, tree = jax.tree.flatten(variables)
    floats = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]

    def function(x: jax.Array, *params: jax.Array) -> Tree:
        changed = list(leaves)
        for i, leaf in zip(floats, params):
            changed[i] = leaf
        results = mechanism.apply(jax.tree.unflatten(tree, changed), x, lengths)
        return [
            leaf for leaf in jax.tree.leaves(results) if jnp.issubdtype(leaf.dtype, jnp.floating)
        ]

    return with_gradients(function, x, *(leaves[i] for i in floats))


def lenses() -> Iterator[tuple[str, Case]]:
    """Attention through lenses."""
    arrays = [normal(i, B, Q, HEADS, D) for i in range(3)]
    settings = {
        "temperature": {"temperature": 2.0},
        "normalizer": {"normalizer": fa.sparsemax},
        "mask": {"mask": lambda query, key: key != 3},
        "all": {"temperature": 0.5, "normalizer": fa.entmax15, "mask": masks.causal},
    }
    for name, setting in settings.items():
        for form, options in FORMS.items():

            def function(*arrays, setting=setting, options=options):
                with fa.Lens(**setting):
                    return fa.dot_product_attention(
                        *arrays, key_lengths=jnp.array([9, 4]), **options
                    )

            yield f"lens, {name}, {form}", functools.partial(with_gradients, function, *arrays)


def across() -> Iterator[tuple[str, Case]]:
    """Attention across four devices, on a ring and gathered."""
    mesh = across_devices.mesh(4)
    for name, arguments in across_devices.cases().items():
        for ring in (True, False):

            def function(*arrays, ring=ring, arguments=arguments):
                ways = fa.Across(mesh, ring=ring)
                return fa.dot_product_attention(
                    *arrays, across=ways, need_weights=False, **arguments
                )

            arrays = [array.astype(jnp.float32) for array in across_devices.arrays()]
            yield (
                f"across, {name}, ring={ring}",
                functools.partial(with_gradients, jax.jit(function), *arrays),
            )


def caches() -> Iterator[tuple[str, Case]]:
    """Decoding with both caches."""
    arrays = [normal(i, B, 9, HEADS, D) for i in range(3)]
    yield "rotary", functools.partial(with_gradients, fa.rotary, arrays[0])
    layers = {
        "plain": fa.MultiHeadAttention(HEADS),
        "grouped": fa.MultiHeadAttention(HEADS, num_key_heads=2),
    }
    for name, layer in layers.items():
        x = normal(4, B, 9, HEADS * D)
        variables = layer.init(RNGS, x)
        for causal in (False, True):
            for need_weights in (False, True):
                function = functools.partial(
                    layer.apply, variables, causal=causal, need_weights=need_weights
                )
                yield (
                    f"layer, {name}, causal={causal}, need_weights={need_weights}",
                    functools.partial(with_gradients, function, x),
                )


GROUPS = (in_heads, long, without_heads, mechanisms, lenses, across, caches)


def numbers(only: str) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The arrays of each case whose name begins with a text."""
    for group in GROUPS:
        for name, case in group():
            if name.startswith(only):
                yield name, [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(case())]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("file")
    parser.add_argument("--only", default="", help="the beginning of the names of cases")
    args = parser.parse_args()
    if args.what == "write":
        held = {
            f"{name}/{i}": array
            for name, arrays in numbers(args.only)
            for i, array in enumerate(arrays)
        }
        np.savez_compressed(args.file, **held)
        print(f"{len(held)} arrays")
        return 0
    different, cases = 0, 0
    with np.load(args.file) as before:
        for name, arrays in numbers(args.only):
            cases += 1
            worst = 0.0
            for i, after in enumerate(arrays):
                expected = before[f"{name}/{i}"]
                if after.shape != expected.shape:
                    worst = np.inf
                elif not np.array_equal(after, expected, equal_nan=True):
                    largest = np.nanmax(np.abs(expected), initial=1e-30)
                    worst = max(worst, np.nanmax(np.abs(after - expected)) / largest, 1e-30)
            if worst:
                different += 1
                print(f"{name}: {worst:.1e} of the largest", flush=True)
    print(f"{cases} cases, {different} not equal to the last bit")
    return different


if __name__ == "__main__":
    sys.exit(bool(main()))
