course.lesson({
  exercise: {
    asked: "The width with which the estimates come nearest to the true temperature",
    fields: ["width, in hours"],
    verdict(answer, facts) {
      if (answer === null) return "Not answered yet.";
      if (typeof answer !== "number" || !(answer > 0))
        return "Not yet: the width is one number above 0.";
      const asked = course.range(97).map((i) => i / 4);
      const error = (width) => {
        const squares = asked.map((time) =>
          (course.estimate(time, width, facts) - course.trueTemperature(time)) ** 2);
        return Math.sqrt(course.sum(squares) / squares.length);
      };
      const widths = course.range(60).map((i) => 0.1 * 240 ** (i / 59));
      const errors = widths.map(error);
      const own = error(Math.max(answer, 1e-3));
      const best = Math.min(...errors);
      const message = `the error is ${course.fixed(own, 2)} degrees; the best width has ` +
        course.fixed(best, 2);
      if (own <= 1.1 * best)
        return `Right: ${message}. It takes enough readings to even out their errors, and no more.`;
      if (answer < widths[errors.indexOf(best)])
        return `Not yet: ${message}. Yours follows single readings, and copies their errors.`;
      return `Not yet: ${message}. Yours mixes times at which it was much colder or warmer.`;
    },
  },

  /** The estimates of a day for a width, and the weights of the readings for one hour. */
  picture(box, facts) {
    const x = (hour) => 30 + 12.5 * hour;
    const y = (degrees) => 190 - 7 * (degrees - 3);
    const line = (value) =>
      `M${course.range(97).map((i) => `${x(i / 4)},${y(value(i / 4)).toFixed(1)}`).join("L")}`;
    const dots = facts.times.map((time, i) =>
      course.svg("circle", { class: "mark", cx: x(time), cy: y(facts.readings[i]) }));
    const curve = course.svg("path", { class: "line" });
    const query = course.svg("path", { class: "query" });
    const svg = course.svg("svg", { viewBox: "0 0 352 216", role: "img" },
      [5, 10, 15, 20, 25].map((degrees) => [
        course.svg("path", { class: "axis", d: `M30,${y(degrees)}H330` }),
        course.svg("text", { x: 24, y: y(degrees) + 4, "text-anchor": "end" }, String(degrees)),
      ]).flat(),
      [0, 6, 12, 18, 24].map((hour) =>
        course.svg("text", { x: x(hour), y: 208, "text-anchor": "middle" }, `${hour}:00`)),
      course.svg("path", { class: "truth", d: line(course.trueTemperature) }),
      query, curve, dots);
    const says = course.el("output", { class: "says" });
    const chosen = { hour: 12, width: 2 };

    const draw = (change) => {
      const { hour, width } = Object.assign(chosen, change);
      const weights = course.nearness(hour, width, facts);
      weights.forEach((weight, i) => dots[i].setAttribute("r", 2 + 12 * Math.sqrt(weight)));
      curve.setAttribute("d", line((time) => course.estimate(time, width, facts)));
      query.setAttribute("d", `M${x(hour)},20V190`);
      const estimate = course.fixed(course.estimate(hour, width, facts), 1);
      const largest = course.fixed(Math.max(...weights), 2);
      const sentence = `At ${clock(hour)} attention gives ${estimate} degrees. ` +
        `The true temperature is ${course.fixed(course.trueTemperature(hour), 1)}. ` +
        `The largest weight of a reading is ${largest}.`;
      const drawn = "Readings, the true temperature and the estimates.";
      svg.setAttribute("aria-label", `${drawn} ${sentence}`);
      says.textContent = sentence;
    };
    const clock = (hour) => `${Math.floor(hour)}:${String((hour % 1) * 60).padStart(2, "0")}`;
    // the slider is even in the logarithm: from 0.1 to 24 hours
    const hours = (place) => 0.1 * 240 ** (place / 100);
    const sliders = [
      course.slider({
        name: "width", min: 0, max: 100, step: 1, value: 55,
        shown: (place) => `${course.general(Number(hours(place).toPrecision(2)))} hours`,
        onchange: (place) => draw({ width: hours(place) }),
      }),
      course.slider({
        name: "query", min: 0, max: 24, step: 0.25, value: 12, shown: clock,
        onchange: (hour) => draw({ hour }),
      }),
    ];
    draw({ width: hours(55) });
    const key = "Move the width, and the query. Dots are readings: the larger, the more weight. " +
      "The dashed line is the true temperature.";
    box.append(course.key(key), ...sliders, svg, says);
  },
});

course.trueTemperature = (time) => 14 - 6 * Math.cos((Math.PI * (time - 4)) / 12);

/** The weights of the readings for a query, a time. */
course.nearness = (time, width, { times }) =>
  course.softmax(times.map((read) => -((time - read) ** 2) / (2 * width ** 2)));

course.estimate = (time, width, facts) =>
  course.dot(course.nearness(time, width, facts), facts.readings);
