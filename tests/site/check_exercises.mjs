// The form of an exercise, and what it says to answers, for tests/site/test_exercises.py.
// node check_exercises.mjs SCRIPT writes the form. With JSON on its standard input, facts and
// answers, it writes the verdicts. An answer to a form with fields is a list of texts.
import fs from "node:fs";
import vm from "node:vm";

const page = vm.createContext({});
for (const path of [new URL("../../docs/_static/course/course.js", import.meta.url), process.argv[2]])
  vm.runInContext(fs.readFileSync(path, "utf8"), page);
const course = vm.runInContext("course", page);
const { exercise } = course.parts;
const said = fs.readFileSync(0, "utf8");
const verdicts = ({ facts, answers }) =>
  answers.map((answer) => exercise.verdict(exercise.fields ? course.answer(answer) : answer, facts));
console.log(JSON.stringify(said ? verdicts(JSON.parse(said)) : exercise));
