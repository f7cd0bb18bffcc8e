course.lesson({
  exercise: {
    asked: "The tokens of a photo, and how many times as many weights patches of 8 x 8 have",
    fields: ["tokens", "times"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (answer.some((number) => typeof number !== "number"))
        return "Not yet: the answer is a pair of numbers, (tokens, times).";
      const [tokens, times] = answer;
      if (tokens === 14)
        return "Not yet: there are 14 patches along each side, and the photo has two sides.";
      if (tokens === 224 * 224)
        return "Not yet: these are the pixels. A patch of 16 x 16 pixels is one token.";
      if (tokens === 28 * 28)
        return "Not yet: this is the number of patches of 8 x 8. The first number is for 16 x" +
          " 16.";
      if (tokens === 197)
        return "Not yet: 197 counts a class token, too. Count the patches alone.";
      if (tokens !== 196)
        return "Not yet: how many patches of 16 pixels lie along one side of 224 pixels?";
      if (times === 4)
        return "Not yet: there are 4 times as many tokens. But a weight belongs to a pair of" +
          " tokens, a query and a key.";
      if (times !== 16)
        return "Not yet: with 8 x 8, count the tokens. A head has a weight for each pair of them.";
      return "Right: 14 · 14 = 196 tokens. Patches of half the side are 4 times as many, and each" +
        " attends to each, so there are 16 times as many weights. That is why patches are large.";
    },
  },
});
