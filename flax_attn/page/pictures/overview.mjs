// Which attention is looked at: all layers, heads and hops as small pictures that are buttons.

import { el, pressOne, roving } from "../dom.mjs";
import { indexOfLargest, meanOf, range } from "../lists.mjs";
import { headOf, paint, rowOf, topOf } from "./heat.mjs";

/** Every attention of a run as `{name, head, label}`, in the order of the model. */
export const allHeads = ({ attention }) =>
  attention.flatMap(({ name, heads, of }) => {
    const before = attention.length > 1 ? `${name}, ` : "";
    const label = (head) => (heads === 1 ? name : `${before}${of} ${head}`);
    return range(heads).map((head) => ({ name, head, label: label(head) }));
  });

/** The weights of one head of an example; null where it has none of that name. */
export function weightsOf(example, choice) {
  const held = choice && example.attention[choice.name];
  return held && choice.head < held.shape[0] ? headOf(held, choice.head) : null;
}

/**
 * The head to begin with, by its index in `allHeads`: it puts most of its weight on another
 * position than the query's own. `q` is the query that is shown, or null for the mean over all.
 */
export function tellingHead(run, q = null) {
  const elsewhere = allHeads(run).map((choice) => {
    const weights = run.examples.length ? weightsOf(run.examples[0], choice) : null;
    if (!weights || weights.rows !== weights.columns) return 0;
    const rows = q === null ? range(weights.rows) : [q];
    const other = (i) => rowOf(weights, i).filter((_, k) => k !== i);
    const most = rows.map((i) => Math.max(...other(i).map(Math.abs), 0));
    return meanOf(most) || 0;
  });
  return indexOfLargest(elsewhere);
}

/**
 * The small pictures. `onChoice(i)` gets the index in `allHeads`. Returns `{node, show(example)}`;
 * a model with one attention alone has no choice, and `node` is hidden.
 */
export function overview(choices, onChoice, { visible, first = 0 } = {}) {
  const press = (index) => {
    pressOne(buttons, index);
    onChoice(index);
  };
  const buttons = choices.map(({ label }, i) =>
    el("button", { type: "button", "aria-pressed": String(i === first), onclick: () => press(i) },
      el("canvas", { "aria-hidden": "true" }), el("span", {}, label),
    ),
  );
  roving(buttons, first);
  const node = el("div", { role: "group", "aria-label": "attention", class: "overview" }, buttons);
  node.hidden = choices.length < 2;
  const show = (example) =>
    choices.forEach((choice, i) => {
      const weights = weightsOf(example, choice);
      if (!weights) return;
      buttons[i].classList.toggle("flat", weights.rows === 1);
      paint(buttons[i].firstChild, weights, { top: topOf(weights), visible, finest: 100 });
    });
  return { node, show };
}
