// All heads of a model as small pictures: blocks downwards, heads across. One is chosen.

import { el, roving, scrollBox, setStyle } from "../dom.mjs";
import { indexOfLargest, range, sumOf } from "../lists.mjs";
import { points, strengthColour } from "./effects.mjs";
import { inColours, paintPixelwise, topOf } from "./heat.mjs";

const NO_WORD = /^(\[.*\]|<.*>|[^\p{L}\p{N}]*)$/u; // [SEP], </s>, a full stop

/**
 * The head, by its number, whose queries put most weight on a key that tells something: on others
 * than those that `isTelling(q, k)` leaves out.
 */
export function mostTelling(heads, isTelling) {
  const told = (weights) => range(weights.rows).map((q) => mostTold(weights, q, isTelling));
  return indexOfLargest(heads.map((weights) => sumOf(told(weights))));
}

/** The largest weight of a query on a key that tells something. */
export function mostTold(weights, q, isTelling) {
  let most = 0;
  for (let k = 0; k < weights.columns; k++)
    if (Math.abs(weights.at(q, k)) > most && isTelling(q, k)) most = Math.abs(weights.at(q, k));
  return most;
}

/**
 * The head, by its number, and its query to begin with: they look at a word that is neither the
 * query's own nor beside it, where there is one. `keys` are tokens or null, and `isSame` says
 * whether queries and keys are one sequence.
 */
export function telling(heads, keys, isSame) {
  const isWord = (k) => !keys || !NO_WORD.test(keys[k]);
  const isFar = (q, k) => !isSame || (k > 0 && Math.abs(k - q) > 1);
  const isTelling = (q, k) => isWord(k) && isFar(q, k);
  const head = mostTelling(heads, isTelling);
  const told = range(heads[head].rows).map((q) => mostTold(heads[head], q, isTelling));
  return { head, q: indexOfLargest(told) };
}

/** The name of a head; that of an attention alone, or of one head alone, needs no more. */
export function headName({ attention }, place, head) {
  const { name, heads } = attention[place];
  return [name, heads > 1 || !name ? `head ${head}` : ""].filter(Boolean).join(", ");
}

/** All heads of a run, as pairs of the number of the attention and of the head. */
export const placesOfHeads = ({ attention }) =>
  attention.flatMap(({ heads }, place) => range(heads).map((head) => [place, head]));

/**
 * The pictures of a run's heads, which are buttons. `onChoose(attention, head)` hears which, and
 * `down` says what the attentions are.
 *
 * `show(heads)` paints the heads of all attentions, one after the other;
 * `mark({view, cut, effects})` says which head is chosen, which are cut, and for heads by
 * `attention,head` what cutting them changes.
 */
export function headGrid(run, onChoose, down = "blocks") {
  const columns = Math.max(...run.attention.map((own) => own.heads));
  const places = placesOfHeads(run);
  const cells = places.map(([attention, head]) =>
    el("button", { type: "button", class: "head-cell", onclick: () => onChoose(attention, head) },
      el("canvas", { "aria-hidden": "true" }),
    ),
  );
  const inRows = run.attention.map((_, row) => cells.filter((_, i) => places[i][0] === row));
  roving(cells, 0, inRows);
  const rows = run.attention.map(({ name, heads }, row) => [
    el("span", { class: "head-name", "aria-hidden": "true" }, name),
    inRows[row],
    range(columns - heads).map(() => el("span", {})),
  ]);
  const numbers = range(columns).map((head) =>
    el("span", { class: "head-number", "aria-hidden": "true" }, String(head)),
  );
  const grid = el("div",
    { class: "head-grid", role: "group", "aria-label": `heads: ${down} down, heads across` },
    el("span", {}), numbers, rows,
  );
  setStyle(grid, { "--heads": columns });
  const node = scrollBox("All heads", grid);
  node.classList.add("head-box");

  const show = (heads) =>
    cells.forEach((cell, i) => {
      const weights = heads[i];
      const top = topOf(weights);
      inColours(cell.firstChild, () => paintPixelwise(cell.firstChild, weights, top));
    });

  let last = null; // the cell that was chosen last

  /** Scrolls the box to a cell, and not the page. */
  const bring = (cell) => {
    const top = cell.offsetTop - grid.offsetTop;
    const end = node.scrollTop + node.clientHeight - cell.offsetHeight;
    const isHidden = top < node.scrollTop || top > end;
    if (cell !== last && isHidden) node.scrollTop = top - node.clientHeight / 2;
    last = cell;
  };

  const mark = ({ view, cut, effects }) =>
    cells.forEach((cell, i) => {
      const [attention, head] = places[i];
      const isCut = cut.some(([a, h]) => a === attention && h === head);
      const isChosen = view.attention === attention && view.head === head;
      const effect = effects.get(`${attention},${head}`) ?? null;
      const said = [headName(run, attention, head)];
      if (isCut) said.push("ablated");
      if (effect !== null) said.push(`effect of ablation: ${points(effect)}`);
      cell.setAttribute("aria-label", said.join(", "));
      cell.setAttribute("aria-pressed", String(isChosen));
      cell.title = said.join(", ");
      cell.classList.toggle("cut", isCut);
      setStyle(cell, { "border-bottom-color": effect === null ? "" : strengthColour(effect) });
      if (!isChosen) return;
      for (const other of cells) other.setAttribute("tabindex", "-1");
      cell.setAttribute("tabindex", "0");
      bring(cell);
    });
  return { node, show, mark };
}
