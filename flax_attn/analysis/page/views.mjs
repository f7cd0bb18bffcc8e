// The picture of a run, by its kind.

import { el } from "./dom.mjs";
import { heatMap } from "./heat.mjs";
import { stage } from "./stage.mjs";

/** The picture of a run. */
export function viewOf(run) {
  return stage(run, (example, weights) => {
    if (!weights) return el("p", {}, "");
    const map = heatMap({ name: "attention" });
    map.show(weights);
    return map.node;
  });
}
