// Images: patches on the colours of their weights, laid on the image. To try, ink is drawn.

import { centred, SIZE } from "../controls/digits.mjs";
import { drawnImage } from "../controls/paper.mjs";
import { el, percent, sentence, setStyle } from "../dom.mjs";
import { indexOfLargest, range } from "../lists.mjs";
import { inColours, movingLegend, paintEach, rgb, rowOf, strength } from "../pictures/heat.mjs";
import { strengthLegend, weightsBehind } from "../pictures/heat.mjs";
import { stage } from "../pictures/stage.mjs";
import { addInput, targetOf } from "../views.mjs";

const PALE = 0.25; // how much the paper lightens the colour of a weight
const DARK = 0.85; // how much ink darkens it

/** The picture of one image, for `stage`. */
function drawImage(run) {
  const target = targetOf(run);
  return (example, weights, options) => {
    const { image } = example;
    const verdict = el("p", { class: "result" }, target.verdict(run, example));
    const predicted = target.beside(run, example, options);
    const grid = weights && gridOf(image, weights.columns);
    if (!grid) {
      const canvas = el("canvas", { role: "img", "aria-label": verdict.textContent });
      paintImage(canvas, image, null, null);
      const plain = el("div", { class: "patches" }, canvas);
      return [verdict, el("div", { class: "beside" }, plain, predicted)];
    }
    const state = { q: null, k: 0 };
    const said = sentence();
    const choose = weights.rows > 1;
    const field = patches(image, grid, {
      onPoint: (k) => tell(k),
      onPick: (q) => choose && pick(state.q === q ? null : q),
    });
    const tell = (k) => {
      const mean = choose ? "The mean" : options.choice.label;
      const who = state.q === null ? mean : `Patch ${state.q}`;
      said.say(`${who} puts ${percent(rowOf(weights, state.q)[k])} of its weight on patch ${k}.`);
      state.k = k;
      field.mark(k, state.q);
      const what = `Image of ${weights.columns} patches. ${verdict.textContent}`;
      field.canvas.setAttribute("aria-label", `${what} ${said.text()}`);
    };
    const pick = (q) => {
      state.q = q;
      const row = rowOf(weights, q);
      field.show(row);
      tell(indexOfLargest(row));
    };
    pick(choose ? mostInked(image, grid) : null);
    const hint = choose
      ? "Press a patch to see what it attends to, and again for the mean over all patches."
      : "Point at a patch to read its weight.";
    return [
      verdict,
      el("div", { class: "beside" }, field.node, predicted),
      said.node,
      strengthLegend(weights.columns, false, "patches"),
      el("p", { class: "hint no-print" }, hint),
      weightsBehind("patch", range(weights.columns), weights, state, ", row by row"),
    ];
  };
}

/** How patches lie on an image: their size and the columns; null where they do not fit. */
export function gridOf({ shape: [height, width] }, count) {
  const size = Math.sqrt((height * width) / count);
  const isWhole = Number.isInteger(size) && height % size === 0 && width % size === 0;
  return isWhole ? { size, columns: width / size, rows: height / size } : null;
}

/** The patch with the most ink, which is the first to be looked at. */
export function mostInked({ shape: [, width], data }, grid) {
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

/** Paper to draw on, and what the model sees of it, with buttons on its patches. */
function triedImage({ run, state, heads, changed, hide, choose }) {
  const [height, width] = run.examples[0].image.shape;
  const isDigit = height === SIZE && width === SIZE;
  const image = { shape: [height, width], data: [] }; // ink
  const drawing = drawnImage([height, width], (ink) => {
    image.data = ink;
    changed();
  }, isDigit ? centred : null);
  const looked = el("canvas", { class: "try-seen", role: "img", width, height });
  looked.setAttribute("aria-label", "what the model sees");
  const buttons = el("div", { class: "try-patches", role: "group", "aria-label": "patches" });
  const scale = movingLegend("patches");
  const hasAttention = run.attention.length > 0;
  const inUnits = unitsOf(run);
  let grid = null;

  function begin(example) {
    image.data = [...example.image.data];
    drawing.show(image);
    const [, , count] = example.attention[heads.now.name]?.shape ?? [1, 1, 1];
    const own = gridOf(image, count);
    state.query = own ? mostInked(image, own) : 0;
  }

  /** Colours show what the chosen patch attends to; a click masks a patch. */
  function show(reply, weights) {
    grid = weights && gridOf(image, weights.columns);
    if (!grid) {
      inColours(looked, () => paintPixels(looked, image, null, null, 1, 1));
      return;
    }
    const { hidden } = state.settings;
    const { q, at } = query(weights);
    const count = Math.max(weights.columns - hidden.length, 1);
    if (buttons.childElementCount !== weights.columns) makePatches(weights.columns);
    inColours(looked, () => paintPixels(looked, image, grid, rowOf(weights, q), count, 1));
    scale.to(count, hidden.length > 0);
    [...buttons.children].forEach((node, k) => {
      node.classList.toggle("hidden-key", hidden.includes(k));
      node.classList.toggle("query", k === at);
      node.setAttribute("aria-pressed", String(hidden.includes(k)));
      node.setAttribute("aria-label", `${key(k)}: ${percent(weights.at(q, k))}`);
    });
  }

  function makePatches(count) {
    setStyle(buttons, { "grid-template-columns": `repeat(${grid.columns}, 1fr)` });
    const patch = (k) => {
      const point = () => choose(k);
      const on = { onpointerenter: point, onfocus: point, onclick: () => hide([k]) };
      return el("button", { type: "button", ...on });
    };
    buttons.replaceChildren(...range(count).map(patch));
  }

  const query = ({ rows }) =>
    rows > 1
      ? { q: state.query, at: state.query, name: `the ${key(state.query)}` }
      : { q: 0, at: null, name: "the whole image" };
  const key = (k) => {
    const { columns } = grid;
    return `patch in row ${Math.floor(k / columns)}, column ${k % columns}`;
  };
  const draw = "Clear the paper and draw, with the mouse, a finger or the keyboard.";
  const overlaid = el("div", { class: "try-overlay" }, looked, hasAttention ? buttons : null);
  return {
    title: "Draw here",
    node: drawing.node,
    pictured: hasAttention ? "What the model sees, and the attention of a patch" : "What it sees",
    picture: [overlaid, hasAttention ? scale.node : null],
    look: "try-drawing",
    hint: hasAttention
      ? `${draw} Point at a patch to see what it attends to; click it to mask it.`
      : draw,
    most: 64,
    begin,
    value: () => ({ inputs: { shape: image.shape, data: image.data.map(inUnits) } }),
    show,
    say: () => (image.data.some((ink) => ink >= 0.05) ? "" : "The paper is empty. Draw on it."),
    parts: (weights) => patchParts(image, weights),
    query, key,
  };
}

/** The patches of an image, with the mean weight of each over all queries. */
export function patchParts(image, weights) {
  const columns = gridOf(image, weights.columns)?.columns ?? weights.columns;
  const means = rowOf(weights, null);
  const names = means.map((_, k) => `patch ${k}`);
  return { names, labels: null, weights: means, what: "patch", columns };
}

/** What a model takes for an image of its run. */
export function storedImage(run, { image: { shape, data } }) {
  return { inputs: { shape, data: Array.from(data, unitsOf(run)) } };
}

addInput("image", {
  picture: (run, beside) => stage(run, drawImage(run), { hasLegend: () => false, beside }),
  tried: triedImage,
  stored: storedImage,
  parts: (run, { image }, weights) => patchParts(image, weights),
});
