"""Memory of attention, forward and backward, each case in a process of its own.

*Peak* is the peak of resident memory over what stood there before the compilation (on Linux).
*Buffers* is what XLA plans for results and all that is between: it is exact, and holds nothing of
the compilation.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator

import jax

from benchmarks import attention_cases as cases
from benchmarks.additive import held
from benchmarks.attention_forms import missing, program
from benchmarks.attention_rows import Row

HEADS = 4
LONG, PAIR = 65536, (8192, 16384)
MAKERS = {
    "window": cases.window,
    "causal": cases.causal,
    "key_lengths": cases.key_lengths,
    "segments": cases.segments,
}


def rows(shrink: int, repeats: int) -> Iterator[Row]:
    """GiB of a long window, then of each case at a length and at twice this length.

    Memory needs no repeats.
    """
    yield row("window", LONG // shrink)
    for kind, make in MAKERS.items():
        case = make(PAIR[0] // shrink, HEADS)
        if names := missing(case):
            yield Row.of(case, note=f"skipped: no {names[0]}=")
            continue
        first, second = (row(kind, length // shrink) for length in PAIR)
        yield first
        figures = zip(first.figures, second.figures.values(), first.figures.values())
        ratios = {f"{name} / half the length": long / short for name, long, short in figures}
        yield second._replace(ratios=ratios)


def row(name: str, length: int) -> Row:
    """Measures in a new process."""
    command = [sys.executable, "-m", "benchmarks.attention_memory", name, str(length)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    peak, buffers = json.loads(done.stdout.splitlines()[-1])
    figures = {"peak": peak, "buffers": buffers}
    return Row.of(MAKERS[name](length, HEADS), "forward and backward", "GiB", figures)


def measure(name: str, length: int) -> tuple[float, float]:
    """GiB of the process at its peak, and of XLA's buffers."""
    function, arguments = program(MAKERS[name](length, HEADS), backward=True)
    before = held("VmRSS")
    compiled = function.lower(*arguments).compile()
    jax.block_until_ready(compiled(*arguments))
    sizes = compiled.memory_analysis()
    buffers = sizes.temp_size_in_bytes + sizes.output_size_in_bytes
    return (held("VmHWM") - before) / 2**20, buffers / 2**30


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MAKERS)
    parser.add_argument("length", type=int)
    args = parser.parse_args()
    print(json.dumps(measure(args.name, args.length)))
