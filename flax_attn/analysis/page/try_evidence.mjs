// Attention beside evidence: what hiding one key does to the answer, and whether the two agree.

import { el, setStyle } from "./dom.mjs";
import { agreement, kendall } from "./try_shared.mjs";
import { sign } from "./words.mjs";

const PAUSE = 350; // milliseconds after the last change
const MOST = 64; // keys that are hidden in turn

/** The probability of a class in a reply. */
function shareOf(reply, name) {
  return reply.classes.find(([own]) => own === name)?.[1] ?? 0;
}

/** A change of a probability in points of a hundred, with its sign. */
function points(change) {
  const hundredths = Math.round(100 * change);
  return hundredths === 0 ? "0" : hundredths > 0 ? `+${hundredths}` : `−${-hundredths}`;
}

/**
 * A row that hides each key in turn and shows what becomes of the likeliest class. `inputs()` is
 * the input. `show({tokens, weights, best, settings})` begins anew.
 */
export function evidenceRow(ask, inputs) {
  const row = el("div", { class: "words try-evidence", role: "group", tabindex: 0 });
  row.setAttribute("aria-label", "what hiding a word does to the answer");
  const said = el("p", { class: "sentence", "aria-live": "polite" });
  const title = el("h3", {}, "What hiding does to the answer");
  const node = el("div", { "aria-busy": "false" }, title, row, said);
  let turn = 0;

  async function measure({ tokens, weights, best, settings, what, columns }, own) {
    const first = await ask({ inputs: inputs(), settings });
    const changes = [];
    for (let k = 0; k < tokens.length; k++) {
      const hidden = [...new Set([...settings.hidden, k])];
      const reply = await ask({ inputs: inputs(), settings: { ...settings, hidden } });
      if (own !== turn) return;
      if (reply.error || first.error) break;
      changes.push(shareOf(reply, best) - shareOf(first, best));
    }
    if (changes.length < tokens.length) return;
    row.classList.toggle("in-rows", Boolean(columns));
    setStyle(row, { "grid-template-columns": columns ? `repeat(${columns}, 1fr)` : "" });
    const cells = tokens.map((token, k) => cell(columns ? null : token, token, changes[k]));
    row.replaceChildren(...cells);
    title.textContent = `What hiding each ${what ?? "word"} does to “${best}”, in points of 100`;
    said.textContent = sentenceOf(weights, changes);
    node.setAttribute("aria-busy", "false");
  }

  function show(asked) {
    turn += 1;
    const own = turn;
    node.setAttribute("aria-busy", "true");
    said.textContent = "";
    if (asked.tokens.length > MOST) {
      row.replaceChildren();
      said.textContent = `The text has more than ${MOST} words, so none is hidden in turn.`;
      node.setAttribute("aria-busy", "false");
      return;
    }
    setTimeout(() => own === turn && measure(asked, own).catch(() => {}), PAUSE);
  }

  return { node, show };
}

function cell(token, name, change) {
  const strength = `${Math.round(70 * Math.min(2 * Math.abs(change), 1))}%`;
  const colour = change < 0 ? "var(--blue)" : "var(--orange)";
  const node = el(
    "span",
    { class: "try-change", title: name },
    token === null ? null : el("span", { dir: "auto" }, sign(token)),
    el("small", {}, points(change)),
  );
  setStyle(node, {
    "border-bottom-color": `color-mix(in srgb, ${colour} ${strength}, transparent)`,
  });
  return node;
}

/** How well attention and evidence agree: Kendall's tau of weights and of what hiding costs. */
function sentenceOf(weights, changes) {
  const costs = changes.map((change) => -change);
  const tau = kendall(weights, costs);
  const number = Number.isFinite(tau) ? ` (Kendall's tau ${tau.toFixed(2)})` : "";
  return `Attention and evidence ${agreement(tau)}${number}.`;
}
