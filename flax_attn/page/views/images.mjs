// Images in classes: patches on the colours of their weights, laid on the image. To try, a digit is
// drawn.

import { exampleChooser, headChooser } from "../controls/choosers.mjs";
import { centred, SIZE } from "../controls/digits.mjs";
import { paperToDraw } from "../controls/paper.mjs";
import { isBetween, isVisible } from "../controls/settings.mjs";
import { el, percent, sentence, setStyle } from "../dom.mjs";
import { addKind } from "../kinds.mjs";
import { indexOfLargest, range } from "../lists.mjs";
import { evidenceRow } from "../pictures/evidence.mjs";
import { inColours, movingLegend, paintEach, rgb, rowOf, strength } from "../pictures/heat.mjs";
import { strengthLegend, weightsBehind } from "../pictures/heat.mjs";
import { stage } from "../pictures/stage.mjs";
import { answersOf, bars, classesOf, verdictOf } from "../pictures/words.mjs";

const PALE = 0.25; // how much the paper lightens the colour of a weight
const DARK = 0.85; // how much ink darkens it

/** The picture of one image, for `stage`. */
function drawImage(run) {
  return (example, weights, { choice }) => {
    const { image, target } = example;
    const classes = classesOf(run, example);
    const verdict = el("p", { class: "result" }, verdictOf(classes, target));
    const grid = weights && gridOf(image, weights.columns);
    if (!grid) {
      const name = `Image of class ${run.classes[target]}`;
      const canvas = el("canvas", { role: "img", "aria-label": name });
      paintImage(canvas, image, null, null);
      const plain = el("div", { class: "patches" }, canvas);
      return [verdict, el("div", { class: "beside" }, plain, bars(classes, target))];
    }
    const state = { q: null, k: 0 };
    const said = sentence();
    const choose = weights.rows > 1;
    const field = patches(image, grid, {
      onPoint: (k) => tell(k),
      onPick: (q) => choose && pick(state.q === q ? null : q),
    });
    const tell = (k) => {
      const who = state.q !== null ? `Patch ${state.q} puts` : choose ? "The mean puts" : null;
      const share = percent(rowOf(weights, state.q)[k]);
      said.say(`${who ?? `${choice.label} puts`} ${share} of its weight on patch ${k}.`);
      state.k = k;
      field.mark(k, state.q);
      const what = `Image of class ${run.classes[target]}, ${weights.columns} patches`;
      field.canvas.setAttribute("aria-label", `${what}. ${said.text()}`);
    };
    const pick = (q) => {
      state.q = q;
      const row = rowOf(weights, q);
      field.show(row);
      tell(indexOfLargest(row));
    };
    pick(choose ? mostInked(image, grid) : null);
    const hint = choose
      ? "Press a patch to see where it looks, and again for the mean over all patches."
      : "Point at a patch to read its weight.";
    return [
      verdict,
      el("div", { class: "beside" }, field.node, bars(classes, target)),
      said.node,
      strengthLegend(weights.columns, false, "patches"),
      el("p", { class: "hint no-print" }, hint),
      weightsBehind("patch", range(weights.columns), weights, state, ", row by row"),
    ];
  };
}

/** How patches lie on an image: their size and the columns; null where they do not fit. */
function gridOf({ shape: [height, width] }, count) {
  const size = Math.sqrt((height * width) / count);
  const isWhole = Number.isInteger(size) && height % size === 0 && width % size === 0;
  return isWhole ? { size, columns: width / size, rows: height / size } : null;
}

/** The patch with the most ink, which is the first to be looked at. */
function mostInked({ shape: [, width], data }, grid) {
  const inks = new Array(grid.rows * grid.columns).fill(0);
  data.forEach((ink, i) => {
    const row = Math.floor(Math.floor(i / width) / grid.size);
    inks[row * grid.columns + Math.floor((i % width) / grid.size)] += ink;
  });
  return indexOfLargest(inks);
}

/** Draws an image in ink, with the colours of the weights of its patches over it. */
function paintImage(canvas, image, grid, row, count = row?.length) {
  const zoom = Math.max(1, Math.floor(336 / Math.max(...image.shape)));
  inColours(canvas, () => paintPixels(canvas, image, grid, row, count, zoom));
}

/** As `paintImage`, with `zoom` pixels for each of the image, and for the colours of now. */
export function paintPixels(canvas, { shape: [height, width], data }, grid, row, count, zoom) {
  const cover = row && row.map((weight) => rgb(strength(weight, count)));
  const patchAt = (i, j) => Math.floor(i / grid.size) * grid.columns + Math.floor(j / grid.size);
  paintEach(canvas, zoom * width, zoom * height, (x, y) => {
    const [i, j] = [Math.floor(y / zoom), Math.floor(x / zoom)];
    const ink = data[i * width + j];
    const ground = row ? cover[patchAt(i, j)] : [255, 255, 255];
    const shade = 1 - (row ? DARK : 1) * ink;
    return ground.map((value) => shade * ((1 - PALE) * value + PALE * 255));
  });
}

/** An image whose patches can be pointed at by mouse, finger and keys. */
function patches(image, grid, { onPoint, onPick }) {
  const canvas = el("canvas", { tabindex: 0, role: "img" });
  const marks = ["cell-mark", "query-mark"].map((kind) => el("div", { class: `mark ${kind}` }));
  const node = el("div", { class: "patches" }, el("div", { class: "field" }, canvas, marks));
  let now = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const part = (value, count) => Math.min(Math.max(Math.floor(value * count), 0), count - 1);
    const row = part((event.clientY - box.top) / box.height, grid.rows);
    return row * grid.columns + part((event.clientX - box.left) / box.width, grid.columns);
  };
  canvas.addEventListener("pointermove", (event) => onPoint(at(event)));
  canvas.addEventListener("click", (event) => onPick(at(event)));
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns };
    if (event.key === "Enter" || event.key === " ") onPick(now);
    else if (event.key in steps) {
      const aim = now + steps[event.key];
      if (aim >= 0 && aim < grid.rows * grid.columns) onPoint(aim);
    } else return;
    event.preventDefault();
  });
  const place = (patch) => ({
    left: `${(100 * (patch % grid.columns)) / grid.columns}%`,
    top: `${(100 * Math.floor(patch / grid.columns)) / grid.rows}%`,
    width: `${100 / grid.columns}%`,
    height: `${100 / grid.rows}%`,
  });
  const mark = (k, q) => {
    now = k;
    setStyle(marks[0], place(k));
    marks[1].hidden = q === null;
    if (q !== null) setStyle(marks[1], place(q));
  };
  return { node, canvas, mark, show: (row) => paintImage(canvas, image, grid, row) };
}

/** Ink to what the model takes, and back: MNIST has white digits on black, files the reverse. */
const unitsOf = (run) => (own) => (run.data === "mnist" ? own : 1 - own);

/** The view of images in classes. */
function tryImages({ runs, asks, changed, hide, beginWith, again }) {
  const [run] = runs;
  const [height, width] = run.examples[0].image.shape;
  const isDigit = height === SIZE && width === SIZE;
  const state = { image: null, replies: null, settings: null, query: 0 };
  const heads = headChooser(run, again);
  const paper = paperToDraw(drawnOn);
  const looked = el("canvas", { class: "try-seen", role: "img", width, height });
  looked.setAttribute("aria-label", "what the model sees");
  const patches = el("div", { class: "try-patches", role: "group", "aria-label": "patches" });
  const answer = el("div", {});
  const scale = movingLegend("patches");
  const evidence = evidenceRow(asks[0]);
  const empty = new Array(height * width).fill(0);
  const inUnits = unitsOf(run);

  function begin(i) {
    const { image, attention } = run.examples[i];
    state.image = Array.from(image.data, inUnits);
    paper.show(image.data, width, height);
    const [, , count] = attention[heads.now.name]?.shape ?? [1, 1, 1];
    const grid = gridOf(image, count);
    state.query = grid ? mostInked(image, grid) : 0;
  }

  function drawnOn(ink, size) {
    const image = isDigit ? centred(ink, size) : scaled(ink, size);
    state.image = image === null ? empty.map(inUnits) : [...image].map(inUnits);
    changed();
  }

  function scaled(ink, size) {
    return empty.map((_, i) => {
      const x = Math.floor((((i % width) + 0.5) * size) / width);
      return ink[Math.floor(((Math.floor(i / width) + 0.5) * size) / height) * size + x];
    });
  }

  /** `request` is what was answered. */
  function show(replies, settings, request) {
    Object.assign(state, { replies, settings });
    const looks = heads.weights(replies[0]);
    const image = { shape: [height, width], data: state.image.map(inUnits) };
    if (!looks) inColours(looked, () => paintPixels(looked, image, null, null, 1, 1));
    else {
      showPatches(looks, settings, image);
      showEvidence(looks, request);
    }
    const byName = ([a], [b]) => a.localeCompare(b, "en", { numeric: true });
    const listOf = ({ classes }) => bars([...classes].sort(byName));
    answer.replaceChildren(...answersOf(runs, replies, listOf));
  }

  /** Buttons on the patches: colours say where the chosen one looks; a click hides one. */
  function showPatches(looks, { hidden }, image) {
    const count = looks.columns;
    const side = Math.round(Math.sqrt(count));
    if (patches.childElementCount !== count) patches.replaceChildren(...makePatches(count, side));
    const q = looks.rows > 1 ? state.query : 0;
    const shownKeys = Math.max(count - hidden.length, 1);
    const row = rowOf(looks, q);
    const grid = { size: width / side, columns: side };
    inColours(looked, () => paintPixels(looked, image, grid, row, shownKeys, 1));
    scale.to(shownKeys, hidden.length > 0);
    [...patches.children].forEach((node, k) => {
      const isHidden = hidden.includes(k);
      node.classList.toggle("hidden-key", isHidden);
      node.classList.toggle("query", looks.rows > 1 && k === q);
      node.setAttribute("aria-pressed", String(isHidden));
      node.setAttribute("aria-label", `${nameOf(k, side)}: ${percent(looks.at(q, k))}`);
    });
  }

  /** Hides each patch in turn: once for each request, not for each patch pointed at. */
  function showEvidence(looks, request) {
    const asked = JSON.stringify([request, heads.now]);
    if (asked === state.asked) return;
    state.asked = asked;
    const columns = Math.round(Math.sqrt(looks.columns));
    const weights = rowOf(looks, null);
    const names = weights.map((_, k) => nameOf(k, columns));
    evidence.show({ names, labels: null, weights, what: "patch", columns, ...request });
  }

  function makePatches(count, side) {
    setStyle(patches, { "grid-template-columns": `repeat(${side}, 1fr)` });
    return range(count).map((k) => {
      const point = () => {
        if (state.query === k) return;
        state.query = k;
        again();
      };
      return el("button", {
        type: "button",
        onpointerenter: point,
        onfocus: point,
        onclick: () => hide([k]),
      });
    });
  }

  const nameOf = (k, side) => `patch in row ${Math.floor(k / side) + 1}, column ${(k % side) + 1}`;

  function say(replies) {
    const isEmpty = state.image.every((own) => inUnits(own) < 0.05);
    if (isEmpty) return "The paper is empty. Draw a digit.";
    return runs
      .map((other, i) => {
        const [[name, share], [next, less]] = replies[i].classes;
        const who = runs.length > 1 ? other.name : "The model";
        return `${who} sees ${name} (${percent(share)}), then ${next} (${percent(less)}).`;
      })
      .join(" ");
  }

  function query() {
    const reply = state.replies?.[0];
    const looks = reply && heads.weights(reply);
    if (!looks) return null;
    const side = Math.round(Math.sqrt(looks.columns));
    const q = looks.rows > 1 ? state.query : 0;
    return {
      what: looks.rows > 1 ? `the ${nameOf(q, side)}` : "the whole image",
      weights: looks,
      scores: heads.scores(reply),
      q,
      visible: (k) =>
        looks.rows > 1 ? isVisible(q, k, state.settings) : !state.settings.hidden.includes(k),
      key: (k) => nameOf(k, side),
    };
  }

  const hasAttention = run.attention.length > 0;
  const clear = () => {
    paper.clear();
    drawnOn(new Float32Array(SIZE * SIZE), SIZE);
  };
  const overlaid = el("div", { class: "try-overlay" }, looked, hasAttention ? patches : null);
  const draw =
    "Clear the paper and draw a 7, with the mouse, a finger or the keyboard; then add a bar " +
    "and see the answer change.";
  return {
    node: el(
      "div",
      {},
      exampleChooser(run, beginWith),
      el(
        "div",
        { class: "try-drawing" },
        el(
          "div",
          {},
          el("h3", {}, "Draw here"),
          paper.node,
          el(
            "div",
            { class: "row" },
            el("button", { type: "button", onclick: clear }, "Clear the paper"),
          ),
        ),
        el(
          "div",
          {},
          el("h3", {}, hasAttention ? "What it sees, and where a patch looks" : "What it sees"),
          overlaid,
          heads.node,
          hasAttention ? scale.node : null,
        ),
        el("div", {}, el("h3", {}, "Its answer"), answer),
      ),
      hasAttention ? evidence.node : null,
    ),
    hint: hasAttention
      ? `${draw} Point at a patch to see where it looks; click it to hide it.`
      : draw,
    most: 64,
    between: isBetween(run),
    input: () => ({ inputs: { shape: [height, width], data: state.image } }),
    begin,
    show,
    say,
    query,
  };
}

/** What a model takes for an image of its run. */
export function storedImage(run, { image: { shape, data } }) {
  return { inputs: { shape, data: Array.from(data, unitsOf(run)) } };
}

/** The patches of an image, with the mean weight of each over all queries. */
function patchParts({ image }, weights) {
  const columns = gridOf(image, weights.columns)?.columns ?? weights.columns;
  const means = rowOf(weights, null);
  const names = means.map((_, k) => `patch ${k}`);
  return { names, labels: null, weights: means, what: "patch", columns };
}

addKind("images", {
  picture: (run, beside) => stage(run, drawImage(run), { hasLegend: () => false, beside }),
  tried: tryImages,
  kept: (run, example) => {
    const classes = classesOf(run, example).sort(([, a], [, b]) => b - a);
    return { classes, attention: example.attention, scores: null };
  },
  stored: { inputs: storedImage, parts: (run, example, weights) => patchParts(example, weights) },
});
