// What the views of several kinds of task share.

import { chooser, el, numbered } from "./dom.mjs";
import { headOf, legend, paint } from "./heat.mjs";

export const PIXELS = 4; // of a cell, so that stripes can be told from a colour

/** The weights of one attention and head in a reply, or null. */
export function weightsIn(reply, name, head) {
  const own = reply.attention?.[name];
  return own ? headOf(own, Math.min(head, own.shape[0] - 1)) : null;
}

/** The scores of one attention and head in a reply, or null. */
export function scoresIn(reply, name, head) {
  const own = reply.scores?.[name];
  return own ? headOf(own, Math.min(head, own.shape[0] - 1)) : null;
}

/** Which attention and head is shown: lists, where there is a choice. */
export function headChooser(run, onChoice) {
  const names = run.attention.map((own) => own.name);
  const now = { name: names.at(-1) ?? null, head: 0 };
  const heads = el("div", {});
  const choose = (part) => {
    Object.assign(now, part);
    onChoice(now);
  };
  const offerHeads = () => {
    const own = run.attention.find(({ name }) => name === now.name);
    const count = own?.heads ?? 0;
    now.head = 0;
    const list = numbered(own?.of ?? "head", count, 0, (head) => choose({ head }));
    heads.replaceChildren(...(count > 1 ? [list.node] : []));
  };
  offerHeads();
  const list = chooser("attention", names, names.length - 1, (i) => {
    now.name = names[i];
    offerHeads();
    choose({});
  });
  const hasChoice = names.length > 1 || (run.attention[0]?.heads ?? 0) > 1;
  const node = el("div", { class: "controls" }, names.length > 1 ? list : null, heads);
  return { node: hasChoice ? node : null, now };
}

/** Whether queries and keys are one sequence in an attention of a run, and how long it is. */
export function isBetween(run) {
  const shapes = Object.values(run.examples[0]?.attention ?? {}).map((own) => own.shape);
  return shapes.some(([, q, k]) => q === k && k > 1);
}

/** A legend that follows the largest weight, and says when keys are hidden: `{node, to(...)}`. */
export function movingLegend() {
  const node = el("div", {});
  const to = (top, masked = false) => node.replaceChildren(legend(top, masked));
  return { node, to };
}

/** The examples of a run that a reader can begin with. */
export const offered = (run) => run.examples.slice(0, 8);

/** Buttons for the examples of a run, to begin with. */
export function exampleChooser(run, onChoice, first = 0) {
  const count = offered(run).length;
  if (count < 2) return null;
  return numbered("begin with example", count, first, onChoice, (i) => `example ${i}`).node;
}

/** A canvas that is one row of weights; keys that are not visible are hatched. */
export function strip(name) {
  const canvas = el("canvas", { class: "try-strip", role: "img", "aria-label": name });
  const show = (weights, q, isVisible = () => true) => {
    const { columns } = weights; // five rows, so that stripes are not stretched
    const row = { rows: 5, columns, at: (_, k) => weights.at(q, k) };
    paint(canvas, row, { finest: PIXELS * Math.max(columns, 5), visible: (_, k) => isVisible(k) });
  };
  return { canvas, show };
}

/**
 * Kendall's tau-b of two lists: 1 where they have the same order, -1 where they are reversed. NaN
 * where one of them is constant.
 */
export function kendall(one, other) {
  let [agree, oneTied, otherTied, pairs] = [0, 0, 0, 0];
  for (let i = 0; i < one.length; i++)
    for (let j = 0; j < i; j++) {
      const [a, b] = [Math.sign(one[i] - one[j]), Math.sign(other[i] - other[j])];
      agree += a * b;
      oneTied += a === 0;
      otherTied += b === 0;
      pairs += 1;
    }
  return agree / Math.sqrt((pairs - oneTied) * (pairs - otherTied));
}

/** What a tau says, in words. */
export function agreement(tau) {
  if (!Number.isFinite(tau)) return "cannot be compared";
  if (tau > 0.6) return "agree well";
  if (tau > 0.3) return "agree in part";
  if (tau > -0.3) return "hardly agree";
  return "contradict each other";
}

/** The packed bytes of a report, deflated and in base64. */
export async function bytesOf(data) {
  const packed = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
