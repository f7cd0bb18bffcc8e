"""Pictures of texts in classes: tokens with their weights."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flax_attn.analysis.classes import confusion_matrix
from flax_attn.analysis.drawing import GREEN, ORANGE, heat_up_to, literal, of_weight
from flax_attn.runs.reading import Record

SHOWN = 8
LABELLED = 60  # rows and columns of a heat map that are large enough for a word each; of more, some have one


def draw(run: Record) -> dict[str, Figure]:
    """All pictures of a run on texts, by name."""
    examples, classes = run.examples, run.config["derived"]["classes"]
    drawn = {"confusion": confusion_matrix(run)}
    for name, weights in run.attention.items():
        words = [row[:length].tolist() for row, length in zip(examples["words"], examples["lengths"])]
        said = [verdict(p, classes, target) for p, target in zip(examples["predictions"], examples["targets"].tolist())]
        over = [over_tokens(name, *each).tolist() for each in zip(weights, map(len, words))]
        drawn[name] = attention_on_tokens(words[:SHOWN], over[:SHOWN], said[:SHOWN], f"{run.name}: {named(name)}test examples")
        if weights.ndim == 3 and words[0]:
            title = f"{run.name}: {named(name)}test example 0, {said[0][0]}"
            drawn[f"{name}_map"] = attention_map(words[0], weights[0], of_hops(name), title)
    return drawn


def verdict(probabilities: np.ndarray, classes: list[str], target: int | None = None) -> tuple[str, str]:
    """The class that is predicted, with its probability, and the colour to say it in; a wrong one says the right one too."""
    best = int(np.argmax(probabilities))
    said = f"{classes[best]} ({probabilities[best]:.0%})"
    if target is None:
        return said, "black"
    return (said, GREEN) if best == target else (f"{said}, not {classes[target]}", ORANGE)


def of_hops(name: str) -> bool:
    """Whether attention of this name is `(hops, k)`, and not of queries `(q, k)`."""
    return name.startswith("hops")


def named(name: str) -> str:
    """What tells the attentions of a model with several of them apart."""
    _, _, part = name.partition("_")
    return f"{part}, " if part else ""


def over_tokens(name: str, weights: np.ndarray, length: int) -> np.ndarray:
    """One weight a token: as they are, or the mean over hops, or over the queries that are real, for those of padding say nothing."""
    if weights.ndim == 1:
        return weights[:length]
    return (weights if of_hops(name) else weights[:length]).mean(axis=0)[:length]


@literal
def attention_on_tokens(words: list[list[str]], weights: list[list[float]], said: list[tuple[str, str]], title: str) -> Figure:
    """Texts, one a row, each token on the colour of its weight."""
    width, lines = 100, []
    for tokens, row, (verdict, colour) in zip(words, weights, said):
        lines.append([(verdict, None, colour)])
        used = width + 1
        for token, weight in zip(tokens, row):
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
    top = max((weight for row in weights for weight in row), default=1.0)
    for number, line in enumerate(lines):
        write(ax, number, line, top)
    ax.set_title(title, loc="left")
    heat, ticks = heat_up_to(top)
    colours = plt.cm.ScalarMappable(heat["norm"], heat["cmap"])
    figure.colorbar(colours, ax=ax, label="attention weight", ticks=ticks, shrink=min(1.0, 8 / len(lines)))
    return figure


def write(ax: Axes, number: int, line: list[tuple[str, float | None, str]], top: float) -> None:
    """A line of tokens on their colours, or of a verdict in bold."""
    at = 0.0
    for token, weight, colour in line:
        if weight is None:
            ax.text(at, number + 0.5, token, color=colour, va="center", weight="bold", fontsize=9)
            continue
        back, front = of_weight(weight, top)
        box = {"facecolor": back, "edgecolor": "none", "pad": 1.6}
        ax.text(at, number + 0.5, token, va="center", family="monospace", fontsize=8.5, color=front, bbox=box)
        at += len(token) + 1


@literal
def attention_map(words: list[str], weights: np.ndarray, hops: bool, title: str) -> Figure:
    """The attention matrix of one text, keys across and queries down, tokens on both axes; of hops one row each."""
    weights = weights[: None if hops else len(words), : len(words)]
    rows = [str(i) for i in range(len(weights))] if hops else words
    width, height = (0.32 * min(count, LABELLED) for count in (len(words), len(rows)))
    figure, ax = plt.subplots(figsize=(width + 3.5, height + 2.2), layout="constrained")
    heat, ticks = heat_up_to(float(weights.max(initial=0)))
    image = ax.imshow(weights, **{**heat, "origin": "upper"}, aspect="auto")
    across, down = (range(0, len(labels), 1 + (len(labels) - 1) // LABELLED) for labels in (words, rows))
    ax.set_xticks(across, [words[i] for i in across], rotation=60, ha="right", fontsize=8)
    ax.set_yticks(down, [rows[i] for i in down], fontsize=8)
    ax.set(xlabel="key: the token that is attended to", ylabel="hop" if hops else "query: the token that attends")
    ax.set_title(title)
    figure.colorbar(image, ax=ax, label="attention weight", ticks=ticks)
    return figure
