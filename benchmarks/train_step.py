"""Milliseconds a training step on the shapes models, ours and PyTorch eager's, at the tutorial's batch of 128.

    python -m benchmarks.train_step [--steps 40] [--repeats 5]

Ours runs as it trains, in a scan over the steps of an epoch; the column `calls` is a loop over calls of the same step,
jitted. The two sides start from the same parameters, and their losses on one batch are checked to agree.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import timing, torch_models
from configs import shapes_attention, shapes_cnn, shapes_lstm
from flax_attn.programs import build_model, make_loss, make_optimizer, make_programs
from flax_attn.tasks import signals
from flax_attn.training import epoch


def measure(module, steps: int, repeats: int) -> dict[str, float]:
    config = module.get_config()
    config.steps_per_epoch = steps
    config.data.num_train = 5_000
    data = signals.load(config, None)
    model = build_model(config.model, data.sizes)
    programs = make_programs(config, model, data)
    start = programs.create(range(1))
    first = jax.tree.map(lambda leaf: leaf[0], start)
    batch = epoch.gather(data.train, jnp.arange(config.batch_size))

    torch_step = torch_models.trainer(torch_models.build(config.model.name, first.params), batch["inputs"], batch["targets"])
    loss = make_loss(model, signals.make_measure(config, data.derived))
    ours, theirs = float(loss(first.params, first.carry, batch, None)[0]), float(torch_step())
    assert abs(ours - theirs) < 1e-4 * theirs, f"unequal work on {config.name}: loss {ours} against {theirs}"

    step = jax.jit(functools.partial(epoch.train_step, loss=loss, optimizer=make_optimizer(config)))
    key = jax.random.key(0)

    def scan():
        states, _ = programs.train_epoch(jax.tree.map(jnp.copy, start), jnp.int32(1), data.train)
        jax.block_until_ready(states)

    def calls():
        state = first
        for _ in range(steps):
            state, _ = step(state, batch, key)
        jax.block_until_ready(state)

    def torch():
        for _ in range(steps):
            torch_step()

    seconds = timing.alternate({"scan": scan, "calls": calls, "torch": torch}, repeats)
    return {name: value / steps * 1e3 for name, value in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    table = Table("model", "ours, ms", "calls, ms", "PyTorch eager, ms", "PyTorch / ours", title=timing.machine())
    ratios = []
    for module in (shapes_cnn, shapes_attention, shapes_lstm):
        ms = measure(module, args.steps, args.repeats)
        ratios.append(ms["torch"] / ms["scan"])
        row = [f"{ms[name]:.2f}" for name in ("scan", "calls", "torch")]
        table.add_row(module.__name__.split(".")[-1], *row, f"{ratios[-1]:.2f}")
    Console().print(table)
    print(f"slowest ratio {min(ratios):.2f}, median {np.median(ratios):.2f}")


if __name__ == "__main__":
    main()
