// Products: `dot_general` and `conv_general_dilated`, both by one loop over typed arrays.

import { range } from "../lists.mjs";
import { along, positions, product, strides, taker, zeros } from "./arrays.mjs";

/**
 * Adds the products of rows, `out[m, n] = sum_k a[m, k] b[n, k]`.
 * Two rows of `a` and four of `b` at a time: each number that is read takes part in several
 * products.
 */
function multiplyRows(a, b, out, M, N, K, atA, atB, atOut) {
  const [wholeM, wholeN] = [M - (M % 2), N - (N % 4)];
  for (let n = 0; n < wholeN; n += 4) {
    const b0 = atB + n * K;
    const [b1, b2, b3] = [b0 + K, b0 + 2 * K, b0 + 3 * K];
    for (let m = 0; m < wholeM; m += 2) {
      const a0 = atA + m * K;
      const a1 = a0 + K;
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0; // numbers of their own are faster than arrays
      let t0 = 0, t1 = 0, t2 = 0, t3 = 0;
      for (let k = 0; k < K; k++) {
        const x = a[a0 + k], y = a[a1 + k];
        const u = b[b0 + k], v = b[b1 + k], w = b[b2 + k], z = b[b3 + k];
        s0 += x * u, s1 += x * v, s2 += x * w, s3 += x * z;
        t0 += y * u, t1 += y * v, t2 += y * w, t3 += y * z;
      }
      const at = atOut + m * N + n;
      out[at] = s0, out[at + 1] = s1, out[at + 2] = s2, out[at + 3] = s3;
      out[at + N] = t0, out[at + N + 1] = t1, out[at + N + 2] = t2, out[at + N + 3] = t3;
    }
  }
  for (let m = 0; m < M; m++) {
    for (let n = m < wholeM ? wholeN : 0; n < N; n++) {
      const a0 = atA + m * K;
      const b0 = atB + n * K;
      let sum = 0;
      for (let k = 0; k < K; k++) sum += a[a0 + k] * b[b0 + k];
      out[atOut + m * N + n] = sum;
    }
  }
}

/** A function that keeps what it made of the last array: parameters are the same every time. */
function remembering(make) {
  let [last, made] = [null, null];
  return (array) => {
    if (array !== last) [last, made] = [array, make(array)];
    return made;
  };
}

/** The array of a type with its axes in another order. */
const inOrder = (type, axes) => remembering(taker(along(type.shape, axes), type.size));

function dotGeneral({ contracted, batch }, [left, right], [out]) {
  const of = (type, side) => {
    const taken = [...batch[side], ...contracted[side]];
    const free = range(type.shape.length).filter((axis) => !taken.includes(axis));
    const size = (axes) => product(axes.map((axis) => type.shape[axis]));
    const arrange = inOrder(type, [...batch[side], ...free, ...contracted[side]]);
    return { arrange, batches: size(batch[side]), free: size(free), depth: size(contracted[side]) };
  };
  const [a, b] = [of(left, 0), of(right, 1)];
  const [M, N, K] = [a.free, b.free, a.depth];
  return (x, y) => {
    const [rowsA, rowsB, products] = [a.arrange(x), b.arrange(y), zeros(out)];
    for (let i = 0; i < a.batches; i++) {
      multiplyRows(rowsA, rowsB, products, M, N, K, i * M * K, i * N * K, i * M * N);
    }
    return [products];
  };
}

/**
 * The positions in an input of all that each output of a convolution looks at, -1 in the padding:
 * one row an output, by batch and place, with the taps one after the other.
 */
function windows({ strides: moves, padding, dilation }, input, taps, places) {
  const [batch, features, ...sizes] = input.shape;
  const [stepBatch, stepFeature, ...steps] = input.steps;
  const flat = new Int32Array(batch * product(places) * product(taps) * features);
  const indices = (shape) => range(product(shape)).map((i) => unravel(i, shape));
  const [allPlaces, allTaps] = [indices(places), indices(taps)];
  let next = 0;
  for (let b = 0; b < batch; b++) {
    for (const place of allPlaces) {
      for (const tap of allTaps) {
        const at = place.map((p, d) => p * moves[d] + tap[d] * dilation[d] - padding[d][0]);
        const inside = at.every((index, d) => index >= 0 && index < sizes[d]);
        const start = b * stepBatch + at.reduce((sum, index, d) => sum + index * steps[d], 0);
        for (let c = 0; c < features; c++) flat[next++] = inside ? start + c * stepFeature : -1;
      }
    }
  }
  return flat;
}

/** The index along each axis of an entry of a flat array. */
const unravel = (flat, shape) =>
  strides(shape).map((step, axis) => Math.floor(flat / step) % shape[axis]);

/** A convolution as one product, of the windows of the input side by side. */
function convolution(params, [left, right], [out]) {
  const ordered = (type, order) => ({
    shape: order.map((axis) => type.shape[axis]),
    steps: order.map((axis) => strides(type.shape)[axis]),
  });
  const input = ordered(left, params.lhs);
  const result = ordered(out, params.out);
  const [outputs, inputs, ...taps] = params.rhs; // the axes of the kernel
  const sizes = taps.map((axis) => right.shape[axis]);
  const flat = windows(params, input, sizes, result.shape.slice(2));
  const kernelRows = inOrder(right, [outputs, ...taps, inputs]);
  const [batch, N, ...places] = result.shape;
  const M = batch * product(places);
  const K = product(sizes) * right.shape[inputs];
  const [stepBatch, stepN, ...steps] = result.steps; // products are (batch, place, feature)
  const placed = positions([batch, ...places, N], [stepBatch, ...steps, stepN]);
  return (x, kernel) => {
    const [patches, products, y] = [new Float32Array(flat.length), zeros(out), zeros(out)];
    for (let i = 0; i < flat.length; i++) patches[i] = flat[i] < 0 ? 0 : x[flat[i]];
    multiplyRows(patches, kernelRows(kernel), products, M, N, K, 0, 0, 0);
    for (let i = 0; i < placed.length; i++) y[placed[i]] = products[i];
    return [y];
  };
}

export const DOTS = { dot_general: dotGeneral, conv_general_dilated: convolution };
