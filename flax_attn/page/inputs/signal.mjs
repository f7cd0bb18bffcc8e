// Signals of one or several channels. To try, shapes are dragged, other channels are moved.

import { slider } from "../controls/settings.mjs";
import { buttonOf, capital, div, el, percent, shown, svg, tableBehind } from "../dom.mjs";
import { indexOfLargest, range, sumOf } from "../lists.mjs";
import { across, chartAlong, drawAxes, path, scale } from "../pictures/axes.mjs";
import { endOf, heatMap, largest, rowOf, topOf } from "../pictures/heat.mjs";
import { weightStrip, weightText } from "../pictures/heat.mjs";
import { LEAST_LINE } from "../pictures/lines.mjs";
import { keyOfSignal, sameSignals, signalFrame, togetherView } from "../pictures/signals.mjs";
import { stage } from "../pictures/stage.mjs";
import { areOnChannels, channelParts, cursorIn, draggedIn } from "../shapes/channels.mjs";
import { extentOf, frameOf, lineIn, storedChannels, thickLineIn } from "../shapes/channels.mjs";
import { triedShapes } from "../shapes/dragged.mjs";
import { pluralOf, SHAPE_KINDS, shapeParts, shapesOf } from "../shapes/numbers.mjs";
import { addInput, targetOf } from "../views.mjs";

const CHANNEL_ROW = 44; // pixels of one of several channels
const OUTPUT = 120;

/** The picture of one example, for `stage`. */
function drawSignal(run) {
  const target = targetOf(run);
  return (example, weights, options) => {
    const { inputs, marks = [] } = example;
    const { top } = options;
    const length = inputs[0].length;
    const isOnChannels = areOnChannels(example, weights);
    const axes = isOnChannels ? ["step", "series"] : ["query", "key"];
    const name = `Attention: ${axes[0]} downwards, ${axes[1]} across`;
    const names = (count) => (isOnChannels ? range(count).map(String) : null);
    const named = { rowNames: names(weights?.rows), columnNames: names(weights?.columns) };
    const onPoint = (row, k) => tell(Math.ceil((row * length) / weights.rows), k);
    const map = weights?.rows > 1 ? heatMap({ name, ...named, axes, onPoint }) : null;
    map?.show(weights, { top, name });
    const draw = inputs.length > 1 ? drawChannels : drawOne;
    const { chart, said, state, tell } = chartAlong({
      look: inputs.length > 1 ? "series" : "signal",
      label: `Signal of ${length} positions${inputs.length > 1 ? `, ${inputs.length} series` : ""}`,
      length,
      first: Math.min(Math.max(Math.round(marks[0]?.center ?? length / 2), 0), length - 1),
      draw: (own, { q, width }) => draw(own, example, weights, { q, width, top, run }),
      say: (q, k) => signalLook(example, weights, q, k),
      mark: (q, k) => map?.point(rowFor(weights, q, length), k ?? largest(weights, q)),
    });
    const box = div(keyOfSignal(example, run.target === "signal"), chart);
    const predicted = target.beside(run, example, options);
    const seen = predicted ? [div(box, map?.node), predicted] : [box, map?.node];
    const beside = predicted || map ? el("div", { class: "beside" }, seen) : box;
    const results = [target.verdict(run, example), onShapes(example)];
    if (isOnChannels) results.push(onChannels(weights, run.relevant));
    const hint = weights ? "Point at a position to see what it attends to." : null;
    return [
      ...results.filter(Boolean).map((line) => el("p", { class: "result" }, line)),
      beside,
      said.node,
      hint && el("p", { class: "hint no-print" }, hint),
      signalBehind(example, weights, state),
    ];
  };
}

/** The row of weights that stands for a position; pooling has one for all. */
const rowFor = ({ rows }, q, length) => Math.min(Math.floor((q * rows) / length), rows - 1);

function drawOne(chart, example, weights, { q, width, top }) {
  const { inputs, predictions } = example;
  const lines = example.targets ? [predictions] : [];
  const { x, up, box, ground, line } = signalFrame(chart, example, lines, width, weights);
  const row = weights && rowFor(weights, q, inputs[0].length);
  chart.replaceChildren(
    ...ground,
    ...lines.map((channels) => line(channels[0], "colour-1")),
    ...(weights ? [weightStrip(weights, row, top, x, box.bottom)] : []),
    ...(weights?.columns === inputs[0].length ? arcs(weights, q, row, x, up, inputs[0]) : []),
    svg("line", { x1: x.place(q), x2: x.place(q), y1: box.top, y2: box.foot, class: "cursor" }),
  );
}

/** Arcs from the chosen query to the keys that it attends to, as thick as the weight. */
function arcs(weights, q, row, x, up, heights) {
  const top = endOf(weights);
  const sizeOf = (k) => Math.abs(weights.at(row, k)) / top;
  const strong = (k) => sizeOf(k) >= LEAST_LINE && k !== q;
  return range(weights.columns).filter(strong).map((k) => {
    const [from, to] = [x.place(q), x.place(k)];
    const [start, end] = [up.place(heights[q]), up.place(heights[k])];
    const high = Math.min(start, end) - 14 - Math.abs(to - from) * 0.12;
    const d = `M${from} ${start}Q${(from + to) / 2} ${Math.max(high, 4)} ${to} ${end}`;
    const look = weights.at(row, k) < 0 ? "arc negative" : "arc";
    return svg("path", { d, class: look, "stroke-width": 1 + 8 * sizeOf(k) });
  });
}

/** Several channels one under another, as thick as their weights, above a signal that is output. */
function drawChannels(chart, example, weights, { q, width, top, run }) {
  const { inputs, targets, predictions } = example;
  const length = inputs[0].length;
  const x = across(length, width);
  const steps = range(length);
  const isOnChannels = areOnChannels(example, weights);
  const rows = inputs.map((values, i) => {
    const head = i * CHANNEL_ROW;
    const up = scale(Math.min(...values), Math.max(...values), head + CHANNEL_ROW - 6, head + 8);
    const place = { x: 36, y: head + CHANNEL_ROW / 2 + 6, "text-anchor": "end" };
    const name = svg("text", { ...place, class: i === run.relevant ? "relevant" : "" }, String(i));
    const look = isOnChannels ? "colour-0" : "input"; // blue is attention
    const parts = steps.slice(1).map((t) => {
      const weight = isOnChannels ? weights.at(rowFor(weights, t, length), i) : null;
      const thick = weight === null ? 2 : 0.8 + 7 * Math.sqrt(Math.max(weight, 0));
      const ends = { x1: x.place(t - 1), x2: x.place(t) };
      const line = { ...ends, y1: up.place(values[t - 1]), y2: up.place(values[t]) };
      return svg("line", { ...line, "stroke-width": thick, class: `series-line ${look}` });
    });
    return [name, ...parts];
  });
  const start = inputs.length * CHANNEL_ROW;
  const height = start + (targets ? OUTPUT + 60 : 46);
  const box = { left: 44, right: width - 14, top: start + 34, bottom: height - 46 };
  const parts = rows.flat();
  if (weights && !isOnChannels)
    parts.push(weightStrip(weights, rowFor(weights, q, length), top, x, start));
  if (targets) {
    const values = [...targets[0], ...predictions[0]].filter(Number.isFinite);
    const up = scale(Math.min(...values), Math.max(...values), box.bottom, box.top);
    up.ticks = up.ticks.filter((_, i) => i % 2 === 0);
    const line = (ys, look, dash) =>
      svg("path", { d: path(steps, ys, x, up), class: `line ${look}`, "stroke-dasharray": dash });
    const names = { across: "step", up: "target (dashed), prediction (orange)" };
    parts.push(drawAxes(x, up, box, names));
    parts.push(line(targets[0], "target", "6 4"), line(predictions[0], "colour-1", ""));
  }
  const cursor = { x1: x.place(q), x2: x.place(q), y1: 0, y2: box.bottom, class: "cursor" };
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren(...parts, svg("line", cursor));
}

/** What stands at a position: a kind of shape, or the ground. */
const kindAt = ({ marks = [] }, position) =>
  marks.find(({ first, last }) => position >= first && position <= last)?.kind ?? null;

/** The share of its weight that a query puts on shapes of a kind. */
const shareOnKind = (example, weights, q, kind) =>
  sumOf(rowOf(weights, q).filter((_, k) => kindAt(example, k) === kind));

/** The values at a position, and what it attends to. */
export function signalLook(example, weights, q, k) {
  const { inputs, targets, predictions } = example;
  const outputs = targets ? [["target", targets], ["prediction", predictions]] : [];
  const own = inputs.length > 1 ? outputs : [["input", inputs], ...outputs];
  const values = own.map(([name, channels]) => `${name} ${shown(channels[0][q])}`).join(", ");
  const kind = kindAt(example, q);
  const where = `Position ${q}${kind ? `, in a ${kind}` : ""}`;
  const told = values ? `${where}: ${values}.` : `${where}.`;
  if (!weights) return told;
  const row = rowFor(weights, q, inputs[0].length);
  const key = k ?? largest(weights, row);
  const what = areOnChannels(example, weights) ? "series" : "position";
  const most = k === null ? ", its largest" : "";
  const text = (weight) => weightText(weight, weights.signed);
  const who = `${weights.rows > 1 ? "It" : "The model"} puts${weights.signed ? " the weight" : ""}`;
  const share = kind ? text(shareOnKind(example, weights, row, kind)) : null;
  const shared = share ? `, and ${share} on ${pluralOf(kind)}` : "";
  return `${told} ${who} ${text(weights.at(row, key))} on ${what} ${key}${most}${shared}.`;
}

/** The heights that a model sets the shapes of a pair to, and their targets. */
export function onShapes(example) {
  const { marks = [], targets, predictions } = example;
  if (!marks.length || !targets) return null;
  const parts = SHAPE_KINDS.map((kind) => {
    const at = marks.filter((mark) => mark.kind === kind).map(({ center }) => Math.round(center));
    const inside = at.map((position) => Math.min(Math.max(position, 0), targets[0].length - 1));
    const [said, right] = [predictions, targets].map((channels) =>
      inside.map((position) => channels[0][position].toFixed(1)),
    );
    return `${pluralOf(kind)} set to ${said.join(" and ")} (target: ${right.join(" and ")})`;
  });
  return `${capital(parts.join("; "))}.`;
}

/** The channel with most of the attention, beside the one that decides the target. */
export function onChannels(weights, relevant) {
  const means = rowOf(weights, null);
  const best = indexOfLargest(means);
  const known = Number.isInteger(relevant) ? `, and series ${relevant} decides the target` : "";
  return `Series ${best} has the most weight, ${percent(means[best])} on average${known}.`;
}

function signalBehind(example, weights, state) {
  const { inputs, targets, predictions } = example;
  const isOnChannels = areOnChannels(example, weights);
  const many = inputs.length > 1;
  const named = inputs.map((channel, i) => [many ? `series ${i}` : "input", channel]);
  if (targets) named.push(["target", targets[0]], ["prediction", predictions[0]]);
  const header = ["position", ...named.map(([name]) => name)];
  if (isOnChannels) header.push(...inputs.map((_, k) => `weight of series ${k}`));
  else if (weights) header.push("weight of the chosen query");
  const length = inputs[0].length;
  const text = (weight) => weightText(weight, weights.signed);
  const weightsAt = (t) => {
    if (!weights) return [];
    if (isOnChannels) return rowOf(weights, rowFor(weights, t, length)).map(text);
    const key = Math.floor((t * weights.columns) / length);
    return [text(weights.at(rowFor(weights, state.q, length), key))];
  };
  const row = (t) => [t, ...named.map(([, channel]) => shown(channel[t])), ...weightsAt(t)];
  return tableBehind("the signal by position", header, () => range(length).map(row));
}

/** A signal of four shapes that is output is dragged by its shapes. */
const hasShapes = (run, { marks = [] }) => run.target === "signal" && marks.length === 4;

/** Channels that are moved up and down, each as thick as its weight. */
function triedChannels({ run, state, hide, changed, again, evidence }) {
  const [first] = run.examples;
  const length = first.inputs[0].length;
  const isMany = first.inputs.length > 1;
  const kept = first.attention[run.attention.at(-1)?.name];
  const isOnChannels = areOnChannels(first, kept && { columns: kept.shape[2] });
  const [low, high] = extentOf(run);
  let channels = [];
  let weightsNow = null;
  const hasAttention = run.attention.length > 0;
  const look = (t) => {
    state.query = t;
    again();
  };
  const step = slider("position to look at", length - 1, length - 1, (t) => [t, () => look(t)]);
  const rows = first.inputs.map((_, i) => rowOfChannel(i));

  function rowOfChannel(i) {
    const { lines, picture } = frameOf();
    const name = isMany ? `series ${i}` : "signal";
    const share = el("span", { class: "try-share" });
    const limits = { "aria-valuemin": low.toFixed(2), "aria-valuemax": high.toFixed(2) };
    const slider = el("div",
      { class: "try-series-row", role: "slider", tabindex: 0, "aria-label": name, ...limits },
      el("span", {}, name), picture, share,
    );
    draggedIn(slider, picture, (up, where, isWhole) => move(i, up, where, isWhole));
    const button = buttonOf("mask", () => hide([i]));
    const look = isMany ? "try-series-line" : "try-series-line lone";
    const node = el("div", { class: look }, slider, isOnChannels ? button : null);
    return { node, slider, lines, share, button, moved: 0 };
  }

  /** Moves one of several channels as a whole; a lone signal is bent where it is touched. */
  function move(i, up, where, isWhole) {
    const added = (up * (high - low)) / 100;
    const row = channels[i];
    const middle = where * (row.length - 1);
    const reach = Math.max(row.length / 12, 1);
    const shareAt = (t) => (isMany || isWhole ? 1 : Math.exp(-(((t - middle) / reach) ** 2)));
    channels[i] = row.map((value, t) => value + added * shareAt(t));
    rows[i].moved += added;
    changed();
  }

  function show(reply, weights) {
    weightsNow = weights;
    const { hidden } = state.settings;
    const means = isOnChannels && weights ? rowOf(weights, null) : null;
    const cursor = () => cursorIn(run, length, state.query ?? length - 1);
    rows.forEach((row, i) => {
      const weightAt = (t) => weights.at(rowFor(weights, t, length), i);
      const lines = means
        ? thickLineIn(run, channels[i], weightAt)
        : [lineIn(run, channels[i], "try-input")];
      row.lines.replaceChildren(...lines, ...(hasAttention ? [cursor()] : []));
      row.share.textContent = means ? percent(means[i]) : "";
      row.slider.setAttribute("aria-valuenow", row.moved.toFixed(2));
      const share = means ? `, ${percent(means[i])} of the attention` : "";
      row.slider.setAttribute("aria-valuetext", `moved by ${row.moved.toFixed(2)}${share}`);
      row.button.setAttribute("aria-pressed", String(hidden.includes(i)));
      row.button.textContent = hidden.includes(i) ? "unmask" : "mask";
    });
  }

  /** Half of the series that decides the target, and half of its step before. */
  function goal() {
    if (run.target !== "signal" || !Number.isInteger(run.relevant)) return null;
    const own = channels[run.relevant];
    return own.map((value, t) => (value + (t ? own[t - 1] : 0)) / 2);
  }

  const find = "Drag a series. Only one of them changes the output: find it, then mask it.";
  const any = isMany ? "Drag a series up or down" : "Drag the signal up or down where you touch it";
  return {
    node: rows.map((row) => row.node),
    after: hasAttention ? div(evidence.node, step.node) : null,
    hint: isOnChannels && Number.isInteger(run.relevant) ? find : `${any}; the output follows.`,
    most: length,
    begin: ({ inputs }) => {
      channels = inputs.map((row) => [...row]);
      for (const row of rows) row.moved = 0;
    },
    value: () => ({ inputs: storedChannels(channels) }),
    show, goal,
    parts: (weights) => channelParts(isOnChannels, weights),
    query: (weights) => {
      const q = rowFor(weights, state.query ?? length - 1, length);
      const at = isOnChannels || weights.rows === 1 ? null : q;
      return { q, at, name: weights.rows > 1 ? `position ${q}` : "the whole signal" };
    },
    key: (k) => (areOnChannels(first, weightsNow) ? `series ${k}` : `position ${k}`),
  };
}

addInput("signal", {
  picture: (run, beside) => {
    const top = run.target === "signal" ? () => 1 : topOf;
    return stage(run, drawSignal(run), { top, beside });
  },
  tried: (own) =>
    own.run.examples.length && hasShapes(own.run, own.run.examples[0])
      ? triedShapes(own)
      : triedChannels(own),
  stored: (run, { inputs }) => ({ inputs: storedChannels(inputs) }),
  parts: (run, example, weights) =>
    hasShapes(run, example)
      ? shapeParts(shapesOf(example), weights)
      : channelParts(areOnChannels(example, weights), weights),
  together: (runs) => sameSignals(runs).map(togetherView),
});
