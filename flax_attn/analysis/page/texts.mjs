// Texts in classes: words on the colours of their weights, classes as bars.

import { el, percent, scrollBox, sentence, tableBehind } from "./dom.mjs";
import { heatMap, largest } from "./heat.mjs";
import { bars, sign, words } from "./words.mjs";

const MOST_NAMED = 40; // words, up to which a map has names

/** The mean weight of each key over all queries, or the weights of one query. */
export function rowOf(weights, q) {
  return Array.from({ length: weights.columns }, (_, k) => {
    if (q !== null) return weights.at(q, k);
    let sum = 0;
    for (let i = 0; i < weights.rows; i++) sum += weights.at(i, k);
    return sum / weights.rows;
  });
}

/** The picture of one text, for `stage`. */
export function drawText(run) {
  return (example, weights, { choice, top }) => {
    const { tokens, known, predictions, target } = example;
    const classes = predictions.map((share, i) => [run.classes[i], share]);
    const verdict = el("p", { class: "result" }, verdictOf(classes, target));
    const columns = el("div", { class: "beside" });
    if (!weights) {
      columns.append(words("The text", tokens, { known }).node, bars(classes, target));
      return [verdict, columns];
    }
    const state = { q: null };
    const said = sentence();
    const choose = weights.rows > 1;
    const row = words("The text", tokens, {
      known,
      onPoint: (k) => tell(k),
      onPick: (q) => choose && pick(state.q === q ? null : q),
    });
    const map = choose ? mapOf(tokens, weights, (q, k) => pick(q, k), { top }) : null;
    const mean = choose ? "The mean over all words" : choice.label;
    const tell = (k) => {
      const who = state.q === null ? mean : `“${tokens[state.q]}”`;
      const share = percent(rowOf(weights, state.q)[k]);
      said.say(`${who} puts ${share} of its weight on “${tokens[k]}”.`);
    };
    const pick = (q, k = null) => {
      state.q = q;
      const shown = rowOf(weights, q);
      const key = k ?? largest({ columns: shown.length, at: (_, i) => shown[i] }, 0);
      row.show(shown, top);
      row.pick(q);
      map?.point(q, key);
      tell(key);
    };
    pick(null);
    const hint = choose ? "Press a word to see where it looks; press it again for the mean." : "";
    columns.append(el("div", {}, row.node, said.node), bars(classes, target));
    return [
      verdict,
      columns,
      hint ? el("p", { class: "hint no-print" }, hint) : null,
      map?.node,
      wordsBehind(tokens, weights, state),
    ];
  };
}

/** What the model says of an example, with a sign for right and wrong. */
export function verdictOf(classes, target) {
  const best = classes.reduce((top, [, share], i) => (share > classes[top][1] ? i : top), 0);
  const said = `${classes[best][0]} (${percent(classes[best][1])})`;
  if (best === target) return `✓ The model says ${said}, which is right.`;
  return `✗ The model says ${said}; right is ${classes[target][0]}.`;
}

/** The whole map, queries downwards, with names where they can be read: `{node, point(q, k)}`. */
export function mapOf(tokens, weights, onPoint, options = {}) {
  const name = "Attention: each word is a row, and looks across";
  const named = tokens.length <= MOST_NAMED;
  const names = named ? { rowNames: tokens, columnNames: tokens } : {};
  const map = heatMap({ name, ...names, axes: ["query", "key"], onPoint });
  map.show(weights, { name, ...options });
  const box = named ? scrollBox(options.label ?? "The map of all words", map.node) : map.node;
  return { node: box, point: map.point };
}

function wordsBehind(tokens, weights, state) {
  const header = ["word", "weight"];
  const rows = () => rowOf(weights, state.q).map((weight, k) => [sign(tokens[k]), percent(weight)]);
  return tableBehind("the weight of each word", header, rows);
}
