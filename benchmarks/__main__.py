"""All comparisons, side by side in one process tree: a table of ratios, one JSON line a row, and a
figure.

    python -m benchmarks [--quick] [--output benchmarks-out]

Pairs take turns, so that a noisy machine disturbs both alike; figures are medians after a warm-up,
and a ratio is what the peer takes over what ours takes; `products alone` is no peer but the limit
of `benchmarks.limit`. `--quick` takes one turn each and leaves out what is long.
"""

import argparse
import functools
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks import additive, generator, language, seeds, startup, steps, time_to_error, timing
from flax_attn.analysis.drawing import BLUE, CYCLE, Picture, save

TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
COMPARISONS: dict[str, Callable[[bool], Iterable[timing.Row]]] = {
    "start": startup.rows,
    "generator": generator.rows,
    **{f"training step, {name}": functools.partial(steps.rows, name=name) for name in steps.CASES},
    "additive attention": additive.rows,
    "language": language.rows,
    "seeds": seeds.rows,
    "time to an error": time_to_error.rows,
}


def run(quick: bool, failed: list[str]) -> Iterator[timing.Row]:
    """The rows of all comparisons.

    One that fails is told and added to `failed`, and the others go on.
    """
    for name, rows in COMPARISONS.items():
        try:
            yield from rows(quick)
        except Exception:
            print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr)
            failed.append(name)


def tabulate(rows: list[timing.Row]) -> Table:
    table = Table(
        "comparison", "case", "ours", "peer", "its figure", "ratio", title=timing.machine()
    )
    for row in rows:
        for peer, ratio in row.ratios().items():
            figures = (
                f"{row.ours:.4g} {row.unit}",
                peer,
                f"{row.peers[peer]:.4g} {row.unit}",
                f"{ratio:.2f}",
            )
            table.add_row(row.comparison, row.case, *figures)
    return table


def draw(rows: list[timing.Row]) -> Figure:
    """A dot for the ratio of each peer, by row."""
    peers = list(dict.fromkeys(peer for row in rows for peer in row.peers))
    figure = Picture(figsize=(9, 0.35 * len(rows) + 1.5), layout="constrained")
    ax = figure.subplots()
    for i, peer in enumerate(peers):
        points = [(row.ratios()[peer], j) for j, row in enumerate(rows) if peer in row.peers]
        ax.scatter(
            *zip(*points),
            color=(BLUE, *CYCLE)[i % 6],
            marker="osD^vP*X"[i % 8],
            label=peer,
            zorder=3,
        )
    ax.axvline(1, color="#222222", linewidth=1)
    ax.set_yticks(range(len(rows)), [f"{row.comparison}: {row.case}" for row in rows])
    ax.set(
        xscale="log",
        xlabel="times what ours takes (to the right of 1 ours is ahead)",
        ylim=(len(rows) - 0.5, -0.5),
    )
    ax.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4)
    ax.set_title(f"What the peers take, on\n{timing.machine()}", fontsize=10)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one turn each, without what is long")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("benchmarks-out"),
        help="a folder for the rows and the figure",
    )
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    rows, failed = [], []
    with open(args.output / "rows.jsonl", "w") as file:
        for row in run(args.quick, failed):
            rows.append(row)
            file.write(
                json.dumps({"machine": timing.machine()} | row._asdict() | {"ratios": row.ratios()})
                + "\n"
            )
            file.flush()
            print(
                row.comparison,
                row.case,
                {peer: round(ratio, 2) for peer, ratio in row.ratios().items()},
                flush=True,
            )
    Console(width=120).print(tabulate(rows))
    print(f"wrote {args.output / 'rows.jsonl'} and {save(draw(rows), args.output / 'ratios.png')}")
    if failed:
        sys.exit(f"failed, see above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
