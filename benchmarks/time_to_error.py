"""Seconds of training until the tutorial's best validation error on the shapes task, 0.00075, ours
and its recipe's in PyTorch.

    python -m benchmarks.time_to_error [--seeds 3]

The tutorial's recipe reaches that error near its step 7,020 and not before, so its time is that of
so many of its steps, which are measured in turns with our epochs. Ours is that of the same model by
`shapes_attention`: whole epochs, each with its validation.
"""

import argparse
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import timing, torch_models, torch_training
from configs import shapes_attention
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import build_model, make_batches, make_programs
from flax_attn.training import epoch

ERROR, PYTORCH_STEPS = 0.00075, 7_020
STEPS_A_TURN = 20


def measure(num_seeds: int) -> tuple[float, float, list[float]]:
    """Mean seconds of our seeds, those of PyTorch, and the error of each seed.

    Raises an AssertionError where one is too high.
    """
    config, tutorial = (shapes_attention.get_config(variant) for variant in ("", "tutorial"))
    config.data.num_test = 1  # the test is measured too, so it is small
    config, tutorial = Config.of(config), Config.of(tutorial)
    task = config.kind.load(config.data, config.recipe, None)
    programs = make_programs(config, build_model(config, task.kept.sizes), task)
    rows, batches = jax.tree.map(jnp.asarray, task.rows.train), make_batches(config, task)

    model, batch = (
        build_model(tutorial, {}),
        epoch.gather(task.rows.train, np.arange(tutorial.batch_size)),
    )
    params = jax.tree.map(np.asarray, model.init(jax.random.key(0), batch["inputs"][:1])["params"])
    step, _ = torch_training.trainer(torch_models.cnn_attention(params, {}), batch, tutorial)

    def train(states: Any, number: int) -> tuple[Any, float]:
        states, _ = programs.train_epoch(states, jnp.int32(number), rows)
        return states, float(
            programs.evaluate(states.params, states.carry, batches)["valid"]["mse"][0]
        )

    def turn() -> None:
        for _ in range(STEPS_A_TURN):
            last = step()
        float(last)

    train(programs.create(range(1)), 1), turn()  # a warm-up
    ours, theirs, errors = [], [], []
    for seed in range(num_seeds):
        states, error, seconds = programs.create(range(seed, seed + 1)), np.inf, 0.0
        for number in range(1, config.num_epochs + 1):
            if error <= ERROR:
                break
            taken, (states, error) = timing.timed(functools.partial(train, states, number))
            seconds += taken
            theirs.append(timing.timed(turn)[0])
        assert error <= ERROR, f"seed {seed} ended at {error:.5f}, above {ERROR}"
        ours.append(seconds)
        errors.append(error)
    return float(np.mean(ours)), float(np.median(theirs)) / STEPS_A_TURN * PYTORCH_STEPS, errors


def rows(quick: bool) -> Iterator[timing.Row]:
    if quick:
        return
    ours, theirs, _ = measure(3)
    yield timing.Row(
        "time to an error", f"shapes, validation MSE {ERROR}", "s", ours, {"PyTorch": theirs}
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    ours, theirs, errors = measure(parser.parse_args().seeds)
    print(timing.machine())
    print(
        f"ours {ours:.1f} s, at {', '.join(f'{error:.5f}' for error in errors)}; PyTorch "
        f"{theirs:.1f} s: {theirs / ours:.1f} times"
    )


if __name__ == "__main__":
    main()
