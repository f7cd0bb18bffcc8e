// The formula of attention. Each letter can be pointed at, by mouse, finger or keyboard: a line
// says what the table under the formula says of it, and a drawing of the matrices lights up.
// Without this script the table says it alone.

// Matrices with their name, rows, columns, and the letters that light them up; and what is between.
const STEPS = [
  [["Q", "q", "d", "Q"], ["·", ""], ["K⊤", "d", "k", "K ⊤"], ["÷ √d →", "d"],
    ["scores", "q", "k", "softmax"]],
  [["softmax →", "softmax"], ["weights", "q", "k", "softmax"], ["·", ""], ["V", "k", "e", "V"],
    ["→", ""], ["context", "q", "e", "context"]],
];
const SIZES = { q: 4.2, k: 3, d: 1.4, e: 2.2 }; // in rem
const SAID = "Q, q by d, times K transposed, d by k, divided by the root of d, gives the scores, "
  + "q by k. Softmax gives the weights, q by k. They times V, k by e, give the context, q by e.";

function element(kind, properties, ...children) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
}

function lit(kind, letters, text) {
  const made = element(kind, {}, text);
  made.dataset.lit = letters;
  return made;
}

function matrix(name, rows, columns, letters) {
  const box = lit("span", letters, "");
  box.className = "formula-box";
  Object.assign(box.style, { height: `${SIZES[rows]}rem`, width: `${SIZES[columns]}rem` });
  const shape = element("span", {}, lit("i", rows, rows), " × ", lit("i", columns, columns));
  return element("span", { className: "formula-matrix" }, box, element("b", {}, name), shape);
}

function drawing() {
  const part = (words) => words.length === 4 ? matrix(...words) : lit("span", words[1], words[0]);
  const step = (words) => element("div", { className: "formula-step" }, ...words.map(part));
  const look = { className: "formula-drawing", role: "img", ariaLabel: SAID };
  return element("div", look, ...STEPS.map(step));
}

// What a row of the table says, in one sentence for each column.
function sentences(table, row) {
  const heads = [...table.tHead.rows[0].cells].map((head) => head.innerText.trim());
  const parts = [...row.cells].map((cell, number) => {
    const before = number < 2 ? "" : `${heads[number][0].toUpperCase()}${heads[number].slice(1)}: `;
    const words = (cell.querySelector("p") ?? cell).cloneNode(true).childNodes;
    return [before, ...words, number === 0 ? ": " : ". "];
  });
  return element("span", {}, ...parts.flat());
}

function explain(formula, table) {
  const rows = new Map();
  for (const row of table.tBodies[0].rows) rows.set(row.cells[0].innerText.trim(), row);
  const letters = [...formula.querySelectorAll("mi")].filter((mi) => rows.has(mi.textContent));
  const buttons = letters.map((mi) => element("button", { type: "button" }, mi.textContent));
  const look = { className: "formula-said", ariaLive: "polite" };
  const said = element("p", look, "Point at a letter.");
  const drawn = drawing();
  formula.after(element("div", { className: "formula-letters" }, ...buttons), drawn, said);

  function point(letter) {
    for (const button of buttons) button.ariaPressed = String(button.textContent === letter);
    for (const mi of letters) mi.classList.toggle("lit", mi.textContent === letter);
    for (const [name, row] of rows) row.classList.toggle("lit", name === letter);
    for (const part of drawn.querySelectorAll("[data-lit]")) {
      part.classList.toggle("lit", part.dataset.lit.split(" ").includes(letter));
    }
    said.replaceChildren(sentences(table, rows.get(letter)));
  }

  for (const one of [...letters, ...buttons]) { // MathML may hold nothing that takes the focus
    for (const event of ["pointerenter", "focus", "click"]) {
      one.addEventListener(event, () => point(one.textContent));
    }
  }
}

addEventListener("DOMContentLoaded", () => {
  for (const formula of document.querySelectorAll(".formula")) {
    const table = formula.closest("section")?.querySelector("table");
    if (table?.rows[0].cells[0].textContent.trim() === "letter") explain(formula, table);
  }
});
