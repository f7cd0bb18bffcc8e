// The page of runs that can be tried: in the page itself, or by the local server.

import { askOf, serverAsk } from "./asking.mjs";
import { UNCHANGED } from "./controls/settings.mjs";
import { el } from "./dom.mjs";
import { buildPage, headingOf, part } from "./page.mjs";
import { comparisonOf } from "./pictures/comparison.mjs";
import { evidenceRow } from "./pictures/effects.mjs";
import { tryIt } from "./try.mjs";
import { inputOf } from "./views.mjs";

/** What the local server answers: a part for each task, in which all runs get one input. */
function exploreParts(runs, level) {
  const asked = runs.map((run, number) => [run, serverAsk(number)]);
  const taskOf = ({ input, target }) => `${input} ${target}`;
  const tasks = [...new Set(runs.map(taskOf))];
  return tasks.map((task) => explorePart(asked.filter(([run]) => taskOf(run) === task), level));
}

/** The part of runs of one task; without a level, what is tried on them alone. */
function explorePart([first, ...others], level) {
  if (!level) return tryIt(...first, others);
  const isOne = others.length === 0;
  const heading = isOne ? headingOf(first[0]) : "One input, all predictions";
  // between the name of a lone run and the headings of what is tried
  const between = isOne ? el("h2", { class: "aside" }, "Try it") : null;
  const compared = isOne ? comparisonOf(first[0]) : null;
  return part(level, heading, compared, between, tryIt(...first, others));
}

/**
 * What stands under the picture of an example: the effect of masking each part of it, by the model
 * of its run. Null where the model has no attention, or takes no example of the page.
 */
function storedEvidence(run, ask) {
  const { stored, parts } = inputOf(run);
  if (!run.attention.length || !stored) return null;
  const evidence = evidenceRow(ask);
  const show = (example, weights) => {
    const asked = { inputs: stored(run, example), settings: UNCHANGED };
    evidence.show({ ...parts(run, example, weights), signed: weights.signed, ...asked });
  };
  return { node: evidence.node, show };
}

/** What is tried on a model that is in the page, and what it says of the stored examples. */
function liveOf(run) {
  const ask = askOf(run);
  return ask && { tried: tryIt(run, ask), beside: storedEvidence(run, ask) };
}

// the worker that answers has the same text, and no document
if (typeof document !== "undefined") buildPage(liveOf, exploreParts);
