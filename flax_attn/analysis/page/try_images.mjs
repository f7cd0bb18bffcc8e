// Images in classes: a digit to draw, the patches it is seen as, and where a patch looks.

import { el, percent, setStyle } from "./dom.mjs";
import { rgb } from "./heat.mjs";
import { evidenceRow } from "./try_evidence.mjs";
import { centred, SIZE } from "./try_digits.mjs";
import { paintInk, paperToDraw } from "./try_paper.mjs";
import { exampleChooser, headChooser, isBetween, movingLegend } from "./try_shared.mjs";
import { scoresIn, weightsIn } from "./try_shared.mjs";
import { bars } from "./words.mjs";

/** The view of images in classes. */
export function tryImages({ runs, asks, changed, hide, forget, again }) {
  const [run] = runs;
  const [height, width] = run.examples[0].image.shape;
  const isDigit = height === SIZE && width === SIZE;
  const state = { image: null, strokes: false, replies: null, settings: null, query: 0 };
  const heads = headChooser(run, again);
  const paper = paperToDraw(drawnOn);
  const looked = el("canvas", { class: "try-seen", role: "img", width, height });
  looked.setAttribute("aria-label", "what the model sees");
  const patches = el("div", { class: "try-patches", role: "group", "aria-label": "patches" });
  const answer = el("div", {});
  const scale = movingLegend();
  const evidence = evidenceRow(asks[0]);
  const empty = new Array(height * width).fill(0);

  function begin(i) {
    state.example = i;
    const { data } = run.examples[i].image;
    state.image = Array.from(data, inUnits);
    paper.show(data, width, height);
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

  /** `request` is what was answered. */
  function show(replies, settings, request) {
    Object.assign(state, { replies, settings });
    paintInk(looked, state.image.map(inUnits), width, height);
    const looks = weightsIn(replies[0], heads.now.name, heads.now.head);
    if (looks) {
      showPatches(looks, settings);
      showEvidence(looks, request);
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

  /** Hides each patch in turn: once for each request, not for each patch pointed at. */
  function showEvidence(looks, request) {
    const asked = JSON.stringify([request, heads.now]);
    if (asked === state.asked) return;
    state.asked = asked;
    const count = looks.columns;
    const columns = Math.round(Math.sqrt(count));
    const mean = (k) => {
      let sum = 0;
      for (let q = 0; q < looks.rows; q++) sum += looks.at(q, k);
      return sum / looks.rows;
    };
    const names = Array.from({ length: count }, (_, k) => nameOf(k, columns));
    const weights = names.map((_, k) => mean(k));
    evidence.show({ names, labels: null, weights, what: "patch", columns, ...request });
  }

  function makePatches(count, side) {
    setStyle(patches, { "grid-template-columns": `repeat(${side}, 1fr)` });
    return Array.from({ length: count }, (_, k) => {
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
    drawnOn(new Float32Array(SIZE * SIZE), SIZE);
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
      ? "Clear the paper and draw a 7, with the mouse, a finger or the keyboard; then add a bar " +
        "and see the answer change. " +
        "Point at a patch to see where it looks; click it to hide it."
      : "Clear the paper and draw a 7, with the mouse, a finger or the keyboard; then add a bar " +
        "and see the answer change.",
    most: 64,
    between: isBetween(run),
    input: () => ({ inputs: { shape: [height, width], data: state.image } }),
    reset: () => begin(state.example),
    show,
    say,
    query,
  };
  return view;
}
