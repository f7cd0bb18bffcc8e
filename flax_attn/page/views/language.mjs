// Language models: what a token looks at, the loss along a text, and induction. To try, a prompt is
// typed, and the model writes on.

import { headChooser, textField } from "../controls/choosers.mjs";
import { isVisible } from "../controls/settings.mjs";
import { asNumber, el, percent, replaceButtons, sentence, shown } from "../dom.mjs";
import { addKind } from "../kinds.mjs";
import { indexOfLargest, range } from "../lists.mjs";
import { chart, lineOf } from "../pictures/curves.mjs";
import { evidenceRow } from "../pictures/evidence.mjs";
import { headOf, heatMap, legend, mapOf, movingLegend, rowOf } from "../pictures/heat.mjs";
import { weightsBehind } from "../pictures/heat.mjs";
import { tellingHead } from "../pictures/overview.mjs";
import { stage } from "../pictures/stage.mjs";
import { answersOf, bars, lineEnd, sign, words } from "../pictures/words.mjs";

/** Whether a query may look at a key: a token sees itself and those before it. */
function isBefore(q, k) {
  return k <= q;
}

/** The picture of the text, for `stage`. */
function drawPassage() {
  return (example, weights, { top }) => {
    const { tokens } = example;
    if (!weights) return [];
    const state = { q: tokens.length - 1 };
    const said = sentence();
    const scale = movingLegend("tokens");
    const row = words("The text; each token looks at those before it", tokens, {
      onPoint: (k) => tell(k),
      onPick: (q) => pick(q),
    });
    const map = mapOf(tokens, weights, (q, k) => pick(q, k), { visible: isBefore, top });
    const tell = (k) => {
      const [query, key] = [tokens[state.q], tokens[k]];
      if (k > state.q) said.say(`“${key}” comes after “${query}”, which cannot see it.`);
      else said.say(tokenLook(query, key, weights.at(state.q, k), state.q - k));
    };
    const pick = (q, k = null) => {
      state.q = q;
      const shares = rowOf(weights, q);
      const key = k ?? indexOfLargest(shares.slice(0, q + 1));
      row.show(shares, q + 1);
      scale.to(q + 1);
      row.buttons.forEach((button, i) => button.classList.toggle("after", i > q));
      row.pick(q);
      map.point(q, key);
      tell(key);
    };
    pick(state.q);
    const under = el("p", { class: "hint no-print" }, "Press a token to see what it looks at.");
    const behind = weightsBehind("token", tokens.map(sign), weights, state);
    return [row.node, said.node, scale.node, under, map.node, behind];
  };
}

function tokenLook(from, to, weight, back) {
  const [query, key] = [sign(from), sign(to)];
  const where = back ? `${back} back` : "itself";
  const share = percent(weight);
  const says = `To say what follows “${query}”, the head puts`;
  return `${says} ${share} of its weight on “${key}”, ${where}.`;
}

/** Further pictures of a language model: the loss by position, and the heads' induction. */
function furtherOf(example) {
  const steps = example.losses[0].map((_, i) => i + 1);
  const line = lineOf("loss", 0, steps, example.losses);
  const names = { across: "tokens that the model knows", up: "loss of the next", at: "Tokens" };
  return [
    el("h2", {}, "What it gains from knowing more"),
    el("figure", {}, chart([line], names)),
    example.induction ? induction(example) : null,
  ];
}

/** Which heads look for what followed last time, and the best of them on a repeated string. */
function induction({ induction: scores, string, induction_weights: packed }) {
  const weights = headOf(packed, 0);
  const said = sentence();
  const map = mapOf(
    string,
    weights,
    (q, k) => said.say(tokenLook(string[q], string[k], weights.at(q, k), q - k)),
    { visible: isBefore, top: 1, label: "The map of the random string" },
  );
  const grid = {
    rows: scores.length,
    columns: scores[0].length,
    at: (block, head) => asNumber(scores[block][head]),
  };
  const small = heatMap({
    name: "Induction of each head: blocks downwards, heads across",
    rowNames: scores.map((_, i) => `block${i + 1}`),
    columnNames: scores[0].map((_, i) => `head ${i}`),
    onPoint: (block, head) =>
      said.say(`block${block + 1}, head ${head}: ${shown(grid.at(block, head))} on average.`),
  });
  small.show(grid, {});
  const flat = scores.flatMap((row, block) => row.map((value, head) => [value, block, head]));
  const [value, block, head] = flat.reduce((a, b) => (b[0] > a[0] ? b : a));
  const best = `block${block + 1}, head ${head} puts ${shown(value)} of its weight`;
  said.say(`${best} on the token that followed last time, on a random string that comes twice.`);
  return [
    el("h2", {}, "Heads that look for what followed last time"),
    el("figure", {}, said.node, small.node, map.node, legend(1, true)),
  ];
}

const BLANKS = new Map([["↵", "\n"], ["→", "\t"]]); // signs of characters without a picture
const BEGINNING = 12; // tokens of the first prompt
const SIGN = /^<(PAD|UNK)>$/; // stands for padding and unknown tokens, and is never written
const MOST_SHOWN = 8; // next tokens
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

/** Where the beginning of a test text stands, which is the first prompt: `[first, end]`. */
function promptIn({ tokens }) {
  const isEnd = (token) => /^(\\n|⏎|↵|\n)$/.test(token);
  const first = Math.max(tokens.findIndex((token) => !isEnd(token)), 0);
  const own = tokens.slice(first, first + BEGINNING);
  const end = own.findIndex(isEnd);
  return [first, first + (end > 0 ? Math.max(Math.ceil(end / 2), 1) : own.length)];
}

/** The beginning of a test text, as a prompt. */
function promptOf(example) {
  const own = example.tokens.slice(...promptIn(example));
  return own.map((token) => token.replaceAll("␣", " ")).join("");
}

/** What a run has kept of its first prompt: what the last token looks at, and no next token. */
function keptPrompt({ tokens, attention }, end) {
  const lastRow = ({ shape: [heads, , columns], data }) => {
    const rows = range(heads).map((head) => {
      const begin = (head * columns + end - 1) * columns; // as many queries as keys
      return [...data.slice(begin, begin + end)];
    });
    return { shape: [heads, 1, end], data: rows.flat() };
  };
  const rows = Object.entries(attention).map(([name, own]) => [name, lastRow(own)]);
  const own = tokens.slice(0, end).map((token) => token.replaceAll("␣", " "));
  const next = { classes: [], writes: [] };
  return { ...next, tokens: own, attention: Object.fromEntries(rows), scores: null };
}

/** The view of language models. */
function tryLanguage({ runs, asks, changed, hide, forget, again }) {
  const [run] = runs;
  const state = { replies: null, settings: null, request: null, timer: null };
  const text = textField("your text", 3, typed);
  const last = promptIn(run.examples[0])[1] - 1;
  const heads = headChooser(run, again, run.attention.length ? tellingHead(run, last) : null);
  const scale = movingLegend("tokens");
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
    const looks = heads.weights(reply);
    const shownTokens = reply.tokens.map(lineEnd);
    const own = words("the text so far", shownTokens, { onPick: (k) => hide([k]) });
    const weights = looks && rowOf(looks, 0);
    const count = Math.max(reply.tokens.length - settings.hidden.length, 1);
    own.show(weights, count);
    scale.to(count, settings.hidden.length > 0);
    own.hide(settings.hidden);
    replaceButtons(line, own.node);
    const listOf = ({ classes }) => {
      const next = classes.filter(([name]) => !SIGN.test(name)).slice(0, MOST_SHOWN);
      return next.length ? bars(next.map(([name, share]) => [written(name), share])) : null;
    };
    answer.replaceChildren(...answersOf(runs, replies, listOf));
    writes.replaceChildren(...buttonsFor(reply));
    if (weights) evidence.show({ names: shownTokens, weights, what: "token", ...request });
  }

  const written = (token) => sign(lineEnd(token));

  /** A button for each of the likeliest tokens, which writes it. */
  function buttonsFor({ classes, writes: codes }) {
    const offered = classes.slice(0, OFFERED).map(([name], i) => [name, codes[i]]);
    return offered
      .filter(([, own]) => own !== null)
      .map(([name, own]) => {
        const onclick = () => {
          stop();
          write(own);
          text.area.focus();
        };
        return el("button", { type: "button", onclick }, `+ ${written(name)}`);
      });
  }

  /** Adds a token to the text. What is hidden stays so, unless the text moves on under it. */
  function write(codes) {
    text.area.value += String.fromCodePoint(...codes);
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
    if (state.request?.inputs.text !== text.area.value) return;
    const codes = drawnToken(state.replies[0], state.random());
    state.left -= 1;
    if (codes === null || state.left < 0 || !goOn.isConnected) stop();
    else write(codes);
  }

  function say(replies) {
    return runs
      .map((other, i) => {
        if (!replies[i].classes.length) return most(replies[i]).trim(); // before the model answers
        const [[name, share]] = replies[i].classes;
        const said = `the likeliest next is “${written(name)}”, ${percent(share)}`;
        return runs.length > 1 ? `${other.name}: ${said}.` : `Here ${said}.${most(replies[i])}`;
      })
      .join(" ");
  }

  function most(reply) {
    const looks = heads.weights(reply);
    if (!looks) return "";
    const weights = rowOf(looks, 0);
    const best = indexOfLargest(weights);
    const back = reply.tokens.length - 1 - best;
    const where = back === 0 ? "itself" : `“${written(reply.tokens[best])}”, ${back} back`;
    return ` For it the last token looks most at ${where}, with ${percent(weights[best])}.`;
  }

  function query() {
    const reply = state.replies?.[0];
    const looks = reply && heads.weights(reply);
    if (!looks) return null;
    const last = reply.tokens.length - 1;
    return {
      what: `the last token, “${written(reply.tokens[last])}”`,
      weights: looks,
      scores: heads.scores(reply),
      q: 0,
      visible: (k) => isVisible(last, k, state.settings),
      key: (k) => `“${written(reply.tokens[k])}” at ${k}`,
    };
  }

  const begin = () => {
    stop();
    state.random = numbersFrom(1);
    text.area.value = promptOf(run.examples[0]);
  };
  const hasAttention = run.attention.length > 0;
  return {
    node: el(
      "div",
      {},
      text.node,
      heads.node,
      el(
        "div",
        { class: "try-reply" },
        line,
        hasAttention ? scale.node : null,
        el("h3", {}, "What comes next"),
        el("div", { class: "row" }, goOn),
        writes,
        answer,
        hasAttention ? evidence.node : null,
      ),
    ),
    hint:
      "Type, or let the model write, and see what each next token is read from. Choose another " +
      "head: each looks for something else. Click a token to hide it.",
    most: 33,
    between: true,
    ordered: true,
    input: () => ({ text: text.area.value }),
    begin,
    show,
    say,
    query,
  };
}

/** The text of tokens as it was written, without the line end that stands before each text. */
function textOfTokens(tokens, { always }) {
  const own = tokens.map((token) => BLANKS.get(token) ?? token);
  return (always ? own.slice(1) : own).join("");
}

/** The picture of the text, and of what the model gains from knowing more. */
function languagePicture(run, beside) {
  const first = run.attention.length ? tellingHead(run, run.examples[0].tokens.length - 1) : 0;
  const options = { visible: isBefore, masked: true, top: () => 1, first, beside };
  const parts = run.attention.length ? [stage(run, drawPassage(), options)] : [];
  return el("div", {}, parts, furtherOf(run.examples[0]));
}

/** The tokens, with what the last of them looks at. */
function tokenParts({ tokens }, weights) {
  return { names: tokens, weights: rowOf(weights, weights.rows - 1), what: "token" };
}

addKind("language", {
  picture: languagePicture,
  tried: tryLanguage,
  kept: (run, example) => keptPrompt(example, promptIn(example)[1]),
  stored: {
    inputs: (run, { tokens }) => ({ text: textOfTokens(tokens, run.live.text) }),
    parts: (run, example, weights) => tokenParts(example, weights),
  },
});
