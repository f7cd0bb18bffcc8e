"""What the figures and the tables of a run say of it."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from rich.console import Console

from flax_attn.analysis import (
    classes,
    drawing,
    images,
    language,
    losses,
    matrices,
    plotting,
    series,
    shapes,
    tables,
    texts,
    translation,
)
from flax_attn.analysis.drawing import GREEN, ORANGE
from flax_attn.analysis.token_weights import over_tokens, printable
from flax_attn.kinds import read
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


def test_a_confusion_is_told_by_the_true_class_and_the_predicted_one():
    counts = np.array([[5, 3, 0], [1, 5, 0], [2, 0, 4]])
    said = classes.message(counts, ["a", "b", "c"])
    assert said == "70.0% of test predictions are right;\na is most often taken for b"
    assert classes.message(np.eye(2), ["a", "b"]) == "100.0% of test predictions are right"
    assert classes.message(np.zeros((2, 2)), ["a", "b"]).startswith("0.0%")


@pytest.mark.parametrize(
    ("labels", "said", "title"),
    [
        ([1, 0, 1], ["b (80%)", "a (60%)", "a (70%), not b"],
         "run: of 3 test examples 2 are right (green) and 1 wrong (orange)"),
        ([1, 0, 0], ["b (80%)", "a (60%)", "a (70%)"],
         "run: of 3 test examples 3 are right (green)"),
        (None, ["b (80%)", "a (60%)", "a (70%)"], "run"),
    ],
)  # fmt: skip
def test_predictions_are_green_where_they_are_right(labels, said, title):
    shares = np.array([[0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    targets = None if labels is None else np.array(labels)
    figure = images.predictions(np.zeros((3, 4, 4)), shares, targets, ["a", "b"], "run")
    assert titles(figure) == said
    assert figure.get_suptitle() == title
    if labels is not None:
        right = [GREEN if "not" not in own else ORANGE for own in said]
        assert colours_of_titles(figure) == [own.lower() for own in right]


def test_only_digits_of_mnist_are_ink_as_they_are(runs):
    run = runs("images")
    inputs = run.examples["inputs"]
    np.testing.assert_array_equal(images.as_ink(run), inputs)
    files = run._replace(config=run.config | {"data": {"name": "image_files"}})
    np.testing.assert_array_equal(images.as_ink(files), 1 - inputs)


def test_the_pictures_of_images_say_what_reads_the_patches(runs):
    run = runs("images")
    examples = run.examples | {"confusion": np.eye(4, dtype=int)}
    config = run.config | {"model": {"patch_size": 7}}
    drawn = images.draw(run._replace(config=config, examples=examples))
    assert set(drawn) == {
        *("data_sample", "confusion", "predictions", "patches"),
        *("block1", "block2", "block3", "pooling"),
    }
    assert "which patches of test example 0 each patch reads" in drawn["block1"].get_suptitle()
    assert "which patches of test example 0 the model reads" in drawn["pooling"].get_suptitle()
    assert titles(drawn["patches"]) == [str(i) for i in range(16)]
    block = drawn["block1"]
    assert titles(block)[0] == "mean over queries"
    assert all(own.startswith("from patch ") for own in titles(block)[1:])
    assert [ax.get_ylabel() for ax in block.axes if ax.get_ylabel().startswith("head")] == [
        f"head {i}" for i in range(4)
    ]
    assert titles(drawn["pooling"]) == ["pooling"]


def test_patches_that_are_looked_from_have_something_on_them():
    image = np.zeros((8, 16))
    image[0:4, 4:8], image[4:8, 8:12], image[4:8, 0:4] = 1.0, 0.5, 0.1
    assert images.ink(image, 4) == [1, 6]
    assert images.ink(np.ones((8, 16)), 4) == [0, 2, 4, 7]


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


def test_the_best_head_of_induction_is_named():
    scores = np.array([[0.1, 0.2], [0.7, 0.3]])
    figure = language.induction(scores, np.eye(4), list("abab"), "run")
    assert figure.get_suptitle() == (
        "run: block2, head 0 puts 0.70\nof its weight on the token that followed last time"
    )
    left, right = figure.axes[:2]
    assert [text.get_text() for text in left.texts] == ["0.10", "0.20", "0.70", "0.30"]
    assert [text.get_position() for text in left.texts] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert right.get_title() == "block2, head 0, on a string that comes twice"
    hidden = np.ma.getmaskarray(right.images[0].get_array())
    np.testing.assert_array_equal(hidden, ~np.tri(4, dtype=bool))
    said = language.induction(scores / 2, np.eye(4), list("abab"), "run").get_suptitle()
    assert said == "run: no head looks for what followed last time;\nblock2, head 0 comes nearest"


def test_a_loss_is_drawn_over_the_tokens_that_are_known_with_the_range_of_seeds():
    figure = language.loss_by_position(np.array([[4.0, 2, 1, 1], [2, 2, 3, 3]]), "run")
    ax = figure.axes[0]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1, 2, 3, 4])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [3, 2, 2, 2])
    assert figure.get_suptitle() == (
        "run: the loss is 3.00 where one token is known,\nand 2.00 in the second half of a passage"
    )
    band = ax.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, 4)


def test_what_the_last_token_looks_at_is_of_the_last_tokens_of_a_long_text():
    tokens = [f"t{i}" for i in range(60)]
    weights = np.zeros((2, 60))
    weights[1, 50] = 0.75
    figure = language.looks(tokens, {"block1": weights}, "run")
    ax = figure.axes[0]
    assert np.asarray(ax.images[0].get_array()).shape == (2, 48)
    assert [own.get_text() for own in ax.get_xticklabels()] == tokens[12:]
    assert "block1, head 1 looks\n9 tokens back, at 't50', with 0.75" in figure.get_suptitle()
    one = language.looks(["a", "b"], {"block1": np.array([[0.5, 0.5]])}, "run")
    assert "\n1 token back, at 'a'" in one.get_suptitle()


# losses and results


def with_error(run, name, error):
    metrics = run.summary["metrics"] | {"test/mse": {"mean": error, "std": 0.0, "values": [error]}}
    return run._replace(name=name, summary=run.summary | {"metrics": metrics})


def test_the_run_with_the_lowest_error_on_test_data_is_named(runs):
    pair = [with_error(runs("plain"), *own) for own in (("a", 0.5), ("b", 0.25), ("c", 0.75))]
    assert losses.error_on_test(pair) == "b has the lowest mean squared error 0.25 on test data"
    assert losses.error_on_test(pair[:1]) == "a has mean squared error 0.5 on test data"


def test_a_title_says_how_many_seeds_a_curve_is_of(runs):
    assert losses.loss_curves([runs("plain")]).get_suptitle().endswith("range over 2 seeds")
    assert losses.ends(runs("plain")) == (1.05, 1.05 / 16)
    assert losses.outcome(runs("plain")._replace(rows=[])) == "plain"


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
        ["metric", "mean", "std", "tutorial"],
        ["test/mse", "0.1235", "0.012", "0.25"],
        ["test/mae", "2", "0.5", "-"],
    ]
    alone = summary | {"seeds": [0]}
    lone = [["metric", "mean"], ["test/mse", "0.1235"], ["test/mae", "2"]]
    assert cells(printed(tables.print_results, alone, {})) == lone
    last = {f"last/{name}": metric for name, metric in summary["metrics"].items()}
    same = alone | {"metrics": summary["metrics"] | last}
    assert cells(printed(tables.print_results, same, {})) == lone
    same["metrics"]["last/test/mae"] = {"mean": 2.1, "std": 0.0, "values": [2.1]}
    more = [["last/test/mse", "0.1235"], ["last/test/mae", "2.1"]]
    assert cells(printed(tables.print_results, same, {})) == lone + more
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


def test_the_share_of_the_series_that_decides_is_told(runs):
    run = runs("series")
    weights = np.full((3, 12, 5), 0.05)
    weights[:, :, 2] = 0.8
    weights[0, 4] = [0, 1, 0, 0, 0]
    figure = series.gates(run, weights)
    share = weights[:, :, 2].mean()
    assert figure.get_suptitle().startswith(f"series: {share:.0%} of the weight is on series 2,")
    first, mean = figure.axes[:2]
    shown = np.asarray(first.images[0].get_array())
    assert shown.shape == (5, 12)  # series downwards, steps across
    assert shown[1, 4] == 1
    assert first.get_title() == "test example 0"
    assert mean.get_title() == "mean over 3 test examples"
    np.testing.assert_allclose(np.asarray(mean.images[0].get_array())[1, 4], (1 + 2 * 0.05) / 3)
    assert [line.get_ydata()[0] for line in first.lines] == [1.5, 2.5]


def test_predictions_of_series_stand_over_their_outputs(runs):
    run = with_error(runs("series"), "run", 0.5)
    figure = series.predictions(run)
    ax = figure.axes[1]
    assert ax.get_title() == "test example 1"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), run.examples["targets"][1, :, 0])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), run.examples["predictions"][1, :, 0])
    assert figure.get_suptitle() == "run has mean squared error 0.5 on test data"


def test_shapes_stand_on_their_signals(runs):
    run = runs("signals")
    figure = shapes.data_sample(run)
    assert figure.get_suptitle() == (
        "by shape: in the target both shapes of a pair have their mean height"
    )
    ax = figure.axes[2]
    assert ax.get_title() == "test example 2"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), run.examples["inputs"][2, :, 0])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), run.examples["targets"][2, :, 0])
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches]
    assert spans == [(4.5, 11.5), (16.5, 23.5), (26.5, 33.5), (38.5, 45.5)]
    assert [line.get_marker() for line in ax.lines[2:]] == ["^", "^", "s", "s"]
    assert not figure.axes[3].axison  # three examples on four axes
    own = run._replace(config=run.config | {"data": {"name": "signal_files"}})
    assert shapes.data_sample(own).get_suptitle() == (
        "signals: what the model is to make of its inputs"
    )


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


def test_signals_of_a_user_stand_beside_their_attention():
    rng = np.random.default_rng(0)
    inputs, outputs, weights = rng.random((6, 9, 1)), rng.random((6, 9, 1)), rng.random((6, 9, 9))
    figure = shapes.predicted(inputs, outputs, weights, "title")
    drawn = [ax for ax in figure.axes if ax.get_title().startswith("signal")]
    assert [ax.get_title() for ax in drawn] == [f"signal {i}" for i in range(4)]
    for i, ax in enumerate(drawn):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), inputs[i, :, 0])
        np.testing.assert_array_equal(ax.lines[1].get_ydata(), outputs[i, :, 0])
    maps = [ax for ax in figure.axes if ax.get_title() == "attention"]
    for i, ax in enumerate(maps):
        np.testing.assert_array_equal(ax.images[0].get_array(), weights[i])
    assert len(maps) == 4
    lone = shapes.predicted(inputs[:1], outputs, None, "title")
    assert len(lone.axes) == 1


# texts and translations


def test_a_verdict_says_the_right_class_where_it_is_another():
    shares = np.array([0.2, 0.7, 0.1])
    assert texts.verdict(shares, list("abc"), 1) == ("b (70%)", drawing.GREEN)
    assert texts.verdict(shares, list("abc"), 2) == ("b (70%), not c", drawing.ORANGE)
    assert texts.verdict(shares, list("abc")) == ("b (70%)", drawing.theme().ink)


def test_the_pictures_of_texts_have_their_verdicts_and_no_padding(runs):
    run = runs("texts")
    run = run._replace(examples=run.examples | {"confusion": np.eye(2, dtype=int)})
    drawn = texts.draw(run)
    assert set(drawn) == {"confusion", "attention", "attention_map"}
    lines = [text.get_text() for text in drawn["attention"].axes[0].texts]
    assert len(lines) == 10 + 7 + 4 + 3  # the words of three texts, and a verdict above each
    best = run.examples["predictions"].argmax(axis=1)
    names = ["negative", "positive"]
    for i, right in enumerate(run.examples["targets"]):
        share = run.examples["predictions"][i, best[i]]
        said = f"{names[best[i]]} ({share:.0%})"
        said += "" if best[i] == right else f", not {names[right]}"
        assert said in lines
    title = drawn["attention_map"].get_suptitle()
    assert "test example 0: which tokens each token reads\nfor the prediction " in title
    hops = texts.draw(runs("hops")._replace(examples=runs("hops").examples | {
        "confusion": np.eye(2, dtype=int)
    }))  # fmt: skip
    assert "which tokens each hop reads" in hops["hops_map"].get_suptitle()
    assert texts.named("attention_hop2") == "hop2, "
    assert texts.named("attention") == ""


def test_unknown_words_and_left_out_words_are_explained(runs):
    figure = texts.attention_on_tokens([["a", "(b)"]], [[0.5, 0.5]], [("x", "black")], "title")
    note = "title\n(in brackets: words that the model does not know)"
    assert figure.axes[0].get_title(loc="left") == note
    plain = texts.attention_on_tokens([["a", "()"]], [[0.5, 0.5]], [("x", "black")], "title")
    assert plain.axes[0].get_title(loc="left") == "title"


def test_weights_of_heads_are_meant_and_tokens_are_written_on_one_line():
    heads = np.array([[[0.8, 0.2], [0.6, 0.4]], [[0.0, 1.0], [0.2, 0.8]]])
    np.testing.assert_allclose(over_tokens("attention", heads, 2), [0.4, 0.6])
    np.testing.assert_allclose(over_tokens("attention", np.array([0.3, 0.6, 0.1]), 2), [0.3, 0.6])
    assert printable("a\nb\tc\rd") == "a↵b→c↵d"
    assert printable("x" * 60) == "x" * 60
    assert printable("x" * 61) == "x" * 59 + "…"
    assert printable("\x1b[1m") == "\\x1b[1m"


def test_lines_of_tokens_say_among_how_many_a_weight_is():
    figure = plotting.attention_on_text(["a", "b", "c", "d"], np.full(4, 0.25))
    said = figure.axes[1].get_xlabel()
    assert said == "weight among 4 tokens: no colour up to 1/n, the uniform weight"
    assert [own.get_text() for own in figure.axes[1].get_xticklabels()] == [
        *("0.25", "0.5", "1"),
    ]
    two = plotting.attention_on_text([["a"], ["b", "c"]], [[1.0], [0.5, 0.5]], title="both")
    assert two.axes[1].get_xlabel().startswith("weight among n tokens:")
    assert [own.get_text() for own in two.axes[1].get_xticklabels()] == ["1/n", "1/√n", "1"]
    assert two.axes[0].get_title(loc="left") == "both"
    boxes = [own for own in two.axes[0].patches if isinstance(own, Rectangle)]
    assert boxes[0].get_y() < boxes[1].get_y() == boxes[2].get_y()


def test_a_heading_stands_in_its_colour_above_its_text():
    headings = [("first", drawing.GREEN), ("second", drawing.ORANGE)]
    figure = texts.attention_on_tokens([["a"], ["b"]], [[1.0], [1.0]], headings, "title")
    written = {text.get_text(): text for text in figure.axes[0].texts}
    heights = [written[own].get_position()[1] for own in ("first", "a", "second", "b")]
    assert heights == sorted(heights)
    assert written["second"].get_color() == drawing.ORANGE


def test_an_empty_translation_has_no_picture(runs):
    run = runs("translation")
    drawn = translation.draw(run)["alignment"]
    assert titles(drawn) == ["test example 0", "test example 1"]
    lengths = run.examples["prediction_lengths"]
    first = run._replace(examples=run.examples | {"prediction_lengths": lengths * [0, 1]})
    assert titles(translation.draw(first)["alignment"]) == ["test example 1"]
    none = run._replace(examples=run.examples | {"prediction_lengths": lengths * 0})
    assert translation.draw(none) == {}
    assert translation.words_of(run, 1) == (["c", "a", "t"], ["t", "a", "a"])
    ax = drawn.axes[1]
    np.testing.assert_array_equal(ax.images[0].get_array(), run.attention["alignment"][1, :3, :3])
    assert [own.get_text() for own in ax.get_xticklabels()] == ["c", "a", "t"]
    assert [own.get_text() for own in ax.get_yticklabels()] == ["t", "a", "a"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("source", "translation")


# matrices and colours


def test_a_long_name_is_cut_and_a_matrix_has_square_cells():
    assert matrices.shorten("x" * 24) == "x" * 24
    assert matrices.shorten("x" * 25) == "x" * 23 + "…"
    assert matrices.panel_size(20, 10, 16.0) == pytest.approx((2.7, 5.4))
    assert matrices.panel_size(100, 50, 16.0) == pytest.approx((8, 16))
    assert matrices.panel_size(4, 2, 16.0) == pytest.approx((1.2, 2.4))
    assert matrices.panel_size(100, 1, 16.0) == pytest.approx((0.4, 16))


def test_names_are_turned_where_they_are_long_and_numbers_are_whole():
    figure = plotting.attention(np.eye(2), ["a", "bcd"], ["a", "bcd"])
    ax = figure.axes[0]
    assert {own.get_rotation() for own in ax.get_xticklabels()} == {60.0}
    assert {own.get_rotation() for own in ax.get_yticklabels()} == {0.0}
    short = plotting.attention(np.eye(2), ["a", "b"], ["a", "b"]).axes[0]
    assert {own.get_rotation() for own in short.get_xticklabels()} == {0.0}
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        *("key: the position that is attended to", "query: the position that attends"),
    )
    flat = plotting.attention(np.full((2, 40), 1 / 40)).axes[0]
    assert flat.get_ylabel() == "query"  # no room for more


def test_a_scale_has_ticks_below_its_top():
    _, ticks = drawing.heat_up_to(0.3)
    assert ticks == [0, 0.01, 0.05, 0.1, 0.3]
    assert drawing.heat_up_to(0.001)[1] == [0.0, 0.01]
    assert drawing.top_of(np.array([[np.nan, 0.5]])) == 1
    assert drawing.top_of(np.full((1, 100), 0.01)) == pytest.approx(0.08)


def test_a_users_fonts_are_not_lost_on_a_picture():
    with matplotlib.rc_context({"axes.facecolor": "#abcdef"}):
        figure = plotting.attention(np.eye(2))
        assert to_hex(figure.axes[0].get_facecolor()) == "#abcdef"
    with drawing.on(drawing.DARK):
        dark = plotting.attention(np.eye(2))
    assert to_hex(dark.axes[0].get_facecolor()) == "#131416"
    assert drawing.theme() is drawing.LIGHT
