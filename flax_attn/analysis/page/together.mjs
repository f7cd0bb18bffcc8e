// Several runs that were tested on the same signals: one input, all answers, maps side by side.

import { el, numbered, onWidth, percent, sentence, shown, svg, tableBehind } from "./dom.mjs";
import { heatMap, largest, legend } from "./heat.mjs";
import { allHeads, weightsOf } from "./overview.mjs";
import { chartBox, pointAlong, signalFrame } from "./signals.mjs";

const LOOKS = [1, 3, 4, 5, 2, 0]; // colours of answers, the input's last
const ANSWER_DASHES = ["", "7 4", "2 3", "10 3 2 3", "1 5", "12 4 4 4"];

/** Runs on signals in groups that were tested on the same ones. */
export function sameSignals(runs) {
  const groups = new Map();
  for (const run of runs.filter(({ kind, examples }) => kind === "signals" && examples.length)) {
    const key = JSON.stringify(run.examples.slice(0, 4).map(({ inputs }) => inputs));
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()].filter((group) => group.length > 1);
}

/** One picture of all answers of some runs to the same signals. */
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
  const length = examples[0].inputs[0].length;
  const answers = examples.map(({ predictions }) => predictions);
  const looks = runs.map((run, i) => {
    return [run.name, `colour-${LOOKS[i % LOOKS.length]}`, ANSWER_DASHES[i % ANSWER_DASHES.length]];
  });
  const first = examples[0].marks[0]?.center ?? length / 2;
  const state = { q: Math.min(Math.max(Math.round(first), 0), length - 1), width: 640 };
  const chart = svg("svg", { class: "chart signal", tabindex: 0, role: "img" });
  const said = sentence();
  const maps = mapsOf(runs, examples, (q) => tell(q));
  const draw = () => {
    const { x, box, ground, line } = signalFrame(chart, examples[0], answers, state.width);
    const lines = answers.map(([values], i) => line(values, looks[i][1], looks[i][2]));
    const place = { x1: x.place(state.q), x2: x.place(state.q), y1: box.top, y2: box.bottom };
    chart.replaceChildren(...ground, ...lines, svg("line", { ...place, class: "cursor" }));
  };
  const tell = (q) => {
    state.q = q;
    const values = answers.map(([row], i) => `${runs[i].name} ${shown(row[q])}`).join(", ");
    const right = shown(examples[0].targets[0][q]);
    said.say(`Position ${q}: right is ${right}; ${values}.${looksAt(maps, q)}`);
    chart.setAttribute("aria-label", `The answers of ${runs.length} runs. ${said.text()}`);
    maps.forEach(({ map, weights }) => map.point(q, largest(weights, q)));
    draw();
  };
  pointAlong(chart, length, () => state.width, () => state.q, tell);
  onWidth(chart, (width) => {
    state.width = width;
    draw();
  });
  tell(state.q);
  const under = (name) => el("p", { dir: "auto" }, name);
  const sheets = maps.map(({ name, map }) => el("div", {}, under(name), map.node));
  const scaleOf = maps.length ? legend(1) : null;
  const numbers = answersBehind(runs, examples);
  return [chartBox(chart, examples[0], looks), said.node, el("div", { class: "maps" }, sheets)]
    .concat(scaleOf ? [scaleOf] : [])
    .concat(numbers);
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
