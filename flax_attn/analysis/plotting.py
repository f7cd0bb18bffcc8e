"""Pictures of attention weights from any source: a matrix, the heads of a layer, a text.

Each function returns a matplotlib `Figure`. A notebook shows it, `figure.savefig(path)` writes it,
and pyplot and its backend stay as they are.
"""
# pyright: strict, reportUnknownMemberType=false

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from flax_attn.analysis import drawing, matrices, token_lines
from flax_attn.errors import check_no_result
from flax_attn.types import Options, UserInput

MOST_ACROSS, FEW = 4, 12  # heads in a row, and in rows of this length; more are half as large
# inches: the widest page of several heads, the height of all matrices, the room of a colour bar
# with its numbers, and the height below which it would be too short for them
PAGE, HIGHEST, OF_BAR, FLAT = 11.0, 8.0, 1.0, 1.5
OF_STATE = "after: the token that wrote last", "write: the token that wrote", "length that is left"
IN_PRINT: Options = {"font.size": 8, "axes.titlesize": 8, "figure.titlesize": 9}


class Matrices(NamedTuple):
    """Weights and mask `(heads, q, k)` with the names of all axes, and the colours of weights."""

    weights: np.ndarray
    mask: np.ndarray | None
    rows: list[str] | None
    columns: list[str] | None
    titles: list[str]
    aspect: Literal["equal", "auto"]  # square cells, unless the matrix would be a line
    colours: Options  # top, scale, cmap and whether they have both signs
    labels: tuple[str, str, str] = (matrices.QUERY, matrices.KEY, "attention weight")


class GridLayout(NamedTuple):
    """The layout of a new figure. Sizes are width and height in inches."""

    down: int
    across: int
    panel: tuple[float, float]  # of one matrix
    size: tuple[float, float]
    is_flat: bool  # the colour bar is below the matrices, not beside them
    style: Options


def attention(
    weights: ArrayLike,
    rows: Iterable[object] | None = None,
    columns: Iterable[object] | None = None,
    *,
    mask: ArrayLike | None = None,
    title: str = "",
    top: float | None = None,
    scale: drawing.Scale = "sqrt",
    cmap: drawing.Cmap = None,
    names: Iterable[object] | None = None,
    width: float | None = None,
    figsize: tuple[float, float] | None = None,
    ax: Axes | Sequence[Axes] | np.ndarray | None = None,
) -> Figure:
    """Draws attention weights as a matrix: a row for each query, a column for each key.

    Cells are square, unless one side of the matrix is more than ten times the other. A PDF has
    fonts of type 42 and an SVG has text, whatever the settings of matplotlib. Where a weight is
    negative, as of attention without softmax, colours are symmetric about 0: blue above, red below.

    Args:
        weights: `(q, k)`, or `(heads, q, k)`, which has one matrix a head and one colour bar.
        rows: `(q,)` words or positions of the queries; their indices where None.
        columns: `(k,)` words or positions of the keys; their indices where None.
        mask: boolean, broadcasts to the weights; True = may be attended. A masked cell is grey
            and hatched. A visible NaN is orange.
        title: stands above the picture.
        top: the weight of the brightest colour; the largest visible weight, of either sign, where
            None.
        scale: colours follow the square root of the weight, so that small weights are told from 0,
            or the weight itself with "linear".
        cmap: the colours, as matplotlib takes them; white to blue, or red to white to blue, where
            None.
        names: `(heads,)` titles of the heads; "head 0" and so on where None.
        width: inches, such as the width of a column. The height follows, and text has 7 to 9
            points. Where None, a matrix has the size that its cells need, and several heads have
            at most 11 inches.
        figsize: width and height in inches, in place of `width`.
        ax: axes of your own for the matrix, or one for each head. They keep their size, their
            figure is returned, and its settings of fonts stay. A colour bar is left to
            `figure.colorbar(ax.images[0], ax=ax)`.

    Raises:
        ValueError: a wrong shape or number of labels, or an infinite weight, as of masked scores.
        TypeError: a mask that is not boolean.
    """
    heads = _read(weights, mask, top, rows, columns, names)
    heads.colours.update(scale=scale, cmap=cmap)
    return _draw(heads, title, width, figsize, ax)


def state(
    key: ArrayLike,
    value: ArrayLike | None = None,
    *,
    log_decay: ArrayLike | None = None,
    write_strength: ArrayLike | None = None,
    tokens: Iterable[object] | None = None,
    title: str = "",
    width: float | None = None,
    ax: Axes | Sequence[Axes] | np.ndarray | None = None,
) -> Figure:
    """Draws what the state of linear attention still holds of each token, after each token.

    The state is a sum over tokens, `S_t = sum_j r_tj v_j^T`, where `r_tj` is what decays and later
    writes to similar keys have left of the key of token `j`. A cell is `|r_tj| |v_j|`, the length
    of what is left of the write of token `j`, a column, after token `t`, a row. The diagonal is
    what was written, and columns fade downwards as the state forgets.

    Args:
        key: `(t, d)`, or `(t, heads, d)` for one matrix a head; after the feature map.
        value: `(t, e)`, or `(t, heads, e)`; vectors of length 1 where None.
        log_decay, write_strength: as in `flax_attn.attention.linear_attention`, without batches.
        tokens: `(t,)` words; their indices where None.
        title, width, ax: as in `attention`.
    """
    length, *heads, _ = np.shape(key)
    leading = (length, *(heads or [1]))

    def of_heads(array: ArrayLike) -> np.ndarray:
        return _numbers(array, "of each token").reshape(*leading, -1)  # (t, heads, _)

    keys, left = of_heads(key), np.zeros_like(of_heads(key))  # of each token, (t, heads, d)
    sizes = 1.0 if value is None else np.linalg.norm(of_heads(value), axis=-1)  # (t, heads)
    factors = of_heads(np.exp(np.zeros(leading) if log_decay is None else log_decay))
    strengths = None if write_strength is None else of_heads(write_strength)
    norms = np.zeros((length, *leading))  # (after t, of t, heads)
    for t, (write, factor) in enumerate(zip(keys, factors)):
        left *= factor
        if strengths is not None:  # the delta rule replaces what the state has for the key
            left -= strengths[t] * write * (left * write).sum(-1, keepdims=True)
            write = strengths[t] * write
        left[t] = write
        norms[t] = np.linalg.norm(left, axis=-1) * sizes
    norms = np.moveaxis(norms, -1, 0)  # (heads, after t, of t)
    names = None if tokens is None else list(tokens)
    read = _read(norms, None, None, names, names, None)._replace(labels=OF_STATE)
    return _draw(read, title, width, None, ax)


@drawing.styled
def attention_on_text(
    tokens: Sequence[str] | Sequence[Sequence[str]],
    weights: ArrayLike | Sequence[ArrayLike],
    *,
    title: str = "",
) -> Figure:
    """Draws a text with each token on the colour of its weight.

    A token with no more than 1/n, the uniform weight of a text of n tokens, has no colour. All of
    the weight has the strongest, and each doubling adds as much. A NaN is framed. Where a weight is
    negative, colours are those of `attention`, and a token below 0 is underlined.

    Args:
        tokens: the words of one text, or a list of texts.
        weights: one weight a token `(k,)`, or a list of these, one a text, without padding.
        title: stands above the picture.

    Raises:
        ValueError: weights that do not fit the tokens, or are infinite.
    """
    is_one = len(tokens) > 0 and all(isinstance(token, str) for token in tokens)
    texts = cast(Sequence[Sequence[str]], [tokens] if is_one else tokens)
    of_texts = list(cast(Sequence[ArrayLike], [weights] if is_one else weights))
    if len(texts) != len(of_texts):
        raise ValueError(f"expected weights for {len(texts)} texts, got {len(of_texts)}")
    shares = [_of_tokens(*pair, i) for i, pair in enumerate(zip(texts, of_texts))]
    return token_lines.draw_texts([list(map(str, text)) for text in texts], shares, [], title)


def _draw(
    heads: Matrices,
    title: str,
    width: float | None,
    figsize: tuple[float, float] | None,
    ax: Axes | Sequence[Axes] | np.ndarray | None,
) -> Figure:
    """Draws all heads on the user's axes or on a new figure."""
    if ax is not None:
        return _draw_onto(np.ravel(np.asarray(ax)), heads, title)
    layout = _layout(heads, title, figsize[0] if figsize else width)
    settings: Options = drawing.STYLE | drawing.theme().settings | layout.style
    with matplotlib.rc_context(settings):
        return _draw_page(heads, title, layout, figsize)


def _layout(heads: Matrices, title: str, width: float | None) -> GridLayout:
    """Returns the layout of all heads in a width, or in that which their cells need."""
    num_heads, num_rows, num_columns = heads.weights.shape
    down = -(-num_heads // (MOST_ACROSS if num_heads <= FEW else 2 * MOST_ACROSS))
    across = -(-num_heads // down)
    beside, below = matrices.label_room(heads.rows), matrices.label_room(heads.columns) + 0.5
    if width is None:
        is_large = num_heads == 1 and (heads.rows or heads.columns) is not None
        largest = matrices.LARGEST if is_large else matrices.LARGEST_WITHOUT_NAMES
        panel = matrices.panel_size(num_rows, num_columns, largest)
        own_width = across * (panel[0] + 0.3) - 0.3 + beside + OF_BAR
        if num_heads > 1 and own_width > PAGE:
            return _layout(heads, title, PAGE)
        of_title = 0.3 + 0.085 * max(map(len, title.split("\n")))  # inches of its longest line
        is_flat = panel[1] * down < FLAT
        size_across, style = max(own_width, of_title), {}
    else:
        style = IN_PRINT

        def fit(of_bar: float) -> tuple[float, float]:
            edge = max((width - 0.8 * (beside + of_bar)) / across - 0.1, 0.3)  # smaller text
            return edge, min(max(edge * num_rows / num_columns, 0.3), HIGHEST / down)

        is_flat = fit(OF_BAR)[1] * down < FLAT
        panel, size_across = fit(0.0 if is_flat else OF_BAR), width
    height = down * (panel[1] + 0.3) + below + (0.7 if is_flat else 0)
    return GridLayout(down, across, panel, (size_across, height), is_flat, style)


def _draw_page(
    heads: Matrices, title: str, layout: GridLayout, figsize: tuple[float, float] | None
) -> Figure:
    """Draws all heads on a new figure."""
    down, across, panel, size, is_flat, _ = layout
    num_heads = len(heads.weights)
    figure = drawing.Picture(figsize=figsize or size, layout="compressed")
    grid = figure.subplots(down, across, squeeze=False)
    for number, ax in enumerate(grid.flat):
        if number < num_heads:
            _draw_head(ax, heads, number, panel, number % across == 0, number + across >= num_heads)
        else:
            ax.axis("off")
    figure.suptitle(title)
    where: Options = {"ax": grid, "location": "bottom"}
    if not is_flat:  # of one thickness beside any matrices, and as high as they are
        height, room = down * panel[1], across * panel[0]
        where = {"ax": grid, "aspect": height / 0.18, "fraction": 0.3 / room, "pad": 0.12 / room}
    drawing.colour_bar(figure, **heads.colours, **where, label=heads.labels[-1])
    matrices.explain_marks(figure, heads.weights, heads.mask)
    if figsize is None and heads.aspect == "equal":  # the height at which squares fill the width
        with drawing.quietly():
            figure.draw_without_rendering()
        cell = grid[0, 0].get_position()
        missing = cell.width * size[0] * panel[1] / panel[0] - cell.height * size[1]
        figure.set_figheight(size[1] + down * missing)
    for ax in grid.flat:
        ax.set_aspect(heads.aspect)
    return figure


def _draw_onto(axes: np.ndarray, heads: Matrices, title: str) -> Figure:
    """Draws each head onto the user's axes, in the user's style."""
    for number, ax in zip(range(len(heads.weights)), axes, strict=True):
        width, height = ax.get_window_extent().size / ax.get_figure(root=True).dpi
        _draw_head(ax, heads, number, (width, height))
        ax.set_aspect(heads.aspect)
    if title:
        axes[0].set_title(title)
    return cast(Figure, axes[0].get_figure(root=True))


def _draw_head(
    ax: Axes, heads: Matrices, number: int, panel: Any, is_left: bool = True, is_lowest: bool = True
) -> None:
    """Draws one matrix of a panel's width and height in inches, with its names."""
    mask = None if heads.mask is None else heads.mask[number]
    matrices.draw_matrix(ax, heads.weights[number], mask=mask, **heads.colours)
    matrices.name_cells(ax.xaxis, heads.columns, panel[0])
    matrices.name_cells(ax.yaxis, heads.rows, panel[1])
    matrices.label_sides(ax, panel, is_left, is_lowest, heads.labels)
    if heads.titles:
        ax.set_title(heads.titles[number], fontsize=matrices.small())


def _read(
    weights: ArrayLike, mask: ArrayLike | None, top: float | None, *labels: Iterable[object] | None
) -> Matrices:
    """Reads weights, mask and the labels of rows, columns and heads."""
    array = _numbers(weights, "(q, k) or (heads, q, k)")
    if array.ndim not in (2, 3) or array.size == 0:
        hint = "; choose a layer or a batch row: weights[0]" if array.ndim == 4 else ""
        raise ValueError(f"expected weights (q, k) or (heads, q, k), got shape {array.shape}{hint}")
    heads = array.reshape(-1, *array.shape[-2:])
    num_heads, short, long = len(heads), *sorted(array.shape[-2:])
    sizes = zip(("rows", "columns", "names"), labels, (*heads.shape[1:], num_heads))
    rows, columns, titles = (_names(*each) for each in sizes)
    if titles is None:
        titles = [f"head {i}" for i in range(num_heads)] if num_heads > 1 else []
    visible = None
    if mask is not None:
        visible = np.asarray(mask)
        if visible.dtype != bool:  # a float mask would have the opposite meaning
            raise TypeError(f"expected a boolean mask, True = may be attended, got {visible.dtype}")
        visible = np.broadcast_to(visible, array.shape).reshape(heads.shape)
    shown = heads if visible is None else np.where(visible, heads, 0)
    _check_weights(shown)
    aspect: Literal["equal", "auto"] = "equal" if long <= 10 * short else "auto"
    colours = drawing.scale_of(shown)
    colours["top"] = colours["top"] if top is None else float(top)
    return Matrices(heads, visible, rows, columns, titles, aspect, colours)


def _numbers(weights: ArrayLike, expected: str) -> np.ndarray:
    """Returns weights as float64, from any library's array and any precision."""
    check_no_result(f"weights {expected}", weights)
    return np.asarray(weights).astype(np.float64)


def _check_weights(weights: np.ndarray) -> None:
    """Raises a ValueError for masked scores, which are easily taken for weights."""
    wrong = weights[np.isinf(weights)]
    if wrong.size:
        raise ValueError(f"expected finite weights, got {wrong[0]:.3g}")


def _names(name: str, labels: Iterable[UserInput] | None, size: int) -> list[str] | None:
    """Returns words as they are and positions as numbers."""
    if labels is None:
        return None
    items = [label.item() if hasattr(label, "item") else label for label in labels]
    if len(items) != size:
        raise ValueError(f"expected {size} {name}, got {len(items)}")
    return [f"{item:g}" if isinstance(item, float) else str(item) for item in items]


def _of_tokens(tokens: Sequence[str], weights: ArrayLike, number: int) -> list[float]:
    """Returns the weights of one text."""
    array = _numbers(weights, "(k,)")
    if array.shape != (len(tokens),):
        expected = f"expected weights ({len(tokens)},) for text {number}"
        raise ValueError(f"{expected}, got shape {array.shape}")
    _check_weights(array)
    return list(array)
