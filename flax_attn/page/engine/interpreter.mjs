// A trained model in the page: its equations, as JSON, run one after the other.
//
// `flax_attn/explore/live.py` writes the JSON. A value has a number: inputs first, then constants,
// then the outputs of each equation `[primitive, parameters, inputs, types of outputs]`. Every
// equation is prepared once: shapes are known, so positions in arrays are too. An equation runs
// again only where one of its inputs has changed since. No array is ever changed in place.

import { bytesFrom64, range } from "../lists.mjs";
import { arrayAt, product, typeOf, zeros } from "./arrays.mjs";
import { CONTROL } from "./control.mjs";
import { DOTS } from "./dots.mjs";
import { ELEMENTS } from "./elements.mjs";
import { OPS } from "./ops.mjs";
import { ROWS } from "./rows.mjs";
import { readCharacters, rowOfLast, writtenBy } from "./texts.mjs";
import { oneOf, readWhole, withoutPadding, writtenApart, writtenWhole } from "./words.mjs";

const PRIMITIVES = { ...ELEMENTS, ...OPS, ...ROWS, ...DOTS, ...CONTROL };
const FARTHEST = 2 ** 30; // the reach where there is none
const MOST_CLASSES = 12; // that a reply names

/** The names of all primitives that the interpreter knows. */
export const primitives = () => Object.keys(PRIMITIVES).sort();

/**
 * A model that answers, from its JSON.
 * @returns {{ask: (request: object) => object}} `ask` never throws: a reply may hold an error.
 */
export function open(live) {
  const graph = prepareGraph(live.graph, bytesFrom64(live.constants).buffer);
  const state = { clock: 0, values: [...graph.constants], changed: [], made: [] };
  const orders = {};
  return {
    ask(request) {
      try {
        const name = request.settings?.normalizer ?? live.normalizers[0];
        const program = live.programs[name];
        if (!program) return refused(`expected one of ${live.normalizers.join(", ")}, got ${name}`);
        const outputs = Object.values(program.outputs).map(([value]) => value);
        orders[name] ??= neededSteps(graph, outputs);
        const inputs = inputsOf(live, graph.types, request);
        if (inputs.error) return refused(inputs.error);
        update(graph, orders[name], state, inputs.arrays);
        const reply = replyOf(live, program.outputs, state.values, request.brief);
        return inputs.text ? aboutText(reply, inputs.text, live.text) : reply;
      } catch (error) {
        return refused(`the model could not answer (${error.message})`);
      }
    },
  };
}

/** Runs one equation alone, on arrays: for tests. */
export function runEquation(equation, inputTypes, arrays, constants) {
  const types = inputTypes.map(typeOf);
  return prepareEquation(equation, types, bytesFrom64(constants).buffer)(...arrays);
}

/** The types, constants and steps of a graph, ready to run. */
function prepareGraph(graph, bytes) {
  const constants = new Array(graph.inputs.length);
  const types = graph.inputs.map(typeOf);
  for (const [dtype, shape, offset] of graph.constants) {
    types.push(typeOf([dtype, shape]));
    constants.push(arrayAt(bytes, offset, types.at(-1)));
  }
  const steps = graph.equations.map((equation) => {
    const [, , inputs, outputs] = equation;
    const first = types.length;
    const inputTypes = inputs.map((value) => types[value]);
    types.push(...outputs.map(typeOf));
    let run = null; // an equation of a normaliser that nobody asks for need not be prepared
    const runOnce = (...arrays) => {
      run ??= prepareEquation(equation, inputTypes, bytes);
      return run(...arrays);
    };
    return { run: runOnce, inputs, first, end: types.length };
  });
  return { types, constants, steps };
}

function prepareEquation([name, params, , outputs], inputTypes, bytes) {
  if (!Object.hasOwn(PRIMITIVES, name)) throw new Error(`the primitive ${name} is not known`);
  const prepare = (body) => prepareBody(body, bytes);
  return PRIMITIVES[name](params, inputTypes, outputs.map(typeOf), prepare);
}

/** A program that an equation holds, as a function from arrays to arrays. */
function prepareBody(body, bytes) {
  const { constants, steps } = prepareGraph(body, bytes);
  const numInputs = body.inputs.length;
  const ofConstants = constants.slice(numInputs);
  return (inputs) => {
    const values = [...inputs, ...ofConstants];
    for (const step of steps) {
      const made = step.run(...step.inputs.map((value) => values[value]));
      for (const array of made) values.push(array);
    }
    return body.outputs.map((value) => values[value]);
  };
}

/** The steps that outputs depend on, in order. */
function neededSteps(graph, outputs) {
  const needed = new Set(outputs);
  const chosen = [];
  for (const step of graph.steps.slice().reverse()) {
    let isNeeded = false;
    for (let value = step.first; value < step.end; value++) isNeeded ||= needed.has(value);
    if (!isNeeded) continue;
    step.inputs.forEach((value) => needed.add(value));
    chosen.push(step);
  }
  return chosen.reverse();
}

/** Takes new inputs, and runs the steps that they change. */
function update(graph, steps, state, inputs) {
  const { values, changed, made } = state;
  state.clock += 1;
  inputs.forEach((array, value) => {
    if (values[value] && array.every((entry, i) => Object.is(entry, values[value][i]))) return;
    values[value] = array;
    changed[value] = state.clock;
  });
  for (const step of steps) {
    const isOld = step.inputs.some((value) => (changed[value] ?? 0) > (made[step.first] ?? -1));
    if (made[step.first] !== undefined && !isOld) continue;
    const arrays = step.run(...step.inputs.map((value) => values[value]));
    arrays.forEach((array, i) => {
      values[step.first + i] = array;
      changed[step.first + i] = state.clock;
    });
    made[step.first] = state.clock;
  }
}

/** The arrays of a request, by the numbers of the inputs; or an error in one line. */
function inputsOf(live, types, { inputs = {}, settings = {} }) {
  const read = live.text?.rules ? readWhole : readCharacters;
  const text = live.text && read(live.text, String(inputs.text ?? ""));
  if (text?.error) return text;
  const arrays = text ? [text.ids, [text.ids.length - (live.text.rules ? 0 : 1)]] : [];
  for (const { name, shape } of live.inputs) {
    const [data, size] = [inputs[name]?.data ?? [], product(shape)];
    if (data.length !== size)
      return { error: `expected ${size} numbers as ${name}, got ${data.length}` };
    if (!Float32Array.from(data).every(Number.isFinite))
      return { error: `expected finite numbers as ${name}` };
    arrays.push(data);
  }
  const { temperature = 1, reach = null, causal = false, hidden = [], cut = [] } = settings;
  if (!(temperature > 0 && temperature < Infinity))
    return { error: `expected a temperature above 0, got ${temperature}` };
  const scalars = { temperature, reach: reach ?? FARTHEST, causal: causal ? 1 : 0 };
  for (const name of live.settings) {
    const { size } = types[arrays.length];
    const heads = Math.sqrt(size); // of which `cut` has as many attentions
    const set = { hidden, cut: cut.map(([attention, head]) => heads * attention + head) }[name];
    const flags = () => range(size).map((i) => (set.includes(i) ? 1 : 0));
    arrays.push(set ? flags() : [scalars[name]]);
  }
  const filled = arrays.map((data, i) => {
    const array = zeros(types[i]);
    array.set(data);
    return array;
  });
  return { arrays: filled, text };
}

/** The reply about a text: its tokens, and what each, or of texts that go on the last, looks at. */
function aboutText(reply, { ids, written, known, note }, rule) {
  const own = { tokens: written, known: known ?? ids.map(() => true), note: note ?? reply.note };
  const count = ids.length;
  if (reply.found) return { ...reply, ...foundOf(reply, count, rule), ...own, found: null };
  const cut = (array) =>
    rule.rules ? withoutPadding(array, rule.most, count) : rowOfLast(array, count);
  const scores = reply.scores && eachOf(reply.scores, cut);
  return { ...reply, ...own, attention: eachOf(reply.attention, cut), scores };
}

/** What a function makes of each array of an object, by name. */
const eachOf = (arrays, make) =>
  Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, make(array)]));

/** The texts that a search has found, the best first. */
function foundOf({ found, attention, scores }, count, { target }) {
  const longest = found.tokens.shape[1];
  const best = found.lengths.data.map((length, i) => {
    const ids = found.tokens.data.slice(i * longest, i * longest + length);
    const cut = (array) => oneOf(array, i, length, count);
    return {
      text: writtenWhole(target, ids),
      tokens: writtenApart(target, ids),
      probability: found.probabilities.data[i],
      attention: eachOf(attention, cut),
      scores: scores && eachOf(scores, cut),
    };
  });
  const { text, attention: ofFirst, scores: scoresOfFirst } = best[0];
  return { text, attention: ofFirst, scores: scoresOfFirst, best };
}

/** A reply of the model, in the form that the server has too; a brief one has no weights. */
function replyOf(live, outputs, values, brief = false) {
  const array = ([value, shape]) => ({ shape, data: Array.from(values[value]) });
  const under = (prefix) => {
    const names = brief ? [] : Object.keys(outputs).filter((name) => name.startsWith(prefix));
    return names.map((name) => [name.slice(prefix.length), array(outputs[name])]);
  };
  const scores = under("scores/");
  const result = outputs.outputs ? array(outputs.outputs) : null; // a search finds texts
  const named = live.classes && likeliestOf(result.data);
  const found = ["tokens", "lengths", "probabilities"].map((name) => [name, outputs[name]]);
  return {
    ...NOTHING,
    outputs: result,
    found: result ? null : Object.fromEntries(found.map(([name, value]) => [name, array(value)])),
    classes: named && named.map((i) => [live.classes[i], result.data[i]]),
    writes: named && live.text?.first && named.map((i) => writtenBy(live.text, i)),
    attention: Object.fromEntries(under("attention/")),
    scores: scores.length ? Object.fromEntries(scores) : null,
    note: live.note,
  };
}

/** The classes that a reply names, the most probable first. */
function likeliestOf(shares) {
  const order = shares.map((_, i) => i).sort((one, other) => shares[other] - shares[one]);
  return order.slice(0, MOST_CLASSES);
}

const PARTS = "outputs classes writes tokens known scores text note error".split(" ");
const NOTHING = { attention: {}, ...Object.fromEntries(PARTS.map((name) => [name, null])) };

/** A reply that holds an error alone. */
export function refused(error) {
  return { ...NOTHING, error };
}
