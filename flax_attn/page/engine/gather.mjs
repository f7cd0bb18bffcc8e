// The primitive `gather`: slices of an array, at places that another array says.

import { positions, range, strides, zeros } from "./arrays.mjs";

/**
 * An output has the axes of the indices, but for their last, and the axes `offset` of the slices.
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

export const GATHERS = { gather };
