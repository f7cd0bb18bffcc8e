// Tokens that go on: what each attends to before it, the loss along a text, and induction heads.

import { asNumber, capital, div, el, sentence } from "../dom.mjs";
import { indexOfLargest, range } from "../lists.mjs";
import { chart, lineOf } from "../pictures/curves.mjs";
import { ABLATED, effectsRow, takingChanges } from "../pictures/effects.mjs";
import { headName, placesOfHeads } from "../pictures/head_grid.mjs";
import { endOf, headsOf, heatMap, legend, mapOf, putsOn, rowOf } from "../pictures/heat.mjs";
import { tellingHead } from "../pictures/overview.mjs";
import { stage } from "../pictures/stage.mjs";
import { sign } from "../pictures/words.mjs";
import { written } from "../targets/next.mjs";
import { addInput } from "../views.mjs";
import { drawWords, triedText } from "./text.mjs";

const BLANKS = new Map([["↵", "\n"], ["→", "\t"]]); // signs of characters without a picture
const BEGINNING = 12; // tokens of the first prompt
const AGAIN = 3; // tokens of the first prompt that have come before, where texts repeat themselves
const MOST_HEADS = 64; // that are ablated in turn

/** The picture of the text, for `stage`. */
function drawPassage(example, weights, options) {
  const { tokens } = example;
  if (!weights) return [];
  const say = (q, k) =>
    k > q
      ? `“${tokens[k]}” comes after “${tokens[q]}”, which cannot see it.`
      : tokenLook(tokens[q], tokens[k], weights.at(q, k), q - k, weights.signed);
  const { row, below } = drawWords(example, weights, options, say);
  return [...row, ...below];
}

export function tokenLook(from, to, weight, back, signed = false) {
  const puts = putsOn(`“${sign(to)}”`, weight, signed);
  const where = back ? `${back} back` : "itself";
  return `To predict what follows “${sign(from)}”, the head ${puts}, ${where}.`;
}

/** Further pictures of a language model: the loss by position, and induction heads. */
function furtherOf(example) {
  const rows = example.losses.map((own) => own.map(asNumber)); // NaN where no text is as long
  const count = rows[0].findLastIndex(Number.isFinite) + 1;
  const losses = rows.map((own) => own.slice(0, count));
  const line = lineOf("loss", 0, range(count).map((i) => i + 1), losses);
  const names = { across: "tokens in the context", up: "next-token loss", at: "Tokens" };
  return [
    el("h2", {}, "Loss by position in the context"),
    el("figure", {}, chart([line], names)),
    example.induction ? induction(example) : null,
  ];
}

/** The induction of each head, and the weights of the chosen one on a repeated random string. */
function induction({ induction: scores, string, induction_weights: packed }) {
  const columns = scores[0].length;
  const values = scores.flat().map(asNumber);
  const heads = headsOf(packed);
  const said = sentence();
  const title = el("p", { class: "try-title" });
  const box = div();
  const small = heatMap({
    name: "Induction of each head: blocks downwards, heads across",
    rowNames: scores.map((_, i) => `block${i}`),
    columnNames: range(columns).map(String),
    axes: ["block", "head"],
    onPick: (i, j) => choose(i * columns + j),
  });
  small.show({ rows: scores.length, columns, at: (i, j) => values[i * columns + j] }, {});
  const choose = (i) => {
    const [block, head, weights] = [Math.floor(i / columns), i % columns, heads[i]];
    const name = `block${block}, head ${head}`;
    const followed = "the token that followed last time";
    const puts = putsOn(followed, values[i], weights.signed);
    const tell = (q, k) => {
      const own = tokenLook(string[q], string[k], weights.at(q, k), q - k, weights.signed);
      said.say(`${capital(name)} ${puts}, on average. ${own}`);
    };
    const options = { visible: (q, k) => k <= q, label: `${name} on the random string` };
    const map = mapOf(string, weights, tell, options);
    const last = string.length - 2; // the last query of which it is known what followed
    const followedAt = string.lastIndexOf(string[last], last - 1) + 1;
    title.textContent = `${capital(name)} on a random string that comes twice`;
    box.replaceChildren(map.node, legend(endOf(weights), true, weights.signed));
    small.point(block, head);
    map.point(last, followedAt);
    tell(last, followedAt);
  };
  choose(indexOfLargest(values));
  const hint = "Each cell is the mean weight of a head on the token that followed last time. ";
  return [
    el("h2", {}, "Induction heads"),
    el("figure", {},
      said.node, el("p", { class: "hint" }, hint, "Click a head to see its weights."), small.node,
      title, box,
    ),
  ];
}

/** Where the beginning of a test text stands, which is the first prompt: `[first, end]`. */
export function promptIn({ tokens, induction: scores }) {
  const isEnd = (token) => /^(\\n|⏎|↵|\n)$/.test(token);
  const first = Math.max(tokens.findIndex((token) => !isEnd(token)), 0);
  const again = tokens.findIndex((token, i) => i > first && tokens.indexOf(token, first) < i);
  if (scores && again > 0) return [first, again + AGAIN];
  const own = tokens.slice(first, first + BEGINNING);
  const end = own.findIndex(isEnd);
  return [first, first + (end > 0 ? Math.max(Math.ceil(end / 2), 1) : own.length)];
}

const plain = (token) => token.replaceAll("␣", " ");

/** The beginning of a test text, as a prompt. */
export const promptOf = (example) => example.tokens.slice(...promptIn(example)).map(plain).join("");

/** What a run has kept of its first prompt: what the last token attends to. */
export function keptPrompt(run, example) {
  const [, end] = promptIn(example);
  const lastRow = ({ shape: [heads, , columns], data, signed }) => {
    const rows = range(heads).map((head) => {
      const begin = (head * columns + end - 1) * columns; // as many queries as keys
      return [...data.slice(begin, begin + end)];
    });
    return { shape: [heads, 1, end], data: rows.flat(), signed };
  };
  const rows = Object.entries(example.attention).map(([name, own]) => [name, lastRow(own)]);
  return { tokens: example.tokens.slice(0, end).map(plain), attention: Object.fromEntries(rows) };
}

/** The text of tokens as it was written, without the line end that stands before each text. */
export function textOfTokens(tokens, { always }) {
  const own = tokens.map((token) => BLANKS.get(token) ?? token);
  return (always ? own.slice(1) : own).join("");
}

/** The picture of the text, and of what more context gains. */
function tokensPicture(run, beside) {
  const first = run.attention.length ? tellingHead(run, run.examples[0].tokens.length - 1) : 0;
  const options = { visible: (q, k) => k <= q, masked: true, top: () => 1, first, beside };
  const parts = run.attention.length ? [stage(run, drawPassage, options)] : [];
  return div(parts, furtherOf(run.examples[0]));
}

/** An input with a switch for each head below, which shows the effect of ablating it. */
function withHeads({ run, asks, state, changed }, input) {
  const places = placesOfHeads(run);
  if (places.length < 2 || places.length > MOST_HEADS) return input;
  let cut = [];
  let asked = "";
  const isCut = ([block, head]) => cut.some(([b, h]) => b === block && h === head);
  const press = (i) => {
    const isOther = ([block, head]) => block !== places[i][0] || head !== places[i][1];
    cut = isCut(places[i]) ? cut.filter(isOther) : [...cut, places[i]];
    changed();
  };
  const options = { label: "heads", atOnce: 1, hint: ABLATED, onPress: press };
  const row = effectsRow(takingChanges(asks[0]), options);
  const names = places.map((place) => headName(run, ...place));

  function show(reply, weights) {
    input.show(reply, weights);
    const { request, settings } = state;
    if (!request || asked === JSON.stringify([request.inputs, settings])) return;
    asked = JSON.stringify([request.inputs, settings]);
    const changes = places.map((place) => ({ cut: [place] }));
    const title = "Effect of ablating each head on";
    const best = written(reply.classes[0][0]);
    const off = places.map(isCut);
    row.show({ title, names, changes, off, best }, { inputs: request.inputs, settings });
  }

  const begin = (example) => {
    cut = [];
    input.begin(example);
  };
  const more = () => (cut.length ? { settings: { cut } } : {});
  return { ...input, begin, show, more, after: row.node };
}

addInput("tokens", {
  picture: tokensPicture,
  tried: (own) => withHeads(own, {
    ...triedText(own, () => promptOf(own.run.examples[0]), true),
    hint:
      "Type, or let the model write, and see what each next token is read from. Choose another " +
      "head, or click a token to mask it.",
  }),
  head: (run) => tellingHead(run, promptIn(run.examples[0])[1] - 1),
  kept: keptPrompt,
  stored: (run, { tokens }) => ({ text: textOfTokens(tokens, run.live.text) }),
  parts: (run, { tokens }, weights) => ({
    names: tokens,
    weights: rowOf(weights, weights.rows - 1),
    what: "token",
  }),
});
