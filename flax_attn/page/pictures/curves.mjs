// How runs learned: curves of all seeds, with zoom, hover and keys.

import { asNumber, buttonOf, div, el, newId, onWidth, sentence, shown, svg } from "../dom.mjs";
import { tableBehind } from "../dom.mjs";
import { meanOf } from "../lists.mjs";
import { DASHES, drawAxes, keyOf, path, scale } from "./axes.mjs";
import { isError } from "./table.mjs";

const SPLITS = ["train", "valid", "test"];
const CHART_HEIGHT = 320;
const NUM_COLOURS = 6;

/** The metrics that can be drawn, those that all runs share first. */
export function metricsOf(runs) {
  const own = ({ curves }) => [...new Set(Object.keys(curves).map((key) => baseOf(key, runs)))];
  const names = runs.flatMap(own);
  const { measured } = runs[0];
  const rank = (name) => {
    const base = name.split("/").at(-1);
    const split = ["valid", "test", "train"].indexOf(name.split("/")[0]);
    const count = names.filter((other) => other === name).length;
    return [-count, base !== measured, base !== "loss", split];
  };
  const compare = (one, other) => {
    const [a, b] = [rank(one), rank(other)];
    const i = a.findIndex((value, j) => value !== b[j]);
    return i < 0 ? 0 : a[i] - b[i];
  };
  return [...new Set(names)].sort(compare);
}

/** Of one run all splits of a metric stand in one chart; of several runs one split. */
const baseOf = (key, runs) => runs.length > 1 ? key : key.split("/").slice(1).join("/");

/** The lines of a metric: mean, least and most over the seeds that did not diverge. */
export function linesOf(runs, metric) {
  const wanted = runs.flatMap((run, number) =>
    runs.length > 1
      ? [[run, metric, run.name, number]]
      : SPLITS.map((split, i) => [run, `${split}/${metric}`, split, i]),
  );
  return wanted
    .filter(([run, key]) => key in run.curves)
    .map(([run, key, label, look]) => {
      const { steps, seeds } = run.curves[key];
      return lineOf(label, look, steps, Object.values(seeds));
    });
}

/** A line of the values of each seed, by step: their mean, least and most where there is any. */
export function lineOf(label, look, steps, seeds) {
  const rows = seeds.map((values) => values.map(asNumber));
  const at = (i) => rows.map((row) => row[i]).filter(Number.isFinite);
  const over = (pick) => steps.map((_, i) => (at(i).length ? pick(at(i)) : NaN));
  const [low, high] = [Math.min, Math.max].map((pick) => over((values) => pick(...values)));
  return { label, look, steps, mean: over(meanOf), low, high, rows };
}

/** Whether the values of an error span a factor of 10, above zero. */
export function wantsLog(lines, metric) {
  if (!isError(metric)) return false;
  const values = lines.flatMap((line) => [...line.low, ...line.high]).filter(Number.isFinite);
  const least = Math.min(...values);
  return least > 0 && Math.max(...values) >= 10 * least;
}

const stepsOf = (lines) =>
  [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);

/**
 * A chart of lines. `names` says what is across and up, and `at`, the word for a place across.
 * Returns its element.
 */
export function chart(lines, names) {
  const id = newId("clip");
  const state = { range: null, width: 640, at: null, from: null, to: null };
  state.isLog = wantsLog(lines, names.up);
  const canvas = svg("svg", { class: "chart zoomed", tabindex: 0, role: "img" });
  const said = sentence();
  const axesNow = () => layOut(lines, state.range ?? wholeOf(lines), state);
  const draw = () => {
    const axes = axesNow();
    const { box } = axes;
    const size = { x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8 };
    const rim = svg("rect", { ...size, height: box.bottom - box.top + 4 });
    const parts = lines.flatMap((line) => lineParts(line, axes));
    canvas.setAttribute("viewBox", `0 0 ${state.width} ${CHART_HEIGHT}`);
    canvas.replaceChildren(
      svg("defs", {}, svg("clipPath", { id }, rim)), drawAxes(axes.across, axes.up, box, names),
      svg("g", { "clip-path": `url(#${id})` }, parts, pointer(state, axes)),
    );
    said.say(describe(lines, state, names));
    canvas.setAttribute("aria-label", `${names.up} by ${names.across}. ${said.text()}`);
  };
  const change = (part) => {
    Object.assign(state, part);
    draw();
  };
  const whole = { range: null, at: null, from: null, to: null };
  const showAll = () => change(whole);
  const onchange = () => change({ isLog: log.checked });
  const log = el("input", { type: "checkbox", checked: state.isLog, onchange });
  listen(canvas, state, lines, axesNow, change, showAll);
  onWidth(canvas, (width) => change({ width }));
  const note = "Drag over the chart, or press + and −, to zoom; Escape shows all of it.";
  const reset = buttonOf("Show all", showAll);
  const press = (key) => () => canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const zooms = [buttonOf("Zoom in", press("+")), buttonOf("Zoom out", press("-"))];
  const tick = el("label", {}, log, " log scale");
  const controls = el("div", { class: "controls" }, tick, zooms, reset);
  const hint = el("p", { class: "hint no-print" }, note);
  const numbers = curvesBehind(lines, names);
  const key = keyOf(lines.map(({ label, look }) => [label, colourOf(look), dashOf(look)]));
  return div(key, canvas, said.node, controls, hint, numbers);
}

const colourOf = (look) => `colour-${look % NUM_COLOURS}`;
const dashOf = (look) => DASHES[look % DASHES.length];

/** The first and the last step of all lines. */
function wholeOf(lines) {
  const steps = stepsOf(lines);
  return [steps[0], Math.max(steps.at(-1), steps[0] + (steps.length > 1 ? 0 : 1))];
}

function layOut(lines, range, { width, isLog }) {
  const box = { left: 58, right: width - 14, top: 30, bottom: CHART_HEIGHT - 46 };
  const isInside = (step) => step >= range[0] && step <= range[1];
  const within = ({ low, high, steps }) =>
    [low, high].flatMap((values) => values.filter((_, i) => isInside(steps[i])));
  const isDrawn = (value) => Number.isFinite(value) && (!isLog || value > 0);
  const values = lines.flatMap(within).filter(isDrawn);
  let [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  if (isLog) [least, most] = [least / 1.1, most * 1.1];
  else [least, most] = [least - 0.05 * (most - least), most + 0.05 * (most - least) || least + 1];
  const across = scale(range[0], range[1], box.left, box.right);
  across.ticks = across.ticks.filter(Number.isInteger);
  return { box, range, across, up: scale(least, most, box.bottom, box.top, isLog) };
}

/** The band of the seeds, and their mean above it; a dot where a line has one point. */
function lineParts({ label, look, steps, mean, low, high, rows }, { across, up }) {
  const shade = `line ${colourOf(look)}`;
  const parts = [];
  if (rows.length > 1) {
    const keep = steps.map((_, i) => i).filter((i) => Number.isFinite(up.place(low[i])));
    const points = (values) => keep.map((i) => `${across.place(steps[i])},${up.place(values[i])}`);
    const around = [...points(high), ...points(low).reverse()].join(" ");
    parts.push(svg("polygon", { points: around, class: `band ${colourOf(look)}` }));
  }
  const line = { d: path(steps, mean, across, up), class: shade, "stroke-dasharray": dashOf(look) };
  parts.push(svg("path", line, svg("title", {}, label)));
  const isFinite = (value, i) => Number.isFinite(up.place(value)) && steps[i] !== undefined;
  if (mean.filter(isFinite).length < 8)
    mean.forEach((value, i) => {
      const at = { cx: across.place(steps[i]), cy: up.place(value), r: 3 };
      if (isFinite(value, i)) parts.push(svg("circle", { ...at, class: `dot ${shade}` }));
    });
  return parts;
}

/** The step that is pointed at, and the range that is being dragged. */
function pointer({ at, from, to }, { across, box }) {
  const parts = [];
  const size = { y1: box.top, y2: box.bottom };
  const place = at === null ? 0 : across.place(at);
  if (at !== null) parts.push(svg("line", { x1: place, x2: place, ...size, class: "cursor" }));
  if (from !== null && to !== null) {
    const [x, end] = [Math.min(from, to), Math.max(from, to)];
    const height = box.bottom - box.top;
    parts.push(svg("rect", { x, y: box.top, width: end - x, height, class: "brush" }));
  }
  return parts;
}

/** What the chart says: the values at the step that is pointed at, or where lines begin and end. */
function describe(lines, { at, range }, names) {
  if (at !== null) {
    const values = lines
      .filter((line) => line.steps.includes(at))
      .map((line) => `${line.label} ${shown(line.mean[line.steps.indexOf(at)])}`);
    return `${names.at} ${shown(at)}: ${values.join(", ")}.`;
  }
  const place = names.at.toLowerCase();
  const [first, last] = wholeOf(lines);
  const areAlike = lines.every(({ steps }) => steps.at(-1) === lines[0].steps.at(-1));
  const ends = lines.map(({ label, steps, mean, rows }) => {
    const [from, to] = [mean[0], mean.at(-1)].map(shown);
    const seeds = rows.length > 1 ? ` (mean of ${rows.length} seeds)` : "";
    const [start, stop] = [steps[0], steps.at(-1)].map((step) => ` at ${place} ${shown(step)}`);
    const begin = areAlike && steps[0] === first ? "" : start;
    return `${label} goes from ${from}${begin} to ${to}${areAlike ? "" : stop}${seeds}`;
  });
  const part = range ? ` Shown from ${shown(range[0])} to ${shown(range[1])}.` : "";
  const where = areAlike ? `${names.at} ${shown(first)} to ${shown(last)}: ` : "";
  return `${where}${ends.join("; ")}.${part}`;
}

/** Mouse, finger and keys point at a step, and zoom. */
function listen(canvas, state, lines, axes, change, showAll) {
  const pixel = (event) => {
    const box = canvas.getBoundingClientRect();
    return ((event.clientX - box.left) * state.width) / box.width;
  };
  const steps = stepsOf(lines);
  const nearest = (value) =>
    steps.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a));
  const zoom = (range) => limited(range, wholeOf(lines));
  const on = (name, act) => canvas.addEventListener(name, act);
  on("pointerdown", (event) => {
    Object.assign(state, { from: pixel(event), to: null });
    canvas.setPointerCapture(event.pointerId);
  });
  on("pointermove", (event) => {
    const to = state.from === null ? null : pixel(event);
    change({ to, at: nearest(axes().across.value(pixel(event))) });
  });
  on("pointerup", () => {
    const { from, to, range } = state;
    const isDragged = from !== null && to !== null && Math.abs(to - from) > 8;
    const ends = isDragged && [from, to].map(axes().across.value).sort((a, b) => a - b);
    change({ from: null, to: null, range: ends ? zoom(ends) : range });
  });
  on("pointercancel", showAll);
  on("pointerleave", () => change({ at: null }));
  on("dblclick", showAll);
  on("keydown", (event) => {
    const place = state.at === null ? -1 : steps.indexOf(state.at);
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (event.key === "Escape") showAll();
    else if (move !== undefined) {
      change({ at: steps[Math.min(Math.max(place + move, 0), steps.length - 1)] });
      event.preventDefault();
    } else if (factor !== undefined) {
      const [first, last] = state.range ?? wholeOf(lines);
      const middle = state.at ?? (first + last) / 2;
      change({ range: zoom([first, last].map((step) => middle + (step - middle) * factor)) });
      event.preventDefault();
    }
  });
}

/** A range inside the whole one; none where it is the whole one. */
function limited([first, last], [least, most]) {
  const range = [Math.max(first, least), Math.min(last, most)];
  return range[0] <= least && range[1] >= most ? null : range;
}

function curvesBehind(lines, names) {
  const steps = stepsOf(lines);
  const header = [names.across, ...lines.map((line) => line.label)];
  const value = (line, step) => {
    const i = line.steps.indexOf(step);
    return i < 0 ? "–" : shown(line.mean[i]);
  };
  const rows = () => steps.map((step) => [step, ...lines.map((line) => value(line, step))]);
  return tableBehind(`${names.up}, mean over seeds`, header, rows);
}
