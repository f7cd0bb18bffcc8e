course.lesson({
  exercise: {
    asked: "The two kernels to set to 0",
    choices: [
      "attention/query", "attention/key", "attention/value", "attention/out",
      "feed_forward/hidden", "feed_forward/out",
    ],
    several: true,
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (answer.length > 2) return "Not yet: two are enough.";
      const isZero = (...names) => names.some((name) => answer.includes(name));
      if (!isZero("attention/value", "attention/out"))
        return "Not yet: the attention still adds something. If all queries or all keys are 0," +
          " all scores are equal, and it adds the mean of the values.";
      if (!isZero("feed_forward/hidden", "feed_forward/out"))
        return "Not yet: the feed-forward network still adds something.";
      return "Right: both parts now add 0, and the stream passes unchanged. In a post-norm block" +
        " it would not, because the norms are on the stream.";
    },
  },
});
