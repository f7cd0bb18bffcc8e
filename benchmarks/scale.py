"""What many devices send and hold, as XLA plans it.

    python -m benchmarks.scale [--devices 1 8 64 512 2048] [--output benchmarks-out]

Nothing runs on many devices: a CPU pretends to have them, and the program is only compiled. Groups
of up to eight devices share a batch. They add up the gradients of `p` parameters in each step: the
formula is `4p` bytes, of which each of `n` devices sends `2 (n-1)/n`.

It writes a table `scale.csv` and a figure `scale.png`.
"""

import argparse
import csv
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

SIZES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1, "f64": 8}
COLLECTIVES = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
GROUP = 8  # devices that share a batch
BATCH = 128


class Collective(NamedTuple):
    """One operation between devices: its name, the bytes of its result, and whether steps do it."""

    name: str
    bytes: int
    in_step: bool


def collectives(text: str) -> Iterator[Collective]:
    """The operations between devices in a compiled program."""
    for line in text.splitlines():
        match = re.search(rf"= (.*?) ({COLLECTIVES})(?:-start)?\(", line)
        if match is None:
            continue
        arrays = re.findall(r"(\w+)\[([\d,]*)\]", match[1])
        sizes = [
            SIZES[dtype] * math.prod(int(axis) for axis in shape.split(",") if axis)
            for dtype, shape in arrays
        ]
        yield Collective(match[2], sum(sizes), line.count("while/body") > 1)


def plan(num_devices: int) -> dict[str, Any]:
    """What the steps of `shapes_attention` send and hold on a mesh of all devices."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding

    from configs import shapes_attention
    from flax_attn.experiment.building import build_model, count_parameters
    from flax_attn.experiment.config import Config
    from flax_attn.experiment.programs import make_programs
    from flax_attn.training.mesh import EVERYWHERE, SEEDS

    values = shapes_attention.get_config()
    changes = {"num_seeds": max(1, num_devices // GROUP), "batch_size": BATCH}
    values.update_from_flattened_dict(changes | {"steps_per_epoch": 10, "data.num_train": 1_000})
    config = Config.of(values)
    task = config.task_class.load(config.data, config.recipe, None)
    programs = make_programs(config, build_model(config, task.kept.sizes), task)

    def shapes(tree: Any, spec: Any, leading: tuple[int, ...] = ()) -> Any:
        sharding = NamedSharding(programs.mesh, spec)
        shape_of = lambda leaf: jax.ShapeDtypeStruct(
            (*leading, *leaf.shape), leaf.dtype, sharding=sharding
        )
        return jax.tree.map(shape_of, tree)

    one = jax.eval_shape(programs.one_seed.create, np.uint32(0))
    states = shapes(one, SEEDS, (config.num_seeds,))
    rows = shapes(task.rows.train, EVERYWHERE)
    sums = jax.eval_shape(programs.one_seed.first_metrics, one, rows)
    places = (np.int32(1), np.int32(0), np.int32(10))
    sums = shapes(sums, SEEDS, (config.num_seeds,))
    compiled = programs.train_steps.lower(states, sums, *places, rows).compile()
    sent = list(collectives(compiled.as_text()))
    return {
        "devices": num_devices,
        "seeds": programs.mesh.shape["seed"],
        "data": programs.mesh.shape["data"],
        "parameters": count_parameters(one.params),
        "bytes_step": sum(one.bytes for one in sent if one.in_step),
        "bytes_around": sum(one.bytes for one in sent if not one.in_step),
        "formula": 4 * count_parameters(one.params) if programs.mesh.shape["data"] > 1 else 0,
        "temporary": compiled.memory_analysis().temp_size_in_bytes,
    }


def plan_elsewhere(num_devices: int) -> dict[str, Any]:
    """Runs `plan` in a process of its own. Its CPU pretends to have `num_devices` devices."""
    flag = f"--xla_force_host_platform_device_count={num_devices}"
    environment = os.environ | {"XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.scale", "--plan", str(num_devices)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.subplots()
    devices = [row["devices"] for row in rows]
    ax.plot(devices, [row["bytes_step"] / 1e3 for row in rows], "o-", label="planned by XLA")
    ax.plot(devices, [row["formula"] / 1e3 for row in rows], "--", label="gradients: 4p")
    ax.set_xscale("log", base=2)
    ax.set(xlabel="devices", ylabel="kB added up in a step", ylim=(0, None))
    ax.set_title(f"Beyond {GROUP} devices a step sends no more: other groups have other seeds")
    ax.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 8, 64, 512, 2048])
    parser.add_argument("--output", type=Path, default=Path("benchmarks-out"))
    parser.add_argument("--plan", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plan:
        print(json.dumps(plan(args.plan)))
        return
    rows = [plan_elsewhere(number) for number in args.devices]
    args.output.mkdir(exist_ok=True)
    with open(args.output / "scale.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, args.output / "scale.png")
    for row in rows:
        print("  ".join(f"{name} {value:,}" for name, value in row.items()))


if __name__ == "__main__":
    main()
