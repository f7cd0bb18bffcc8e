// How well shapes are levelled, as a table, and under every normaliser.

import { el, percent, plainTable } from "./dom.mjs";
import { heightIn, rightHeights, shareOn } from "./try_shapes.mjs";
import { weightsIn } from "./try_shared.mjs";
import { NORMALIZERS, UNCHANGED } from "./try_controls.mjs";

const CLOSE = 1; // what passes for right, where heights reach 25

const KINDS = ["triangle", "box"];
const pluralOf = (kind) => (kind === "box" ? "boxes" : "triangles");

/** The mean distance of the answer from the right heights, of the shapes of a kind. */
function errorOf(kind, output, shapes, right) {
  const own = shapes.map((shape, i) => [shape, right[i]]).filter(([shape]) => shape.kind === kind);
  const errors = own.map(([shape, height]) => Math.abs(heightIn(output, shape) - height));
  return errors.reduce((sum, error) => sum + error, 0) / errors.length;
}

function sayError(error) {
  return `${error < CLOSE ? "✓" : "✗"} off by ${error.toFixed(1)}`;
}

/** A table of the kinds of shapes: where they are set, and where they look. */
export function levels() {
  const node = el("div", { class: "scroll try-levels", tabindex: 0, role: "region" });
  node.setAttribute("aria-label", "How well the shapes are levelled");
  const show = (runs, replies, shapes, right, weights) => {
    const rows = runs.flatMap((run, i) => {
      const output = replies[i].outputs.data;
      const looks = weights(replies[i], i);
      return KINDS.map((kind) => {
        const own = shapes.filter((shape) => shape.kind === kind);
        const set = own.map((shape) => heightIn(output, shape).toFixed(1)).join(" and ");
        const goals = shapes.map((shape, j) => [shape.kind, right[j].toFixed(1)]);
        const goal = new Set(goals.filter(([other]) => other === kind).map(([, height]) => height));
        const share = looks ? percent(shareOn(looks, own, own)) : "no attention";
        const name = runs.length > 1 ? `${pluralOf(kind)}, ${run.name}` : pluralOf(kind);
        const error = errorOf(kind, output, shapes, right);
        return [name, set, [...goal].join(" and "), sayError(error), share];
      });
    });
    const header = ["shapes", "set to", "right", "verdict", "attention on own kind"];
    node.replaceChildren(plainTable("How well the shapes are levelled", header, rows));
  };
  return { node, show, level: heightIn };
}

/** A button that asks under every normaliser, and the table of what comes out. */
export function everyNormalizer({ run, ask, shapes, signal }) {
  const result = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-live": "polite" });
  result.setAttribute("aria-label", "The answer under every normaliser");
  const names = run.live?.normalizers ?? NORMALIZERS;
  const asked = async (name) => {
    const inputs = { inputs: { shape: [signal().length, 1], data: signal() } };
    const reply = await ask({ inputs, settings: { ...UNCHANGED, normalizer: name } });
    if (reply.error) return [name, reply.error];
    const right = rightHeights(shapes(), run.task);
    const looks = weightsIn(reply, run.attention.at(-1).name, 0);
    const errors = KINDS.map((kind) =>
      sayError(errorOf(kind, reply.outputs.data, shapes(), right)),
    );
    const share = shareOn(looks, shapes(), shapes());
    return [name, ...errors, keysOf(looks), percent(share)];
  };
  const compare = async () => {
    button.disabled = true;
    result.setAttribute("aria-busy", "true");
    const rows = [];
    for (const name of names) rows.push(await asked(name));
    const header = ["normaliser", "triangles", "boxes", "keys a query", "attention on shapes"];
    result.replaceChildren(plainTable("This signal under every normaliser", header, rows));
    result.setAttribute("aria-busy", "false");
    button.disabled = false;
  };
  const button = el(
    "button",
    { type: "button", onclick: compare },
    "Compare all normalisers on this signal",
  );
  return el("div", { class: "try-compare" }, button, result);
}

/** The mean number of keys that get at least a hundredth of a query's weight. */
function keysOf(weights) {
  let count = 0;
  for (let q = 0; q < weights.rows; q++)
    for (let k = 0; k < weights.columns; k++) count += weights.at(q, k) >= 0.01;
  return (count / weights.rows).toFixed(1);
}
