// The frame of a signal, and predictions of several runs on the same signals in one picture.

import { div, el, numbered, shown, svg, tableBehind } from "../dom.mjs";
import { range } from "../lists.mjs";
import { SHAPE_KINDS, SHAPE_SIGNS } from "../shapes/numbers.mjs";
import { across, chartAlong, DASHES, drawAxes, keyOf, path, scale } from "./axes.mjs";
import { heatMap, largest, legend, mostOn, STRIP } from "./heat.mjs";
import { allHeads, weightsOf } from "./overview.mjs";

const SIGNAL_HEIGHT = 300;
const LOOKS = [1, 3, 4, 5, 2, 0]; // colours of predictions

/** The key of a chart of one signal. */
export function keyOfSignal({ inputs, marks = [] }, hasLines, more = []) {
  if (inputs.length > 1) return null;
  const shapes = marks.length ? SHAPE_KINDS : [];
  const answers = more.length ? more : [["prediction", "colour-1", ""]];
  const lines = hasLines ? [["target", "target", "6 4"], ...answers] : [];
  const kinds = shapes.map((kind) => el("li", {}, `${SHAPE_SIGNS[kind]} ${kind}`));
  return keyOf([["input", "input", ""], ...lines], kinds);
}

/** What stands behind predictions on a signal: axes, the shapes, the input and the target. */
export function signalFrame(chart, example, answers, width, weights = null) {
  const { inputs, targets, marks = [] } = example;
  const length = inputs[0].length;
  const foot = SIGNAL_HEIGHT - 46;
  const box = { left: 44, right: width - 14, top: 30, bottom: foot - (weights ? STRIP : 0), foot };
  const positions = range(length);
  const lines = [inputs, targets, ...answers].filter(Boolean).map(([channel]) => channel);
  const values = lines.flat().filter(Number.isFinite);
  const [least, most] = [Math.min(...values, 0), Math.max(...values, 1)];
  const x = across(length, width);
  const up = scale(least, most + 0.08 * (most - least), box.bottom - 4, box.top);
  const line = (ys, look, dash = "") =>
    svg("path", { d: path(positions, ys, x, up), class: `line ${look}`, "stroke-dasharray": dash });
  const shades = marks.map(({ kind, center, first, last }) => {
    const look = `shade colour-${kind === "triangle" ? 2 : 3}`;
    const side = { x: x.place(first), width: x.place(last) - x.place(first) };
    const ground = { ...side, y: box.top, height: box.bottom - box.top, class: look };
    const sign = { x: x.place(center), y: box.top - 4, "text-anchor": "middle", class: "sign" };
    return [svg("rect", ground), svg("text", sign, SHAPE_SIGNS[kind])];
  });
  chart.setAttribute("viewBox", `0 0 ${width} ${SIGNAL_HEIGHT}`);
  const names = { across: "position", up: marks.length ? "height" : "value" };
  const axes = drawAxes(x, up, { ...box, bottom: foot }, names);
  const drawn = [line(inputs[0], "input"), targets ? line(targets[0], "target", "6 4") : ""];
  return { x, up, box, line, ground: [...shades.flat(), axes, ...drawn] };
}

/** Runs from signals to signals in groups that were tested on the same ones. */
export function sameSignals(runs) {
  const groups = new Map();
  for (const run of runs) {
    const isSignal = run.input === "signal" && run.target === "signal";
    if (!isSignal || run.examples[0]?.inputs.length !== 1) continue;
    const key = JSON.stringify(run.examples.slice(0, 4).map(({ inputs }) => inputs));
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()].filter((group) => group.length > 1);
}

/** The picture of some runs, with a choice of the example. */
export function togetherView(runs) {
  const picture = el("div", { class: "picture" });
  const count = Math.min(...runs.map((run) => run.examples.length));
  const show = (i) => picture.replaceChildren(...drawTogether(runs, i));
  const number = numbered("Example", count, 0, show, (i) => `Test example ${i} of all`);
  show(0);
  return el("figure", {}, number.node, picture);
}

function drawTogether(runs, number) {
  const examples = runs.map((run) => run.examples[number]);
  const [{ inputs, targets, marks = [] }] = examples;
  const length = inputs[0].length;
  const answers = examples.map(({ predictions }) => predictions);
  const colour = (i) => `colour-${LOOKS[i % LOOKS.length]}`;
  const looks = runs.map(({ name }, i) => [name, colour(i), DASHES[i % DASHES.length]]);
  const maps = runs.flatMap((run, i) => {
    const weights = weightsOf(examples[i], allHeads(run)[0]);
    if (!weights) return [];
    const name = `Attention of ${run.name}: queries downwards, keys across`;
    const map = heatMap({ name, axes: ["query", "key"], onPoint: (q) => tell(q) });
    map.show(weights, { name });
    return [{ name: run.name, map, weights }];
  });
  const looksAt = (q) =>
    maps.map(({ name, weights }) => {
      const key = largest(weights, q);
      const weight = weights.at(q, key);
      return ` ${name} ${mostOn(`position ${key}`, weight, weights.signed, "attends most to")}.`;
    });
  const { chart, said, tell } = chartAlong({
    look: "signal",
    label: `The predictions of ${runs.length} runs`,
    length,
    first: Math.min(Math.max(Math.round(marks[0]?.center ?? length / 2), 0), length - 1),
    draw: (own, { q, width }) => {
      const { x, box, ground, line } = signalFrame(own, examples[0], answers, width);
      const lines = answers.map(([values], i) => line(values, looks[i][1], looks[i][2]));
      const place = { x1: x.place(q), x2: x.place(q), y1: box.top, y2: box.bottom };
      own.replaceChildren(...ground, ...lines, svg("line", { ...place, class: "cursor" }));
    },
    say: (q) => {
      const values = answers.map(([row], i) => `${runs[i].name} ${shown(row[q])}`).join(", ");
      const goal = shown(targets[0][q]);
      return `Position ${q}: target ${goal}; ${values}.${looksAt(q).join("")}`;
    },
    mark: (q) => maps.forEach(({ map, weights }) => map.point(q, largest(weights, q))),
  });
  const under = (name) => el("p", { dir: "auto" }, name);
  const sheets = maps.map(({ name, map }) => div(under(name), map.node));
  const header = ["position", "input", "target", ...runs.map((run) => run.name)];
  const columns = [inputs, targets, ...answers].map(([channel]) => channel);
  const rows = () => inputs[0].map((_, i) => [i, ...columns.map((own) => shown(own[i]))]);
  return [
    div(keyOfSignal(examples[0], true, looks), chart),
    said.node,
    el("div", { class: "maps" }, sheets),
    maps.length ? legend(1) : "",
    tableBehind("all predictions by position", header, rows),
  ];
}
