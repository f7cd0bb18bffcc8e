course.lesson({
  exercise: {
    asked: "The shares of the words that are right, from 0 to 1",
    fields: ["teacher forcing", "greedy"],
    verdict(answer, { words }) {
      if (answer === null) return "Not answered yet.";
      if (answer.some((number) => typeof number !== "number"))
        return "Not yet: the answer is a pair of shares, (teacher forcing, greedy).";
      const [forced, greedy] = answer;
      if (answer.every((share, i) => Math.abs(share - words[i]) < 0.005)) {
        const both = words.map((share) => course.percent(share, 1)).join(" and ");
        return `Right: ${both}. Until the first mistake both decoders read` +
          " the same letters. So the first mistake is at the same letter for both.";
      }
      if (Math.abs(forced - greedy) > 0.005)
        return "Not yet: a word counts if all of its letters are right: use .all(axis=1) before" +
          " .mean(). And what do both decoders read before the first mistake?";
      return "Not yet: measure is_right(kept[100], target) and is_right(kept[100], None).";
    },
  },
});
