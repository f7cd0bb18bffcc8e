// How well shapes are levelled, as a table, and under every normaliser.

import { nameOfNormalizer, NORMALIZERS } from "../controls/settings.mjs";
import { buttonOf, el, percent, plainTable } from "../dom.mjs";
import { meanOf, range } from "../lists.mjs";
import { rowOf, weightsIn } from "../pictures/heat.mjs";
import { heightIn, rightHeights, SHAPE_KINDS, shareOn } from "./numbers.mjs";

const CLOSE = 1; // what passes for right, where heights reach 25
const RIGHT = `✓: off by at most ${CLOSE.toFixed(1)} on average`;

const HINT = { class: "hint" };
const COUNTED =
  "Keys per query: at how many positions one position looks, on average (1\u00a0% or more). " +
  "Attention on shapes: what positions in shapes put on shapes of both kinds, on average.";

/** How far some shapes, by their indices, are from the right heights, and whether it passes. */
export function verdict(group, output, shapes, right) {
  const errors = group.map((i) => Math.abs(heightIn(output, shapes[i]) - right[i]));
  const written = meanOf(errors).toFixed(1); // what is read decides
  return `${Number(written) <= CLOSE ? "✓" : "✗"} off by ${written}`;
}

const ofKind = (kind, shapes) => [...shapes.keys()].filter((i) => shapes[i].kind === kind);

/**
 * A button that asks under every normaliser, and the table of what comes out. `follow()` takes the
 * table away when the signal or another setting has changed since.
 */
export function everyNormalizer({ run, ask, shapes, signal, settings }) {
  const result = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-live": "polite" });
  result.setAttribute("aria-label", "The answer under every normaliser");
  const names = run.live?.normalizers ?? NORMALIZERS;
  let shownFor = null;
  const now = () => JSON.stringify([signal(), { ...settings(), normalizer: null }]);
  const asked = async (name) => {
    const inputs = { inputs: { shape: [signal().length, 1], data: signal() } };
    const reply = await ask({ inputs, settings: { ...settings(), normalizer: name } });
    if (reply.error) return [nameOfNormalizer(name), reply.error];
    const right = rightHeights(shapes(), run.task);
    const looks = weightsIn(reply, run.attention.at(-1).name, 0);
    const errors = SHAPE_KINDS.map((kind) =>
      verdict(ofKind(kind, shapes()), reply.outputs.data, shapes(), right),
    );
    const share = shareOn(looks, shapes(), shapes());
    return [nameOfNormalizer(name), ...errors, keysOf(looks), percent(share)];
  };
  const compare = async () => {
    const own = (shownFor = now());
    result.replaceChildren();
    result.setAttribute("aria-busy", "true");
    const rows = [];
    for (const name of names) {
      rows.push(await asked(name));
      if (shownFor !== own) return; // something was changed meanwhile
    }
    const header = ["normaliser", "triangles", "boxes", "keys per query", "attention on shapes"];
    const caption = "This signal under every normaliser, with the other settings as they are.";
    const table = plainTable(`${caption} ${RIGHT}.`, header, rows);
    table.classList.add("stacked", "lone"); // on a phone
    result.replaceChildren(table, el("p", HINT, COUNTED));
    result.setAttribute("aria-busy", "false");
  };
  const follow = () => {
    if (shownFor === null || shownFor === now()) return;
    shownFor = null;
    result.replaceChildren(el("p", HINT, "Something was changed: compare again."));
    result.setAttribute("aria-busy", "false");
  };
  const button = buttonOf("Compare all normalisers on this signal", compare);
  return { node: el("div", { class: "try-compare" }, button, result), follow };
}

/** The mean number of keys that get at least a hundredth of a query's weight. */
function keysOf(weights) {
  const keys = (q) => rowOf(weights, q).filter((weight) => weight >= 0.01).length;
  return meanOf(range(weights.rows).map(keys)).toFixed(1);
}
