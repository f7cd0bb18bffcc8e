// Primitives along axes: sums and other reductions, running sums, and what puts entries in order.
//
// What a primitive is, elements.mjs says.

import { range } from "../lists.mjs";
import { rows, zeros } from "./arrays.mjs";
import { greaterOf, lesserOf } from "./elements.mjs";

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

/** The entries of a row that begins at a position. */
function entriesAt(array, start, steps) {
  const row = new array.constructor(steps.length);
  for (let k = 0; k < row.length; k++) row[k] = array[start + steps[k]];
  return row;
}

/** Sorts along an axis by the first `num_keys` arrays; the others follow. */
function sort({ dimension, num_keys: numKeys }, inputs, outputs) {
  const { starts, steps } = rows(inputs[0].shape, [dimension]);
  const inPlace = range(steps.length);
  if (inputs.length === 1) return (x) => [sortedAlone(x, starts, steps)];
  return (...arrays) => {
    const sorted = outputs.map(zeros);
    for (const start of starts) {
      const keys = arrays.slice(0, numKeys).map((key) => entriesAt(key, start, steps));
      const [first, ...others] = keys;
      const byOthers = (i, j) => others.reduce((so, key) => so || ascending(key[i], key[j]), 0);
      const compare = (i, j) => ascending(first[i], first[j]) || byOthers(i, j);
      const order = inPlace.slice().sort(compare);
      sorted.forEach((y, n) => {
        for (let k = 0; k < order.length; k++) {
          y[start + steps[k]] = arrays[n][start + steps[order[k]]];
        }
      });
    }
    return sorted;
  };
}

/** One array sorted along an axis: typed arrays sort numbers, those that are none last. */
function sortedAlone(x, starts, steps) {
  const y = new x.constructor(x.length);
  for (const start of starts) {
    const row = entriesAt(x, start, steps).sort();
    for (let k = 0; k < row.length; k++) y[start + steps[k]] = row[k];
  }
  return y;
}

/** The `k` largest along an axis with their indices, the first of equal ones first. */
function largestAlong({ k, axis }, [type], [values, indices]) {
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

const logAdd = (x, y) => {
  const top = Math.max(x, y);
  return top === -Infinity ? top : top + Math.log(Math.exp(x - top) + Math.exp(y - top));
};

export const ROWS = {
  argmax: indexOfBest((x, best) => x > best),
  argmin: indexOfBest((x, best) => x < best),
  cumlogsumexp: running(logAdd),
  cummax: running(greaterOf),
  cummin: running(lesserOf),
  cumprod: running((x, y) => x * y),
  cumsum: running((x, y) => x + y),
  reduce_and: reduction(1, (x, y) => x & y),
  reduce_max: reduction(-Infinity, greaterOf),
  reduce_min: reduction(Infinity, lesserOf),
  reduce_or: reduction(0, (x, y) => x | y),
  reduce_prod: reduction(1, (x, y) => x * y),
  reduce_sum: reduction(0, (x, y) => x + y),
  sort,
  top_k: largestAlong,
};
