course.lesson({
  exercise: {
    asked: "The letters that go through the blocks in all",
    fields: ["without a cache", "with a cache"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (answer.some((number) => !Number.isFinite(number)))
        return "Not yet: the answer is a pair of numbers, (without, with).";
      const [without, withCache] = answer.map(Math.trunc);
      if (without === 5050 && withCache === 100)
        return "Right: 1 + 2 + ... + 100 = 5050 letters without a cache, and 100 with it. For" +
          " 1,000 letters, the cache saves a factor of 500. Each query still attends to all keys so" +
          " far:" +
          " the cache saves their projections and the feed-forward networks, not the scores.";
      if (without === 10_000)
        return "Not yet: step 1 reads one letter, step 2 reads two, and step 100 reads a hundred." +
          " Not every step reads a hundred.";
      if (withCache !== 100)
        return "Not yet: with a cache, each of the 100 steps reads one letter.";
      return "Not yet: add the letters of all steps: 1 in the first, 2 in the second, ...";
    },
  },
});
