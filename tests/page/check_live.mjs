// Runs equations and requests of live models, for tests/explore/test_live.py.
// node check_live.mjs IN OUT, both JSON.
import fs from "node:fs";

const engine = new URL("../../flax_attn/page/engine/", import.meta.url);
const { open, primitives, runEquation } = await import(new URL("interpreter.mjs", engine));
const { arrayAt, typeOf } = await import(new URL("arrays.mjs", engine));
const { readWhole } = await import(new URL("words.mjs", engine));
const { bytesFrom64 } = await import(new URL("../lists.mjs", engine));

/** How far an array is from what it should be, relative to the largest entry. */
function distance(array, expected) {
  if (array.length !== expected.length || array.constructor !== expected.constructor) return 1e9;
  let [largest, farthest] = [0, 0];
  for (let i = 0; i < array.length; i++) {
    if (Number.isFinite(expected[i])) largest = Math.max(largest, Math.abs(expected[i]));
    if (array[i] === expected[i] || (array[i] !== array[i] && expected[i] !== expected[i])) continue;
    if (!(array instanceof Float32Array)) return 1; // integers are equal or wrong
    const apart = Math.abs(array[i] - expected[i]);
    farthest = Math.max(farthest, apart === apart ? apart : Infinity);
  }
  return farthest && farthest / Math.max(largest, 1e-30);
}

/** The distance of each equation of a graph from JAX, on JAX's own inputs. */
function checkEquations({ graph, values }, constants) {
  const types = [
    ...graph.inputs,
    ...graph.constants,
    ...graph.equations.flatMap(([, , , outputs]) => outputs),
  ];
  const arrays = values.map((value, i) => arrayAt(bytesFrom64(value).buffer, 0, typeOf(types[i])));
  let next = graph.inputs.length + graph.constants.length;
  return graph.equations.map((equation) => {
    const [name, , inputs, outputs] = equation;
    const pick = (all) => inputs.map((value) => all[value]);
    const made = runEquation(equation, pick(types), pick(arrays), constants);
    const apart = made.map((array, i) => distance(array, arrays[next + i]));
    next += outputs.length;
    return [name, Math.max(...apart)];
  });
}

/** Milliseconds of an answer to a new input. */
function speed(model, requests) {
  for (let i = 0; i < 20; i++) model.ask(requests[i % requests.length]);
  const start = performance.now();
  for (let i = 0; i < 20; i++) model.ask(requests[i % requests.length]);
  return (performance.now() - start) / 20;
}

const content = JSON.parse(fs.readFileSync(process.argv[2]));
const { live, graphs, requests } = content;
const result = { primitives: primitives() };
const constants = live ? live.constants : content.constants;
if (graphs) result.equations = graphs.flatMap((graph) => checkEquations(graph, constants));
if (live) {
  const model = open(live);
  result.replies = requests.map((request) => model.ask(request));
  result.milliseconds = requests.length > 1 ? speed(model, requests.slice(0, 2)) : null;
}
if (content.texts) {
  const [rule, texts] = content.texts;
  result.read = texts.map((text) => readWhole(rule, text).ids ?? null);
}
const text = (key, value) => (typeof value === "number" && value === Infinity ? 1e9 : value);
fs.writeFileSync(process.argv[3], JSON.stringify(result, text));
