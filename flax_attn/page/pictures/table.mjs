// Results of runs: a table that can be sorted, the best in bold.

import { asNumber, el, scrollBox, shown } from "../dom.mjs";

const FALLS = ["mse", "loss", "error", "perplexity", "mae"]; // metrics whose best is the least
const COUNTS = ["parameters", "seeds", "steps", "minutes"];

/** Whether less of a metric is better, by the last part of its name. */
export function isError(metric) {
  const base = metric.split("/").at(-1);
  return FALLS.some((name) => base.includes(name));
}

/** Runs that can be compared stand in one table: of the same task, data, files and metric. */
export function groupsOf(runs) {
  const groups = new Map();
  for (const run of runs) {
    const key = JSON.stringify([run.input, run.target, run.data, run.files, run.measured]);
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()];
}

/** The table of runs that can be compared. */
export function resultsTable(runs) {
  const columns = columnsOf(runs);
  const body = el("tbody");
  const state = { column: null, falls: false };
  const heads = columns.map((column, i) => {
    const press = () => {
      state.falls = state.column === i ? !state.falls : false;
      state.column = i;
      draw();
    };
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
    const button = el("button", { type: "button", onclick: press }, breakable(column.name), arrow);
    return el("th", { scope: "col" }, runs.length > 1 ? button : breakable(column.name));
  });
  const draw = () => {
    const sorting = runs.length > 1 ? heads : []; // one run has no order
    sorting.forEach((head, i) => {
      const isSorted = state.column === i;
      const order = state.falls ? "descending" : "ascending";
      head.setAttribute("aria-sort", isSorted ? order : "none");
      head.querySelector(".arrow").textContent = isSorted ? (state.falls ? " ↓" : " ↑") : "";
    });
    const sorted = [...runs];
    if (state.column !== null) {
      const { value } = columns[state.column];
      const sense = state.falls ? -1 : 1;
      sorted.sort((a, b) => sense * compareCells(value(a), value(b)));
    }
    body.replaceChildren(...sorted.map((run) => tableRow(run, columns, runs)));
  };
  draw();
  const caption = `${runs[0].measured} on test data and further results of ${namesOf(runs)}`;
  const table = el("table", { class: runs.length > 1 ? "results stacked" : "results stacked lone" },
    el("caption", { class: "aside" }, caption), el("thead", {}, el("tr", {}, heads)), body,
  );
  return scrollBox(`Results of ${namesOf(runs)}`, table);
}

/** Whether the last epoch of a run has another result than what was kept. */
function hasLast(run) {
  const measured = `test/${run.measured}`;
  const last = run.summary[`last/${measured}`];
  return last !== undefined && last.mean !== run.summary[measured].mean;
}

/** What the columns of results mean, for a line below the tables. */
export function aboutColumns(runs) {
  const last = runs.some(hasLast) ? " Last: after the last epoch." : "";
  return (
    "Kept: with the parameters that were kept, those of the best epoch on validation data or of " +
    `the last one.${last} Median of last 10 epochs: of all seeds together, so that one lucky ` +
    "epoch does not decide."
  );
}

/** A name that may break behind its strokes and underscores, and nowhere else in a word. */
function breakable(name) {
  const [first, ...others] = name.split(/(?<=[/_])/);
  return [first, ...others.flatMap((part) => [el("wbr"), part])];
}

const namesOf = (runs) =>
  runs.length > 3 ? `${runs.length} runs` : runs.map((run) => run.name).join(", ");

function compareCells(one, other) {
  if (typeof one === "string" || typeof other === "string")
    return String(one).localeCompare(String(other));
  if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other);
  return one - other;
}

/** The columns: name, value to sort by, and what is written. */
function columnsOf(runs) {
  const measured = `test/${runs[0].measured}`;
  const columns = [{ name: "run", value: (run) => run.name, write: (run) => run.name }];
  for (const name of COUNTS)
    columns.push({ name, value: (run) => run[name], write: (run) => shown(run[name]) });
  const kept = (run) => run.summary[measured];
  const last = (run) => run.summary[`last/${measured}`] ?? kept(run);
  const late = (run) => ({ mean: run.late, std: null, values: [] });
  columns.push(measure(`${measured}, kept`, kept, measured));
  if (runs.some(hasLast)) columns.push(measure("last", last, measured));
  columns.push(measure("median of last 10 epochs", late, measured));
  const rest = new Set(runs.flatMap((run) => Object.keys(run.summary)));
  rest.delete(measured);
  for (const name of rest)
    if (name.includes("test/") && !name.startsWith("last/"))
      columns.push(measure(name, (run) => run.summary[name], name));
  return columns;
}

function measure(name, of, metric) {
  const value = (run) => asNumber(of(run)?.mean);
  const write = (run) => {
    const metric = of(run);
    if (!metric) return "–";
    const many = metric.values.length > 1;
    const deviation = many ? ` ±\u00a0${Number(asNumber(metric.std).toPrecision(1))}` : "";
    return `${fourDigits(asNumber(metric.mean))}${deviation}`;
  };
  return { name, value, write, falls: isError(metric) };
}

/** Four significant digits, as `flax-attn compare` writes them. */
const fourDigits = (number) =>
  Number.isFinite(number) ? String(Number(number.toPrecision(4))) : String(number);

function tableRow(run, columns, runs) {
  const [first, ...others] = columns;
  const cells = others.map((column) => {
    const text = column.write(run);
    const values = runs.map(column.value).filter(Number.isFinite);
    const best = column.falls ? Math.min(...values) : Math.max(...values);
    const isBest = "falls" in column && runs.length > 1 && column.value(run) === best;
    return el("td", { "data-name": column.name }, isBest ? el("strong", {}, text) : text);
  });
  return el("tr", {}, el("th", { scope: "row", dir: "auto" }, breakable(first.write(run))), cells);
}
