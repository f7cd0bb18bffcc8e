// Signals in channels: as arrays that models take, and as lines in a frame of 100 x 100.

import { onDrag, setStyle, svg } from "../dom.mjs";
import { range, sumOf } from "../lists.mjs";
import { rowOf } from "../pictures/heat.mjs";

const FRAME = 100;
const STRETCHES = 10; // of a signal, masked in turn
const STEPS_UP = 20; // presses of an arrow key from the bottom to the top

/** The channels of an array `(t, channels)`. */
export function channelsOf({ shape, data }) {
  const count = shape[1] ?? 1;
  return range(count).map((c) => [...data].filter((_, i) => i % count === c));
}

/** Channels as an array `(t, channels)`. */
export function storedChannels(channels) {
  const data = channels[0].flatMap((_, t) => channels.map((channel) => channel[t]));
  return { shape: [channels[0].length, channels.length], data };
}

/** Whether weights are on channels, and not on positions. */
export const areOnChannels = ({ inputs }, weights) =>
  inputs.length > 1 && weights?.columns === inputs.length;

/** An empty frame. */
export function frameOf() {
  const lines = svg("g", {});
  const box = { viewBox: `0 0 ${FRAME} ${FRAME}`, preserveAspectRatio: "none" };
  return { lines, picture: svg("svg", { ...box, "aria-hidden": "true" }, lines) };
}

const extents = new WeakMap(); // by run, as every line of a drag needs them

/** The least and the largest number in the inputs of a run's examples. */
export function extentOf(run) {
  if (!extents.has(run)) {
    const all = run.examples.flatMap(({ inputs }) => inputs.flat());
    extents.set(run, [Math.min(...all), Math.max(...all)]);
  }
  return extents.get(run);
}

/** Places in a frame: `x` of a step, `y` of a value. */
function placesIn(run, length) {
  const [low, high] = extentOf(run);
  const x = (t) => ((FRAME * (t + 0.5)) / length).toFixed(2);
  const y = (value) => (92 - (84 * (value - low)) / (high - low || 1)).toFixed(2);
  return { x, y };
}

/** A line of values. */
export function lineIn(run, values, look) {
  const { x, y } = placesIn(run, values.length);
  const points = values.map((value, t) => `${x(t)},${y(value)}`).join(" ");
  return svg("polyline", { class: `try-line ${look}`, points });
}

/** A line of values whose pieces are as thick as `weightAt(t)`. */
export function thickLineIn(run, values, weightAt) {
  const { x, y } = placesIn(run, values.length);
  return values.slice(1).map((value, t) => {
    const ends = { x1: x(t), y1: y(values[t]), x2: x(t + 1), y2: y(value) };
    const thick = { "stroke-width": 1 + 9 * Math.sqrt(weightAt(t + 1)) };
    return svg("line", { ...ends, ...thick, class: "try-line try-piece" });
  });
}

/** A line across a frame at a step. */
export function cursorIn(run, length, t) {
  const at = placesIn(run, length).x(t);
  return svg("line", { class: "try-step", x1: at, x2: at, y1: 0, y2: FRAME });
}

/** Calls `onMove(up, where, isWhole)` for a drag and for arrow keys, `up` in hundredths. */
export function draggedIn(node, picture, onMove) {
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

/** Each channel, or the stretches of a signal, with the mean weight over all queries. */
export function channelParts(isOnChannels, weights) {
  const means = rowOf(weights, null);
  const weighed = "the mean over all positions";
  if (isOnChannels) {
    const names = means.map((_, k) => `series ${k}`);
    return { names, labels: names, weights: means, weighed, what: "series" };
  }
  const count = Math.min(STRETCHES, weights.columns);
  const first = (i) => Math.round((i * weights.columns) / count);
  const stretches = range(count).map((i) => [first(i), first(i + 1)]);
  return {
    names: stretches.map(([from, end]) => `positions ${from} to ${end - 1}`),
    labels: stretches.map(([from, end]) => `${from}–${end - 1}`),
    keys: stretches.map(([from, end]) => range(end).slice(from)),
    weights: stretches.map(([from, end]) => sumOf(means.slice(from, end))),
    weighed,
    what: "stretch",
  };
}
