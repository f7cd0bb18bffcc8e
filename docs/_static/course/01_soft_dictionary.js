course.lesson({
  exercise: {
    asked: "The query of the guest who wants something sweet and cold",
    fields: ["sweet", "warm"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (answer.some((number) => typeof number !== "number"))
        return "Not yet: a query is a list of two numbers, [sweet, warm].";
      const [sweet, warm] = answer;
      const keys = [[0, 0], [1, 0], [0, 1], [1, 1]];
      const weights = course.softmax(keys.map((key) => course.dot(key, answer)));
      const [water, lemonade, tea, cocoa] = weights;
      const weight = course.fixed(lemonade, 2);
      if (lemonade > Math.max(water, tea, cocoa) + 1e-9) {
        const context = course.fixed(course.dot(weights, [1, 2, 3, 4]), 2);
        return `Right: lemonade has weight ${weight}, and the price is ${context}.`;
      }
      if (warm === 0 && sweet > 0)
        return `Not yet: lemonade and cocoa have the same weight, ${weight}. A 0 means that it` +
          " does not matter whether a drink is warm. But this guest wants it cold.";
      return "Not yet: another drink has as great a weight. Which numbers mean sweet and not warm?";
    },
  },

  /** Bars of the weights, and where the context is among the prices, for a sharpness. */
  picture(box, { scores, prices }) {
    const names = ["water", "lemonade", "tea", "cocoa"];
    const width = (share) => 210 * share;
    const place = (price) => 82 + ((price - 1) / 3) * 210;
    const bars = names.map((_, i) =>
      course.svg("rect", { class: "mark", x: 82, y: 28 * i + 4, height: 20 }));
    const numbers = names.map((_, i) => course.svg("text", { y: 28 * i + 18 }));
    const context = course.svg("path", { class: "mark" });
    const svg = course.svg("svg", { viewBox: "0 0 340 186", role: "img" },
      names.map((name, i) => course.svg("text", { x: 0, y: 28 * i + 18 }, name)), bars, numbers,
      course.svg("path", { class: "axis", d: "M82,152H292" }),
      course.svg("text", { x: 0, y: 156 }, "price"), context,
      prices.map((price) => [
        course.svg("path", { class: "axis", d: `M${place(price)},148v8` }),
        course.svg("text", { x: place(price), y: 172, "text-anchor": "middle" }, String(price)),
      ]).flat());
    const says = course.el("output", { class: "says" });

    const draw = (sharpness) => {
      const weights = course.softmax(scores.map((score) => sharpness * score));
      const mean = course.dot(weights, prices);
      weights.forEach((weight, i) => {
        bars[i].setAttribute("width", width(weight));
        numbers[i].setAttribute("x", 88 + width(weight));
        numbers[i].textContent = course.fixed(weight, 2);
      });
      context.setAttribute("d", `M${place(mean)},150l-6,-11h12z`);
      const texts = names.map((name, i) => `${name} ${course.fixed(weights[i], 2)}`);
      svg.setAttribute("aria-label", `Weights: ${texts.join(", ")}`);
      says.textContent = `Tea has weight ${course.fixed(weights[2], 2)}. ` +
        `The context is ${course.fixed(mean, 2)}.`;
    };
    const slider = course.slider({
      name: "sharpness", min: 0, max: 10, step: 0.1, value: 1,
      shown: (number) => course.fixed(number, 1), onchange: draw,
    });
    draw(1);
    box.append(course.key("Move the sharpness."), slider, svg, says);
  },
});
