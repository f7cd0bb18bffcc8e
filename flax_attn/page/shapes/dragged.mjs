// Signals: shapes to be dragged, the answer over the right one, and where a shape looks.

import { exampleChooser, headChooser, offered } from "../controls/choosers.mjs";
import { handle, plot } from "../controls/plot.mjs";
import { isVisible } from "../controls/settings.mjs";
import { capital, el, percent } from "../dom.mjs";
import { evidenceRow } from "../pictures/evidence.mjs";
import { heatMap, legend, PIXELS, strip, weightsIn } from "../pictures/heat.mjs";
import { everyNormalizer, levels, verdict } from "./levels.mjs";
import { drawn, groupOf, heightIn, isIn, keysIn, LENGTH, pluralOf } from "./numbers.mjs";
import { rightHeights, SHAPE_SIGNS, shapeParts, shapesOf, shareOn } from "./numbers.mjs";
import { unusual, widest } from "./numbers.mjs";

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
  return el(
    "ul",
    { class: "key" },
    entry("input", "signal"),
    entry("target", "right answer"),
    runs.map((run, i) => entry(`answer-${i}`, runs.length > 1 ? run.name : "the model's answer")),
  );
}

/** The view of signals of four shapes. */
export function shapesView({ runs, asks, changed, hide, beginWith, again }) {
  const [run] = runs;
  const hasMap = run.attention.length > 0;
  const state = { shapes: [], noise: [], chosen: 0, replies: null, settings: null };
  const answers = runs.map((_, i) => `answer-${i}`);
  const own = plot({
    length: LENGTH,
    low: 0,
    high: 27,
    ticks: HEIGHT_TICKS,
    name: "a signal, the right answer and the model's",
    lines: ["input", "target", ...answers],
  });
  const handles = [0, 1, 2, 3].map((i) => shapeHandle(i));
  const row = strip("the attention of the chosen shape");
  const heads = headChooser(run, again);
  const map = heatMap({ name: "attention of every position on every other", onPoint: pointAt });
  const marked = withMarks(map.node);
  const aboutMap =
    "Rows: the position that looks (the query). Columns: the position it looks at (the key). " +
    "Point at a cell.";
  const pointed = el("p", { class: "hint" }, aboutMap);
  const scaleOf = el("div", {});
  const aboutRow = el("p", { class: "hint" });
  const table = levels();
  const evidence = evidenceRow(asks[0]);
  const slot = el("div", { class: "try-below" }); // for controls and the sentence
  const hider = el("button", { type: "button", onclick: hideShape }, "");

  function shapeHandle(i) {
    const limits = [0.5, 26.5];
    const move = (center, height) => {
      const shape = state.shapes[i];
      shape.center = Math.min(Math.max(center, 3), 96);
      shape.height = Math.min(Math.max(height, limits[0]), limits[1]);
      state.chosen = i;
      placeHandles();
      changed();
    };
    const kind = i < 2 ? "triangle" : "box";
    return handle(own, {
      name: `${kind} ${(i % 2) + 1}`,
      mark: SHAPE_SIGNS[kind],
      kind,
      limits,
      onMove: move,
      onStep: (right, up) => {
        const { center, height } = state.shapes[i];
        move(center + right, height + up / 2);
      },
      onPick: () => {
        state.chosen = i;
        again();
      },
    });
  }

  function begin(i) {
    const example = run.examples[i];
    state.shapes = shapesOf(example);
    const clean = drawn(state.shapes);
    state.noise = example.inputs[0].map((value, t) => value - clean[t]);
    state.chosen = 0;
    placeHandles();
  }

  function placeHandles() {
    state.shapes.forEach(({ center, height }, i) => {
      const spoken = `position ${center.toFixed(0)}, height ${height.toFixed(1)}`;
      handles[i].place(center, height, spoken);
    });
  }

  const signal = () => drawn(state.shapes).map((value, t) => value + state.noise[t]);
  const weights = (reply, other = run) =>
    other === run
      ? heads.weights(reply)
      : weightsIn(reply, other.attention.at(-1)?.name, heads.now.head);
  const chosenQuery = (own) => {
    const t = Math.round(state.shapes[state.chosen].center);
    return Math.min(Math.floor((t * own.rows) / LENGTH), own.rows - 1);
  };

  /** `request` is what was answered; without it, the same answer is shown again. */
  function show(replies, settings, request = state.request) {
    Object.assign(state, { replies, settings, request });
    own.line("input", signal());
    const right = rightHeights(state.shapes, run.task);
    own.line("target", drawn(state.shapes, right));
    replies.forEach((reply, i) => own.line(answers[i], [...reply.outputs.data]));
    table.show(runs, replies, state.shapes, right, (reply, i) => weights(reply, runs[i]));
    const looks = weights(replies[0]);
    if (!looks) return;
    showAttention(looks, settings);
    showHider(looks, settings);
    compare.follow();
    showEvidence(looks, request);
  }

  /** Hides each shape in turn: once for each request, not for each shape chosen. */
  function showEvidence(looks, request) {
    const asked = JSON.stringify([request, heads.now]);
    if (asked === state.asked) return;
    state.asked = asked;
    evidence.show({ ...shapeParts(state.shapes, looks), ...request });
  }

  function showAttention(looks, settings) {
    const { shapes, chosen } = state;
    const shape = shapes[chosen];
    const group = groupOf(shapes, chosen, run.task);
    const q = chosenQuery(looks);
    const onShape = (other) => shareOn(looks, [shape], [other]);
    const arcs = group
      .filter((i) => i !== chosen)
      .map((i) => {
        const share = onShape(shapes[i]);
        const ends = { from: shape.center, to: shapes[i].center };
        const width = 24 * Math.sqrt(share);
        return { ...ends, height: shape.height, other: shapes[i].height, width };
      });
    own.arcs(arcs);
    const [partner] = group.filter((i) => i !== chosen);
    aboutRow.textContent =
      `The chosen ${shape.kind} puts ${percent(onShape(shapes[partner]))} of its attention on ` +
      "its partner, on average (the arc). The strip shows what its middle looks at: click a " +
      "position to hide or show it.";
    row.show(looks, q, (k) => isVisible(q, k, settings));
    map.show(looks, {
      finest: PIXELS * looks.columns,
      visible: (q, k) => isVisible(q, k, settings),
      name: `attention map, ${looks.rows} queries downwards, ${looks.columns} keys across`,
    });
    marked.show(
      shapes.map((own) => [own.kind, SHAPE_SIGNS[own.kind], (100 * (own.center + 0.5)) / LENGTH]),
    );
    const isMasked = settings.hidden.length > 0 || settings.reach !== null || settings.causal;
    scaleOf.replaceChildren(legend(1, isMasked));
    if (state.cell) pointAt(...state.cell);
    else map.point(q, Math.round((shape.center * looks.columns) / LENGTH));
    handles.forEach(({ node }, i) => node.classList.toggle("chosen", i === chosen));
  }

  function pointAt(q, k) {
    state.cell = [q, k];
    const looks = weights(state.replies[0]);
    const what = (t) => state.shapes.find((shape) => isIn(shape, (t * LENGTH) / looks.rows))?.kind;
    const said = (t) => `${t}${what(t) ? `, a ${what(t)},` : ""}`;
    pointed.textContent =
      `Position ${said(q)} puts ${percent(looks.at(q, k))} on ${said(k)}`.replace(/,$/, "");
  }

  function pointAway() {
    if (!state.cell) return;
    state.cell = null;
    pointed.textContent = aboutMap;
    show(state.replies, state.settings);
  }

  const keysOfChosen = (looks) => keysIn(state.shapes[state.chosen], looks.columns);

  function showHider(looks, { hidden }) {
    const { kind } = state.shapes[state.chosen];
    const isHidden = keysOfChosen(looks).every((k) => hidden.includes(k));
    hider.textContent = isHidden
      ? `Show this ${kind} again`
      : `Hide this ${kind} from the attention`;
    hider.setAttribute("aria-pressed", String(isHidden));
  }

  function hideShape() {
    hide(keysOfChosen(weights(state.replies[0])));
  }

  function say(replies) {
    const right = rightHeights(state.shapes, run.task);
    const lines = runs.map((other, i) => {
      const said = sayOf(replies[i].outputs.data, right, weights(replies[i], other));
      return runs.length > 1 ? `${other.name}: ${said}` : said;
    });
    return [...(runs.length > 1 ? lines : lines.map(capital)), unusual(state.shapes)]
      .filter(Boolean)
      .join(" ");
  }

  function sayOf(output, right, looks) {
    const first = groupOf(state.shapes, 0, run.task);
    const rest = [0, 1, 2, 3].filter((i) => !first.includes(i));
    const fromLeft = (i, j) => state.shapes[i].center - state.shapes[j].center;
    return [first, rest]
      .map((group) => [...group].sort(fromLeft))
      .map((group) => {
        const kinds = new Set(group.map((i) => state.shapes[i].kind));
        const what = kinds.size > 1 ? "pair" : pluralOf([...kinds][0]);
        const set = group.map((i) => heightIn(output, state.shapes[i]).toFixed(1));
        const own = group.map((i) => state.shapes[i]);
        const share = looks
          ? `, on average ${percent(shareOn(looks, own, own))} of their attention on ${what}`
          : "";
        const judged = verdict(group, output, state.shapes, right);
        const goal = `right: ${right[group[0]].toFixed(1)}, ${judged}`;
        return `${what} set to ${set.join(" and ")} (${goal})${share}`;
      })
      .join("; ")
      .concat(".");
  }

  function query() {
    const looks = state.replies && weights(state.replies[0]);
    if (!looks) return null;
    const { shapes, chosen } = state;
    const q = chosenQuery(looks);
    return {
      what: `${shapes[chosen].kind} at ${Math.round(shapes[chosen].center)}`,
      weights: looks,
      scores: heads.scores(state.replies[0]),
      q,
      visible: (k) => isVisible(q, k, state.settings),
      key: (k) => {
        const own = shapes.find((shape) => isIn(shape, (k * LENGTH) / looks.columns));
        return own ? `position ${k}, ${own.kind}` : `position ${k}`;
      },
    };
  }

  const first = widest(offered(run), (own) => weightsIn(own, heads.now.name, 0));
  row.canvas.addEventListener("click", (event) => {
    const box = row.canvas.getBoundingClientRect();
    const count = weights(state.replies[0]).columns;
    hide([Math.floor((count * (event.clientX - box.left)) / box.width)]);
  });
  const rowNode = el("div", { class: "try-row" }, row.canvas, aboutRow);
  for (const event of ["pointerleave", "blur"]) map.canvas.addEventListener(event, pointAway);
  const compare = everyNormalizer({
    run,
    ask: asks[0],
    shapes: () => state.shapes,
    signal,
    settings: () => state.settings,
  });
  const begins = exampleChooser(run, beginWith, first);
  const besides = [heads.node, marked.node, scaleOf, pointed];
  const picture = el(
    "div",
    { class: hasMap ? "beside" : "" },
    el("div", {}, begins, own.node, hasMap ? rowNode : null, signalKey(runs)),
    hasMap ? el("div", { class: "try-beside-map" }, besides) : null,
    slot,
  );
  return {
    node: picture,
    hint:
      "Drag a shape (or use arrow keys): each pair should end at its mean." +
      (hasMap ? " Then change the normaliser." : ""),
    slot,
    most: LENGTH,
    between: true,
    after: el("div", {}, table.node, hasMap ? [hider, evidence.node, compare.node] : null),
    input: () => ({ inputs: { shape: [LENGTH, 1], data: signal() } }),
    begin,
    first,
    show,
    say,
    query,
  };
}
