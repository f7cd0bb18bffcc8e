// A plot whose handles are dragged with mouse, finger or arrow keys.

import { el, onDrag, setStyle, svg } from "../dom.mjs";

const ROOM = 4; // per cent of the height above and below the curves

/** The path of numbers, one a step; `at` gives the point of a step and a number. */
function pathOf(values, at) {
  return values
    .map((value, t) => `${t ? "L" : "M"}${at(t, value).map((x) => x.toFixed(2))}`)
    .join("");
}

/**
 * An empty plot of `length` steps, with heights from `low` to `high`.
 *
 * Returns `{node, field, line(name, values), arcs(arcs), cursor(t), x(t), y(height),
 * where(event)}`.
 */
export function plot({ length, low, high, ticks, name, lines }) {
  const x = (t) => (100 * (t + 0.5)) / length;
  const y = (value) => ROOM + ((100 - 2 * ROOM) * (high - value)) / (high - low);
  const drawings = Object.fromEntries(
    lines.map((own) => [own, svg("path", { class: `try-line try-${own}` })]),
  );
  const bands = svg("g", {});
  const mark = svg("line", { class: "try-step", y1: 0, y2: 100, hidden: true });
  const grid = ticks.map((tick) =>
    svg("line", { class: "grid", x1: 0, x2: 100, y1: y(tick), y2: y(tick) }),
  );
  const picture = svg("svg",
    { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": name }, grid,
    mark, bands, Object.values(drawings),
  );
  const labels = ticks.map((tick) =>
    el("span", { class: "try-tick", style: { top: `${y(tick)}%` } }, String(tick)),
  );
  const field = el("div", { class: "try-field" }, picture);
  const node = el("div", { class: "try-plot" },
    el("div", { class: "try-ticks", "aria-hidden": "true" }, labels), field,
  );
  const line = (own, values) =>
    drawings[own].setAttribute("d", values ? pathOf(values, (t, v) => [x(t), y(v)]) : "");
  const arcs = (arcsNow) =>
    bands.replaceChildren(
      ...arcsNow.map(({ from, to, height, other, width, isNegative }) => {
        const middle = Math.max(y(Math.max(height, other)) - 34, 2);
        const ends = [`M${x(from)},${y(height)}`, `${x(to)},${y(other)}`];
        const d = `${ends[0]}C${x(from)},${middle} ${x(to)},${middle} ${ends[1]}`;
        const look = isNegative ? "try-band negative" : "try-band";
        return svg("path", { class: look, d, "stroke-width": width });
      }),
    );
  const cursor = (t) => {
    for (const end of ["x1", "x2"]) mark.setAttribute(end, x(t));
    mark.removeAttribute("hidden");
  };
  const where = (event) => {
    const box = field.getBoundingClientRect();
    const across = ((event.clientX - box.left) / box.width) * length - 0.5;
    const down = (100 * (event.clientY - box.top)) / box.height;
    return [across, high - ((down - ROOM) * (high - low)) / (100 - 2 * ROOM)];
  };
  return { node, field, line, arcs, cursor, x, y, where };
}

/**
 * A handle on a plot. `onMove(t, height)` hears where it is dragged, `onStep(right, up)` what the
 * arrow keys add. Returns `{node, place(t, height, spoken)}`.
 */
export function handle(own, { name, mark, kind, limits, onMove, onStep, onPick }) {
  const node = el("div",
    {
      class: `try-handle try-${kind}`,
      role: "slider",
      tabindex: 0,
      "aria-label": name,
      "aria-orientation": "vertical",
      "aria-valuemin": limits[0],
      "aria-valuemax": limits[1],
    },
    el("span", { "aria-hidden": "true" }, mark),
  );
  let grip = [0, 0]; // from the pointer to the middle of the handle
  let at = [0, 0];
  const begin = (event) => {
    const [t, height] = own.where(event);
    grip = [at[0] - t, at[1] - height];
    event.preventDefault();
    node.focus({ preventScroll: true });
  };
  const move = (event) => {
    const [t, height] = own.where(event);
    onMove(t + grip[0], height + grip[1]);
  };
  onDrag(node, begin, move);
  node.addEventListener("focus", () => onPick());
  node.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 5 : 1;
    const steps = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, far] };
    const step = { ...steps, ArrowDown: [0, -far], PageUp: [0, 5], PageDown: [0, -5] }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    onStep(...step);
  });
  own.field.append(node);
  const place = (t, height, spoken) => {
    at = [t, height];
    setStyle(node, { left: `${own.x(t)}%`, top: `${own.y(height)}%` });
    node.setAttribute("aria-valuenow", height.toFixed(1));
    node.setAttribute("aria-valuetext", spoken);
  };
  return { node, place };
}
