"""Matrices, heads and texts, drawn for a user's own weights."""

import io
import itertools

import jax
import jax.numpy as jnp
import jaxtyping
import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from flax_attn.analysis import drawing, plotting, token_lines
from flax_attn.analysis.matrices import NOT_A_NUMBER
from flax_attn.attention import Attended, l2_normalized, linear_attention
from flax_attn.errors import UsageError

WORDS = ["a", "bb", "ccc"]
WEIGHTS = np.array([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.5, 0.3, 0.2]])
CAUSAL = np.tri(3) > 0


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def pixels(figure):
    """The figure as `(height, width, 3)` and where the middle of a cell of its first axes lies."""
    figure.canvas.draw()
    picture = np.asarray(figure.canvas.buffer_rgba())[..., :3] / 255
    ax = figure.axes[0]

    def middle(row, column):
        x, y = ax.transData.transform((column, row))
        return round(x), picture.shape[0] - round(y)

    return picture, middle


def test_rows_are_queries_downwards_and_columns_are_keys():
    figure = plotting.attention(WEIGHTS, WORDS, [10, 11, 12], title="the message")
    ax = figure.axes[0]
    assert labels(ax.yaxis) == WORDS
    assert labels(ax.xaxis) == ["10", "11", "12"]
    assert figure.get_suptitle() == "the message"
    np.testing.assert_array_equal(ax.images[0].get_array(), WEIGHTS)
    picture, middle = pixels(figure)
    for row, column in ((0, 0), (1, 0), (1, 1), (2, 2)):
        x, y = middle(row, column)
        colour = drawing.of_weight(WEIGHTS[row, column])[0]
        np.testing.assert_allclose(picture[y, x], to_rgb(colour), atol=0.01)
    assert middle(2, 0)[1] > middle(0, 0)[1]  # further down on the screen


def test_masked_cells_and_nan_look_like_no_weight():
    weights = WEIGHTS.copy()
    weights[2, 0] = np.nan
    weights[0, 2] = np.nan  # masked, so nothing is wrong with it
    figure = plotting.attention(weights, mask=CAUSAL)
    picture, middle = pixels(figure)
    x, y = middle(2, 0)
    np.testing.assert_allclose(picture[y, x], to_rgb(NOT_A_NUMBER["facecolor"]), atol=0.01)
    for row, column in ((0, 1), (0, 2), (1, 2)):
        x, y = middle(row, column)
        cell = picture[y - 15 : y + 15, x - 15 : x + 15].reshape(-1, 3)
        assert np.ptp(cell, axis=1).max() < 0.02  # grey, which no weight is
        assert cell.mean() > 0.7
        masked = drawing.LIGHT.masked
        light, dark = to_rgb(masked["facecolor"])[0], to_rgb(masked["edgecolor"])[0]
        assert cell.max() == pytest.approx(light, abs=0.01)
        assert cell.min() == pytest.approx(dark, abs=0.1)  # the hatch
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["masked", "not a number"]
    left, right = (text.get_window_extent() for text in legend.get_texts())
    assert left.x1 < right.x0  # beside each other
    weights[2, 0] = 0
    (legend,) = plotting.attention(weights, mask=CAUSAL).legends
    assert [text.get_text() for text in legend.get_texts()] == ["masked"]
    assert not plotting.attention(WEIGHTS).legends


def test_heads_share_one_colour_bar_and_one_scale():
    heads = np.stack([WEIGHTS, WEIGHTS / 2, WEIGHTS / 4, WEIGHTS, WEIGHTS])
    figure = plotting.attention(heads, WORDS, WORDS, mask=CAUSAL, title="five heads")
    drawn = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title() for ax in drawn] == [f"head {i}" for i in range(5)]
    assert len(figure.axes) == 6 + 1  # a grid of two rows, and the bar
    assert {ax.images[0].norm.vmax for ax in drawn} == {1.0}
    figure.canvas.draw()
    named = [bool(ax.yaxis.get_major_ticks()[0].label1.get_visible()) for ax in drawn]
    assert named == [True, False, False, True, False]
    named = [bool(ax.xaxis.get_major_ticks()[0].label1.get_visible()) for ax in drawn]
    assert named == [False, False, True, True, True]  # the third has none below it


def test_the_scale_ends_at_the_largest_visible_weight_or_at_top():
    weights = np.array([[0.2, 0.9]])
    ends = [
        plotting.attention(weights, **options).axes[0].images[0].norm.vmax
        for options in ({}, {"mask": np.array([True, False])}, {"top": 1.0})
    ]
    assert ends == [0.9, 0.2, 1.0]


def test_arrays_of_jax_and_lists_are_drawn():
    figure = plotting.attention(jnp.eye(3, dtype=jnp.bfloat16), jnp.arange(3), mask=jnp.eye(3) > 0)
    assert labels(figure.axes[0].yaxis) == ["0", "1", "2"]
    plotting.attention([[0.5, 0.5]], ["query"], ("key", "key"))
    plotting.attention_on_text(WORDS, jnp.ones(3) / 3)


SIGNED = np.array([[0.5, 0.0, -0.0], [-2.0, 0.5, 0.0], [0.02, -0.01, 1.0]])


def test_weights_of_both_signs_have_a_scale_that_is_symmetric_about_0():
    figure = plotting.attention(SIGNED, WORDS, mask=CAUSAL)
    ax, bar = figure.axes
    image = ax.images[0]
    assert (image.norm.vmin, image.norm.vmax) == (-2, 2)
    red, blue = (image.to_rgba(weight) for weight in (-2.0, 2.0))
    assert (red[0] > red[2], blue[2] > blue[0]) == (True, True)
    np.testing.assert_allclose(image.to_rgba(0.0), (1, 1, 1, 1), atol=0.01)
    ticks = bar.get_yticks()
    np.testing.assert_allclose(ticks, -ticks[::-1])
    (marks,) = ax.collections  # for those who see no colours
    assert marks.get_offsets().round().tolist() == [[0, 1], [1, 2]]
    blues = plotting.attention(np.abs(SIGNED), WORDS, mask=CAUSAL).axes[0]
    assert blues.images[0].norm.vmin == 0
    assert blues.images[0].to_rgba(0.5) == pytest.approx(image.to_rgba(0.5), abs=0.01)
    assert not blues.collections
    linear = plotting.attention(SIGNED, scale="linear", top=1.0).axes[0].images[0].norm
    assert (linear(-1.0), linear(0.5)) == (0, 0.75)


def test_tokens_below_0_are_red_and_underlined():
    ax = plotting.attention_on_text(WORDS, [-0.4, 0.2, 0.0]).axes[0]
    colours = [patch.get_facecolor() for patch in ax.patches]
    assert colours[0][0] > colours[0][2]
    assert colours[1][2] > colours[1][0]
    (line,) = ax.lines
    left = ax.patches[0].get_x()
    assert left < line.get_xdata()[0] < line.get_xdata()[1] < left + ax.patches[0].get_width()


RULES = {"linear": (), "gated": (0,), "delta": (1,), "gated delta": (0, 1), "of features": (1, 2)}


@pytest.mark.parametrize("rule", RULES)
def test_what_a_state_holds_of_a_token_is_the_state_that_has_its_value_alone(rule):
    random, (t, h, d, e) = np.random.default_rng(0), (5, 2, 3, 4)
    arrays = (random.uniform(size=size) for size in ((t, h, d), (t, h, e), (t, h, d), (t, h)))
    key, value, decays, strength = map(jnp.float32, arrays)
    key, decays = l2_normalized(key - 0.5), -decays
    named = ("log_decay", decays[..., 0]), ("write_strength", strength), ("log_decay", decays)
    options = dict(named[i] for i in RULES[rule])
    figure = plotting.state(key, value, tokens=list("abcde"), **options)
    heads = [np.asarray(ax.images[0].get_array()) for ax in figure.axes[:h]]

    @jax.jit
    def state(value, length):
        return linear_attention(key, key, value, lengths=length, **options)[1]

    for i in range(t):
        alone = value * (np.arange(t) == i)[:, None, None]
        left = [np.linalg.norm(state(alone, n + 1), axis=(1, 2)) for n in range(t)]
        np.testing.assert_allclose([own[:, i] for own in heads], np.array(left).T, atol=1e-5)
    one = plotting.state(key[:, 0], **{name: own[:, 0] for name, own in options.items()})
    diagonal = np.diag(one.axes[0].images[0].get_array())
    np.testing.assert_allclose(
        diagonal, options.get("write_strength", 1 + 0 * strength)[:, 0], 1e-4
    )


WRONG = {  # what is easily mistaken, and a word of the error
    "one row": (plotting.attention, np.ones(3), {}, "shape"),
    "a batch": (plotting.attention, np.ones((2, 4, 3, 3)), {}, r"weights\[0\]"),
    "masked scores": (plotting.attention, np.where(CAUSAL, WEIGHTS, -np.inf), {}, "finite"),
    "too few names": (plotting.attention, WEIGHTS, {"rows": WORDS[:2]}, "rows"),
    "a mask to add": (plotting.attention, WEIGHTS, {"mask": np.tri(3)}, "boolean"),
    "a result": (plotting.attention, Attended(WEIGHTS, WEIGHTS), {}, "pass its weights"),
    "too few weights": (plotting.attention_on_text, WORDS, {"weights": [0.5, 0.5]}, "text 0"),
    "too few texts": (plotting.attention_on_text, [WORDS] * 2, {"weights": [[1.0]]}, "2 texts"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_easily_mistaken_is_an_error(case, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    draw, first, options, word = WRONG[case]
    with pytest.raises((TypeError, ValueError, UsageError), match=word):
        draw(first, **options)


def test_many_names_do_not_overlap():
    names = [f"word{i}" for i in range(150)]
    figure = plotting.attention(np.full((150, 150), 1 / 150), names, names)
    assert max(figure.get_size_inches()) < 20
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert 40 < len(boxes) < 150
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(boxes))


def test_nothing_of_a_picture_is_cut_off_without_a_tight_box():
    long = "a title that is much longer than a matrix of three rows and three columns is wide"
    for title in ("short", long):
        figures = [
            plotting.attention(WEIGHTS, WORDS, WORDS, mask=CAUSAL, title=title),
            plotting.attention(WEIGHTS[2:], columns=WORDS, title=title),
            plotting.attention_on_text(WORDS, WEIGHTS[2], title=title),
        ]
        for figure in figures:
            figure.canvas.draw()
            box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
            assert -0.05 <= box.x0 < box.x1 <= width + 0.05
            assert -0.05 <= box.y0 < box.y1 <= height + 0.05


# figures for papers


def written(figure, format):
    file = io.BytesIO()
    figure.savefig(file, format=format)
    return file.getvalue()


def sides_of_cells(ax):
    """The width and height of a cell in pixels."""
    corners = ax.transData.transform([(0, 0), (1, 1)])
    return np.abs(corners[1] - corners[0])


@pytest.mark.parametrize("heads", [1, 3, 12])
def test_a_figure_of_a_width_has_square_cells_and_text_of_6_points(heads):
    figure = plotting.attention(np.full((heads, 6, 9), 1 / 9), width=5.5, title="layer 0")
    figure.canvas.draw()
    assert figure.get_figwidth() == 5.5
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 6
    drawn = [ax for ax in figure.axes if ax.images]
    for width, height in map(sides_of_cells, drawn):
        assert width == pytest.approx(height, rel=0.01)
    box = figure.get_tightbbox()
    assert 0 <= box.x0 < 0.2 < 5.3 < box.x1 <= 5.5  # the width is used
    assert 0 <= box.y0 < 0.2 < figure.get_figheight() - 0.2 < box.y1 <= figure.get_figheight()


@pytest.mark.parametrize("shape", [(1, 40), (40, 2)])
def test_a_matrix_that_would_be_a_line_has_cells_that_are_seen(shape):
    figure = plotting.attention(np.full(shape, 1 / shape[1]))
    figure.canvas.draw()
    assert min(sides_of_cells(figure.axes[0]) * shape[::-1]) > 30


@pytest.mark.parametrize("heads", [4, 12, 32])
def test_the_heads_of_a_layer_are_on_one_page(heads):
    figure = plotting.attention(np.full((heads, 20, 20), 1 / 20))
    assert max(figure.get_size_inches()) <= 11
    assert min(figure.get_size_inches()) <= 8.8


@pytest.mark.parametrize("shape", [(1, 9, 9), (1, 40, 5), (12, 9, 9)])
def test_a_colour_bar_is_as_high_as_the_matrices_and_no_thicker_beside_many(shape):
    figure = plotting.attention(np.full(shape, 1 / shape[-1]))
    figure.canvas.draw()
    *drawn, bar = (ax.get_window_extent() for ax in figure.axes)
    assert 0.17 < bar.width / figure.dpi < 0.25
    assert bar.height == pytest.approx(drawn[0].y1 - drawn[-1].y0, rel=0.1)


def test_a_pdf_has_fonts_of_type_42_and_an_svg_has_text(tmp_path):
    before = dict(matplotlib.rcParams)
    figure = plotting.attention(WEIGHTS, WORDS, WORDS)
    pdf = drawing.save(figure, tmp_path / "weights.pdf").read_bytes()
    for file in (pdf, written(figure, "pdf")):
        assert b"/FontFile2" in file
        assert b"/Type3" not in file
    assert b">ccc</text>" in written(figure, "svg")
    assert dict(matplotlib.rcParams) == before


def test_a_book_of_pages_can_be_read_whatever_the_fonts_of_the_user():
    file = io.BytesIO()
    with PdfPages(file) as pages:  # writes its fonts at its end
        pages.savefig(plotting.attention(WEIGHTS))
    assert b"/Type3" in file.getvalue()


def test_long_sequences_are_small_in_a_pdf_and_no_diagonal_is_lost():
    figure = plotting.attention(np.stack([np.eye(512, k=-1)] * 12), width=5.5)
    assert len(written(figure, "pdf")) < 100_000
    assert len(figure.axes[0].get_xticks()) < 10
    picture, middle = pixels(figure)
    points = [middle(row, row - 1) for row in range(100, 500, 10)]
    assert max(picture[y - 1 : y + 2, x - 1 : x + 2].min() for x, y in points) < 0.95


def test_a_users_axes_are_drawn_on_in_the_users_style():
    figure = Figure(figsize=(9, 3))
    first, *others = figure.subplots(1, 4)
    heads = np.stack([WEIGHTS] * 3)
    assert plotting.attention(heads, WORDS, ["$a", "$b_$", "c"], ax=others) is figure
    assert figure.axes == [first, *others]
    assert not first.images
    assert [ax.get_title() for ax in others] == ["head 0", "head 1", "head 2"]
    assert plotting.attention(WEIGHTS, ax=first, title="own") is figure
    assert first.get_title() == "own"
    assert first.get_xaxis().label.get_fontsize() == matplotlib.rcParams["font.size"]
    figure.draw_without_rendering()  # a name that is no formula would raise
    assert sides_of_cells(first) == pytest.approx(sides_of_cells(first)[::-1])


def test_colours_are_linear_of_a_map_and_heads_have_names():
    heads = np.stack([WEIGHTS, WEIGHTS])
    options = {"scale": "linear", "cmap": "viridis", "names": ["previous token", "first"]}
    figure = plotting.attention(heads, figsize=(5.0, 3.0), top=2.0, **options)
    assert tuple(figure.get_size_inches()) == (5, 3)
    left, right, bar = figure.axes
    assert [left.get_title(), right.get_title()] == options["names"]
    image = right.images[0]
    assert image.norm(0.5) == pytest.approx(0.25)
    assert image.to_rgba(0.5) == matplotlib.colormaps["viridis"](0.25)
    assert bar.get_ylabel() == "attention weight"


@pytest.mark.parametrize("count", [3, 12, 120])
def test_the_colour_bar_of_a_text_is_whole(count):
    figure = plotting.attention_on_text(["w"] * count, np.full(count, 1 / count))
    figure.canvas.draw()
    box = figure.get_tightbbox()
    assert 0 <= box.x0 < box.x1 <= figure.get_figwidth()


def boxes_of(figure):
    """The boxes of tokens as `(left, top, right, bottom)`, in points."""
    ax = figure.axes[0]
    patches = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    corners = [(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in patches]
    return np.array([(x, y, x + width, y + height) for x, y, width, height in corners])


def test_a_long_text_breaks_into_lines_within_the_figure():
    tokens = ["token", "of", "text"] * 40
    figure = plotting.attention_on_text([tokens, WORDS], [np.full(120, 0.5), np.ones(3)])
    boxes = boxes_of(figure)
    ax = figure.axes[0]
    assert boxes[:, 2].max() <= min(ax.get_xlim()[1], token_lines.ROOM)
    assert boxes[:, 3].max() <= ax.get_ylim()[0]
    assert len(set(boxes[:, 1])) > 5
    starts = boxes[1:][np.diff(boxes[:, 0]) < 0]
    assert (starts[:, 0] == 0).all()
    assert len(starts) == len(set(boxes[:, 1])) - 1


def test_a_token_has_the_colour_of_its_weight_and_nan_has_a_frame():
    figure = plotting.attention_on_text(["x", "$y$", "\n", ""], [0.1, 0.4, np.nan, 0.0])
    ax = figure.axes[0]
    colours = [matplotlib.colors.to_hex(patch.get_facecolor()) for patch in ax.patches]
    expected = [drawing.of_strength(weight, 4)[0] for weight in (0.1, 0.4, 0.0)]
    assert [colours[0], colours[1], colours[3]] == expected
    assert ax.patches[2].get_facecolor()[3] == 0
    assert matplotlib.colors.to_hex(ax.patches[2].get_edgecolor()) == drawing.ORANGE.lower()
    assert [text.get_text() for text in ax.texts] == ["x", "$y$", "↵", ""]
    assert figure.axes[1].texts[0].get_text() == "framed: not a number"


def test_on_a_dark_ground_weight_0_is_the_ground_and_letters_are_read():
    with drawing.on(drawing.DARK):
        figure = plotting.attention(WEIGHTS, WORDS, WORDS, mask=CAUSAL, title="the message")
    picture, middle = pixels(figure)  # drawn later, and still dark
    ground = to_rgb("#131416")
    np.testing.assert_allclose(picture[2, 2], ground, atol=0.01)
    weights = plotting.attention(WEIGHTS)
    light, place = pixels(weights)
    x, y = place(0, 1)
    np.testing.assert_allclose(light[y, x], 1.0, atol=0.01)
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text():
            assert sum(to_rgb(text.get_color())) > 2.5
    x, y = middle(0, 1)
    assert 0.1 < picture[y - 15 : y + 15, x - 15 : x + 15].mean() < 0.3  # masked


def test_the_largest_weight_stands_out_on_either_ground():
    for theme, ground in ((drawing.LIGHT, "#ffffff"), (drawing.DARK, "#131416")):
        with drawing.on(theme):
            none, most = (np.array(to_rgb(drawing.of_weight(w)[0])) for w in (0.0, 1.0))
            levels = [sum(to_rgb(drawing.of_weight(w)[0])) for w in np.linspace(0, 1, 30)]
        np.testing.assert_allclose(none, to_rgb(ground), atol=0.01)
        assert abs(none - most).sum() > 1.8
        steps = np.diff(levels)
        assert (steps < 0).all() or (steps > 0).all()  # lightness alone tells them apart
