// Texts in classes: a sentence to type, words to hide, and attention beside evidence.

import { el, percent } from "./dom.mjs";
import { bars, sign, words } from "./words.mjs";
import { evidenceRow } from "./try_evidence.mjs";
import { exampleChooser, headChooser, isBetween, movingLegend } from "./try_shared.mjs";
import { scoresIn, weightsIn } from "./try_shared.mjs";

/** The text of an example: its tokens, without the signs of its ends and of unknown words. */
export function textOf({ tokens, known }) {
  const plain = (token, i) => (known?.[i] === false ? token.replace(/^\[(.*)\]$/, "$1") : token);
  return tokens
    .map(plain)
    .filter((token) => !["<S>", "</S>"].includes(token))
    .join(" ");
}

/** The view of texts in classes. */
export function tryTexts({ runs, asks, changed, hide, forget, pick, again }) {
  const [run] = runs;
  const state = { replies: null, settings: null, query: null, pointed: null };
  const text = el("textarea", { rows: 3, spellcheck: "false", maxlength: 100000, oninput: typed });
  const heads = headChooser(run, again);
  const scale = movingLegend();
  const line = el("div", {});
  const answer = el("div", {});
  const pointed = el("p", { class: "hint" });
  const evidence = evidenceRow(asks[0]);

  function typed() {
    forget();
    state.query = null;
    changed();
  }

  /** One weight a word: of the query that is pointed at, or the mean over all. */
  function overWords(looks, query) {
    const rows = query === null ? Array.from({ length: looks.rows }, (_, q) => q) : [query];
    return Array.from(
      { length: looks.columns },
      (_, k) => rows.reduce((sum, q) => sum + looks.at(q, k), 0) / rows.length,
    );
  }

  /** `request` is what was answered. */
  function show(replies, settings, request) {
    const isNew = state.replies?.[0].tokens?.join(" ") !== replies[0].tokens.join(" ");
    Object.assign(state, { replies, settings });
    if (isNew) state.query = null;
    const { tokens, known } = replies[0];
    const focused = [...line.querySelectorAll("button")].indexOf(document.activeElement);
    const looks = weightsIn(replies[0], heads.now.name, heads.now.head);
    const own = words("words of the text", tokens, {
      known,
      onPoint: (i) => point(i),
      onPick: (i) => hide([i]),
    });
    paintWords(own, looks);
    own.buttons.forEach((button, i) => {
      const isHidden = settings.hidden.includes(i);
      button.classList.toggle("hidden-key", isHidden);
      button.setAttribute("aria-pressed", String(isHidden));
    });
    line.replaceChildren(own.node);
    state.own = own;
    if (focused >= 0) own.buttons[focused]?.focus({ preventScroll: true });
    const answers = replies.map((reply, i) =>
      el("div", {}, runs.length > 1 ? el("h3", {}, runs[i].name) : null, bars(reply.classes)),
    );
    answer.replaceChildren(...answers);
    if (looks) evidence.show({ names: tokens, weights: overWords(looks, null), ...request });
  }

  function paintWords(own, looks) {
    if (!looks) return own.show(null);
    const weights = overWords(looks, looks.rows > 1 ? state.query : null);
    const top = Math.max(...weights, 0.01);
    own.show(weights, top);
    scale.to(top, state.settings.hidden.length > 0);
  }

  function point(i) {
    const looks = weightsIn(state.replies[0], heads.now.name, heads.now.head);
    if (!looks || looks.rows < 2 || state.query === i) return;
    state.query = i;
    paintWords(state.own, looks);
    pointed.textContent = `The colours show where “${sign(state.replies[0].tokens[i])}” looks.`;
    pick();
  }

  function say(replies) {
    return runs
      .map((other, i) => {
        const [name, share] = replies[i].classes[0];
        const said = `${name}, ${percent(share)}`;
        return runs.length > 1
          ? `${other.name}: ${said}.`
          : `The answer is ${said}.${most(replies[0])}`;
      })
      .join(" ");
  }

  function most(reply) {
    const looks = weightsIn(reply, heads.now.name, heads.now.head);
    if (!looks) return "";
    const weights = overWords(looks, null);
    const best = weights.indexOf(Math.max(...weights));
    return ` Most attention is on “${sign(reply.tokens[best])}”, ${percent(weights[best])}.`;
  }

  function query() {
    const reply = state.replies?.[0];
    const looks = reply && weightsIn(reply, heads.now.name, heads.now.head);
    if (!looks) return null;
    const q = looks.rows > 1 ? (state.query ?? 0) : 0;
    return {
      what: looks.rows > 1 ? `“${sign(reply.tokens[q])}”` : "the whole text",
      weights: looks,
      scores: scoresIn(reply, heads.now.name, heads.now.head),
      q,
      visible: (k) => !state.settings.hidden.includes(k) && isNear(q, k, looks.rows),
      key: (k) => `“${sign(reply.tokens[k])}”`,
    };
  }

  function isNear(q, k, rows) {
    const { reach, causal } = state.settings;
    return rows < 2 || ((reach === null || Math.abs(q - k) <= reach) && !(causal && k > q));
  }

  const begin = (i) => {
    state.example = i;
    text.value = textOf(run.examples[i]);
  };
  begin(0);
  const hasAttention = run.attention.length > 0;
  return {
    node: el(
      "div",
      {},
      exampleChooser(run, (i) => {
        begin(i);
        typed();
      }),
      el("label", { class: "try-text" }, el("span", {}, "your text"), text),
      line,
      hasAttention ? scale.node : null,
      pointed,
      answer,
      hasAttention ? evidence.node : null,
    ),
    hint:
      "Type a sentence of your own. Click a word to hide it from the attention; click again to " +
      "show it.",
    most: 64,
    between: isBetween(run),
    input: () => ({ text: text.value }),
    reset: () => begin(state.example),
    show,
    say,
    query,
  };
}
