// Language models: what a token looks at, the loss along a text, and induction.

import { chart } from "./curves.mjs";
import { asNumber, el, percent, sentence, shown, tableBehind } from "./dom.mjs";
import { headOf, heatMap, largest, legend } from "./heat.mjs";
import { mapOf, rowOf } from "./texts.mjs";
import { sign, words } from "./words.mjs";

/** Whether a query may look at a key: a token sees itself and those before it. */
export function isBefore(q, k) {
  return k <= q;
}

/** The picture of the text, for `stage`. */
export function drawPassage() {
  return (example, weights, { top }) => {
    const { tokens } = example;
    if (!weights) return [];
    const state = { q: tokens.length - 1 };
    const said = sentence();
    const row = words("The text; each token looks at those before it", tokens, {
      onPoint: (k) => tell(k),
      onPick: (q) => pick(q),
    });
    const map = mapOf(tokens, weights, (q, k) => pick(q, k), { visible: isBefore, top });
    const tell = (k) => {
      const [query, key] = [tokens[state.q], tokens[k]];
      if (k > state.q) said.say(`“${key}” comes after “${query}”, which cannot see it.`);
      else said.say(tokenLook(query, key, weights.at(state.q, k), state.q - k));
    };
    const pick = (q, k = null) => {
      state.q = q;
      const shares = rowOf(weights, q);
      const key = k ?? largest({ columns: q + 1, at: (_, i) => shares[i] }, 0);
      row.show(shares, top);
      row.buttons.forEach((button, i) => button.classList.toggle("after", i > q));
      row.pick(q);
      map.point(q, key);
      tell(key);
    };
    pick(state.q);
    const hint = "Press a token to see what it looks at.";
    return [row.node, said.node, el("p", { class: "hint no-print" }, hint), map.node, behind()];

    function behind() {
      const row = (weight, k) => [sign(tokens[k]), percent(weight)];
      const rows = () => rowOf(weights, state.q).map(row);
      return tableBehind("the weight of each token", ["token", "weight"], rows);
    }
  };
}

function tokenLook(from, to, weight, back) {
  const [query, key] = [sign(from), sign(to)];
  const where = back ? `${back} back` : "itself";
  const share = percent(weight);
  const says = `To say what follows “${query}”, the head puts`;
  return `${says} ${share} of its weight on “${key}”, ${where}.`;
}

/** Further pictures of a language model: the loss by position, and the heads' induction. */
export function furtherOf(example) {
  const parts = [];
  const seeds = example.losses.map((row) => row.map(asNumber));
  const steps = seeds[0].map((_, i) => i + 1);
  const over = (pick) => steps.map((_, i) => pick(seeds.map((row) => row[i])));
  const mean = over((values) => values.reduce((a, b) => a + b, 0) / values.length);
  const low = over((values) => Math.min(...values));
  const high = over((values) => Math.max(...values));
  const line = { label: "loss", look: 0, steps, mean, low, high, rows: seeds };
  const names = { across: "tokens that the model knows", up: "loss of the next", at: "Tokens" };
  const heading = "What it gains from knowing more";
  parts.push(el("h2", {}, heading), el("figure", {}, chart([line], names)));
  if (example.induction) parts.push(...induction(example));
  return parts;
}

/** Which heads look for what followed last time, and the best of them on a repeated string. */
function induction({ induction: scores, string, induction_weights: packed }) {
  const weights = headOf(packed, 0);
  const said = sentence();
  const map = mapOf(
    string,
    weights,
    (q, k) => said.say(tokenLook(string[q], string[k], weights.at(q, k), q - k)),
    { visible: isBefore, top: 1, label: "The map of the random string" },
  );
  const grid = {
    rows: scores.length,
    columns: scores[0].length,
    at: (block, head) => asNumber(scores[block][head]),
  };
  const small = heatMap({
    name: "Induction of each head: blocks downwards, heads across",
    rowNames: scores.map((_, i) => `block${i + 1}`),
    columnNames: scores[0].map((_, i) => `head ${i}`),
    onPoint: (block, head) =>
      said.say(`block${block + 1}, head ${head}: ${shown(grid.at(block, head))} on average.`),
  });
  small.show(grid, {});
  const flat = scores.flatMap((row, block) => row.map((value, head) => [value, block, head]));
  const [value, block, head] = flat.reduce((a, b) => (b[0] > a[0] ? b : a));
  const best = `block${block + 1}, head ${head} puts ${shown(value)} of its weight`;
  said.say(`${best} on the token that followed last time, on a random string that comes twice.`);
  return [
    el("h2", {}, "Heads that look for what followed last time"),
    el("figure", {}, said.node, small.node, map.node, legend(1, true)),
  ];
}
