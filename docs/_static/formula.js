// The formula of attention. Each letter can be pointed at, by mouse, finger or keyboard: it says
// what its row of the table under the formula says, and lights up in a drawing of the matrices.
// Without this script the table says it alone.
const STEPS = [
  [["Q", "q", "d", "Q"], "·", ["K⊤", "d", "k", "K ⊤"], "→", ["scores", "q", "k", "softmax"]],
  [["weights", "q", "k", "softmax"], "·", ["V", "k", "e", "V"], "→", ["context", "q", "e", "context"]],
];
const SIZES = { q: 4.2, k: 3.2, d: 1.4, e: 2.2 }; // in rem

function element(kind, properties, ...children) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
}

// A matrix: a box, with its name and its shape. `letters` are those that light it up.
function matrix([name, rows, columns, letters]) {
  const box = element("span", { className: "formula-box" });
  Object.assign(box.style, { height: `${SIZES[rows]}rem`, width: `${SIZES[columns]}rem` });
  box.dataset.lit = letters;
  const shape = [rows, columns].map((side) => element("i", {}, side));
  for (const side of shape) side.dataset.lit = side.textContent;
  return element("span", { className: "formula-matrix" },
    box, element("b", {}, name), element("span", {}, shape[0], " × ", shape[1]));
}

function drawing() {
  const steps = STEPS.map((step) => element("div", { className: "formula-step" },
    ...step.map((part) => Array.isArray(part) ? matrix(part) : element("span", {}, part))));
  const made = element("div", { className: "formula-drawing" }, ...steps);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", "Q, q by d, times K transposed, d by k, gives the scores, q by k. "
    + "The weights, q by k, times V, k by e, give the context, q by e.");
  return made;
}

// What a row of the table says, in one sentence for each column.
function sentences(table, row) {
  const said = element("span");
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  [...row.cells].forEach((cell, number) => {
    const words = [...cell.querySelector("p")?.childNodes ?? cell.childNodes];
    const start = number === 0 ? "" : number === 1 ? ": " : `. ${heads[number]}: `;
    said.append(start, ...words.map((word) => word.cloneNode(true)));
  });
  return said;
}

function explain(formula, table) {
  const rows = new Map([...table.tBodies[0].rows].map((row) => [row.cells[0].innerText.trim(), row]));
  const letters = [...formula.querySelectorAll("mi")].filter((mi) => rows.has(mi.textContent));
  const said = element("p", { className: "formula-said" }, "Point at a letter.");
  said.setAttribute("aria-live", "polite");
  const drawn = drawing();
  formula.after(drawn, said);

  function point(letter) {
    const lights = (holder) => (holder.dataset.lit ?? "").split(" ").includes(letter);
    for (const mi of letters) mi.setAttribute("aria-pressed", mi.textContent === letter);
    for (const part of drawn.querySelectorAll("[data-lit]")) part.classList.toggle("lit", lights(part));
    for (const [name, row] of rows) row.classList.toggle("lit", name === letter);
    said.replaceChildren(sentences(table, rows.get(letter)));
  }

  for (const mi of letters) {
    mi.setAttribute("tabindex", "0");
    mi.setAttribute("role", "button");
    mi.setAttribute("aria-pressed", "false");
    for (const event of ["pointerenter", "focus", "click"]) {
      mi.addEventListener(event, () => point(mi.textContent));
    }
  }
}

addEventListener("DOMContentLoaded", () => {
  for (const formula of document.querySelectorAll(".formula")) {
    const table = formula.closest("section")?.querySelector("table");
    if (table?.rows[0].cells[0].textContent.trim() === "letter") explain(formula, table);
  }
});
