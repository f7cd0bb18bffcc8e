"""Pictures of language models: the loss along a passage, induction, and what a token looks at."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from flax_attn.analysis import drawing
from flax_attn.analysis.drawing import BLUE, ORANGE, Picture, colour_bar, of_weight, styled
from flax_attn.analysis.matrices import draw_matrix, name_cells
from flax_attn.analysis.token_lines import printable
from flax_attn.runs.reading import Record

SHOWN = 48  # tokens, the last ones


def draw(run: Record) -> dict[str, Figure]:
    """Draws all pictures of a run on language, by name."""
    examples = run.examples
    pictures = {"loss_by_position": loss_by_position(examples["losses"], run.name)}
    if "induction" in examples:
        string = examples["string"].tolist()
        scores, weights = examples["induction"], examples["induction_weights"]
        best = np.unravel_index(scores.argmax(), scores.shape)
        pictures["induction"] = induction(scores, weights[best], string, run.name)
    if "tokens" in examples:
        last = {name: weights[:, -1] for name, weights in run.attention.items()}
        pictures["attention"] = looks(examples["tokens"].tolist(), last, run.name)
    return pictures


@styled
def loss_by_position(losses: np.ndarray, name: str) -> Figure:
    """Draws the loss `(seeds, positions)` over the number of known tokens."""
    figure = Picture(figsize=(8.3, 4.2), layout="constrained")
    ax = figure.subplots()
    known, mean = np.arange(1, losses.shape[1] + 1), losses.mean(axis=0)  # (positions,) each
    ax.plot(known, mean, color=BLUE, lw=1.7)
    if len(losses) > 1:
        least, most = losses.min(axis=0), losses.max(axis=0)
        ax.fill_between(known, least, most, color=BLUE, alpha=0.2, lw=0)
    # a short test has no later tokens
    measured = mean[np.isfinite(mean)]
    late = measured[len(measured) // 2 :].mean()
    ax.axhline(late, color=ORANGE, lw=1, ls="--", label="mean of the second half")
    ax.set(xlabel="tokens that the model knows", ylabel="cross-entropy of the next")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", alpha=0.2)
    ax.legend()
    figure.suptitle(
        f"{name}: the loss is {mean[0]:.2f} where one token is known,\n"
        f"and {late:.2f} in the second half of a passage"
    )
    return figure


@styled
def induction(scores: np.ndarray, weights: np.ndarray, string: Sequence[str], name: str) -> Figure:
    """Draws induction scores `(blocks, heads)`, and the weights `(t, t)` of the best head."""
    block, head = map(int, np.unravel_index(scores.argmax(), scores.shape))
    figure = Picture(figsize=(8.3, 6.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 2.2))
    scale, scale_of_head = drawing.scale_of(scores, 1.0), drawing.scale_of(weights, 1.0)
    draw_matrix(left, scores, **scale)
    for i, j in np.ndindex(*scores.shape):
        number, (_, colour) = f"{scores[i, j]:z.2f}", of_weight(float(scores[i, j]), **scale)
        left.text(j, i, number, ha="center", va="center", color=colour, fontsize=9)
    left.set_aspect("equal")
    left.set_xticks(range(scores.shape[1]), [f"head\n{j}" for j in range(scores.shape[1])])
    left.set_yticks(range(scores.shape[0]), [f"block{i}" for i in range(scores.shape[0])])
    left.set_title("weight on the token that\nfollowed last time")
    draw_matrix(right, weights, mask=np.tri(len(weights), dtype=bool), **scale_of_head)
    tokens = [printable(token) for token in string]
    right.set_aspect("equal")
    name_cells(right.xaxis, tokens, 4.0)
    name_cells(right.yaxis, tokens, 4.0)
    right.set(xlabel="key: the token that is looked at", ylabel="query: the current token")
    best = f"block{block}, head {head}"
    right.set_title(f"{best}, on a string that comes twice")
    colour_bar(figure, **scale_of_head, ax=right, shrink=0.7)
    message = f"{best} puts {scores.max():.2f}\nof its weight on the token that followed last time"
    if scale_of_head["signed"]:
        message = f"{best} gives the token that followed last time\nthe weight {scores.max():.2f}"
    if scores.max() < 0.5:
        message = f"no head looks for what followed last time;\n{best} comes nearest"
    figure.suptitle(f"{name}: {message}")
    return figure


@styled
def looks(tokens: Sequence[str], weights: Mapping[str, np.ndarray], name: str) -> Figure:
    """Draws the weights of the last token: for each block `(heads, t)`, a row for each head."""
    first = max(len(tokens) - SHOWN, 0)
    written = [printable(token) for token in tokens[first:]]
    rows = np.concatenate([of_heads[:, first:] for of_heads in weights.values()])  # (rows, t)
    labels = [
        f"{block}, head {head}"
        for block, of_heads in weights.items()
        for head in range(len(of_heads))
    ]
    others = rows[:, :-1] if rows.shape[1] > 1 else rows  # without the last token itself
    row, column = map(int, np.unravel_index(np.abs(others).argmax(), others.shape))
    scale = drawing.scale_of(rows, 1.0)
    height = 1.8 + 0.22 * len(labels)
    figure = Picture(figsize=(8.3, height), layout="constrained")
    ax = figure.subplots()
    draw_matrix(ax, rows, **scale)
    ax.set_xticks(range(len(written)), written, family="monospace", fontsize=9)
    if max(map(len, written)) > 2:
        ax.tick_params(axis="x", rotation=90)
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    ax.tick_params(axis="x", length=0)
    ax.set_xlabel("the text so far; the last token attends")
    colour_bar(figure, **scale, ax=ax, shrink=0.8)
    back = rows.shape[1] - 1 - column
    with_weight = f"with {rows[row, column]:.2f} of its weight"
    if scale["signed"]:
        with_weight = f"with the weight {rows[row, column]:.2f}"
    figure.suptitle(
        f"{name}: to say what follows {written[-1]!r}, {labels[row]} looks\n"
        f"{back} {'token' if back == 1 else 'tokens'} back, at {written[column]!r}, {with_weight}"
    )
    return figure
