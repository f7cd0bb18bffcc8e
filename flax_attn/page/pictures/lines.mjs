// Tokens on two sides, and lines between them as thick as the weight.

import { scrollBox, svg } from "../dom.mjs";
import { signedTop } from "./heat.mjs";
import { cutText, inBrackets, sign } from "./words.mjs";

export const LEAST_LINE = 0.02; // the least weight that has a line
const MOST_QUIET = 500; // lines of all queries, the strongest, so that one is found among them
const NARROW = 500; // pixels of a window in which tokens stand one below another
const ABOVE = 20;
const BELOW = 150;
const LINES_HEIGHT = 172;
const WORD_GAP = 16;
const SIDE = 24; // pixels of what is pressed, at least
const LETTER = 8.6; // pixels of a letter of the fixed width that the words are written in
const LINE_STEP = 24; // pixels from token to token downwards
const ACROSS = 150; // pixels from the left tokens to those on the right
const LONGEST_LEFT = 16; // letters of a token that stands at a side

/**
 * Lines from each word below, a query, to the words above, its keys. `onPoint(q, k)` is called
 * for what is pointed at; k is null for a word below. Keys that can be pressed have
 * `pressed: {onPick(k), hidden, known}`. Returns `{node, picture, show(weights, q)}`.
 */
export function linesBetween(label, above, below, onPoint, pressed = null) {
  if (window.innerWidth < NARROW) return linesAcross(label, below, above, onPoint, pressed);
  const texts = [writtenKeys(above, pressed), below.map(sign)];
  const [tops, bottoms] = texts.map(spread);
  const width = Math.max(tops.width, bottoms.width);
  const shift = [(width - tops.width) / 2, (width - bottoms.width) / 2];
  const anchor = "middle";
  const keys = above.map((token, k) => {
    const x = tops.middles[k] + shift[0];
    return { token, text: texts[0][k], x, y: ABOVE, anchor, end: [x, ABOVE + 8] };
  });
  const queries = below.map((token, q) => {
    const x = bottoms.middles[q] + shift[1];
    return { token, text: texts[1][q], x, y: BELOW + 10, anchor, end: [x, BELOW - 8] };
  });
  return lined(label, queries, keys, { width, height: LINES_HEIGHT }, onPoint, pressed);
}

/** As `linesBetween`, from queries at the left to keys at the right: for many or long tokens. */
export function linesAcross(label, left, right, onPoint, pressed = null) {
  const short = (texts) => texts.map((text) => cutText(text, LONGEST_LEFT));
  const [own, other] = [short(left.map(sign)), short(writtenKeys(right, pressed))];
  const width = (all) => Math.max(...all.map(widthOf));
  const [from, to] = [width(own) + WORD_GAP, width(own) + WORD_GAP + ACROSS];
  const longest = Math.max(left.length, right.length);
  const side = (tokens, cut, x, anchor, gap) =>
    tokens.map((token, i) => {
      const middle = LINE_STEP * (i + 0.5 + (longest - tokens.length) / 2);
      const place = { x, y: middle + 5, anchor, end: [x + gap, middle] };
      return { token, text: cut[i], ...place };
    });
  const size = { width: to + width(other) + WORD_GAP, height: LINE_STEP * longest };
  const queries = side(left, own, from, "end", 7);
  const made = lined(label, queries, side(right, other, to, "start", -7), size, onPoint, pressed);
  made.picture.classList.add("across");
  return made;
}

const writtenKeys = (tokens, pressed) =>
  tokens.map((token, k) => (pressed?.known?.[k] === false ? inBrackets(token) : sign(token)));

/** Draws tokens at their places, and lines between them. */
function lined(label, queries, keys, { width, height }, onPoint, pressed = null) {
  const [quiet, chosen] = [svg("g", { class: "weights" }), svg("g", {})]; // the one above the other
  const state = { q: 0, weights: null, top: 1 };
  const rowOfKeys = keys.map((place, k) => tokenOn(place, () => onPoint(state.q, k)));
  const rowOfQueries = queries.map((place, q) => tokenOn(place, () => onPoint(q, null), q));
  keysAlong(rowOfQueries);
  if (pressed) makeKeys(rowOfKeys, pressed);
  const picture = svg("svg", { class: "lines", width, height, viewBox: `0 0 ${width} ${height}` },
    quiet, chosen,
    svg("g", pressed ? group("keys; press one to mask it") : { "aria-hidden": "true" }, rowOfKeys),
    svg("g", group(label), rowOfQueries),
  );

  const sizeOf = (weights, q, k) => Math.abs(weights.at(q, k)) / state.top;
  const strong = (weights, q) =>
    keys
      .map((_, k) => [q, k, sizeOf(weights, q, k), weights.at(q, k) < 0])
      .filter(([, , size]) => size >= LEAST_LINE);

  const lineOf = ([q, k, size, isBelow], look) => {
    const [[x1, y1], [x2, y2]] = [queries[q].end, keys[k].end];
    const name = isBelow ? `${look} negative` : look;
    return svg("line", { x1, y1, x2, y2, class: name, "stroke-width": 0.5 + 7 * size });
  };

  const show = (weights, q) => {
    if (weights !== state.weights) {
      state.top = signedTop(weights) ?? 1;
      const all = queries.flatMap((_, i) => strong(weights, i)).sort(([, , a], [, , b]) => b - a);
      quiet.replaceChildren(...all.slice(0, MOST_QUIET).map((own) => lineOf(own, "weight")));
    }
    Object.assign(state, { q, weights });
    chosen.replaceChildren(...strong(weights, q).map((own) => lineOf(own, "weight chosen")));
    rowOfQueries.forEach((node, i) => node.setAttribute("aria-pressed", String(i === q)));
    rowOfKeys.forEach((node, k) => node.classList.toggle("read", sizeOf(weights, q, k) >= 0.1));
  };
  return { node: scrollBox(`${label}: lines`, picture), picture, show };
}

const group = (label) => ({ role: "group", "aria-label": label });

/** Makes keys buttons that are pressed where they are masked. */
function makeKeys(nodes, { onPick, hidden }) {
  nodes.forEach((node, k) => {
    const attributes = { role: "button", tabindex: k ? -1 : 0, "aria-pressed": hidden.includes(k) };
    for (const [name, value] of Object.entries({ ...attributes, "aria-label": node.textContent }))
      node.setAttribute(name, value);
    node.classList.toggle("masked", hidden.includes(k));
    node.addEventListener("click", () => onPick(k));
    node.addEventListener("keydown", ({ key }) => ["Enter", " "].includes(key) && onPick(k));
  });
  keysAlong(nodes);
}

const widthOf = (text) => Math.max(LETTER * [...text].length, LETTER);

/** Where the middles of words are, one beside another. */
function spread(texts) {
  let x = WORD_GAP;
  const middles = texts.map((text) => {
    const width = widthOf(text);
    const middle = x + width / 2;
    x += width + WORD_GAP;
    return middle;
  });
  return { middles, width: x };
}

function tokenOn({ token, text, x, y, anchor }, onPoint, q = null) {
  const attributes = { class: "token", onpointerenter: onPoint, onpointerdown: onPoint };
  if (q !== null) Object.assign(attributes, { role: "button", "aria-label": token });
  if (q !== null) Object.assign(attributes, { tabindex: q ? -1 : 0, onfocus: onPoint });
  const written = svg("text", { x, y, "text-anchor": anchor }, text);
  const half = Math.max((LETTER * [...text].length) / 2 + 4, SIDE / 2);
  const left = { middle: x - half, start: x - 4, end: x - 2 * half + 4 }[anchor];
  const ground = svg("rect", { x: left, y: y - 17, width: 2 * half, height: SIDE, rx: 4 });
  return svg("g", attributes, ground, written);
}

/** Arrow keys move the focus among tokens. */
function keysAlong(nodes) {
  nodes.forEach((node, i) =>
    node.addEventListener("keydown", (event) => {
      const [before, after] = [i - 1, i + 1];
      const across = { ArrowLeft: before, ArrowRight: after, ArrowUp: before, ArrowDown: after };
      const aim = { ...across, Home: 0, End: nodes.length - 1 }[event.key];
      if (aim === undefined || !nodes[aim]) return;
      event.preventDefault();
      nodes.forEach((other, j) => other.setAttribute("tabindex", j === aim ? "0" : "-1"));
      nodes[aim].focus();
    }),
  );
}
