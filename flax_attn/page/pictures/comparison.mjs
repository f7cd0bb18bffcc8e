// How sure the test figures of a run are, beside simple models, and which classes it confuses.

import { capital, el, percent, plainTable, scrollBox, setStyle, shown } from "../dom.mjs";

const HEADER = ["model", "mean", "difference", "so the run is"];
const NUMBERED = 16; // classes whose counts have room in a matrix

/** A sentence for each figure, in a line below what the run does. */
export const comparisonOf = ({ comparisons = [] }) =>
  comparisons.filter(({ sentence }) => sentence).map(({ sentence }) =>
    el("p", { class: "hint" }, `${capital(sentence)}.`));

/** A mean with its interval of 95 %, if it has one. */
const between = ({ mean, low, high }) =>
  low === undefined
    ? shown(mean)
    : `${shown(mean)} (${shown(low)} to ${shown(high)})`.replaceAll("-", "−");

/** The figures beside those of simple models, and the confusion of classes; null without any. */
export function figuresOf(run) {
  const tables = run.comparisons.map(({ metric, examples, rows, about }) => {
    const caption = `Test ${metric}, ${shown(examples)} examples, intervals of 95 %`;
    const written = rows.map(([name, own, difference, verdict]) =>
      [name, between(own), difference ? between(difference) : "", verdict]);
    const table = scrollBox(caption, plainTable(caption, HEADER, written, null));
    const hints = about.map((line) => el("p", { class: "hint" }, `${capital(line)}.`));
    return el("div", {}, table, hints);
  });
  const { confusion } = run.beside;
  if (confusion) tables.push(confusionOf(run.classes, confusion));
  return tables.length ? el("div", { class: "compared" }, tables) : null;
}

/** How often each true class, downwards, was predicted as each class, across. */
function confusionOf(names, counts) {
  const isNumbered = names.length <= NUMBERED;
  const caption = "Which class is taken for which: true classes downwards, predicted ones across";
  const header = ["true class", ...(isNumbered ? names : names.map((_, i) => i)), "recall"];
  const totals = counts.map((row) => row.reduce((sum, count) => sum + count, 0));
  const rows = counts.map((row, i) =>
    [names[i], ...row.map(shown), totals[i] ? percent(row[i] / totals[i]) : "–"]);
  const table = plainTable(caption, header, rows, null);
  [...table.tBodies[0].rows].forEach((line, i) =>
    [...line.cells].slice(1, -1).forEach((cell, j) => {
      const share = Math.round((50 * counts[i][j]) / Math.max(totals[i], 1));
      const colour = i === j ? "var(--green)" : "var(--orange)";
      setStyle(cell, { background: `color-mix(in srgb, ${colour} ${share}%, transparent)` });
    }));
  return scrollBox(caption, table);
}
