// Texts: words on the colours of their weights. To try, a text is typed and words are masked.

import { textField } from "../controls/choosers.mjs";
import { div, el, sentence } from "../dom.mjs";
import { indexOfLargest } from "../lists.mjs";
import { endOf, legend, mapOf, putsOn, rowOf } from "../pictures/heat.mjs";
import { weightsBehind } from "../pictures/heat.mjs";
import { tellingHead } from "../pictures/overview.mjs";
import { stage } from "../pictures/stage.mjs";
import { lineEnd, naming, sign, withoutBrackets, words } from "../pictures/words.mjs";
import { addInput, targetOf } from "../views.mjs";

const ENDS = ["<S>", "</S>"]; // of a text that is read whole

/** The picture of one text, for `stage`. */
function drawText(run) {
  const target = targetOf(run);
  return (example, weights, options) => {
    const verdict = el("p", { class: "result" }, target.verdict(run, example));
    const { row, below } = drawWords(example, weights, options);
    const beside = [div(row), target.beside(run, example, options)];
    return [verdict, el("div", { class: "beside" }, beside), ...below];
  };
}

/**
 * The words of an example on the colours of what the chosen one attends to, as `{row, below}`: what
 * stands beside a prediction, and what stands below both. Of tokens that go on, `say(q, k)` is what
 * is said, the last one is chosen at first, and each sees those before it.
 */
export function drawWords({ tokens, known }, weights, { choice, top }, say = null) {
  if (!weights) return { row: words("The text", tokens, { known }).node, below: [] };
  const state = { q: say && tokens.length - 1 };
  const named = naming(tokens, "");
  const said = sentence();
  const choose = weights.rows > 1; // then a map with a legend stands below
  const scale = choose ? null : legend(endOf(weights), false, weights.signed);
  const row = words("The text", tokens, {
    known,
    onPoint: (k) => tell(k),
    onPick: (q) => choose && pick(state.q === q && !say ? null : q),
  });
  const seen = { top, ...(say ? { visible: (q, k) => k <= q } : {}) };
  const map = choose ? mapOf(tokens, weights, (q, k) => pick(q, k), seen) : null;
  const mean = choose ? "The mean over all words" : choice.label;
  const tell = (k) => {
    const who = state.q === null ? mean : named(state.q);
    const puts = putsOn(named(k), rowOf(weights, state.q)[k], weights.signed);
    said.say(say ? say(state.q, k) : `${who} ${puts}.`);
  };
  const pick = (q, k = null) => {
    state.q = q;
    const shares = rowOf(weights, q);
    const count = say ? q + 1 : tokens.length;
    const key = k ?? indexOfLargest(shares.slice(0, count).map(Math.abs));
    row.show(shares, count, endOf(weights), weights.signed);
    if (say) row.buttons.forEach((button, i) => button.classList.toggle("after", i > q));
    row.pick(q);
    map?.point(q, key);
    tell(key);
  };
  pick(state.q);
  const again = say ? "" : "; press it again for the mean";
  const hint = choose ? `Press a word to see what it attends to${again}.` : "Point at a word.";
  const behind = weightsBehind("word", tokens.map(sign), weights, state);
  const under = el("p", { class: "hint no-print" }, hint);
  return { row: [row.node, said.node, scale].filter(Boolean), below: [under, map?.node, behind] };
}

/** Tokens without the brackets of those that are not known. */
const bareTokens = (tokens, known) =>
  tokens.map((token, i) => (known?.[i] === true ? token : withoutBrackets(token)));

/** The text of an example. Parts of words and characters bring their own blanks. */
export function textOf({ tokens, source = tokens, known }) {
  const bare = bareTokens(source, known).filter((token) => !ENDS.includes(token));
  const between = bare.some((token) => /[ ␣]/.test(token)) ? "" : " ";
  return bare.join(between).replaceAll("␣", " ").trim();
}

/** The tokens that a run has kept of a text, as in a reply. */
export function keptText(run, { tokens, source = tokens, known }) {
  const bare = bareTokens(source, known);
  return { tokens: bare, known: known ?? source.map((token, i) => token === bare[i]) };
}

/**
 * A text to type, and its words on the colours of what the chosen one attends to. `first(example)`
 * is the text to begin with; `last` says that the only query is the last token.
 */
export function triedText({ state, answer, changed, forget, hide, choose }, first, last = false) {
  const text = textField("your text", 3, typed);
  const line = div();
  const scale = div();
  let own = null; // the words
  let tokens = [];

  function typed() {
    forget();
    state.query = null;
    answer.begin?.();
    changed();
  }

  function show(reply, weights) {
    const written = reply.tokens.map(lineEnd);
    const isNew = JSON.stringify(written) !== JSON.stringify(tokens);
    tokens = written;
    if (answer.keys) return; // which are drawn there
    if (isNew || !own) {
      if (!last && own) state.query = null;
      own = words("the text", tokens, {
        known: reply.known,
        onPoint: (i) => !last && weights?.rows > 1 && choose(i),
        onPick: (i) => hide([i]),
      });
      line.replaceChildren(own.node);
    }
    const { hidden } = state.settings;
    own.hide(hidden);
    if (!weights) return own.show(null);
    const row = rowOf(weights, weights.rows > 1 ? state.query : null);
    own.show(row, tokens.length, endOf(weights), weights.signed);
    scale.replaceChildren(legend(endOf(weights), hidden.length > 0, weights.signed));
  }

  const key = (k) => (last ? `“${sign(tokens[k])}” at ${k}` : naming(tokens, "")(k));

  function query({ rows }) {
    const end = tokens.length - 1;
    if (last) return { q: 0, at: end, name: `the last token, “${sign(tokens[end])}”` };
    if (rows < 2) return { q: 0, at: null, name: "the whole text" };
    const q = state.query ?? 0;
    return { q, at: q, name: key(q) };
  }

  return {
    node: text.node,
    picture: [line, scale],
    part: "try-reply",
    hint: "Type a text. Point at a word to see what it attends to; click it to mask it.",
    most: last ? 33 : 64,
    begin: (example) => {
      text.area.value = first(example);
    },
    add: (codes) => {
      text.area.value += String.fromCodePoint(...codes);
    },
    focus: () => text.area.focus(),
    value: () => ({ text: text.area.value }),
    restore: ({ text: own }) => {
      text.area.value = own;
    },
    show,
    parts: (weights) => ({ names: tokens, weights: rowOf(weights, null) }),
    query: (weights) => answer.query?.(weights) ?? query(weights),
    key,
  };
}

/** Whether a map of all words stands under a text. */
const hasMap = (weights) => weights !== null && weights.rows > 1;

addInput("text", {
  picture: (run, beside) => {
    const { draw } = targetOf(run);
    if (draw) return stage(run, draw(run), { top: () => 1, beside });
    const options = { top: () => 1, hasLegend: hasMap, first: tellingHead(run), beside };
    return stage(run, drawText(run), options);
  },
  tried: (own) => triedText(own, textOf),
  named: textOf,
  head: (run) => (run.target === "text" ? null : tellingHead(run)),
  kept: keptText,
});
