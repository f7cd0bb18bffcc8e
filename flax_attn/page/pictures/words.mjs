// Words on the colours of their weights, and classes as bars.

import { buttonOf, div, el, percent, pressOne, roving, setStyle } from "../dom.mjs";
import { indexOfLargest } from "../lists.mjs";
import { colours, inColours, LEAST_SAID, rootOf, strength, weightText } from "./heat.mjs";

const LONGEST_SAID = 24; // letters of a token in a sentence

/** A token as it is shown: blanks, no-break spaces and line ends have a sign. */
export const sign = (token) =>
  token === "" ? "∅" : token.replaceAll(" ", "␣").replace(/\p{Zs}/gu, "⍽");

/** A token with a sign in place of the end of a line, as tokenizers write it. */
export const lineEnd = (token) => (token === "\\n" ? "⏎" : token);

/** The beginning of a text that has more letters than `longest`. */
export function cutText(text, longest) {
  const letters = [...text];
  return letters.length > longest ? `${letters.slice(0, longest - 1).join("")}…` : text;
}

/** A token as it is shown, or its beginning. */
export const cutShort = (token, longest) => cutText(sign(token), longest);

/** Says a query or a key by its token, and where it stands if the token stands twice. */
export function naming(tokens, what) {
  if (!tokens) return (i) => `${what} ${i}`;
  const times = new Map();
  for (const token of tokens) times.set(token, (times.get(token) ?? 0) + 1);
  const where = (i) => (times.get(tokens[i]) > 1 ? ` at ${i}` : "");
  return (i) => `“${cutShort(tokens[i], LONGEST_SAID)}”${where(i)}`;
}

/** A word that a model does not know, without the brackets that a run has kept it in. */
export const withoutBrackets = (token) => token.replace(/^\((.+)\)$/, "$1");

/** A word that a model does not know, in brackets, as figures and the terminal have it. */
export const inBrackets = (token) => `(${sign(withoutBrackets(token))})`;

/**
 * Words as buttons. `onPoint(i)` is called for the word under mouse, finger or focus, `onPick(i)`
 * for one that is pressed. `known[i] === false` puts a word in brackets with a dashed frame.
 *
 * Returns `{node, show(weights, count, top, signed), hide(keys), pick(i), buttons}`. `top` is the
 * end of the scale of a map; without it colours are of strength, and `count` is the number of words
 * that may have weight, by default all. NaN is a weight that is not a number, and weights of null
 * take the colours away. `hide` marks the hidden words.
 */
export function words(label, tokens, { known = null, onPoint = null, onPick = null } = {}) {
  const buttons = tokens.map((token, i) => {
    const isUnknown = known !== null && known[i] === false;
    const text = isUnknown ? inBrackets(token) : sign(token);
    const point = () => onPoint?.(i);
    const on = { onpointerenter: point, onfocus: point };
    const look = { class: isUnknown ? "word unknown" : "word", dir: "auto" };
    return buttonOf(text, () => (onPick ?? onPoint)?.(i), { ...look, ...on });
  });
  roving(buttons);
  const node = el("div", { class: "words", role: "group", "aria-label": label }, buttons);
  const places = []; // on the scale of colours, of which hundreds stay as they are
  const placeOf = (weight, count, top) =>
    top === null ? strength(weight, count) : rootOf(weight, top);
  const show = (weights, count = tokens.length, top = null, signed = top !== null) =>
    buttons.forEach((button, i) => {
      const place = weights === null ? null : placeOf(weights[i], count, top);
      button.classList.toggle("negative", signed && weights?.[i] <= -LEAST_SAID);
      if (!Object.is(place, places[i])) {
        const none = { background: "", color: "" };
        inColours(button, () => setStyle(button, place === null ? none : colours(place)));
        places[i] = place;
      }
      const said = weights === null ? "" : `: ${weightText(weights[i], signed)}`;
      button.setAttribute("aria-label", `${tokens[i]}${said}`);
    });
  const hide = (keys) =>
    buttons.forEach((button, i) => {
      button.classList.toggle("hidden-key", keys.includes(i));
      button.setAttribute("aria-pressed", String(keys.includes(i)));
    });
  return { node, show, hide, pick: (index) => pressOne(buttons, index), buttons };
}

/** A track that is filled up to a share. */
export function trackOf(share) {
  const width = Number.isFinite(share) ? Math.min(Math.max(share, 0), 1) : 0;
  const fill = el("div", { class: "fill", style: { width: `${100 * width}%` } });
  return el("div", { class: "track", "aria-hidden": "true" }, fill);
}

/**
 * Classes with their probabilities as bars: `[[name, share], ...]`. The likeliest is bold; the
 * target has a sign.
 */
export function bars(classes, right = null) {
  const best = likeliest(classes);
  const rows = classes.map(([name, share], i) => {
    const isRight = i === right;
    return el("li", { class: i === best ? "best" : "" },
      el("span", { class: "class-name", dir: "auto" }, name, isRight ? " ✓" : ""),
      isRight ? el("span", { class: "aside" }, " (target)") : null, trackOf(share),
      el("span", { class: "share" }, percent(share)),
    );
  });
  return el("ul", { class: "bars" }, rows);
}

/** The classes that a run has kept of an example, with their probabilities. */
export const classesOf = (run, { predictions }) =>
  predictions.map((share, i) => [run.classes[i], share]);

const likeliest = (classes) => indexOfLargest(classes.map(([, share]) => share));

/** Each run's answer, as `draw(reply, run)` makes it, under its name where there are several. */
export function answersOf(runs, replies, draw) {
  const name = (run) => (runs.length > 1 ? el("h3", {}, run.name) : null);
  return replies.map((reply, i) => div(name(runs[i]), draw(reply, runs[i])));
}

/** The prediction and the target of an example, with a sign for right and wrong. */
export function verdictOf(classes, target) {
  const best = likeliest(classes);
  const [name, share] = classes[best];
  const sign = best === target ? "✓" : "✗";
  return `${sign} Prediction: ${name} (${percent(share)}). Target: ${classes[target][0]}.`;
}
