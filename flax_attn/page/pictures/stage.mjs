// The frame of a run's picture: which example, which attention, the picture, its sentence.

import { exampleList } from "../controls/choosers.mjs";
import { div, el } from "../dom.mjs";
import { legend, signedTop, topOf } from "./heat.mjs";
import { allHeads, overview, weightsOf } from "./overview.mjs";

/**
 * The picture of a run. `draw(example, weights, {choice, number, press})` returns nodes; `weights`
 * is one head as `{rows, columns, at}`, or null for a model without attention, and `press(i)` shows
 * another example. `top` says where the scale of colours ends, by the weights, and `hasLegend`
 * whether a legend of it stands under the picture; `first` is the head to begin with; `beside` is
 * what stands under the picture and follows it.
 */
export function stage(run, draw, options = {}) {
  const { top = topOf, visible = undefined, masked = false, beside = null } = options;
  const { hasLegend = Boolean, first = 0 } = options;
  const choices = allHeads(run);
  const state = { number: 0, head: first };
  const picture = el("div", { class: "picture" });
  const scaleOf = div();
  const show = () => {
    const example = run.examples[state.number];
    const choice = choices[state.head] ?? null;
    const weights = weightsOf(example, choice);
    const end = signedTop(weights) ?? (weights ? top(weights) : 1);
    const press = (index) => number.press(index);
    const nodes = draw(example, weights, { choice, number: state.number, top: end, press });
    picture.replaceChildren(...[nodes].flat().filter(Boolean));
    scaleOf.replaceChildren(...(hasLegend(weights) ? [legend(end, masked, weights?.signed)] : []));
    if (weights) beside?.show(example, weights);
  };
  const choose = (index) => {
    state.head = index;
    show();
  };
  const small = overview(choices, choose, { visible, first });
  const pick = (index) => {
    state.number = index;
    small.show(run.examples[index]);
    show();
  };
  const count = run.examples.length;
  const number = exampleList("Test example", run, count, pick, (i) => `Test example ${i}`);
  if (!count) return el("p", { class: "note" }, "This run has kept no example.");
  number.node.hidden = count < 2;
  pick(0);
  return el("figure", { class: "stored" }, number.node, small.node, picture, scaleOf, beside?.node);
}
