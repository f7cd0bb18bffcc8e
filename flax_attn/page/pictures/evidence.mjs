// Attention beside evidence: what hiding one key does to the answer, and whether the two agree.

import { el, percent, setStyle, shown } from "../dom.mjs";
import { meanOf } from "../lists.mjs";
import { sign } from "./words.mjs";

export const PAUSE = 350; // milliseconds after the last change
export const MOST_PARTS = 64; // that are changed in turn
const NEGLIGIBLE = 1e-3; // the share of an answer below which a change is next to nothing
const LEAST_WRITTEN = 1e-4; // percentage points
const STRONGEST = 70; // per cent of its colour that the largest change has

// what the command does with a word of a text in classes
const WHY = "; flax-attn predict --why leaves it out of the text, so its figures differ";

/** The probability of a class in a reply. */
function shareOf(reply, name) {
  return reply.classes.find(([own]) => own === name)?.[1] ?? 0;
}

/** A change of a probability in points of a hundred, with its sign and two digits that count. */
export function points(change) {
  const size = 100 * Math.abs(change);
  if (size === 0) return "0";
  if (size < LEAST_WRITTEN) return `<${LEAST_WRITTEN}`;
  return `${change > 0 ? "+" : "−"}${sizeOf(size)}`;
}

function sizeOf(number) {
  return number < 9.95 ? String(Number(number.toPrecision(2))) : String(Math.round(number));
}

/** Blue for what the answer loses and orange for what it gains, by a strength from 0 to 1. */
export function tintOf(strength, isLoss) {
  const colour = isLoss ? "var(--blue)" : "var(--orange)";
  return `color-mix(in srgb, ${colour} ${Math.round(STRONGEST * strength)}%, transparent)`;
}

/** What becomes of the likeliest class of a reply. */
function ofClass({ classes: [[best]] }) {
  return {
    does: `does to “${best}”, in percentage points`,
    below: () => "the change",
    beside: (what) => (what === "word" ? WHY : ""),
    change: (first, reply) => shareOf(reply, best) - shareOf(first, best),
    cost: (change) => -change,
    written: points,
    strength: (change) => Math.min(2 * Math.abs(change), 1),
    isNothing: (largest) => largest < NEGLIGIBLE,
    most: (largest) => `by at most ${sizeOf(100 * largest)} percentage points`,
  };
}

/** By how much the numbers of an answer change, on average. */
const OF_NUMBERS = {
  does: "does to the answer",
  below: (numbers) => `by how much ${numbers} change, on average`,
  beside: () => "",
  change: ({ outputs: { data } }, { outputs }) => {
    return meanOf(Array.from(data, (own, i) => Math.abs(own - outputs.data[i])));
  },
  cost: (change) => change,
  written: shown,
  strength: (change, largest) => (largest > 0 ? change / largest : 0),
  isNothing: (largest, { outputs: { data } }) =>
    largest <= NEGLIGIBLE * Math.max(...Array.from(data, Math.abs)),
  most: (largest) => `by at most ${shown(largest)}`,
};

/**
 * A row that hides each part of an input in turn and shows what becomes of the answer.
 *
 * `show({names, weights, inputs, settings, ...})` begins anew. `keys` are those of each part, by
 * default one; `labels` what is written, by default the names, and null for none; `columns` puts
 * the parts in rows; `what` says what a part is; `weighed` says over what the weights are means,
 * which are then written, too; `numbers` says what the numbers of an answer are.
 */
export function evidenceRow(ask) {
  const row = el("div", { class: "words try-evidence", role: "group", tabindex: 0 });
  row.setAttribute("aria-label", "what hiding a part does to the answer");
  const said = el("p", { class: "sentence", "aria-live": "polite" });
  const title = el("p", { class: "try-title" }, "What hiding does to the answer");
  const about = el("p", { class: "hint" });
  const parts = [title, about, row, said];
  const node = el("div", { class: "try-beside-weights", "aria-busy": "false" }, parts);
  let turn = 0;

  const end = (words) => {
    said.textContent = words;
    node.setAttribute("aria-busy", "false");
  };

  async function measure(asked, own) {
    const { names, weights, inputs, settings, keys = names.map((_, k) => [k]) } = asked;
    const brief = true; // weights are not looked at
    const first = await ask({ inputs, settings, brief });
    const replies = [];
    for (const part of keys) {
      if (first.error || own !== turn) break;
      const hidden = [...new Set([...settings.hidden, ...part])];
      replies.push(await ask({ inputs, settings: { ...settings, hidden }, brief }));
    }
    if (own !== turn) return;
    const broken = [first, ...replies].find((reply) => reply.error);
    if (broken) {
      row.replaceChildren();
      about.textContent = "";
      return end(`It cannot be said: ${broken.error}`);
    }
    const how = first.classes ? ofClass(first) : OF_NUMBERS;
    const changes = replies.map((reply) => how.change(first, reply));
    draw(asked, changes, how);
    const largest = Math.max(...changes.map(Math.abs));
    const { what = "word" } = asked;
    if (how.isNothing(largest, first)) {
      const nothing = `Hiding any one ${what} changes next to nothing, ${how.most(largest)}`;
      return end(`${nothing}, so it cannot tell which ${what} mattered.`);
    }
    end(sentenceOf(weights, changes.map(how.cost)));
  }

  function draw(asked, all, how) {
    const { names, weights, what = "word", columns, weighed } = asked;
    const { labels = names.map(sign), numbers = "the numbers of the answer" } = asked;
    const largest = Math.max(...all.map(Math.abs));
    row.classList.toggle("in-rows", Boolean(columns));
    setStyle(row, { "grid-template-columns": columns ? `repeat(${columns}, 1fr)` : "" });
    const cells = names.map((name, k) => {
      const share = weighed ? percent(weights[k]) : null;
      const cell = cellOf(labels && labels[k], name, how.written(all[k]), share);
      const tint = tintOf(how.strength(all[k], largest), how.cost(all[k]) > 0);
      setStyle(cell, { "border-bottom-color": tint });
      return cell;
    });
    row.replaceChildren(...cells);
    title.textContent = `What hiding each ${what} ${how.does}`;
    const hidden = `Each ${what} is hidden from the attention in turn${how.beside(what)}.`;
    const above = weighed ? ` Above: the attention on it, ${weighed}.` : "";
    about.textContent = `${hidden}${above} Below: ${how.below(numbers)}.`;
  }

  /** Without inputs nothing is asked: what is shown was kept, and the model's answer is to come. */
  function show(asked) {
    turn += 1;
    const own = turn;
    if (!asked.inputs) return;
    node.setAttribute("aria-busy", "true");
    said.textContent = "";
    if (asked.names.length > MOST_PARTS) {
      row.replaceChildren();
      about.textContent = "";
      return end(`There are more than ${MOST_PARTS} parts, so none is hidden in turn.`);
    }
    const begin = () => own === turn && measure(asked, own).catch((error) => end(String(error)));
    setTimeout(begin, PAUSE);
  }

  return { node, show };
}

function cellOf(label, name, change, share) {
  return el(
    "span",
    { class: "try-change", title: name },
    label === null ? null : el("span", { dir: "auto" }, label),
    share === null ? null : el("span", { class: "try-weight" }, share),
    el("small", {}, change),
  );
}

/** How well attention and evidence agree: Kendall's tau of weights and of what hiding costs. */
function sentenceOf(weights, costs) {
  const tau = kendall(weights, costs);
  const number = tau.toFixed(2).replace("-", "−");
  const said = `: Kendall's tau is ${number}, where 1 is the same order and −1 the reverse`;
  const orders = "The order by attention and the order by what hiding does";
  return `${orders} ${agreement(tau)}${Number.isFinite(tau) ? said : ""}.`;
}

/**
 * Kendall's tau-b of two lists: 1 where they have the same order, -1 where they are reversed. NaN
 * where one of them is constant.
 */
export function kendall(one, other) {
  let [agree, oneTied, otherTied, pairs] = [0, 0, 0, 0];
  for (let i = 0; i < one.length; i++)
    for (let j = 0; j < i; j++) {
      const [a, b] = [Math.sign(one[i] - one[j]), Math.sign(other[i] - other[j])];
      agree += a * b;
      oneTied += a === 0;
      otherTied += b === 0;
      pairs += 1;
    }
  return agree / Math.sqrt((pairs - oneTied) * (pairs - otherTied));
}

/** What a tau says, in words. */
export function agreement(tau) {
  if (!Number.isFinite(tau)) return "cannot be compared";
  if (tau > 0.6) return "agree well";
  if (tau > 0.3) return "agree in part";
  if (tau > -0.3) return "hardly agree";
  return "contradict each other";
}
