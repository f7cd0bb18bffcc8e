// The path of a token through one head: its vectors, its scores and weights, and what the model
// would say if it ended after each block.

import { div, el, percent, plainTable, scrollBox, shown, svg } from "../dom.mjs";
import { indexOfLargest } from "../lists.mjs";
import { weightText } from "./heat.mjs";
import { sign } from "./words.mjs";

const HEIGHT = 40; // units of a picture

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

/** The path: `show(reply, name, tokens)` draws it, and `clear()` where there is none. */
export function tokenPath() {
  const title = el("h3", {});
  const body = div();
  const node = el("div", { class: "token-path" }, title, body);
  const clear = () => {
    node.hidden = true;
  };

  function show({ path, view, attention, scores }, name, tokens) {
    if (!path) return clear();
    node.hidden = false;
    const token = `“${sign(tokens[view.token])}”`;
    title.textContent = `The path of ${token} through ${name}, head ${view.head}`;
    const list = (own) => [...own.data];
    const weights = list(attention[name]);
    const size = (own) => shown(Math.hypot(...own));
    const vector = (own) => `${own.length} numbers, length ${size(own)}`;
    const best = indexOfLargest(weights.map(Math.abs));
    const rows = [
      ["embedding", "what the token is, before the first block", list(path.embedding), vector],
      ["query", "what it looks for", list(path.query), vector],
      ["key", "what queries are compared with", list(path.key), vector],
      scores && ["scores", "its query times the key of each token", list(scores[name]), largestIn],
      ["weights", scores ? "the scores, normalised" : "without softmax", weights, (own) =>
        `${weightText(own[best], attention[name].signed)} on “${sign(tokens[best])}”`],
      ["context", "what it takes from the tokens, by their weights", list(path.context), vector],
    ];
    const terms = rows.filter(Boolean).flatMap(([term, what, own, say]) => {
      const numbers = own.map((value) => (Number.isFinite(value) ? value : 0));
      const note = el("span", { class: "hint" }, `${what}: ${say(own)}`);
      return [el("dt", {}, term), el("dd", {}, barsOf(`${term} of ${token}`, numbers), note)];
    });
    body.replaceChildren(el("dl", { class: "path-terms" }, terms), afterBlocks(path.after, token));
  }

  return { node, show, clear };
}

/** The largest score that is a number: tokens that are not seen have none. */
function largestIn(scores) {
  const own = scores.filter((score) => Math.abs(score) < 1e30);
  return `the largest is ${shown(Math.max(...own))}`;
}

/** The likeliest tokens after each block, as a table; an empty text where they are not known. */
function afterBlocks(after, token) {
  if (!after) return "";
  const places = after[0].map((_, i) => (i ? `no. ${i + 1}` : "likeliest"));
  const named = (i) => (i ? `block${i}` : "embedding");
  const written = ([name, share]) => `${sign(name)} ${percent(share)}`;
  const rows = after.map((best, i) => [named(i), ...best.map(written)]);
  const caption = `What would follow ${token} if the model ended after each block`;
  const table = plainTable(caption, ["after", ...places], rows);
  table.classList.add("after-blocks");
  const box = scrollBox(caption, table);
  box.classList.add("head-box"); // a model may have many blocks
  return div(el("p", { class: "try-title" }, caption), box);
}
