course.lesson({
  exercise: {
    asked: "The number by which the dot product must be divided",
    fields: ["divisor"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (typeof answer !== "number" || !(answer > 0))
        return "Not yet: the answer is one number above 0.";
      const deviation = course.fixed(32 / answer, 2);
      if (deviation === "1.00")
        return "Right: one product has variance 16. The sum of 64 has 1,024. Its root is 32.";
      return `Not yet: divided by ${course.general(answer)}, the standard deviation is` +
        ` ${deviation}. What is the variance of one product q_i k_i now?`;
    },
  },

  /** The weights of 16 keys for one query of d numbers, without the division and with it. */
  picture(box, { sizes, products, means }) {
    const titles = ["dot product", "divided by the root of d"];
    const top = (panel) => 24 + 116 * panel;
    const bars = titles.map((_, panel) => course.range(16).map((i) =>
      course.svg("rect", { class: panel ? "mark" : "mark is-other", x: 30 + 19 * i, width: 14 })));
    const svg = course.svg("svg", { viewBox: "0 0 340 246", role: "img" },
      titles.map((title, panel) => [
        course.svg("text", { x: 30, y: top(panel) - 8 }, title),
        course.svg("path", { class: "axis", d: `M30,${top(panel)}H334M30,${top(panel) + 80}H334` }),
        course.svg("text", { x: 24, y: top(panel) + 8, "text-anchor": "end" }, "1"),
        course.svg("text", { x: 24, y: top(panel) + 84, "text-anchor": "end" }, "0"),
      ]).flat(), bars.flat(),
      course.svg("text", { x: 182, y: 240, "text-anchor": "middle" }, "16 keys"));
    const says = course.el("output", { class: "says" });

    const draw = (number) => {
      const d = sizes[number];
      const largest = [1, Math.sqrt(d)].map((divisor, panel) => {
        const weights = course.softmax(products[number].map((product) => product / divisor));
        weights.forEach((weight, i) => {
          bars[panel][i].setAttribute("y", top(panel) + 80 * (1 - weight));
          bars[panel][i].setAttribute("height", 80 * weight);
        });
        return course.fixed(Math.max(...weights), 2);
      });
      const [plain, scaled] = means[number].map((mean) => course.fixed(mean, 2));
      says.textContent = `The largest weight is ${largest[0]}, and ${largest[1]} with the ` +
        `division. The means over 500 queries are ${plain} and ${scaled}.`;
      svg.setAttribute("aria-label", `Two rows of 16 bars. ${says.textContent}`);
    };
    const slider = course.slider({
      name: "d", min: 0, max: sizes.length - 1, step: 1, value: 6,
      shown: (number) => sizes[number].toLocaleString("en-US"), onchange: draw,
    });
    draw(6);
    const key = "The weights of 16 random keys for one random query. Move d, the numbers in each.";
    box.append(course.key(key), slider, svg, says);
  },
});
