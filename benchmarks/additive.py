"""Seconds and memory of additive attention of width 64, forward and backward, by length: PyTorch's
plain form, ours, ours in blocks.

    python -m benchmarks.additive [--repeats 3] [--lengths 256 512 ...] [--output benchmarks-out]

Each is measured in a process of its own: the median time after a warm-up, and the peak of resident
memory over what stood there before (on Linux).
"""

import argparse
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import timing

WIDTH, CHUNK = 64, 128
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
TORCH, DENSE, BLOCKS = "PyTorch", "flax_attn, dense", f"flax_attn, in blocks of {CHUNK}"
# and the longest that is measured: 4,096 take 13 GiB there
FORMS = {TORCH: 2048, DENSE: 4096, BLOCKS: 16384}


def arrays(length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,), *((1, length, WIDTH),) * 3]
    return [
        rng.normal(size=shape).astype(np.float32) / (8 if len(shape) < 3 else 1) for shape in shapes
    ]


def build_torch(length: int) -> Callable[[], float]:
    import torch

    kernels = [torch.from_numpy(array).requires_grad_() for array in arrays(length)]

    def step() -> float:
        query_kernel, key_kernel, vector, query, key, value = kernels
        scores = (
            torch.tanh((query @ query_kernel)[:, :, None] + (key @ key_kernel)[:, None]) @ vector
        )
        loss = (scores.softmax(-1) @ value).square().mean()
        torch.autograd.grad(loss, kernels)
        return loss.item()

    return step


def build_ours(length: int, chunk_size: int | None) -> Callable[[], float]:
    import jax
    import jax.numpy as jnp

    from flax_attn.attention import additive, attend

    @jax.jit
    @jax.value_and_grad
    def gradient(kernels: list[Any]) -> Any:
        query_kernel, key_kernel, vector, query, key, value = kernels
        score = functools.partial(
            additive, query_kernel=query_kernel, key_kernel=key_kernel, vector=vector
        )
        return jnp.square(
            attend(
                query, key, value, score=score, chunk_size=chunk_size, need_weights=False
            ).context
        ).mean()

    kernels = [jnp.asarray(array) for array in arrays(length)]
    return lambda: float(jax.block_until_ready(gradient(kernels))[0])


def child(form: str, length: int, repeats: int) -> None:
    """Prints seconds, GiB and the loss."""
    step = (
        build_torch(length)
        if form == TORCH
        else build_ours(length, None if form == DENSE else CHUNK)
    )
    before = held("VmRSS")
    loss = step()
    seconds = timing.alternate({form: step}, repeats)[form]
    kibibytes = max(held("VmHWM") - before, 2**10)  # less than a MiB cannot be told
    print(json.dumps([seconds, kibibytes / 2**20, loss]))


def held(name: str) -> int:
    """Kibibytes of memory that this program holds (`VmRSS`) or held at once (`VmHWM`); `getrusage`
    counts its parent's with it.
    """
    (kibibytes,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kibibytes)


def measure(form: str, length: int, repeats: int) -> tuple[float, float, float]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.additive",
        "--child",
        form,
        "--lengths",
        str(length),
        "--repeats",
        str(repeats),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def sweep(lengths: list[int], repeats: int) -> dict[str, dict[int, tuple[float, float]]]:
    """Seconds and GiB by form and length; the losses of one length are checked to agree."""
    figures_by_form: dict[str, dict[int, tuple[float, float]]] = {form: {} for form in FORMS}
    for length in lengths:
        losses = []
        for form in (form for form, longest in FORMS.items() if length <= longest):
            *figures, loss = measure(form, length, repeats)
            figures_by_form[form][length] = tuple(figures)
            losses.append(loss)
        assert np.ptp(losses) < 1e-4 * losses[0], f"unequal work at length {length}: {losses}"
    return figures_by_form


def rows(quick: bool) -> Iterator[timing.Row]:
    figures = sweep([1024 if quick else 2048], 1 if quick else 5)
    ((length, (seconds, memory)),) = figures[BLOCKS].items()
    others = {form: of_form[length] for form, of_form in figures.items() if form != BLOCKS}
    yield timing.Row(
        "additive attention",
        f"length {length:,}, time",
        "s",
        seconds,
        {peer: pair[0] for peer, pair in others.items()},
    )
    yield timing.Row(
        "additive attention",
        f"length {length:,}, memory",
        "GiB",
        memory,
        {peer: pair[1] for peer, pair in others.items()},
    )


def draw(figures: dict[str, dict[int, tuple[float, float]]], machine: str = "") -> Any:
    """Time and memory over length."""
    from flax_attn.analysis.drawing import BLUE, GREY, ORANGE, Picture, styled, theme

    lines = {TORCH: (ORANGE, "s", "--"), DENSE: (GREY, "D", ":"), BLOCKS: (BLUE, "o", "-")}

    @styled
    def make() -> Any:
        figure = Picture(figsize=(8.3, 4.0), layout="constrained")
        axes = figure.subplots(1, 2)
        for i, (ax, label) in enumerate(zip(axes, ("seconds", "GiB at the peak"))):
            for form, (colour, marker, dash) in lines.items():
                of_form = {length: pair[i] for length, pair in figures[form].items()}
                ax.loglog(*zip(*of_form.items()), dash, color=colour, marker=marker, label=form)
            ax.set_xlabel("length of queries and keys")
            ax.set_title(label, loc="left", fontsize=10)
            ticks = LENGTHS[::2]
            ax.set_xticks(ticks, [f"{length:,}" for length in ticks])
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.minorticks_off()
            ax.grid(alpha=0.25)
        axes[0].legend(fontsize=9)
        longest = max(figures[BLOCKS])
        memory = f"{figures[BLOCKS][longest][1]:.2f} GiB at length {longest:,}"
        title = f"In blocks, the memory of additive attention stays flat: {memory}"
        figure.suptitle(title, x=0.01, ha="left", weight="bold")
        small = f"width {WIDTH}, batch 1, forward and backward{machine and f'; {machine}'}"
        figure.supxlabel(small, fontsize=9, color=theme().quiet)
        return figure

    return make()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument(
        "--output", type=Path, default=Path("benchmarks-out"), help="a folder for the figure"
    )
    parser.add_argument("--child", choices=FORMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if max(args.lengths) > max(FORMS.values()):
        parser.error(
            f"expected --lengths of at most {max(FORMS.values()):,}, got {max(args.lengths):,}"
        )
    if args.child:
        child(args.child, args.lengths[0], args.repeats)
        return
    from rich.console import Console
    from rich.table import Table

    from flax_attn.analysis.drawing import save

    figures = sweep(args.lengths, args.repeats)
    table = Table(
        "length",
        *(f"{form}, {unit}" for form in FORMS for unit in ("s", "GiB")),
        title=timing.machine(),
    )
    for length in args.lengths:
        cells = [f"{value:.3f}" for form in FORMS for value in figures[form].get(length, ())]
        table.add_row(f"{length:,}", *[*["-"] * (6 - len(cells)), *cells])
    Console(width=120).print(table)
    print(f"wrote {save(draw(figures, timing.machine()), args.output / 'additive.png')}")


if __name__ == "__main__":
    main()
