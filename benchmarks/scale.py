"""What many devices send and hold, as XLA plans it, and how fast many seeds train.

    python -m benchmarks.scale [--devices 1 8 64 512 2048] [--lengths 8192 32768 131072 524288]
        [--seeds 1 2 4 8 16] [--output benchmarks-out]

Only the seeds run, on the devices that there are. For the rest a CPU pretends to have many devices,
and programs are only compiled.

It writes the tables `scale_bytes.csv`, `scale_memory.csv` and `scale_seeds.csv`, and a figure
`scale.png`.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import BLUE, CYCLE, DASHES, ORANGE, Picture, save, styled

Table = list[dict[str, Any]]


def plan(part: str, numbers: list[int]) -> Table:
    """The table of one part, made in this process."""
    if part == "bytes":
        from benchmarks import scale_bytes

        return [scale_bytes.sent(number) for number in numbers]
    if part == "memory":
        from benchmarks import scale_memory

        return scale_memory.rows(numbers)
    from benchmarks import scale_seeds

    return scale_seeds.rows(numbers)


def plan_elsewhere(part: str, numbers: list[int], devices: int | None) -> Table:
    """`plan` in a process of its own. Its CPU pretends to have `devices` devices."""
    environment = dict(os.environ)
    if devices is not None:
        flag = f"--xla_force_host_platform_device_count={devices}"
        environment |= {"XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.scale", "--plan", part, *map(str, numbers)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def number_axis(ax: Axes, numbers: list[int]) -> None:
    """An x axis of powers, with the numbers as they are."""
    ax.set_xscale("log", base=2)
    ax.set_xticks(numbers, [f"{number:,.0f}" for number in numbers])
    ax.minorticks_off()


def draw_bytes(ax: Axes, rows: Table) -> None:
    devices = [row["devices"] for row in rows]
    sent, formula = ([row[name] / 1e3 for row in rows] for name in ("bytes_step", "formula"))
    ax.plot(devices, sent, "o-", color=BLUE, label="planned by XLA")
    ax.plot(devices, formula, "--", color=ORANGE, label="gradients alone, by the formula")
    number_axis(ax, devices)
    ax.set(xlabel="devices", ylabel="kB added up in a step", ylim=(0, None))
    is_flat = len(set(sent[1:])) == 1
    title = f"Beyond {devices[1]} devices a step sends no more" if is_flat else "A step"
    ax.set_title(title, loc="left")
    ax.legend(fontsize=9)


def draw_memory(ax: Axes, rows: Table) -> None:
    lengths = [row["length"] for row in rows]
    for name, colour, dash, dot in zip(list(rows[0])[1:], CYCLE, DASHES, "osD^"):
        in_gib = [float(row[name]) / 1024 for row in rows]
        ax.plot(lengths, in_gib, ls=dash, marker=dot, ms=5, color=colour, label=name)
    number_axis(ax, lengths)
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter("{x:.4g}")
    ax.set(xlabel="length", ylabel="GiB on a device")
    ax.set_ylim(top=16 * ax.get_ylim()[1])  # room for the legend
    one, _, on_ring, _ = list(rows[-1].values())[1:]
    ax.set_title(f"A ring of 8 devices holds {one / on_ring:.0f} times the length", loc="left")
    ax.legend(fontsize=9)


def draw_seeds(ax: Axes, rows: Table) -> None:
    seeds = [row["seeds"] for row in rows]
    ax.plot(seeds, [row["steps_a_second"] for row in rows], "o-", color=BLUE)
    number_axis(ax, seeds)
    ax.set(xlabel="seeds in one program", ylabel="steps a second, of all seeds")
    ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
    ax.set_title("Seeds on the devices here")


@styled
def draw(tables: dict[str, Table]) -> Figure:
    """A panel for each table."""
    panels = {"bytes": draw_bytes, "memory": draw_memory, "seeds": draw_seeds}
    figure = Picture(figsize=(8.3 if len(tables) > 1 else 5.0, 3.8), layout="constrained")
    for ax, (part, rows) in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables.items()):
        panels[part](ax, rows)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    lengths = [8_192, 32_768, 131_072, 524_288]
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 8, 64, 512, 2048])
    parser.add_argument("--lengths", type=int, nargs="*", default=lengths)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--output", type=Path, default=Path("benchmarks-out"))
    parser.add_argument("--plan", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plan:  # in a process of its own
        print(json.dumps(plan(args.plan[0], [int(number) for number in args.plan[1:]])))
        return
    args.output.mkdir(parents=True, exist_ok=True)
    tables = {
        "bytes": [plan_elsewhere("bytes", [n], n)[0] for n in args.devices],
        "memory": plan_elsewhere("memory", args.lengths, 8),
        "seeds": plan_elsewhere("seeds", args.seeds, None),
    }
    for part, rows in tables.items():
        if not rows:
            continue
        for row in rows:
            print("  ".join(f"{name} {value:,}" for name, value in row.items()))
        with open(args.output / f"scale_{part}.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    save(draw({part: rows for part, rows in tables.items() if rows}), args.output / "scale.png")


if __name__ == "__main__":
    main()
