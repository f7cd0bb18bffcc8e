// A number: predictions over targets, one point a test example, and a bar for a changed input.

import { div, el, onWidth, sentence, shown, svg, tableBehind } from "../dom.mjs";
import { drawAxes, scale, stepAlong } from "../pictures/axes.mjs";
import { answersOf, trackOf } from "../pictures/words.mjs";
import { addTarget } from "../views.mjs";

const TALLEST = 330; // pixels of the points
const NEAR = 24; // pixels from a point within which it is pointed at

const endsOf = (numbers) => [Math.min(...numbers), Math.max(...numbers)];
const numberIn = ({ outputs }) => outputs.data[0];

/** A number as a bar between the least and the largest target of the test. */
function numberBar(run, number) {
  const [low, high] = endsOf(run.beside.targets);
  const bar = el("li", { class: "best" },
    el("span", { class: "class-name" }, "value"), trackOf((number - low) / (high - low || 1)),
    el("span", { class: "share" }, shown(number)),
  );
  const ends = `The bar runs from ${shown(low)} to ${shown(high)}, the range of the test targets.`;
  return div(el("ul", { class: "bars" }, bar), el("p", { class: "hint" }, ends));
}

/** Predictions over targets. The point of a kept example chooses it. */
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
    const [cx, cy] = state.places[i];
    for (const [name, value] of Object.entries({ cx, cy })) ring.setAttribute(name, value);
    const error = shown(Math.abs(predictions[i] - targets[i]));
    const values = `prediction ${shown(predictions[i])}, target ${shown(targets[i])}`;
    said.say(`Test example ${i}: ${values}, error ${error}.`);
    chart.setAttribute("aria-label", `${targets.length} test examples. ${said.text()}`);
  };
  const choose = (i) => i < kept && i !== number && press(i);
  const near = (event, use) => {
    const box = chart.getBoundingClientRect();
    const size = state.width / box.width;
    const at = [(event.clientX - box.left) * size, (event.clientY - box.top) * size];
    const i = nearestPoint(state.places, at, kept);
    if (i !== null) use(i);
  };
  chart.addEventListener("pointermove", (event) => near(event, point));
  chart.addEventListener("click", (event) => near(event, choose));
  chart.addEventListener("keydown", ({ key }) => key === "Enter" && choose(state.i));
  stepAlong(chart, order.length, () => order.indexOf(state.i), (place) => point(order[place]));
  const draw = (width) => {
    state.width = width;
    state.places = drawPoints(chart, run, number, width, ring);
    point(state.i);
  };
  onWidth(chart, draw, state.width);
  const hint = `Point at a test example. The first ${kept}, which are larger, can be chosen.`;
  const rows = () => order.map((i) => [i, shown(targets[i]), shown(predictions[i])]);
  const header = ["test example", "target", "prediction"];
  const numbers = tableBehind("targets and predictions of the test", header, rows);
  return div(chart, said.node, el("p", { class: "hint no-print" }, hint), numbers);
}

/** Draws the points and the line of equality; returns the place of each point in pixels. */
function drawPoints(chart, run, number, width, ring) {
  const { targets, predictions } = run.beside;
  const height = Math.min(width, TALLEST);
  const [low, high] = endsOf([...targets, ...predictions]);
  const room = 0.04 * (high - low) || 1;
  const [from, to] = [low - room, high + room];
  const box = { left: 44, right: width - 14, top: 30, bottom: height - 46 };
  const x = scale(from, to, box.left, box.right);
  const up = scale(from, to, box.bottom, box.top);
  const places = targets.map((target, i) => [x.place(target), up.place(predictions[i])]);
  const ends = { x1: x.place(from), y1: up.place(from), x2: x.place(to), y2: up.place(to) };
  const diagonal = svg("line", { ...ends, class: "line target", "stroke-dasharray": "6 4" });
  const count = run.examples.length;
  const dots = places.map(([cx, cy], i) => {
    const look = i === number ? "dot colour-1" : "dot colour-0";
    const kept = i < count ? { r: 5, "fill-opacity": 1 } : { r: 2.6, "fill-opacity": 0.3 };
    return svg("circle", { cx, cy, class: look, ...kept });
  });
  const above = [...dots.slice(count), ...dots.slice(0, count)];
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const axes = drawAxes(x, up, box, { across: "target", up: "prediction" });
  chart.replaceChildren(axes, diagonal, ...above, dots[number], ring);
  return places;
}

/** The nearest point, those that can be chosen first; null where none is near. */
export function nearestPoint(places, [x, y], kept) {
  const far = places.map(([cx, cy], i) => Math.hypot(cx - x, cy - y) - (i < kept ? 4 : 0));
  const best = far.indexOf(Math.min(...far));
  return far[best] <= NEAR ? best : null;
}

function triedNumber({ runs }) {
  const node = div();
  const drawn = (reply, run) => numberBar(run, numberIn(reply));
  return {
    node,
    title: "Prediction",
    show: (replies) => node.replaceChildren(...answersOf(runs, replies, drawn)),
    said: (reply) => shown(numberIn(reply)),
  };
}

addTarget("number", {
  verdict: (run, { target, prediction }) =>
    `Prediction: ${shown(prediction)}. Target: ${shown(target)}.`,
  beside: (run, example, options) => pointsOf(run, options),
  kept: (run, { prediction }) => ({ outputs: { shape: [1], data: [prediction] } }),
  tried: triedNumber,
});
