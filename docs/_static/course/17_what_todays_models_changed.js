course.lesson({
  exercise: {
    asked: "The bytes that one more token adds to the cache",
    fields: ["bytes"],
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      if (typeof answer !== "number") return "Not yet: the answer is a number of bytes.";
      const [right, allHeads] = [131_072, 524_288];
      if (answer === right)
        return "Right: 131,072 bytes, and 1 GB for a text of 8,192 tokens. With keys and values" +
          " for all 32 heads it would be 524,288, four times as many.";
      if ([allHeads, allHeads / 2, allHeads / 32].includes(answer))
        return "Not yet: the 32 heads of queries are not kept. 8 heads of keys and values are.";
      if (answer === right / 32)
        return "Not yet: this is one block. Each of the 32 blocks has a cache of its own.";
      if (answer === right / 2)
        return "Not yet: half of it. A token has a key and a value, and a number has 2 bytes.";
      if (answer === right / 4)
        return "Not yet: a quarter. A token has a key and a value, and each number has 2 bytes.";
      return "Not yet: multiply keys and values, heads, features, bytes and blocks.";
    },
  },
});
