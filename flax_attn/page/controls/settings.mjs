// How the attention of a trained model is changed: normaliser, temperature, reach, order.

import { buttonOf, chooser, el, newId } from "../dom.mjs";

const NO_MASK = { reach: null, causal: false, hidden: [] };
export const UNCHANGED = { normalizer: "as trained", temperature: 1, ...NO_MASK };
/** Whether settings are those of the model as it was trained, with nothing hidden. */
export const isUnchanged = (settings) => JSON.stringify(settings) === JSON.stringify(UNCHANGED);

// the normalisers by the names that a request has, in the order of the list
const NAMED = {
  "as trained": "as trained",
  softmax: "softmax: every key gets some",
  entmax15: "entmax-1.5: small become 0",
  sparsemax: "sparsemax: most become 0",
  top_k: "top-k: softmax of the 3 best",
  hard: "hard: the best key alone",
};
export const NORMALIZERS = Object.keys(NAMED);

/** The name of a normaliser, as the list has it before its words. */
export const nameOfNormalizer = (name) => (NAMED[name] ?? name).split(":")[0];

const HELP = {
  temperature: "Temperature above 1 flattens the weights; below 1 sharpens them. ",
  reach: "Reach is the largest distance of a key from its query.",
};
const WITHOUT = "no softmax, so normaliser and temperature do not change";
const MOST_LISTED = 4; // attentions without softmax
const STEPS = 40; // of the temperature, from 1/16 to 16

/** The temperature at a step of its slider, which is logarithmic; 1 in the middle. */
export const temperatureAt = (step) => Number((2 ** ((8 * step) / STEPS - 4)).toPrecision(3));

/**
 * The controls of a model. `onChange(settings)` hears every change, `onReset()` the button that
 * takes all of them back. `between` says whether queries and keys are one sequence, `ordered`
 * whether no query looks at later keys as it is; weights that are `signed` have no softmax.
 */
export function lensControls({ attention, normalizers, most, between, ordered, ...on }) {
  const names = normalizers ?? NORMALIZERS;
  const unscored = attention.filter(({ signed }) => signed).map(({ name }) => name);
  let own = { ...UNCHANGED };
  const change = (part) => {
    own = { ...own, ...part };
    on.onChange(own);
  };
  const choice = chooser(
    "normaliser, from scores to weights",
    names.map((name) => NAMED[name] ?? name),
    0,
    (i) => change({ normalizer: names[i] }),
  );
  const temperature = slider("temperature", STEPS, STEPS / 2, (step) => {
    const value = temperatureAt(step);
    return [String(value), () => change({ temperature: value })];
  });
  const far = Math.max(most - 1, 1);
  const reach = slider("reach", far, far, (step) => {
    const value = step >= far ? null : step;
    return [value === null ? "no limit" : `${value} away`, () => change({ reach: value })];
  });
  const box = el("input", { type: "checkbox", onchange: () => change({ causal: box.checked }) });
  const sliders = [temperature, between && most > 2 ? reach : null].filter(Boolean);
  const causal = el("label", { class: "control tick" }, box, el("span", {}, "may not look ahead"));
  const reset = buttonOf("Reset", () => on.onReset(), { class: "reset" });
  const node = el("div", { class: "try-controls", role: "group", "aria-label": "The attention" },
    choice, sliders.map((slide) => slide.node), between && !ordered ? causal : null, reset,
    el("p", { class: "hint" },
      sliders.map((slide) => slide.help),
      unscored.length ? withoutSoftmax(unscored, attention.length) : null,
    ),
  );
  if (unscored.length === attention.length)
    for (const input of node.querySelectorAll("select, [aria-label=temperature]"))
      input.disabled = true;
  /** Says by which normaliser the model was trained, where it is known. */
  const trained = (name) => {
    const [first] = node.querySelectorAll("option");
    if (name) first.textContent = `${NAMED[names[0]]} (${name})`;
  };
  /** Shows settings, and what is changed next comes on top of them. */
  const set = (settings) => {
    own = { ...settings, hidden: [] };
    node.querySelector("select").selectedIndex = Math.max(names.indexOf(own.normalizer), 0);
    temperature.set(Math.round(((Math.log2(own.temperature) + 4) * STEPS) / 8));
    reach.set(own.reach ?? far);
    box.checked = own.causal;
  };
  return { node, set, trained };
}

function withoutSoftmax(names, count) {
  if (names.length === 1) return ` ${names[0]} has ${WITHOUT} it.`;
  const isMany = names.length > MOST_LISTED;
  const which = isMany ? `${names.length} of ${count} blocks` : names.join(", ");
  return ` ${which} have ${WITHOUT} them.`;
}

/** A slider with its value, and its help. `at(step)` is the text of a step, and what it changes. */
export function slider(label, last, first, at) {
  const value = el("output", {}, at(first)[0]);
  const input = el("input", { type: "range", min: 0, max: last, value: first, step: 1 });
  input.setAttribute("aria-label", label); // the label around both is that of the output
  const help = el("span", { id: newId("help") }, HELP[label]);
  if (label in HELP) input.setAttribute("aria-describedby", help.id);
  const set = (step) => {
    input.value = step;
    const [text] = at(step);
    value.textContent = text;
    input.setAttribute("aria-valuetext", text);
  };
  input.addEventListener("input", () => {
    const [, tell] = at(Number(input.value));
    set(Number(input.value));
    tell();
  });
  set(first);
  const node = el("label", { class: "control" }, el("span", {}, label, " ", value), input);
  return { node, set, help };
}

/** Whether queries and keys are one sequence in an attention of a run, and how long it is. */
export function isBetween(run) {
  const shapes = Object.values(run.examples[0]?.attention ?? {}).map((own) => own.shape);
  return shapes.some(([, q, k]) => q === k && k > 1);
}

/** Whether settings let a query attend to a key. */
export const isVisible = (q, k, { hidden, reach, causal }) =>
  !hidden.includes(k) && (reach === null || Math.abs(q - k) <= reach) && !(causal && k > q);
