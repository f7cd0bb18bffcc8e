// What stands around the picture of a signal: signs along a map, and the key of the lines.

import { el } from "../dom.mjs";

/** A map with the signs of the shapes along its top and its left side. */
export function withMarks(map) {
  const [top, left] = ["top", "left"].map((side) =>
    el("div", { class: `try-marks-${side}`, "aria-hidden": "true" }),
  );
  const node = el("div", { class: "try-marked" }, top, left, map);
  const show = (marks) => {
    const along = (edge) =>
      marks.map(([kind, sign, place]) =>
        el("span", { class: `try-${kind}`, style: { [edge]: `${place}%` } }, sign),
      );
    top.replaceChildren(...along("left"));
    left.replaceChildren(...along("top"));
  };
  return { node, show };
}

/** What the lines of a plot are. */
export function signalKey(runs) {
  const entry = (name, what) => el("li", {}, el("span", { class: `try-swatch try-${name}` }), what);
  return el(
    "ul",
    { class: "key" },
    entry("input", "signal"),
    entry("target", "right answer"),
    runs.map((run, i) => entry(`answer-${i}`, runs.length > 1 ? run.name : "the model's answer")),
  );
}
