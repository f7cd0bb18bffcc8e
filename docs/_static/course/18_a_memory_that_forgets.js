course.lesson({
  exercise: {
    asked: "The price that the state returns for tea",
    fields: ["price"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (typeof answer !== "number") return "Not yet: the answer is one price, a number.";
      if (Math.abs(answer - 4.92) < 0.005)
        return "Right: the key of green tea returned 0.6 · 3 = 1.8, so 5 - 1.8 = 3.2 was" +
          " written. Tea returns 3 + 0.6 · 3.2. The note of one drink has changed the price of" +
          " another.";
      if (answer === 3)
        return "Not yet: it would be 3 if the dot product of the two keys were 0.";
      if (answer === 5)
        return "Not yet: 5 is what the key of green tea returns. The guest asks for tea.";
      if (answer === 6)
        return "Not yet: linear attention writes 5. What does the delta rule subtract from it?";
      if (Math.abs(answer - 3.2) < 0.005)
        return "Not yet: 3.2 was written for green tea. What does the query for tea read?";
      if (Math.abs(answer - 6.2) < 0.005)
        return "Not yet: the query for tea reads 0.6 of what was written for green tea.";
      return "Not yet: what does the key of green tea return before it is written? What is then" +
        " written? What does the query for tea read of both notes?";
    },
  },
});
