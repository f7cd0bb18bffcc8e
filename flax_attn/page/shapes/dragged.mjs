// Signals of four shapes, which are dragged: prediction over target, and the attention of a shape.

import { exampleChooser } from "../controls/choosers.mjs";
import { handle, plot } from "../controls/plot.mjs";
import { isVisible } from "../controls/settings.mjs";
import { buttonOf, capital, div, el } from "../dom.mjs";
import { sumOf } from "../lists.mjs";
import { endOf, heatMap, largest, legend, PIXELS, strip } from "../pictures/heat.mjs";
import { putsOn, weightText } from "../pictures/heat.mjs";
import { LEAST_LINE } from "../pictures/lines.mjs";
import { everyNormalizer, verdict } from "./levels.mjs";
import { drawn, groupOf, heightIn, isIn, keysIn, LENGTH, pluralOf } from "./numbers.mjs";
import { rightHeights, rowShare, SHAPE_SIGNS, shapeParts, shapesOf } from "./numbers.mjs";
import { SHAPE_KINDS, unusual } from "./numbers.mjs";

const HEIGHT_TICKS = [0, 5, 10, 15, 20, 25];

/** A map with the signs of the shapes along its top and its left side. */
function withMarks(map) {
  const [top, left] = ["top", "left"].map((side) =>
    el("div", { class: `try-marks-${side}`, "aria-hidden": "true" }),
  );
  const node = el("div", { class: "try-marked" }, top, left, map);
  const show = (marks) => {
    const along = (edge) =>
      marks.map(([kind, sign, place]) =>
        el("span", { class: `try-${kind}`, style: { [edge]: `${place}%` } }, sign),
      );
    top.replaceChildren(...along("left"));
    left.replaceChildren(...along("top"));
  };
  return { node, show };
}

/** What the lines of a plot are. */
function signalKey(runs) {
  const entry = (name, what) => el("li", {}, el("span", { class: `try-swatch try-${name}` }), what);
  return el("ul", { class: "key" },
    entry("input", "input"), entry("target", "target"),
    runs.map((run, i) => entry(`answer-${i}`, runs.length > 1 ? run.name : "prediction")),
  );
}

/**
 * The input of a view whose four shapes are dragged; it draws predictions over their targets. The
 * query, which the dashed line, the arcs, the strip, the row of the map and the sentence share, is
 * the middle of the chosen shape, or the row that is pointed at.
 */
export function triedShapes({ runs, run, asks, state, heads, evidence, beginWith, ...further }) {
  const { changed, hide, again } = further;
  const hasMap = run.attention.length > 0;
  const now = { shapes: [], noise: [], chosen: 0, cell: null };
  const answers = runs.map((_, i) => `answer-${i}`);
  const own = plot({
    length: LENGTH,
    low: 0,
    high: 27,
    ticks: HEIGHT_TICKS,
    name: "a signal, its target and the prediction",
    lines: ["input", "target", ...answers],
  });
  const handles = [0, 1, 2, 3].map((i) => shapeHandle(i));
  const row = strip("the weights of the query");
  const map = heatMap({ name: "attention of every position on every other", onPoint: pointAt });
  const marked = withMarks(map.node);
  const aboutMap = "Rows are queries, columns are keys. Point at a row to make it the query.";
  const scaleOf = div();
  const aboutRow = el("p", { class: "hint" });
  const slot = el("div", { class: "try-below" }); // for controls and the sentence
  const hider = buttonOf("", () => hide(keysOfChosen()));

  function shapeHandle(i) {
    const limits = [0.5, 26.5];
    const move = (center, height) => {
      const shape = now.shapes[i];
      shape.center = Math.min(Math.max(center, 3), 96);
      shape.height = Math.min(Math.max(height, limits[0]), limits[1]);
      now.chosen = i;
      placeHandles();
      changed();
    };
    const kind = i < 2 ? "triangle" : "box";
    return handle(own, {
      name: `${kind} ${(i % 2) + 1}`,
      mark: SHAPE_SIGNS[kind],
      kind, limits,
      onMove: move,
      onStep: (right, up) => {
        const { center, height } = now.shapes[i];
        move(center + right, height + up / 2);
      },
      onPick: () => {
        now.chosen = i;
        again();
      },
    });
  }

  function begin(example) {
    now.shapes = shapesOf(example);
    const clean = drawn(now.shapes);
    now.noise = example.inputs[0].map((value, t) => value - clean[t]);
    now.chosen = 0;
    placeHandles();
  }

  function placeHandles() {
    now.shapes.forEach(({ center, height }, i) => {
      const spoken = `position ${center.toFixed(0)}, height ${height.toFixed(1)}`;
      handles[i].place(center, height, spoken);
    });
  }

  const signal = () => drawn(now.shapes).map((value, t) => value + now.noise[t]);
  const queryNow = ({ rows }) => {
    const t = Math.round(now.shapes[now.chosen].center);
    return now.cell?.[0] ?? Math.min(Math.floor((t * rows) / LENGTH), rows - 1);
  };

  function show(reply, weights) {
    const { replies, settings } = state;
    own.line("input", signal());
    const right = rightHeights(now.shapes, run.task);
    own.line("target", drawn(now.shapes, right));
    replies.forEach(({ outputs }, i) => own.line(answers[i], [...outputs.data]));
    if (!weights) return;
    showAttention(weights, settings);
    showHider(settings);
    compare.follow();
  }

  function showAttention(weights, settings) {
    const { shapes, chosen } = now;
    const q = queryNow(weights);
    const at = Math.round((q * LENGTH) / weights.rows);
    const height = signal()[at];
    const shares = shapes.map((own) => rowShare(weights, q, own));
    const others = shapes.flatMap((own, i) =>
      isIn(own, at) || Math.abs(shares[i]) < LEAST_LINE ? [] : [{ ...own, share: shares[i] }]);
    own.cursor(at);
    own.arcs(
      others.map(({ center, height: other, share }) => ({
        from: at,
        to: center,
        height, other,
        width: 24 * Math.sqrt(Math.abs(share) / endOf(weights)),
        isNegative: share < 0,
      })),
    );
    const key = now.cell?.[1] ?? largest(weights, q);
    const written = (weight) => weightText(weight, weights.signed);
    const on = SHAPE_KINDS.map((kind) => {
      const share = sumOf(shares.filter((_, i) => shapes[i].kind === kind));
      return `${written(share)} on ${pluralOf(kind)}`;
    });
    const puts = putsOn(nameAt(key, weights.columns), weights.at(q, key), weights.signed);
    const most = now.cell ? "" : ", its largest";
    aboutRow.textContent =
      `The query, ${nameAt(q, weights.rows)}, ${puts}${most}; ${on.join(", ")}. ` +
      "Arcs, strip and marked row show its weights. Click the strip to mask a position.";
    row.show(weights, q, (k) => isVisible(q, k, settings));
    map.show(weights, {
      finest: PIXELS * weights.columns,
      visible: (i, k) => isVisible(i, k, settings),
      name: `attention map, ${weights.rows} queries downwards, ${weights.columns} keys across`,
    });
    marked.show(
      shapes.map(({ kind, center }) => [kind, SHAPE_SIGNS[kind], (100 * (center + 0.5)) / LENGTH]),
    );
    const isMasked = settings.hidden.length > 0 || settings.reach !== null || settings.causal;
    scaleOf.replaceChildren(legend(endOf(weights), isMasked, weights.signed));
    map.point(q, key);
    handles.forEach(({ node }, i) => node.classList.toggle("chosen", i === chosen));
  }

  const weightsNow = () => heads.weights(state.replies[0]);
  const kindAt = (t, count) => now.shapes.find((own) => isIn(own, (t * LENGTH) / count))?.kind;

  const nameAt = (t, count) => [`position ${t}`, kindAt(t, count)].filter(Boolean).join(" in a ");

  function pointAt(q, k) {
    now.cell = [q, k];
    again();
  }

  function pointAway() {
    if (!now.cell) return;
    now.cell = null;
    again();
  }

  const keysOfChosen = () => keysIn(now.shapes[now.chosen], weightsNow().columns);

  function showHider({ hidden }) {
    const { kind } = now.shapes[now.chosen];
    const isHidden = keysOfChosen().every((k) => hidden.includes(k));
    hider.textContent = `${isHidden ? "Unmask" : "Mask"} this ${kind}`;
    hider.setAttribute("aria-pressed", String(isHidden));
  }

  function say(replies) {
    const right = rightHeights(now.shapes, run.task);
    const lines = replies.map(({ outputs }, i) => {
      const said = sayOf(outputs.data, right);
      return runs.length > 1 ? `${runs[i].name}: ${said}` : capital(said);
    });
    return [...lines, unusual(now.shapes)].filter(Boolean).join(" ");
  }

  function sayOf(output, right) {
    const first = groupOf(now.shapes, 0, run.task);
    const rest = [0, 1, 2, 3].filter((i) => !first.includes(i));
    const fromLeft = (i, j) => now.shapes[i].center - now.shapes[j].center;
    const parts = [first, rest].map((indices) => {
      const group = [...indices].sort(fromLeft);
      const shapes = group.map((i) => now.shapes[i]);
      const kinds = new Set(shapes.map(({ kind }) => kind));
      const what = kinds.size > 1 ? "pair" : pluralOf([...kinds][0]);
      const set = shapes.map((shape) => heightIn(output, shape).toFixed(1));
      const judged = verdict(group, output, now.shapes, right);
      const goal = `target: ${right[group[0]].toFixed(1)}, ${judged}`;
      return `${what} set to ${set.join(" and ")} (${goal})`;
    });
    return `${parts.join("; ")}.`;
  }

  row.canvas.addEventListener("click", (event) => {
    const box = row.canvas.getBoundingClientRect();
    const count = weightsNow().columns;
    hide([Math.floor((count * (event.clientX - box.left)) / box.width)]);
  });
  const rowNode = el("div", { class: "try-row" }, row.canvas, aboutRow);
  for (const event of ["pointerleave", "blur"]) map.canvas.addEventListener(event, pointAway);
  const compare = everyNormalizer({ run, ask: asks[0], settings: () => state.settings });

  function layout() {
    const begins = exampleChooser(run, beginWith);
    const besides = [heads.node, marked.node, scaleOf, el("p", { class: "hint" }, aboutMap)];
    return el("div", { class: hasMap ? "beside" : "" },
      div(begins, own.node, hasMap ? rowNode : null, signalKey(runs)),
      hasMap ? el("div", { class: "try-beside-map" }, besides) : null, slot,
    );
  }

  const also = hasMap ? " Then change the normaliser." : "";
  return {
    layout,
    hint: `Drag a shape (or use arrow keys): each pair should end at its mean.${also}`,
    slot,
    most: LENGTH,
    after: hasMap ? div(hider, evidence.node, compare.node) : null,
    value: () => ({ inputs: { shape: [LENGTH, 1], data: signal() } }),
    begin, show, say,
    parts: (weights) => shapeParts(now.shapes, weights),
    query: (weights) => {
      const q = queryNow(weights);
      return { q, at: q, name: nameAt(q, weights.rows) };
    },
    key: (k) => nameAt(k, weightsNow().columns),
  };
}
