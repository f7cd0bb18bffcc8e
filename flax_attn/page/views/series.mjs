// Series: the inputs one under another, each as thick at a step as its weight there. To try, a
// series is moved up and down, as is a signal without shapes.

import { exampleChooser, headChooser } from "../controls/choosers.mjs";
import { isVisible } from "../controls/settings.mjs";
import { el, onDrag, percent, setStyle, shown, svg, tableBehind } from "../dom.mjs";
import { addKind } from "../kinds.mjs";
import { indexOfLargest, meanOf, range, sumOf } from "../lists.mjs";
import { across, chartAlong, drawAxes, path, scale } from "../pictures/axes.mjs";
import { evidenceRow } from "../pictures/evidence.mjs";
import { heatMap, largest, rowOf } from "../pictures/heat.mjs";
import { stage } from "../pictures/stage.mjs";

const SERIES_ROW = 44; // pixels of a series
const OUTPUT = 120;

/** The picture of one example, for `stage`. */
function drawSeries(run) {
  return (example, weights, { top }) => {
    const length = example.inputs[0].length;
    const name = "Attention: steps downwards, input series across";
    const columnNames = example.inputs.map((_, i) => String(i));
    const rowNames = example.inputs[0].map((_, i) => String(i));
    const onPoint = (q, k) => tell(q, k);
    const axes = ["step", "series"];
    const map = weights && heatMap({ name, rowNames, columnNames, axes, onPoint });
    map?.show(weights, { top, name });
    const { chart, said, tell } = chartAlong({
      look: "series",
      label: `${example.inputs.length} input series`,
      length,
      first: Math.floor(length / 2),
      draw: (own, state) => drawSeriesChart(own, example, weights, state, run.relevant),
      say: (step, k) => seriesLook(example, weights, step, k),
      mark: (step, k) => map?.point(step, k ?? largest(weights, step)),
    });
    return [
      weights ? el("p", { class: "result" }, seriesShare(weights, run.relevant)) : null,
      map ? el("div", { class: "beside" }, chart, map.node) : chart,
      said.node,
      el("p", { class: "hint no-print" }, "Point at a step to see what is read there."),
      weights ? seriesBehind(weights) : null,
    ];
  };
}

function seriesShare(weights, relevant) {
  const means = rowOf(weights, null);
  const best = indexOfLargest(means);
  const known = Number.isInteger(relevant) ? `, and series ${relevant} decides the output` : "";
  return `Series ${best} has the most weight, ${percent(means[best])} on average${known}.`;
}

function seriesLook({ targets, predictions }, weights, step, k) {
  const said = `the model says ${shown(predictions[0][step])}, right is ${shown(targets[0][step])}`;
  if (!weights) return `Step ${step}: ${said}.`;
  const key = k ?? largest(weights, step);
  return `Step ${step}: ${percent(weights.at(step, key))} of the weight on series ${key}; ${said}.`;
}

function drawSeriesChart(chart, example, weights, { q: step, width }, relevant) {
  const { inputs, targets, predictions } = example;
  const length = inputs[0].length;
  const x = across(length, width);
  const steps = inputs[0].map((_, i) => i);
  const rows = inputs.map((values, i) => {
    const head = i * SERIES_ROW;
    const up = scale(Math.min(...values), Math.max(...values), head + SERIES_ROW - 6, head + 8);
    const isKey = i === relevant;
    const place = { x: 36, y: head + SERIES_ROW / 2 + 6, "text-anchor": "end" };
    const name = svg("text", { ...place, class: isKey ? "relevant" : "" }, String(i));
    const parts = steps.slice(1).map((_, j) => {
      const thick = weights ? 0.8 + 7 * Math.sqrt(Math.max(weights.at(j + 1, i), 0)) : 2;
      const ends = { x1: x.place(j), x2: x.place(j + 1) };
      const line = { ...ends, y1: up.place(values[j]), y2: up.place(values[j + 1]) };
      return svg("line", { ...line, "stroke-width": thick, class: "series-line colour-0" });
    });
    return [name, ...parts];
  });
  const start = inputs.length * SERIES_ROW;
  const height = start + OUTPUT + 60;
  const box = { left: 44, right: width - 14, top: start + 34, bottom: height - 46 };
  const values = [...targets[0], ...predictions[0]].filter(Number.isFinite);
  const up = scale(Math.min(...values), Math.max(...values), box.bottom, box.top);
  up.ticks = up.ticks.filter((_, i) => i % 2 === 0);
  const line = (ys, look, dash) =>
    svg("path", { d: path(steps, ys, x, up), class: `line ${look}`, "stroke-dasharray": dash });
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren(
    ...rows.flat(),
    drawAxes(x, up, box, { across: "step", up: "output: right (dashed), the model's (orange)" }),
    line(targets[0], "target", "6 4"),
    line(predictions[0], "colour-1", ""),
    svg("line", { x1: x.place(step), x2: x.place(step), y1: 0, y2: box.bottom, class: "cursor" }),
  );
}

function seriesBehind(weights) {
  const header = ["step", ...range(weights.columns).map((k) => `series ${k}`)];
  const row = (q) => [q, ...rowOf(weights, q).map(percent)];
  return tableBehind("weights by step", header, () => range(weights.rows).map(row));
}

const FRAME = 100;
const STRETCHES = 10; // of a signal without shapes
const STEPS_UP = 20; // presses of an arrow key from the bottom to the top

/**
 * The view of series. Each row is moved up and down, and is as thick as its weight. The answer is a
 * row of curves, or what `answers` makes of it: `reply(reply, run)`, a node, and `said(reply)`.
 */
export function trySeries(parts, answers = null) {
  const { runs, asks, changed, hide, beginWith, pick, again } = parts;
  const [run] = runs;
  const first = run.examples[0].inputs;
  const isSeries = run.kind === "series";
  const all = run.examples.flatMap((example) => example.inputs.flat());
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const length = first[0].length;
  const state = { rows: [], step: length - 1, replies: null, settings: null };
  const evidence = evidenceRow(asks[0]);
  const step = stepChooser(length, (own) => {
    state.step = own;
    again();
  });
  const heads = headChooser(run, again);
  const rows = first.map((_, i) => rowOfSeries(i));
  const outputs = runs.map((own, i) => rowOfAnswer(runs.length > 1 ? own.name : "answer", i));
  const shownAs = answers ? el("div", {}) : outputs.map((own) => own.node);

  function rowOfSeries(i) {
    const lines = svg("g", {});
    const name = isSeries ? `series ${i}` : "signal";
    const picture = pictureOf(lines);
    const share = el("span", { class: "try-share" });
    const node = el(
      "div",
      { class: "try-series-row", role: "slider", tabindex: 0, "aria-label": name },
      el("span", {}, name),
      picture,
      share,
    );
    node.setAttribute("aria-valuemin", low.toFixed(2));
    node.setAttribute("aria-valuemax", high.toFixed(2));
    dragged(node, picture, (up, where, isFirst) => move(i, up, where, isFirst));
    node.addEventListener("focus", pick);
    const button = el("button", { type: "button", onclick: () => hide([i]) }, "hide");
    const line = el("div", { class: "try-series-line" }, node, isSeries ? button : null);
    return { node: line, slider: node, lines, share, button, moved: 0 };
  }

  function rowOfAnswer(name, i) {
    const lines = svg("g", {});
    const node = el("div", { class: "try-series-row" }, el("span", {}, name), pictureOf(lines));
    return { node, lines, i };
  }

  const x = (t, length) => (FRAME * (t + 0.5)) / length;
  const y = (value) => 92 - (84 * (value - low)) / (high - low || 1);

  /** Moves a whole series; a signal without shapes is bent where it is touched. */
  function move(i, up, where, isWhole) {
    const added = (up * (high - low)) / FRAME;
    const row = state.rows[i];
    const middle = where * (row.length - 1);
    const reach = Math.max(row.length / 12, 1);
    const weightAt = (t) => (isSeries || isWhole ? 1 : Math.exp(-(((t - middle) / reach) ** 2)));
    state.rows[i] = row.map((value, t) => value + added * weightAt(t));
    rows[i].moved += added;
    changed();
  }

  function right() {
    if (!isSeries || run.relevant === null || run.relevant === undefined) return null;
    const own = state.rows[run.relevant];
    return own.map((value, t) => (value + (t ? own[t - 1] : 0)) / 2);
  }

  /** `request` is what was answered. */
  function show(replies, settings, request) {
    Object.assign(state, { replies, settings });
    const looks = isSeries ? heads.weights(replies[0]) : null;
    const means = looks && rowOf(looks, null);
    rows.forEach((row, i) => {
      row.lines.replaceChildren(...segments(state.rows[i], looks, i), ...cursorAt(state.step));
      row.share.textContent = means ? percent(means[i]) : "";
      row.slider.setAttribute("aria-valuenow", row.moved.toFixed(2));
      const moved = `moved by ${row.moved.toFixed(2)}`;
      const share = means ? `, ${percent(means[i])} of the attention` : "";
      row.slider.setAttribute("aria-valuetext", `${moved}${share}`);
      row.button.setAttribute("aria-pressed", String(settings.hidden.includes(i)));
      row.button.textContent = settings.hidden.includes(i) ? "show" : "hide";
    });
    if (answers) shownAs.replaceChildren(...replies.map((own, i) => answers.reply(own, runs[i])));
    else outputs.forEach((own, i) => drawCurves(own, i, replies[i]));
    showEvidence(request);
  }

  function drawCurves(own, i, reply) {
    const channels = channelsOf(reply.outputs);
    const goal = right();
    own.lines.replaceChildren(
      ...(goal ? [path(goal, "try-target")] : []),
      ...channels.map((channel) => path(channel, `try-answer-${i}`)),
    );
  }

  /** Hides each series, or each stretch of a signal, in turn: once for each request. */
  function showEvidence(request) {
    const looks = heads.weights(state.replies[0]);
    const asked = JSON.stringify([request, heads.now]);
    if (!looks || asked === state.asked) return;
    state.asked = asked;
    evidence.show({ ...seriesParts(isSeries, looks), ...request });
  }

  /** The step whose scores are shown, as a line across a picture. */
  function cursorAt(t) {
    if (!hasAttention) return [];
    const place = x(t, length);
    return [svg("line", { class: "try-step", x1: place, x2: place, y1: 0, y2: FRAME })];
  }

  function path(values, kind) {
    const points = values.map(
      (value, t) => `${x(t, values.length).toFixed(2)},${y(value).toFixed(2)}`,
    );
    return svg("polyline", { class: `try-line ${kind}`, points: points.join(" ") });
  }

  /** The pieces of a curve, each as thick as the weight of its step. */
  function segments(values, looks, i) {
    if (!looks) return [path(values, "try-input")];
    return values.slice(1).map((value, before) => {
      const weight = looks.at(Math.min(before + 1, looks.rows - 1), i);
      const ends = { x1: x(before, values.length), y1: y(values[before]) };
      const thick = { "stroke-width": 1 + 9 * Math.sqrt(weight), class: "try-line try-piece" };
      return svg("line", { ...ends, x2: x(before + 1, values.length), y2: y(value), ...thick });
    });
  }

  function say(replies) {
    if (answers)
      return runs
        .map(({ name }, i) => [runs.length > 1 ? `${name}:` : "The answer is", replies[i]])
        .map(([who, reply]) => `${who} ${answers.said(reply)}.`)
        .join(" ");
    const looks = heads.weights(replies[0]);
    const goal = right();
    const off = goal && channelsOf(replies[0].outputs)[0].map((own, t) => Math.abs(own - goal[t]));
    const error = off
      ? ` It is off by ${meanOf(off).toFixed(2)} on average.`
      : "";
    if (!looks || !isSeries) return `The answer follows the signal.${error}`;
    const means = rowOf(looks, null);
    const best = indexOfLargest(means);
    return `Series ${best} gets ${percent(means[best])} of the attention.${error}`;
  }

  function query() {
    const looks = state.replies && heads.weights(state.replies[0]);
    if (!looks) return null;
    const q = Math.min(Math.floor((state.step * looks.rows) / length), looks.rows - 1);
    return {
      what: isSeries ? `step ${q}` : `position ${q}`,
      weights: looks,
      scores: heads.scores(state.replies[0]),
      q,
      visible: (k) =>
        isSeries ? !state.settings.hidden.includes(k) : isVisible(q, k, state.settings),
      key: (k) => (isSeries ? `series ${k}` : `position ${k}`),
    };
  }

  const begin = (i) => {
    state.rows = run.examples[i].inputs.map((row) => [...row]);
    for (const row of rows) row.moved = 0;
  };
  const hasAttention = run.attention.length > 0;
  return {
    node: el(
      "div",
      {},
      exampleChooser(run, beginWith),
      heads.node,
      rows.map((row) => row.node),
      el("h3", {}, "The answer"),
      shownAs,
    ),
    hint: isSeries
      ? "Drag a series up or down. Only one of them changes the answer: find it, then hide it."
      : "Drag the signal up or down where you touch it, and see the answer follow.",
    most: length,
    between: !isSeries,
    after: hasAttention ? el("div", {}, evidence.node, step) : null,
    input: () => storedChannels({ inputs: state.rows }),
    begin,
    show,
    say,
    query,
  };
}

/** A slider for the step whose scores are shown. */
function stepChooser(length, onChoice) {
  const value = el("output", {}, String(length - 1));
  const input = el("input", { type: "range", min: 0, max: length - 1, value: length - 1 });
  input.setAttribute("aria-label", "step to look at"); // the label is that of the output
  input.addEventListener("input", () => {
    value.textContent = input.value;
    onChoice(Number(input.value));
  });
  return el("label", { class: "control" }, el("span", {}, "step to look at ", value), input);
}

function pictureOf(lines) {
  const frame = {
    viewBox: `0 0 ${FRAME} ${FRAME}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  };
  return svg("svg", frame, lines);
}

/** The channels of an output `(t, channels)`. */
function channelsOf({ shape, data }) {
  const count = shape[1] ?? 1;
  return range(count).map((c) => [...data].filter((_, i) => i % count === c));
}

/** Calls `onMove(up, where, isWhole)` for a drag and for arrow keys, `up` in hundredths. */
function dragged(node, picture, onMove) {
  let last = null; // where the pointer was
  let place = 0.5;
  setStyle(node, { "touch-action": "pan-x" });
  const begin = (event) => {
    const box = picture.getBoundingClientRect();
    place = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    last = event.clientY;
  };
  const move = (event) => {
    onMove((FRAME * (last - event.clientY)) / picture.getBoundingClientRect().height, place, false);
    last = event.clientY;
  };
  onDrag(node, begin, move);
  node.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    onMove((steps[event.key] * FRAME) / STEPS_UP, place, true);
  });
}

/** Each series, or the stretches of a signal, with the mean weight over all queries. */
export function seriesParts(isSeries, weights) {
  const means = rowOf(weights, null);
  const weighed = `the mean over all ${isSeries ? "steps" : "positions"}`;
  const common = { weighed, what: isSeries ? "series" : "stretch" };
  if (isSeries) {
    const names = means.map((_, k) => `series ${k}`);
    return { ...common, names, labels: names, weights: means };
  }
  const count = Math.min(STRETCHES, weights.columns);
  const first = (i) => Math.round((i * weights.columns) / count);
  const stretches = range(count).map((i) => [first(i), first(i + 1)]);
  return {
    ...common,
    names: stretches.map(([from, end]) => `positions ${from} to ${end - 1}`),
    labels: stretches.map(([from, end]) => `${from}–${end - 1}`),
    keys: stretches.map(([from, end]) => range(end).slice(from)),
    weights: stretches.map(([from, end]) => sumOf(means.slice(from, end))),
  };
}

/** What a run has kept of an answer in channels, as a reply. */
export function keptChannels({ predictions, attention }) {
  return { outputs: storedChannels({ inputs: predictions }).inputs, attention, scores: null };
}

/** What a model takes for the channels of an example, `(t, channels)`. */
export function storedChannels({ inputs: channels }) {
  const data = channels[0].flatMap((_, t) => channels.map((channel) => channel[t]));
  return { inputs: { shape: [channels[0].length, channels.length], data } };
}

addKind("series", {
  picture: (run, beside) => stage(run, drawSeries(run), { top: () => 1, beside }),
  tried: trySeries,
  kept: (run, example) => keptChannels(example),
  stored: {
    inputs: (run, example) => storedChannels(example),
    parts: (run, example, weights) => seriesParts(true, weights),
  },
});
