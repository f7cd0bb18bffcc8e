// Series: the inputs one under another, each as thick at a step as its weight there.

import { el, onWidth, percent, sentence, shown, svg, tableBehind } from "./dom.mjs";
import { drawAxes, path, scale } from "./axes.mjs";
import { heatMap, largest } from "./heat.mjs";
import { across, pointAlong } from "./signals.mjs";

const SERIES_ROW = 44; // pixels of a series
const OUTPUT = 120;

/** The picture of one example, for `stage`. */
export function drawSeries(run) {
  return (example, weights, { top }) => {
    const length = example.inputs[0].length;
    const state = { step: Math.floor(length / 2), width: 640 };
    const said = sentence();
    const chart = svg("svg", { class: "chart series", tabindex: 0, role: "img" });
    const name = "Attention: steps downwards, input series across";
    const columnNames = example.inputs.map((_, i) => String(i));
    const rowNames = example.inputs[0].map((_, i) => String(i));
    const onPoint = (q, k) => tell(q, k);
    const axes = ["step", "series"];
    const map = weights && heatMap({ name, rowNames, columnNames, axes, onPoint });
    map?.show(weights, { top, name });
    const draw = () => drawSeriesChart(chart, example, weights, state, run.relevant);
    const tell = (step, k = null) => {
      state.step = step;
      said.say(seriesLook(example, weights, step, k));
      chart.setAttribute("aria-label", `${example.inputs.length} input series. ${said.text()}`);
      map?.point(step, k ?? largest(weights, step));
      draw();
    };
    pointAlong(chart, length, () => state.width, () => state.step, (step) => tell(step));
    onWidth(chart, (width) => {
      state.width = width;
      draw();
    });
    tell(state.step);
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
  const steps = Array.from({ length: weights.rows }, (_, i) => i);
  const mean = (k) => steps.reduce((sum, i) => sum + weights.at(i, k), 0) / steps.length;
  const means = Array.from({ length: weights.columns }, (_, k) => mean(k));
  const best = means.indexOf(Math.max(...means));
  const known = Number.isInteger(relevant) ? `, and series ${relevant} decides the output` : "";
  return `Series ${best} has the most weight, ${percent(means[best])} on average${known}.`;
}

function seriesLook({ targets, predictions }, weights, step, k) {
  const said = `the model says ${shown(predictions[0][step])}, right is ${shown(targets[0][step])}`;
  if (!weights) return `Step ${step}: ${said}.`;
  const key = k ?? largest(weights, step);
  return `Step ${step}: ${percent(weights.at(step, key))} of the weight on series ${key}; ${said}.`;
}

function drawSeriesChart(chart, example, weights, { step, width }, relevant) {
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
  const keys = Array.from({ length: weights.columns }, (_, k) => k);
  const header = ["step", ...keys.map((k) => `series ${k}`)];
  const row = (_, q) => [q, ...keys.map((k) => percent(weights.at(q, k)))];
  return tableBehind("weights by step", header, () => Array.from({ length: weights.rows }, row));
}
