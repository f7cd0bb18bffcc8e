// Classes: their probabilities as bars.

import { div, percent } from "../dom.mjs";
import { answersOf, bars, classesOf, verdictOf } from "../pictures/words.mjs";
import { addTarget } from "../views.mjs";

/** The prediction of a changed input. Bars stand in the order of the names, so that none jumps. */
function triedClasses({ runs }) {
  const node = div();
  const byName = ([a], [b]) => a.localeCompare(b, "en", { numeric: true });
  const drawn = ({ classes }) => bars([...classes].sort(byName));
  const named = ([name, share]) => `${name} (${percent(share)})`;
  return {
    node,
    title: "Prediction",
    show: (replies) => node.replaceChildren(...answersOf(runs, replies, drawn)),
    said: ({ classes }) => classes.slice(0, 2).map(named).join(", then "),
  };
}

addTarget("classes", {
  verdict: (run, example) => verdictOf(classesOf(run, example), example.target),
  beside: (run, example) => bars(classesOf(run, example), example.target),
  kept: (run, example) => ({ classes: classesOf(run, example).sort(([, a], [, b]) => b - a) }),
  tried: triedClasses,
});
