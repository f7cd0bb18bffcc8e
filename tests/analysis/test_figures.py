import numpy as np
import pytest

from flax_attn.analysis import (
    classes,
    images,
    language,
    plotting,
    shapes,
    signals,
    texts,
    translation,
)
from flax_attn.analysis.drawing import save
from flax_attn.runs import reading

SIGNAL = np.arange(100.0)
MARKS = {
    "centers": np.array([10.0, 30, 50, 80]),
    "heights": np.ones(4),
    "widths": np.array([6.0, 7, 8, 9]),
}


def labels(figure):
    return {ax.get_xlabel() for ax in figure.axes} | {ax.get_ylabel() for ax in figure.axes}


def cell_of(ax, row, column):
    """The middle of a cell of the image in data coordinates, which must be the brightest one."""
    image = ax.images[0]
    array = image.get_array()
    assert np.unravel_index(np.argmax(array), array.shape) == (row, column)
    left, right, bottom, top = image.get_extent()
    assert image.origin == "upper"
    assert (right - left, bottom - top) == array.shape[::-1]
    return left + column + 0.5, top + row + 0.5


def test_attention_map_has_keys_across_and_queries_downwards():
    weights = np.zeros((100, 100))
    weights[70, 20] = 1.0  # query 70 attends to key 20
    figure = shapes.attention_map(SIGNAL, weights, MARKS, "title")
    heat, across, beside = figure.axes[:3]
    assert cell_of(heat, 70, 20) == (20.0, 70.0)
    assert all(ax.yaxis_inverted() for ax in (heat, beside))
    assert not across.yaxis_inverted()
    np.testing.assert_array_equal(beside.lines[0].get_ydata(), SIGNAL)  # the positions
    names = "key: the position that is attended to", "query: the position that attends"
    assert set(names) <= labels(figure)
    above = [line for line in heat.lines if line.get_ydata()[0] == 1.02]
    marked = {(line.get_marker(), float(line.get_xdata()[0])) for line in above}
    assert marked == {("^", 10.0), ("^", 30.0), ("s", 50.0), ("s", 80.0)}


def test_queries_run_downwards_in_every_picture_of_attention():
    weights = np.zeros((3, 4))
    weights[2, 1] = 1.0  # query 2 attends to key 1
    pictures = [
        plotting.attention(weights),
        texts.attention_map(["a", "b", "c", "d"], weights, True, "title"),
        translation.alignment_map(list("abcd"), list("xyz"), weights, "title"),
    ]
    pictures.append(signals.draw_outputs(np.zeros((1, 4, 1)), np.zeros(4), weights[None], "a file"))
    for figure in pictures:
        ax = next(ax for ax in figure.axes if ax.images)
        assert cell_of(ax, 2, 1) == (1.0, 2.0)
        assert ax.yaxis_inverted()


def test_the_title_of_a_map_says_how_much_shapes_attend_to_their_kind():
    config = {"data": {"task": "by_shape"}}
    run = reading.Record("some run", None, config, [], {}, {})  # pyright: ignore
    weights = np.zeros((100, 100))
    weights[:, 30] = 0.25  # in a triangle
    weights[:, 50] = 0.75  # in a box
    title = shapes.message(run, weights, MARKS)
    of_triangles, of_boxes = 7 + 7, 9 + 9  # positions: 10 +- 3, 30 +- 3.5, 50 +- 4, 80 +- 4.5
    share = (0.25 * of_triangles + 0.75 * of_boxes) / (of_triangles + of_boxes)
    assert f"shapes put {share:.0%} of their weight" in title


def test_short_and_long_translations_have_cells_of_one_size():
    lengths = [(12, 11), (4, 4), (3, 5)]
    words = np.array([list("abcdefghijkl")] * 3)
    examples = {
        "source_words": words,
        "predicted_words": words,
        "source_lengths": np.array([source for source, _ in lengths]),
        "prediction_lengths": np.array([target for _, target in lengths]),
    }
    run = reading.Record("run", None, {}, [], examples, {})  # pyright: ignore
    figure = translation.alignments(run, np.full((3, 12, 12), 0.1), [0, 1, 2])
    figure.canvas.draw()
    drawn = [ax for ax in figure.axes if ax.images]
    corners = [ax.transData.transform([(0, 0), (1, 1)]) for ax in drawn]
    sizes = np.array([abs(high - low) for low, high in corners])
    np.testing.assert_allclose(sizes, sizes[[0, 0, 0]], rtol=0.02)
    for ax, (source, target) in zip(drawn, lengths):
        assert ax.images[0].get_array().shape == (target, source)
        assert len(ax.get_xticks()) == source
        low, high = ax.transData.transform([(-0.5, target - 0.5), (source - 0.5, -0.5)])
        for text, axis in ((ax.xaxis.label, 0), (ax.yaxis.label, 1)):
            place = text.get_transform().transform(text.get_position())[axis]
            assert place == pytest.approx((low[axis] + high[axis]) / 2, abs=1)
        assert ax.get_title(loc="left").startswith("test example")


def classified(names):
    """A record with classes and their confusion matrix."""
    counts = np.eye(len(names), dtype=np.int64)
    config = {"derived": {"classes": names}}
    return reading.Record("run", None, config, [], {"confusion": counts}, {})


def test_a_matrix_has_room_for_names_that_are_long(tmp_path):
    names = [f"a customer who wants the money back for {i} parcels" * 9 for i in (1, 2)]
    figure = classes.confusion_matrix(classified(names))
    save(figure, tmp_path / "confusion.png")  # a warning would be an error
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown == ["a customer ...r 1 parcels", "a customer ...r 2 parcels"]


def test_the_loss_by_position_leaves_out_what_no_test_text_reaches():
    losses_ = np.array([[3.0, 2.0, 1.0, np.nan, np.nan, np.nan]])
    figure = language.loss_by_position(losses_, "run")
    assert "and 1.50 in the second half" in figure.get_suptitle()


def test_the_colours_of_a_matrix_are_shares_of_the_true_class():
    run = classified(["a", "b"])
    counts = np.array([[3, 1], [0, 8]])
    ax = classes.confusion_matrix(run._replace(examples={"confusion": counts})).axes[0]
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.75, 0.25], [0, 1]])
    assert ax.get_ylabel().startswith("true")


def test_the_patch_that_attends_is_framed():
    """An image is wider than high, so a row could pass for a column."""
    rng = np.random.default_rng(0)
    image, weights = rng.random((8, 16)), rng.dirichlet(np.ones(8), size=8)
    figure = images.attention_on_image(image, weights, "title")
    framed = {
        int(ax.get_title().removeprefix("from patch ")): ax.patches[0].get_xy()
        for ax in figure.axes
        if ax.get_title().startswith("from patch")
    }
    assert len(framed) == 4
    for number, corner in framed.items():
        assert corner == (number % 4 * 4 - 0.5, number // 4 * 4 - 0.5)
