// What a reader can try on a model that answers.

import { el } from "./dom.mjs";

/** An element with which a run is asked; empty here. */
export function tryIt(run, ask) {
  return el("section", { class: "try", hidden: true });
}
