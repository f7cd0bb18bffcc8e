// Attention weights as colours: viridis on a square-root scale, and a map of queries and keys.
// On a linear scale one full weight leaves many small ones dark.

import { el, setStyle } from "./dom.mjs";

const VIRIDIS = [
  "44015446075a470d6047136548186a481d6f482374482878472d7b46327e453781443b84424086404588",
  "3e49893d4e8a3b528b39568c375b8d355f8d33638d31678e2f6b8e2e6f8e2c728e2a768e297a8e277e8e",
  "26828e25858e23898e228d8d21918c1f948c1f988b1e9c891fa08820a38622a78525ab8228ae802db27d",
  "32b67a38b9773fbc7346c06f4ec36b56c6675ec96267cc5c70cf577ad15184d44b8ed64598d83ea2da37",
  "addc30b8de29c2df23cde11dd8e219e2e418ece51bf6e620fde725",
].join("");
const STOPS = Array.from({ length: VIRIDIS.length / 6 }, (_, i) =>
  [0, 2, 4].map((j) => parseInt(VIRIDIS.slice(6 * i + j, 6 * i + j + 2), 16)),
);
const TICKS = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1];
const BROKEN = [213, 94, 0]; // not a number
const FINEST = 720; // pixels along the longer side of a map

/** Red, green and blue of a weight on a scale that ends at `top`. */
export function rgb(weight, top = 1) {
  if (!Number.isFinite(weight)) return BROKEN;
  const place = Math.sqrt(Math.min(Math.max(weight / top, 0), 1)) * (STOPS.length - 1);
  const low = Math.floor(place);
  const high = Math.min(low + 1, STOPS.length - 1);
  return STOPS[low].map((value, i) => Math.round(value + (place - low) * (STOPS[high][i] - value)));
}

/** The ground of a weight, and the ink that is read on it, as CSS. */
export function colours(weight, top = 1) {
  const [red, green, blue] = rgb(weight, top);
  const linear = [red, green, blue].map((value) => (value / 255) ** 2.2);
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  const ink = luminance > 0.179 ? "#000" : "#fff"; // where black and white are read equally well
  return { background: `rgb(${red}, ${green}, ${blue})`, color: ink };
}

/**
 * Packed weights as `{shape: [heads, q, k], data}`: bytes of a square root, deflated, in base64.
 */
export async function unpack({ shape, data, broken }) {
  const packed = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const weights = Float32Array.from(bytes, (byte) => (byte / 255) ** 2);
  for (const place of broken ?? []) weights[place] = NaN;
  return { shape, data: weights };
}

/** One head of weights: `{rows, columns, at(q, k)}`. */
export function headOf({ shape, data }, head) {
  const [, rows, columns] = shape;
  const first = head * rows * columns;
  return { rows, columns, at: (q, k) => data[first + q * columns + k] };
}

/** The largest weight, where a scale ends; at least 0.01. */
export function topOf(weights) {
  let top = 0.01;
  for (let q = 0; q < weights.rows; q++)
    for (let k = 0; k < weights.columns; k++) top = Math.max(top, weights.at(q, k) || 0);
  return top;
}

/** The key with the largest weight of a query. */
export function largest(weights, q) {
  let best = 0;
  for (let k = 1; k < weights.columns; k++)
    if (!(weights.at(q, k) <= weights.at(q, best))) best = k;
  return best;
}

/** A bar of the colours from 0 to `top`, with ticks. */
export function legend(top = 1, masked = false) {
  const stops = STOPS.map((stop) => `rgb(${stop.join(", ")})`).join(", ");
  const ticks = TICKS.filter((tick) => tick < 0.8 * top).concat(top);
  const spread = ticks.filter((tick, i) => i === 0 || i === ticks.length - 1 || tick / top >= 0.04);
  const marks = spread.map((tick) =>
    el(
      "span",
      { style: { left: `${100 * Math.sqrt(tick / top)}%` } },
      String(Number(tick.toPrecision(2))),
    ),
  );
  const background = `linear-gradient(90deg, ${stops})`;
  const bar = el("div", { class: "bar", style: { background } });
  return el(
    "div",
    { class: "legend" },
    el("span", { class: "what" }, "attention weight, square-root scale"),
    el("div", { class: "scale", "aria-hidden": "true" }, bar, el("div", { class: "ticks" }, marks)),
    masked ? el("span", { class: "what hatched-key" }, "hatched: masked") : null,
  );
}

/** Draws weights on a canvas, `cell` pixels each. Cells that are not visible are hatched. */
export function paint(canvas, weights, { top = 1, visible = () => true, finest = FINEST } = {}) {
  const { rows, columns } = weights;
  const cell = Math.max(1, Math.floor(finest / Math.max(rows, columns)));
  canvas.width = cell * columns;
  canvas.height = cell * rows;
  const pen = canvas.getContext("2d");
  const hatch = cell > 1 ? hatching(pen) : "#909090a0";
  for (let q = 0; q < rows; q++)
    for (let k = 0; k < columns; k++) {
      pen.fillStyle = visible(q, k) ? colours(weights.at(q, k), top).background : hatch;
      pen.fillRect(cell * k, cell * q, cell, cell);
    }
}

/** Gray stripes on the ground of the page, which are no colour of a weight. */
function hatching(pen) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const brush = tile.getContext("2d");
  brush.fillStyle = "#909090a0";
  for (let i = 0; i < 8; i++) brush.fillRect((15 - i) % 8, i, 2, 1);
  return pen.createPattern(tile, "repeat");
}

/** Names along a side of a map, each as long as a cell; no names where there are none. */
function side(names, kind) {
  if (!names) return null;
  const areShort = names.every((name) => [...name].length < 3);
  const cells = names.map((name) => el("span", {}, name));
  return el("div", { class: areShort ? `${kind} short` : kind, "aria-hidden": "true" }, cells);
}

/**
 * A map of weights, queries downwards. Mouse, finger and arrow keys point at a cell.
 *
 * `rowNames` and `columnNames` are words or null; `axes` says what runs down and across;
 * `onPoint(q, k)` is called with what is pointed at. Returns
 * `{node, canvas, show(weights, options), point(q, k)}`; a q of null takes the marks away.
 */
export function heatMap({ name, rowNames = null, columnNames = null, axes = null, onPoint }) {
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": name });
  const row = el("div", { class: "mark row-mark" });
  const cell = el("div", { class: "mark cell-mark" });
  const field = el("div", { class: "field" }, canvas, row, cell);
  const named = Boolean(rowNames || columnNames);
  const node = el(
    "div",
    { class: named ? "heat named" : "heat" },
    axes ? el("span", { class: "down-name", "aria-hidden": "true" }, `${axes[0]} ↓`) : null,
    side(rowNames, "row-names"),
    field,
    side(columnNames, "column-names"),
    axes ? el("span", { class: "across-name", "aria-hidden": "true" }, `${axes[1]} →`) : null,
  );
  let now = { weights: null, q: 0, k: 0 };
  const mark = () => {
    const { weights, q, k } = now;
    const [width, height] = [100 / weights.columns, 100 / weights.rows];
    setStyle(row, { top: `${q * height}%`, height: `${height}%` });
    const place = { left: `${k * width}%`, width: `${width}%`, top: `${q * height}%` };
    setStyle(cell, { ...place, height: `${height}%` });
  };
  const point = (q, k, tell = true) => {
    const { rows, columns } = now.weights;
    now.q = Math.min(Math.max(q, 0), rows - 1);
    now.k = Math.min(Math.max(k, 0), columns - 1);
    mark();
    if (tell) onPoint?.(now.q, now.k);
  };
  const follow = (event) => {
    const box = canvas.getBoundingClientRect();
    const { rows, columns } = now.weights;
    const q = Math.floor((rows * (event.clientY - box.top)) / box.height);
    const k = Math.floor((columns * (event.clientX - box.left)) / box.width);
    point(q, k);
  };
  canvas.addEventListener("pointermove", follow);
  canvas.addEventListener("pointerdown", follow);
  canvas.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 10 : 1;
    const moves = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far] };
    const move = { ...moves, ArrowRight: [0, far], Home: [0, -Infinity], End: [0, Infinity] };
    if (!(event.key in move)) return;
    event.preventDefault();
    point(now.q + move[event.key][0], now.k + move[event.key][1]);
  });
  const show = (weights, options = {}) => {
    now.weights = weights;
    paint(canvas, weights, options);
    setStyle(node, { "--rows": weights.rows, "--columns": weights.columns });
    canvas.setAttribute("aria-label", options.name ?? name);
    point(Math.min(now.q, weights.rows - 1), Math.min(now.k, weights.columns - 1), false);
  };
  const pointAt = (q, k) => {
    row.hidden = cell.hidden = q === null;
    if (q !== null) point(q, k, false);
  };
  return { node, canvas, show, point: pointAt };
}
