// Which attention is looked at, which example a reader begins with, and a text that is typed.

import { chooser, div, el, numbered } from "../dom.mjs";
import { range } from "../lists.mjs";
import { scoresIn, weightsIn } from "../pictures/heat.mjs";
import { allHeads } from "../pictures/overview.mjs";
import { cutText } from "../pictures/words.mjs";
import { inputOf } from "../views.mjs";

/**
 * Which attention and head is shown: lists, where there is a choice. `first` is the one to begin
 * with, by its index in `allHeads`; otherwise it is the first head of the last attention.
 * `weights(reply)` and `scores(reply)` are those of the chosen head, or null.
 */
export function headChooser(run, onChoice, first = null) {
  const names = run.attention.map((own) => own.name);
  const now = { name: names.at(-1) ?? null, head: 0 };
  if (first !== null) Object.assign(now, allHeads(run)[first]);
  const heads = div();
  const choose = (part) => {
    Object.assign(now, part);
    onChoice(now);
  };
  const offerHeads = (chosen = 0) => {
    const own = run.attention.find(({ name }) => name === now.name);
    const count = own?.heads ?? 0;
    now.head = chosen;
    const list = numbered(own?.of ?? "head", count, chosen, (head) => choose({ head }));
    heads.replaceChildren(...(count > 1 ? [list.node] : []));
  };
  offerHeads(now.head);
  const list = chooser("attention", names, names.indexOf(now.name), (i) => {
    now.name = names[i];
    offerHeads();
    choose({});
  });
  const node = el("div", { class: "controls" }, names.length > 1 ? list : null, heads);
  node.hidden = names.length < 2 && (run.attention[0]?.heads ?? 0) < 2; // there is no choice
  const weights = (reply) => weightsIn(reply, now.name, now.head);
  const scores = (reply) => scoresIn(reply, now.name, now.head);
  return { node, now, weights, scores };
}

/** A field for a text, with its label: `{node, area}`. */
export function textField(label, rows, oninput) {
  const area = el("textarea", { rows, spellcheck: "false", maxlength: 100000, oninput });
  return { node: el("label", { class: "try-text" }, el("span", {}, label), area), area };
}

const MOST_OFFERED = 8; // examples to begin with
const LONGEST_OFFERED = 60; // letters of an example in a list

/** Buttons for the examples of a run, to begin with. */
export function exampleChooser(run, onChoice) {
  const count = Math.min(run.examples.length, MOST_OFFERED);
  if (count < 2) return null;
  return exampleList("begin with example", run, count, onChoice, (i) => `example ${i}`).node;
}

/** A choice among the first examples of a run, by their texts or else by numbers. */
export function exampleList(label, run, count, onChoice, describe) {
  const { named } = inputOf(run);
  if (!named) return numbered(label, count, 0, onChoice, describe);
  const names = range(count).map((i) => cutText(named(run.examples[i]), LONGEST_OFFERED));
  const node = chooser(label, names, 0, onChoice);
  const press = (i) => {
    node.querySelector("select").selectedIndex = i;
    onChoice(i);
  };
  return { node, press };
}
