// Scales and ticks of the charts, linear or logarithmic, and positions that are pointed at.

import { el, onWidth, sentence, shown, svg } from "../dom.mjs";

export const DASHES = ["", "7 4", "2 3", "10 3 2 3", "1 5", "12 4 4 4"]; // of several runs
const DIGIT = 8; // pixels, an upper bound for a character of a label

/** A scale from values `low` to `high` onto pixels `from` to `to`. */
export function scale(low, high, from, to, isLog = false) {
  const bend = isLog ? Math.log10 : (value) => value;
  const [first, last] = [bend(low), bend(high)];
  const size = last - first || 1;
  const place = (value) => from + ((bend(value) - first) / size) * (to - from);
  const value = (pixel) => {
    const bent = first + ((pixel - from) / (to - from)) * size;
    return isLog ? 10 ** bent : bent;
  };
  return { place, value, ticks: isLog ? logTicks(low, high) : ticks(low, high) };
}

/** About five round numbers from `low` to `high`. */
export function ticks(low, high, count = 5) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const places = [];
  for (let i = first; i * step <= high + step * 1e-9; i++) places.push(i * step);
  return places.map((place) => Number(place.toPrecision(12)));
}

/** Powers of ten, with 2 and 5 between them where there are few. */
function logTicks(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const factors = last - first > 3 ? [1] : [1, 2, 5];
  const places = [];
  for (let power = first; power <= last; power++)
    for (const factor of factors) places.push(Number(`${factor}e${power}`));
  return places.filter((place) => place >= low * 0.999 && place <= high * 1.001);
}

/** The ticks, lines and names of both axes inside a box `{left, right, top, bottom}`. */
export function drawAxes(across, up, box, names) {
  const marks = svg("g", { class: "axes" });
  for (const value of up.ticks) {
    const y = up.place(value);
    marks.append(
      svg("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: "grid" }),
      svg("text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, shown(value)),
    );
  }
  for (const { x, anchor, text } of roomy(across, box.right)) {
    marks.append(
      svg("line", { x1: x, x2: x, y1: box.bottom, y2: box.bottom + 4, class: "tick" }),
      svg("text", { x, y: box.bottom + 18, "text-anchor": anchor }, text),
    );
  }
  const middle = (box.left + box.right) / 2;
  marks.append(
    svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "tick" }),
    svg("text", { x: middle, y: box.bottom + 36, "text-anchor": "middle" }, names.across),
    svg("text", { x: box.left - 6, y: box.top - 10, class: "up-name" }, names.up),
  );
  return marks;
}

/** The labels across: of every tick, or of each second, third, ... if they would run together. */
export function roomy({ ticks, place }, right) {
  const all = ticks.map((value) => {
    const [x, text] = [place(value), shown(value)];
    const [isLast, wide] = [x > right - 18, DIGIT * text.length];
    const from = isLast ? x - wide : x - wide / 2;
    // the last label would be cut at the edge
    return { x, text, anchor: isLast ? "end" : "middle", from, to: from + wide };
  });
  const fit = (some) => some.every(({ from }, i) => !i || from > some[i - 1].to);
  let [every, some] = [1, all];
  while (!fit(some)) {
    every += 1;
    some = all.filter((_, i) => i % every === 0);
  }
  return some;
}

/** The path of a line through points; it has a gap where a value is not a number. */
export function path(xs, ys, across, up) {
  let isDown = false;
  const parts = [];
  xs.forEach((x, i) => {
    const y = up.place(ys[i]);
    if (!Number.isFinite(y)) {
      isDown = false;
      return;
    }
    parts.push(`${isDown ? "L" : "M"}${across.place(x).toFixed(1)} ${y.toFixed(1)}`);
    isDown = true;
  });
  return parts.join("");
}

/** The scale of positions along a chart of this width. */
export const across = (length, width) => scale(0, length - 1, 44, width - 14);

/** Mouse, finger and arrow keys choose a position along a chart. */
export function pointAlong(chart, length, width, now, tell) {
  const follow = (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) * width()) / box.width;
    const { place } = across(length, width());
    const [first, last] = [place(0), place(length - 1)];
    const position = Math.round(((x - first) / (last - first)) * (length - 1));
    tell(Math.min(Math.max(position, 0), length - 1));
  };
  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  stepAlong(chart, length, now, tell);
}

/** Arrow keys, Home and End choose one of `count` places. */
export function stepAlong(node, count, now, tell) {
  node.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: now() - far, ArrowRight: now() + far, Home: 0, End: count - 1 };
    const aim = moves[event.key];
    if (aim === undefined) return;
    event.preventDefault();
    tell(Math.min(Math.max(aim, 0), count - 1));
  });
}

/**
 * A chart along which one of `length` positions is chosen, and the sentence that is said of it.
 *
 * `draw(chart, {q, width})` draws it with the position q marked; `say(q, k)` is the sentence, on
 * what a map points at, or on q alone where k is null; `mark(q, k)` hears both. `label` names the
 * chart. Returns `{chart, said, state, tell(q, k)}`, which has told the first position.
 */
export function chartAlong({ look, label, length, first, draw, say, mark = () => {} }) {
  const state = { q: first, width: 640 };
  const said = sentence();
  const chart = svg("svg", { class: `chart ${look}`, tabindex: 0, role: "img" });
  const tell = (q, k = null) => {
    state.q = q;
    said.say(say(q, k));
    chart.setAttribute("aria-label", `${label}. ${said.text()}`);
    mark(q, k);
    draw(chart, state);
  };
  pointAlong(chart, length, () => state.width, () => state.q, tell);
  onWidth(chart, (width) => {
    state.width = width;
    draw(chart, state);
  });
  tell(first);
  return { chart, said, state, tell };
}

/** The key of a chart: `[name, look, dash]` of each line, and further entries. */
export function keyOf(lines, ...further) {
  const entries = lines.map(([name, look, dash]) => {
    const line = { x1: 1, x2: 33, y1: 6, y2: 6, class: `line ${look}`, "stroke-dasharray": dash };
    const picture = { width: 34, height: 12, "aria-hidden": "true" };
    const sample = svg("svg", picture, svg("line", line));
    return el("li", {}, sample, el("span", { dir: "auto" }, name));
  });
  return el("ul", { class: "key" }, entries, further);
}
