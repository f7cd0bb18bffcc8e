"""Pictures of signals with what is predicted for each, and of what their positions attend to."""

import textwrap

import numpy as np
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import BLUE, ORANGE, Picture, colour_bar, scale_of, styled, theme
from flax_attn.analysis.matrices import draw_matrix
from flax_attn.errors import counted

SHOWN = 4  # signals in a picture


@styled
def draw_signals(
    signals: np.ndarray,
    verdicts: list[tuple[str, str]],
    weights: np.ndarray | None,
    title: str,
    outputs: np.ndarray | None = None,
) -> Figure:
    """Draws signals `(n, t, channels)`, each with a verdict, beside what each position attends to.

    A verdict is a text and its colour. Several heads are drawn as their mean.
    """
    shown, columns = min(len(signals), SHOWN), 1 if weights is None else 2
    figure = Picture(figsize=(1.5 + 3.4 * columns, 2.7 * shown + 0.6), layout="constrained")
    axes = figure.subplots(shown, columns, squeeze=False, width_ratios=(1.6, 1)[:columns])
    for i, (text, colour) in enumerate(verdicts[:shown]):
        axes[i, 0].plot(signals[i], color=BLUE if signals.shape[2] == 1 else None, lw=1.6)
        if outputs is not None:
            axes[i, 0].plot(outputs[i], color=ORANGE, lw=1.6, ls="--", label="prediction")
        axes[i, 0].set(xlabel="position", ylabel="height")
        axes[i, 0].set_title(textwrap.fill(text, 40), color=colour, parse_math=False)
        if weights is not None:
            matrix = weights[i].reshape(-1, *weights.shape[-2:]).mean(axis=0)  # (q, k)
            scale = scale_of(matrix)
            draw_matrix(axes[i, 1], matrix, **scale)
            axes[i, 1].set(xlabel="key", ylabel="query", title="attention")
            colour_bar(figure, **scale, ax=axes[i, 1])
    if outputs is not None:
        axes[0, 0].legend(loc="best")
    figure.suptitle(title, parse_math=False)
    return figure


def draw_outputs(
    signals: np.ndarray, outputs: np.ndarray, weights: np.ndarray | None, source: str
) -> Figure:
    """Draws signals of a file, the signals predicted for them, and the first attention."""
    number = len(signals)
    first = f"the first {SHOWN} of " if number > SHOWN else ""
    title = f"{first}{counted(number, 'signal')} of {source}: the prediction"
    title += "" if weights is None else "\nbeside what each position attends to"
    verdicts = [(f"signal {i}", theme().ink) for i in range(number)]
    return draw_signals(signals, verdicts, weights, title, outputs.reshape(number, -1, 1))
