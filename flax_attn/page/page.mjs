// The page: for each run its name, a sentence with a number and its picture; then how all of them
// learned, the results, and how to make them again.

import { asNumber, capital, chooser, div, el } from "./dom.mjs";
import { newId, plainTable, scrollBox, shown } from "./dom.mjs";
import { following } from "./following.mjs";
import { openPage } from "./opening.mjs";
import { comparisonOf, figuresOf } from "./pictures/comparison.mjs";
import { chart, linesOf, metricsOf } from "./pictures/curves.mjs";
import { aboutColumns, groupsOf, isError, resultsTable } from "./pictures/table.mjs";
import { inputOf } from "./views.mjs";

const KEPT_ANSWERS = "Saved test examples. Changes above do not affect them.";

/** A part of the page under a heading that names it. */
export function part(level, heading, ...children) {
  const id = newId("part");
  return el("section", { "aria-labelledby": id }, el(level, { id }, heading), children);
}

/** The name of a run and its sentence. */
export const headingOf = ({ name, sentence, attention }) =>
  [namedBy(attention.length ? `Attention in ${name}` : name), ...figureOf(sentence)];

/** A sentence whose figure is large; what it compares with, in brackets, is not. */
function figureOf(sentence) {
  const [, large, small] = /^(.*?)( \(.*)?$/s.exec(unbroken(sentence));
  return small ? [large, el("span", { class: "compared-with" }, small)] : [large];
}

/** A sentence whose percentages stay on one line. */
const unbroken = (text) => capital(text).replaceAll(" %", "\u00a0%");

/** The small line above a heading. */
const namedBy = (name) => el("span", { class: "name", dir: "auto" }, name);

/** The part of a run. `live` is its model in the page; `isTriedAbove` if it is tried already. */
function runPart(run, isExplored, level, live, isTriedAbove) {
  const heading = isExplored ? `Test examples: ${run.name}` : headingOf(run);
  const under = level === "h1" ? "h2" : "h3";
  const picture = inputOf(run).picture(run, live?.beside);
  const children = [
    isExplored ? el("p", { class: "hint" }, KEPT_ANSWERS) : [comparisonOf(run), figuresOf(run)],
    live && !isTriedAbove ? triedPart(under, "Try it", live) : null,
    live ? part(under, "Test examples", picture) : picture,
    notesOn(run, isExplored),
  ];
  const made = part(level, heading, ...children.flat().filter(Boolean));
  made.classList.add("run");
  return made;
}

/** What is tried on a model in the page; there is none of it on paper. */
function triedPart(level, heading, live) {
  const made = part(level, heading, live.tried);
  made.classList.add("try-part");
  return made;
}

/** What the page cannot show without a model in it, in one line with the reason. */
function withoutModel({ live, note, attention }, isExplored) {
  if (live || isExplored || !attention.length) return note;
  return `${note ?? "The model is not in this page."} So the effect of masking is not shown.`;
}

/** Lines on what a page lacks. */
function notesOn(run, isExplored) {
  const lines = [...run.lines, withoutModel(run, isExplored)];
  if (!run.attention.length) lines.push("This model has no attention layers.");
  if (run.diverged.length) lines.push(`Left out: diverged seeds ${run.diverged.join(", ")}.`);
  return lines.filter(Boolean).map((line) => el("p", { class: "note" }, line));
}

function togetherParts(runs) {
  const inputs = [...new Set(runs.map(inputOf))];
  const views = inputs.flatMap((input) => input.together?.(runs) ?? []);
  return views.map((view) => part("h2", "One input, all predictions", view));
}

function learnedPart(runs) {
  const metrics = metricsOf(runs);
  if (!metrics.length) return part("h2", "How it learned", el("p", {}, "No metric was recorded."));
  const names = (up) => ({ across: "training step", up, at: "Step" });
  const drawn = (metric) => chart(linesOf(runs, metric), names(metric));
  const box = div(drawn(metrics[0]));
  const show = (i) => box.replaceChildren(drawn(metrics[i]));
  const figure = el("figure", {}, chooser("Metric", metrics, 0, show), box);
  return part("h2", runs.length > 1 ? "How they learned" : "How it learned", figure);
}

function resultsPart(runs) {
  const groups = groupsOf(runs);
  const note = "Runs of different tasks or data stand apart: their figures cannot be compared.";
  const tables = groups.map((group) => resultsTable(group));
  const about = el("p", { class: "hint" }, aboutColumns(runs));
  return part("h2", "Results", groups.length > 1 ? el("p", {}, note) : null, tables, about);
}

function changedTable(name, rows) {
  const label = `Keys that ${name} changes`;
  return scrollBox(label, plainTable(label, ["changed key", "here", "in the file"], rows));
}

function againPart(runs) {
  const blocks = runs.map((run) => {
    const changed = Object.entries(run.changes);
    const rows = changed.map(([key, pair]) => [key, ...pair.map((value) => JSON.stringify(value))]);
    const none = run.config_known ? "Default configuration." : "A config of your own.";
    return [
      runs.length > 1 ? el("h3", { dir: "auto" }, run.name) : null,
      el("pre", {}, el("code", {}, run.command)),
      rows.length ? changedTable(run.name, rows) : el("p", {}, none),
    ];
  });
  const written = Object.entries(runs[0].versions).map(([name, version]) => `${name} ${version}`);
  const trained = runs[0].trained_on ? `Trained on ${runs[0].trained_on}. ` : "";
  const footer = el("p", { class: "hint" }, `${trained}Written with ${written.join(", ")}.`);
  return part("h2", `Reproduce ${runs.length > 1 ? "these runs" : "this run"}`, blocks, footer);
}

/** Fills the page of a run that trains: its model as it stands, and what was measured. */
function followPage(page, runs, explored) {
  const learned = div(learnedPart(runs));
  runs[0].sentence = `task: ${runs[0].does}`; // until it is said how well
  page.replaceChildren(...explored(runs, "h1"), learned);
  const draw = (state) => {
    Object.assign(runs[0], { sentence: state.sentence, curves: state.curves });
    page.querySelector("h1").replaceChildren(...headingOf(runs[0]));
    learned.replaceChildren(learnedPart(runs));
  };
  page.prepend(following(draw));
}

/**
 * The best of several runs: `{best, group, figures}`, with the runs of the same task;
 * null where no run is better than the others.
 */
function bestOf(runs) {
  const group = groupsOf(runs).reduce((most, other) => (other.length > most.length ? other : most));
  const { measured } = group[0];
  const mean = (run) => asNumber(run.summary[`test/${measured}`]?.mean);
  const sense = isError(measured) ? 1 : -1;
  const sorted = [...group].sort((a, b) => sense * (mean(a) - mean(b)));
  const [best, next] = sorted;
  if (group.length < 2 || !(sense * (mean(next) - mean(best)) > 0)) return null;
  const compared = [best, next].map((run) => ({ share: mean(run), count: run.num_test }));
  const figures = `test ${measured} ${compared.map(({ share }) => shown(share)).join(" against ")}`;
  return { best, group, figures, chance: chanceOf(...compared) };
}

/**
 * Says of two accuracies of how many test examples they are, and whether their difference may be
 * chance: whether it is below two standard errors. Empty where the number is not known.
 */
function chanceOf(one, other) {
  if (!one.count || !other.count) return "";
  const counts = [...new Set([one.count, other.count])].map(shown).join(" and ");
  const squares = [one, other].map(({ share, count }) => (share * (1 - share)) / count);
  const room = 2 * Math.sqrt(squares[0] + squares[1]);
  const isChance = Math.abs(one.share - other.share) < room;
  const may = `. So small a difference may be chance: two standard errors are ${shown(room)}`;
  return `, of ${counts} test examples${isChance ? may : ""}`;
}

/** The tasks of several runs, each task once; null for a single one. */
function tasksOf(runs) {
  const does = groupsOf(runs).map(([run]) => run.does);
  return does.length > 1 ? `Tasks: ${[...new Set(does)].join("; ")}` : null;
}

/** What several runs show together: what the best of them does, where they can be compared. */
function headline(runs, compared, isExplored) {
  const names = runs.map((run) => run.name).join(" and ");
  const tasks = tasksOf(runs);
  const both = isExplored ? `Try ${names}` : `${runs.length} runs side by side`;
  if (!compared && tasks) return [el("h1", { dir: "auto" }, namedBy(names), tasks)];
  if (!compared) return [el("h1", { dir: "auto" }, both)];
  const { best, group, figures, chance } = compared;
  const name = `${best.name}, the best of ${group.length} runs`;
  const title = [namedBy(name), ...figureOf(best.sentence)];
  const lengths = [...group].sort((a, b) => b.steps - a.steps);
  const isFair = lengths[0].steps === lengths.at(-1).steps;
  const trained = lengths.map((run) => `${run.name} ${shown(run.steps)}${quickly(run)}`);
  const said = isFair ? "" : ` They trained for different numbers of steps: ${trained.join(", ")}.`;
  const line = el("p", { class: isFair ? "hint" : "note" }, `${capital(figures)}${chance}.${said}`);
  return [el("h1", { dir: "auto" }, title), line];
}

/** Says of a run that it was a first look. */
const quickly = ({ command }) => (/:quick\b/.test(command) ? " (:quick)" : "");

/**
 * Fills the page. `liveOf(run)` makes what is tried on a run, and what stands beside its examples,
 * as `{tried, beside}`, or null; `explored(runs, level)` makes the parts of the explorer, which
 * stand above all.
 */
export const buildPage = (liveOf = () => null, explored = null) =>
  openPage((page, data) => fillPage(page, data, liveOf, explored));

function fillPage(page, { runs, mode }, liveOf, explored) {
  const isOne = runs.length === 1;
  if (mode === "follow") {
    followPage(page, runs, explored);
    return;
  }
  const isExplored = mode === "explore";
  if (isOne && runs[0].input === "published") {
    const [{ name, sentence }] = runs; // it has no test, results or training
    const heading = el("h1", { dir: "auto" }, name);
    page.classList.add("published-page");
    page.replaceChildren(heading, el("p", { class: "hint" }, sentence), ...explored(runs, null));
    return;
  }
  const lives = new Map(runs.map((run) => [run, isExplored ? null : liveOf(run)]));
  const compared = isOne ? null : bestOf(runs);
  const above = isOne ? null : [compared?.best, ...runs].find((run) => run && lives.get(run));
  const level = isOne && !isExplored ? "h1" : "h2";
  page.replaceChildren(
    ...(isOne ? [] : headline(runs, compared, isExplored)),
    ...(isExplored ? explored(runs, isOne ? "h1" : "h2") : []),
    above ? triedPart("h2", `Try ${above.name}`, lives.get(above)) : "",
    ...(isOne ? [] : togetherParts(runs)),
    ...runs.map((run) => runPart(run, isExplored, level, lives.get(run), run === above)),
    learnedPart(runs), resultsPart(runs), againPart(runs),
  );
}
