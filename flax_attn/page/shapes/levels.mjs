// How well shapes are levelled, as a table, and under every normaliser.

import { nameOfNormalizer, NORMALIZERS } from "../controls/settings.mjs";
import { buttonOf, el, percent, plainTable, shown } from "../dom.mjs";
import { meanOf, range } from "../lists.mjs";
import { rowOf, tickText, weightsIn } from "../pictures/heat.mjs";
import { heightIn, shapesOf, shareOn } from "./numbers.mjs";

const CLOSE = 1; // what passes for right, where heights reach 25

const HINT = { class: "hint" };
const CAPTION = (count) =>
  `Every normaliser on ${count} test examples, with the other settings as they are.`;
const COUNTED =
  "RMSE: the root mean squared error in the units of the heights, and its change from the model " +
  "as it was trained. " +
  "Keys per query: at how many positions one position looks, on average (1\u00a0% or more). " +
  "Attention on shapes: what positions in shapes put on shapes of both kinds, on average.";

/** How far some shapes, by their indices, are from the right heights, and whether it passes. */
export function verdict(group, output, shapes, right) {
  const errors = group.map((i) => Math.abs(heightIn(output, shapes[i]) - right[i]));
  const written = meanOf(errors).toFixed(1); // what is read decides
  return `${Number(written) <= CLOSE ? "✓" : "✗"} off by ${written}`;
}

/** The root of the mean squared error of outputs, and two means over queries of their weights. */
function measured(run, examples, replies) {
  const squares = examples.flatMap(({ targets: [target] }, i) =>
    target.map((own, t) => (own - replies[i].outputs.data[t]) ** 2));
  const looks = replies.map((reply) => weightsIn(reply, run.attention.at(-1).name, 0));
  const shares = looks.map((weights, i) => {
    const shapes = shapesOf(examples[i]);
    return shareOn(weights, shapes, shapes);
  });
  const [keys, share] = [meanOf(looks.map(keysOf)), meanOf(shares)];
  return { error: Math.sqrt(meanOf(squares)), keys, share };
}

/**
 * A button that asks the test examples under every normaliser, and the table of what comes out.
 * `follow()` takes the table away when another setting has changed since.
 */
export function everyNormalizer({ run, ask, settings }) {
  const result = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-live": "polite" });
  result.setAttribute("aria-label", "The error under every normaliser");
  const names = run.live?.normalizers ?? NORMALIZERS;
  const { examples } = run;
  let shownFor = null;
  const now = () => ({ ...settings(), normalizer: null, hidden: [] });
  const asked = async (normalizer) => {
    const replies = [];
    for (const { inputs: [signal] } of examples) {
      const inputs = { inputs: { shape: [signal.length, 1], data: signal } };
      replies.push(await ask({ inputs, settings: { ...now(), normalizer } }));
    }
    return { name: nameOfNormalizer(normalizer), replies };
  };
  const compare = async () => {
    const own = (shownFor = JSON.stringify(now()));
    result.replaceChildren();
    result.setAttribute("aria-busy", "true");
    const rows = [];
    let first = null; // as trained
    for (const normalizer of names) {
      const { name, replies } = await asked(normalizer);
      if (shownFor !== own) return; // something was changed meanwhile
      const broken = replies.find((reply) => reply.error);
      if (broken) {
        rows.push([name, broken.error]);
        continue;
      }
      const { error, keys, share } = measured(run, examples, replies);
      const change = first === null ? "" : signedChange(error - first);
      first ??= error;
      rows.push([name, shown(error), change, keys.toFixed(1), percent(share)]);
    }
    const header = ["normaliser", "RMSE", "change", "keys per query", "attention on shapes"];
    const table = plainTable(CAPTION(examples.length), header, rows);
    table.classList.add("stacked", "lone"); // on a phone
    result.replaceChildren(table, el("p", HINT, COUNTED));
    result.setAttribute("aria-busy", "false");
  };
  const follow = () => {
    if (shownFor === null || shownFor === JSON.stringify(now())) return;
    shownFor = null;
    result.replaceChildren(el("p", HINT, "A setting was changed: compare again."));
    result.setAttribute("aria-busy", "false");
  };
  const button = buttonOf("Compare all normalisers on the test examples", compare);
  return { node: el("div", { class: "try-compare" }, button, result), follow };
}

/** A change with its sign; 0 where it is not seen in the numbers. */
const signedChange = (change) =>
  Math.abs(change) < 5e-4 ? "0" : `${change > 0 ? "+" : ""}${tickText(change)}`;

/** The mean number of keys that get at least a hundredth of a query's weight. */
function keysOf(weights) {
  const keys = (q) => rowOf(weights, q).filter((weight) => weight >= 0.01).length;
  return meanOf(range(weights.rows).map(keys));
}
