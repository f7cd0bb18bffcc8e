// The shapes task in numbers: signals of two triangles and two boxes, as `data/shapes.py` makes
// them, and what an answer says of them.

import { meanOf, range, sumOf } from "../lists.mjs";

export const LENGTH = 100;
export const CENTERS = [5.5, 94.5]; // of training
export const HEIGHTS = [1, 25];
export const SHAPE_KINDS = ["triangle", "box"];
export const SHAPE_SIGNS = { triangle: "▲", box: "■" };
export const pluralOf = (kind) => (kind === "box" ? "boxes" : "triangles");

/** The shapes of an example: triangles first, with centre, height and width. */
export function shapesOf(example) {
  return example.marks.map((mark) => ({
    kind: mark.kind,
    center: mark.center,
    width: mark.last - mark.first,
    height: mark.height ?? heightIn(example.inputs[0], mark),
  }));
}

/** The height of a shape in a signal: a triangle's at its tip, a box's mean. */
export function heightIn(signal, { kind, center, width, first, last }) {
  if (kind === "triangle") return signal[Math.min(Math.max(Math.round(center), 0), LENGTH - 1)];
  const size = width ?? last - first;
  const inside = signal.filter((_, t) => 2 * Math.abs(t - center) < size);
  return sumOf(inside) / Math.max(inside.length, 1);
}

/** A signal without noise: the largest of the four shapes at each point. */
export const drawn = (shapes, heights = shapes.map(({ height }) => height)) =>
  range(LENGTH).map((t) => Math.max(...shapes.map((own, i) => heightAt(own, heights[i], t))));

function heightAt({ kind, center, width }, height, t) {
  const distance = Math.abs(t - center);
  if (kind === "box") return 2 * distance < width ? height : 0;
  return Math.max(height - (Math.max(distance - 0.5, 0) * 2 * height) / width, 0);
}

/** The right heights: the mean of each kind, or of the two on each side. */
export const rightHeights = (shapes, task) =>
  shapes.map((_, i) => meanOf(groupOf(shapes, i, task).map((j) => shapes[j].height)));

/** The shapes that are levelled with a shape, itself among them. */
export function groupOf(shapes, i, task) {
  const left = [...shapes.keys()].sort((a, b) => shapes[a].center - shapes[b].center).slice(0, 2);
  const group = (j) => (task === "by_location" ? left.includes(j) : shapes[j].kind);
  return [...shapes.keys()].filter((j) => group(j) === group(i));
}

/** Whether a point of the signal lies in a shape. */
export const isIn = ({ center, width }, t) => Math.abs(t - center) <= width / 2;

/** The keys in a shape, of as many as there are columns. */
export const keysIn = (shape, columns) =>
  range(columns).filter((k) => isIn(shape, (k * LENGTH) / columns));

/** The weight of a query on all keys in a shape. */
export const rowShare = (weights, q, shape) =>
  sumOf(keysIn(shape, weights.columns).map((k) => weights.at(q, k)));

/** The share of their weight that the queries in some shapes put on the keys in others. */
export function shareOn(weights, queries, keys) {
  const isQuery = (t) => queries.some((shape) => isIn(shape, t));
  const isKey = (t) => keys.some((shape) => isIn(shape, t));
  const scaleQ = LENGTH / weights.rows;
  const scaleK = LENGTH / weights.columns;
  let [total, count] = [0, 0];
  for (let q = 0; q < weights.rows; q++) {
    if (!isQuery((q + 0.5) * scaleQ - 0.5)) continue;
    count += 1;
    for (let k = 0; k < weights.columns; k++)
      if (isKey((k + 0.5) * scaleK - 0.5)) total += weights.at(q, k);
  }
  return count ? total / count : NaN;
}

/** What is unusual about shapes, in words; empty for those that training has. */
export function unusual(shapes) {
  for (const [i, one] of shapes.entries())
    for (const other of shapes.slice(0, i)) {
      const room = (one.width + other.width) / 2;
      if (Math.abs(one.center - other.center) < room)
        return `A ${other.kind} and a ${one.kind} overlap. In training no shapes did.`;
    }
  const isOut = (value, [least, most]) => value < least || value > most;
  const outside = shapes.find(
    ({ center, height }) => isOut(center, CENTERS) || isOut(height, HEIGHTS),
  );
  return outside ? `A ${outside.kind} is outside of the range of training.` : "";
}

/** The four shapes of a signal, with the share that the queries in shapes put on each. */
export function shapeParts(shapes, weights) {
  const numbers = shapes.map((own, i) => shapes.slice(0, i + 1).filter(isOfKind(own.kind)).length);
  return {
    names: shapes.map(({ kind }, i) => `${kind} ${numbers[i]}`),
    labels: shapes.map(({ kind }, i) => `${SHAPE_SIGNS[kind]} ${kind} ${numbers[i]}`),
    keys: shapes.map((own) => keysIn(own, weights.columns)),
    weights: shapes.map((own) => shareOn(weights, shapes, [own])),
    what: "shape",
    weighed: "the mean over all positions in shapes",
    numbers: `the heights of the answer (0 to ${HEIGHTS[1]})`,
  };
}

const isOfKind = (kind) => (own) => own.kind === kind;
