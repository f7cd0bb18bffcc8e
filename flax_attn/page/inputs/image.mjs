// Images: patches on the colours of their weights, laid on the image. To try, ink is drawn.

import { centred, SIZE } from "../controls/digits.mjs";
import { drawnImage } from "../controls/paper.mjs";
import { buttonOf, div, el, roving, sentence, setStyle } from "../dom.mjs";
import { indexOfLargest, range } from "../lists.mjs";
import { endOf, inColours, legend, paintEach, putsOn, rgb, rootOf } from "../pictures/heat.mjs";
import { rowOf, strength, weightsBehind, weightText } from "../pictures/heat.mjs";
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
    const field = patchesOn({
      onPoint: (k) => tell(k),
      onPick: (q) => choose && pick(state.q === q ? null : q),
    });
    const beside = [field.node, target.beside(run, example, options)];
    const above = [verdict, el("div", { class: "beside" }, beside)];
    const grid = weights && gridOf(image, weights.columns);
    if (!grid) {
      field.show(image, null, null, verdict.textContent);
      return above;
    }
    const state = { q: null, k: 0 };
    const said = sentence();
    const choose = weights.rows > 1;
    const tell = (k) => {
      const mean = choose ? "The mean" : options.choice.label;
      const who = state.q === null ? mean : `Patch ${state.q}`;
      said.say(`${who} ${putsOn(`patch ${k}`, rowOf(weights, state.q)[k], weights.signed)}.`);
    };
    const pick = (q) => {
      state.q = q;
      const row = rowOf(weights, q);
      tell(indexOfLargest(row.map(Math.abs)));
      const pressed = q === null ? [] : [q];
      const label = `Image of ${row.length} patches. ${verdict.textContent} ${said.text()}`;
      const own = { top: endOf(weights), signed: weights.signed, key: (k) => `patch ${k}` };
      field.show(image, grid, row, label, { q, pressed, ...own });
    };
    const scale = legend(endOf(weights), false, weights.signed);
    pick(choose ? mostInked(image, grid) : null);
    const hint = choose
      ? "Press a patch to see what it attends to, and again for the mean over all patches."
      : "Point at a patch to read its weight.";
    return [
      ...above,
      said.node,
      scale,
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
export function mostInked({ shape: [, width, channels = 1], data }, grid) {
  const inks = new Array(grid.rows * grid.columns).fill(0);
  data.forEach((ink, k) => {
    const i = Math.floor(k / channels);
    const row = Math.floor(i / width / grid.size);
    inks[row * grid.columns + Math.floor((i % width) / grid.size)] += ink;
  });
  return indexOfLargest(inks);
}

/**
 * Draws an image in ink on the colours of the weights of its patches, on the scale of a map that
 * ends at `top`; without it they are of strength, and `count` may have any weight.
 */
export function paintPixels(canvas, image, grid, row, count, top = null) {
  const { shape: [height, width, channels = 1], data } = image;
  const placeOf = (weight) => (top === null ? strength(weight, count) : rootOf(weight, top));
  const cover = row && row.map((weight) => rgb(placeOf(weight)));
  const patchAt = (i, j) => Math.floor(i / grid.size) * grid.columns + Math.floor(j / grid.size);
  paintEach(canvas, width, height, (j, i) => {
    const shade = (c) => 1 - (row ? DARK : 1) * data[channels * (i * width + j) + (c % channels)];
    const ground = row ? cover[patchAt(i, j)] : [255, 255, 255];
    return ground.map((value, c) => shade(c) * ((1 - PALE) * value + PALE * 255));
  });
}

/** An image under buttons, one a patch: `{node, show(image, grid, row, label, options)}`. */
function patchesOn({ onPoint, onPick }) {
  const canvas = el("canvas", { role: "img" });
  const buttons = el("div", { role: "group", "aria-label": "patches" });

  function make({ columns }, count) {
    const patch = (k) => {
      const point = () => onPoint(k);
      return buttonOf("", () => onPick(k), { onpointerenter: point, onfocus: point });
    };
    const all = range(count).map(patch);
    const firsts = range(Math.ceil(count / columns)).map((row) => row * columns);
    roving(all, 0, firsts.map((first) => all.slice(first, first + columns)));
    setStyle(buttons, { "grid-template-columns": `repeat(${columns}, 1fr)` });
    buttons.replaceChildren(...all);
  }

  /** `row` are the weights of the query `q`, or the mean; without them it is the image alone. */
  function show(image, grid, row, label, options = {}) {
    const { q = null, hidden = [], pressed = hidden, key, top, signed } = options;
    inColours(canvas, () => paintPixels(canvas, image, grid, row, row?.length, top));
    canvas.setAttribute("aria-label", label);
    if (row && buttons.childElementCount !== row.length) make(grid, row.length);
    [...buttons.children].forEach((node, k) => {
      node.classList.toggle("hidden-key", hidden.includes(k));
      node.classList.toggle("query", k === q);
      node.setAttribute("aria-pressed", String(pressed.includes(k)));
      node.setAttribute("aria-label", `${key(k)}: ${weightText(row[k], signed)}`);
    });
  }

  return { node: el("div", { class: "patches" }, canvas, buttons), show };
}

/** Ink to what the model takes, and back: MNIST has white digits on black, files the reverse. */
const unitsOf = (run) => (own) => (run.data === "mnist" ? own : 1 - own);

/** Paper to draw on, and what the model sees of it, with buttons on its patches. */
function triedImage({ run, state, heads, changed, hide, choose }) {
  const { shape } = run.examples[0].image;
  const [height, width] = shape;
  const isDigit = height === SIZE && width === SIZE;
  const image = { shape, data: [] }; // ink
  const drawing = drawnImage(shape, (ink) => {
    image.data = ink;
    changed();
  }, isDigit ? centred : null);
  const field = patchesOn({ onPoint: choose, onPick: (k) => hide([k]) });
  const scale = div();
  const hasAttention = run.attention.length > 0;
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
    const seen = "what the model sees";
    if (!grid) return field.show(image, null, null, seen);
    const { hidden } = state.settings;
    const { q, at } = query(weights);
    const own = { q: at, hidden, key, top: endOf(weights), signed: weights.signed };
    field.show(image, grid, rowOf(weights, q), seen, own);
    scale.replaceChildren(legend(endOf(weights), hidden.length > 0, weights.signed));
  }

  const query = ({ rows }) =>
    rows > 1
      ? { q: state.query, at: state.query, name: `the ${key(state.query)}` }
      : { q: 0, at: null, name: "the whole image" };
  const key = (k) => `patch in row ${Math.floor(k / grid.columns)}, column ${k % grid.columns}`;
  const draw = "Clear the paper and draw, with the mouse, a finger or the keyboard.";
  return {
    title: "Draw here",
    node: drawing.node,
    pictured: hasAttention ? "What the model sees, and the attention of a patch" : "What it sees",
    picture: [field.node, hasAttention ? scale : null],
    look: run.data === "mnist" ? "try-drawing" : "try-drawing dark-ink",
    hint: hasAttention
      ? `${draw} Point at a patch to see what it attends to; click it to mask it.`
      : draw,
    most: 64,
    begin,
    value: () => ({ inputs: { shape: image.shape, data: image.data.map(unitsOf(run)) } }),
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
