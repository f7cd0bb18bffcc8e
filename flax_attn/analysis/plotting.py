"""Pictures of attention weights from any source: a matrix, the heads of a layer, a text.

Each function returns a matplotlib `Figure`. A notebook shows it, `figure.savefig(path)` writes it,
and pyplot and its backend stay as they are.
"""
# pyright: strict, reportUnknownMemberType=false

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from flax_attn.analysis import token_lines
from flax_attn.analysis.drawing import Picture, colour_bar, styled
from flax_attn.analysis.matrices import (
    LARGEST,
    LARGEST_WITHOUT_NAMES,
    draw_matrix,
    explain_marks,
    label_room,
    label_sides,
    name_cells,
    panel_size,
    title_room,
)
from flax_attn.errors import check_no_result
from flax_attn.types import UserInput

MOST_ACROSS = 4  # heads in a row


class Matrices(NamedTuple):
    """Weights and mask `(heads, q, k)` with names, and the weight of the brightest colour."""

    weights: np.ndarray
    mask: np.ndarray | None
    rows: list[str] | None
    columns: list[str] | None
    top: float


@styled
def attention(
    weights: ArrayLike,
    rows: Iterable[object] | None = None,
    columns: Iterable[object] | None = None,
    *,
    mask: ArrayLike | None = None,
    title: str = "",
    top: float | None = None,
) -> Figure:
    """Draws attention weights as a matrix: a row for each query, a column for each key.

    Colours follow the square root of the weight, so that small weights are told from 0.

    Args:
        weights: `(q, k)`, or `(heads, q, k)`, which has one matrix a head and one colour bar.
        rows: `(q,)` words or positions of the queries; their indices where None.
        columns: `(k,)` words or positions of the keys; their indices where None.
        mask: boolean, broadcasts to the weights; True = may be attended. A masked cell is grey
            and hatched. A visible NaN is orange.
        title: stands above the picture.
        top: the weight of the brightest colour; the largest visible weight where None.

    Raises:
        ValueError: a wrong shape or number of labels, or a negative weight.
        TypeError: a mask that is not boolean.
    """
    heads = _read(weights, rows, columns, mask, top)
    num_heads, num_rows, num_columns = heads.weights.shape
    down = -(-num_heads // MOST_ACROSS)
    across = -(-num_heads // down)
    is_large = num_heads == 1 and (heads.rows or heads.columns) is not None
    panel = panel_size(num_rows, num_columns, LARGEST if is_large else LARGEST_WITHOUT_NAMES)
    is_flat = panel[1] * down < 1.5  # a bar beside it would be too short for its numbers
    width = across * (panel[0] + 0.3) + label_room(heads.rows) + 1.0
    height = down * (panel[1] + 0.3) + label_room(heads.columns) + (1.2 if is_flat else 0.5)
    figure = Picture(figsize=(max(width, title_room(title)), height), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for number, ax in enumerate(grid.flat):
        if number < num_heads:
            _draw_head(ax, heads, number, panel)
            label_sides(ax, panel, number % across == 0, number + across >= num_heads)
        else:
            ax.axis("off")
    figure.suptitle(title)
    colour_bar(figure, heads.top, ax=grid, location="bottom" if is_flat else "right")
    explain_marks(figure, heads.weights, heads.mask)
    return figure


@styled
def attention_on_text(
    tokens: Sequence[str] | Sequence[Sequence[str]],
    weights: ArrayLike | Sequence[ArrayLike],
    *,
    title: str = "",
) -> Figure:
    """Draws a text with each token on the colour of its weight.

    A token with no more than 1/n, the uniform weight of a text of n tokens, has no colour. All of
    the weight has the strongest, and each doubling adds as much. A NaN is framed.

    Args:
        tokens: the words of one text, or a list of texts.
        weights: one weight a token `(k,)`, or a list of these, one a text, without padding.
        title: stands above the picture.

    Raises:
        ValueError: weights that do not fit the tokens, or a negative weight.
    """
    is_one = len(tokens) > 0 and all(isinstance(token, str) for token in tokens)
    texts = cast(Sequence[Sequence[str]], [tokens] if is_one else tokens)
    of_texts = list(cast(Sequence[ArrayLike], [weights] if is_one else weights))
    if len(texts) != len(of_texts):
        raise ValueError(f"expected weights for {len(texts)} texts, got {len(of_texts)}")
    shares = [_of_tokens(*pair, i) for i, pair in enumerate(zip(texts, of_texts))]
    return token_lines.draw_texts([list(map(str, text)) for text in texts], shares, [], title)


def _draw_head(ax: Axes, heads: Matrices, number: int, panel: tuple[float, float]) -> None:
    """Draws one matrix of a panel's width and height in inches, with its names."""
    mask = None if heads.mask is None else heads.mask[number]
    draw_matrix(ax, heads.weights[number], mask=mask, top=heads.top)
    name_cells(ax.xaxis, heads.columns, panel[0])
    name_cells(ax.yaxis, heads.rows, panel[1])
    if len(heads.weights) > 1:
        ax.set_title(f"head {number}", fontsize=9)


def _read(
    weights: ArrayLike,
    rows: Iterable[object] | None,
    columns: Iterable[object] | None,
    mask: ArrayLike | None,
    top: float | None,
) -> Matrices:
    """Reads the arguments of `attention`."""
    array = _numbers(weights, "(q, k) or (heads, q, k)")
    if array.ndim not in (2, 3) or array.size == 0:
        hint = "; choose a layer or a batch row: weights[0]" if array.ndim == 4 else ""
        raise ValueError(f"expected weights (q, k) or (heads, q, k), got shape {array.shape}{hint}")
    heads = array.reshape(-1, *array.shape[-2:])
    of_rows = _names("rows", rows, heads.shape[1], "queries")
    of_columns = _names("columns", columns, heads.shape[2], "keys")
    visible = None
    if mask is not None:
        visible = np.asarray(mask)
        if visible.dtype != bool:  # a float mask would have the opposite meaning
            raise TypeError(f"expected a boolean mask, True = may be attended, got {visible.dtype}")
        visible = np.broadcast_to(visible, array.shape).reshape(heads.shape)
    shown = heads if visible is None else np.where(visible, heads, 0)
    _check_weights(shown)
    most = np.nanmax(shown, initial=0)
    return Matrices(heads, visible, of_rows, of_columns, float(most if top is None else top))


def _numbers(weights: ArrayLike, expected: str) -> np.ndarray:
    """Returns weights as float64, from any library's array and any precision."""
    check_no_result(f"weights {expected}", weights)
    return np.asarray(weights).astype(np.float64)


def _check_weights(weights: np.ndarray) -> None:
    """Raises a ValueError for scores, which are easily taken for weights."""
    wrong = weights[(weights < 0) | np.isinf(weights)]
    if wrong.size:
        raise ValueError(f"expected finite weights of at least 0, got {wrong[0]:.3g}")


def _names(
    name: str, labels: Iterable[UserInput] | None, size: int, of_what: str
) -> list[str] | None:
    """Returns words as they are and positions as numbers."""
    if labels is None:
        return None
    items = [label.item() if hasattr(label, "item") else label for label in labels]
    if len(items) != size:
        raise ValueError(f"expected {name} for {size} {of_what}, got {len(items)}")
    return [f"{item:g}" if isinstance(item, float) else str(item) for item in items]


def _of_tokens(tokens: Sequence[str], weights: ArrayLike, number: int) -> list[float]:
    """Returns the weights of one text."""
    array = _numbers(weights, "(k,)")
    if array.shape != (len(tokens),):
        expected = f"expected weights ({len(tokens)},) for text {number}"
        raise ValueError(f"{expected}, got shape {array.shape}")
    _check_weights(array)
    shares: list[float] = array.tolist()
    return shares
