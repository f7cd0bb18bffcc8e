// Primitives that move entries about, reduce axes, or put entries in order.
//
// As in engine_elements.mjs, a primitive is a function of its parameters and the types of its
// inputs and outputs. It returns a function from the arrays of the inputs to those of the outputs.
import { isFloat, positions, product, range, rows, strides } from "./engine_arrays.mjs";
import { taker, zeros } from "./engine_arrays.mjs";

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
function partAlong(whole, part, axis, first) {
  return positions(part.shape, strides(whole.shape), first * strides(whole.shape)[axis]);
}

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

/** Reduces axes from a first number on, by a function of two numbers. */
function reduction(start, combine) {
  return ({ axes }, [type], [out]) => {
    const { starts, steps } = rows(type.shape, axes);
    return (x) => {
      const y = zeros(out);
      for (let i = 0; i < y.length; i++) {
        let total = start;
        for (let k = 0; k < steps.length; k++) total = combine(total, x[starts[i] + steps[k]]);
        y[i] = total;
      }
      return [y];
    };
  };
}

/** The index of the first of the best entries along one axis; a NaN is best of all. */
function indexOfBest(isBetter) {
  return ({ axes }, [type], [out]) => {
    const { starts, steps } = rows(type.shape, axes);
    const beats = (x, best) => isBetter(x, best) || (x !== x && best === best);
    return (x) => {
      const y = zeros(out);
      starts.forEach((start, i) => {
        for (let k = 1; k < steps.length; k++) {
          if (beats(x[start + steps[k]], x[start + steps[y[i]]])) y[i] = k;
        }
      });
      return [y];
    };
  };
}

/** What a function makes of the entries along an axis up to each of them. */
function running(combine) {
  return ({ axis, reverse }, [type], [out]) => {
    const { starts, steps } = rows(type.shape, [axis]);
    const order = reverse ? steps.slice().reverse() : steps;
    return (x) => {
      const y = zeros(out);
      for (const start of starts) {
        let total = x[start + order[0]];
        y[start + order[0]] = total;
        for (let k = 1; k < order.length; k++) {
          total = combine(total, x[start + order[k]]);
          y[start + order[k]] = total;
        }
      }
      return [y];
    };
  };
}

/** Numbers in ascending order, those that are none last. */
const ascending = (x, y) => (x < y ? -1 : x > y ? 1 : (x !== x) - (y !== y));

/** Sorts along an axis by the first `num_keys` arrays; the others follow. */
function sort({ dimension, num_keys: numKeys }, inputs, outputs) {
  const { starts, steps } = rows(inputs[0].shape, [dimension]);
  return (...arrays) => {
    const sorted = outputs.map(zeros);
    const keys = arrays.slice(0, numKeys);
    for (const start of starts) {
      const places = Array.from(steps, (step) => start + step);
      const order = places.slice().sort((i, j) => {
        for (const key of keys) {
          const compared = ascending(key[i], key[j]);
          if (compared) return compared;
        }
        return 0;
      });
      sorted.forEach((y, n) => order.forEach((from, k) => (y[places[k]] = arrays[n][from])));
    }
    return sorted;
  };
}

/** The `k` largest along an axis with their indices, the first of equal ones first. */
function topK({ k, axis }, [type], [values, indices]) {
  const [from, to] = [rows(type.shape, [axis]), rows(values.shape, [axis])];
  return (x) => {
    const [largest, where] = [zeros(values), zeros(indices)];
    from.starts.forEach((start, row) => {
      const at = (i) => x[start + from.steps[i]];
      const order = range(from.steps.length).sort((i, j) => ascending(at(j), at(i)));
      for (let i = 0; i < k; i++) {
        const place = to.starts[row] + to.steps[i];
        [largest[place], where[place]] = [at(order[i]), order[i]];
      }
    });
    return [largest, where];
  };
}

/** Kept within bounds, so that a slice of a size lies in an axis. */
const within = (index, size, axisSize) => Math.min(Math.max(index, 0), axisSize - size);

/** The flat position at which a slice begins, whose indices are arrays of one number. */
function startOf(indices, part, whole) {
  const steps = strides(whole.shape);
  return indices.reduce((sum, [index], axis) => {
    const shifted = index < 0 ? index + whole.shape[axis] : index;
    return sum + within(shifted, part.shape[axis], whole.shape[axis]) * steps[axis];
  }, 0);
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

const larger = (x, y) => (x > y || x !== x ? x : y);
const smaller = (x, y) => (x < y || x !== x ? x : y);
const logAdd = (x, y) => {
  const top = Math.max(x, y);
  return top === -Infinity ? top : top + Math.log(Math.exp(x - top) + Math.exp(y - top));
};

export const OPS = {
  argmax: indexOfBest((x, best) => x > best),
  argmin: indexOfBest((x, best) => x < best),
  broadcast_in_dim: broadcast,
  concatenate,
  copy: same,
  cumlogsumexp: running(logAdd),
  cummax: running(larger),
  cummin: running(smaller),
  cumprod: running((x, y) => x * y),
  cumsum: running((x, y) => x + y),
  dynamic_slice: dynamicSlice,
  dynamic_update_slice: dynamicUpdateSlice,
  expand_dims: same,
  iota,
  pad,
  reduce_and: reduction(1, (x, y) => x & y),
  reduce_max: reduction(-Infinity, larger),
  reduce_min: reduction(Infinity, smaller),
  reduce_or: reduction(0, (x, y) => x | y),
  reduce_prod: reduction(1, (x, y) => x * y),
  reduce_sum: reduction(0, (x, y) => x + y),
  reshape: same,
  rev,
  slice,
  sort,
  split,
  squeeze: same,
  stack,
  stop_gradient: same,
  top_k: topK,
  transpose,
};
