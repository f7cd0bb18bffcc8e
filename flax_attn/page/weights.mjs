// Attention weights of any model: heads to choose from, the chosen one as a matrix or as lines, and
// the tokens with their weights.

import { buttonOf, capital, div, el, keepHeight, pressOne, scrollBox } from "./dom.mjs";
import { sentence, setStyle, tableBehind } from "./dom.mjs";
import { range } from "./lists.mjs";
import { openPage } from "./opening.mjs";
import { headGrid, headName, telling } from "./pictures/head_grid.mjs";
import { headOf, headsOf, heatMap, largest, legend, MOST_NAMED, mostOn } from "./pictures/heat.mjs";
import { movingLegend, pooled, putsOn, rowOf, signedTop, topOf } from "./pictures/heat.mjs";
import { weightText } from "./pictures/heat.mjs";
import { linesAcross } from "./pictures/lines.mjs";
import { savedLines, savedMatrix, saveButtons } from "./pictures/saved.mjs";
import { cutText, naming, sign, words } from "./pictures/words.mjs";

const LONGEST_HEAD = 40; // letters of the name of a head
const SMALL_SIDE = 32; // cells along the small picture of a head
const MOST_LINED = 128; // queries or keys, up to which there are lines
const GUESSED = "hatched: exactly 0 in every head, so taken for masked";

/** All heads of all layers as `{attention, head, weights, visible(q, k)}`. */
function placesOf({ attention }) {
  return attention.flatMap(({ weights, hidden, broken }, place) => {
    broken?.data.forEach((isBroken, i) => {
      if (isBroken) weights.data[i] = NaN;
    });
    return headsOf(weights).map((own, head) => {
      const mask = hidden && headOf(hidden, Math.min(head, hidden.shape[0] - 1));
      const visible = mask ? (q, k) => mask.at(q, k) === 0 : () => true;
      return { attention: place, head, weights: own, visible, isMasked: Boolean(mask) };
    });
  });
}

/** The view of weights, below the heading of the page. */
function weightsView(run) {
  const places = placesOf(run);
  const { rows: numRows, columns: numColumns } = places[0].weights;
  const isSame = numRows === numColumns && JSON.stringify(run.rows) === JSON.stringify(run.columns);
  const { head, q } = telling(places.map((own) => own.weights), run.columns, isSame);
  const state = { place: places[head], q, k: null };
  let picked = { q: state.q, k: null }; // what is shown while nothing is pointed at
  const query = naming(run.rows, "query");
  const key = naming(run.columns, "key");
  const rows = run.rows ?? range(numRows).map(String);
  const columns = run.columns ?? range(numColumns).map(String);

  const said = sentence();
  const heading = el("h2", {});
  const grid = headGrid(run, choose, "layers");
  const isNamed = Math.max(numRows, numColumns) <= MOST_NAMED;
  const names = isNamed ? { rowNames: rows.map(sign), columnNames: columns.map(sign) } : {};
  const label = "Attention: each query is a row, and looks across";
  const map = heatMap({ name: label, ...names, axes: ["query", "key"], onPoint: point });
  const matrix = isNamed ? scrollBox("The matrix", map.node) : map.node;
  const lines =
    Math.max(numRows, numColumns) <= MOST_LINED
      ? linesAcross("Queries at the left, keys at the right", rows, columns, point)
      : null;
  const scale = div();
  const table = div();

  const hasWords = Boolean(run.rows || run.columns);
  const onQuery = { onPoint: (q) => point(q, null) };
  const queries = isSame ? null : words("queries", rows, onQuery);
  const keys = words(isSame ? "tokens" : "keys", columns, {
    onPoint: (i) => (isSame ? point(i, null) : point(state.q, i)),
  });
  const strength = movingLegend("keys");
  let scaled = null; // the end of its scale and the number of keys that it stands for
  const about = isSame
    ? "Point at a token to see what it looks at. Its keys stand on the colours of their weights."
    : "Point at a query to see which keys it looks at. Keys stand on the colours of their weights.";

  const top = () => topOf(state.place.weights);
  const nameNow = () => headName(run, state.place.attention, state.place.head);
  const hasName = places.length > 1 || run.attention[0].name !== "";
  const masked = () => state.place.isMasked && (run.is_guessed ? GUESSED : "hatched: masked");

  function choose(attention, head) {
    state.place = places.find((own) => own.attention === attention && own.head === head);
    state.k = null;
    showHead();
  }

  function point(q, k = null) {
    Object.assign(state, { q, k });
    showQuery();
  }

  /** The sentence on the query, or on the cell that is pointed at. */
  function sayQuery() {
    const { weights, visible } = state.place;
    const { q, k } = state;
    const best = largest(weights, q);
    const where = hasName ? `In ${cutText(nameNow(), LONGEST_HEAD)}, ` : "";
    const [weight, { signed }] = [weights.at(q, k ?? best), weights];
    if (k !== null && !visible(q, k)) return `${where}${query(q)} may not look at ${key(k)}.`;
    if (k !== null) return `${where}${query(q)} ${putsOn(key(k), weight, signed)}.`;
    if (Number.isNaN(weights.at(q, best)))
      return `${where}${query(q)} has no weight that is a number.`;
    if (weights.at(q, best) === 0) return `${where}${query(q)} looks at nothing.`;
    return `${where}${query(q)} ${mostOn(key(best), weight, signed, "looks most at")}.`;
  }

  function showQuery() {
    const { place, q, k } = state;
    const { weights, visible } = place;
    const row = rowOf(weights, q);
    const count = row.filter((_, i) => visible(q, i)).length;
    const end = signedTop(weights);
    keys.show(row, Math.max(count, 1), end);
    (queries ?? keys).pick(q);
    if (scaled !== `${end} ${count}`) strength.to(Math.max(count, 1), false, end);
    scaled = `${end} ${count}`;
    setStyle(strength.node, { visibility: count < 2 ? "hidden" : "visible" });
    map.point(q, k ?? largest(weights, q));
    if (lines && !lines.node.hidden) lines.show(weights, q);
    said.say(capital(sayQuery()));
  }

  function showHead() {
    const { attention, head, weights, visible } = state.place;
    grid.mark({ view: { attention, head }, cut: [], effects: new Map() });
    heading.textContent = hasName ? nameNow() : "The weights";
    map.show(weights, { top: top(), visible, name: `${label}: ${heading.textContent}` });
    scale.replaceChildren(legend(top(), masked(), weights.signed));
    table.replaceChildren(
      tableBehind("what each query looks at most", ["query", "key", "weight"], () =>
        rows.map((_, i) => {
          const best = largest(weights, i);
          return [query(i), key(best), weightText(weights.at(i, best), weights.signed)];
        }),
      ),
    );
    showQuery();
  }

  /** Goes back to what was picked last when the pointer leaves. */
  function follow(node) {
    const pick = () => {
      picked = { q: state.q, k: state.k };
    };
    for (const name of ["pointerdown", "keydown", "focusin"]) node.addEventListener(name, pick);
    node.addEventListener("pointerleave", () => point(picked.q, picked.k));
    return node;
  }

  const views = [matrix, lines?.node].filter(Boolean);
  const chooseView = (index) => {
    views.forEach((node, i) => {
      node.hidden = i !== index;
    });
    scale.hidden = index > 0;
    pressOne(buttons, index);
    showQuery();
  };
  const buttons = ["Matrix", "Lines"].slice(0, views.length).map((name, i) =>
    buttonOf(name, () => chooseView(i)),
  );
  const save = saveButtons(
    () => {
      const { weights, visible } = state.place;
      const title = hasName ? `${run.name}: ${nameNow()}` : run.name;
      if (!matrix.hidden) {
        const own = { top: top(), visible, masked: masked(), rows, columns };
        return savedMatrix(title, weights, own);
      }
      return savedLines(title, lines.picture);
    },
    () => [run.name, hasName ? nameNow() : ""].join(" "),
  );

  grid.show(places.map((own) => pooled(own.weights, SMALL_SIDE)));
  showHead();
  chooseView(0);
  const chosen = el("figure", { class: "chosen-head" },
    heading,
    buttons.length > 1
      ? el("div", { class: "row no-print", role: "group", "aria-label": "picture" }, buttons)
      : null,
    views.map(follow), scale, save, table,
  );
  const strips = [queries, keys].filter(Boolean).map((own) => own.node);
  for (const strip of strips) strip.classList.toggle("many", strip.childElementCount > MOST_LINED);
  const tokens = el("figure", {},
    el("h2", {}, isSame ? "The tokens" : "Queries and keys"),
    el("p", { class: "hint no-print" }, about), follow(div(strips)), keepHeight(strength.node),
  );
  const rowsAre = run.attention.length > 1 ? " Each row is a layer." : "";
  const heads = el("figure", {},
    el("h2", {}, "All heads"),
    el("p", { class: "hint no-print" }, `Press a head to look at it.${rowsAre}`), grid.node,
  );
  const left = [hasWords ? tokens : null, places.length > 1 ? heads : null].filter(Boolean);
  return [
    keepHeight(said.node),
    run.notes.map((note) => el("p", { class: "note" }, note)),
    el("div", { class: left.length ? "weights-beside" : "" },
      left.length ? div(left) : null, chosen,
    ),
  ];
}

openPage((page, { runs: [run] }) => {
  const name = el("span", { dir: "auto" }, run.name);
  page.classList.add("weights-page");
  const parts = weightsView(run).flat().filter(Boolean);
  page.replaceChildren(el("h1", {}, name, `: ${run.sentence}`), ...parts);
});
