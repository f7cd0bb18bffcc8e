"""Attention against `jax.nn` and `flax.linen`, and in blocks against the whole; forward and backward, taking turns.

python -m benchmarks.attention [--repeats 7]

Memory is what XLA sets aside for the compiled program besides its arguments and results.
"""

import argparse
import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from benchmarks.timing import alternate, machine
from flax_attn.attention import additive, attend, dot_product_attention

HEADS, WIDTH = 8, 64
LENGTHS = {128: 16, 512: 4, 2048: 1}  # and the batch of each
CHUNK = 128
KEYS = iter(jax.random.split(jax.random.key(0), 64))


def normal(*shape: int) -> jax.Array:
    return jax.random.normal(next(KEYS), shape)


def timed(functions: dict[str, Callable], arguments: tuple, repeats: int) -> dict[str, float]:
    calls = {name: functools.partial(lambda f: jax.block_until_ready(f(*arguments)), jax.jit(f)) for name, f in functions.items()}
    return alternate(calls, repeats)


def gradient(function: Callable) -> Callable:
    return jax.grad(lambda *args: jnp.sum(jnp.square(function(*args))), argnums=(0, 1, 2))


def dot_product(console: Console, repeats: int) -> None:
    """The whole of the weights, eight heads of 64."""
    functions = {
        "ours": lambda *qkv: dot_product_attention(*qkv).context,
        "jax.nn": jax.nn.dot_product_attention,
        "flax.linen": nn.dot_product_attention,
        "ours in blocks": lambda *qkv: dot_product_attention(*qkv, chunk_size=256).context,
    }
    table = Table(title="dot-product attention, milliseconds")
    for column in ("length", "batch", "pass", *functions, "jax.nn / ours", "linen / ours"):
        table.add_column(column, justify="right")
    for length, batch in LENGTHS.items():
        arguments = tuple(normal(batch, length, HEADS, WIDTH) for _ in range(3))
        for name, wrap in (("forward", lambda f: f), ("both", gradient)):
            seconds = timed({key: wrap(f) for key, f in functions.items()}, arguments, repeats)
            ratios = [f"{seconds[other] / seconds['ours']:.2f}" for other in ("jax.nn", "flax.linen")]
            table.add_row(str(length), str(batch), name, *(f"{1e3 * s:.1f}" for s in seconds.values()), *ratios)
    console.print(table)


def additive_in_blocks(console: Console, repeats: int) -> None:
    """Additive attention of width 64, forward and backward, whole at length 2,048 and in blocks."""
    params = {"query_kernel": normal(WIDTH, WIDTH) / 8, "key_kernel": normal(WIDTH, WIDTH) / 8, "vector": normal(WIDTH)}

    def attention(chunk_size: int | None) -> Callable:
        return gradient(lambda q, k, v: attend(q, k, v, score=functools.partial(additive, **params), chunk_size=chunk_size).context)

    table = Table(title=f"additive attention of width {WIDTH}, forward and backward")
    for column in ("length", "blocks of", "seconds", "GiB"):
        table.add_column(column, justify="right")
    arguments = tuple(normal(1, 2048, WIDTH) for _ in range(3))
    seconds = timed({str(size): attention(size) for size in (None, CHUNK)}, arguments, max(repeats // 3, 2))
    memory = {str(size): gibibytes(attention(size), arguments) for size in (None, CHUNK)}
    for size in memory:
        table.add_row("2,048", size, f"{seconds[size]:.2f}", f"{memory[size]:.3f}")
    long = tuple(normal(1, 16_384, WIDTH) for _ in range(3))
    table.add_row(
        "16,384", str(CHUNK), f"{timed({'long': attention(CHUNK)}, long, 1)['long']:.1f}", f"{gibibytes(attention(CHUNK), long):.3f}"
    )
    console.print(table)
    time, space = (figures["None"] / figures[str(CHUNK)] for figures in (seconds, memory))
    console.print(f"at 2,048 the whole takes {time:.1f} times the time and {space:.0f} times the memory")


def gibibytes(function: Callable, arguments: tuple) -> float:
    return jax.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    console = Console(width=120)
    console.print(machine())
    dot_product(console, repeats)
    additive_in_blocks(console, repeats)


if __name__ == "__main__":
    main()
