course.lesson({
  exercise: {
    asked: "The share of the reviews in which the largest weight is on the most important word",
    fields: ["share, from 0 to 1"],
    verdict(answer, { share }) {
      if (answer === null) return "Not answered yet.";
      if (typeof answer !== "number") return "Not yet: the answer is one number between 0 and 1.";
      if (Math.abs(answer - share) < 0.005)
        return `Right: ${course.fixed(share, 2)}. In ${course.percent(1 - share)} of the reviews,` +
          " the word with the largest weight is not the one whose deletion changes the output" +
          " most.";
      if (Math.abs(answer - 1) < 0.005)
        return "Not yet: 1 would mean that the largest weight always shows what matters most." +
          " Compare both halves of the picture." +
          " argmax(axis=1) is the position of the largest number.";
      return "Not yet: compare weights[0].argmax(axis=1) with effects[0].argmax(axis=1).";
    },
  },

  /** The trained networks, with words to choose. Below each word: its weight, and its effect. */
  picture(box, { words, review, networks }) {
    const tokens = [...review];
    const kinds = { 6: "noun", 9: "adverb", 0: "adjective" };
    const lasts = { 6: 9, 9: 12, 0: 6 };
    let network = 0;
    const bar = (name) => course.el("span", { class: `bar ${name}` });
    const cells = tokens.map((token, i) => {
      const first = [null, 6, null, 9, 0][i % 5];
      const options = first === null ? [] : words.slice(first, lasts[first]);
      const label = `${kinds[first]} of clause ${Math.floor(i / 5) + 1}`;
      const word = options.length === 0
        ? course.el("span", { class: "word" }, words[token])
        : course.el("select", { "aria-label": label, change: (event) => put(i, event) },
          options.map((name) => course.el("option", { selected: name === words[token] }, name)));
      const bars = [bar("weight"), bar("effect")];
      const numbers = [course.el("small"), course.el("small")];
      const rows = [bars[0], numbers[0], bars[1], numbers[1]];
      return { cell: course.el("div", { class: "cell-of-word" }, word, rows), bars, numbers };
    });
    const says = course.el("output", { class: "says" });

    const put = (i, { target }) => {
      tokens[i] = words.indexOf(target.value);
      draw();
    };
    const draw = () => {
      const read = (some) => course.praise(some, networks[network]);
      const { output, weights } = read(tokens);
      const effects = tokens.map((_, i) => Math.abs(read(tokens.toSpliced(i, 1)).output - output));
      const largest = (numbers) => words[tokens[numbers.indexOf(Math.max(...numbers))]];
      cells.forEach(({ bars, numbers }, i) => {
        bars[0].style.width = `${(2.5 * weights[i]) / Math.max(...weights)}rem`;
        bars[1].style.width = `${(2.5 * effects[i]) / Math.max(...effects)}rem`;
        numbers[0].textContent = course.fixed(weights[i], 2);
        numbers[1].textContent = course.fixed(effects[i], 1);
      });
      says.textContent = `Network ${network} says ${output > 0 ? "praise" : "blame"} ` +
        `(${course.fixed(output, 1)}). The largest weight is on “${largest(weights)}”. ` +
        `Without “${largest(effects)}” the output changes most.`;
    };
    const choose = ({ target }) => {
      network = Number(target.value);
      draw();
    };
    const choice = course.el("select", { change: choose },
      networks.map((_, i) => course.el("option", { value: i }, `network ${i}`)));
    const key = "These are the networks that the lesson trained. Choose words. Under each word" +
      " are two bars: blue is its weight, and red how much the output changes without it.";
    draw();
    box.append(course.key(key),
      course.el("label", { class: "field" }, "trained from another seed", choice),
      course.el("div", { class: "review" }, cells.map(({ cell }) => cell)), says);
  },
});

/** The output of a network for a review, above 0 for praise, and the weights of its words. */
course.praise = (tokens, params) => {
  const inputs = tokens.map((token) => params.Embed_0.embedding[token]);
  const sigmoid = (number) => 1 / (1 + Math.exp(-number));
  const run = (rows, cell) => {
    let state = Array(16).fill(0);
    const part = (x, name) => course.dense(x, cell[name]);
    return rows.map((x) => {
      const reset = course.add(part(x, "ir"), part(state, "hr")).map(sigmoid);
      const keep = course.add(part(x, "iz"), part(state, "hz")).map(sigmoid);
      const old = part(state, "hn").map((number, i) => number * reset[i]);
      const fresh = course.add(part(x, "in"), old).map(Math.tanh);
      state = fresh.map((number, i) => (1 - keep[i]) * number + keep[i] * state[i]);
      return state;
    });
  };
  const forward = run(inputs, params.GRUCell_0);
  const backward = run(inputs.toReversed(), params.GRUCell_1).toReversed();
  const states = forward.map((state, i) => [...state, ...backward[i]]);
  const { hidden, energy } = params.pooling;
  const scores = states.map((state) =>
    course.dense(course.dense(state, hidden).map(Math.tanh), energy)[0]);
  const weights = course.softmax(scores);
  const [output] = course.dense(course.dense(weights, { kernel: states }), params.output);
  return { output, weights };
};
