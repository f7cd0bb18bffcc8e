course.lesson({
  exercise: {
    asked: "The smallest number with which sparsemax gives the first key all the weight",
    fields: ["number"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (typeof answer !== "number") return "Not yet: the answer is one number.";
      if (!Number.isFinite(answer) || answer <= 0)
        return "Not yet: the number is finite, and above 0.";
      if (answer < 9.99) {
        const [a, b, c] = course.sparsemax([2.0, 1.9, 0.0].map((score) => answer * score))
          .map((weight) => course.fixed(weight, 2));
        return `Not yet: the weights are ${a}, ${b} and ${c}.` +
          " What must be true of tau if the second key gets nothing?";
      }
      if (answer > 10.01)
        return "Not yet: the first key has all the weight, but a smaller number does it, too.";
      return "Right: with one key, tau is its score minus 1. So the second key gets nothing if" +
        " its score is lower by at least 1, and 10 times 0.1 is 1. Then sparsemax is hard.";
    },
  },
});

course.sparsemax = (scores) => {
  const ordered = scores.toSorted((a, b) => b - a);
  const taus = ordered.map((_, i) => (course.sum(ordered.slice(0, i + 1)) - 1) / (i + 1));
  const n = ordered.filter((score, i) => score > taus[i]).length;
  return scores.map((score) => Math.max(score - taus[n - 1], 0));
};
