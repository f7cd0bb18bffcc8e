"""Milliseconds of one convolution's forward and backward pass in each form, inside a loop and
called alone.

    python -m benchmarks.convolution [--steps 20] [--repeats 5]

Training runs in a loop, where XLA's own convolution loses its fast path on CPU; this is why
`models.cpu.convolution` has forms of its own.
"""

import argparse

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from benchmarks import timing
from flax_attn.models.convolution import by_xla
from flax_attn.models.cpu import convolution


def measure(form, steps: int, repeats: int) -> tuple[float, float]:
    x = jax.random.normal(jax.random.key(0), (128, 100, 64))
    kernel = jax.random.normal(jax.random.key(1), (5, 64, 64)) / 18

    def step(kernel, _=None):
        gradient = jax.grad(lambda w, x: jnp.sum(jnp.square(form(x, w))), argnums=(0, 1))(kernel, x)
        return kernel - 1e-9 * gradient[0], gradient[1].sum()

    scan = jax.jit(lambda w: jax.lax.scan(step, w, length=steps))
    call = jax.jit(step)

    def calls():
        w = kernel
        for _ in range(steps):
            w, total = call(w)
        jax.block_until_ready((w, total))

    seconds = timing.alternate(
        {"scan": lambda: jax.block_until_ready(scan(kernel)), "calls": calls}, repeats
    )
    return seconds["scan"] / steps * 1e3, seconds["calls"] / steps * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    table = Table("form", "in a scan, ms", "a call, ms", title=timing.machine())
    for form in (
        by_xla,
        convolution.by_shifts,
        convolution.by_tiles,
    ):
        table.add_row(
            form.__name__, *(f"{ms:.2f}" for ms in measure(form, args.steps, args.repeats))
        )
    Console().print(table)


if __name__ == "__main__":
    main()
