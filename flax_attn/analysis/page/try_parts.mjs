// The parts of a signal or of series that can be hidden in turn, with the weight of each.

import { rowOf } from "./texts.mjs";
import { isIn, LENGTH, shareOn } from "./try_shapes.mjs";

const STRETCHES = 10; // of a signal without shapes
const SHAPE_LABELS = { triangle: "▲", box: "■" };

/** The four shapes of a signal, with the share that the queries in shapes put on each. */
export function shapeParts(shapes, weights) {
  const all = Array.from({ length: weights.columns }, (_, k) => k);
  const numbers = shapes.map((own, i) => shapes.slice(0, i + 1).filter(isOfKind(own.kind)).length);
  return {
    names: shapes.map(({ kind }, i) => `${kind} ${numbers[i]}`),
    labels: shapes.map(({ kind }, i) => `${SHAPE_LABELS[kind]} ${kind} ${numbers[i]}`),
    keys: shapes.map((own) => all.filter((k) => isIn(own, (k * LENGTH) / weights.columns))),
    weights: shapes.map((own) => shareOn(weights, shapes, [own])),
    what: "shape",
    isWeighed: true,
  };
}

const isOfKind = (kind) => (own) => own.kind === kind;

/** Each series, or the stretches of a signal, with the mean weight over all queries. */
export function seriesParts(isSeries, weights) {
  const means = rowOf(weights, null);
  const common = { isWeighed: true, what: isSeries ? "series" : "stretch" };
  if (isSeries) {
    const names = means.map((_, k) => `series ${k}`);
    return { ...common, names, labels: names, weights: means };
  }
  const count = Math.min(STRETCHES, weights.columns);
  const first = (i) => Math.round((i * weights.columns) / count);
  const stretches = Array.from({ length: count }, (_, i) => [first(i), first(i + 1)]);
  return {
    ...common,
    names: stretches.map(([from, end]) => `positions ${from} to ${end - 1}`),
    labels: stretches.map(([from, end]) => `${from}–${end - 1}`),
    keys: stretches.map(([from, end]) => Array.from({ length: end - from }, (_, i) => from + i)),
    weights: stretches.map(([from, end]) => means.slice(from, end).reduce((a, b) => a + b, 0)),
  };
}
