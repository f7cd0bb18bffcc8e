// Images in classes: a digit to draw, the patches it is seen as, and where a patch looks.

import { el, percent, setStyle } from "./dom.mjs";
import { rgb } from "./heat.mjs";
import { evidenceRow } from "./try_evidence.mjs";
import { centred, SIZE } from "./try_digits.mjs";
import { exampleChooser, headChooser, isBetween, movingLegend } from "./try_shared.mjs";
import { scoresIn, weightsIn } from "./try_shared.mjs";
import { bars } from "./words.mjs";

const PAPER = 112; // pixels of the paper to draw on: four a pixel of a digit
const BRUSH = 9;

/** The view of images in classes. */
export function tryImages({ runs, asks, changed, hide, forget, pick }) {
  const [run] = runs;
  const [height, width] = run.examples[0].image.shape;
  const isDigit = height === SIZE && width === SIZE;
  const state = { image: null, strokes: false, replies: null, settings: null, query: 0 };
  const heads = headChooser(run, () => state.replies && show(state.replies, state.settings));
  const paper = paperToDraw(drawnOn);
  const looked = el("canvas", { class: "try-seen", role: "img", width, height });
  looked.setAttribute("aria-label", "what the model sees");
  const patches = el("div", { class: "try-patches", role: "group", "aria-label": "patches" });
  const answer = el("div", {});
  const scale = movingLegend();
  const evidence = evidenceRow(asks[0], () => view.input());
  const empty = new Array(height * width).fill(0);

  function begin(i) {
    const { data } = run.examples[i].image;
    // ink is unpacked as a weight is: as the square of what was kept
    state.image = [...data].map((own) => inUnits(Math.sqrt(own)));
    paper.show(state.image.map(inUnits), width, height);
    state.query = 0;
  }

  /** Ink to what the model takes, and back: MNIST has white digits on black, files the reverse. */
  function inUnits(own) {
    return run.data === "mnist" ? own : 1 - own;
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

  function show(replies, settings) {
    Object.assign(state, { replies, settings });
    paintInk(looked, state.image.map(inUnits), width, height);
    const looks = weightsIn(replies[0], heads.now.name, heads.now.head);
    if (looks) {
      showPatches(looks, settings);
      showEvidence(looks, settings);
    }
    const lists = replies.map((reply, i) => {
      const ordered = [...reply.classes].sort(([a], [b]) =>
        a.localeCompare(b, "en", { numeric: true }),
      );
      return el("div", {}, runs.length > 1 ? el("h3", {}, runs[i].name) : null, bars(ordered));
    });
    answer.replaceChildren(...lists);
  }

  /** Buttons on the patches: colours say where the chosen one looks; a click hides one. */
  function showPatches(looks, { hidden }) {
    const count = looks.columns;
    const side = Math.round(Math.sqrt(count));
    if (patches.childElementCount !== count) patches.replaceChildren(...makePatches(count, side));
    const q = looks.rows > 1 ? state.query : 0;
    const top = Math.max(...Array.from({ length: count }, (_, k) => looks.at(q, k)), 0.01);
    scale.to(top, hidden.length > 0);
    [...patches.children].forEach((node, k) => {
      const isHidden = hidden.includes(k);
      const [red, green, blue] = rgb(looks.at(q, k), top);
      setStyle(node, { background: isHidden ? "" : `rgba(${red}, ${green}, ${blue}, 0.72)` });
      node.classList.toggle("hidden-key", isHidden);
      node.classList.toggle("query", looks.rows > 1 && k === q);
      node.setAttribute("aria-pressed", String(isHidden));
      node.setAttribute("aria-label", `${nameOf(k, side)}: ${percent(looks.at(q, k))}`);
    });
  }

  /** Hides each patch in turn: once for each input and settings, not for each patch pointed at. */
  function showEvidence(looks, settings) {
    const asked = JSON.stringify([settings, state.image, heads.now]);
    if (asked === state.asked) return;
    state.asked = asked;
    const count = looks.columns;
    const columns = Math.round(Math.sqrt(count));
    const mean = (k) => {
      let sum = 0;
      for (let q = 0; q < looks.rows; q++) sum += looks.at(q, k);
      return sum / looks.rows;
    };
    const tokens = Array.from({ length: count }, (_, k) => nameOf(k, columns));
    const [[best]] = state.replies[0].classes;
    const weights = tokens.map((_, k) => mean(k));
    evidence.show({ tokens, weights, best, settings, what: "patch", columns });
  }

  function makePatches(count, side) {
    setStyle(patches, { "grid-template-columns": `repeat(${side}, 1fr)` });
    return Array.from({ length: count }, (_, k) => {
      const point = () => {
        if (state.query === k) return;
        state.query = k;
        show(state.replies, state.settings);
        pick();
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
    const looks = reply && weightsIn(reply, heads.now.name, heads.now.head);
    if (!looks) return null;
    const side = Math.round(Math.sqrt(looks.columns));
    const q = looks.rows > 1 ? state.query : 0;
    const { hidden, reach, causal } = state.settings;
    const isNear = (k) => reach === null || Math.abs(q - k) <= reach;
    return {
      what: looks.rows > 1 ? `the ${nameOf(q, side)}` : "the whole image",
      weights: looks,
      scores: scoresIn(reply, heads.now.name, heads.now.head),
      q,
      visible: (k) => !hidden.includes(k) && (looks.rows < 2 || (isNear(k) && !(causal && k > q))),
      key: (k) => nameOf(k, side),
    };
  }

  begin(0);
  const hasAttention = run.attention.length > 0;
  const choose = (i) => {
    begin(i);
    forget();
    changed();
  };
  const clear = () => {
    paper.clear();
    drawnOn(new Float32Array(PAPER * PAPER), PAPER);
  };
  const overlaid = el("div", { class: "try-overlay" }, looked, hasAttention ? patches : null);
  const view = {
    node: el(
      "div",
      {},
      exampleChooser(run, choose),
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
      ? "Clear the paper and draw a 7; then add a bar and see the answer change. " +
        "Point at a patch to see where it looks; click it to hide it."
      : "Clear the paper and draw a 7; then add a bar and see the answer change.",
    most: 64,
    between: isBetween(run),
    input: () => ({ inputs: { shape: [height, width], data: state.image } }),
    reset: () => begin(0),
    show,
    say,
    query,
  };
  return view;
}

/** Ink from 0 to 1 on a canvas, white on black. */
function paintInk(canvas, ink, width, height) {
  const pixels = new ImageData(width, height);
  ink.forEach((own, i) => {
    const grey = Math.round(255 * Math.min(Math.max(own, 0), 1));
    pixels.data.set([grey, grey, grey, 255], 4 * i);
  });
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}

/** Paper to draw on with mouse or finger. `onInk(ink, size)` hears every stroke. */
function paperToDraw(onInk) {
  const node = el("canvas", { class: "try-paper", width: PAPER, height: PAPER, role: "img" });
  node.setAttribute("aria-label", "paper to draw on with the mouse or a finger");
  const pen = node.getContext("2d", { willReadFrequently: true });
  let last = null;
  const clear = () => {
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, PAPER, PAPER);
  };
  const at = (event) => {
    const box = node.getBoundingClientRect();
    const scale = PAPER / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  };
  const draw = (event) => {
    if (last === null) return;
    const next = at(event);
    Object.assign(pen, {
      strokeStyle: "#fff",
      lineWidth: BRUSH,
      lineCap: "round",
      lineJoin: "round",
    });
    pen.beginPath();
    pen.moveTo(...last);
    pen.lineTo(...next);
    pen.stroke();
    last = next;
    const { data } = pen.getImageData(0, 0, PAPER, PAPER);
    const ink = new Float32Array(PAPER * PAPER);
    for (let i = 0; i < ink.length; i++) ink[i] = data[4 * i] / 255;
    onInk(ink, PAPER);
  };
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    last = at(event);
    event.preventDefault();
    draw(event);
  });
  node.addEventListener("pointermove", draw);
  for (const end of ["pointerup", "pointercancel"])
    node.addEventListener(end, () => {
      last = null;
    });
  const show = (ink, width, height) => {
    const small = el("canvas", {});
    paintInk(small, ink, width, height);
    clear();
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 0, PAPER, PAPER);
  };
  clear();
  return { node, clear, show };
}
