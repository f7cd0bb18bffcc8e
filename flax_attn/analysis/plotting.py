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
from flax_attn.errors import check_no_result, one_line
from flax_attn.types import UserInput

MOST_ACROSS = 4  # heads in a row


class Heads(NamedTuple):
    """What a picture shows: weights and mask `(heads, q, k)`, names, and the brightest weight."""

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
        ValueError: a wrong shape or number of labels, a negative weight, a `top` of 0 or less.
        TypeError: a mask that is not boolean, a `top` that is no number, a title that is no text.
    """
    _check_title(title)
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
        ValueError: a text that is not cut into tokens, no token at all, weights that do not fit
            the tokens, or a negative weight.
        TypeError: a token or a title that is no text.
    """
    if isinstance(tokens, str):
        raise ValueError(f"expected a list of tokens, got the text {tokens[:30]!r}; split it")
    _check_title(title)
    if len(tokens) and not np.iterable(tokens[0]):
        raise TypeError(f"expected tokens that are words, got {tokens[0]!r}; weights come second")
    is_one = all(isinstance(token, str) for token in tokens)
    texts = [tokens] if is_one or any(isinstance(text, str) for text in tokens) else tokens
    texts = [list(text) for text in cast(Sequence[Sequence[str]], texts)]
    of_texts = list(cast(Sequence[ArrayLike], [weights] if is_one else weights))
    for token in (token for text in texts for token in text):
        if not isinstance(token, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"expected tokens that are words, got {token!r}; pass str(token)")
    if not any(texts):
        raise ValueError("expected at least one token, got none")
    if len(texts) != len(of_texts):
        raise ValueError(f"expected weights for {len(texts)} texts, got {len(of_texts)}")
    shares = [_of_tokens(*pair, i) for i, pair in enumerate(zip(texts, of_texts))]
    return token_lines.draw_texts(texts, shares, [], title)


def _check_title(title: UserInput) -> None:
    """Raises a TypeError for a title that is no text."""
    if not isinstance(title, str):
        raise TypeError(f"expected a text as title, got {title!r}")


def _draw_head(ax: Axes, heads: Heads, number: int, panel: tuple[float, float]) -> None:
    """One matrix of a panel's width and height in inches, with its names."""
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
) -> Heads:
    """Checks what `attention` was called with."""
    array = _numbers(weights, "(q, k) or (heads, q, k)")
    if array.ndim not in (2, 3) or array.size == 0:
        choose = (
            "; choose a layer or a batch row: weights[0]" if array.ndim == 4 and array.size else ""
        )
        raise ValueError(
            f"expected weights (q, k) or (heads, q, k), got shape {array.shape}{choose}",
        )
    heads = array.reshape(-1, *array.shape[-2:])
    names = (
        _names("rows", rows, heads.shape[1], "queries"),
        _names("columns", columns, heads.shape[2], "keys"),
    )
    visible = None if mask is None else _visible(mask, array.shape).reshape(heads.shape)
    shown = heads if visible is None else np.where(visible, heads, 0)
    least, most = np.nanmin(shown, initial=0), np.nanmax(shown, initial=0)
    if least < 0 or most == np.inf:
        wrong = least if least < 0 else most
        raise ValueError(f"expected finite weights of at least 0, got {wrong:.3g}")
    number: object = getattr(top, "item", lambda: top)()
    expected_top = f"expected top to be a number greater than 0, got {number!r}"
    if number is not None and not isinstance(number, int | float):
        raise TypeError(expected_top)
    if top is not None and not 0 < top < np.inf:
        raise ValueError(expected_top)
    return Heads(heads, visible, *names, float(most if top is None else top))


def _numbers(weights: ArrayLike, expected: str) -> np.ndarray:
    """Weights as float64, of any library's array and any precision."""
    if isinstance(weights, dict):
        raise ValueError(f"expected weights {expected}, got a dict; choose one of its arrays")
    check_no_result(f"weights {expected}", weights)
    try:
        array = np.asarray(weights)
        if array.dtype.kind == "c":
            raise TypeError("complex numbers")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"expected weights {expected} as numbers, got {one_line(error)}"
        ) from error


def _names(
    name: str, labels: Iterable[UserInput] | None, size: int, of_what: str
) -> list[str] | None:
    """Words as they are and positions as numbers."""
    if labels is None:
        return None
    if not hasattr(labels, "__iter__"):
        raise TypeError(f"expected a list of {name}, got {labels!r}")
    items = [label.item() if hasattr(label, "item") else label for label in labels]
    if len(items) != size:
        raise ValueError(f"expected {name} for {size} {of_what}, got {len(items)}")
    return [f"{item:g}" if isinstance(item, float) else str(item) for item in items]


def _visible(mask: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """The mask at the shape of the weights."""
    array = np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"expected a boolean mask, True = may be attended, got {array.dtype}")
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"expected a mask that broadcasts to the weights {shape}, got shape {array.shape}",
        ) from None


def _of_tokens(tokens: Sequence[str], weights: ArrayLike, number: int) -> list[float]:
    """The weights of one text, checked."""
    array = _numbers(weights, "(k,)")
    if array.shape != (len(tokens),):
        raise ValueError(
            f"expected weights ({len(tokens)},) for text {number}, got shape {array.shape}",
        )
    wrong = array[(array < 0) | np.isinf(array)]
    if wrong.size:
        raise ValueError(f"expected finite weights of at least 0, got {wrong[0]:.3g}")
    return [float(share) for share in array]
