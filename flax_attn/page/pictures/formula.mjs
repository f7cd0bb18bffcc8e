// From scores to weights: the scores of one query, the curve of its normaliser, and the weights.

import { UNCHANGED } from "../controls/settings.mjs";
import { div, el, percent, svg } from "../dom.mjs";
import { range, sumOf } from "../lists.mjs";
import { scoresIn, weightsIn } from "./heat.mjs";
import { normalizers } from "./normalizers.mjs";
import { trackOf } from "./words.mjs";

const SHOWN = 6; // keys whose numbers are shown, those with the largest weights
const STEPS_OF_CURVE = 60;
const CLOSE_ENOUGH = 2e-3;
const UNSCORED =
  "This attention has no softmax, so its weights are no shares of scores: each is what the query " +
  "reads of what a token wrote to the state.";

/** An element for the chosen query: `show(query, settings)`. */
export function fromScores() {
  const body = div();
  const node = el("details", { class: "try-formula" },
    el("summary", {}, "From scores to weights"), body,
  );
  let now = [null, UNCHANGED];
  const draw = () => {
    if (node.open) body.replaceChildren(...(now[0] ? parts(...now) : [noScores()]));
  };
  node.addEventListener("toggle", draw);
  const show = (...own) => {
    now = own;
    draw();
  };
  return { node, show };
}

const noScores = () =>
  el("p", { class: "hint" }, "Select a query to see its scores.");

/** The scores and weights of the keys that the query may attend to. */
export function scoredRow({ weights, scores, q, visible, key }) {
  const all = range(weights.columns).filter(visible);
  return all.map((k) => ({ k, name: key(k), weight: weights.at(q, k), score: scores.at(q, k) }));
}

/** The normalisers that make these weights of these scores. */
function fitting(row, temperature) {
  const scaled = row.map(({ score }) => score / temperature);
  return Object.values(normalizers).filter((own) => {
    const weights = own.weights(scaled);
    return row.every(({ weight }, i) => Math.abs(weight - weights[i]) < CLOSE_ENOUGH);
  });
}

/** The normaliser that makes these weights of these scores; null for one that is not known. */
export const normalizerOf = (row, { normalizer, temperature }) =>
  normalizers[normalizer] ?? fitting(row, temperature)[0] ?? null;

/**
 * The name of the one normaliser that makes the weights of replies to unchanged settings, by the
 * last query of the first head of each attention; null where not just one does, or without scores.
 */
export function normalizerIn(replies) {
  const fits = replies.flatMap((reply) =>
    Object.keys(reply.attention).flatMap((name) => {
      const [weights, scores] = [weightsIn(reply, name, 0), scoresIn(reply, name, 0)];
      if (weights.signed) return []; // without a normaliser
      if (!scores || weights.columns < 2) return null;
      const query = { weights, scores, q: weights.rows - 1, visible: () => true, key: String };
      const own = fitting(scoredRow(query), UNCHANGED.temperature);
      return own.length === 1 ? own[0].name : null;
    }),
  );
  return new Set(fits).size === 1 ? fits[0] : null;
}

function parts(query, settings) {
  const who = el("p", {}, `The query is ${query.what}.`);
  const without = query.weights?.signed ? UNSCORED : query.without;
  if (!query.scores || query.weights?.signed)
    return [who, el("p", { class: "hint" }, without ?? "Its weights come without scores.")];
  const row = scoredRow(query);
  if (!row.length) return [who, el("p", {}, "It may attend to no key, so all weights are 0.")];
  const own = normalizerOf(row, settings);
  const scaled = row.map(({ score }) => score / settings.temperature);
  const best = [...row].sort((one, other) => other.weight - one.weight);
  const weightOf = (keys) => sumOf(keys.map(({ weight }) => weight));
  const lines = best.slice(0, SHOWN).map((key) => keyRow(key, own, scaled, settings.temperature));
  const others = best.slice(SHOWN);
  if (others.length) lines.push(restRow(others.length, weightOf(others)));
  const name = own
    ? `${own.name}: ${own.formula}; T is the temperature, `
    : "The normaliser is the model's own. The temperature is ";
  return [
    who,
    el("p", {}, `${name}${settings.temperature}.`),
    own ? curve(row, own, scaled) : null,
    el("ul", { class: "try-terms" }, lines),
    el("p", { class: "hint" }, `All weights of this query add up to ${weightOf(row).toFixed(3)}.`),
  ].filter(Boolean);
}

export function keyRow({ name, weight, score }, own, scaled, temperature) {
  const written = score.toFixed(2).replace("-", "−");
  const divided = temperature === 1 ? written : `${written} / ${temperature}`;
  const term = own ? own.term(divided, score / temperature, scaled) : `score ${divided}`;
  return bar(name, weight, `${term} = ${weight.toFixed(3)}`);
}

function restRow(count, weight) {
  const [others, together] = count > 1 ? [`${count} other keys`, "together "] : ["other key", ""];
  return bar(`the ${others}`, weight, `${together}${weight.toFixed(3)}`);
}

export function bar(name, weight, text) {
  const written = el("span", { class: "try-term-name", dir: "auto" }, name);
  return el("li", {}, written, trackOf(weight), el("span", { class: "try-term" }, text));
}

/** The weight against the score: the curve of the normaliser, and a dot for each key. */
function curve(row, own, scaled) {
  const [least, most] = [Math.min(...scaled), Math.max(...scaled)];
  const room = 0.08 * (most - least) || 1;
  const [low, high] = [least - room, most + room];
  const top = Math.max(...row.map(({ weight }) => weight), 0.02);
  const x = (score) => (100 * (score - low)) / (high - low);
  const y = (weight) => 94 - (88 * weight) / top;
  // up to the largest score: scores above it would have larger weights than any of these
  const steps = range(STEPS_OF_CURVE + 1).map((i) => low + ((most - low) * i) / STEPS_OF_CURVE);
  const points = own
    .curve(steps, scaled)
    .map((w, i) => `${x(steps[i]).toFixed(2)},${y(w).toFixed(2)}`);
  const dots = row.map(({ weight }, i) =>
    // a line of no length with round ends is a dot at any size
    svg("path", { class: "try-dot", d: `M${x(scaled[i]).toFixed(2)},${y(weight).toFixed(2)}h0` }),
  );
  const ends = `from ${least.toFixed(1)} to ${most.toFixed(1)}`;
  const name = `weights from 0 to ${percent(top)} against scores ${ends}`;
  const picture = svg("svg",
    {
      class: "try-curve",
      viewBox: "0 0 100 100",
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": name,
    },
    svg("polyline", { class: "try-curve-line", points: points.join(" ") }), dots,
  );
  const upwards = `Upwards: the weight, up to ${percent(top)}.`;
  const caption = `Across: the score, ${ends}. ${upwards} Each dot is a key.`;
  return div(picture, el("p", { class: "hint" }, caption));
}
