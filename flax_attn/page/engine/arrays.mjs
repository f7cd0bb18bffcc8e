// Arrays of the interpreter: flat typed arrays, row by row, whose shapes are known beforehand.

import { range } from "../lists.mjs";

/**
 * The shape and dtype of a value.
 * @typedef {{dtype: string, shape: number[], size: number}} Type
 */

const INTEGERS = { int32: Int32Array, int16: Int16Array, int8: Int8Array, bool: Uint8Array };
const UNSIGNED = { uint32: Uint32Array, uint16: Uint16Array, uint8: Uint8Array };
const DTYPES = { float32: Float32Array, ...INTEGERS, ...UNSIGNED };

/** @returns {Type} */
export function typeOf([dtype, shape]) {
  return { dtype, shape, size: product(shape) };
}

/** A new array of a type, of zeros. */
export const zeros = (type) => new DTYPES[type.dtype](type.size);

/** The array of a type that stands in bytes from an offset on. */
export const arrayAt = (bytes, offset, type) => new DTYPES[type.dtype](bytes, offset, type.size);

export const isFloat = (type) => type.dtype === "float32";

export const product = (numbers) => numbers.reduce((total, number) => total * number, 1);

/** The distance in the flat array from one index of each axis to the next. */
export function strides(shape) {
  const steps = shape.map(() => 1);
  for (let axis = shape.length - 2; axis >= 0; axis--) {
    steps[axis] = steps[axis + 1] * shape[axis + 1];
  }
  return steps;
}

/** The same, with 0 along axes of size 1: an array that is repeated there. */
export const repeatedStrides = (shape) =>
  strides(shape).map((step, axis) => (shape[axis] === 1 ? 0 : step));

/**
 * The flat positions `start + sum_a i_a steps_a` of all indices `i` of a shape, row by row.
 * This one function transposes, slices, reverses and repeats.
 */
export function positions(shape, steps, start = 0) {
  let flat = Int32Array.of(start);
  shape.forEach((size, axis) => {
    const next = new Int32Array(flat.length * size);
    for (let i = 0; i < flat.length; i++) {
      for (let j = 0; j < size; j++) next[i * size + j] = flat[i] + j * steps[axis];
    }
    flat = next;
  });
  return flat;
}

/** The flat positions of all entries along some axes of a shape, in their order. */
export function along(shape, axes) {
  const steps = strides(shape);
  return positions(axes.map((axis) => shape[axis]), axes.map((axis) => steps[axis]));
}

/** A function that takes the entries of an array of a size at flat positions. */
export function taker(flat, size) {
  const isWhole = flat.length === size && flat.every((position, i) => position === i);
  if (isWhole) return (array) => array;
  return (array) => {
    const taken = new array.constructor(flat.length);
    for (let i = 0; i < flat.length; i++) taken[i] = array[flat[i]];
    return taken;
  };
}

/**
 * The rows along some axes: positions at which a row begins, and those within a row.
 * @returns {{starts: Int32Array, steps: Int32Array}}
 */
export function rows(shape, axes) {
  const others = range(shape.length).filter((axis) => !axes.includes(axis));
  return { starts: along(shape, others), steps: along(shape, axes) };
}
