"""The steps that all seeds of `shapes_attention:tutorial` take in a second, over their number."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs import shapes_attention
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import build_model, make_programs

STEPS = 10  # of each seed in one measurement


def rows(numbers: list[int], repeats: int = 5) -> list[dict[str, Any]]:
    """Steps a second by the number of seeds, the median of several measurements."""
    measured = lambda number: round(measure(number, repeats), 1)
    return [{"seeds": number, "steps_a_second": measured(number)} for number in numbers]


def measure(num_seeds: int, repeats: int) -> float:
    values = shapes_attention.get_config("tutorial")
    sizes = {"num_seeds": num_seeds, "steps_per_epoch": STEPS, "data.num_train": 5_000}
    values.update_from_flattened_dict(sizes)
    config = Config.of(values)
    task = config.kind.load(config.data, config.recipe, None)
    programs = make_programs(config, build_model(config, task.kept.sizes), task)
    states, data = programs.create(config.seeds), jax.tree.map(jnp.asarray, task.rows.train)
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        states, _ = jax.block_until_ready(programs.train_epoch(states, 1, data))
        seconds.append(time.perf_counter() - began)
    return float(num_seeds * STEPS / np.median(seconds[1:]))  # the first one compiles
