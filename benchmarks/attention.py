"""Attention itself: time and memory on this machine, beside PyTorch's SDPA and flex_attention.

    python -m benchmarks.attention [--only NAME ...] [--repeats 5] [--output benchmarks-out]

Arrays are float32, batch 1, heads of 64: 4 heads from a length of 8,192 on, else 8. Each side has
its arrays in its own order of axes. Equal work is checked before it is timed: contexts and
gradients agree to 1e-4 of the largest number. Calls take turns in one process. Figures are medians
after a warm-up. The backward pass is that of the sum of squares of the context. `--only` runs some
of these groups:

    sdpa       ours without weights beside SDPA: all keys and causal, 512 to 8,192
    jax        ours beside jax.nn and flax.linen, 128 to 2,048
    causal     ours causal beside ours over all keys, 4,096
    weights    what a mask costs where the weights are returned, 512 and 2,048
    window     a causal window of 256 beside all keys and flex_attention, 8,192; 8,192 to 65,536
    visible    lengths, segments and a mask of positions beside all keys, 8,192
    memory     buffers that XLA plans for each case, 8,192 to 65,536
    decoding   one query with a cache of 4,096 keys beside SDPA, batch 1 and 16
    figure     time over length for all keys, causal and a window, as a picture

It prints a table for each group and writes `attention.jsonl`, one line a row, and `attention.png`.
PyTorch compiles flex_attention with a C++ compiler, which must be there.
"""

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console

from benchmarks import attention_figure, timing
from benchmarks import attention_groups as groups
from benchmarks.attention_rows import Row, tabulate
from flax_attn.analysis.drawing import save

GROUPS: dict[str, Callable[[int, int], Iterator[Row]]] = {
    "sdpa": groups.against_sdpa,
    "jax": groups.against_jax,
    "causal": groups.causal,
    "weights": groups.weights,
    "window": groups.window,
    "visible": groups.visible,
    "memory": groups.memory,
    "decoding": groups.decoding,
    "figure": attention_figure.rows,
}
SHRINK = 16  # by which `--quick` divides lengths


def run(name: str, sizes: tuple[int, int], file: TextIO) -> tuple[list[Row], bool]:
    """Returns the rows of one group, which are written, and whether the group reached its end."""
    rows, whole = [], True
    try:
        for row in GROUPS[name](*sizes):
            rows.append(row)
            file.write(row.line(name))
            file.flush()
    except Exception:
        whole = False
        print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr)
    return rows, whole


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attention",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="NAME", help="groups")
    add("--repeats", type=int, default=5, help="turns of each call")
    add("--output", type=Path, default=Path("benchmarks-out"), help="folder for rows and figure")
    add("--quick", action="store_true", help=argparse.SUPPRESS)  # tiny lengths: tries the program
    args = parser.parse_args()
    sizes = (SHRINK, 1) if args.quick else (1, args.repeats)  # what divides lengths, and repeats
    args.output.mkdir(parents=True, exist_ok=True)
    console, failed = Console(width=None if sys.stdout.isatty() else 160), []
    console.print(timing.machine())
    with open(args.output / "attention.jsonl", "w") as file:
        for name in args.only:
            rows, whole = run(name, sizes, file)
            console.print(tabulate(name, rows))
            if not whole:
                failed.append(name)
            elif name == "figure":
                print(f"wrote {save(attention_figure.draw(rows), args.output / 'attention.png')}")
    print(f"wrote {args.output / 'attention.jsonl'}")
    if failed:
        sys.exit(f"failed, see above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
