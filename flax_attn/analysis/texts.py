"""Pictures of texts in classes: tokens with their weights."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flax_attn.analysis.classes import confusion_matrix
from flax_attn.analysis.drawing import GREEN, HEAT, ORANGE, TICKS, of_weight, styled
from flax_attn.analysis.runs import Run

SHOWN = 8


def draw(run: Run) -> dict[str, Figure]:
    """All pictures of a run on texts, by name."""
    examples, classes = run.examples, run.config["derived"]["classes"]
    drawn = {"confusion": confusion_matrix(run)}
    for name, weights in run.attention.items():
        words = [row[:length].tolist() for row, length in zip(examples["words"], examples["lengths"])]
        said = [verdict(p, classes, target) for p, target in zip(examples["predictions"], examples["targets"].tolist())]
        drawn[name] = attention_on_tokens(words[:SHOWN], list(weights[:SHOWN]), said[:SHOWN], f"{run.name}: test examples")
        if weights.ndim == 3 and words[0]:
            drawn[f"{name}_map"] = attention_map(words[0], weights[0], f"{run.name}: test example 0, {said[0][0]}")
    return drawn


def verdict(probabilities: np.ndarray, classes: list[str], target: int | None = None) -> tuple[str, str]:
    """The class that is predicted, with its probability, and the colour to say it in; a wrong one says the right one too."""
    best = int(np.argmax(probabilities))
    said = f"{classes[best]} ({probabilities[best]:.0%})"
    if target is None:
        return said, "black"
    return (said, GREEN) if best == target else (f"{said}, not {classes[target]}", ORANGE)


def over_tokens(weights: np.ndarray, length: int) -> np.ndarray:
    """One weight a token: as they are, or the mean over hops or over the queries that are real, for those of padding say nothing."""
    rows = weights.reshape(-1, weights.shape[-1])
    return (rows[:length] if len(rows) == weights.shape[-1] else rows).mean(axis=0)[:length]


@styled
def attention_on_tokens(words: list[list[str]], weights: list[np.ndarray], said: list[tuple[str, str]], title: str) -> Figure:
    """Texts, one a row, each token on the colour of its weight; weights `(q, k)` or `(hops, k)` are shown as their mean."""
    width, lines = 100, []
    for tokens, row, (verdict, colour) in zip(words, weights, said):
        lines.append([(verdict, None, colour)])
        used = width + 1
        for token, weight in zip(tokens, over_tokens(row, len(tokens))):
            if used + len(token) + 1 > width:
                lines.append([])
                used = 0
            lines[-1].append((token, float(weight), ""))
            used += len(token) + 1
        lines.append([])
    figure, ax = plt.subplots(figsize=(10.5, 0.27 * len(lines) + 1.2), layout="constrained")
    ax.set_xlim(0, width)
    ax.set_ylim(len(lines), 0)
    ax.axis("off")
    for number, line in enumerate(lines):
        write(ax, number, line)
    ax.set_title(title, loc="left")
    figure.colorbar(
        plt.cm.ScalarMappable(HEAT["norm"], HEAT["cmap"]), ax=ax, label="attention weight", ticks=TICKS, shrink=min(1.0, 8 / len(lines))
    )
    return figure


def write(ax: Axes, number: int, line: list[tuple[str, float | None, str]]) -> None:
    """A line of tokens on their colours, or of a verdict in bold."""
    at = 0.0
    for token, weight, colour in line:
        if weight is None:
            ax.text(at, number + 0.5, token, color=colour, va="center", weight="bold", fontsize=9)
            continue
        back, front = of_weight(weight)
        box = {"facecolor": back, "edgecolor": "none", "pad": 1.6}
        ax.text(at, number + 0.5, token, va="center", family="monospace", fontsize=8.5, color=front, bbox=box)
        at += len(token) + 1


@styled
def attention_map(words: list[str], weights: np.ndarray, title: str) -> Figure:
    """The attention matrix of one text, keys across and queries down, tokens on both axes; of hops one row each."""
    own = weights.shape[0] == weights.shape[1]
    weights = weights[: len(words) if own else None, : len(words)]
    size = 0.32 * len(words) + 2
    figure, ax = plt.subplots(figsize=(size + 1.5, 0.32 * len(weights) + 2.2), layout="constrained")
    image = ax.imshow(weights, **{**HEAT, "origin": "upper"}, aspect="auto")
    ax.set_xticks(range(len(words)), words, rotation=60, ha="right", fontsize=8)
    ax.set_yticks(range(len(weights)), words if own else [str(i) for i in range(len(weights))], fontsize=8)
    ax.set(xlabel="key: the token that is attended to", ylabel="query: the token that attends" if own else "hop")
    ax.set_title(title)
    figure.colorbar(image, ax=ax, label="attention weight", ticks=TICKS)
    return figure
