// Pictures as files, an SVG or a PNG: in light colours, with the tokens.

import { buttonOf, el, svg } from "../dom.mjs";
import { LIGHT, rgbAmong, rootOf, SCALED, shadesOf, tickText, ticksTo } from "./heat.mjs";
import { cutShort } from "./words.mjs";

const INK = "#1c1c1a";
const QUIET = "#595955";
const BLUE = "#0069a6";
const RED = "#a8224a";
const EDGE = "#d4d4ce";
const FONT = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
const FIXED = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
const FIELD = 720; // pixels along the longer side of a matrix, at most
const LARGEST_CELL = 26;
const LEAST_NAMED = 9; // pixels of a cell that has a name
const LONGEST_NAME = 24; // letters
const MARGIN = 16;
const BAR = 240; // pixels of the colour bar
const SHARPNESS = 2; // pixels of a PNG for each of an SVG
const MOST_ACROSS = 8192; // pixels of a PNG

/** Buttons that save what `picture()` makes, an SVG, as a file of the name that `name()` says. */
export function saveButtons(picture, name) {
  const problem = el("span", { class: "hint", role: "status" });
  const save = (end, made) => async () => {
    problem.textContent = "";
    try {
      download(await made(picture()), `${fileName(name())}.${end}`);
    } catch (error) {
      problem.textContent = `It cannot be saved: ${error.message}`;
    }
  };
  return el("div", { class: "row no-print save" },
    buttonOf("Save as SVG", save("svg", asVectors)),
    buttonOf("Save as PNG", save("png", asPixels)), problem,
  );
}

/** Letters and digits of a name, which every system takes in the name of a file. */
const fileName = (name) => (name.match(/[\p{L}\p{N}]+/gu) ?? ["attention"]).join("_").slice(0, 80);

function download(blob, name) {
  const href = URL.createObjectURL(blob);
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

const asVectors = (picture) => new Blob([asText(picture)], { type: "image/svg+xml" });
const asText = (picture) => new XMLSerializer().serializeToString(picture);

async function asPixels(picture) {
  const [width, height] = ["width", "height"].map((name) => Number(picture.getAttribute(name)));
  const sharpness = Math.min(SHARPNESS, MOST_ACROSS / Math.max(width, height));
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(asText(picture))}`;
  await image.decode();
  const canvas = el("canvas", { width: sharpness * width, height: sharpness * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/** An SVG on white ground, with a title above what is drawn. */
function sheet(title, width, height, ...drawn) {
  const size = { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT };
  const name = { x: MARGIN, y: 26, "font-size": 16, "font-weight": 600, fill: INK };
  const ground = svg("rect", { width, height, fill: "#ffffff" });
  return svg("svg", size, svg("title", {}, title), ground, svg("text", name, title), drawn);
}

/** The matrix of a head as an SVG. `rows` and `columns` are names. */
export function savedMatrix(title, weights, { top, visible, masked, rows, columns }) {
  const cell = Math.min(FIELD / Math.max(weights.rows, weights.columns), LARGEST_CELL);
  const size = Math.min(cell * 0.8, 14);
  const hasNames = cell >= LEAST_NAMED;
  const cut = (names) => (hasNames ? names.map((name) => cutShort(name, LONGEST_NAME)) : []);
  const [down, across] = [cut(rows), cut(columns)];
  const room = (names) => Math.max(0, ...names.map((name) => [...name].length)) * 0.62 * size + 8;
  const [left, above] = [MARGIN + room(down), 58];
  const [width, height] = [cell * weights.columns, cell * weights.rows];
  const [right, below] = [left + width, above + height];
  const named = (x, y, name, more) =>
    svg("text", { x, y, "font-size": size, fill: INK, ...more }, name);
  const middle = size * 0.35; // from the middle of letters to their line
  const queries = down.map((name, q) =>
    named(left - 6, above + cell * (q + 0.5) + middle, name, { "text-anchor": "end" }),
  );
  const keys = across.map((name, k) => {
    const turn = `translate(${left + cell * (k + 0.5) - middle} ${below + 6}) rotate(90)`;
    return named(0, 0, name, { transform: turn });
  });
  const quiet = { "font-size": 12, fill: QUIET };
  const low = below + room(across) + 32;
  const bar = colourBar(left, low, top, masked, weights.signed);
  const field = { x: left, y: above, width, height, fill: "none", stroke: EDGE };
  const said = (masked || "").length * 6.4;
  const total = Math.max(right, left + Math.max(BAR + 30, said), title.length * 9.5) + MARGIN;
  return sheet(
    title,
    Math.ceil(total),
    Math.ceil(low + (masked ? 64 : 44)),
    hatchPattern(),
    colouredCells(weights, { top, visible }, `translate(${left} ${above}) scale(${cell})`, cell),
    svg("rect", field),
    svg("text", { x: left, y: above - 8, ...quiet }, "query ↓"),
    svg("text", { x: right, y: above - 8, "text-anchor": "end", ...quiet }, "key →"),
    queries, keys, bar,
  );
}

/** The cells, a path for each colour; cells of one colour beside each other are one piece. */
function colouredCells(weights, { top, visible }, transform, cell) {
  const byColour = new Map();
  const add = (colour, q, first, end) => {
    if (!byColour.has(colour)) byColour.set(colour, []);
    byColour.get(colour).push(`M${first} ${q}h${end - first}v1h${first - end}z`);
  };
  for (let q = 0; q < weights.rows; q++) {
    let [colour, first] = [null, 0];
    for (let k = 0; k <= weights.columns; k++) {
      const own = k < weights.columns ? colourAt(weights.at(q, k), top, visible(q, k)) : null;
      if (own === colour) continue;
      if (colour !== null) add(colour, q, first, k);
      [colour, first] = [own, k];
    }
  }
  const look = { transform, "shape-rendering": "crispEdges" };
  const paths = [...byColour].map(([fill, pieces]) => svg("path", { fill, d: pieces.join("") }));
  const hatch = paths.find((path) => path.getAttribute("fill") === HATCH);
  hatch?.setAttribute("fill", cell > 3 ? HATCH : EDGE);
  return svg("g", look, paths);
}

const HATCH = "url(#hatch)";

function colourAt(weight, top, isVisible) {
  if (!isVisible) return HATCH;
  const colour = `rgb(${rgbAmong(LIGHT, rootOf(weight, top))})`;
  return colour === "rgb(255,255,255)" ? null : colour;
}

function hatchPattern() {
  const pattern = { id: "hatch", width: 0.5, height: 0.5, patternUnits: "userSpaceOnUse" };
  const stripe = { d: "M-.1 .1L.1 -.1M0 .5L.5 0M.4 .6L.6 .4", stroke: "#b4b4b4" };
  return svg("defs", {}, svg("pattern", pattern, svg("path", { ...stripe, "stroke-width": 0.1 })));
}

/** The scale of colours under what it measures, with what is hatched. */
function colourBar(left, y, top, masked, signed) {
  const shades = shadesOf(LIGHT, signed);
  const stops = shades.map((stop, i) =>
    svg("stop", { offset: i / (shades.length - 1), "stop-color": `rgb(${stop})` }),
  );
  const ticks = ticksTo(top, signed).map(([place, tick]) => {
    const label = { x: left + BAR * place, y: y + 24, "font-size": 11, "text-anchor": "middle" };
    return svg("text", { ...label, fill: QUIET }, tickText(tick));
  });
  const bar = { x: left, y, width: BAR, height: 10, fill: "url(#scale)", stroke: EDGE };
  const line = (at, text) => svg("text", { x: left, y: at, "font-size": 12, fill: QUIET }, text);
  return [
    svg("defs", {}, svg("linearGradient", { id: "scale" }, stops)),
    line(y - 7, SCALED),
    svg("rect", bar),
    ticks,
    masked ? line(y + 46, masked) : null,
  ];
}

/** Lines between tokens as an SVG: the picture of the page, with what its style sheet says. */
export function savedLines(title, picture) {
  const [width, height] = ["width", "height"].map((name) => Number(picture.getAttribute(name)));
  const copy = picture.cloneNode(true);
  const give = (selector, attributes) => {
    for (const node of copy.querySelectorAll(selector))
      for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  };
  const quiet = { stroke: QUIET, "stroke-opacity": 0.28, "stroke-linecap": "round" };
  give(".weight", quiet);
  give(".weight.chosen", { stroke: BLUE, "stroke-opacity": 0.9 });
  give(".weight.negative", { "stroke-dasharray": "6 5" });
  give(".weight.negative.chosen", { stroke: RED });
  give("rect", { fill: "none" });
  give(".token.read rect, .token[aria-pressed='true'] rect", { stroke: BLUE });
  give("text", { fill: INK, "font-size": 14, "font-family": FIXED });
  const moved = svg("g", { transform: `translate(${MARGIN} 44)` }, ...copy.childNodes);
  const total = Math.max(width, title.length * 9.5) + 2 * MARGIN;
  return sheet(title, Math.ceil(total), Math.ceil(height + 44 + MARGIN), moved);
}
