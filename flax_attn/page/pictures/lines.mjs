// Words above, words below, and lines between them as thick as the weight.

import { scrollBox, svg } from "../dom.mjs";
import { sign } from "./words.mjs";

const LEAST_LINE = 0.02; // the least weight that has a line
const ABOVE = 20;
const BELOW = 150;
const LINES_HEIGHT = 172;
const WORD_GAP = 14;
const LETTER = 8.6; // pixels of a letter of the fixed width that the words are written in

/**
 * Lines from each word below, a query, to the words above, its keys. `onPoint(q, k)` is called
 * for what is pointed at; k is null for a word below. Returns `{node, show(weights, q)}`.
 */
export function linesBetween(label, above, below, onPoint) {
  const [tops, bottoms] = [spread(above), spread(below)];
  const width = Math.max(tops.width, bottoms.width);
  const shift = [(width - tops.width) / 2, (width - bottoms.width) / 2];
  const paths = svg("g", { class: "weights" });
  const state = { q: 0 };
  const rowAbove = above.map((token, k) =>
    tokenOn(token, tops.middles[k] + shift[0], ABOVE, () => onPoint(state.q, k)),
  );
  const rowBelow = below.map((token, q) =>
    tokenOn(token, bottoms.middles[q] + shift[1], BELOW + 10, () => onPoint(q, null), q),
  );
  keysAlong(rowBelow, (q) => onPoint(q, null));
  const picture = svg(
    "svg",
    { class: "lines", width, height: LINES_HEIGHT, viewBox: `0 0 ${width} ${LINES_HEIGHT}` },
    paths,
    svg("g", { "aria-hidden": "true" }, rowAbove),
    svg("g", { role: "group", "aria-label": label }, rowBelow),
  );
  const show = (weights, q) => {
    state.q = q;
    const from = (i) => bottoms.middles[i] + shift[1];
    const to = (k) => tops.middles[k] + shift[0];
    const made = [];
    for (let i = 0; i < weights.rows; i++)
      for (let k = 0; k < weights.columns; k++) {
        const weight = weights.at(i, k);
        if (!(weight >= LEAST_LINE)) continue;
        const look = i === q ? "weight chosen" : "weight";
        const line = { x1: from(i), y1: BELOW - 8, x2: to(k), y2: ABOVE + 8 };
        made.push(svg("line", { ...line, class: look, "stroke-width": 0.5 + 7 * weight }));
      }
    paths.replaceChildren(...made.filter((line) => !line.classList.contains("chosen")));
    paths.append(...made.filter((line) => line.classList.contains("chosen")));
    rowBelow.forEach((node, i) => node.setAttribute("aria-pressed", String(i === q)));
    rowAbove.forEach((node, k) => node.classList.toggle("read", weights.at(q, k) >= 0.1));
  };
  return { node: scrollBox(`${label}: lines`, picture), show };
}

/** Where the middles of words are, one beside another. */
function spread(tokens) {
  let x = WORD_GAP;
  const middles = tokens.map((token) => {
    const width = Math.max(LETTER * [...sign(token)].length, LETTER);
    const middle = x + width / 2;
    x += width + WORD_GAP;
    return middle;
  });
  return { middles, width: x };
}

function tokenOn(token, x, y, onPoint, q = null) {
  const attributes = { class: "token", onpointerenter: onPoint, onpointerdown: onPoint };
  if (q !== null) Object.assign(attributes, { role: "button", "aria-label": token });
  if (q !== null) Object.assign(attributes, { tabindex: q ? -1 : 0, onfocus: onPoint });
  const text = svg("text", { x, y, "text-anchor": "middle" }, sign(token));
  const half = (LETTER * [...sign(token)].length) / 2 + 4;
  const ground = svg("rect", { x: x - half, y: y - 16, width: 2 * half, height: 24, rx: 4 });
  return svg("g", attributes, ground, text);
}

/** Arrow keys move among the words below. */
function keysAlong(nodes, onPoint) {
  nodes.forEach((node, i) =>
    node.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: nodes.length - 1 };
      const aim = moves[event.key];
      if (aim === undefined || !nodes[aim]) return;
      event.preventDefault();
      nodes.forEach((other, j) => other.setAttribute("tabindex", j === aim ? "0" : "-1"));
      nodes[aim].focus();
      onPoint(aim);
    }),
  );
}
