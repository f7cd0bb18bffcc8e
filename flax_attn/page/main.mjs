// The page of runs that can be tried: in the page itself, or by the local server.

import { askOf, serverAsk } from "./asking.mjs";
import { UNCHANGED } from "./controls/settings.mjs";
import { el } from "./dom.mjs";
import { kindOf } from "./kinds.mjs";
import { buildPage, comparisonOf, headingOf, part } from "./page.mjs";
import { evidenceRow } from "./pictures/evidence.mjs";
import { tryIt } from "./try.mjs";

/** What the local server answers: a part for each kind, in which all runs get one input. */
function exploreParts(runs, level) {
  const asked = runs.map((run, number) => [run, serverAsk(number)]);
  const kinds = [...new Set(runs.map((run) => run.kind))];
  return kinds.map((kind) => explorePart(asked.filter(([run]) => run.kind === kind), level));
}

function explorePart([first, ...others], level) {
  const isOne = others.length === 0;
  const heading = isOne ? headingOf(first[0]) : "One input, all answers";
  // between the name of a lone run and the headings of what is tried
  const between = isOne ? el("h2", { class: "aside" }, "Try it") : null;
  const compared = isOne ? comparisonOf(first[0]) : null;
  return part(level, heading, compared, between, tryIt(...first, others));
}

/**
 * What stands under the picture of an example: what hiding a part of it does, by the model of its
 * run. Null where the model has no attention, or takes no example of the page.
 */
function storedEvidence(run, ask) {
  const { stored } = kindOf(run);
  if (!run.attention.length || !stored) return null;
  const evidence = evidenceRow(ask);
  const show = (example, weights) =>
    evidence.show({
      ...stored.parts(run, example, weights),
      inputs: stored.inputs(run, example),
      settings: UNCHANGED,
    });
  return { node: evidence.node, show };
}

/** What is tried on a model that is in the page, and what it says of the stored examples. */
function liveOf(run) {
  const ask = askOf(run);
  return ask && { tried: tryIt(run, ask), beside: storedEvidence(run, ask) };
}

// the worker that answers has the same text, and no document
if (typeof document !== "undefined") buildPage(liveOf, exploreParts);
