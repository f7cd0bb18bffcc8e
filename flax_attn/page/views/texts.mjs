// Texts in classes: words on the colours of their weights, classes as bars. To try, a sentence is
// typed and words are hidden.

import { exampleChooser, headChooser, textField } from "../controls/choosers.mjs";
import { isBetween, isVisible } from "../controls/settings.mjs";
import { el, percent, replaceButtons, sentence } from "../dom.mjs";
import { addKind } from "../kinds.mjs";
import { indexOfLargest } from "../lists.mjs";
import { evidenceRow } from "../pictures/evidence.mjs";
import { mapOf, movingLegend, rowOf, strengthLegend, weightsBehind } from "../pictures/heat.mjs";
import { tellingHead } from "../pictures/overview.mjs";
import { stage } from "../pictures/stage.mjs";
import { answersOf, bars, classesOf, sign, verdictOf } from "../pictures/words.mjs";
import { withoutBrackets, words } from "../pictures/words.mjs";

/**
 * How the answer to a text is shown, where it is a class: the verdict and the picture of an
 * example (null for none), the picture of a reply, and what is said of a reply.
 */
const AS_CLASSES = {
  verdict: (run, example) => verdictOf(classesOf(run, example), example.target),
  picture: (run, example) => bars(classesOf(run, example), example.target),
  reply: ({ classes }) => bars(classes),
  said: ({ classes: [[name, share]] }) => `${name}, ${percent(share)}`,
};

/** The picture of one text, for `stage`; `answers` as `AS_CLASSES`. */
export function drawText(run, answers = AS_CLASSES) {
  return (example, weights, { choice, top }) => {
    const { tokens, known } = example;
    const verdict = el("p", { class: "result" }, answers.verdict(run, example));
    const picture = answers.picture(run, example);
    const columns = el("div", { class: picture ? "beside" : "" });
    if (!weights) {
      columns.append(...[words("The text", tokens, { known }).node, picture].filter(Boolean));
      return [verdict, columns];
    }
    const state = { q: null };
    const said = sentence();
    const choose = weights.rows > 1;
    const row = words("The text", tokens, {
      known,
      onPoint: (k) => tell(k),
      onPick: (q) => choose && pick(state.q === q ? null : q),
    });
    const map = choose ? mapOf(tokens, weights, (q, k) => pick(q, k), { top }) : null;
    const mean = choose ? "The mean over all words" : choice.label;
    const tell = (k) => {
      const who = state.q === null ? mean : `“${tokens[state.q]}”`;
      const share = percent(rowOf(weights, state.q)[k]);
      said.say(`${who} puts ${share} of its weight on “${tokens[k]}”.`);
    };
    const pick = (q, k = null) => {
      state.q = q;
      const shown = rowOf(weights, q);
      const key = k ?? indexOfLargest(shown);
      row.show(shown);
      row.pick(q);
      map?.point(q, key);
      tell(key);
    };
    pick(null);
    const hint = choose ? "Press a word to see where it looks; press it again for the mean." : "";
    const scale = strengthLegend(tokens.length);
    columns.append(...[el("div", {}, row.node, said.node, scale), picture].filter(Boolean));
    return [
      verdict,
      columns,
      hint ? el("p", { class: "hint no-print" }, hint) : null,
      map?.node,
      weightsBehind("word", tokens.map(sign), weights, state),
    ];
  };
}

/** The words and weights that a run has kept of a text, as in a reply. */
export function keptText({ tokens, known, attention }) {
  const bare = tokens.map((token, i) => (known[i] ? token : withoutBrackets(token)));
  return { tokens: bare, known, attention, scores: null };
}

/** The text of an example: its tokens, without the signs of its ends and of unknown words. */
function textOf({ tokens, known }) {
  const plain = (token, i) => (known?.[i] === false ? withoutBrackets(token) : token);
  return tokens
    .map(plain)
    .filter((token) => !["<S>", "</S>"].includes(token))
    .join(" ");
}

/** The view of texts that are read whole; `answers` as `AS_CLASSES`. */
export function tryTexts(parts, answers = AS_CLASSES) {
  const { runs, asks, changed, hide, forget, beginWith, pick, again } = parts;
  const [run] = runs;
  const state = { replies: null, settings: null, query: null };
  const text = textField("your text", 3, typed);
  const heads = headChooser(run, again, run.attention.length ? tellingHead(run) : null);
  const scale = movingLegend("words");
  const line = el("div", {});
  const answer = el("div", {});
  const pointed = el("p", { class: "hint" });
  const evidence = evidenceRow(asks[0]);

  function typed() {
    forget();
    state.query = null;
    changed();
  }

  /** `request` is what was answered. */
  function show(replies, settings, request) {
    const isNew = state.replies?.[0].tokens?.join(" ") !== replies[0].tokens.join(" ");
    Object.assign(state, { replies, settings });
    if (isNew) state.query = null;
    const { tokens, known } = replies[0];
    const looks = heads.weights(replies[0]);
    const own = words("words of the text", tokens, {
      known,
      onPoint: (i) => point(i),
      onPick: (i) => hide([i]),
    });
    paintWords(own, looks);
    own.hide(settings.hidden);
    state.own = own;
    replaceButtons(line, own.node);
    answer.replaceChildren(...answersOf(runs, replies, answers.reply));
    if (looks) evidence.show({ names: tokens, weights: rowOf(looks, null), ...request });
  }

  function paintWords(own, looks) {
    if (!looks) return own.show(null);
    const weights = rowOf(looks, looks.rows > 1 ? state.query : null);
    const { hidden } = state.settings;
    const count = Math.max(weights.length - hidden.length, 1);
    own.show(weights, count);
    scale.to(count, hidden.length > 0);
  }

  function point(i) {
    const looks = heads.weights(state.replies[0]);
    if (!looks || looks.rows < 2 || state.query === i) return;
    state.query = i;
    paintWords(state.own, looks);
    pointed.textContent = `The colours show where “${sign(state.replies[0].tokens[i])}” looks.`;
    pick();
  }

  function say(replies) {
    return runs
      .map((other, i) => {
        const said = answers.said(replies[i]);
        return runs.length > 1
          ? `${other.name}: ${said}.`
          : `The answer is ${said}.${most(replies[0])}`;
      })
      .join(" ");
  }

  function most(reply) {
    const looks = heads.weights(reply);
    if (!looks) return "";
    const weights = rowOf(looks, null);
    const best = indexOfLargest(weights);
    return ` Most attention is on “${sign(reply.tokens[best])}”, ${percent(weights[best])}.`;
  }

  function query() {
    const reply = state.replies?.[0];
    const looks = reply && heads.weights(reply);
    if (!looks) return null;
    const q = looks.rows > 1 ? (state.query ?? 0) : 0;
    return {
      what: looks.rows > 1 ? `“${sign(reply.tokens[q])}”` : "the whole text",
      weights: looks,
      scores: heads.scores(reply),
      q,
      visible: (k) =>
        looks.rows > 1 ? isVisible(q, k, state.settings) : !state.settings.hidden.includes(k),
      key: (k) => `“${sign(reply.tokens[k])}”`,
    };
  }

  const begin = (i) => {
    text.area.value = textOf(run.examples[i]);
  };
  const hasAttention = run.attention.length > 0;
  return {
    node: el(
      "div",
      {},
      exampleChooser(run, (i) => {
        state.query = null;
        beginWith(i);
      }),
      text.node,
      el(
        "div",
        { class: "try-reply" },
        line,
        hasAttention ? scale.node : null,
        pointed,
        answer,
        hasAttention ? evidence.node : null,
      ),
    ),
    hint:
      "Type a sentence of your own. Click a word to hide it from the attention; click again to " +
      "show it.",
    most: 64,
    between: isBetween(run),
    input: () => ({ text: text.area.value }),
    begin,
    show,
    say,
    query,
  };
}

/** Whether a map of all words stands under a text. */
export const hasMap = (weights) => weights !== null && weights.rows > 1;

addKind("texts", {
  picture: (run, beside) =>
    stage(run, drawText(run), { hasLegend: hasMap, first: tellingHead(run), beside }),
  tried: (parts) => tryTexts(parts), // no model in a page: its tokens need Python
  kept: (run, example) => ({
    ...keptText(example),
    classes: classesOf(run, example).sort(([, one], [, other]) => other - one),
  }),
});
