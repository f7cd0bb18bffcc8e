// Attention weights as colours, from white to blue, or from the dark ground to light blue. A map of
// queries and keys has a square-root scale: on a linear one a full weight leaves small ones pale.
// Words and patches of a run are on the scale of its maps. Those of other weights have the colour
// of their strength, which is 0 for the uniform weight. Weights that are `signed` are no shares of
// 1, as without softmax: red below 0, and numbers in place of %.

import { div, el, percent, scrollBox, setStyle, svg, tableBehind } from "../dom.mjs";
import { bytesFrom64, indexOfLargest, meanOf, range } from "../lists.mjs";

// the same as those of `analysis/drawing.py`: from -1 to 1, and the ground in the middle
const LIGHT_STOPS = ["#650a26", "#ae2440", "#dc6a70", "#f2aaa6", "#fbd9d6"].concat(
  ["#ffffff", "#cfe1f2", "#93c4de", "#4a97c9", "#1764ab", "#08306b"],
);
const DARK_STOPS = ["#ffaaa0", "#f07a78", "#c94a58", "#8a2b3d", "#4a1b26"].concat(
  ["#131416", "#16334f", "#1d5a8c", "#3f8fc4", "#8cc6ea", "#f2faff"],
);
const TICKS = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1];
const NEAREST_LAST = 0.87; // the place of a tick up to which the last one leaves it room
export const SCALED = "attention weight, square-root scale";
export const LEAST_SAID = 5e-4; // the size of a signed weight that is no 0
const LEAST_TOP = 8; // times the uniform weight, so that uniform weights are pale
const BROKEN = [213, 94, 0]; // not a number
export const PIXELS = 4; // of a cell, so that stripes can be told from a colour
const FINEST = 720; // pixels along the longer side of a map
export const STRIP = 16; // height of a row of weights in a chart
export const MOST_NAMED = 40; // words, up to which a map has names

// neither is there in a worker
const [isDark, isPaper] = ["(prefers-color-scheme: dark)", "print"].map((query) =>
  globalThis.matchMedia?.(query),
);
const painted = new WeakMap(); // of a node with colours, what paints it
const numbersOf = (stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16));
export const LIGHT = LIGHT_STOPS.map(numbersOf); // of what is saved
let stops = stopsNow();

function stopsNow() {
  return isDark?.matches && !isPaper.matches ? DARK_STOPS.map(numbersOf) : LIGHT;
}

function paintAll() {
  stops = stopsNow();
  for (const node of document.querySelectorAll(".in-colours")) painted.get(node)?.();
}

for (const query of [isDark, isPaper]) query?.addEventListener("change", paintAll);

/** Paints a node, and again when the page turns light or dark, or goes to paper. */
export function inColours(node, paintIt) {
  node.classList.add("in-colours");
  painted.set(node, paintIt);
  paintIt();
}

/** Red, green and blue of a place on the scale of colours, from 0 to 1, or from -1 if signed. */
export const rgb = (place) => rgbAmong(stops, place);

/** The same on a scale of these colours. */
export function rgbAmong(own, place) {
  if (!Number.isFinite(place)) return BROKEN;
  const [middle, sign] = [(own.length - 1) / 2, place < 0 ? -1 : 1];
  const at = Math.min(Math.abs(place), 1) * middle;
  const low = Math.floor(at);
  const [first, next] = [low, Math.min(low + 1, middle)].map((i) => own[middle + sign * i]);
  return first.map((value, i) => Math.round(value + (at - low) * (next[i] - value)));
}

/** The colours that a scale shows, in order. */
export const shadesOf = (own, signed) => (signed ? own : own.slice((own.length - 1) / 2));

/** The place of a weight on a square-root scale that ends at `top`. */
export const rootOf = (weight, top = 1) => Math.sign(weight) * Math.sqrt(Math.abs(weight) / top);

/** A weight in words: a share, or a number where weights are signed. */
export const weightText = (weight, signed) => (signed ? signedText(weight) : percent(weight));

/** A number with two significant digits and a sign that is as wide as a digit. */
export const tickText = (number) => String(Number(number.toPrecision(2))).replace("-", "−");

function signedText(weight) {
  if (Math.abs(weight) < LEAST_SAID) return "0";
  return Number.isNaN(weight) ? "not a number" : tickText(weight);
}

/** Describes the weight of a key, after the name of a query. */
export const putsOn = (key, weight, signed) =>
  signed
    ? `gives ${key} the weight ${signedText(weight)}`
    : `puts ${percent(weight)} of its weight on ${key}`;

/**
 * How far a weight of `count` keys is above 1/count, the uniform weight: from 0 to 1, which is all
 * of the weight, and as much for each doubling. Texts of any length are compared by it.
 */
export function strength(weight, count) {
  const times = Math.max(weight * count, 1);
  return Math.min(Math.log(times) / Math.log(Math.max(count, 2)), 1);
}

/** The ground of a place on the scale of colours, and the ink that is read on it, as CSS. */
export function colours(place) {
  const [red, green, blue] = rgb(place);
  const linear = [red, green, blue].map((value) => (value / 255) ** 2.2);
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  const ink = luminance < 0.179 ? "#fff" : "#000"; // where both are read equally well
  return { background: `rgb(${red}, ${green}, ${blue})`, color: ink };
}

/**
 * Packed weights as `{shape: [heads, q, k], data, signed}`: bytes of a square root, deflated, in
 * base64. Signed ones end at `top`, and a bit for the sign of each follows.
 */
export async function unpack({ shape, data, broken, top }) {
  const packed = new Blob([bytesFrom64(data)]);
  const stream = packed.stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = shape.reduce((size, own) => size * own, 1);
  const isBelow = (i) => top && bytes[count + (i >> 3)] & (128 >> (i & 7));
  const sizes = Float32Array.from(bytes.subarray(0, count), (byte) => (byte / 255) ** 2);
  const weights = sizes.map((size, i) => (isBelow(i) ? -size : size) * (top ?? 1));
  for (const place of broken ?? []) weights[place] = NaN;
  return { shape, data: weights, signed: top !== undefined };
}

/** One head of weights: `{rows, columns, at(q, k), signed}`. */
export function headOf({ shape, data, signed = false }, head) {
  const [, rows, columns] = shape;
  const first = head * rows * columns;
  return { rows, columns, at: (q, k) => data[first + q * columns + k], signed };
}

/** All heads of weights. */
export const headsOf = (weights) => range(weights.shape[0]).map((head) => headOf(weights, head));

/** Weights of at most `most` rows and columns. A cell has the weight of the largest size in it. */
export function pooled({ rows, columns, at, signed }, most) {
  const [down, across] = [Math.min(rows, most), Math.min(columns, most)];
  const data = new Float32Array(down * across);
  for (let q = 0; q < rows; q++) {
    const first = Math.floor((q * down) / rows) * across;
    for (let k = 0; k < columns; k++) {
      const place = first + Math.floor((k * across) / columns);
      const isLarger = !(Math.abs(at(q, k)) <= Math.abs(data[place]));
      if (!Number.isNaN(data[place]) && isLarger) data[place] = at(q, k);
    }
  }
  return headOf({ shape: [1, down, across], data, signed }, 0);
}

const partOf = (own, head) => (own ? headOf(own, Math.min(head, own.shape[0] - 1)) : null);

/** The weights, and the scores, of one attention and head in a reply, or null. */
export const weightsIn = ({ attention }, name, head) => partOf(attention?.[name], head);
export const scoresIn = ({ scores }, name, head) => partOf(scores?.[name], head);

/** The mean weight of each key over all queries, or the weights of one query. */
export function rowOf(weights, q) {
  const queries = q === null ? range(weights.rows) : [q];
  return range(weights.columns).map((k) => meanOf(queries.map((i) => weights.at(i, k))));
}

/** Where the scale of a matrix ends: at its largest weight, or at 8 times the uniform one. */
export function topOf(weights) {
  const { rows, columns, at, signed } = weights;
  let top = signed ? LEAST_SAID : LEAST_TOP / columns;
  for (let q = 0; q < rows; q++)
    for (let k = 0; k < columns; k++) top = Math.max(top, Math.abs(at(q, k)) || 0);
  return signed ? top : Math.min(top, 1);
}

/** Where the scale of the words or patches of a query ends, if weights are signed, or null. */
export const signedTop = (weights) => (weights?.signed ? topOf(weights) : null);

/** The end of the scale that words, patches and maps of a run share. */
export const endOf = (weights) => signedTop(weights) ?? 1;

/** The key with the largest weight of a query, of either sign. */
export const largest = (weights, q) => indexOfLargest(rowOf(weights, q).map(Math.abs));

/** Describes the key with the largest weight, after the name of a query. */
export const mostOn = (key, weight, signed, attends, before = "with ") =>
  signed
    ? `gives ${key} its strongest weight, ${signedText(weight)}`
    : `${attends} ${key}, ${before}${percent(weight)}`;

/** The ticks of a scale that ends at `top`, as pairs of a place along a bar and a weight. */
export function ticksTo(top, signed) {
  if (signed) {
    const above = TICKS.filter((tick) => tick >= 0.1 * top && tick < 0.6 * top);
    const half = [...above.filter((_, i) => i % 2 === 0), top];
    const both = [...half.map((tick) => -tick).reverse(), 0, ...half];
    return both.map((tick) => [(rootOf(tick, top) + 1) / 2, tick]);
  }
  const ticks = TICKS.filter((tick) => rootOf(tick, top) < NEAREST_LAST).concat(top);
  const apart = ticks.filter((tick, i) => i === 0 || i === ticks.length - 1 || tick / top >= 0.04);
  return apart.map((tick) => [rootOf(tick, top), tick]);
}

/** A bar of the colours up to `top`, with ticks. `masked` may say what is hatched. */
export const legend = (top = 1, masked = false, signed = false) =>
  barOf(SCALED, ticksTo(top, signed), masked, signed);

/** A bar of the colours of `count` words or patches, from the uniform weight to all of it. */
export function strengthLegend(count, masked = false, what = "words") {
  const first = 1 / count;
  const ticks = [first, ...TICKS.filter((tick) => tick > 1.7 * first && tick < 0.7), 1];
  const uniform = `1/${count} = ${Number(first.toPrecision(2))}`;
  const said = `weight: no colour up to ${uniform}, the uniform weight of ${count} ${what}`;
  return barOf(said, ticks.map((tick) => [strength(tick, count), tick]), masked);
}

function barOf(said, marks, masked, signed = false) {
  const ticks = marks.map(([place, tick]) =>
    el("span", { style: { left: `${100 * place}%` } }, tickText(tick)),
  );
  const bar = el("div", { class: "bar" });
  inColours(bar, () => {
    const shades = shadesOf(stops, signed).map((stop) => `rgb(${stop.join(", ")})`).join(", ");
    setStyle(bar, { background: `linear-gradient(90deg, ${shades})` });
  });
  return el("div", { class: "legend" },
    el("span", { class: "what" }, said),
    el("div", { class: "scale", "aria-hidden": "true" }, bar, el("div", { class: "ticks" }, ticks)),
    masked
      ? el("span", { class: "what hatched-key" }, masked === true ? "hatched: masked" : masked)
      : null,
  );
}

/** A legend of strengths, or signed up to `top`, that follows: `{node, to(count, masked, top)}`. */
export function movingLegend(what) {
  const node = div();
  const to = (count, masked = false, top = null) =>
    node.replaceChildren(
      top === null ? strengthLegend(count, masked, what) : legend(top, masked, true),
    );
  return { node, to };
}

/** Draws weights on a canvas, `cell` pixels each. Cells that are not visible are hatched. */
export const paint = (canvas, weights, options = {}) =>
  inColours(canvas, () => paintCells(canvas, weights, options));

function paintCells(canvas, weights, options) {
  const { top = signedTop(weights) ?? 1, visible = () => true, finest = FINEST } = options;
  const { rows, columns } = weights;
  const cell = Math.max(1, Math.floor(finest / Math.max(rows, columns)));
  canvas.width = cell * columns;
  canvas.height = cell * rows;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  const pixels = document.createElement("canvas"); // thousands of cells are one rectangle
  paintPixelwise(pixels, weights, top);
  pen.drawImage(pixels, 0, 0, canvas.width, canvas.height);
  pen.fillStyle = cell > 1 ? hatching(pen) : "#909090a0";
  for (let q = 0; q < rows; q++)
    for (let k = 0; k < columns; k++) {
      if (visible(q, k)) continue;
      pen.clearRect(cell * k, cell * q, cell, cell);
      pen.fillRect(cell * k, cell * q, cell, cell);
    }
}

/** Makes a canvas one pixel for each weight. */
export const paintPixelwise = (canvas, { rows, columns, at }, top) =>
  paintEach(canvas, columns, rows, (k, q) => rgb(rootOf(at(q, k), top)));

/** Gives a canvas a size, and each pixel red, green and blue by `colourAt(x, y)`. */
export function paintEach(canvas, width, height, colourAt) {
  canvas.width = width;
  canvas.height = height;
  const picture = new ImageData(width, height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [colour, place] = [colourAt(x, y), 4 * (y * width + x)];
      for (let c = 0; c < 4; c++) picture.data[place + c] = c < 3 ? colour[c] : 255;
    }
  canvas.getContext("2d").putImageData(picture, 0, 0);
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
 * A map of weights, queries downwards. Mouse, finger and arrow keys point at a cell. With `onPick`
 * in place of `onPoint`, a cell is pressed, and the pointer alone does nothing.
 *
 * `rowNames` and `columnNames` are words or null; `axes` says what runs down and across;
 * `onPoint(q, k)` is called with what is pointed at. Returns
 * `{node, canvas, show(weights, options), point(q, k)}`; a q of null takes the marks away.
 */
export function heatMap(options) {
  const { name, rowNames = null, columnNames = null, axes = null, onPoint, onPick } = options;
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": name });
  const row = el("div", { class: "mark row-mark" });
  const cell = el("div", { class: "mark cell-mark" });
  const field = el("div", { class: "field" }, canvas, row, cell);
  const named = Boolean(rowNames || columnNames);
  const node = el("div", { class: named ? "heat named" : "heat" },
    axes ? el("span", { class: "down-name", "aria-hidden": "true" }, `${axes[0]} ↓`) : null,
    side(rowNames, "row-names"), field, side(columnNames, "column-names"),
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
    if (tell) (onPick ?? onPoint)?.(now.q, now.k);
  };
  const follow = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (place, size, count) => Math.floor((count * place) / size);
    const { rows, columns } = now.weights;
    const q = at(event.clientY - box.top, box.height, rows);
    point(q, at(event.clientX - box.left, box.width, columns));
  };
  const heard = onPick ? ["click"] : ["pointermove", "pointerdown"];
  for (const name of heard) canvas.addEventListener(name, follow);
  canvas.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 10 : 1;
    const moves = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far] };
    const move = { ...moves, ArrowRight: [0, far], Home: [0, -Infinity], End: [0, Infinity] };
    if (!(event.key in move)) return;
    event.preventDefault();
    point(now.q + move[event.key][0], now.k + move[event.key][1]);
  });
  const show = (weights, own = {}) => {
    now.weights = weights;
    paint(canvas, weights, own);
    setStyle(node, { "--rows": weights.rows, "--columns": weights.columns });
    canvas.setAttribute("aria-label", own.name ?? name);
    point(Math.min(now.q, weights.rows - 1), Math.min(now.k, weights.columns - 1), false);
  };
  const pointAt = (q, k) => {
    row.hidden = cell.hidden = q === null;
    if (q !== null) point(q, k, false);
  };
  return { node, canvas, show, point: pointAt };
}

/** A table of the weights of the chosen query, `state.q`; each name is that of a `what`. */
export function weightsBehind(what, names, weights, state, order = "") {
  const rows = () =>
    rowOf(weights, state.q).map((weight, k) => [names[k], weightText(weight, weights.signed)]);
  return tableBehind(`the weight of each ${what}${order}`, [what, "weight"], rows);
}

/** A canvas that is one row of weights; keys that are not visible are hatched. */
export function strip(name) {
  const canvas = el("canvas", { class: "try-strip", role: "img", "aria-label": name });
  const show = (weights, q, isVisible = () => true) => {
    const { columns } = weights; // five rows, so that stripes are not stretched
    const row = { ...weights, rows: 5, at: (_, k) => weights.at(q, k) };
    paint(canvas, row, { finest: PIXELS * Math.max(columns, 5), visible: (_, k) => isVisible(k) });
  };
  return { canvas, show };
}

/** The weights of one query as a row of colours in a chart, whose scale across is `x`. */
export function weightStrip(weights, q, top, x, y) {
  const size = x.place(1) - x.place(0);
  const cells = rowOf(weights, q).map((weight, k) => {
    const place = { x: x.place(k) - size / 2, y, width: size + 0.3, height: STRIP - 2 };
    const cell = svg("rect", place);
    inColours(cell, () => cell.setAttribute("fill", `rgb(${rgb(rootOf(weight, top))})`));
    return cell;
  });
  return svg("g", {}, cells);
}

/** The whole map, queries downwards, with names where they can be read: `{node, point(q, k)}`. */
export function mapOf(tokens, weights, onPoint, options = {}) {
  const name = "Attention: each word is a row, and looks across";
  const named = tokens.length <= MOST_NAMED;
  const names = named ? { rowNames: tokens, columnNames: tokens } : {};
  const map = heatMap({ name, ...names, axes: ["query", "key"], onPoint });
  map.show(weights, { name, ...options });
  const box = named ? scrollBox(options.label ?? "The map of all words", map.node) : map.node;
  return { node: box, point: map.point };
}
