// Elements, numbers as they are read, and the frame around every picture.
// A string becomes a text node and never markup, so no word of a data set can run.

import { range } from "./lists.mjs";

const SVG = "http://www.w3.org/2000/svg";
const SPEECH_PAUSE = 1000; // milliseconds between two lines that are read aloud

/**
 * An element with its attributes and children. An attribute that is a function listens to the
 * event of its name without `on`; `style` is an object of CSS properties; true and false are
 * attributes that are there or not. Children are nodes, strings, or null for none.
 */
export const el = (tag, attributes = {}, ...children) =>
  furnish(document.createElement(tag), attributes, children);

export const div = (...children) => el("div", {}, ...children);

/** A button with its text. */
export const buttonOf = (text, onclick, attributes = {}) =>
  el("button", { type: "button", onclick, ...attributes }, text);

/** As `el`, for elements of an SVG. */
export const svg = (tag, attributes = {}, ...children) =>
  furnish(document.createElementNS(SVG, tag), attributes, children);

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(node, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets CSS properties. A style attribute would be refused by the page's own policy. */
export function setStyle(node, properties) {
  for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
}

let lastId = 0;

/** A new id, for what names another element. */
export function newId(stem) {
  lastId += 1;
  return `${stem}-${lastId}`;
}

/** A text with a capital at its beginning. */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A number with three significant digits, as people write it. */
export function shown(number) {
  if (number === null || number === undefined) return "–";
  if (typeof number === "string") return number; // "NaN" and "Infinity", which JSON refuses
  if (!Number.isFinite(number)) return String(number);
  if (Number.isInteger(number)) return number.toLocaleString("en-US");
  const size = Math.abs(number);
  if (size >= 1000) return Math.round(number).toLocaleString("en-US");
  if (size > 0 && size < 1e-4) return number.toExponential(2);
  return String(Number(number.toPrecision(3)));
}

/** A share as per cent, with a decimal where it is small. */
export function percent(share) {
  if (!Number.isFinite(share)) return "not a number";
  const hundredths = 100 * share;
  const isSmall = hundredths < 9.95 && hundredths >= 0.05;
  return `${isSmall ? hundredths.toFixed(1) : Math.round(hundredths)}\u00a0%`;
}

/** A number of a curve or table as a float: JSON has no NaN, so it comes as a word. */
export const asNumber = (value) => value === null || value === undefined ? NaN : Number(value);

/** A line that is read aloud when it changes, at most once a second. */
export function sentence(text = "") {
  const spoken = el("span", { class: "aside", "aria-live": "polite" });
  const visible = el("span", {}, text);
  const node = el("p", { class: "sentence" }, visible, spoken);
  let waiting = null;
  let last = -Infinity;
  const speak = () => {
    waiting = null;
    last = performance.now();
    spoken.textContent = visible.textContent;
  };
  const say = (words) => {
    if (visible.textContent === words) return;
    visible.textContent = words;
    const rest = last + SPEECH_PAUSE - performance.now();
    if (rest <= 0 && waiting === null) speak();
    else waiting ??= setTimeout(speak, Math.max(rest, 0));
  };
  return { node, say, text: () => visible.textContent };
}

/** A box in which what is too wide for a phone scrolls, and which says so. */
export function scrollBox(label, ...children) {
  const attributes = { class: "scroll", tabindex: 0, role: "region", "aria-label": label };
  const box = el("div", attributes, children);
  const mark = () => box.classList.toggle("is-wide", box.scrollWidth > box.clientWidth + 1);
  new ResizeObserver(mark).observe(box);
  return box;
}

/** A table of what a picture shows, closed until someone wants it. `rows` is made when opened. */
export function tableBehind(caption, header, rows) {
  const box = scrollBox(caption);
  const details = el("details", { class: "behind" }, el("summary", {}, `Numbers: ${caption}`), box);
  details.addEventListener("toggle", () => {
    if (details.open) box.replaceChildren(plainTable(caption, header, rows()));
  });
  return details;
}

/** A table with a header row, and a header cell at the left of each row. */
export function plainTable(caption, header, rows, captionClass = "aside") {
  const head = header.map((name) => el("th", { scope: "col" }, String(name)));
  const body = rows.map(([first, ...cells]) =>
    el("tr", {},
      el("th", { scope: "row" }, String(first)),
      cells.map((cell, i) => el("td", { "data-name": header[i + 1] }, String(cell))),
    ),
  );
  return el("table", {},
    el("caption", { class: captionClass }, caption), el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, body),
  );
}

/** A choice among names: a label with a list. `onChoice` gets the index. */
export function chooser(label, names, chosen, onChoice) {
  const list = el("select", { onchange: () => onChoice(list.selectedIndex) },
    names.map((name, i) => el("option", { value: i, selected: i === chosen }, name)),
  );
  return el("label", { class: "control" }, el("span", {}, label), list);
}

/** Replaces what a node holds. The button in focus keeps the focus, by its number. */
export function replaceButtons(node, ...children) {
  const buttons = () => [...node.querySelectorAll("button, [role=button]")];
  const focused = buttons().indexOf(document.activeElement);
  node.replaceChildren(...children);
  if (focused >= 0) buttons()[focused]?.focus({ preventScroll: true });
}

/** Marks one of several buttons as pressed. */
export function pressOne(buttons, index) {
  buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
}

/** A row of numbered buttons, one of them pressed. `onChoice` gets the index. */
export const numbered = (label, count, chosen, onChoice, describe = (i) => `${label} ${i}`) =>
  choices(label, range(count).map(String), chosen, onChoice, describe);

/** The same with texts on the buttons; `describe(i)` is what is read aloud, if not the text. */
export function choices(label, texts, chosen, onChoice, describe = () => null) {
  const buttons = texts.map((text, i) =>
    buttonOf(text, () => press(i), { "aria-label": describe(i), dir: "auto" }),
  );
  const press = (index) => {
    pressOne(buttons, index);
    onChoice(index);
  };
  pressOne(buttons, chosen);
  roving(buttons, chosen);
  const node = el("div", { class: "control numbered", role: "group", "aria-label": label },
    el("span", { "aria-hidden": "true" }, label), el("span", { class: "row" }, buttons),
  );
  return { node, press };
}

/**
 * Makes one of several buttons a stop of the Tab key; arrows, Home and End move among them. `rows`
 * has the buttons in the rows that they stand in.
 */
export function roving(buttons, first = 0, rows = buttons.map((button) => [button])) {
  buttons.forEach((button, i) => {
    button.setAttribute("tabindex", i === first ? "0" : "-1");
    button.addEventListener("focus", () =>
      buttons.forEach((other) => other.setAttribute("tabindex", other === button ? "0" : "-1")),
    );
    button.addEventListener("keydown", (event) => {
      const row = rows.findIndex((own) => own.includes(button));
      const column = rows[row].indexOf(button);
      const inRow = (number) => rows[number]?.[Math.min(column, rows[number].length - 1)];
      const aims = { ArrowRight: buttons[i + 1], ArrowLeft: buttons[i - 1] };
      const more = { ArrowDown: inRow(row + 1), ArrowUp: inRow(row - 1) };
      const all = { ...aims, ...more, Home: buttons[0], End: buttons.at(-1) };
      if (!(event.key in all)) return;
      event.preventDefault();
      all[event.key]?.focus();
    });
  });
}

/** Calls `begin(event)` where a pointer goes down on a node, and `move(event)` until it goes up. */
export function onDrag(node, begin, move) {
  let isDown = false;
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    isDown = true;
    begin(event);
  });
  node.addEventListener("pointermove", (event) => isDown && move(event));
  for (const end of ["pointerup", "pointercancel"])
    node.addEventListener(end, () => {
      isDown = false;
    });
}

/** Calls `draw(width)` now and whenever the width of a node changes: text keeps its size. */
export function onWidth(node, draw, first = 640) {
  let last = first;
  draw(first);
  new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width < 10 || width === last) return;
    last = width;
    draw(width);
  }).observe(node);
}

/** Lets a node grow with its text and never shrink, so that nothing below moves to and fro. */
export function keepHeight(node) {
  let last = 0;
  new ResizeObserver(([{ contentRect: own }]) => {
    setStyle(node, { "min-height": own.width === last ? `${own.height}px` : "" });
    last = own.width;
  }).observe(node);
  return node;
}
