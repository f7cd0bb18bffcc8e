// The next token: the likeliest as bars, and buttons that write them.

import { buttonOf, div, el, percent } from "../dom.mjs";
import { answersOf, bars, lineEnd, sign } from "../pictures/words.mjs";
import { addTarget } from "../views.mjs";

const SIGN = /^<(PAD|UNK)>$/; // stands for padding and unknown tokens, and is never written
const MOST_SHOWN = 8; // next tokens
const OFFERED = 5; // next tokens that a button writes
const PACE = 500; // milliseconds between two tokens that the model writes
const MOST_WRITTEN = 200; // tokens, after which it stops

export const written = (token) => sign(lineEnd(token));

/** The code points of a token that is drawn by its probability, for a number in (0, 1). */
export function drawnToken({ classes, writes }, number) {
  const offered = classes.map(([, share], i) => [share, writes[i]]).filter(([, own]) => own);
  let left = number * offered.reduce((sum, [share]) => sum + share, 0);
  for (const [share, own] of offered) {
    left -= share;
    if (left < 0) return own;
  }
  return offered.at(-1)?.[1] ?? null;
}

/** Numbers in (0, 1) as if by chance, the same ones each time (Lehmer's generator). */
export function numbersFrom(seed) {
  let state = seed;
  return () => {
    state = (48271 * state) % 2147483647;
    return state / 2147483647;
  };
}

/** A row of buttons for the likeliest tokens of a reply: `{node, show(reply)}`. */
export function writeButtons(onWrite) {
  const node = el("div", { class: "row", role: "group", "aria-label": "write the next token" });
  const show = ({ classes, writes }) => {
    const offered = classes.slice(0, OFFERED).map(([name], i) => [name, writes[i]]);
    const usable = offered.filter(([, codes]) => codes !== null);
    const button = ([name, codes]) =>
      el("button", { type: "button", onclick: () => onWrite(codes) }, `+ ${written(name)}`);
    node.replaceChildren(...usable.map(button));
  };
  return { node, show };
}

/** Next tokens as bars and buttons, and a model that writes on. */
function triedNext(own) {
  const { runs, state, forget, changed } = own;
  const list = div();
  const goOn = buttonOf("Let the model write", toggle);
  const writing = { timer: null, left: 0, random: numbersFrom(1) };
  const buttons = writeButtons((codes) => {
    stop();
    write(codes);
    own.input.focus();
  });

  /** Adds a token to the text. What is masked stays so, unless the text moves on under it. */
  function write(codes) {
    own.input.add(codes);
    if (state.replies[0].note) forget();
    changed();
  }

  function toggle() {
    if (writing.timer !== null) return stop();
    writing.left = MOST_WRITTEN;
    writing.timer = setInterval(writeOne, PACE);
    goOn.textContent = "Stop writing";
  }

  function stop() {
    clearInterval(writing.timer);
    writing.timer = null;
    goOn.textContent = "Let the model write";
  }

  /** Writes a token, once the answer to the text so far is shown. */
  function writeOne() {
    if (state.request?.inputs.text !== own.input.value().text) return;
    const codes = drawnToken(state.replies[0], writing.random());
    writing.left -= 1;
    if (codes === null || writing.left < 0 || !goOn.isConnected) stop();
    else write(codes);
  }

  function drawn({ classes }) {
    const next = classes.filter(([name]) => !SIGN.test(name)).slice(0, MOST_SHOWN);
    return next.length ? bars(next.map(([name, share]) => [written(name), share])) : null;
  }

  return {
    node: [el("div", { class: "row" }, goOn), buttons.node, list],
    title: "Next token",
    begin: () => {
      stop();
      writing.random = numbersFrom(1);
    },
    show: (replies) => {
      list.replaceChildren(...answersOf(runs, replies, drawn));
      buttons.show(replies[0]);
    },
    said: ({ classes: [first] }) =>
      first ? `“${written(first[0])}” (${percent(first[1])})` : "", // none is kept
  };
}

addTarget("next", { kept: () => ({ classes: [], writes: [] }), tried: triedNext });
