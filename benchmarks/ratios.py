"""The picture of training steps: the time of each peer divided by ours, by model."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from flax_attn.analysis.drawing import GREY, ORANGE, SKY, YELLOW, Picture, styled, theme

STYLES: dict[str, dict[str, Any]] = {
    "PyTorch": {"color": ORANGE, "marker": "D", "s": 38},
    "torch.compile": {"facecolor": "none", "edgecolor": GREY, "marker": "o", "s": 110},
    "flax.linen": {"color": YELLOW, "marker": "^", "s": 46},
    "Keras 3": {"color": SKY, "marker": "v", "s": 46},
}


@styled
def draw(ratios: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draws a row for each model, and a mark in it for each peer."""
    figure = Picture(figsize=(8.3, 0.34 * len(ratios) + 1.9), layout="constrained")
    ax = figure.subplots()
    for peer, style in STYLES.items():
        points = [(of[peer], i) for i, of in enumerate(ratios.values()) if peer in of]
        if points:
            ax.scatter(*zip(*points), **style, label=peer, zorder=3)
    ax.axvline(1, color=theme().ink, lw=1.2)
    ax.text(1, -0.75, "this library", ha="center", va="bottom", fontsize=9)
    ax.set_yticks(range(len(ratios)), list(ratios))
    largest = max(ratio for of in ratios.values() for ratio in of.values())
    ax.set(xlim=(0, 1.06 * max(largest, 1)), ylim=(len(ratios) - 0.5, -0.6))
    ax.set_xlabel("time of a training step, divided by that of this library (right: slower)")
    ax.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=4)
    figure.suptitle(message(ratios), x=0.01, ha="left", weight="bold")
    return figure


def message(ratios: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the range of the ratios of PyTorch and of linen, as a title."""
    said = []
    for peer in ("PyTorch", "flax.linen"):
        of_peer = [of[peer] for of in ratios.values() if peer in of]
        if of_peer:
            said.append(f"{peer} {min(of_peer):.1f} to {max(of_peer):.1f} times as long")
    return f"A training step takes {' and '.join(said)}"
