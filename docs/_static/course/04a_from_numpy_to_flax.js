course.lesson({
  exercise: {
    asked: "The numbers that init makes",
    fields: ["numbers"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (typeof answer !== "number") return "Not yet: the answer is one number.";
      if (answer === 20)
        return "Right: the kernel has 3 · 5 = 15 numbers, and the bias has 5. The 7 does not" +
          " count.";
      if (answer === 15)
        return "Not yet: this is the kernel alone. What does a Dense layer add to the product?";
      return "Not yet: the kernel is (in, out), and it is the same for all 7 rows.";
    },
  },
});
