// Texts that become other texts: the input above, the answer below, lines as thick as the weight.
// To try, an input is typed. The labels fit a translation and a date that is rewritten.

import { exampleChooser, textField } from "../controls/choosers.mjs";
import { el, numbered, percent, scrollBox, sentence, svg, tableBehind } from "../dom.mjs";
import { addKind } from "../kinds.mjs";
import { heatMap, largest, scoresIn, weightsIn } from "../pictures/heat.mjs";
import { linesBetween } from "../pictures/lines.mjs";
import { stage } from "../pictures/stage.mjs";
import { answersOf, inBrackets, sign, withoutBrackets } from "../pictures/words.mjs";

/** The picture of one translation, for `stage`. */
function drawTranslation() {
  return (example, weights, { top }) => {
    const { source, tokens, reference } = example;
    const right = el("p", { class: "result" }, translated(tokens, reference));
    if (!weights || !tokens.length) return [right];
    const said = sentence();
    const name = "Attention: each part of the answer is a row, the input is across";
    const map = heatMap({
      name,
      rowNames: tokens.map(sign),
      columnNames: source.map(sign),
      axes: ["answer", "input"],
      onPoint: (q, k) => tell(q, k),
    });
    map.show(weights, { top, name });
    const label = "The input above, the answer below";
    const lines = linesBetween(label, source, tokens, (q, k) => tell(q, k));
    const tell = (q, k = null) => {
      const key = k ?? largest(weights, q);
      const share = percent(weights.at(q, key));
      const [part, from] = [tokens[q], source[key]].map((token) => `“${sign(token)}”`);
      said.say(
        k === null
          ? `${part} was read most from ${from}: ${share} of its weight.`
          : `${part} puts ${share} of its weight on ${from}.`,
      );
      lines.show(weights, q);
      map.point(q, key);
    };
    tell(0);
    const hint = "Point at a part of the answer to see what it was read from.";
    return [
      right,
      lines.node,
      said.node,
      el("p", { class: "hint no-print" }, hint),
      scrollBox("The map", map.node),
      translationBehind(source, tokens, weights),
    ];
  };
}

/** Whether tokens are a text. Some have their blanks, others stand apart. */
const areText = (tokens, text) => ["", " "].some((between) => tokens.join(between) === text);

/** Tokens as one text. */
function joined(tokens) {
  const areLetters = tokens.every((token) => [...token].length < 2);
  return tokens.join(areLetters ? "" : " ");
}

function translated(tokens, reference) {
  const isSame = areText(tokens, reference);
  if (isSame) return `✓ The model wrote “${reference}”, which is right.`;
  if (!tokens.length) return `✗ The model wrote nothing; right is “${reference}”.`;
  return `The model wrote “${joined(tokens)}”; the reference is “${reference}”.`;
}

function translationBehind(source, tokens, weights) {
  const header = ["answer", "read most from", "weight"];
  const rows = () =>
    tokens.map((token, q) => {
      const key = largest(weights, q);
      return [sign(token), sign(source[key]), percent(weights.at(q, key))];
    });
  return tableBehind("what each part was read from", header, rows);
}

/** The class of a word; letters are narrow, so that a sentence of them has few lines on a phone. */
const wordClass = (token) => ([...token].length < 2 ? "word letter" : "word");

const DATES = "“24th of december 1999”, “july 4, 1976” and “tuesday, 11 july 2006”";
const LEAST = 0.02; // of the weight that a line stands for
const MOST_WORDS = 40; // on a side; beyond them all lines together are a tangle

/** The source of an example as text. Parts of words and characters bring their own spaces. */
function sourceOf({ source, known }) {
  const bare = source.map((token, i) => (known?.[i] === true ? token : withoutBrackets(token)));
  const areParts = bare.some((token) => /[ ␣]/.test(token));
  return bare
    .join(areParts ? "" : " ")
    .replaceAll("␣", " ")
    .trim();
}

/** The view of translation. */
function tryTranslation({ runs, changed, hide, forget, beginWith, pick }) {
  const [run] = runs;
  const state = { replies: null, settings: null, chosen: null, best: 0 };
  const text = textField("what you type", 2, typed);
  const picture = el("div", {});
  const choice = el("div", {});

  function typed() {
    forget();
    state.best = 0;
    state.chosen = null;
    changed();
  }

  /** The chosen one of the best answers in a reply. */
  function chosenIn(reply) {
    const all = reply.best ?? [{ text: reply.text, tokens: [], attention: reply.attention }];
    return all[Math.min(state.best, all.length - 1)];
  }

  function show(replies, settings) {
    Object.assign(state, { replies, settings });
    picture.replaceChildren(...answersOf(runs, replies, (reply) => aligned(reply, settings)));
    const count = replies[0].best?.length ?? 1;
    if (count < 2) return choice.replaceChildren();
    const describe = (i) => `answer ${i + 1} of ${count}: ${replies[0].best[i].text}`;
    const onBest = (i) => {
      state.best = i;
      show(state.replies, state.settings);
      choice.querySelectorAll("button")[i]?.focus();
      pick();
    };
    const label = "what the model writes, its best answer first";
    const list = numbered(label, count, state.best, onBest, describe);
    choice.replaceChildren(list.node);
  }

  /** Input and answer as two rows of words, with the lines between them. */
  function aligned(reply, settings) {
    const best = chosenIn(reply);
    const { tokens, known } = reply;
    const looks = weightsIn(best, "alignment", 0);
    const above = tokens.map((token, k) => sourceWord(token, known[k], k, settings));
    const below = best.tokens.map((token, q) => targetWord(token, q));
    const lines = svg("svg", { class: "try-lines", "aria-hidden": "true" });
    const isLong = looks && Math.max(above.length, below.length) > MOST_WORDS;
    const why = "Of a long text, these are the lines of one part of the answer. Point at another.";
    const node = el(
      "div",
      { class: isLong ? "try-aligned long" : "try-aligned" },
      el("div", { class: "words", role: "group", "aria-label": "what you type" }, above),
      lines,
      el("div", { class: "words", role: "group", "aria-label": "what the model writes" }, below),
      isLong ? el("p", { class: "hint" }, why) : null,
    );
    if (looks) requestAnimationFrame(() => drawLines(lines, looks, above, below, isLong));
    return node;
  }

  function sourceWord(token, isKnown, k, { hidden }) {
    const isHidden = hidden.includes(k);
    const looks = [isKnown ? "" : " unknown", isHidden ? " hidden-key" : ""].join("");
    const attributes = { class: `${wordClass(token)}${looks}`, "aria-pressed": String(isHidden) };
    return el(
      "button",
      { type: "button", dir: "auto", ...attributes, onclick: () => hide([k]) },
      isKnown ? sign(token) : inBrackets(token),
    );
  }

  function targetWord(token, q) {
    const choose = () => {
      if (state.chosen === q) return;
      state.chosen = q;
      for (const line of picture.querySelectorAll(".try-link"))
        line.classList.toggle("quiet", Number(line.dataset.q) !== q);
      pick();
    };
    const attributes = { type: "button", class: wordClass(token), dir: "auto", "data-q": q };
    return el(
      "button",
      { ...attributes, onpointerenter: choose, onfocus: choose, onclick: choose },
      sign(token),
    );
  }

  /** Draws the lines. Those of other parts than the chosen one are quiet. */
  function drawLines(lines, looks, above, below, isLong) {
    const outer = lines.getBoundingClientRect();
    if (!outer.width) return;
    lines.setAttribute("viewBox", `0 0 ${outer.width} ${outer.height}`);
    const middle = (own) => {
      const box = own.getBoundingClientRect();
      return box.left + box.width / 2 - outer.left;
    };
    const links = [];
    const chosen = isLong && looks.rows ? clearest(looks)[0] : state.chosen;
    below.forEach((target, q) =>
      above.forEach((source, k) => {
        const weight = looks.at(q, k);
        if (!(weight >= LEAST)) return;
        const [from, to] = [middle(source), middle(target)];
        const half = outer.height / 2;
        const top = source.getBoundingClientRect().bottom - outer.top;
        const end = target.getBoundingClientRect().top - outer.top;
        const d = `M${from},${top}C${from},${half} ${to},${half} ${to},${end}`;
        const isQuiet = chosen !== null && chosen !== q;
        const style = { "stroke-width": 10 * weight, "data-q": q, "data-k": k };
        links.push(svg("path", { class: `try-link${isQuiet ? " quiet" : ""}`, d, ...style }));
      }),
    );
    lines.replaceChildren(...links);
  }

  function say(replies) {
    return runs
      .map((other, i) => {
        const best = chosenIn(replies[i]);
        const who = runs.length > 1 ? `${other.name}: ` : "";
        return `${who}“${best.text}”.${runs.length > 1 ? "" : readFrom(best, replies[i])}`;
      })
      .join(" ");
  }

  /** The largest weight of the chosen part, or of all where none is chosen: its row and column. */
  function clearest(looks) {
    const isChosen = state.chosen !== null && state.chosen < looks.rows;
    const [first, end] = isChosen ? [state.chosen, state.chosen + 1] : [0, looks.rows];
    let top = [first, 0];
    for (let q = first; q < end; q++)
      for (let k = 0; k < looks.columns; k++) if (looks.at(q, k) > looks.at(...top)) top = [q, k];
    return top;
  }

  /** What the chosen part is read from, or the part that is read most clearly. */
  function readFrom(best, reply) {
    const looks = weightsIn(best, "alignment", 0);
    if (!looks?.rows) return "";
    const [q, k] = clearest(looks);
    const share = percent(looks.at(q, k));
    return ` “${sign(best.tokens[q])}” is read from “${sign(reply.tokens[k])}” with ${share}.`;
  }

  function query() {
    const reply = state.replies?.[0];
    const best = reply && chosenIn(reply);
    const looks = best && weightsIn(best, "alignment", 0);
    if (!looks?.rows) return null;
    const q = Math.min(state.chosen ?? 0, looks.rows - 1);
    const { tokens } = reply;
    return {
      what: `“${sign(best.tokens[q])}”`,
      weights: looks,
      scores: scoresIn(best, "alignment", 0),
      without: "These weights are a mean over heads, or times a Gaussian: no scores fit them.",
      q,
      visible: (k) => !state.settings.hidden.includes(k),
      key: (k) => `“${sign(tokens[k])}”`,
    };
  }

  const begin = (i) => {
    text.area.value = sourceOf(run.examples[i]);
    state.best = 0;
    state.chosen = null;
  };
  new ResizeObserver(() => state.replies && show(state.replies, state.settings)).observe(picture);
  return {
    node: el(
      "div",
      {},
      exampleChooser(run, beginWith),
      text.node,
      el("div", { class: "try-reply" }, choice, picture),
    ),
    hint:
      (runs[0].data === "dates"
        ? `It has learned dates of 1950 to 2049, such as ${DATES}; others come out wrong. `
        : "") +
      "Change what you type. Point at a part of the answer to see what it was read from; click a " +
      "part of the input to hide it.",
    most: 64,
    between: false,
    input: () => ({ text: text.area.value }),
    begin,
    show,
    say,
    query,
  };
}

/** What a run has kept of a translation, as a reply. */
function keptTranslation({ source, tokens, reference, attention }) {
  const text = areText(tokens, reference) ? reference : joined(tokens);
  const known = source.map((token) => withoutBrackets(token) === token);
  const best = [{ text, tokens, attention, scores: null }];
  return { text, best, tokens: source.map(withoutBrackets), known, attention, scores: null };
}

addKind("translation", {
  kept: (run, example) => keptTranslation(example),
  picture: (run, beside) => stage(run, drawTranslation(), { top: () => 1, beside }),
  tried: tryTranslation, // no model in a page: its tokens need Python
});
