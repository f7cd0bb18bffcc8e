"""The curves and the tables of a report, in Chromium."""

import json
import re

import numpy as np
import pytest

from flax_attn.page.report import report
from flax_attn.runs.reading import read
from tests.written_runs import write_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of some runs, given as `(kind, options)` by name."""
    folder = tmp_path_factory.mktemp("pages")

    def make(**runs):
        paths = [write_run(folder / name, kind, **more) for name, (kind, more) in runs.items()]
        page = folder / f"{'-'.join(runs)}.html"
        page.write_text(report([read(path) for path in paths]), encoding="utf-8")
        return page

    return make


def chart_of(opened):
    chart = opened.page.locator("svg.chart:not(.signal)").last
    chart.scroll_into_view_if_needed()
    return chart, chart.bounding_box()


def steps_shown(chart):
    """The labels of the ticks along the steps."""
    return [
        int(text.replace(",", ""))
        for text in chart.locator(".axes text").all_text_contents()
        if text.replace(",", "").isdigit() and int(text.replace(",", "")) % 10 == 0
    ]


def test_curves_zoom_hover_and_come_back(pages, visit):
    page = pages(lone=("plain", {"seeds": (0, 1, 2), "epochs": 8}))
    opened = visit(page)
    chart, box = chart_of(opened)
    said = lambda: opened.page.locator(".sentence > span:first-child").last.text_content()
    whole = steps_shown(chart)
    assert max(whole) == 800
    middle = box["y"] + box["height"] / 2
    opened.page.mouse.move(box["x"] + 0.5 * box["width"], middle)
    lines = (page.parent / "lone/metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    step = int(said().split()[1].rstrip(":"))
    mean = np.mean([row["valid/mse"] for row in rows if row["step"] == step])
    assert f"valid {mean:.3g}" in said()
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 0.8 * box["width"], middle, steps=3)
    opened.page.mouse.up()
    zoomed = steps_shown(chart)
    assert min(zoomed) > 300
    assert max(zoomed) < 700
    assert chart.locator("clipPath rect").count() == 1  # no line runs over the axis
    chart.press("Escape")
    assert steps_shown(chart) == whole
    chart.press("+")
    assert max(steps_shown(chart)) < 800
    chart.press("-")
    assert steps_shown(chart) == whole
    chart.press("ArrowRight")
    assert said().startswith("Step 0: ")
    assert chart.locator("polygon.band").count() == 3  # of the seeds
    is_log = opened.page.get_by_label("log scale")
    assert is_log.is_checked()  # an error that falls to a 256th
    before = chart.locator("path").first.get_attribute("d")
    is_log.uncheck()
    assert chart.locator("path").first.get_attribute("d") != before


def test_runs_differ_by_dash_and_shared_metrics_come_first(pages, visit):
    more = {"epochs": 2}
    opened = visit(pages(a=("plain", more), b=("plain", more), c=("texts", more)))
    dashes = [
        line.get_attribute("stroke-dasharray")
        for line in opened.page.locator("svg.chart:not(.signal) path.line").all()
    ]
    assert len(set(dashes)) == len(dashes) == 2
    options = opened.page.get_by_label("Metric").locator("option").all_text_contents()
    assert options[0] == "valid/mse"  # of two runs
    assert "valid/accuracy" in options  # of one
    opened.page.get_by_label("Metric").select_option(label="valid/accuracy")
    assert opened.page.locator("svg.chart:not(.signal) path.line").count() == 1


def test_numbers_that_are_none_leave_gaps_and_are_said(pages, visit, tmp_path):
    path = write_run(tmp_path / "broken", "plain", seeds=(0,), epochs=4)
    run, page = read(path), tmp_path / "broken.html"
    run.rows[2]["valid/mse"] = float("nan")
    page.write_text(report([run]), encoding="utf-8")
    opened = visit(page)
    chart, _ = chart_of(opened)
    drawn = chart.locator("path.colour-1").get_attribute("d")
    assert drawn.count("M") == 2  # it goes on behind the gap
    for _ in range(3):
        chart.press("ArrowRight")
    assert "valid NaN" in opened.page.locator(".sentence > span:first-child").last.text_content()


def test_the_table_sorts_and_marks_the_best_and_keeps_tasks_apart(pages, visit):
    runs = {"late": ("plain", {"epochs": 1}), "early": ("plain", {"epochs": 5})}
    opened = visit(pages(**runs, words=("texts", {})))
    tables = opened.page.locator("table.results")
    assert tables.count() == 2
    assert "cannot be compared" in opened.page.content()
    table = tables.first
    heads = table.locator("thead button").all_text_contents()
    place = heads.index("test/mse, kept")
    cell = lambda row: table.locator("tbody tr").nth(row).locator("td").nth(place - 1)
    mean, std = np.mean([1, 1.1]) / 2, np.std([1, 1.1], ddof=1) / 2
    assert cell(0).text_content() == f"{mean:.4g} ±\xa0{std:.1g}"
    assert cell(0).locator("strong").count() == 0
    assert cell(1).locator("strong").count() == 1
    table.get_by_role("button", name="test/mse, kept").click()
    assert table.locator("tbody th").all_text_contents() == ["early", "late"]
    assert table.locator("[aria-sort=ascending]").count() == 1
    table.get_by_role("button", name="test/mse, kept").press("Enter")
    assert table.locator("tbody th").all_text_contents() == ["late", "early"]
    heading = opened.page.locator("h1").text_content()
    assert heading.startswith("early, the best of 2 runsTask: level each pair of shapes")


def test_a_table_of_many_results_fits_a_laptop(tmp_path, visit):
    path = write_run(tmp_path / "run", "texts")
    summary = json.loads((path / "summary.json").read_text())
    measure = summary["metrics"]["test/accuracy"]
    further = ("f1", "loss", "macro/f1", "precision", "recall")
    summary["metrics"] |= {f"test/{name}": measure for name in further}
    (path / "summary.json").write_text(json.dumps(summary))
    page = tmp_path / "page.html"
    page.write_text(report([read(path)]), encoding="utf-8")
    opened = visit(page, viewport={"width": 1280, "height": 740})
    box = opened.page.locator(".scroll", has=opened.page.locator("table.results"))
    assert box.evaluate("own => own.scrollWidth <= own.clientWidth")
    assert "Median of last 10 epochs: of all seeds" in opened.page.locator("main").inner_text()


def test_the_heading_of_two_tasks_names_both_and_a_comparison_has_its_line(pages, visit):
    opened = visit(pages(levels=("signals", {}), counts=("numbers", {})))
    heading = opened.page.locator("h1")
    assert heading.locator(".name").text_content() == "levels and counts"
    assert heading.text_content().endswith(
        "Tasks: level each pair of shapes of a kind; predict a number from a text"
    )
    beside = opened.page.locator("h2:has-text('counts') + .hint")
    assert beside.first.text_content() == "Better than the mean alone."
    rows = opened.page.locator(".compared tr")
    minus = "\N{MINUS SIGN}"
    difference = f"{minus}1 ({minus}1.5 to {minus}0.5)"
    assert rows.nth(2).inner_text().split("\t")[1:] == ["2", difference, "better than"]


def test_runs_on_the_same_signals_answer_in_one_picture(pages, visit):
    opened = visit(pages(one=("signals", {}), other=("plain", {})))
    picture = opened.page.locator("section").first
    assert picture.locator("path.line").count() == 4  # input, target and two answers
    assert picture.locator(".heat canvas").count() == 1
    assert "target" in opened.sentence()
    assert "one attends most to position" in opened.sentence()


def test_a_chosen_induction_head_is_that_of_the_sentence_the_frame_and_the_map(written, visit):
    run, path = written("language")
    page = visit(path).page
    figure = page.locator("figure").filter(has_text="comes twice")
    weights, scores = run.examples["induction_weights"], run.examples["induction"]
    for block, head in ((0, 1), (1, 0)):
        box = figure.locator("canvas").first.bounding_box()
        at = {"x": box["width"] * (head + 0.5) / 2, "y": box["height"] * (block + 0.5) / 2}
        figure.locator("canvas").first.click(position=at)
        frame = figure.locator(".cell-mark").first.evaluate("({style}) => [style.top, style.left]")
        assert [round(float(side.rstrip("%"))) for side in frame] == [50 * block, 50 * head]
        said = figure.locator(".sentence > span").first.text_content()
        shares = [float(share) for share in re.findall(r"([\d.]+)\s%", said)]
        expected = [scores[block, head], weights[block, head, 4, 2]]  # "a b c a b c"
        assert shares == pytest.approx([100 * one for one in expected], abs=0.8)
        assert f"lock{block}, head {head}" in figure.locator(".try-title").text_content()


SMALL = """() => [...document.querySelectorAll("button, select, input, summary, [role=button]")]
  .map((node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()])
  .filter(([, {width, height}]) => width && Math.min(width, height) < 23.9)
  .map(([text]) => text)"""


@pytest.mark.parametrize("kind", ["translation", "texts", "language", "images"])
@pytest.mark.parametrize("width", [360, 1280])
def test_what_is_pressed_has_24_pixels_and_an_alignment_fits_a_phone(kind, width, written, visit):
    page = visit(written(kind)[1], viewport={"width": width, "height": 800}).page
    assert page.evaluate(SMALL) == []
    if kind == "translation":
        (scrolls,) = page.locator(".lines").evaluate_all(
            "all => all.map(({parentNode: own}) => own.scrollWidth > own.clientWidth)"
        )
        assert not scrolls
