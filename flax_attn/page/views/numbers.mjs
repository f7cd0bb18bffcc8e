// Numbers of texts or signals: what the model says over what is right, one point a test example,
// beside the text or signal and what it attends to. To try, a text is typed or a signal dragged.

import { el, onWidth, percent, sentence, shown, svg, tableBehind } from "../dom.mjs";
import { addKind } from "../kinds.mjs";
import { indexOfLargest } from "../lists.mjs";
import { across, chartAlong, drawAxes, path, scale, stepAlong } from "../pictures/axes.mjs";
import { heatMap, largest, STRIP, weightStrip } from "../pictures/heat.mjs";
import { stage } from "../pictures/stage.mjs";
import { trackOf } from "../pictures/words.mjs";
import { seriesParts, storedChannels, trySeries } from "./series.mjs";
import { drawText, hasMap, keptText, tryTexts } from "./texts.mjs";

const TALLEST = 330; // pixels of the points
const NEAR = 24; // pixels from a point within which it is pointed at
const NUMBER_CHART = 260;

/** The answer to an input, where it is a number. All of the test have one picture. */
const AS_NUMBER = {
  verdict: (run, { target, prediction }) =>
    `The model says ${shown(prediction)}; right is ${shown(target)}.`,
  picture: () => null,
  reply: (reply, run) => numberBar(run, numberIn(reply)),
  said: (reply) => shown(numberIn(reply)),
};

const numberIn = ({ outputs }) => outputs.data[0];

/** A number as a bar between the least and the largest of the test. */
function numberBar(run, number) {
  const [low, high] = endsOf(run.beside.targets);
  const bar = el(
    "li",
    { class: "best" },
    el("span", { class: "class-name" }, "the number"),
    trackOf((number - low) / (high - low || 1)),
    el("span", { class: "share" }, shown(number)),
  );
  const ends = `The bar goes from ${shown(low)} to ${shown(high)}, the numbers of the test.`;
  return el("div", {}, el("ul", { class: "bars" }, bar), el("p", { class: "hint" }, ends));
}

function endsOf(numbers) {
  return [Math.min(...numbers), Math.max(...numbers)];
}

/** What the model says over what is right. A point of an example that is kept chooses it. */
function pointsOf(run, { number, press }) {
  const { targets, predictions } = run.beside;
  const order = targets.map((_, i) => i).sort((a, b) => targets[a] - targets[b]);
  const kept = run.examples.length;
  const state = { i: number, width: 300, places: [] };
  const said = sentence();
  const ring = svg("circle", { r: 9, class: "line target" });
  const chart = svg("svg", { class: "chart points", tabindex: 0, role: "img" });
  const point = (i) => {
    state.i = i;
    const [x, y] = state.places[i];
    ring.setAttribute("cx", x);
    ring.setAttribute("cy", y);
    const off = shown(Math.abs(predictions[i] - targets[i]));
    const values = `the model says ${shown(predictions[i])}, right is ${shown(targets[i])}`;
    said.say(`Test example ${i}: ${values}, so it is off by ${off}.`);
    chart.setAttribute("aria-label", `${targets.length} test examples. ${said.text()}`);
  };
  const choose = (i) => {
    if (i < kept && i !== number) press(i);
  };
  const near = (event) => {
    const box = chart.getBoundingClientRect();
    const size = state.width / box.width;
    const at = [(event.clientX - box.left) * size, (event.clientY - box.top) * size];
    return nearestPoint(state.places, at, kept);
  };
  chart.addEventListener("pointermove", (event) => near(event) !== null && point(near(event)));
  chart.addEventListener("click", (event) => near(event) !== null && choose(near(event)));
  chart.addEventListener("keydown", ({ key }) => key === "Enter" && choose(state.i));
  stepAlong(chart, order.length, () => order.indexOf(state.i), (place) => point(order[place]));
  onWidth(
    chart,
    (width) => {
      state.width = width;
      state.places = drawPoints(chart, run, number, width, ring);
      point(state.i);
    },
    300,
  );
  const hint = `Point at a test example. The first ${kept}, which are larger, can be chosen.`;
  const rows = () => order.map((i) => [i, shown(targets[i]), shown(predictions[i])]);
  const header = ["test example", "right", "the model's answer"];
  const numbers = tableBehind("the numbers of the test", header, rows);
  const under = el("p", { class: "hint no-print" }, hint);
  return el("div", {}, chart, said.node, under, numbers);
}

/** Draws the points and the line where both are equal; returns the place of each in pixels. */
function drawPoints(chart, run, number, width, ring) {
  const { targets, predictions } = run.beside;
  const height = Math.min(width, TALLEST);
  const [low, high] = endsOf([...targets, ...predictions]);
  const room = 0.04 * (high - low) || 1;
  const box = { left: 44, right: width - 14, top: 30, bottom: height - 46 };
  const x = scale(low - room, high + room, box.left, box.right);
  const up = scale(low - room, high + room, box.bottom, box.top);
  const places = targets.map((target, i) => [x.place(target), up.place(predictions[i])]);
  const [from, to] = [low - room, high + room];
  const ends = { x1: x.place(from), y1: up.place(from), x2: x.place(to), y2: up.place(to) };
  const diagonal = svg("line", { ...ends, class: "line target", "stroke-dasharray": "6 4" });
  const dots = places.map(([cx, cy], i) => {
    const isKept = i < run.examples.length;
    const look = i === number ? "dot colour-1" : "dot colour-0";
    const solid = isKept ? 1 : 0.3;
    return svg("circle", { cx, cy, r: isKept ? 5 : 2.6, class: look, "fill-opacity": solid });
  });
  const above = [...dots.slice(run.examples.length), ...dots.slice(0, run.examples.length)];
  const names = { across: "right", up: "the model's answer" };
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren(drawAxes(x, up, box, names), diagonal, ...above, dots[number], ring);
  return places;
}

/** The point that is nearest, those that can be chosen first; null where none is near. */
function nearestPoint(places, [x, y], kept) {
  const far = places.map(([cx, cy], i) => Math.hypot(cx - x, cy - y) - (i < kept ? 4 : 0));
  const best = far.indexOf(Math.min(...far));
  return far[best] <= NEAR ? best : null;
}

/** The picture of one signal and its number, for `stage`. */
function drawNumberedSignal(run) {
  return (example, weights, options) => {
    const [signal] = example.inputs;
    const name = "Attention: queries downwards, keys across";
    const onPoint = (q, k) => tell(q, k);
    const map = hasMap(weights) ? heatMap({ name, axes: ["query", "key"], onPoint }) : null;
    map?.show(weights, { top: options.top, name });
    const { chart, said, tell } = chartAlong({
      look: "signal",
      label: `Signal of ${signal.length} positions`,
      length: signal.length,
      first: indexOfLargest(signal),
      draw: (own, state) => drawNumberedChart(own, example, weights, state, options.top),
      say: (q, k) => numberedLook(example, weights, q, k),
      mark: (q, k) => map?.point(q, k ?? largest(weights, q)),
    });
    const verdict = el("p", { class: "result" }, AS_NUMBER.verdict(run, example));
    return [verdict, chart, said.node, map?.node];
  };
}

function drawNumberedChart(chart, { inputs }, weights, { q, width }, top) {
  const length = inputs[0].length;
  const foot = NUMBER_CHART - 46;
  const strip = weights ? STRIP : 0;
  const box = { left: 44, right: width - 14, top: 30, bottom: foot };
  const positions = inputs[0].map((_, i) => i);
  const [low, high] = endsOf([...inputs.flat(), 0]);
  const x = across(length, width);
  const up = scale(low, high + 0.05 * (high - low || 1), foot - strip - 4, box.top);
  const lines = inputs.map((channel, i) =>
    svg("path", { d: path(positions, channel, x, up), class: `line colour-${i % 6}` }),
  );
  const row = weights && Math.min(q, weights.rows - 1);
  if (weights) lines.push(weightStrip(weights, row, top, x, foot - strip));
  const cursor = { x1: x.place(q), x2: x.place(q), y1: box.top, y2: foot, class: "cursor" };
  chart.setAttribute("viewBox", `0 0 ${width} ${NUMBER_CHART}`);
  const axes = drawAxes(x, up, box, { across: "position", up: "signal" });
  chart.replaceChildren(axes, ...lines, svg("line", cursor));
}

function numberedLook({ inputs }, weights, q, k) {
  const value = shown(inputs[0][q]);
  if (!weights) return `Position ${q}: the signal is ${value}.`;
  const row = Math.min(q, weights.rows - 1);
  const key = k ?? largest(weights, row);
  const who = weights.rows > 1 ? `Position ${q}, where the signal is ${value},` : "The model";
  const most = k === null ? ", the most of all" : "";
  return `${who} puts ${percent(weights.at(row, key))} of its weight on position ${key}${most}.`;
}

const isOfText = (run) => run.examples.some(({ tokens }) => tokens);

/** The picture of the examples of a run, texts or signals, beside the whole test. */
function drawNumbers(run) {
  const draw = isOfText(run) ? drawText(run, AS_NUMBER) : drawNumberedSignal(run);
  return (example, weights, options) => {
    const own = el("div", {}, draw(example, weights, options));
    return el("div", { class: "beside" }, own, pointsOf(run, options));
  };
}

addKind("numbers", {
  picture: (run, beside) => {
    const hasLegend = isOfText(run) ? hasMap : Boolean;
    return stage(run, drawNumbers(run), { hasLegend, beside });
  },
  kept: (run, example) => {
    const outputs = { shape: [1], data: [example.prediction] };
    const { attention } = example;
    return { ...(example.tokens ? keptText(example) : { attention, scores: null }), outputs };
  },
  tried: (parts) => (isOfText(parts.runs[0]) ? tryTexts : trySeries)(parts, AS_NUMBER),
  stored: {
    inputs: (run, example) => storedChannels(example),
    parts: (run, example, weights) => seriesParts(false, weights),
  },
});
