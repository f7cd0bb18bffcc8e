// Evidence for the examples that a report holds: what hiding a part of one does, by its model.

import { UNCHANGED } from "./try_controls.mjs";
import { evidenceRow } from "./try_evidence.mjs";
import { seriesParts, shapeParts } from "./try_parts.mjs";
import { rowOf } from "./texts.mjs";
import { gridOf } from "./images.mjs";
import { shapesOf } from "./try_shapes.mjs";

const BLANKS = new Map([["↵", "\n"], ["→", "\t"]]); // signs of characters without a picture

/** What a model takes for an example of its run. */
export function storedInputs(run, example) {
  if (run.kind === "language") return { text: textOfTokens(example.tokens, run.live.text) };
  if (run.kind === "images") {
    const { shape, data } = example.image; // ink; MNIST has white digits on black, files do not
    const isInk = run.data === "mnist";
    return { inputs: { shape, data: Array.from(data, (own) => (isInk ? own : 1 - own)) } };
  }
  const channels = example.inputs;
  const data = channels[0].flatMap((_, t) => channels.map((channel) => channel[t]));
  return { inputs: { shape: [channels[0].length, channels.length], data } };
}

/** The text of tokens as it was written, without the line end that stands before each text. */
function textOfTokens(tokens, { always }) {
  const own = tokens.map((token) => BLANKS.get(token) ?? token);
  return (always ? own.slice(1) : own).join("");
}

/** The parts of an example that are hidden in turn, and the weight of each. */
function partsOf(run, example, weights) {
  const means = () => rowOf(weights, null);
  if (run.kind === "language") {
    const own = rowOf(weights, weights.rows - 1); // what the last token looks at
    return { names: example.tokens, weights: own, what: "token" };
  }
  if (run.kind === "images") {
    const columns = gridOf(example.image, weights.columns)?.columns ?? weights.columns;
    const names = means().map((_, k) => `patch ${k}`);
    return { names, labels: null, weights: means(), what: "patch", columns };
  }
  if (run.kind === "signals" && example.marks.length === 4) {
    return shapeParts(shapesOf(example), weights);
  }
  return seriesParts(run.kind === "series", weights);
}

/**
 * What `stage` shows under its picture: `{node, show(example, weights)}`; null for a model without
 * attention.
 */
export function storedEvidence(run, ask) {
  if (!run.attention.length) return null;
  const evidence = evidenceRow(ask);
  const show = (example, weights) =>
    evidence.show({
      ...partsOf(run, example, weights),
      inputs: storedInputs(run, example),
      settings: UNCHANGED,
    });
  return { node: evidence.node, show };
}
