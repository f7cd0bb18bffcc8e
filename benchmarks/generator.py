"""Time to make shapes examples, ours and the tutorial's algorithm in PyTorch.

    python -m benchmarks.generator [--num 25000] [--repeats 5]

The tutorial draws as many proposals as rows are missing, rasterises them all, keeps the valid ones,
and calls itself for the rest. Ours tests proposals on the ends of their intervals, and rasterises
only those it keeps.
"""

import argparse
from collections.abc import Iterator

import jax
import numpy as np
import torch
from torch.nn import functional

from benchmarks import timing
from flax_attn.data import shapes


def rasterise(triangles: torch.Tensor, boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Signals with noise, and whether shapes collide; shapes are `(n, 2, 3)` of centre, height,
    width.
    """
    time = torch.arange(100.0)[None, :, None]
    (ct, ht, wt), (cb, hb, wb) = (part[:, None].unbind(-1) for part in (triangles, boxes))
    triangle = torch.relu(ht - torch.relu((time - ct).abs() - 0.5) * 2 * ht / wt)
    box = torch.relu(hb - ((time - cb) * 2 * hb / wb).abs()).sign() * hb
    signals = torch.cat([triangle, box], dim=2)  # (n, 100, 4)
    covered = functional.max_pool1d(signals.sign().transpose(1, 2), kernel_size=2, stride=1)
    signal = signals.amax(dim=2)
    return signal + torch.rand_like(signal) * 0.3 - 0.15, (covered.sum(dim=1) > 1).any(dim=1)


def torch_generate(n: int) -> tuple[torch.Tensor, ...]:
    low, high = torch.tensor([5.5, 1.0, 5.0]), torch.tensor([94.5, 25.0, 11.0])
    triangles, boxes = (low + (high - low) * torch.rand(n, 2, 3) for _ in range(2))
    inputs, collide = rasterise(triangles, boxes)
    valid = ((triangles[:, 0, 1] - triangles[:, 1, 1]).abs() > 4) & ~collide
    for part in (triangles, boxes):
        part[:, :, 1] = part[:, :, 1].mean(dim=1, keepdim=True)
    targets, _ = rasterise(triangles, boxes)
    rows = tuple(part[valid] for part in (inputs, targets, triangles, boxes))
    missing = n - len(rows[0])
    return (
        rows
        if missing == 0
        else tuple(torch.cat(pair) for pair in zip(rows, torch_generate(missing)))
    )


def measure(number: int, repeats: int) -> dict[str, float]:
    """Milliseconds by peer.

    Raises an AssertionError where mean or deviation of the signals differ by more than 2 in 100.
    """
    generate = jax.jit(shapes.generate, static_argnums=1)
    ours, theirs = generate(jax.random.key(0), number), torch_generate(number)
    for name, mine, other in (("mean", np.mean, torch.mean), ("deviation", np.std, torch.std)):
        assert (
            abs(mine(np.concatenate(ours[:2])) / float(other(torch.cat(theirs[:2]))) - 1) < 0.02
        ), f"unequal {name}"
    turns = {
        "ours": lambda: jax.block_until_ready(generate(jax.random.key(0), number)),
        "PyTorch": lambda: torch_generate(number),
    }
    return {peer: 1e3 * seconds for peer, seconds in timing.alternate(turns, repeats).items()}


def rows(quick: bool) -> Iterator[timing.Row]:
    number, repeats = (5_000, 1) if quick else (25_000, 15)
    times = measure(number, repeats)
    yield timing.Row("generator", f"{number:,} shapes examples", "ms", times.pop("ours"), times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num", type=int, default=25_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    ours, torch = measure(args.num, args.repeats).values()
    print(timing.machine())
    print(
        f"{args.num:,} rows: {ours:.1f} ms, in PyTorch {torch:.1f} ms, {torch / ours:.1f} "
        f"times as long"
    )


if __name__ == "__main__":
    main()
