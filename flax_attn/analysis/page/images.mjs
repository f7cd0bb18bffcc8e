// Images in classes: patches on the colours of their weights, laid on the image.

import { el, percent, sentence, setStyle, tableBehind } from "./dom.mjs";
import { largest, rgb } from "./heat.mjs";
import { rowOf, verdictOf } from "./texts.mjs";
import { bars } from "./words.mjs";

const PALE = 0.25; // how much the paper lightens the colour of a weight
const DARK = 0.85; // how much ink darkens it

/** The picture of one image, for `stage`. */
export function drawImage(run) {
  return (example, weights, { choice, top }) => {
    const { image, predictions, target } = example;
    const classes = predictions.map((share, i) => [run.classes[i], share]);
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
      field.show(row, top);
      tell(largest({ columns: row.length, at: (_, i) => row[i] }, 0));
    };
    pick(null);
    const hint = choose
      ? "Press a patch to see where it looks, and again for the mean over all patches."
      : "Point at a patch to read its weight.";
    return [
      verdict,
      el("div", { class: "beside" }, field.node, bars(classes, target)),
      said.node,
      el("p", { class: "hint no-print" }, hint),
      patchesBehind(weights, state),
    ];
  };
}

/** How patches lie on an image: their size and the columns; null where they do not fit. */
export function gridOf({ shape: [height, width] }, count) {
  const size = Math.sqrt((height * width) / count);
  const isWhole = Number.isInteger(size) && height % size === 0 && width % size === 0;
  return isWhole ? { size, columns: width / size, rows: height / size } : null;
}

/** Draws an image in ink, with the colours of the weights of its patches over it. */
export function paintImage(canvas, { shape: [height, width], data }, grid, row, top = 1) {
  const zoom = Math.max(1, Math.floor(336 / Math.max(height, width)));
  canvas.width = zoom * width;
  canvas.height = zoom * height;
  const picture = new ImageData(canvas.width, canvas.height);
  const cover = row && row.map((weight) => rgb(weight, top));
  const patchAt = (i, j) => Math.floor(i / grid.size) * grid.columns + Math.floor(j / grid.size);
  for (let y = 0; y < canvas.height; y++)
    for (let x = 0; x < canvas.width; x++) {
      const [i, j] = [Math.floor(y / zoom), Math.floor(x / zoom)];
      const ink = data[i * width + j];
      const ground = row ? cover[patchAt(i, j)] : [255, 255, 255];
      const shade = 1 - (row ? DARK : 1) * ink;
      const mixed = ground.map((value) => shade * ((1 - PALE) * value + PALE * 255));
      picture.data.set([...mixed, 255], 4 * (y * canvas.width + x));
    }
  canvas.getContext("2d").putImageData(picture, 0, 0);
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
  return { node, canvas, mark, show: (row, top) => paintImage(canvas, image, grid, row, top) };
}

function patchesBehind(weights, state) {
  const rows = () => rowOf(weights, state.q).map((weight, k) => [k, percent(weight)]);
  return tableBehind("the weight of each patch, row by row", ["patch", "weight"], rows);
}
