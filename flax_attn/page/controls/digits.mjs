// A drawn digit as MNIST has digits: its box scaled to 20 x 20 pixels, its centre of mass in the
// middle of 28 x 28.

import { range, sumOf } from "../lists.mjs";

export const SIZE = 28;
const BOX_SIZE = 20;
const SAMPLES = 3; // across a pixel

/** Ink `(SIZE, SIZE)` from a drawing of any square size; null where nothing is drawn. */
export function centred(ink, size) {
  const inked = range(size * size).filter((i) => ink[i] >= 0.1);
  if (!inked.length) return null;
  const masses = inked.map((i) => ink[i]);
  const sides = [inked.map((i) => i % size), inked.map((i) => Math.floor(i / size))].map((at) => {
    const first = at.reduce((one, other) => Math.min(one, other));
    const extent = at.reduce((one, other) => Math.max(one, other)) - first + 1;
    const middle = sumOf(at.map((place, i) => place * masses[i])) / sumOf(masses) + 0.5;
    return { first, extent, middle };
  });
  const scale = BOX_SIZE / Math.max(...sides.map(({ extent }) => extent));
  const [columns, rows] = sides.map(({ first, middle }) => {
    const pixel = Math.round(SIZE / 2 - (middle - first) * scale); // where the box begins
    const sampled = (i) => Math.floor(first + ((i + 0.5) / SAMPLES - pixel) / scale);
    return range(SIZE * SAMPLES).map(sampled);
  });
  const out = new Float32Array(SIZE * SIZE);
  rows.forEach((y, j) =>
    columns.forEach((x, i) => {
      const pixel = Math.floor(j / SAMPLES) * SIZE + Math.floor(i / SAMPLES);
      const isInside = Math.min(x, y) >= 0 && Math.max(x, y) < size;
      if (isInside) out[pixel] += ink[y * size + x] / SAMPLES ** 2;
    }),
  );
  return out;
}
