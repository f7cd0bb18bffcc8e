// Effects of changes on a prediction, beside attention: each part masked, or each head ablated.

import { el, replaceButtons, setStyle, shown } from "../dom.mjs";
import { indexOfLargest, meanOf } from "../lists.mjs";
import { weightText } from "./heat.mjs";
import { sign } from "./words.mjs";

const PAUSE = 350; // milliseconds after the last change
const MOST_PARTS = 64; // that are changed in turn
const LEAST_RANKED = 8; // parts with an effect; the order of fewer is easily alike by chance
const NEGLIGIBLE = 1e-3; // the share of a prediction below which a change is next to nothing
const LEAST_WRITTEN = 1e-4; // percentage points
const STRONGEST = 70; // per cent of its colour that the largest change has

export const ABLATED =
  "Press a head to ablate it. Ablating a head sets its output to zero, which is outside what the " +
  "model saw in training, so the drop can overstate its importance.";

// what the command does with a word of a text in classes
const WHY = "; flax-attn predict --why removes it from the text, so its figures differ";

/** The probability of a class in a reply. */
const shareOf = (reply, name) => reply.classes.find(([own]) => own === name)?.[1] ?? 0;

/** A change of a probability in percentage points, with its sign and two significant digits. */
export function points(change) {
  const size = 100 * Math.abs(change);
  if (size === 0) return "0";
  if (size < LEAST_WRITTEN) return `<${LEAST_WRITTEN}`;
  return `${change > 0 ? "+" : "−"}${sizeOf(size)}`;
}

const sizeOf = (number) =>
  String(number < 9.95 ? Number(number.toPrecision(2)) : Math.round(number));

/** Blue for what a prediction loses and orange for what it gains, by a strength from 0 to 1. */
function tintOf(strength, isLoss) {
  const colour = isLoss ? "var(--blue)" : "var(--orange)";
  return `color-mix(in srgb, ${colour} ${Math.round(STRONGEST * strength)}%, transparent)`;
}

/** The colour of a change of a probability: blue where it falls, orange where it rises. */
export const strengthColour = (change) => tintOf(Math.min(2 * Math.abs(change), 1), change < 0);

/** The effect on the likeliest class of a reply. */
function onClass({ classes: [[best]] }) {
  return {
    on: ` on P(“${best}”), in percentage points`,
    below: () => "the change",
    beside: (what) => (what === "word" ? WHY : ""),
    change: (first, reply) => shareOf(reply, best) - shareOf(first, best),
    cost: (change) => -change,
    written: points,
    colour: strengthColour,
    least: () => NEGLIGIBLE,
    most: (largest) => `by at most ${sizeOf(100 * largest)} percentage points`,
  };
}

/** The effect on numbers: their mean absolute change. */
export const ON_NUMBERS = {
  on: " on the prediction",
  below: (numbers) => `the mean absolute change of ${numbers}`,
  beside: () => "",
  change: ({ outputs: { data } }, { outputs }) =>
    meanOf(Array.from(data, (own, i) => Math.abs(own - outputs.data[i]))),
  cost: (change) => change,
  written: sizeOf,
  colour: (change, largest) => tintOf(largest > 0 ? change / largest : 0, change > 0),
  least: ({ outputs: { data } }) => NEGLIGIBLE * Math.max(...Array.from(data, Math.abs)),
  most: (largest) => `by at most ${shown(largest)}`,
};

/**
 * A row of parts under a title. `begin()` makes everything before it old, and returns whether it is
 * still the newest; `end(text)` says what came out.
 */
function partsRow(label, look, heading = "") {
  const row = el("div", { class: `words ${look}`, role: "group", "aria-label": label });
  const title = el("p", { class: "try-title" }, heading);
  const about = el("p", { class: "hint" });
  const said = el("p", { class: "sentence", "aria-live": "polite" });
  const node = el("div", { class: "effects-part", "aria-busy": "false" }, title, about, row, said);
  let turn = 0;
  const begin = () => {
    turn += 1;
    const own = turn;
    node.setAttribute("aria-busy", "true");
    said.textContent = "";
    return () => own === turn;
  };
  const end = (text) => {
    said.textContent = text;
    node.setAttribute("aria-busy", "false");
  };
  return { node, row, title, about, begin, end };
}

const later = () => new Promise((done) => setTimeout(done, PAUSE));

/**
 * A row that masks each part of an input in turn and shows the effect on the prediction.
 *
 * `show({names, weights, inputs, settings, ...})` begins anew. `keys` are those of each part, by
 * default one; `labels` what is written, by default the names, and null for none; `columns` puts
 * the parts in rows; `what` says what a part is; `weighed` says over what the weights are means,
 * which are then written, too; `numbers` says what the numbers of a prediction are.
 */
export function evidenceRow(ask) {
  const label = "the effect of masking each part";
  const parts = partsRow(label, "try-evidence", "Effect of masking");
  parts.row.setAttribute("tabindex", 0);

  async function measure(asked, isNewest) {
    const { names, weights, inputs, settings, keys = names.map((_, k) => [k]) } = asked;
    const brief = true; // no weights
    const first = await ask({ inputs, settings, brief });
    const replies = [];
    for (const part of keys) {
      if (first.error || !isNewest()) break;
      const hidden = [...new Set([...settings.hidden, ...part])];
      replies.push(await ask({ inputs, settings: { ...settings, hidden }, brief }));
    }
    if (!isNewest()) return;
    const broken = [first, ...replies].find((reply) => reply.error);
    if (broken) return empty(`No effect is known: ${broken.error}`);
    const how = first.classes ? onClass(first) : ON_NUMBERS;
    const changes = replies.map((reply) => how.change(first, reply));
    draw(asked, changes, how);
    const largest = Math.max(...changes.map(Math.abs));
    const { what = "word" } = asked;
    if (largest <= how.least(first)) {
      const nothing = `Masking any one ${what} changes next to nothing, ${how.most(largest)}`;
      return parts.end(`${nothing}, so it does not rank them.`);
    }
    const counts = changes.map((change) => Math.abs(change) > how.least(first));
    parts.end(ranked(weights, changes.map(how.cost), counts, what, asked.signed));
  }

  function empty(text) {
    parts.row.replaceChildren();
    parts.about.textContent = "";
    parts.end(text);
  }

  function draw(asked, all, how) {
    const { names, weights, what = "word", columns, weighed } = asked;
    const { labels = names.map(sign), numbers = "the prediction" } = asked;
    const { row, title, about } = parts;
    const largest = Math.max(...all.map(Math.abs));
    row.classList.toggle("in-rows", Boolean(columns));
    setStyle(row, { "grid-template-columns": columns ? `repeat(${columns}, 1fr)` : "" });
    const cells = names.map((name, k) => {
      const weight = weightText(weights[k], asked.signed);
      const share = weighed && el("span", { class: "try-weight" }, weight);
      const written = labels && el("span", { dir: "auto" }, labels[k]);
      const change = el("small", {}, how.written(all[k]));
      const cell = el("span", { class: "try-change", title: name }, written, share, change);
      setStyle(cell, { "border-bottom-color": how.colour(all[k], largest) });
      return cell;
    });
    row.replaceChildren(...cells);
    title.textContent = `Effect of masking each ${what}${how.on}`;
    const masked = `Each ${what} is masked in turn${how.beside(what)}.`;
    const above = weighed ? ` Above: its attention, ${weighed}.` : "";
    about.textContent = `${masked}${above} Below: ${how.below(numbers)}.`;
  }

  /** Without inputs nothing is asked: what is shown was kept, and the model's reply is to come. */
  async function show(asked) {
    const isNewest = parts.begin();
    if (!asked.inputs) return;
    if (asked.names.length > MOST_PARTS)
      return empty(`More than ${MOST_PARTS} parts: none is masked in turn.`);
    await later();
    if (isNewest()) await measure(asked, isNewest).catch((error) => parts.end(String(error)));
  }

  return { node: parts.node, show };
}

/**
 * How alike attention and ablation rank the parts: Kendall's tau of weights and of costs, or of
 * their sizes where weights are signed, over the parts of which `counts` is true.
 */
export function ranked(ownWeights, ownCosts, counts, what, signed) {
  const size = (own) => (signed ? own.map(Math.abs) : own);
  const [weights, costs] = [ownWeights, ownCosts].map(size);
  const both = signed ? "The sizes of weights and of effects" : "Attention and masking";
  const apart = [weights, costs].map((own) => own.filter((_, i) => counts[i]));
  if (apart[0].length < LEAST_RANKED) {
    const same = indexOfLargest(weights) === indexOfLargest(costs);
    const most = signed ? "the strongest weight" : "most attention";
    return `The ${what} with ${most} ${same ? "has" : "does not have"} the largest effect.`;
  }
  const tau = kendall(...apart);
  if (!Number.isFinite(tau)) return `${both} cannot be compared.`;
  const number = tau.toFixed(2).replace("-", "−");
  const kept = apart[0].length < weights.length ? `the ${apart[0].length} with an effect` : "them";
  return `${both} rank ${kept} ${agreement(tau)} (Kendall's tau ${number}).`;
}

/**
 * Kendall's tau-b of two lists: 1 where they have the same order, -1 where they are reversed. NaN
 * where one of them is constant.
 */
export function kendall(one, other) {
  let [agree, oneTied, otherTied, pairs] = [0, 0, 0, 0];
  for (let i = 0; i < one.length; i++)
    for (let j = 0; j < i; j++) {
      const [a, b] = [Math.sign(one[i] - one[j]), Math.sign(other[i] - other[j])];
      agree += a * b;
      oneTied += a === 0;
      otherTied += b === 0;
      pairs += 1;
    }
  return agree / Math.sqrt((pairs - oneTied) * (pairs - otherTied));
}

/** A tau in words. */
export function agreement(tau) {
  if (tau > 0.6) return "alike";
  if (tau > 0.3) return "partly alike";
  return tau > -0.3 ? "differently" : "in reverse";
}

/**
 * Asks for the effects of some changes, a few at once. `isWanted()` says whether to go on, and
 * `tell(first, effects)` hears the effects from one on. Returns an error, or null.
 */
export async function effectsOf(ask, request, changes, atOnce, isWanted, tell) {
  for (let first = 0; first < changes.length && isWanted(); first += atOnce) {
    const part = changes.slice(first, first + atOnce);
    const failed = (error) => ({ error: error.message });
    const reply = await ask({ ...request, changes: part }).catch(failed);
    if (reply.error) return reply.error;
    if (isWanted()) tell(first, reply.effects);
  }
  return null;
}

/** An `ask` that takes `changes`, of one that does not: each change is asked after another. */
export function takingChanges(ask) {
  return async ({ inputs, settings, changes }) => {
    const asked = (own) => ask({ inputs, settings: own, brief: true });
    const first = await asked(settings);
    const effects = [];
    for (const { cut = [], hidden = [] } of changes) {
      if (first.error) return first;
      const both = (name, own) => [...(settings[name] ?? []), ...own];
      const changed = { ...settings, cut: both("cut", cut), hidden: both("hidden", hidden) };
      effects.push(onClass(first).change(first, await asked(changed)));
    }
    return { effects };
  };
}

/**
 * A row with a switch for each part, and under it the effect without the part.
 *
 * `show({title, names, changes, off, best}, request)` begins anew: `changes` are asked as a request
 * has them, `off` says which parts are switched off, `best` is the likeliest class. `onPress(i)`
 * hears a switch, and `onChange(i, value)` what was measured. Returns a promise of `show`.
 */
export function effectsRow(ask, { label, atOnce, onPress, onChange = () => {}, hint }) {
  const parts = partsRow(label, "effects");
  parts.about.textContent = hint;

  async function show({ title: heading, names, changes, off, best }, request) {
    const isNewest = parts.begin();
    const isWanted = () => isNewest() && parts.node.isConnected;
    parts.title.textContent = `${heading} P(“${best}”), in percentage points`;
    const asked = changes.map((_, i) => i).filter((i) => !off[i]);
    const isMany = asked.length > MOST_PARTS;
    const cells = names.map((name, i) => {
      const small = el("small", {}, off[i] ? "off" : isMany ? "" : "…");
      const press = { type: "button", class: "effect", onclick: () => onPress(i) };
      const cell = el("button", press, el("span", { dir: "auto" }, name), small);
      cell.setAttribute("aria-pressed", String(off[i]));
      cell.classList.toggle("hidden-key", off[i]);
      return cell;
    });
    replaceButtons(parts.row, ...cells);
    if (isMany) return parts.end(`More than ${MOST_PARTS} parts: none is changed in turn.`);
    await later();
    const values = new Map();
    const tell = (first, effects) =>
      effects.forEach((value, j) => {
        const i = asked[first + j];
        values.set(i, value);
        cells[i].lastChild.textContent = points(value);
        setStyle(cells[i], { "border-bottom-color": strengthColour(value) });
        onChange(i, value);
      });
    const part = asked.map((i) => changes[i]);
    const error = await effectsOf(ask, request, part, atOnce, isWanted, tell);
    if (isNewest()) parts.end(error ? `No effect is known: ${error}` : mostOf(names, values));
  }

  return { node: parts.node, show };
}

/** The part with the largest effect, in words. */
export function mostOf(names, values) {
  const [first] = [...values].sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  if (!first || Math.abs(first[1]) < 1e-3) return "No single one changes more than 0.1.";
  return `Largest effect: “${names[first[0]]}”, ${points(first[1])}.`;
}
