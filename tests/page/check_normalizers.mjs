// What pictures/normalizers.mjs makes of scores, for tests/explore/test_normalizers_page.py.
// node check_normalizers.mjs IN OUT, both JSON; IN has scores, and the scores along each curve.
import fs from "node:fs";

const page = new URL("../../flax_attn/page/", import.meta.url);
const { normalizers } = await import(new URL("pictures/normalizers.mjs", page));
const { scores, steps } = JSON.parse(fs.readFileSync(process.argv[2]));
const made = Object.entries(normalizers).map(([name, own]) => {
  const weights = scores.map((row) => own.weights(row));
  const curves = scores.map((row, i) => own.curve(steps[i], row));
  return [name, { weights, curves }];
});
fs.writeFileSync(process.argv[3], JSON.stringify(Object.fromEntries(made)));
