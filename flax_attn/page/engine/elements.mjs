// Primitives that work entry by entry.
//
// A primitive is a function of its parameters and the types of its inputs and outputs. It returns
// a function from the arrays of the inputs to those of the outputs.

import { isFloat, positions, repeatedStrides, zeros } from "./arrays.mjs";

/** A primitive of one array. */
function unary(compute) {
  return (params, inputs, [out]) => (x) => {
    const y = zeros(out);
    for (let i = 0; i < y.length; i++) y[i] = compute(x[i]);
    return [y];
  };
}

/** A primitive of two arrays, whose axes of size 1 are repeated. */
function binary(compute) {
  return (params, inputs, [out]) => {
    const [atX, atY] = inputs.map((type) => repeated(type, out));
    return (x, y) => {
      const z = zeros(out);
      for (let i = 0; i < z.length; i++) z[i] = compute(x[atX[i]], y[atY[i]]);
      return [z];
    };
  };
}

/**
 * A primitive of two arrays that models are full of, with a loop of its own: a function that many
 * loops share is called anew for each entry.
 */
function hot(loop, ofIntegers = null) {
  const general = ofIntegers && binary(ofIntegers);
  return (params, inputs, outputs) => {
    if (general && !isFloat(inputs[0])) return general(params, inputs, outputs);
    const [out] = outputs;
    const [atX, atY] = inputs.map((type) => repeated(type, out));
    return (x, y) => {
      const z = zeros(out);
      loop(x, y, z, atX, atY, z.length);
      return [z];
    };
  };
}

const addAll = (x, y, z, atX, atY, end) => {
  for (let i = 0; i < end; i++) z[i] = x[atX[i]] + y[atY[i]];
};
const subtractAll = (x, y, z, atX, atY, end) => {
  for (let i = 0; i < end; i++) z[i] = x[atX[i]] - y[atY[i]];
};
const multiplyAll = (x, y, z, atX, atY, end) => {
  for (let i = 0; i < end; i++) z[i] = x[atX[i]] * y[atY[i]];
};
/** Integers are cut off where they are stored. */
const divideAll = (x, y, z, atX, atY, end) => {
  for (let i = 0; i < end; i++) z[i] = x[atX[i]] / y[atY[i]];
};
const largestOfAll = (x, y, z, atX, atY, end) => {
  for (let i = 0; i < end; i++) z[i] = greaterOf(x[atX[i]], y[atY[i]]);
};

/** The positions in an array for each entry of an output; axes of size 1 are repeated. */
function repeated(type, out) {
  const steps = type.shape.length ? repeatedStrides(type.shape) : out.shape.map(() => 0);
  return positions(out.shape, steps);
}

/** `select_n(which, case0, case1, ...)`; `which` may be a single number. */
function selectN(params, [which], [out]) {
  const step = which.size === 1 ? 0 : 1;
  return (choice, ...cases) => {
    const y = zeros(out);
    for (let i = 0; i < y.length; i++) y[i] = cases[choice[i * step]][i];
    return [y];
  };
}

/** `clamp(lowest, x, largest)`; both bounds may be single numbers. */
function clamp(params, [low, , high], [out]) {
  const [stepLow, stepHigh] = [low, high].map((type) => (type.size === 1 ? 0 : 1));
  return (lowest, x, largest) => {
    const y = zeros(out);
    for (let i = 0; i < y.length; i++) {
      y[i] = Math.min(Math.max(x[i], lowest[i * stepLow]), largest[i * stepHigh]);
    }
    return [y];
  };
}

/** From one dtype to another. Integers wrap, floats are cut off and kept within the bounds. */
function convert(params, [from], [to]) {
  if (from.dtype === to.dtype) return (x) => [x];
  if (to.dtype === "bool") return unary((x) => (x !== 0 ? 1 : 0))(params, [from], [to]);
  if (!isFloat(from) || isFloat(to)) return unary((x) => x)(params, [from], [to]);
  const bits = Number(to.dtype.match(/\d+/)[0]);
  const [lowest, count] = [to.dtype.startsWith("u") ? 0 : -(2 ** (bits - 1)), 2 ** bits];
  const largest = lowest + count - 1;
  const cut = (x) => Math.min(Math.max(Math.trunc(x), lowest), largest);
  return unary((x) => (x === x ? cut(x) : 0))(params, [from], [to]);
}

const not = (params, [type], outputs) =>
  unary(type.dtype === "bool" ? (x) => 1 - x : (x) => ~x)(params, [type], outputs);

/** `x` to a whole number, which is a parameter. */
function integerPow({ y }, inputs, outputs) {
  if (y === 2) return unary((x) => x * x)({}, inputs, outputs);
  if (y === 3) return unary((x) => x * x * x)({}, inputs, outputs);
  return unary((x) => x ** y)({}, inputs, outputs);
}

/** Half to even, or away from zero. */
function round({ even }, inputs, outputs) {
  const away = (x) => Math.sign(x) * Math.floor(Math.abs(x) + 0.5);
  const toEven = (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));
  return unary(even ? toEven : away)({}, inputs, outputs);
}

/** The error function, by its series near 0 and a continued fraction elsewhere. */
const erf = (x) => Math.abs(x) < 2 ? erfSeries(x) : Math.sign(x) * (1 - erfcFraction(Math.abs(x)));

function erfc(x) {
  if (Math.abs(x) < 2) return 1 - erfSeries(x);
  return x > 0 ? erfcFraction(x) : 2 - erfcFraction(-x);
}

function erfSeries(x) {
  let [term, total] = [x, x];
  for (let n = 1; n < 40; n++) {
    term *= (-x * x) / n;
    total += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * total;
}

function erfcFraction(x) {
  let below = x;
  for (let n = 40; n > 0; n--) below = x + n / 2 / below;
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / below;
}

// Where one of two numbers is no number, so is the result, as in JAX.
export const greaterOf = (x, y) => (x > y || x !== x ? x : y);
export const lesserOf = (x, y) => (x < y || x !== x ? x : y);

// primitives that JavaScript knows by the same names
const MATH =
  "abs acos acosh asin asinh atan atanh cbrt ceil cos cosh exp expm1 floor log log1p sign sin " +
  "sinh sqrt tan tanh";

export const ELEMENTS = {
  ...Object.fromEntries(MATH.split(" ").map((name) => [name, unary(Math[name])])),
  add: hot(addAll),
  and: binary((x, y) => x & y),
  atan2: binary(Math.atan2),
  clamp,
  convert_element_type: convert,
  div: hot(divideAll),
  eq: binary((x, y) => (x === y ? 1 : 0)),
  erf: unary(erf),
  erfc: unary(erfc),
  exp2: unary((x) => 2 ** x),
  ge: binary((x, y) => (x >= y ? 1 : 0)),
  gt: binary((x, y) => (x > y ? 1 : 0)),
  integer_pow: integerPow,
  is_finite: unary((x) => (Number.isFinite(x) ? 1 : 0)),
  le: binary((x, y) => (x <= y ? 1 : 0)),
  logistic: unary((x) => 1 / (1 + Math.exp(-x))),
  lt: binary((x, y) => (x < y ? 1 : 0)),
  max: hot(largestOfAll),
  min: binary(lesserOf),
  mul: hot(multiplyAll, Math.imul),
  ne: binary((x, y) => (x !== y ? 1 : 0)),
  neg: unary((x) => -x),
  not,
  or: binary((x, y) => x | y),
  pow: binary((x, y) => x ** y),
  rem: binary((x, y) => x % y),
  round,
  rsqrt: unary((x) => 1 / Math.sqrt(x)),
  select_n: selectN,
  shift_left: binary((x, y) => x << y),
  shift_right_arithmetic: binary((x, y) => x >> y),
  shift_right_logical: binary((x, y) => x >>> y),
  square: unary((x) => x * x),
  sub: hot(subtractAll),
  xor: binary((x, y) => x ^ y),
};
