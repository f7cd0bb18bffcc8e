"""Linear attention beside softmax: decoding, training, and the memory that gradients plan.

The rule is gated delta, with 4 heads of width 64 in float32. The two do not do equal work: a state
of fixed size takes the place of all keys. So `ours` is linear attention and the peer is causal
attention with softmax, both of this library, and a ratio above 1 says what the state saves.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import timing
from flax_attn.attention import (
    LinearAttention,
    MultiHeadAttention,
    dot_product_attention,
    l2_normalized,
    linear_attention,
)

HEADS, WIDTH = 4, 64
CONTEXTS = (1024, 4096, 16_384, 65_536)  # tokens that the cache has room for
STEPS = 128  # the last of them, decoded by one program
LENGTHS = (512, 1024, 2048, 4096, 8192)
PLANNED = (4096, 8192, 16_384)


def rows(quick: bool) -> Iterator[timing.Row]:
    repeats = 3 if quick else 9
    for length in CONTEXTS:
        calls = {"ours": decoding(LinearAttention(HEADS), length)}
        calls["softmax"] = decoding(MultiHeadAttention(HEADS), length)
        seconds = timing.alternate(calls, repeats, least=1.0)
        yield row(f"decoding a token, context {length:,}", "ms", seconds, 1e3 / STEPS)
    for length in LENGTHS:
        batch = max(LENGTHS) // length
        calls = {name: training(gradient, length, batch) for name, gradient in GRADIENTS.items()}
        case = f"gradients, {batch} x {length:,} tokens"
        yield row(case, "ms", timing.alternate(calls, repeats), 1e3)
    for length in PLANNED:
        planned = {name: memory(gradient, length) for name, gradient in GRADIENTS.items()}
        yield row(f"planned for gradients, {length:,} tokens", "MiB", planned, 2**-20)


def row(case: str, unit: str, figures: dict[str, float], factor: float) -> timing.Row:
    ours, softmax = (factor * figures[name] for name in ("ours", "softmax"))
    return timing.Row("linear attention", case, unit, ours, {"softmax": softmax})


def decoding(layer: Any, length: int) -> Callable[[], Any]:
    """Returns a call that decodes the last of `length` tokens. The cache is updated in place."""
    features = HEADS * WIDTH
    tokens = jax.random.normal(jax.random.key(0), (STEPS, 1, 1, features))
    params = jax.jit(layer.init)(jax.random.key(1), tokens[0])
    cache = layer.init_cache(features, (1,), length)

    @functools.partial(jax.jit, donate_argnums=1)
    def decode(params: Any, cache: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
        def step(cache: Any, token: jax.Array) -> tuple[Any, jax.Array]:
            options = {"method": "decode", "need_weights": False}
            attended, cache = layer.apply(params, token, cache, **options)
            return cache, attended.context  # (1, 1, features)

        start = jnp.full(1, length - STEPS)
        return jax.lax.scan(step, cache._replace(length=start), tokens)

    def call() -> Any:
        nonlocal cache
        cache, contexts = decode(params, cache, tokens)
        return jax.block_until_ready(contexts)

    return call


def of_linear(arrays: Any) -> jax.Array:
    query, key, value, decay, strength = arrays
    rule = {"log_decay": -jax.nn.softplus(decay), "write_strength": jax.nn.sigmoid(strength)}
    options: dict[str, Any] = {**rule, "need_weights": False, "feature_map": l2_normalized}
    return linear_attention(query, key, value, **options)[0].context


def of_softmax(arrays: Any) -> jax.Array:
    return dot_product_attention(*arrays[:3], causal=True, need_weights=False).context


def gradient(attend: Callable[[Any], jax.Array]) -> Any:
    """Returns the gradients of the sum of squares of a context."""
    return jax.grad(lambda arrays: jnp.square(attend(arrays).astype(jnp.float32)).sum())


GRADIENTS = {"ours": gradient(of_linear), "softmax": gradient(of_softmax)}


def shapes(length: int, batch: int = 1, dtype: Any = jnp.float32) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes of query, key and value, and of what decay and strength follow from."""
    axes = 3 * [(batch, length, HEADS, WIDTH)] + 2 * [(batch, length, HEADS)]
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in axes]


def training(gradient: Any, length: int, batch: int) -> Callable[[], Any]:
    rng = jax.random.key(0)
    arrays = [
        jax.random.normal(rng, x.shape)
        for rng, x in zip(jax.random.split(rng, 5), shapes(length, batch))
    ]
    jitted = jax.jit(gradient)
    return lambda: jax.block_until_ready(jitted(arrays))


def memory(gradient: Any, length: int) -> float:
    analysis: Any = jax.jit(gradient).lower(shapes(length)).compile().memory_analysis()
    return analysis.temp_size_in_bytes
