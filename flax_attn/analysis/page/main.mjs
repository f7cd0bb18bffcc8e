// The page of runs that can be tried: in the page itself, or by the local server.

import { askOf } from "./asking.mjs";
import { el } from "./dom.mjs";
import { headingOf, part, buildPage } from "./page.mjs";
import { serverAsk } from "./try_asking.mjs";
import { tryIt } from "./try_it.mjs";
import { storedEvidence } from "./try_stored.mjs";

/** What the local server answers: one input for all runs, which have the same kind. */
function explorePart(runs, level) {
  const [first, ...others] = runs.map((run, number) => [run, serverAsk(number)]);
  const isOne = others.length === 0;
  const heading = isOne ? headingOf(runs[0]) : "One input, all answers";
  // between the name of a lone run and the headings of what is tried
  const between = isOne ? el("h2", { class: "aside" }, "Try it") : null;
  return part(level, heading, between, tryIt(...first, others));
}

/** What is tried on a model that is in the page, and what it says of the stored examples. */
function liveOf(run) {
  const ask = askOf(run);
  return ask && { tried: tryIt(run, ask), beside: storedEvidence(run, ask) };
}

// the worker that answers has the same text, and no document
if (typeof document !== "undefined") buildPage(liveOf, explorePart);
