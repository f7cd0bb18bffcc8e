"""Seconds until something happens, in processes of their own: imports, and the second start of
`shapes_attention`.

    python -m benchmarks.startup [--repeats 5]

The second start goes until its first epoch begins, with what XLA compiled the first time kept on
disk.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks import timing

PEERS = "import jax, flax.linen, optax"
PAIRS = (
    ("import flax_attn", PEERS),  # which imports nothing by itself
    ("import flax_attn.attention, flax_attn.models", PEERS),
    ("second start", "import jax, flax"),
)
START = """
import sys
from flax_attn.__main__ import main
from flax_attn.runs import directory
begin = directory.begin
def stop(*arguments):  # where the first epoch would begin
    begin(*arguments)
    sys.exit()
directory.begin = stop
main(["train", "shapes_attention", "--workdir=" + sys.argv[1]])
"""


def run(code: str, *arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def measure(repeats: int) -> dict[str, float]:
    """Median seconds by what is started."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"}
        return timing.alternate(
            {
                PEERS: lambda: run(PEERS),
                "import flax_attn": lambda: run("import flax_attn"),
                "import flax_attn.attention, flax_attn.models": lambda: run(
                    "import flax_attn.attention, flax_attn.models"
                ),
                "import jax, flax": lambda: run("import jax, flax"),
                "second start": lambda: run(START, f"{folder}/run", **cache),
            },
            repeats,
        )


def rows(quick: bool) -> Iterator[timing.Row]:
    seconds = measure(1 if quick else 9)
    for name, peer in PAIRS:
        yield timing.Row("start", name, "s", seconds[name], {peer: seconds[peer]})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    seconds = measure(parser.parse_args().repeats)
    print(timing.machine())
    for name, value in seconds.items():
        print(f"{name:50s} {value:.2f} s")
    for name, peer in PAIRS:
        print(f"{name} / {peer}: {seconds[name] / seconds[peer]:.2f}")


if __name__ == "__main__":
    main()
