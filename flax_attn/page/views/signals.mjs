// Signals: what goes in, what is right and what the model says, and where a position looks. Several
// runs on the same signals stand side by side. To try, shapes are dragged, other signals are moved.

import { capital, el, numbered, percent, shown, svg, tableBehind } from "../dom.mjs";
import { addKind } from "../kinds.mjs";
import { meanOf, range, sumOf } from "../lists.mjs";
import { across, chartAlong, DASHES, drawAxes, keyOf, path, scale } from "../pictures/axes.mjs";
import { heatMap, largest, legend, rowOf, STRIP, weightStrip } from "../pictures/heat.mjs";
import { allHeads, weightsOf } from "../pictures/overview.mjs";
import { stage } from "../pictures/stage.mjs";
import { shapesView } from "../shapes/dragged.mjs";
import { pluralOf, SHAPE_KINDS, SHAPE_SIGNS, shapeParts, shapesOf } from "../shapes/numbers.mjs";
import { keptChannels, seriesParts, storedChannels, trySeries } from "./series.mjs";

const SIGNAL_HEIGHT = 300;
const LEAST_ARC = 0.02; // the least weight that has an arc

/** The picture of one signal, for `stage`. */
function drawSignal() {
  return (example, weights, { top }) => {
    const { inputs, marks } = example;
    const length = inputs[0].length;
    const first = marks.length ? Math.round(marks[0].center) : Math.floor(length / 2);
    const name = "Attention: queries downwards, keys across";
    const map = weights && heatMap({ name, axes: ["query", "key"], onPoint: (q, k) => tell(q, k) });
    map?.show(weights, { top, name });
    const { chart, said, state, tell } = chartAlong({
      look: "signal",
      label: `Signal of ${length} positions`,
      length,
      first: Math.min(first, (weights?.rows ?? length) - 1),
      draw: (own, { q, width }) => drawSignalChart(own, example, weights, q, top, width),
      say: (q, k) => (weights ? signalLook(example, weights, q, k) : valuesAt(example, q)),
      mark: (q, k) => map?.point(q, k ?? largest(weights, q)),
    });
    const box = chartBox(chart, example);
    const beside = map ? el("div", { class: "beside" }, box, map.node) : box;
    const result = setTo(example, weights);
    const hint = weights ? "Point at the signal or the map to see where a position looks." : "";
    return [
      result ? el("p", { class: "result" }, result) : null,
      beside,
      said.node,
      hint ? el("p", { class: "hint no-print" }, hint) : null,
      signalBehind(example, weights, state),
    ];
  };
}

/** A chart of signals under its key; `answers` are `[name, look, dash]`. */
function chartBox(chart, { marks }, answers = [["the model's answer", "colour-1", ""]]) {
  const first = [
    ["input", "colour-0", ""],
    ["right answer", "target", "6 4"],
  ];
  const kinds = SHAPE_KINDS.map((kind) => el("li", {}, `${SHAPE_SIGNS[kind]} ${kind}`));
  return el("div", {}, keyOf([...first, ...answers], marks.length ? kinds : []), chart);
}

function drawSignalChart(chart, example, weights, q, top, width) {
  const { inputs, predictions } = example;
  const { x, up, box, ground, line } = signalFrame(chart, example, [predictions], width, weights);
  chart.replaceChildren(
    ...ground,
    line(predictions[0], "colour-1"),
    ...(weights ? [weightStrip(weights, q, top, x, box.bottom)] : []),
    ...(weights ? arcs(weights, q, x, up, inputs[0]) : []),
    svg("line", { x1: x.place(q), x2: x.place(q), y1: box.top, y2: box.foot, class: "cursor" }),
  );
}

/** What stands behind the answers on a signal: axes, the shapes, the input and the target. */
function signalFrame(chart, { inputs, targets, marks }, answers, width, weights = null) {
  const length = inputs[0].length;
  const foot = SIGNAL_HEIGHT - 46;
  const box = { left: 44, right: width - 14, top: 30, bottom: foot - (weights ? STRIP : 0), foot };
  const positions = inputs[0].map((_, i) => i);
  const said = answers.flatMap((channels) => channels[0]);
  const values = [...inputs[0], ...targets[0], ...said].filter(Number.isFinite);
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
  const axes = drawAxes(x, up, { ...box, bottom: foot }, { across: "position", up: "height" });
  const lines = [line(inputs[0], "colour-0"), line(targets[0], "target", "6 4")];
  return { x, up, box, line, ground: [...shades.flat(), axes, ...lines] };
}

/** Arcs from the chosen query to the keys that it looks at, as thick as the weight. */
function arcs(weights, q, x, up, heights) {
  const made = [];
  for (let k = 0; k < weights.columns; k++) {
    const weight = weights.at(q, k);
    if (!(weight >= LEAST_ARC) || k === q) continue;
    const [from, to] = [x.place(q), x.place(k)];
    const [start, end] = [up.place(heights[q]), up.place(heights[k])];
    const high = Math.min(start, end) - 14 - Math.abs(to - from) * 0.12;
    const d = `M${from} ${start}Q${(from + to) / 2} ${Math.max(high, 4)} ${to} ${end}`;
    made.push(svg("path", { d, class: "arc", "stroke-width": 1 + 8 * weight }));
  }
  return made;
}

/** What stands at a position: a kind of shape, or the ground. */
function kindAt({ marks }, position) {
  return marks.find(({ first, last }) => position >= first && position <= last)?.kind ?? null;
}

/** The share of its weight that a query puts on shapes of a kind. */
function shareOnKind(example, weights, q, kind) {
  return sumOf(rowOf(weights, q).filter((_, k) => kindAt(example, k) === kind));
}

/** The same as the mean over all positions in shapes of that kind. */
function meanShare(example, weights, kind) {
  const inside = range(weights.rows).filter((q) => kindAt(example, q) === kind);
  return meanOf(inside.map((q) => shareOnKind(example, weights, q, kind)));
}

function signalLook(example, weights, q, k) {
  const key = k ?? largest(weights, q);
  const kind = kindAt(example, q);
  const what = kind ? `Position ${q}, in a ${kind},` : `Position ${q}`;
  const most = k === null ? ", the most of all" : "";
  const weight = percent(weights.at(q, key));
  const said = `${what} puts ${weight} of its weight on position ${key}${most}`;
  if (!kind) return `${said}.`;
  const share = percent(shareOnKind(example, weights, q, kind));
  return `${said}, and ${share} on ${pluralOf(kind)}.`;
}

function valuesAt({ inputs, targets, predictions }, i) {
  const values = [inputs, targets, predictions].map((channels) => shown(channels[0][i]));
  return `Position ${i}: input ${values[0]}, right ${values[1]}, the model says ${values[2]}.`;
}

/** What the model sets the shapes of a pair to, and what would be right. */
function setTo(example, weights) {
  const { marks, targets, predictions } = example;
  if (!marks.length) return null;
  const parts = SHAPE_KINDS.map((kind) => {
    const at = marks.filter((mark) => mark.kind === kind).map(({ center }) => Math.round(center));
    const inside = at.map((position) => Math.min(Math.max(position, 0), targets[0].length - 1));
    const [said, right] = [predictions, targets].map((channels) =>
      inside.map((position) => channels[0][position].toFixed(1)),
    );
    const looks = weights && percent(meanShare(example, weights, kind));
    const share = looks ? `, on average ${looks} of their attention on ${pluralOf(kind)}` : "";
    return `${pluralOf(kind)} set to ${said.join(" and ")} (right: ${right.join(" and ")})${share}`;
  });
  return `${capital(parts.join("; "))}.`;
}

function signalBehind(example, weights, state) {
  const { inputs, targets, predictions } = example;
  const header = ["position", "input", "right answer", "the model's answer"];
  if (weights) header.push("weight of the chosen query");
  const rows = () =>
    inputs[0].map((_, i) => {
      const values = [inputs, targets, predictions].map((channels) => shown(channels[0][i]));
      return [i, ...values, ...(weights ? [percent(weights.at(state.q, i))] : [])];
    });
  return tableBehind("the signal by position", header, rows);
}

/** The view of signals. Those without shapes are moved as series are. */
function trySignals(parts) {
  return parts.runs[0].examples[0].marks.length === 4 ? shapesView(parts) : trySeries(parts);
}

const LOOKS = [1, 3, 4, 5, 2, 0]; // colours of answers, the input's last

/** Runs on signals in groups that were tested on the same ones. */
function sameSignals(runs) {
  const groups = new Map();
  for (const run of runs.filter(({ kind, examples }) => kind === "signals" && examples.length)) {
    const key = JSON.stringify(run.examples.slice(0, 4).map(({ inputs }) => inputs));
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()].filter((group) => group.length > 1);
}

/** One picture of all answers of some runs to the same signals. */
function togetherView(runs) {
  const picture = el("div", { class: "picture" });
  const count = Math.min(...runs.map((run) => run.examples.length));
  const show = (i) => picture.replaceChildren(...drawTogether(runs, i));
  const number = numbered("Example", count, 0, show, (i) => `Test example ${i} of all`);
  show(0);
  return el("figure", {}, number.node, picture);
}

function drawTogether(runs, number) {
  const examples = runs.map((run) => run.examples[number]);
  const length = examples[0].inputs[0].length;
  const answers = examples.map(({ predictions }) => predictions);
  const looks = runs.map((run, i) => [
    run.name,
    `colour-${LOOKS[i % LOOKS.length]}`,
    DASHES[i % DASHES.length],
  ]);
  const first = examples[0].marks[0]?.center ?? length / 2;
  const maps = mapsOf(runs, examples, (q) => tell(q));
  const { chart, said, tell } = chartAlong({
    look: "signal",
    label: `The answers of ${runs.length} runs`,
    length,
    first: Math.min(Math.max(Math.round(first), 0), length - 1),
    draw: (own, { q, width }) => {
      const { x, box, ground, line } = signalFrame(own, examples[0], answers, width);
      const lines = answers.map(([values], i) => line(values, looks[i][1], looks[i][2]));
      const place = { x1: x.place(q), x2: x.place(q), y1: box.top, y2: box.bottom };
      own.replaceChildren(...ground, ...lines, svg("line", { ...place, class: "cursor" }));
    },
    say: (q) => {
      const values = answers.map(([row], i) => `${runs[i].name} ${shown(row[q])}`).join(", ");
      const right = shown(examples[0].targets[0][q]);
      return `Position ${q}: right is ${right}; ${values}.${looksAt(maps, q)}`;
    },
    mark: (q) => maps.forEach(({ map, weights }) => map.point(q, largest(weights, q))),
  });
  const under = (name) => el("p", { dir: "auto" }, name);
  const sheets = maps.map(({ name, map }) => el("div", {}, under(name), map.node));
  return [
    chartBox(chart, examples[0], looks),
    said.node,
    el("div", { class: "maps" }, sheets),
    ...(maps.length ? [legend(1)] : []),
    answersBehind(runs, examples),
  ];
}

function mapsOf(runs, examples, onPoint) {
  return runs.flatMap((run, i) => {
    const weights = weightsOf(examples[i], allHeads(run)[0]);
    if (!weights) return [];
    const name = `Attention of ${run.name}: queries downwards, keys across`;
    const map = heatMap({ name, axes: ["query", "key"], onPoint });
    map.show(weights, { top: 1, name });
    return [{ name: run.name, map, weights }];
  });
}

function looksAt(maps, q) {
  const parts = maps.map(({ name, weights }) => {
    const key = largest(weights, q);
    return ` ${name} looks most at position ${key}, with ${percent(weights.at(q, key))}.`;
  });
  return parts.join("");
}

function answersBehind(runs, examples) {
  const header = ["position", "input", "right answer", ...runs.map((run) => run.name)];
  const { inputs, targets } = examples[0];
  const rows = () =>
    inputs[0].map((input, i) => {
      const said = examples.map(({ predictions }) => shown(predictions[0][i]));
      return [i, shown(input), shown(targets[0][i]), ...said];
    });
  return tableBehind("all answers by position", header, rows);
}

addKind("signals", {
  picture: (run, beside) => stage(run, drawSignal(), { top: () => 1, beside }),
  tried: trySignals,
  kept: (run, example) => keptChannels(example),
  stored: {
    inputs: (run, example) => storedChannels(example),
    parts: (run, example, weights) =>
      example.marks.length === 4
        ? shapeParts(shapesOf(example), weights)
        : seriesParts(false, weights),
  },
  together: (runs) => sameSignals(runs).map(togetherView),
});
