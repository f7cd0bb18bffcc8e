course.lesson({
  exercise: {
    asked: "Your guess, or the error that you measured",
    fields: ["error without the two convolutions"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (typeof answer !== "number")
        return "Not yet: the answer is one number, the error that `train` returns.";
      const measured = 0.07;
      if (answer < 0) return "Not yet: the error is a mean of squares, so it cannot be below 0.";
      const own = course.fixed(answer, 4);
      if (answer < measured / 2)
        return `Not yet: ${own} is too low. It would mean that the attention hardly needs the` +
          " convolutions before it. Train the network. Without them a point is one" +
          " height: does it know whether it is in a triangle or a box?";
      if (!(answer <= 2 * measured))
        return `Not yet: ${own} is too high. A network that returns the signal as it is has an` +
          " error of about 0.17, and this one does better.";
      return `Right: ${own} is near. Measured, the error is about ${measured}. Without the` +
        " convolutions a point is one height. Its query cannot ask for the other triangle," +
        " because no key encodes that a point belongs to a triangle.";
    },
  },

  /** The trained network, with heights and a query to choose. */
  picture(box, { params, shapes }) {
    const names = course.pairNames(shapes.centers);
    const chosen = { heights: shapes.heights.map((height) => Math.round(height * 2) / 2) };
    chosen.query = Math.round(shapes.centers[names.indexOf("left triangle")]);
    const x = (t) => 24 + 3.1 * t;
    const y = (height) => 168 - 5.4 * height;
    const line = (heights) => `M${heights.map((h, t) => `${x(t)},${y(h).toFixed(1)}`).join("L")}`;
    const path = (name) => course.svg("path", { class: name });
    const lines = { target: path("target"), signal: path("truth"), answer: path("line") };
    const arcs = course.svg("g", { class: "arcs" });
    const query = path("query");
    const strip = course.range(100).map((t) =>
      course.svg("rect", { class: "mark", x: x(t) - 1.5, y: 194, width: 3.1, height: 14 }));
    const svg = course.svg("svg", { viewBox: "0 0 340 226", role: "img" },
      [0, 10, 20].map((height) => [
        course.svg("path", { class: "axis", d: `M24,${y(height)}H332` }),
        course.svg("text", { x: 18, y: y(height) + 4, "text-anchor": "end" }, String(height)),
      ]).flat(),
      course.svg("path", { class: "axis", d: "M22,194H333V208H22z" }),
      course.svg("text", { x: 24, y: 222 }, "weights of the query, by position"),
      Object.values(lines), query, arcs, strip);
    const says = course.el("output", { class: "says" });

    const draw = (change) => {
      Object.assign(chosen, change);
      const { heights } = chosen;
      const at = chosen.query;
      const signal = course.drawn(shapes, heights);
      const levels = [0, 0, 2, 2].map((i) => (heights[i] + heights[i + 1]) / 2);
      const { outputs, weights } = course.levelled(signal, params, at);
      lines.signal.setAttribute("d", line(signal));
      lines.target.setAttribute("d", line(course.drawn(shapes, levels)));
      lines.answer.setAttribute("d", line(outputs));
      query.setAttribute("d", `M${x(at)},4V194`);
      strip.forEach((cell, t) => cell.setAttribute("opacity", Math.sqrt(weights[t]).toFixed(3)));
      arcs.replaceChildren(...weights.flatMap((weight, t) => {
        if (weight < 0.02 || t === at) return [];
        const [from, to] = [y(signal[at]), y(signal[t])];
        const up = Math.max(Math.min(from, to) - 40, 4);
        const d = `M${x(at)},${from}Q${(x(at) + x(t)) / 2},${up} ${x(t)},${to}`;
        return [course.svg("path", { d, "stroke-width": (8 * weight).toFixed(1) })];
      }));
      const within = (i, t) =>
        Math.abs(t - shapes.centers[i]) < shapes.widths[i] / 2 + (i < 2 ? 0.5 : 0);
      const shares = names.map((name, i) => {
        const share = course.sum(weights.filter((_, t) => within(i, t)));
        return `${name} ${course.fixed(share, 2)}`;
      });
      const i = names.findIndex((_, i) => within(i, at));
      const where = i < 0 ? "between the shapes" : `in the ${names[i]}`;
      says.textContent = `The query at ${at} is ${where}. Its weights: ${shares.join(", ")}. ` +
        `The answer there is ${course.fixed(outputs[at], 1)}` +
        (i < 0 ? "." : `, and the mean of both heights is ${course.fixed(levels[i], 1)}.`);
      svg.setAttribute("aria-label", `Signal, answer and target. ${says.textContent}`);
    };
    const heights = names.map((name, i) =>
      course.slider({
        name, min: 1, max: 25, step: 0.5, value: chosen.heights[i],
        shown: (height) => course.fixed(height, 1),
        onchange: (height) => draw({ heights: chosen.heights.with(i, height) }),
      }));
    const order = [0, 1, 2, 3].toSorted((a, b) => shapes.centers[a] - shapes.centers[b]);
    const position = course.slider({
      name: "query", min: 0, max: 99, step: 1, value: chosen.query,
      shown: (at) => `point ${at}`, onchange: (at) => draw({ query: at }),
    });
    draw({});
    const key = "This is the network that the lesson trained. Move the heights, and the query." +
      " The signal is dashed, the output blue, and the target wide and grey.";
    const sliders = [...order.map((i) => heights[i]), position];
    box.append(course.key(key), ...sliders, svg, says);
  },
});

/** The names of the shapes: two triangles, then two boxes. */
course.pairNames = (centers) => centers.map((center, i) => {
  const isLeft = center < centers[i ^ 1];
  return `${isLeft ? "left" : "right"} ${i < 2 ? "triangle" : "box"}`;
});

/** A signal of four shapes without noise, as `flax_attn.data.shapes` draws it. */
course.drawn = ({ centers, widths }, heights) => course.range(100).map((t) => {
  const parts = heights.map((height, i) => {
    const distance = Math.abs(t - centers[i]);
    if (i >= 2) return 2 * distance < widths[i] ? height : 0;
    return Math.max(height - (Math.max(distance - 0.5, 0) * 2 * height) / widths[i], 0);
  });
  return Math.max(...parts);
});

/** What the network makes of a signal, and the weights of one query. */
course.levelled = (signal, params, at) => {
  let x = signal.map((height) => [(height - 3.3) / 6]);
  for (const layer of [params.Conv_0, params.Conv_1])
    x = course.convolution(x, layer).map(course.relu);
  const { query, key, value } = params.Attention_0;
  const [queries, keys, values] = [query, key, value].map((layer) =>
    x.map((row) => course.dense(row, layer)));
  const weights = queries.map((row) => course.softmax(keys.map((other) => course.dot(row, other))));
  const contexts = weights.map((row) => course.dense(row, { kernel: values }));
  x = x.map((row, t) => course.relu(course.add(row, contexts[t])));
  x = course.convolution(course.convolution(x, params.Conv_2).map(course.relu), params.Conv_3);
  return { outputs: x.map(([height]) => height * 6 + 3.3), weights: weights[at] };
};
