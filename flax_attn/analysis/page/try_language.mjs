// Language models: a prompt to type or to be gone on with, what the next token looks at while it is
// written, and how likely each is.

import { el, percent } from "./dom.mjs";
import { bars, sign, words } from "./words.mjs";
import { evidenceRow } from "./try_evidence.mjs";
import { headChooser, movingLegend, scoresIn, weightsIn } from "./try_shared.mjs";

const BEGINNING = 12; // tokens of the first prompt
const OFFERED = 5; // next tokens that a button writes
const PACE = 500; // milliseconds between two tokens that the model writes
const MOST_WRITTEN = 200; // tokens, after which it stops
const GO_ON = "Let the model write";
const STOP = "Stop writing";

/** The code points of one of the likeliest tokens: each as often as it is likely. */
function drawnToken({ classes, writes }, number) {
  const offered = classes.map(([, share], i) => [share, writes[i]]).filter(([, own]) => own);
  let left = number * offered.reduce((sum, [share]) => sum + share, 0);
  for (const [share, own] of offered) {
    left -= share;
    if (left < 0) return own;
  }
  return offered.at(-1)?.[1] ?? null;
}

/** Numbers in (0, 1) as if by chance, the same ones each time (Lehmer's generator). */
function numbersFrom(seed) {
  let state = seed;
  return () => {
    state = (48271 * state) % 2147483647;
    return state / 2147483647;
  };
}

/** The beginning of a test text, as a prompt. */
export function promptOf({ tokens }) {
  const plain = tokens.map((token) => token.replaceAll("␣", " "));
  const first = plain.findIndex((token) => !/^(\\n|⏎|↵|\n)$/.test(token));
  const own = plain.slice(first < 0 ? 0 : first, first + BEGINNING);
  const end = own.findIndex((token) => /^(\\n|⏎|↵|\n)$/.test(token));
  return own.slice(0, end > 0 ? Math.max(Math.ceil(end / 2), 1) : BEGINNING).join("");
}

/** The view of language models. */
export function tryLanguage({ runs, asks, changed, hide, forget, again }) {
  const [run] = runs;
  const state = { replies: null, settings: null, request: null, timer: null };
  const text = el("textarea", { rows: 3, spellcheck: "false", maxlength: 100000, oninput: typed });
  const heads = headChooser(run, again);
  const scale = movingLegend();
  const line = el("div", {});
  const answer = el("div", {});
  const writes = el("div", { class: "row", role: "group", "aria-label": "write the next token" });
  const evidence = evidenceRow(asks[0]);
  const goOn = el("button", { type: "button", onclick: toggle }, GO_ON);

  function typed() {
    stop();
    forget();
    changed();
  }

  /** `request` is what was answered. */
  function show(replies, settings, request) {
    Object.assign(state, { replies, settings, request });
    const [reply] = replies;
    const looks = weightsIn(reply, heads.now.name, heads.now.head);
    const focused = [...line.querySelectorAll("button")].indexOf(document.activeElement);
    const shownTokens = reply.tokens.map(written);
    const own = words("the text so far", shownTokens, { onPick: (k) => hide([k]) });
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
    writes.replaceChildren(...buttonsFor(reply));
    if (weights) evidence.show({ names: shownTokens, weights, what: "token", ...request });
  }

  const written = (token) => (token === "\\n" ? "⏎" : token);

  /** A button for each of the likeliest tokens, which writes it. */
  function buttonsFor({ classes, writes: codes }) {
    const offered = classes.slice(0, OFFERED).map(([name], i) => [name, codes[i]]);
    return offered
      .filter(([, own]) => own !== null)
      .map(([name, own]) => {
        const onclick = () => {
          stop();
          write(own);
          text.focus();
        };
        return el("button", { type: "button", onclick }, `+ ${sign(written(name))}`);
      });
  }

  /** Adds a token to the text. What is hidden stays so, unless the text moves on under it. */
  function write(codes) {
    text.value += String.fromCodePoint(...codes);
    if (state.replies[0].note) forget();
    changed();
  }

  function toggle() {
    if (state.timer !== null) return stop();
    state.left = MOST_WRITTEN;
    state.timer = setInterval(writeOne, PACE);
    goOn.textContent = STOP;
  }

  function stop() {
    clearInterval(state.timer);
    state.timer = null;
    goOn.textContent = GO_ON;
  }

  /** Writes a token, once the answer to the text so far is shown. */
  function writeOne() {
    if (state.request?.inputs.text !== text.value) return;
    const codes = drawnToken(state.replies[0], state.random());
    state.left -= 1;
    if (codes === null || state.left < 0 || !goOn.isConnected) stop();
    else write(codes);
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
    stop();
    state.random = numbersFrom(1);
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
      el("div", { class: "row" }, goOn),
      writes,
      answer,
      hasAttention ? evidence.node : null,
    ),
    hint:
      "Type, or let the model write, and see what each next token is read from. Choose another " +
      "head: each looks for something else. Click a token to hide it.",
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
