// Language models: a prompt to type, what the next token looks at, and how likely each is.

import { el, percent } from "./dom.mjs";
import { bars, sign, words } from "./words.mjs";
import { evidenceRow } from "./try_evidence.mjs";
import { headChooser, movingLegend, scoresIn, weightsIn } from "./try_shared.mjs";

const BEGINNING = 12; // tokens of the first prompt
const OFFERED = 5; // next tokens that a button writes

/** The beginning of a test text, as a prompt. */
export function promptOf({ tokens }) {
  const plain = tokens.map((token) => token.replaceAll("␣", " "));
  const first = plain.findIndex((token) => !/^(\\n|⏎|↵|\n)$/.test(token));
  const own = plain.slice(first < 0 ? 0 : first, first + BEGINNING);
  const end = own.findIndex((token) => /^(\\n|⏎|↵|\n)$/.test(token));
  return own.slice(0, end > 0 ? Math.max(Math.ceil(end / 2), 1) : BEGINNING).join("");
}

/** The view of language models. */
export function tryLanguage({ runs, asks, changed, hide, forget, pick }) {
  const [run] = runs;
  const state = { replies: null, settings: null };
  const text = el("textarea", { rows: 3, spellcheck: "false", maxlength: 100000, oninput: typed });
  const heads = headChooser(run, () => state.replies && show(state.replies, state.settings));
  const scale = movingLegend();
  const line = el("div", {});
  const answer = el("div", {});
  const writes = el("div", { class: "row", role: "group", "aria-label": "write the next token" });
  const evidence = evidenceRow(asks[0], () => ({ text: text.value }));

  function typed() {
    forget();
    changed();
  }

  function show(replies, settings) {
    Object.assign(state, { replies, settings });
    const [reply] = replies;
    const looks = weightsIn(reply, heads.now.name, heads.now.head);
    const focused = [...line.querySelectorAll("button")].indexOf(document.activeElement);
    const own = words("the text so far", reply.tokens, { onPick: (k) => hide([k]) });
    const weights = looks ? reply.tokens.map((_, k) => looks.at(0, k)) : null;
    const top = weights ? Math.max(...weights, 0.01) : 1;
    own.show(weights, top);
    scale.to(top, settings.hidden.length > 0);
    own.buttons.forEach((button, k) => {
      const isHidden = settings.hidden.includes(k);
      button.classList.toggle("hidden-key", isHidden);
      button.setAttribute("aria-pressed", String(isHidden));
    });
    line.replaceChildren(own.node);
    if (focused >= 0) own.buttons[focused]?.focus({ preventScroll: true });
    const lists = replies.map((other, i) => {
      const shares = other.classes.slice(0, 8).map(([name, share]) => [sign(written(name)), share]);
      return el("div", {}, runs.length > 1 ? el("h3", {}, runs[i].name) : null, bars(shares));
    });
    answer.replaceChildren(...lists);
    const next = reply.classes
      .slice(0, OFFERED)
      .map(([name]) =>
        el("button", { type: "button", onclick: () => write(name) }, `+ ${sign(written(name))}`),
      );
    writes.replaceChildren(...next);
    if (weights) showEvidence(reply, weights, settings);
  }

  function showEvidence(reply, weights, settings) {
    const [[best]] = reply.classes;
    evidence.show({ tokens: reply.tokens.map(written), weights, best, settings, what: "token" });
  }

  const written = (token) => token.replaceAll("\n", "⏎");

  function write(name) {
    text.value += name;
    typed();
    text.focus();
  }

  function say(replies) {
    return runs
      .map((other, i) => {
        const [[name, share]] = replies[i].classes;
        const said = `the likeliest next is “${sign(written(name))}”, ${percent(share)}`;
        return runs.length > 1 ? `${other.name}: ${said}.` : `Here ${said}.${most(replies[i])}`;
      })
      .join(" ");
  }

  function most(reply) {
    const looks = weightsIn(reply, heads.now.name, heads.now.head);
    if (!looks) return "";
    const weights = reply.tokens.map((_, k) => looks.at(0, k));
    const best = weights.indexOf(Math.max(...weights));
    const back = reply.tokens.length - 1 - best;
    const where = back === 0 ? "itself" : `“${sign(written(reply.tokens[best]))}”, ${back} back`;
    return ` For it the last token looks most at ${where}, with ${percent(weights[best])}.`;
  }

  function query() {
    const reply = state.replies?.[0];
    const looks = reply && weightsIn(reply, heads.now.name, heads.now.head);
    if (!looks) return null;
    const last = reply.tokens.length - 1;
    const { hidden, reach } = state.settings;
    return {
      what: `the last token, “${sign(written(reply.tokens[last]))}”`,
      weights: looks,
      scores: scoresIn(reply, heads.now.name, heads.now.head),
      q: 0,
      visible: (k) => !hidden.includes(k) && (reach === null || last - k <= reach),
      key: (k) => `“${sign(written(reply.tokens[k]))}” at ${k}`,
    };
  }

  const begin = () => {
    text.value = promptOf(run.examples[0]);
  };
  begin();
  const hasAttention = run.attention.length > 0;
  return {
    node: el(
      "div",
      {},
      el("label", { class: "try-text" }, el("span", {}, "your text"), text),
      heads.node,
      line,
      hasAttention ? scale.node : null,
      el("h3", {}, "What comes next"),
      writes,
      answer,
      hasAttention ? evidence.node : null,
    ),
    hint:
      "Type, and see what the next token is read from. Choose another head: each looks for " +
      "something else. Click a token to hide it.",
    most: 33,
    between: true,
    ordered: true,
    input: () => ({ text: text.value }),
    reset: begin,
    show,
    say,
    query,
  };
}
