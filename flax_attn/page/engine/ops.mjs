// Primitives that move entries about.
//
// What a primitive is, elements.mjs says.

import { range } from "../lists.mjs";
import { positions, strides, taker, zeros } from "./arrays.mjs";

/** The same entries in another shape, or under another name. */
const same = () => (x) => [x];

/** Entries of the input at positions that its steps and the shape of the output decide. */
function moved(choose) {
  return (params, [type], [out]) => {
    const { steps, start = 0 } = choose(params, type, out);
    const take = taker(positions(out.shape, steps, start), type.size);
    return (x) => [take(x)];
  };
}

const transpose = moved(({ permutation }, type) => ({
  steps: permutation.map((axis) => strides(type.shape)[axis]),
}));

const broadcast = moved((params, type, out) => {
  const steps = out.shape.map(() => 0);
  params.broadcast_dimensions.forEach((axis, i) => {
    steps[axis] = type.shape[i] === 1 ? 0 : strides(type.shape)[i];
  });
  return { steps };
});

const slice = moved((params, type) => {
  const all = strides(type.shape);
  const start = params.start_indices.reduce((sum, index, axis) => sum + index * all[axis], 0);
  return { steps: all.map((step, axis) => step * (params.strides?.[axis] ?? 1)), start };
});

const rev = moved(({ dimensions }, type) => {
  const all = strides(type.shape);
  const start = dimensions.reduce((sum, axis) => sum + (type.shape[axis] - 1) * all[axis], 0);
  return { steps: all.map((step, axis) => (dimensions.includes(axis) ? -step : step)), start };
});

/** The positions in an array of a part that begins at an index along one axis. */
const partAlong = (whole, part, axis, first) =>
  positions(part.shape, strides(whole.shape), first * strides(whole.shape)[axis]);

function split({ axis }, [type], outputs) {
  let first = 0;
  const takes = outputs.map((out) => {
    const flat = partAlong(type, out, axis, first);
    first += out.shape[axis];
    return taker(flat, type.size);
  });
  return (x) => takes.map((take) => take(x));
}

function concatenate({ dimension }, inputs, [out]) {
  let first = 0;
  const places = inputs.map((type) => {
    const flat = partAlong(out, type, dimension, first);
    first += type.shape[dimension];
    return flat;
  });
  return (...arrays) => {
    const y = zeros(out);
    arrays.forEach((array, i) => put(y, places[i], array));
    return [y];
  };
}

function put(array, flat, entries) {
  for (let i = 0; i < flat.length; i++) array[flat[i]] = entries[i];
}

/** Arrays side by side along a new axis. */
function stack({ axis }, inputs, outputs) {
  const longer = (shape) => [...shape.slice(0, axis), 1, ...shape.slice(axis)];
  const withAxis = inputs.map((type) => ({ ...type, shape: longer(type.shape) }));
  return concatenate({ dimension: axis }, withAxis, outputs);
}

/** Padding may be negative, which cuts off, and between entries too. */
function pad(params, [type], [out]) {
  const steps = strides(out.shape);
  let places = [[0, true]];
  params.padding_config.forEach(([before, , between], axis) => {
    places = places.flatMap(([start, isKept]) =>
      range(type.shape[axis]).map((i) => {
        const index = before + i * (between + 1);
        const isInside = index >= 0 && index < out.shape[axis];
        return [start + index * steps[axis], isKept && isInside];
      }),
    );
  });
  return (x, [filling]) => {
    const y = zeros(out).fill(filling);
    places.forEach(([place, isKept], i) => {
      if (isKept) y[place] = x[i];
    });
    return [y];
  };
}

function iota({ dimension }, inputs, [out]) {
  const steps = out.shape.map((_, axis) => (axis === dimension ? 1 : 0));
  const indices = positions(out.shape, steps);
  return () => [zeros(out).map((_, i) => indices[i])];
}

/** Kept within bounds, so that a slice of a size lies in an axis. */
const within = (index, size, axisSize) => Math.min(Math.max(index, 0), axisSize - size);

/** The flat position at which a slice begins, whose indices are arrays of one number. */
function startOf(indices, part, whole) {
  const steps = strides(whole.shape);
  const along = ([index], axis) => within(index, part.shape[axis], whole.shape[axis]) * steps[axis];
  return indices.reduce((sum, index, axis) => sum + along(index, axis), 0);
}

function dynamicSlice(params, [type], [out]) {
  const flat = positions(out.shape, strides(type.shape));
  return (x, ...indices) => {
    const start = startOf(indices, out, type);
    return [zeros(out).map((_, i) => x[start + flat[i]])];
  };
}

function dynamicUpdateSlice(params, [type, part]) {
  const flat = positions(part.shape, strides(type.shape));
  return (x, update, ...indices) => {
    const [y, start] = [x.slice(), startOf(indices, part, type)];
    for (let i = 0; i < flat.length; i++) y[start + flat[i]] = update[i];
    return [y];
  };
}

/**
 * Slices of an array, at places that another array says.
 *
 * An output has all axes of the indices except the last, and the axes `offset` of the slices.
 * The last axis of the indices holds where a slice begins along the axes `mapped` of the
 * operand.
 * Axes `collapsed` and `batch` of the operand have slices of size 1, which outputs leave out.
 * Along `batch`, the slice begins where the indices stand along `indexBatch`.
 */
function gather(params, [operand, indices], [out]) {
  const { offset, collapsed, mapped, batch, indexBatch, sizes, fill } = params;
  const filling = fill === "default" ? defaultFilling(operand) : fill;
  const steps = strides(operand.shape);
  const inSlice = range(sizes.length).filter((axis) => ![...collapsed, ...batch].includes(axis));
  const outer = range(out.shape.length).filter((axis) => !offset.includes(axis));
  const outSteps = strides(out.shape);
  const pick = (array, axes) => axes.map((axis) => array[axis]);
  const sliceShape = pick(sizes, inSlice);
  const from = positions(sliceShape, pick(steps, inSlice)); // of a slice in the operand
  const to = positions(sliceShape, pick(outSteps, offset)); // and in the output
  const starts = positions(pick(out.shape, outer), pick(outSteps, outer)); // of the slices there
  const depth = indices.shape.at(-1); // entries of an index
  const leading = indices.shape.slice(0, -1);
  const inBatch = batch.map((axis, i) => {
    const along = leading.map((_, other) => (other === indexBatch[i] ? 1 : 0));
    return { step: steps[axis], indices: positions(leading, along) };
  });
  return (x, where) => {
    const y = zeros(out);
    starts.forEach((start, row) => {
      let first = 0;
      let isInside = true;
      mapped.forEach((axis, i) => {
        const index = where[row * depth + i];
        const last = operand.shape[axis] - sizes[axis];
        const kept = Math.min(Math.max(index, 0), last);
        isInside &&= kept === index;
        first += kept * steps[axis];
      });
      for (const { step, indices: places } of inBatch) first += places[row] * step;
      const isFilled = fill !== null && !isInside;
      for (let i = 0; i < from.length; i++) {
        y[start + to[i]] = isFilled ? filling : x[first + from[i]];
      }
    });
    return [y];
  };
}

/** The entry where there is none: NaN, the lowest signed or the largest unsigned number. */
function defaultFilling({ dtype }) {
  const lowest = { float32: NaN, int32: -2147483648, int8: -128, int16: -32768, bool: 1 };
  return lowest[dtype] ?? -1; // -1 wraps to the largest
}

export const OPS = {
  broadcast_in_dim: broadcast,
  concatenate,
  copy: same,
  dynamic_slice: dynamicSlice,
  dynamic_update_slice: dynamicUpdateSlice,
  gather, iota, pad,
  reshape: same,
  rev, slice, split,
  squeeze: same,
  stack,
  stop_gradient: same,
  transpose,
};
