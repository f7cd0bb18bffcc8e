"""Time of eight seeds of `shapes_attention:tutorial` in one program beside that of the same seeds
one after another.

python -m benchmarks.seeds [--seeds 8] [--steps 10] [--repeats 5]
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import timing
from configs import shapes_attention
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import build_model, make_programs


def measure(num_seeds: int, steps: int, repeats: int) -> dict[str, float]:
    """Milliseconds a step and seed, of seeds one after another and of all in one program."""
    config = shapes_attention.get_config("tutorial")
    config.steps_per_epoch, config.data.num_train = steps, 5_000
    config = Config.of(config)
    task = config.kind.load(config.data, config.recipe, None)
    programs = make_programs(config, build_model(config, task.kept.sizes), task)
    data = jax.tree.map(jnp.asarray, task.rows.train)

    def epochs_of(together: int) -> Callable[[], Any]:
        """An epoch of every seed, `together` seeds at a time.

        Each seed goes on from where it was.
        """
        now = [
            programs.create(range(first, first + together))
            for first in range(0, num_seeds, together)
        ]

        def run() -> None:
            now[:] = [programs.train_epoch(states, 1, data)[0] for states in now]
            jax.block_until_ready(now)

        return run

    seconds = timing.alternate({"one": epochs_of(1), "several": epochs_of(num_seeds)}, repeats)
    return {name: 1e3 * value / (steps * num_seeds) for name, value in seconds.items()}


def rows(quick: bool) -> Iterator[timing.Row]:
    if quick:
        return
    one, several = measure(8, 10, 9).values()
    yield timing.Row(
        "seeds together", "shapes_attention, each of 8", "ms", several, {"one after another": one}
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    one, several = measure(args.seeds, args.steps, args.repeats).values()
    print(timing.machine())
    print(
        f"a step of each seed one after another {one:.1f} ms, of each of {args.seeds} together "
        f"{several:.1f} ms: {several / one:.2f}"
    )


if __name__ == "__main__":
    main()
