"""Pictures of signals with what is predicted for each, and of what their positions attend to."""

import numpy as np
from matplotlib.figure import Figure

from flax_attn.analysis import shapes
from flax_attn.analysis.drawing import BLUE, Picture, colour_bar, styled
from flax_attn.analysis.matrices import draw_matrix
from flax_attn.errors import counted

SHOWN = 4  # signals in a picture


@styled
def draw_signals(
    signals: np.ndarray,
    verdicts: list[tuple[str, str]],
    weights: np.ndarray | None,
    title: str,
) -> Figure:
    """Draws signals `(n, t, channels)`, each with a verdict, beside what each position attends to.

    A verdict is a text and its colour. Several heads are drawn as their mean.
    """
    shown, columns = min(len(signals), SHOWN), 1 if weights is None else 2
    size = 1.5 + 3.4 * columns, 2.7 * shown + 0.6
    figure = Picture(figsize=size, layout="constrained")
    axes = figure.subplots(shown, columns, squeeze=False, width_ratios=(1.6, 1)[:columns])
    for i in range(shown):
        text, colour = verdicts[i]
        axes[i, 0].plot(signals[i], color=BLUE if signals.shape[2] == 1 else None, lw=1.6)
        axes[i, 0].set(xlabel="position", ylabel="height")
        axes[i, 0].set_title(text, color=colour, parse_math=False)
        if weights is not None:
            matrix = weights[i].reshape(-1, *weights.shape[-2:]).mean(axis=0)  # (q, k)
            top = float(np.nan_to_num(matrix).max())
            draw_matrix(axes[i, 1], matrix, top=top)
            axes[i, 1].set(xlabel="key", ylabel="query", title="attention")
            colour_bar(figure, top, ax=axes[i, 1])
    figure.suptitle(title, parse_math=False)
    return figure


def draw_outputs(
    signals: np.ndarray, outputs: np.ndarray, weights: np.ndarray | None, source: str
) -> Figure:
    """Draws signals of a file, the signals predicted for them, and the first attention."""
    number, shown = len(signals), min(len(signals), shapes.SHOWN)
    title = (
        f"the first {shown} of {number} signals" if shown < number else counted(number, "signal")
    )
    title += f" of {source}: the prediction"
    title += "" if weights is None else "\nbeside what each position attends to"
    return shapes.predicted(signals, outputs.reshape(number, -1, 1), weights, title)
