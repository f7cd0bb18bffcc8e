course.lesson({
  exercise: {
    asked: "Or click the mask yourself: the cells that are True for left=1 and right=3",
    isAlsoCode: true,
    grid: {
      caption: "rows: queries, columns: keys",
      rows: 7, columns: 7, row: "query", column: "key",
    },
    verdict(answer) {
      if (answer === null) return "Not answered yet.";
      for (const [row, cells] of answer.entries())
        for (const [column, cell] of cells.entries()) {
          const expected = column >= row - 1 && column <= row + 3;
          if (cell !== expected)
            return `Not yet: with left=1 and right=3, query ${row}` +
              ` ${expected ? "may" : "may not"} attend to key ${column}.` +
              " Which of the two bounds is for keys before the query?";
        }
      return "Right: the bound on each side is counted from the position of the query.";
    },
  },
});
