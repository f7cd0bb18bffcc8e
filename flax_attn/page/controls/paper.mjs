// Paper to draw on: with the mouse, a finger, or a cursor that the arrow keys move.

import { buttonOf, div, el, onDrag, sentence, setStyle } from "../dom.mjs";
import { range } from "../lists.mjs";
import { paintEach } from "../pictures/heat.mjs";
import { SIZE } from "./digits.mjs";

const PAPER = 112; // pixels of the paper: four a cell
const CELL = PAPER / SIZE;
const BRUSH = 9;
const INK = { strokeStyle: "#fff", fillStyle: "#fff" };
const STROKE = { ...INK, lineWidth: BRUSH, lineCap: "round", lineJoin: "round" };
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const HOW =
  "With the keyboard: arrow keys move a cursor over 28 × 28 cells, the space bar draws there. " +
  "With Shift, arrow keys draw a line. Delete wipes a cell.";

/** Paper to draw on. `onInk(ink, size)` hears strokes by channel. Returns `{node, clear, show}`. */
export function paperToDraw(onInk, channels = 1) {
  const canvas = el("canvas", {
    class: "try-paper",
    width: PAPER,
    height: PAPER,
    tabindex: 0,
    role: "application", // arrow keys are for the drawing, also where a page is read aloud
    "aria-label": "paper to draw on",
    "aria-roledescription": "drawing",
  });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const tell = () => {
    const { data } = pen.getImageData(0, 0, PAPER, PAPER);
    const ink = (_, i) => data[4 * Math.floor(i / channels) + (i % channels)] / 255;
    onInk(Float32Array.from({ length: PAPER * PAPER * channels }, ink), PAPER);
  };
  const line = (from, to) => {
    Object.assign(pen, STROKE);
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...to);
    pen.stroke();
    pen.beginPath(); // a line of no length is not drawn
    pen.arc(...to, BRUSH / 2, 0, 2 * Math.PI);
    pen.fill();
    tell();
  };
  const clear = () => {
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, PAPER, PAPER);
  };
  const wipe = (column, row) => {
    pen.fillStyle = "#000";
    pen.fillRect(CELL * column, CELL * row, CELL, CELL);
    tell();
  };
  const show = (ink, width, height) => {
    const small = el("canvas", {});
    paintEach(small, width, height, (x, y) => {
      const band = (c) => ink[channels * (y * width + x) + (c % channels)];
      return [0, 1, 2].map((c) => Math.round(255 * Math.min(Math.max(band(c), 0), 1)));
    });
    clear();
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 0, PAPER, PAPER);
  };
  drawnByPointer(canvas, line);
  const cursor = drawnByKeys(canvas, line, wipe);
  clear();
  const sheet = el("div", { class: "try-sheet" }, canvas, cursor.mark);
  return { node: div(sheet, cursor.said, el("p", { class: "hint" }, HOW)), clear, show };
}

/**
 * An image to draw, with a button that clears it. `onInk(ink)` hears the ink of its pixels, which
 * `fit(ink, size)` places, or which is scaled. Returns `{node, show(image)}`.
 */
export function drawnImage([height, width, channels = 1], onInk, fit = null) {
  const pixels = range(height * width).map((i) => [i % width, Math.floor(i / width)]);
  const bands = range(channels);
  const scaled = (ink, size) => {
    const place = (at, count) => Math.floor(((at + 0.5) * size) / count);
    const at = ([x, y]) => channels * (place(y, height) * size + place(x, width));
    return pixels.flatMap((pixel) => bands.map((c) => ink[at(pixel) + c]));
  };
  const empty = () => range(pixels.length * channels).map(() => 0);
  const hear = (ink, size) => onInk(fit ? [...(fit(ink, size) ?? empty())] : scaled(ink, size));
  const paper = paperToDraw(hear, channels);
  const clear = () => {
    paper.clear();
    onInk(empty());
  };
  const show = ({ shape, data }) => paper.show(data, shape[1], shape[0]);
  const row = el("div", { class: "row" }, buttonOf("Clear the paper", clear));
  return { node: [paper.node, row], show };
}

function drawnByPointer(canvas, line) {
  let last = null; // where the pointer was
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const scale = PAPER / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  };
  const draw = (event) => {
    const next = at(event);
    line(last, next);
    last = next;
  };
  const begin = (event) => {
    last = at(event);
    event.preventDefault();
    draw(event);
  };
  onDrag(canvas, begin, draw);
}

/** A cursor on the paper, and the line that says where it is: `{mark, said}`. */
function drawnByKeys(canvas, line, wipe) {
  const now = { column: SIZE / 2, row: SIZE / 2 };
  const mark = el("div", { class: "try-cursor", "aria-hidden": "true" });
  const said = sentence();
  const middle = () => [CELL * (now.column + 0.5), CELL * (now.row + 0.5)];
  const place = (what = "") => {
    const side = `${100 / SIZE}%`;
    const [left, top] = [now.column, now.row].map((own) => `${(100 * own) / SIZE}%`);
    setStyle(mark, { left, top, width: side, height: side });
    said.say(`Cursor in row ${now.row + 1}, column ${now.column + 1}${what}.`);
  };
  const move = ([right, down], isDrawn) => {
    const from = middle();
    const within = (value) => Math.min(Math.max(value, 0), SIZE - 1);
    Object.assign(now, { column: within(now.column + right), row: within(now.row + down) });
    if (isDrawn) line(from, middle());
    place(isDrawn ? ", drawn" : "");
  };
  canvas.addEventListener("focus", () => place());
  canvas.addEventListener("keydown", (event) => {
    if (event.key in ARROWS) move(ARROWS[event.key], event.shiftKey);
    else if (event.key === " ") {
      line(middle(), middle());
      place(", drawn");
    } else if (event.key === "Delete" || event.key === "Backspace") {
      wipe(now.column, now.row);
      place(", wiped");
    } else return;
    event.preventDefault();
  });
  place();
  said.say("");
  return { mark, said: said.node };
}
