"""All comparisons, side by side in one process tree: a table of ratios, one JSON line a row, and a
figure of the training steps.

    python -m benchmarks [--quick] [--only NAME ...] [--output benchmarks-out]

Pairs take turns, so that a noisy machine disturbs both alike. Figures are medians after a warm-up,
and a ratio is what the peer takes divided by what ours takes. `--quick` takes few turns, and
about eleven minutes on two cores.
"""

import argparse
import functools
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import jax
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks import attention, language, linear, ratios, steps, timing, waiting
from flax_attn.analysis.drawing import save

COMPARISONS: dict[str, Callable[[bool], Iterable[timing.Row]]] = {
    **{f"training step, {name}": functools.partial(steps.rows, name=name) for name in steps.CASES},
    "language": language.rows,
    "published model": waiting.published,
    "predict": waiting.predictions,
    "commands": waiting.commands,
    "attention": attention.rows,
    "linear attention": linear.rows,
    "bfloat16": steps.precision,
}


def run(names: list[str], quick: bool, failed: list[str]) -> Iterator[timing.Row]:
    """Yields the rows of comparisons. One that fails is printed and added to `failed`."""
    for name in names:
        try:
            yield from COMPARISONS[name](quick)
        except Exception:
            print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr)
            failed.append(name)


def tabulate(rows: list[timing.Row]) -> Table:
    table = Table(
        "comparison", "case", "ours", "peer", "its figure", "ratio", title=timing.machine()
    )
    for row in rows:
        cells = row.comparison, row.case, f"{row.ours:.4g} {row.unit}"
        for peer, ratio in row.ratios().items():
            table.add_row(*cells, peer, f"{row.peers[peer]:.4g} {row.unit}", f"{ratio:.2f}")
        if not row.peers:
            table.add_row(*cells)
    return table


def draw(rows: list[timing.Row]) -> Figure:
    """Draws the ratios of the training steps. The other comparisons are in the table alone."""
    steps = [row for row in rows if row.comparison == "training step"]
    return ratios.draw({row.case: row.ratios() for row in steps})


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few turns")
    names = list(COMPARISONS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("benchmarks-out"),
        help="a folder for the rows and the figure",
    )
    args = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)  # compiling is measured, too
    args.output.mkdir(parents=True, exist_ok=True)
    rows, failed = [], []
    with open(args.output / "rows.jsonl", "w") as file:
        for row in run(args.only, args.quick, failed):
            rows.append(row)
            file.write(
                json.dumps({"machine": timing.machine()} | row._asdict() | {"ratios": row.ratios()})
                + "\n"
            )
            file.flush()
            print(
                row.comparison,
                row.case,
                f"{row.ours:.4g} {row.unit}",
                {peer: round(ratio, 2) for peer, ratio in row.ratios().items()},
                flush=True,
            )
    Console(width=120).print(tabulate(rows))
    print(f"wrote {args.output / 'rows.jsonl'}")
    if any(row.comparison == "training step" for row in rows):
        print(f"wrote {save(draw(rows), args.output / 'ratios.png')}")
    if failed:
        sys.exit(f"failed, see above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
