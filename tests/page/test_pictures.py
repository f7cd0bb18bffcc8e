"""What a report shows of the examples of each kind of run, and what pointing at them says.

The data of a written run are filled into the view of its kind in Chromium, without a whole page.
"""

import json

import numpy as np
import pytest

from flax_attn.page.data import run_data, safe, weights_of
from flax_attn.tasks import read
from tests.page.test_report_page import percent as kept_percent
from tests.written_runs import write_run


def percent(weight):
    """As `js` gives a share of a weight that was kept."""
    return kept_percent(weight).replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The record of a kind, and its data as a page has them."""
    folder, made = tmp_path_factory.mktemp("written"), {}

    def of(kind):
        if kind not in made:
            made[kind] = read(write_run(folder / kind.replace(" ", "_"), kind))
        record = made[kind]
        return record, json.dumps(safe(run_data(record)))

    return of


BEGIN = """
const runs = [$DATA];
await unpackAll(runs);
const [run] = runs;
const node = onPage(kindOf(run).picture(run, null));
const said = (i = 0) => node.querySelectorAll(".sentence > span:first-child")[i].textContent;
const result = () => node.querySelector(".result").textContent;
const button = (name) =>
  [...node.querySelectorAll("button")].find((own) => own.textContent === name);
const example = (i) => node.querySelector(`[aria-label='Test example ${i}']`);
const point = (own, q, k, [rows, columns]) => {
  const box = own.getBoundingClientRect();
  own.dispatchEvent(new PointerEvent("pointermove", {
    clientX: box.left + ((k + 0.5) * box.width) / columns,
    clientY: box.top + ((q + 0.5) * box.height) / rows,
  }));
};
const opened = async (i = 0) => {
  node.querySelectorAll("details")[i].open = true;
  await later(30);
  return [...node.querySelectorAll("details")[i].querySelectorAll("tr")].map((row) =>
    [...row.children].map((own) => own.textContent));
};
"""


def shown(js, data, body):
    return js(f"(async () => {{ {BEGIN.replace('$DATA', data)} {body} }})()")


def test_a_signal_says_what_is_set_and_where_a_position_looks(js, written):
    run, data = written("signals")
    (weights,) = weights_of(run, 0)["attention"]
    other = weights_of(run, 1)["attention"][0]
    first, pointed, moved, end, table, second = shown(
        js,
        data,
        """
      const first = [said(), result()];
      const map = node.querySelector(".heat canvas");
      point(map, 3, 2, [50, 50]);
      const pointed = said();
      pressIn(map, "ArrowDown");
      pressIn(map, "ArrowRight", { shiftKey: true });
      const moved = said();
      const chart = node.querySelector("svg.signal");
      pressIn(chart, "End");
      pressIn(chart, "ArrowLeft");
      const end = said();
      const table = await opened();
      example(1).click();
      return [first, pointed, moved, end, table, said()];
    """,
    )
    inside = [q for q in range(50) if 4.5 <= q <= 11.5 or 16.5 <= q <= 23.5]
    on_triangles = weights[8, inside].sum()
    best = int(weights[8].argmax())
    assert first[0].startswith(
        f"Position 8, in a triangle, puts {percent(weights[8, best])} of its weight on position "
        f"{best}, the most of all, and "
    )
    share = float(first[0].split(", and ")[1].split(" %")[0])
    assert share == pytest.approx(100 * on_triangles, abs=1)
    predictions, targets = run.examples["predictions"][0, :, 0], run.examples["targets"][0, :, 0]
    assert first[1].startswith(
        f"Triangles set to {predictions[8]:.1f} and {predictions[20]:.1f} (right: "
        f"{targets[8]:.1f} and {targets[20]:.1f})"
    )
    assert f"Position 3 puts {percent(weights[3, 2])} of its weight on position 2." == pointed
    assert f"{percent(weights[4, 12])} of its weight on position 12" in moved
    assert f"Position 48 puts {percent(weights[48].max())}" in end
    assert table[0][-1] == "weight of the chosen query"
    assert table[8] == [
        *("7", f"{run.examples['inputs'][0, 7, 0]:.3g}", f"{targets[7]:.3g}"),
        *(f"{predictions[7]:.3g}", percent(weights[48, 7])),
    ]
    assert f"puts {percent(other[8].max())} of its weight" in second


def test_a_signal_without_attention_says_its_values(js, written):
    run, data = written("plain")
    values = [run.examples[name][0, 8, 0] for name in ("inputs", "targets", "predictions")]
    said, marks = shown(
        js,
        data,
        """
      return [said(), [node.querySelectorAll(".shade").length, textsIn(node, "svg .sign"),
        node.querySelectorAll(".heat").length]];
    """,
    )
    assert said == (
        f"Position 8: input {values[0]:.3g}, right {values[1]:.3g}, the model says {values[2]:.3g}."
    )
    assert marks == [4, ["▲", "▲", "■", "■"], 0]


def test_runs_on_the_same_signals_say_their_answers_together(js, written):
    (run, data), (_, other) = written("signals"), written("plain")
    said, lines, table = shown(
        js,
        f"{data}, {other}",
        """
      const [view] = kindOf(run).together(runs);
      onPage(view);
      pressIn(view.querySelector("svg.signal"), "Home");
      view.querySelector("details").open = true;
      await later(30);
      return [view.querySelector(".sentence > span").textContent,
        [view.querySelectorAll("path.line").length, view.querySelectorAll(".heat").length],
        textsIn(view, "thead th")];
    """,
    )
    target, prediction = (run.examples[name][0, 0, 0] for name in ("targets", "predictions"))
    weights = weights_of(run, 0)["attention"][0]
    assert said == (
        f"Position 0: right is {target:.3g}; signals {prediction:.3g}, plain {prediction:.3g}. "
        f"signals looks most at position {weights[0].argmax()}, with {percent(weights[0].max())}."
    )
    assert lines == [4, 1]
    assert table == ["position", "input", "right answer", "signals", "plain"]


def test_words_say_their_weights_and_the_mean(js, written):
    run, data = written("texts")
    (weights,) = weights_of(run, 1)["attention"]
    kept = (np.round(255 * np.sqrt(weights)) / 255) ** 2
    first, words, mean, query, table, verdict = shown(
        js,
        data,
        """
      const first = [result(), textsIn(node, ".word.unknown")];
      example(1).click();
      const words = [...node.querySelectorAll(".word")];
      const texts = words.map((own) => own.textContent);
      words[3].dispatchEvent(new Event("pointerenter"));
      const mean = said();
      words[2].click();
      words[4].dispatchEvent(new Event("focus"));
      const query = [said(), words[2].getAttribute("aria-pressed"),
        words[4].getAttribute("aria-label")];
      const table = await opened();
      words[2].click();
      return [first, texts, mean, query, table, [result(), said()]];
    """,
    )
    shares = run.examples["predictions"]
    names = ["negative", "positive"]
    best = int(shares[0].argmax())
    says = f"The model says {names[best]} ({percent_of(shares[0, best])})"
    right = "✓" if best == 0 else "✗"
    assert first[0].startswith(f"{right} {says}")
    assert first[1] == ["(good)"]
    assert words == run.examples["words"][1, :7].tolist()
    assert mean == f"The mean over all words puts {percent_of(kept.mean(axis=0)[3])} of its " \
        "weight on “film”."  # fmt: skip
    share = percent(weights[2, 4])
    assert query == [f"“old” puts {share} of its weight on “was”.", "true", f"was: {share}"]
    assert table[5] == ["was", share]
    assert verdict[1].startswith("The mean over all words puts ")


def percent_of(share):
    """As a page writes a share that was not packed."""
    hundredths = 100 * share
    small = 0.05 <= hundredths < 9.95
    return f"{hundredths:.1f} %" if small else f"{int(hundredths + 0.5)} %"


def test_hops_are_chosen_and_say_their_weights(js, written):
    run, data = written("hops")
    said, labels, bars = shown(
        js,
        data,
        """
      button("hop 2").click();
      node.querySelectorAll(".word")[1].dispatchEvent(new Event("pointerenter"));
      return [said(), [textsIn(node, ".overview span"), button("hop 2").getAttribute(
        "aria-pressed")], textsIn(node, ".bars .share")];
    """,
    )
    assert said == f"hop 2 puts {percent(weights_of(run, 0)['hops'][2, 0, 1])} of its weight on " \
        "“good”."  # fmt: skip
    assert labels == [[f"hop {i}" for i in range(4)], "true"]
    assert bars == [percent_of(own) for own in run.examples["predictions"][0]]


def test_patches_say_their_weights_and_where_they_look(js, written):
    run, data = written("images")
    kept = weights_of(run, 0)["block2"][3]
    patch, again, table, pooled, result = shown(
        js,
        data,
        """
      button("block2, head 3").click();
      const field = node.querySelector(".patches canvas");
      const box = field.getBoundingClientRect();
      const at = (k) => ({ clientX: box.left + ((k % 4) + 0.5) * box.width / 4,
        clientY: box.top + (Math.floor(k / 4) + 0.5) * box.height / 4 });
      field.dispatchEvent(new MouseEvent("click", at(0)));
      field.dispatchEvent(new PointerEvent("pointermove", at(6)));
      const patch = [said(), field.getAttribute("aria-label")];
      pressIn(field, "ArrowDown");
      const again = [said()];
      pressIn(field, "ArrowLeft");
      again.push(said());
      const table = await opened();
      field.dispatchEvent(new MouseEvent("click", at(0)));
      again.push(said());
      button("pooling").click();
      return [patch, again, table, said(), result()];
    """,
    )
    says = lambda k: f"Patch 0 puts {percent(kept[0, k])} of its weight on patch {k}."
    assert patch == [says(6), f"Image of class 3, 16 patches. {says(6)}"]
    assert again[:2] == [says(10), says(9)]
    assert again[2].startswith("The mean puts ")
    assert table[6] == ["5", percent(kept[0, 5])]
    pooling = weights_of(run, 0)["pooling"].reshape(-1)
    best = int(pooling.argmax())
    assert pooled == f"pooling puts {percent(pooling[best])} of its weight on patch {best}."
    shares = run.examples["predictions"][0]
    assert f"The model says {shares.argmax()} ({percent_of(shares.max())})" in result


def test_parts_of_a_translation_say_what_they_were_read_from(js, written):
    run, data = written("translation")
    (weights,) = weights_of(run, 0)["alignment"]
    first, cell, lined, lines, table, second = shown(
        js,
        data,
        """
      const first = [result(), said()];
      point(node.querySelector(".heat canvas"), 2, 1, [4, 4]);
      const cell = said();
      const parts = node.querySelectorAll(".lines [role=button]");
      parts[1].dispatchEvent(new Event("pointerenter"));
      const lined = said();
      const lines = node.querySelectorAll(".lines .chosen").length;
      pressIn(parts[1], "ArrowRight");
      const after = [...parts].findIndex((own) => own.getAttribute("aria-pressed") === "true");
      const table = await opened();
      example(1).click();
      return [first, cell, [lined, after], lines, table, result()];
    """,
    )
    source, answer = ["l", "a", "m", "p"], ["p", "m", "a", "l"]
    best = weights.argmax(axis=1)
    assert first == [
        "✓ The model wrote “p m a l”, which is right.",
        f"“p” was read most from “{source[best[0]]}”: {percent(weights[0].max())} of its weight.",
    ]
    assert cell == f"“a” puts {percent(weights[2, 1])} of its weight on “a”."
    assert lined == [
        f"“m” was read most from “{source[best[1]]}”: {percent(weights[1].max())} of its weight.",
        2,
    ]
    assert lines == (weights[1] >= 0.02).sum()
    assert table[1:] == [
        [part, source[best[q]], percent(weights[q].max())] for q, part in enumerate(answer)
    ]
    assert second == "The model wrote “taa”; the reference is “t a c”."


def test_blanks_of_a_translation_have_a_sign_at_the_matrix_and_in_what_is_said(js, written):
    run = json.loads(written("translation")[1])
    run["examples"][0] |= {"source": [" "] * 4, "tokens": [" "] * 4}
    rows, columns, said, table = shown(
        js,
        json.dumps(run),
        """
      return [textsIn(node, ".row-names span"), textsIn(node, ".column-names span"), said(),
        await opened()];
    """,
    )
    assert rows == columns == ["␣"] * 4
    assert said.startswith("“␣” was read most from “␣”: ")
    assert [row[:2] for row in table[1:]] == [["␣", "␣"]] * 4


def test_steps_of_series_say_what_is_weighed(js, written):
    run, data = written("series")
    (weights,) = weights_of(run, 0)["input"]
    first, cell, moved, table = shown(
        js,
        data,
        """
      const first = [result(), said()];
      point(node.querySelector(".heat canvas"), 7, 3, [12, 5]);
      const cell = said();
      pressIn(node.querySelector("svg.series"), "Home");
      return [first, cell, said(), await opened()];
    """,
    )
    means = weights.mean(axis=0)
    assert first[0].startswith(f"Series {means.argmax()} has the most weight, ")
    assert first[0].endswith("on average, and series 2 decides the output.")
    says, right = (run.examples[name][0, :, 0] for name in ("predictions", "targets"))
    values = lambda i: f"the model says {says[i]:.3g}, right is {right[i]:.3g}."
    assert cell == f"Step 7: {percent(weights[7, 3])} of the weight on series 3; {values(7)}"
    best = weights[0].argmax()
    assert moved == f"Step 0: {percent(weights[0, best])} of the weight on series {best}; " + \
        values(0)  # fmt: skip
    assert table[0] == ["step", *(f"series {k}" for k in range(5))]
    assert table[4] == ["3", *(percent(own) for own in weights[3])]


def test_tokens_of_a_passage_look_at_those_before_them(js, written):
    run, data = written("language")
    weights = weights_of(run, 0)["block2"][1]
    says, headings, induced, loss = shown(
        js,
        data,
        """
      button("block2, head 1").click();
      const words = node.querySelectorAll(".word");
      words[4].click();
      words[2].dispatchEvent(new Event("pointerenter"));
      const says = [said()];
      words[5].dispatchEvent(new Event("pointerenter"));
      says.push(said(), [...words].map((own) => own.classList.contains("after")));
      const all = [...node.querySelectorAll(".sentence > span:first-child")]
        .map((own) => own.textContent);
      const maps = node.querySelectorAll(".heat canvas");
      const grid = maps[maps.length - 2];
      point(grid, 1, 0, [2, 2]);
      const induced = [all.at(-1), [...node.querySelectorAll(".sentence > span:first-child")].at(-1)
        .textContent];
      return [says, textsIn(node, "h2"), induced, all.at(-2)];
    """,
    )
    share = percent(weights[4, 2])
    assert (
        says[0] == f"To say what follows “c”, the head puts {share} of its weight on “␣”, 2 back."
    )
    assert says[1] == "“d” comes after “c”, which cannot see it."
    assert says[2] == [False] * 5 + [True]
    assert headings == [
        "What it gains from knowing more",
        "Heads that look for what followed last time",
    ]
    scores = run.examples["induction"]
    block, head = np.unravel_index(scores.argmax(), scores.shape)
    assert induced[0] == (
        f"block{block + 1}, head {head} puts {scores.max():.3g} of its weight on the token that "
        "followed last time, on a random string that comes twice."
    )
    assert induced[1] == f"block2, head 0: {scores[1, 0]:.3g} on average."
    assert loss == "Tokens 1 to 6: loss goes from 1 to 1 (mean of 2 seeds)."


def test_numbers_of_texts_and_signals_are_points_of_the_test(js, written):
    run, data = written("numbers")
    targets, predictions = run.examples["targets"], run.examples["predictions"]
    says, order, chosen = shown(
        js,
        data,
        """
      const chart = node.querySelector("svg.points");
      const spoken = () => chart.getAttribute("aria-label");
      const first = [result(), spoken()];
      pressIn(chart, "Home");
      const least = spoken();
      pressIn(chart, "ArrowRight");
      const next = spoken();
      pressIn(chart, "End");
      const most = spoken();
      example(1).click();
      return [[...first, least, next, most], ((dots) => [dots.length,
          dots.findIndex((own) => own.classList.contains("colour-1"))])(
          [...node.querySelectorAll("svg.points circle.dot")]),
        node.querySelector("[aria-label='Test example 1']").getAttribute("aria-pressed")];
    """,
    )
    values = lambda i: (
        f"Test example {i}: the model says {predictions[i]:.3g}, right is {targets[i]:.3g}, so it "
        f"is off by {abs(predictions[i] - targets[i]):.3g}."
    )
    assert says[0] == f"The model says {predictions[0]:.3g}; right is {targets[0]:.3g}."
    assert says[1] == f"40 test examples. {values(0)}"
    rising = targets.argsort()
    expected = [values(rising[i]) for i in (0, 1, -1)]
    assert [own.removeprefix("40 test examples. ") for own in says[2:]] == expected
    assert order == [40, 39]  # the chosen one is drawn above the others
    assert chosen == "true"
    run, data = written("numbers of signals")
    (weights,) = weights_of(run, 0)["attention"]
    q = int(run.examples["inputs"][0, :, 0].argmax())
    said = shown(js, data, "return said();")
    assert said == (
        f"Position {q}, where the signal is {run.examples['inputs'][0, q, 0]:.3g}, puts "
        f"{percent(weights[q].max())} of its weight on position {weights[q].argmax()}, the most of "
        "all."
    )


def test_drawing_with_keys_is_heard_and_the_cursor_is_said(js):
    cells, said = js("""(() => {
      const heard = [];
      const own = paperToDraw((ink, size) => heard.push([ink, size]));
      onPage(own.node);
      const paper = own.node.querySelector("canvas");
      const said = () => own.node.querySelector(".sentence > span").textContent;
      const at = (column, row) => {
        const [ink, size] = heard.at(-1);
        return ink[(4 * row + 2) * size + 4 * column + 2];
      };
      const told = [];
      pressIn(paper, "ArrowLeft");
      told.push(said(), heard.length);
      pressIn(paper, " ");
      told.push(said(), at(13, 14), at(20, 14));
      pressIn(paper, "ArrowUp", { shiftKey: true });
      told.push(said(), at(13, 13));
      pressIn(paper, "Delete");
      told.push(said(), at(13, 13), at(13, 14));
      own.show(new Float32Array([0, 1, 0, 0]), 2, 2);
      pressIn(paper, "Delete");
      told.push(at(20, 5), at(5, 5), at(20, 20));
      own.clear();
      pressIn(paper, "Delete");
      return [[told.filter((one) => typeof one === "number")],
        told.filter((one) => typeof one === "string").concat(String(at(20, 5)))];
    })()""")
    assert cells == [[0, 1, 0, 1, 0, 1, 1, 0, 0]]
    assert said == [
        "Cursor in row 15, column 14.",
        "Cursor in row 15, column 14, drawn.",
        "Cursor in row 14, column 14, drawn.",
        "Cursor in row 14, column 14, wiped.",
        "0",
    ]


def test_heads_are_chosen_and_marked_in_a_grid(js):
    labels, pressed, chosen = js("""(() => {
      const calls = [];
      const run = { attention: [{ name: "a", heads: 2 }, { name: "b", heads: 1 }] };
      const own = headGrid(run, (...place) => calls.push(place));
      onPage(own.node);
      const cells = [...own.node.querySelectorAll("button")];
      own.show([0, 1, 2].map((i) => matrixOf([[i / 2, 0], [0, 1]])));
      own.mark({ view: { attention: 0, head: 1 }, cut: [[1, 0]],
        effects: new Map([["0,0", { value: -0.5, written: "-50" }]]) });
      cells[2].click();
      cells[1].click();
      return [cells.map((one) => one.getAttribute("aria-label")),
        cells.map((one) => one.getAttribute("aria-pressed")), calls];
    })()""")
    assert labels == ["a, head 0, cutting it: -50", "a, head 1", "b, cut"]
    assert pressed == ["false", "true", "false"]
    assert chosen == [[1, 0], [0, 1]]


def test_what_each_change_does_is_asked_some_at_once_and_said(js):
    texts, said, asked, heard = js("""(async () => {
      const asked = [], heard = [];
      const ask = async (request) => {
        asked.push(request.changes.length);
        return { effects: request.changes.map(({ cut }) => -cut / 10) };
      };
      const own = effectsRow(ask, { label: "heads", atOnce: 2, hint: "h",
        onPress: (i) => heard.push(i), onChange: (i, value) => heard.push([i, value]) });
      onPage(own.node);
      await own.show({ title: "What", best: "x", names: ["a", "b", "c", "d"],
        changes: [1, 2, 3, 4].map((cut) => ({ cut })), off: [false, true, false, false] }, {});
      own.node.querySelectorAll("button")[2].click();
      const texts = textsIn(own.node, "small");
      const said = own.node.querySelector(".sentence").textContent;
      await own.show({ title: "What", best: "x", names: Array(65).fill("a"),
        changes: Array(65).fill({}), off: Array(65).fill(false) }, {});
      return [texts, [said, own.node.querySelector(".sentence").textContent], asked, heard];
    })()""")
    minus = "\N{MINUS SIGN}"
    assert texts == [f"{minus}10", "off", f"{minus}30", f"{minus}40"]
    assert said == [
        f"Most changes without “d”: {minus}40.",
        "There are more than 64 parts, so none is changed in turn.",
    ]
    assert asked == [2, 1]
    assert heard == [[0, -0.1], [2, -0.3], [3, -0.4], 2]
