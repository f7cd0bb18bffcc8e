"""What the pictures and the tables of a run hold."""

import io
import itertools

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from rich.console import Console

from flax_attn.analysis import (
    classes,
    drawing,
    images,
    language,
    plotting,
    series,
    shapes,
    signals,
    tables,
    translation,
)
from flax_attn.analysis.drawing import GREEN, ORANGE
from flax_attn.analysis.token_weights import over_tokens, printable
from flax_attn.runs.reading import read
from flax_attn.tasks import TASKS
from tests.written_runs import write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The record of a written run of a kind."""
    folder, held = tmp_path_factory.mktemp("runs"), {}

    def record(kind):
        if kind not in held:
            held[kind] = read(write_run(folder / kind.replace(" ", "_"), kind))
        return held[kind]

    return record


def titles(figure):
    both = (ax.get_title() or ax.get_title(loc="left") for ax in figure.axes)
    return [title for title in both if title]


def colours_of_titles(figure):
    return [to_hex(ax.title.get_color()) for ax in figure.axes if ax.get_title()]


# classes and images


def test_predictions_are_green_where_they_are_right():
    shares = np.array([[0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    verdicts = [classes.verdict(*row) for row in zip(shares, [["a", "b"]] * 3, [1, 0, 1])]
    figure = images.grid(np.zeros((3, 4, 4)), verdicts, "run")
    assert titles(figure) == ["b (80%)", "a (60%)", "a (70%), not b"]
    assert colours_of_titles(figure) == [colour.lower() for colour in (GREEN, GREEN, ORANGE)]


def test_verdicts_of_neighbours_do_not_overlap():
    names = ["a long name of a class", "another one of them"]
    shares = np.array([[0.9, 0.1]] * 12)
    verdicts = [classes.verdict(row, names, 1) for row in shares]
    figure = images.grid(np.zeros((12, 4, 4)), verdicts, "run")
    figure.canvas.draw()
    boxes = [ax.title.get_window_extent() for ax in figure.axes]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes[:6]))
    assert boxes[6].y1 < figure.axes[0].get_window_extent().y0
    weights = np.full((12, 9, 9), 1 / 9)
    first, other, *_ = signals.draw_signals(np.zeros((12, 9, 1)), verdicts, weights, "run").axes
    first.figure.canvas.draw()
    assert first.title.get_window_extent().x1 < other.title.get_window_extent().x0


def test_only_digits_of_mnist_are_ink_as_they_are(runs):
    run = runs("images")
    inputs = run.examples["inputs"]
    np.testing.assert_array_equal(images.as_ink(run), inputs)
    files = run._replace(config=run.config | {"data": {"name": "image_files"}})
    np.testing.assert_array_equal(images.as_ink(files), 1 - inputs)


def test_weights_lie_on_the_patches_they_are_of():
    ax = drawing.Picture().subplots()
    weights = np.zeros(8)
    weights[5] = 1
    images.draw_patches(ax, np.zeros((8, 16)), weights, 4)
    shown = np.asarray(ax.images[1].get_array())
    assert shown.shape == (8, 16)
    np.testing.assert_array_equal(np.argwhere(shown > 0).min(axis=0), [4, 4])
    np.testing.assert_array_equal(np.argwhere(shown > 0).max(axis=0), [7, 7])


# language


# losses and results


def with_error(run, name, error):
    metrics = run.summary["metrics"] | {"test/mse": {"mean": error, "std": 0.0, "values": [error]}}
    return run._replace(name=name, summary=run.summary | {"metrics": metrics})


def printed(show, *arguments):
    output = io.StringIO()
    show(*arguments, Console(file=output, width=200))
    return output.getvalue()


def cells(text):
    """The cells of a table that was printed."""
    lines = [line for line in text.splitlines() if "│" in line or "┃" in line]
    return [[cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]] for line in lines]


def test_results_stand_beside_the_figures_of_the_recipe(runs):
    summary = runs("plain").summary | {"train_seconds": 90.0}
    summary["metrics"] = {
        "test/mse": {"mean": 0.123456, "std": 0.0123, "values": [0.1, 0.2]},
        "test/mae": {"mean": 2.0, "std": 0.5, "values": [2.0, 2.0]},
    }
    text = printed(tables.print_results, summary, {"test/mse": 0.25})
    assert "model, 1,234 parameters, 400 steps, 2 seeds, 1.5 minutes of training" in text
    assert cells(text) == [
        ["metric", "test", "tutorial"],
        ["mse", "0.1235 ± 0.012", "0.25"],
        ["mae", "2 ± 0.5", "-"],
    ]
    own = {"mean": 2.1, "std": 0.0, "values": [2.1]}
    names = "valid/macro/f1", "test/macro/f1", "last/test/macro/f1"
    own = summary | {"seeds": [0], "metrics": dict.fromkeys(names, own)}
    lone = [["metric", "valid", "test"], ["macro/f1", "2.1", "2.1"]]
    assert cells(printed(tables.print_results, own, {})) == lone
    output = io.StringIO()
    tables.print_results(own, {}, Console(file=output, width=200), last=True)
    more = [["metric", "valid", "test", "last test"], ["macro/f1", "2.1", "2.1", "2.1"]]
    assert cells(output.getvalue()) == more
    beside = cells(printed(tables.print_results, own, {"last/test/macro/f1": 3.0}))
    assert beside[0] == [*more[0], "tutorial, last test"]
    assert beside[1] == [*more[1], "3"]
    assert "\nBLEU: x\n" in printed(tables.print_results, summary | {"signatures": ["BLEU: x"]}, {})


def test_runs_that_are_compared_have_a_row_each(runs):
    one, other = (with_error(runs("plain"), *own) for own in (("one", 0.5), ("other", 0.25)))
    last = {"last/test/mse": {"mean": 0.75, "std": 0.125, "values": [0.75, 0.75]}}
    both = {"test/f1": {"mean": 0.9, "std": 0.1, "values": [0.8, 1.0]}}
    more = one.summary["metrics"] | last | both | {"test/bleu": both["test/f1"]}
    one = one._replace(summary=one.summary | {"metrics": more, "train_seconds": 90.0})
    lone = other.summary | {"seeds": [0], "metrics": other.summary["metrics"] | both}
    other = other._replace(summary=lone, rows=[row for row in other.rows if row["seed"] == 0])
    text = printed(tables.print_comparison, [one, other])
    assert "test/mse, mean ± std over seeds" in text
    heads = ["parameters", "seeds", "steps", "minutes", "kept", "last", "median of last 10"]
    late = [2.0**-epoch * (1 + 0.1 * seed) for epoch in (1, 2, 3, 4) for seed in (0, 1)]
    assert cells(text) == [
        ["run", *heads, "test/f1"],
        ["one", "1,234", "2", "400", "1.5", "0.5 ± 0", "0.75 ± 0.1", f"{np.median(late):.4g}",
         "0.9 ± 0.1"],
        ["other", "1,234", "1", "400", "1.0", "0.25", "0.25", f"{np.median(late[::2]):.4g}", "0.9"],
    ]  # fmt: skip


# series and shapes


def test_predictions_of_series_stand_over_their_outputs(runs):
    run = with_error(runs("series"), "run", 0.5)
    figure = series.predictions(run)
    ax = figure.axes[1]
    assert ax.get_title() == "test example 1"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), run.examples["targets"][1, :, 0])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), run.examples["predictions"][1, :, 0])
    assert figure.get_suptitle() == "run has mean squared error 0.5 on test data"


def test_shapes_of_a_kind_are_framed_where_they_read_each_other():
    marks = {
        "centers": np.array([10.0, 30, 50, 80]),
        "heights": np.ones(4),
        "widths": np.array([6.0, 8, 10, 12]),
    }
    ax = drawing.Picture().subplots()
    shapes.outline_pairs(ax, marks)
    frames = {(*own.get_xy(), own.get_width(), own.get_height()) for own in ax.patches}
    assert len(ax.patches) == len(frames) == 8
    assert (26.0, 7.0, 8.0, 6.0) in frames  # the first triangle reads the second: keys across
    assert (74.0, 45.0, 12.0, 10.0) in frames
    assert {to_hex(own.get_edgecolor()) for own in ax.patches} == {
        own.lower() for own in (drawing.GREEN, drawing.PINK)
    }


def test_a_map_and_its_title_are_of_test_example_0(runs):
    run = runs("signals")
    figures = shapes.draw(run)
    for name, weights in run.attention.items():
        first, second = (shapes.message(run, one, shapes.marks_of(run, 0)) for one in weights[:2])
        assert first in titles(figures[name])
        assert first != second
        np.testing.assert_array_equal(figures[name].axes[0].images[0].get_array(), weights[0])


# texts and translations


def test_a_verdict_says_the_right_class_where_it_is_another():
    shares = np.array([0.2, 0.7, 0.1])
    assert classes.verdict(shares, list("abc"), 1) == ("b (70%)", drawing.GREEN)
    assert classes.verdict(shares, list("abc"), 2) == ("b (70%), not c", drawing.ORANGE)
    assert classes.verdict(shares, list("abc")) == ("b (70%)", drawing.theme().ink)


# matrices and colours


def test_a_users_fonts_are_not_lost_on_a_picture():
    with matplotlib.rc_context({"axes.facecolor": "#abcdef"}):
        figure = plotting.attention(np.eye(2))
        assert to_hex(figure.axes[0].get_facecolor()) == "#abcdef"
    with drawing.on(drawing.DARK):
        dark = plotting.attention(np.eye(2))
    assert to_hex(dark.axes[0].get_facecolor()) == "#131416"
    assert drawing.theme() is drawing.LIGHT


# what is drawn


def drawn_arrays(figure):
    return [np.asarray(ax.images[0].get_array()) for ax in figure.axes if ax.images]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("signals", "data_sample predictions attention"),
        ("images", "data_sample confusion predictions patches block0 block1 block2 pooling"),
        ("texts", "confusion attention attention_map"),
        ("hops", "confusion hops hops_map"),
        ("translation", "alignment"),
        ("language", "loss_by_position induction attention"),
    ],
)
def test_a_run_has_its_pictures(kind, names, runs):
    assert set(pictures_of(runs(kind))) == set(names.split())


def pictures_of(run):
    number = len(run.config.get("derived", {}).get("classes", ()))
    examples = run.examples | {"confusion": np.eye(number, dtype=int)}
    run = run._replace(examples=examples, config=run.config | {"model": {"patch_size": 7}})
    return TASKS[run.task].target_class.figures(run)


def test_the_stripe_of_the_best_induction_head_is_drawn_below_the_diagonal():
    scores = np.array([[0.1, 0.2], [0.7, 0.3]])
    figure = language.induction(scores, np.eye(4), list("abab"), "run")
    assert "block1, head 0 puts 0.70" in figure.get_suptitle()
    left, right = figure.axes[:2]
    assert [text.get_text() for text in left.texts] == ["0.10", "0.20", "0.70", "0.30"]
    assert [text.get_position() for text in left.texts] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    hidden = np.ma.getmaskarray(right.images[0].get_array())
    np.testing.assert_array_equal(hidden, ~np.tri(4, dtype=bool))


def test_a_loss_is_drawn_over_the_known_tokens_with_the_range_of_seeds():
    ax = language.loss_by_position(np.array([[4.0, 2, 1, 1], [2, 2, 3, 3]]), "run").axes[0]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1, 2, 3, 4])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [3, 2, 2, 2])
    band = ax.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, 4)


def test_the_last_tokens_of_a_long_text_are_shown():
    tokens = [f"t{i}" for i in range(60)]
    weights = np.zeros((2, 60))
    weights[1, 50] = 0.75
    figure = language.looks(tokens, {"block0": weights}, "run")
    assert drawn_arrays(figure)[0].shape == (2, 48)
    assert [own.get_text() for own in figure.axes[0].get_xticklabels()] == tokens[12:]
    assert "block0, head 1 looks\n9 tokens back, at 't50', with 0.75" in figure.get_suptitle()


def test_the_series_run_downwards_and_the_steps_across(runs):
    weights = np.full((3, 12, 5), 0.05)
    weights[:, :, 2] = 0.8
    weights[0, 4] = [0, 1, 0, 0, 0]
    figure = series.gates(runs("series"), weights)
    assert f"{weights[:, :, 2].mean():.0%} of the weight is on series 2" in figure.get_suptitle()
    first, mean = drawn_arrays(figure)[:2]
    assert first.shape == (5, 12)
    assert (first[1, 4], mean[1, 4]) == (1, pytest.approx((1 + 2 * 0.05) / 3))


def test_signals_stand_with_their_targets_predictions_and_shapes(runs):
    run = runs("signals")
    ax = shapes.data_sample(run).axes[2]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), run.examples["inputs"][2, :, 0])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), run.examples["targets"][2, :, 0])
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches]
    assert spans == [(4.5, 11.5), (16.5, 23.5), (26.5, 33.5), (38.5, 45.5)]
    assert [line.get_marker() for line in ax.lines[2:]] == ["^", "^", "s", "s"]


def test_signals_of_a_user_stand_beside_their_attention():
    rng = np.random.default_rng(0)
    inputs, outputs, weights = rng.random((6, 9, 1)), rng.random((6, 9, 1)), rng.random((6, 9, 9))
    figure = signals.draw_outputs(inputs, outputs, weights, "a file")
    drawn = [ax for ax in figure.axes if ax.get_title().startswith("signal")]
    for i, ax in enumerate(drawn):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), inputs[i, :, 0])
        np.testing.assert_array_equal(ax.lines[1].get_ydata(), outputs[i, :, 0])
    np.testing.assert_array_equal(drawn_arrays(figure)[:4], weights[:4])
    assert len(signals.draw_outputs(inputs[:1], outputs[:1], None, "a file").axes) == 1


def test_texts_have_their_verdicts_and_no_padding(runs):
    run = runs("texts")
    figure = pictures_of(run)["attention"]
    lines = [text.get_text() for text in figure.axes[0].texts]
    assert len(lines) == 10 + 7 + 4 + 3  # the words of three texts, and a verdict above each
    names, best = ["negative", "positive"], run.examples["predictions"].argmax(axis=1)
    for i, shares in enumerate(run.examples["predictions"]):
        assert any(line.startswith(f"{names[best[i]]} ({shares[best[i]]:.0%})") for line in lines)


HEADS = np.array([[[0.8, 0.2], [0.6, 0.4]], [[0.0, 1.0], [0.2, 0.8]]])
HOPS = np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.8, 0.0]])


@pytest.mark.parametrize(
    ("name", "weights", "expected"),
    [
        ("attention", HEADS, [0.4, 0.6]),
        ("attention", np.array([0.3, 0.6, 0.1]), [0.3, 0.6]),
        ("attention", HOPS, [0.5, 0.5]),
        ("hops", HOPS, [0.4, 0.6]),
    ],
)
def test_a_token_has_the_mean_over_heads_and_queries_or_hops(name, weights, expected):
    np.testing.assert_allclose(over_tokens(name, weights, 2), expected)


@pytest.mark.parametrize(
    ("token", "expected"),
    [("a\nb\tc\rd", "a↵b→c↵d"), ("x" * 60,) * 2, ("x" * 61, "x" * 59 + "…"), ("\x1b", "\\x1b")],
)
def test_a_token_is_written_on_one_line(token, expected):
    assert printable(token) == expected


def test_an_empty_translation_has_no_picture(runs):
    run = runs("translation")
    lengths = run.examples["prediction_lengths"]
    for kept, expected in (([1, 1], [0, 1]), ([0, 1], [1]), ([0, 0], [])):
        examples = run.examples | {"prediction_lengths": lengths * kept}
        drawn = translation.draw(run._replace(examples=examples))
        shown = [title for figure in drawn.values() for title in titles(figure)]
        assert shown == [f"test example {i}" for i in expected]
    ax = translation.draw(run)["alignment"].axes[1]
    np.testing.assert_array_equal(ax.images[0].get_array(), run.attention["alignment"][1, :3, :3])
    assert [own.get_text() for own in ax.get_xticklabels()] == ["c", "a", "t"]
