"""Dot-product attention against `jax.nn` and `flax.linen`, and in blocks; forward and backward, taking turns.

python -m benchmarks.attention [--repeats 7]
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
from flax_attn.attention import dot_product_attention

HEADS, WIDTH = 8, 64
LENGTHS = {128: 16, 512: 4, 2048: 1}  # and the batch of each
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    console = Console(width=120)
    console.print(machine())
    dot_product(console, repeats)


if __name__ == "__main__":
    main()
