// What the script of a lesson's page does, for tests/site/test_course.py.
// node check_course.mjs SCRIPT writes the form of its exercise. With JSON on its standard input it
// writes the verdicts on `answers`, of which those in fields are lists of texts, or what a
// function makes of `arguments`.
import fs from "node:fs";
import vm from "node:vm";

const page = vm.createContext({});
const common = new URL("../../docs/_static/course/course.js", import.meta.url);
for (const path of [common, process.argv[2]]) vm.runInContext(fs.readFileSync(path, "utf8"), page);
const course = vm.runInContext("course", page);
const { exercise } = course.parts;
const asked = JSON.parse(fs.readFileSync(0, "utf8") || "{}");
const verdict = (answer) => course.verdict(exercise, answer, asked.facts);
const result = asked.answers?.map(verdict) ??
  (asked.function ? course[asked.function](...asked.arguments) : exercise);
console.log(JSON.stringify(result));
