"""Time of eight seeds of `shapes_attention` in one program beside that of one, a seed.

python -m benchmarks.seeds [--seeds 8] [--steps 10] [--repeats 5]
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import timing
from configs import shapes_attention
from flax_attn.programs import build_model, make_programs
from flax_attn.tasks import signals


def measure(num_seeds: int, steps: int, repeats: int) -> dict[str, float]:
    """Milliseconds a step and seed, of one seed and of several."""
    config = shapes_attention.get_config()
    config.steps_per_epoch, config.data.num_train = steps, 5_000
    task = signals.load(config, None)
    programs = make_programs(config, build_model(config.model, task.sizes), task)
    data = jax.tree.map(jnp.asarray, task.train)

    def epoch_of(number: int) -> Callable[[], Any]:
        start = programs.create(range(number))
        return lambda: jax.block_until_ready(programs.train_epoch(jax.tree.map(jnp.copy, start), jnp.int32(1), data))

    numbers = {"one": 1, str(num_seeds): num_seeds}
    seconds = timing.alternate({name: epoch_of(number) for name, number in numbers.items()}, repeats)
    return {name: 1e3 * seconds[name] / (steps * number) for name, number in numbers.items()}


def rows(quick: bool) -> Iterator[timing.Row]:
    if quick:
        return
    one, several = measure(8, 10, 9).values()
    yield timing.Row("seeds together", "shapes_attention, each of 8", "ms", several, {"one seed alone": one})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    one, several = measure(args.seeds, args.steps, args.repeats).values()
    print(timing.machine())
    print(f"a step of one seed {one:.1f} ms, of {args.seeds} seeds {several:.1f} ms each: {several / one:.2f}")


if __name__ == "__main__":
    main()
