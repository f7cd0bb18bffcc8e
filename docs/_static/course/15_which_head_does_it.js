course.lesson({
  exercise: {
    asked: "The head of block 0 that block 1 needs most",
    choices: [0, 1, 2, 3],
    verdict(answer, { falls }) {
      if (answer === null) return "Not answered yet.";
      const fall = `without head ${answer}, copying falls by ${course.fixed(falls[answer], 2)}`;
      if (answer !== falls.indexOf(Math.max(...falls)))
        return `Not yet: ${fall}. Another costs more.`;
      return `Right: ${fall}, the most of block 0.`;
    },
  },
});
