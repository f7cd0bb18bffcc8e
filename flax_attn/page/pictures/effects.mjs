// What each of many changes does to the answer: each token hidden, or each head cut.

import { el, replaceButtons, setStyle } from "../dom.mjs";
import { MOST_PARTS, PAUSE, points, tintOf } from "./evidence.mjs";

/** The colour of a change of a probability: blue where it falls, orange where it rises. */
export function strengthColour(change) {
  return tintOf(Math.min(2 * Math.abs(change), 1), change < 0);
}

/**
 * Asks what each of some changes does, a few at once. `isWanted()` says whether to go on, and
 * `tell(first, effects)` hears what they do, from one on. Returns an error, or null.
 */
export async function effectsOf(ask, request, changes, atOnce, isWanted, tell) {
  for (let first = 0; first < changes.length && isWanted(); first += atOnce) {
    const part = changes.slice(first, first + atOnce);
    const failed = (error) => ({ error: error.message });
    const reply = await ask({ ...request, changes: part }).catch(failed);
    if (reply.error) return reply.error;
    if (isWanted()) tell(first, reply.effects);
  }
  return null;
}

/**
 * A row with a switch for each part, and under it what becomes of the answer without the part.
 *
 * `show({title, names, changes, off, best}, request)` begins anew: `changes` are asked as a request
 * has them, `off` says which parts are switched off, `best` is the likeliest class. `onPress(i)`
 * hears a switch, and `onChange(i, value)` what was measured. Returns a promise of `show`.
 */
export function effectsRow(ask, { label, atOnce, onPress, onChange = () => {}, hint }) {
  const row = el("div", { class: "words effects", role: "group", "aria-label": label });
  const title = el("p", { class: "try-title" });
  const said = el("p", { class: "sentence", "aria-live": "polite" });
  const node = el(
    "div",
    { class: "effects-part", "aria-busy": "false" },
    title,
    el("p", { class: "hint" }, hint),
    row,
    said,
  );
  let turn = 0;

  async function show({ title: heading, names, changes, off, best }, request) {
    turn += 1;
    const own = turn;
    const isWanted = () => own === turn && node.isConnected;
    title.textContent = `${heading} P(“${best}”), in percentage points`;
    said.textContent = "";
    const cells = names.map((name, i) => {
      const small = el("small", {}, off[i] ? "off" : "…");
      const press = { type: "button", class: "effect", onclick: () => onPress(i) };
      const cell = el("button", press, el("span", { dir: "auto" }, name), small);
      cell.setAttribute("aria-pressed", String(off[i]));
      cell.classList.toggle("hidden-key", off[i]);
      return cell;
    });
    replaceButtons(row, ...cells);
    const asked = changes.map((_, i) => i).filter((i) => !off[i]);
    if (asked.length > MOST_PARTS) {
      for (const cell of cells) cell.lastChild.textContent = "";
      said.textContent = `There are more than ${MOST_PARTS} parts, so none is changed in turn.`;
      return;
    }
    node.setAttribute("aria-busy", "true");
    await new Promise((done) => setTimeout(done, PAUSE));
    const values = new Map();
    const tell = (first, effects) =>
      effects.forEach((value, j) => {
        const i = asked[first + j];
        values.set(i, value);
        cells[i].lastChild.textContent = points(value);
        setStyle(cells[i], { "border-bottom-color": strengthColour(value) });
        onChange(i, value);
      });
    const part = asked.map((i) => changes[i]);
    const error = await effectsOf(ask, request, part, atOnce, isWanted, tell);
    if (own !== turn) return;
    node.setAttribute("aria-busy", "false");
    said.textContent = error ? `It cannot be said: ${error}` : mostOf(names, values);
  }

  return { node, show };
}

/** Which part mattered most, in words. */
function mostOf(names, values) {
  const [first] = [...values].sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  if (!first || Math.abs(first[1]) < 1e-3) return "None of them alone changes more than 0.1.";
  return `Most changes without “${names[first[0]]}”: ${points(first[1])}.`;
}
