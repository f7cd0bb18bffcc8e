// A text: input above and output below, with lines between them as thick as the weights.

import { choices, div, el, percent, replaceButtons, scrollBox } from "../dom.mjs";
import { sentence, tableBehind } from "../dom.mjs";
import { heatMap, largest, weightText } from "../pictures/heat.mjs";
import { linesBetween } from "../pictures/lines.mjs";
import { answersOf, cutText, naming, sign } from "../pictures/words.mjs";
import { addTarget } from "../views.mjs";

const LONGEST_OUTPUT = 40; // letters on a button
const LEAST_SHARE = 5e-4; // that is written as a number

/** The picture of one text and its output, for `stage`. */
function drawTexts() {
  return ({ source, tokens, reference }, weights, { top }) => {
    const verdict = el("p", { class: "result" }, verdictOn(tokens, reference));
    if (!weights || !tokens.length) return [verdict];
    const said = sentence();
    const name = "Attention: each part of the output is a row, the input is across";
    const map = heatMap({
      name,
      rowNames: tokens.map(sign),
      columnNames: source.map(sign),
      axes: ["output", "input"],
      onPoint: (q, k) => tell(q, k),
    });
    map.show(weights, { top, name });
    const label = "The input above, the output below";
    const lines = linesBetween(label, source, tokens, (q, k) => tell(q, k));
    const tell = (q, k = null) => {
      const key = k ?? largest(weights, q);
      const [part, from] = [naming(tokens, "")(q), naming(source, "")(key)];
      const how = k === null ? "attends most to" : "attends to";
      const share = weightText(weights.at(q, key), weights.signed);
      const with_ = weights.signed ? `with the weight ${share}` : `with ${share} of its weight`;
      said.say(`${part} ${how} ${from}, ${with_}.`);
      lines.show(weights, q);
      map.point(q, key);
    };
    tell(clearest(weights));
    const header = ["output", "attends most to", "weight"];
    const row = (token, q) => {
      const key = largest(weights, q);
      return [sign(token), naming(source, "")(key), weightText(weights.at(q, key), weights.signed)];
    };
    const hint = "Point at a part of the output to see what it attends to.";
    return [
      verdict,
      lines.node,
      said.node,
      el("p", { class: "hint no-print" }, hint),
      scrollBox("The map", map.node),
      tableBehind("what each part attends to", header, () => tokens.map(row)),
    ];
  };
}

/** Whether tokens are a text. Some have their blanks, others stand apart. */
const areText = (tokens, text) => ["", " "].some((between) => tokens.join(between) === text);

/** Tokens as one text. */
export function joined(tokens) {
  const areLetters = tokens.every((token) => [...token].length < 2);
  return tokens.join(areLetters ? "" : " ");
}

export function verdictOn(tokens, reference) {
  if (areText(tokens, reference)) return `✓ Prediction: “${reference}”, equal to the target.`;
  const text = tokens.length ? `Prediction: “${joined(tokens)}”` : "Empty prediction";
  return `✗ ${text}. Target: “${reference}”.`;
}

/** What a run has kept of an output, as a reply. */
export function keptOutput(run, { tokens, reference, attention }) {
  const text = areText(tokens, reference) ? reference : joined(tokens);
  return { text, best: [{ text, tokens, attention, scores: null }] };
}

/** An output with its probability, where it is known. */
function sure({ text, probability }, longest = LONGEST_OUTPUT) {
  const share = probability < LEAST_SHARE ? "below 0.1\u00a0%" : percent(probability);
  return `“${cutText(text, longest)}”${probability === undefined ? "" : ` (${share})`}`;
}

/** The query with the largest weight, which is read most clearly. */
function clearest(weights) {
  let top = [0, 0];
  for (let q = 0; q < weights.rows; q++)
    for (let k = 0; k < weights.columns; k++)
      if (weights.at(q, k) > weights.at(...top)) top = [q, k];
  return top[0];
}

/** The best outputs of a search, of which one is aligned with the input. */
function triedTexts({ runs, state, heads, again, choose, hide }) {
  const picture = div();
  const choice = div();
  const drawn = { asked: null, lines: [] }; // of each run
  let number = 0;

  function chosen(reply) {
    const all = reply.best ?? [{ text: reply.text, tokens: [], attention: reply.attention }];
    return all[Math.min(number, all.length - 1)];
  }

  function show(replies) {
    const weights = replies.map((reply) => heads.weights(chosen(reply)));
    if (state.query === null && weights[0]?.rows) state.query = clearest(weights[0]);
    const { hidden } = state.settings;
    const parts = replies.map((reply) => [reply.tokens, chosen(reply).tokens]);
    const asked = JSON.stringify([parts, hidden]);
    if (asked !== drawn.asked) {
      const point = (q, k) => k === null && choose(q);
      const lines = parts.map(([above, below], i) => {
        const keys = { onPick: (k) => hide([k]), hidden, known: replies[i].known };
        return linesBetween("input above, output below", above, below, point, keys);
      });
      Object.assign(drawn, { asked, lines });
      replaceButtons(picture, ...answersOf(runs, lines, ({ node }) => node));
    }
    drawn.lines.forEach((lines, i) => {
      if (weights[i]?.rows) lines.show(weights[i], Math.min(state.query, weights[i].rows - 1));
    });
    offer(replies[0].best ?? []);
  }

  function offer(best) {
    const onBest = (i) => {
      number = i;
      state.query = null;
      again();
      choice.querySelectorAll("button")[i]?.focus();
    };
    const title = `beam search: top ${best.length} outputs`;
    const list = choices(title, best.map((one) => sure(one)), number, onBest);
    choice.replaceChildren(...(best.length > 1 ? [list.node] : []));
  }

  return {
    node: [choice, picture],
    title: "Prediction",
    keys: true,
    begin: () => {
      number = 0;
    },
    chosen, show,
    said: (reply) => sure(chosen(reply), Infinity),
    query: ({ rows }) => {
      const q = Math.min(state.query ?? 0, rows - 1);
      const { tokens } = chosen(state.replies[0]);
      return { q, at: null, name: naming(tokens, "")(q) };
    },
  };
}

addTarget("text", { draw: drawTexts, kept: keptOutput, tried: triedTexts });
