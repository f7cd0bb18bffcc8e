// The path of a token through one head: its vectors, its scores and weights, and what the model
// would say if it ended after each block.

import { div, el, percent, plainTable, scrollBox, shown, svg } from "../dom.mjs";
import { weightText } from "./heat.mjs";
import { sign } from "./words.mjs";

const HEIGHT = 40; // units of a picture
const UNSEEN = 1e30; // the size of scores of tokens that are not seen

/** Numbers as bars, upwards where they are above 0. */
function barsOf(label, numbers) {
  const most = Math.max(...numbers.map(Math.abs)) || 1;
  const middle = numbers.some((own) => own < 0) ? HEIGHT / 2 : HEIGHT;
  const up = (own) => (middle - (middle - 1) * (own / most)).toFixed(1);
  const line = numbers.map((own, i) => `M${i + 0.5},${middle}V${up(own)}`).join("");
  const box = { viewBox: `0 0 ${numbers.length} ${HEIGHT}`, preserveAspectRatio: "none" };
  const named = { role: "img", "aria-label": label, class: "path-bars" };
  return svg("svg", { ...box, ...named }, svg("path", { d: line }));
}

/**
 * The path: `show(reply, attention, {of, at, key, isSeen})` draws it. `of` names the token, `at(k)`
 * a key, `key` is the one whose score and weight are written, and `isSeen(k)` is false if masked.
 */
export function tokenPath({ head }) {
  const title = el("h2", {}, "The path of a token");
  const body = div();
  const node = el("div", { class: "token-path" }, title, body);

  function show({ path, view, attention, scores }, { name, path: layer, queries }, about) {
    const { of, at, key, isSeen } = about;
    const isCross = layer === "cross_attention"; // which has no bias by distance
    const score = isCross ? { ...head, positions: null } : head;
    title.textContent = `The path of ${of} through head ${view.head} of ${name}`;
    const ofSeen = (score, k) => (isSeen(k) && Math.abs(score) < UNSEEN ? score : 0);
    const { signed } = attention[name];
    const vector = (own) => `${own.length} numbers, length ${shown(Math.hypot(...own))}`;
    const isGated = signed || head.output_gate;
    const normed = head.output_norm ? ", before the norm of the outputs" : "";
    const width = path.query.data.length;
    const rows = [
      ["residual", `the state before ${name.replace("cross", "decoder")}`, path.residual, vector],
      ["query", "what it looks for", path.query, vector],
      // keys of cross-attention are of other tokens
      path.key && ["key", "what queries are compared with", path.key, vector],
      path.value && ["value", "what others read from it", path.value, vector],
      scores && ["scores", scoreOf(score, width), { data: scores[name].data.map(ofSeen) }, (own) =>
        `${isSeen(key) ? shown(own[key]) : "masked"} with ${at(key)}`],
      ["weights", signed ? "without softmax" : "the scores, normalised", attention[name], (own) =>
        `${weightText(own[key], signed)} on ${at(key)}`],
      ["context", `values, summed by the weights${isGated ? ", and gated" : ""}`, path.context,
        vector],
      ["output", `what the head adds to the residual, context W_o${normed}`, path.output, vector],
    ];
    const terms = rows.filter(Boolean).flatMap(([term, what, own, say]) => {
      const numbers = [...own.data].map((value) => (Number.isFinite(value) ? value : 0));
      const note = el("span", { class: "hint" }, `${what}: ${say(own.data)}`);
      return [el("dt", {}, term), el("dd", {}, barsOf(`${term} of ${of}`, numbers), note)];
    });
    const after = afterBlocks(path.after, of, queries);
    body.replaceChildren(el("dl", { class: "path-terms" }, terms), after);
  }

  return { node, show };
}

/** How a model makes scores of queries and keys of some width. A scale of null is 1 / √width. */
export function scoreOf({ scale, softcap, positions }, width) {
  const own = scale ?? 1 / Math.sqrt(width);
  const isUsual = Math.abs(own * Math.sqrt(width) - 1) < 1e-6;
  const divided = own === 1 ? "q · k, not divided" : `q · k / ${shown(1 / own)}`;
  const product = isUsual ? `q · k / √${width}` : divided;
  const ofPositions = { rotary: ", after rotary positions", relative: ", plus a bias by distance" };
  const turned = ofPositions[positions] ?? "";
  return `${product}${turned}${softcap ? `, capped at ±${softcap}` : ""}`;
}

/** The largest pairs of parts whose products add up to a score, as a table. */
export function largestPairs(pairs, of, at) {
  if (!pairs) return "";
  const { number, total, largest } = pairs;
  const sum = `The score of ${of} with ${at} is ${shown(total)}, the sum of ${number} products ` +
    "of what two earlier parts of the model added";
  const rows = largest.map(([query, key, value]) => [shown(value), partName(query), partName(key)]);
  const names = ["adds", `part of ${of}`, `part of ${at}`];
  return div(el("p", { class: "try-title" }, `${sum}. The largest:`),
    scrollBox(sum, plainTable(sum, names, rows)));
}

/** A part of a state, such as `blocks_2/attention[3]`, in words. */
export function partName(part) {
  const [, block, head] = part.match(/^blocks_(\d+)\/(?:attention\[(\d+)\]|.*)$/) ?? [];
  if (block === undefined) return { bias: "biases" }[part] ?? part;
  return head === undefined ? `network of block ${block}` : `head ${head} of block ${block}`;
}

/** The likeliest tokens after each block, as a table; an empty text where they are not known. */
function afterBlocks(after, token, queries) {
  if (!after) return "";
  const places = after[0].map((_, i) => (i ? `no. ${i + 1}` : "likeliest"));
  const stack = queries === "target" ? "decoder" : "block";
  const named = (i) => (i ? `${stack} ${i - 1}` : "embedding");
  const written = ([name, share]) => `${sign(name)} ${percent(share)}`;
  const rows = after.map((best, i) => [named(i), ...best.map(written)]);
  const caption = queries === "target"
    ? `What would be written in place of ${token} if the decoder ended after each block`
    : `What would follow ${token} if the model ended after each block`;
  const table = plainTable(caption, ["after", ...places], rows);
  table.classList.add("after-blocks");
  const box = scrollBox(caption, table);
  box.classList.add("head-box"); // a model may have many blocks
  return div(el("p", { class: "try-title" }, caption), box);
}
