// Primitives that hold programs: `scan`, `while` and `cond`.

import { zeros } from "./arrays.mjs";

/**
 * Runs a program once for each step. Its inputs are constants, what is carried, and a step's part
 * of the sequences; its outputs are what is carried, and a step's part of the results.
 */
function scan(params, inputs, outputs, prepare) {
  const { reverse, length, num_consts: numConsts, num_carry: numCarry } = params;
  const body = prepare(params.jaxpr[0]);
  const first = numConsts + numCarry;
  const sizes = inputs.slice(first).map((type) => type.size / length);
  const resultTypes = outputs.slice(numCarry);
  const partSizes = resultTypes.map((type) => type.size / length);
  return (...arrays) => {
    const constants = arrays.slice(0, numConsts);
    const sequences = arrays.slice(first);
    const results = resultTypes.map(zeros);
    let carried = arrays.slice(numConsts, first);
    for (let step = 0; step < length; step++) {
      const at = reverse ? length - 1 - step : step;
      const parts = sequences.map((x, i) => x.subarray(at * sizes[i], (at + 1) * sizes[i]));
      const made = body([...constants, ...carried, ...parts]);
      carried = made.slice(0, numCarry);
      results.forEach((y, i) => y.set(made[numCarry + i], at * partSizes[i]));
    }
    return [...carried, ...results];
  };
}

function whileLoop(params, inputs, outputs, prepare) {
  const { cond_nconsts: numTest, body_nconsts: numBody } = params;
  const [test, body] = [prepare(params.cond_jaxpr[0]), prepare(params.body_jaxpr[0])];
  return (...arrays) => {
    const ofTest = arrays.slice(0, numTest);
    const ofBody = arrays.slice(numTest, numTest + numBody);
    let carried = arrays.slice(numTest + numBody);
    while (test([...ofTest, ...carried])[0][0]) carried = body([...ofBody, ...carried]);
    return carried;
  };
}

/** One of several programs, by a number that is kept within bounds. */
function cond(params, inputs, outputs, prepare) {
  const branches = params.branches.map(prepare);
  return ([which], ...arrays) => {
    const chosen = Math.min(Math.max(which, 0), branches.length - 1);
    return branches[chosen](arrays);
  };
}

export const CONTROL = { scan, while: whileLoop, cond };
