// What a lesson of the course has on the site beside its text: a form for its exercise, and
// pictures that answer. `course.lesson` in the file of a lesson says which:
//
//   exercise   a form: its fields, and `verdict(answer, facts)`, the lesson's `check` in JavaScript
//   others     a function of the box to fill, and of the facts, which the lesson computed
//
// A box is `<div class="part" data-part="exercise">` with the facts as JSON in a script.
const course = {
  lesson(parts) {
    course.parts = parts;
    if (globalThis.document) addEventListener("DOMContentLoaded", course.fill);
  },

  fill() {
    for (const box of document.querySelectorAll(".part")) {
      const facts = JSON.parse(box.querySelector("script").textContent);
      const part = course.parts[box.dataset.part];
      if (typeof part === "function") part(box, facts);
      else course.form(box, part, facts);
      box.classList.add("is-live");
    }
  },

  // Elements

  el(tag, attributes = {}, ...children) {
    return course.furnish(document.createElement(tag), attributes, children);
  },

  svg(tag, attributes = {}, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    return course.furnish(node, attributes, children);
  },

  furnish(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") node.addEventListener(name, value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false) node.setAttribute(name, value);
    }
    node.append(...children.flat());
    return node;
  },

  /** A slider with its name and its value: `shown` says what the number means. */
  slider({ name, min, max, step, value, shown = String, onchange }) {
    const id = `slider-${name}`.replaceAll(" ", "-"); // one picture a page has sliders
    const said = course.el("span", { class: "value", "aria-hidden": "true" }, shown(value));
    const range = { id, type: "range", min, max, step, value, "aria-valuetext": shown(value) };
    const input = course.el("input", { ...range, input: () => {
      said.textContent = shown(Number(input.value));
      input.setAttribute("aria-valuetext", said.textContent);
      onchange(Number(input.value));
    } });
    const label = course.el("label", { for: id }, name);
    return course.el("div", { class: "slider" }, label, input, said);
  },

  /** What stands over a picture: what can be moved, and what is seen. */
  key: (text) => course.el("p", { class: "key" }, text),

  // A form

  /**
   * Adds a form to a box. A form has `fields`, the names of texts to fill in; or `choices`, of
   * which one or `several` are chosen; or a `grid` of cells, true or false. What is filled in
   * becomes an answer as Python has it: a number, a list or null. The form stands in the place of
   * the cell with the exercise, unless the answer `isAlsoCode`.
   */
  form(box, exercise, facts) {
    const { asked } = exercise;
    const kind = exercise.fields ? "fields" : exercise.choices ? "choices" : "grid";
    const { nodes, answer } = course[kind](exercise);
    const said = course.el("output", { class: "verdict", role: "status" });
    const check = (event) => {
      event.preventDefault();
      const text = course.verdict(exercise, answer(), facts);
      said.className = `verdict ${text.startsWith("Right") ? "is-right" : "is-not-yet"}`;
      said.textContent = text;
    };
    const button = course.el("button", { type: "submit" }, "Check");
    const clear = () => said.replaceChildren(); // it was said of another answer
    const legend = course.el("legend", {}, asked);
    const fieldset = course.el("fieldset", {}, legend, nodes, button);
    box.append(course.el("form", { submit: check, input: clear }, fieldset, said));
    if (!exercise.isAlsoCode)
      document.querySelector(".cell.tag_exercise").classList.add("is-answered-below");
  },

  fields({ fields }) {
    const inputs = fields.map(() =>
      course.el("input", { type: "text", size: 8, autocomplete: "off", spellcheck: "false" }),
    );
    const nodes = fields.map((name, i) => course.el("label", { class: "field" }, name, inputs[i]));
    return { nodes, answer: () => inputs.map((input) => input.value) };
  },

  choices({ choices, several }) {
    const type = several ? "checkbox" : "radio";
    const inputs = choices.map((_, i) => course.el("input", { type, name: "choice", value: i }));
    const nodes = choices.map((name, i) =>
      course.el("label", { class: "choice" }, inputs[i], String(name)),
    );
    const answer = () => {
      const chosen = choices.filter((_, i) => inputs[i].checked);
      if (chosen.length === 0) return null;
      return several ? chosen : chosen[0];
    };
    return { nodes, answer };
  },

  /** Cells by rows: each is a button that is pressed for true. The arrows go from cell to cell. */
  grid({ grid: { caption, rows, columns, row, column } }) {
    const numbers = (length) => [...Array(length).keys()];
    const cells = numbers(rows).map((r) => numbers(columns).map((c) =>
      course.el("button", {
        type: "button", "aria-pressed": "false", "aria-label": `${row} ${r}, ${column} ${c}`,
        tabindex: r + c === 0 ? 0 : -1,
        click: ({ target }) =>
          target.setAttribute("aria-pressed", String(target.ariaPressed !== "true")),
        keydown: (event) => {
          const steps = {
            ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
          };
          const [down, right] = steps[event.key] ?? [0, 0];
          const next = cells[r + down]?.[c + right];
          if (!next || down + right === 0) return;
          event.preventDefault();
          event.target.tabIndex = -1;
          next.tabIndex = 0;
          next.focus();
        },
      }),
    ));
    const head = course.el("tr", {}, course.el("td"), numbers(columns).map((c) =>
      course.el("th", { scope: "col" }, String(c))));
    const body = cells.map((line, r) => course.el("tr", {},
      course.el("th", { scope: "row" }, String(r)),
      line.map((cell) => course.el("td", {}, cell))));
    const title = course.el("caption", {}, caption);
    const nodes = course.el("table", { class: "grid" }, title, head, body);
    const answer = () => {
      const mask = cells.map((line) => line.map((cell) => cell.ariaPressed === "true"));
      return mask.flat().some(Boolean) ? mask : null;
    };
    return { nodes, answer };
  },

  /** What is said to what a form holds, such as the texts of its fields. */
  verdict(exercise, held, facts) {
    if (!exercise.fields) return exercise.verdict(held, facts);
    const point = held.map((text) => course.withPoint(text.trim())).find(Boolean);
    if (point) return `Not yet: write a point for the comma, ${point}.`;
    return exercise.verdict(course.answer(held), facts);
  },

  // Numbers, as Python reads and writes them

  /** The answer that texts say: null if all are empty, a number or text for one, or a list. */
  answer(texts) {
    if (texts.every((text) => text.trim() === "")) return null;
    const values = texts.map((text) => course.value(text.trim()));
    return values.length === 1 ? values[0] : values;
  },

  /** A number whose decimals stand behind a comma, with a point; null for other texts. */
  withPoint: (text) =>
    /^[+-]?\d*,\d+ ?%?$/.test(text) && typeof course.value(text) === "string"
      ? text.replace(",", ".")
      : null,

  /** The number that a text says to Python's `float`, or in one of two other ways, or the text. */
  value(text) {
    const share = /^(.*[\d.]) ?%$/.exec(text);
    if (share) {
      const number = course.value(share[1]);
      return typeof number === "number" ? number / 100 : text;
    }
    const word = /^([+-]?)(?:inf(?:inity)?|(nan))$/i.exec(text);
    if (word) return word[2] ? NaN : word[1] === "-" ? -Infinity : Infinity;
    // 1_000, 1,000 and 1 000 are 1000; 0,500 is none
    const isGrouped = /^[+-]?[1-9]\d{0,2}([,\s])\d{3}(\1\d{3})*$/.test(text);
    const plain = text.replace(isGrouped ? /[,\s]/g : /(?<=\d)_(?=\d)/g, "");
    return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : text;
  },

  /** f"{number:.{digits}f}". JavaScript rounds 0.5 to 1, and Python to 0, the even one. */
  fixed(number, digits) {
    if (Number.isNaN(number)) return "nan";
    const sign = number < 0 || Object.is(number, -0) ? "-" : "";
    const size = Math.abs(number);
    if (size === Infinity) return `${sign}inf`;
    if (size >= 1e21) return `${sign}${BigInt(size)}${digits ? `.${"0".repeat(digits)}` : ""}`;
    const text = size.toFixed(digits);
    const tail = size.toFixed(100).split(".")[1].slice(digits);
    const isTie = /^50*$/.test(tail);
    const last = Number(text.at(-1));
    if (!isTie || last % 2 === 0) return sign + text;
    return sign + text.slice(0, -1) + (last - 1); // it was rounded up to an odd digit
  },

  /** f"{share:.{digits}%}" */
  percent: (share, digits = 0) => `${course.fixed(share * 100, digits)}%`,

  /** f"{number:g}" */
  general(number) {
    if (!Number.isFinite(number)) return course.fixed(number, 0);
    if (number === 0) return Object.is(number, -0) ? "-0" : "0";
    const [digits, exponent] = number.toExponential(5).split("e");
    const power = Number(exponent);
    const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
    if (power >= -4 && power < 6) return trimmed(course.fixed(number, 5 - power));
    const size = String(Math.abs(power)).padStart(2, "0");
    return `${trimmed(digits)}e${power < 0 ? "-" : "+"}${size}`;
  },

  /** The weights of scores. */
  softmax(scores) {
    const largest = Math.max(...scores);
    const exps = scores.map((score) => Math.exp(score - largest));
    const total = exps.reduce((a, b) => a + b, 0);
    return exps.map((exp) => exp / total);
  },

  /** A vector by a matrix, and a bias if there is one. */
  dense(x, { kernel, bias = Array(kernel[0].length).fill(0) }) {
    const result = [...bias];
    x.forEach((number, i) => {
      if (number !== 0) kernel[i].forEach((weight, j) => (result[j] += number * weight));
    });
    return result;
  },

  /** As `dense`, for vectors one after the other: each sees five, itself and two on each side. */
  convolution(rows, { kernel, bias }) {
    const none = Array(rows[0].length).fill(0);
    return rows.map((_, t) => {
      const seen = [-2, -1, 0, 1, 2].flatMap((step) => rows[t + step] ?? none);
      return course.dense(seen, { kernel: kernel.flat(), bias });
    });
  },

  relu: (vector) => vector.map((number) => Math.max(number, 0)),
  add: (a, b) => a.map((number, i) => number + b[i]),
  sum: (numbers) => numbers.reduce((a, b) => a + b, 0),
  dot: (a, b) => a.reduce((total, number, i) => total + number * b[i], 0),
  range: (length) => [...Array(length).keys()],
};
