// Attention in six steps, on the reader's own input: from one query to its context.

import { buttonOf, div, el, percent, shown } from "../dom.mjs";
import { sumOf } from "../lists.mjs";
import { bar, keyRow, normalizerOf, scoredRow } from "./formula.mjs";
import { weightText } from "./heat.mjs";

const MOST_KEYS = 5; // keys that a step names
const STEP_NAMES = ["query", "keys", "scores", "softmax", "values", "context"];

/** An element for the chosen query, `show(query, settings)`; it starts where it was left. */
export function guide() {
  const title = el("h3", { tabindex: "-1" });
  const body = div();
  const back = buttonOf("Back", () => go(-1));
  const next = buttonOf("Next", () => go(1));
  const row = el("div", { class: "row", role: "group", "aria-label": "steps" }, back, next);
  const node = el("details", { class: "guide" },
    el("summary", {}, "Attention in six steps"), title, body, row,
  );
  let step = 0;
  let now = [null, null];

  function go(by) {
    step += by;
    draw();
    title.focus();
  }

  function draw() {
    if (!node.open) return;
    title.textContent = `${step + 1} of ${STEP_NAMES.length}: ${STEP_NAMES[step]}`;
    body.replaceChildren(...stepOf(STEP_NAMES[step], ...now));
    back.disabled = step === 0;
    next.disabled = step === STEP_NAMES.length - 1;
  }

  node.addEventListener("toggle", draw);
  node.addEventListener("keydown", ({ key }) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[key] ?? 0;
    if (by && STEP_NAMES[step + by]) go(by);
  });
  const show = (...own) => {
    now = own;
    draw();
  };
  return { node, show };
}

const paragraph = (line) => el("p", {}, line);
const termsOf = (items) => el("ul", { class: "try-terms" }, items);

/** The largest of a row by a number of each key, and in one line how many are left out. */
function topKeys(row, numberOf, draw) {
  const order = [...row].sort((one, other) => numberOf(other) - numberOf(one));
  return [termsOf(order.slice(0, MOST_KEYS).map(draw)), moreThan(order.length - MOST_KEYS)];
}

const moreThan = (count) => (count > 0 ? el("p", { class: "hint" }, `and ${count} more`) : "");

/** What a step shows of a query. */
function stepOf(step, query, settings) {
  if (!query?.weights) return [paragraph("Select a query first.")];
  const { what, weights, scores } = query;
  const row = scoredRow(query);
  if (!row.length) return [paragraph(`${what} may attend to no key.`)];
  const isScored = scores && !weights.signed;
  const size = ({ weight }) => Math.abs(weight);
  const own = isScored && normalizerOf(row, settings);
  const scaled = isScored && row.map(({ score }) => score / settings.temperature);
  const weighed = (key) => weightText(key.weight, weights.signed);
  const byWeight = (draw) => topKeys(row, size, draw);
  const masked = weights.columns - row.length;
  switch (step) {
    case "query":
      return [
        paragraph(`The query is ${what}. Its vector times a learned matrix is q = W_q x.`),
        paragraph("The query vector says what this position looks for. Choose another one above."),
      ];
    case "keys":
      return [
        paragraph(`Each key is k = W_k x. This query may attend to ${row.length}.`),
        masked ? paragraph(`${masked} more are masked: this query may not attend to them.`) : "",
        termsOf(row.slice(0, MOST_KEYS).map(({ name }) => el("li", {}, name))),
        moreThan(row.length - MOST_KEYS),
      ];
    case "scores":
      if (!isScored) return [paragraph("This attention shows no scores: it has weights alone.")];
      return [
        paragraph("The score of a key says how well it matches the query. The highest:"),
        ...topKeys(row, ({ score }) => score, ({ name, score }) =>
          el("li", {}, el("span", { class: "try-term-name" }, name), shown(score))),
      ];
    case "softmax":
      if (!isScored) return [paragraph("No softmax: a weight is what the query reads of a token.")];
      return [
        paragraph(own ? `${own.name} turns scores into weights: ${own.formula}.`
          : "The normaliser turns scores into weights."),
        ...byWeight((key) => keyRow(key, own, scaled, settings.temperature)),
        paragraph(`All weights add up to ${sumOf(row.map(({ weight }) => weight)).toFixed(3)}.`),
      ];
    case "values":
      return [
        paragraph("Each key has a value, v = W_v x, which it hands over by its weight."),
        ...byWeight((key) => bar(key.name, size(key), `${weighed(key)} of its value`)),
      ];
    default: {
      const [best] = [...row].sort((one, other) => size(other) - size(one));
      const share = weights.signed ? weighed(best) : percent(best.weight);
      return [
        paragraph(`The context of ${what} is the sum of all values, each times its weight.`),
        paragraph(`Most of it comes from ${best.name} (${share}). The next layer reads it.`),
      ];
    }
  }
}
