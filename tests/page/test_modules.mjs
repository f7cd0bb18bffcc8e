// What the modules of the page compute, without a browser: `node --test tests/page/`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { isBetween, isUnchanged, isVisible, nameOfNormalizer, temperatureAt, UNCHANGED } from "../../flax_attn/page/controls/settings.mjs";
import { centred } from "../../flax_attn/page/controls/digits.mjs";
import { asNumber, capital, percent, shown } from "../../flax_attn/page/dom.mjs";
import { gridOf, mostInked, patchParts, storedImage } from "../../flax_attn/page/inputs/image.mjs";
import { onChannels, onShapes, signalLook } from "../../flax_attn/page/inputs/signal.mjs";
import { keptText, textOf } from "../../flax_attn/page/inputs/text.mjs";
import { keptPrompt, promptIn, promptOf, textOfTokens, tokenLook } from "../../flax_attn/page/inputs/tokens.mjs";
import { indexOfLargest, meanOf, range } from "../../flax_attn/page/lists.mjs";
import { across, path, roomy, scale, ticks } from "../../flax_attn/page/pictures/axes.mjs";
import { lineOf, linesOf, metricsOf, wantsLog } from "../../flax_attn/page/pictures/curves.mjs";
import { agreement, kendall, mostOf, ON_NUMBERS, points, ranked, strengthColour } from "../../flax_attn/page/pictures/effects.mjs";
import { normalizerIn } from "../../flax_attn/page/pictures/formula.mjs";
import { headName, mostTelling, mostTold, telling } from "../../flax_attn/page/pictures/head_grid.mjs";
import { scoreOf } from "../../flax_attn/page/pictures/path.mjs";
import { headOf, largest, pooled, rgb, rowOf, scoresIn, strength, ticksTo, topOf, weightsIn } from "../../flax_attn/page/pictures/heat.mjs";
import { normalizers } from "../../flax_attn/page/pictures/normalizers.mjs";
import { allHeads, tellingHead, weightsOf } from "../../flax_attn/page/pictures/overview.mjs";
import { sameSignals } from "../../flax_attn/page/pictures/signals.mjs";
import { groupsOf, isError } from "../../flax_attn/page/pictures/table.mjs";
import { cutShort, cutText, inBrackets, sign, verdictOf, withoutBrackets } from "../../flax_attn/page/pictures/words.mjs";
import { areOnChannels, channelParts, channelsOf, storedChannels } from "../../flax_attn/page/shapes/channels.mjs";
import { verdict } from "../../flax_attn/page/shapes/levels.mjs";
import { drawn, groupOf, heightIn, isIn, rightHeights, rowShare, shapeParts, shareOn, unusual } from "../../flax_attn/page/shapes/numbers.mjs";
import { drawnToken, numbersFrom } from "../../flax_attn/page/targets/next.mjs";
import { nearestPoint } from "../../flax_attn/page/targets/number.mjs";
import { joined, keptOutput, verdictOn } from "../../flax_attn/page/targets/text.mjs";
import { keptReply } from "../../flax_attn/page/views.mjs";
import "../../flax_attn/page/targets/classes.mjs";
import "../../flax_attn/page/targets/signal.mjs";

const matrix = (rows) => ({ rows: rows.length, columns: rows[0].length, at: (q, k) => rows[q][k] });
const array = (heads) => ({
  shape: [heads.length, heads[0].length, heads[0][0].length],
  data: new Float32Array(heads.flat(2)),
});
const plain = (value) =>
  JSON.parse(JSON.stringify(value ?? null).replaceAll("\u00a0", " "), (_, own) => own);

/** Checks `[value, expected]` of each row, as JSON. */
function check(name, rows) {
  test(name, () => rows.forEach(([value, expected], i) =>
    assert.deepEqual(plain(value), plain(expected), `row ${i}`)));
}

check("numbers as they are read", [
  [[null, "NaN", NaN].map(shown), ["–", "NaN", "NaN"]],
  [[12, 1234, 1234.5, -2345.6].map(shown), ["12", "1,234", "1,235", "-2,346"]],
  [[0.123456, 56.78, 0.0001, 0.00005].map(shown), ["0.123", "56.8", "0.0001", "5.00e-5"]],
  [[0.0994, 0.0996, 0.0005, 0.0004].map(percent), ["9.9 %", "10 %", "0.1 %", "0 %"]],
  [[0, 0.256, 1, NaN].map(percent), ["0 %", "26 %", "100 %", "not a number"]],
  [[null, undefined, "0.5"].map((own) => String(asNumber(own))), ["NaN", "NaN", "0.5"]],
  [capital("a text"), "A text"],
  [[indexOfLargest([NaN, 0.2, 0.1]), meanOf([1, 2, 6])], [1, 3]],
]);

check("axes", [
  [[scale(0, 10, 0, 100).place(5), scale(0, 10, 0, 100).value(50)], [50, 5]],
  [[scale(1, 100, 0, 10, true).place(10), scale(1, 100, 0, 10, true).value(5)], [5, 10]],
  [[ticks(0, 10), ticks(0, 1)], [[0, 2, 4, 6, 8, 10], [0, 0.2, 0.4, 0.6, 0.8, 1]]],
  [scale(1, 100, 0, 1, true).ticks, [1, 2, 5, 10, 20, 50, 100]],
  [[across(100, 658).place(0), across(100, 658).place(99)], [44, 644]],
  [[640, 60].map((right) => roomy(scale(0, 5000, 58, right), right).map((own) => own.text)),
    [["0", "1,000", "2,000", "3,000", "4,000", "5,000"], ["0"]]],
  [path([0, 1, 2, 3], [0, NaN, 2, 3], scale(0, 4, 0, 4), scale(0, 4, 0, 4)).replace(/[^ML]/g, ""),
    "MML"], // a gap where a value is not a number
]);

const ROWS = matrix([[1, 0], [0.5, 0.5]]);
const TWO = { own: array([[[1]], [[2]]]) };
check("weights and colours", [
  [[rowOf(ROWS, null), rowOf(ROWS, 1)], [[0.75, 0.25], [0.5, 0.5]]],
  [[largest(matrix([[0.4, 0.4, 0.2]]), 0), largest(matrix([[NaN, 0.2]]), 0)], [0, 1]],
  [ticksTo(0.94).map(([, tick]) => tick), [0, 0.05, 0.1, 0.25, 0.5, 0.94]],
  [((own) => [own.rows, own.at(0, 0), own.at(1, 1)])(
    pooled(matrix(range(4).map((q) => range(4).map((k) => (4 * q + k) / 16))), 2)),
    [2, 5 / 16, 15 / 16]],
  [["own", "other"].map((name) => weightsIn({ attention: TWO }, name, 7)?.at(0, 0) ?? null),
    [2, null]],
  [scoresIn({ scores: TWO }, "own", 1).at(0, 0), 2],
  [[rgb(NaN), rgb(0)], [[213, 94, 0], [255, 255, 255]]],
  [[0.25, 0.5, 1].map((weight) => strength(weight, 4)), [0, 0.5, 1]],
  [[topOf(matrix([[0.1, 0.9]])), topOf(matrix([Array(40).fill(1 / 40)]))], [1, 0.2]],
  [headOf(TWO.own, 1).at(0, 0), 2],
]);

const HEADS = { attention: [{ name: "a", heads: 2, of: "head" }, { name: "b", heads: 1, of: "hop" }] };
const LOOKS = array([[[0.1, 0.9], [0.2, 0.8]], [[0.6, 0.4], [0.5, 0.5]]]);
check("heads", [
  [[0, 1].map((q) => mostTold(matrix([[0.7, 0.3], [0.1, 0.9]]), q, (_, k) => k === 0)), [0.7, 0.1]],
  [mostTelling([matrix([[1, 0], [0, 1]]), matrix([[0, 1], [0, 1]])], (q, k) => k !== q), 1],
  [telling([matrix([[1, 0, 0], [0, 1, 0], [0.9, 0.1, 0]]), matrix([[0, 0, 0], [0, 0, 0.9], [0, 0.4, 0]]),
    matrix([[0, 0, 1], [0, 0, 0], [0, 0, 0]])], ["a", "b", "c"], true), { head: 2, q: 0 }],
  [[null, 0.125, 1, 1 / 12].map((scale) => scoreOf({ scale }, 64).includes("√64")),
    [true, true, false, false]],
  [[headName(HEADS, 0, 1), headName(HEADS, 1, 0)], ["a, head 1", "b"]],
  [allHeads(HEADS).map((own) => own.label), ["a, head 0", "a, head 1", "b"]],
  [weightsOf({ attention: { a: TWO.own } }, { name: "a", head: 1 }).at(0, 0), 2],
  [[null, 1].map((q) => tellingHead({ attention: HEADS.attention.slice(0, 1),
    examples: [{ attention: { a: LOOKS } }] }, q)), [0, 1]],
]);

const visible = (own) => range(6).filter((k) => isVisible(3, k, { ...UNCHANGED, ...own }));
check("settings", [
  [[0, 10, 20, 25, 40].map(temperatureAt), [0.0625, 0.25, 1, 2, 16]],
  [["as trained", "entmax15", "own"].map(nameOfNormalizer), ["as trained", "entmax-1.5", "own"]],
  [[isUnchanged({ ...UNCHANGED }), isUnchanged({ ...UNCHANGED, hidden: [1] })], [true, false]],
  [[[1, 3, 3], [1, 3, 4], [1, 1, 1]].map((shape) =>
    isBetween({ examples: [{ attention: { own: { shape } } }] })), [true, false, false]],
  [[visible({}), visible({ reach: 0 }), visible({ causal: true })],
    [[0, 1, 2, 3, 4, 5], [3], [0, 1, 2, 3]]],
  [visible({ reach: 1, causal: true, hidden: [3] }), [2]],
]);

check("effects", [
  [[0.4, -0.9].map(strengthColour), ["color-mix(in srgb, var(--orange) 56%, transparent)",
    "color-mix(in srgb, var(--blue) 70%, transparent)"]],
  [[0, 3.123e-4, -0.00062, 0.0312, -0.416, 4e-9, 0.09949, 0.09951].map(points),
    ["0", "+0.031", "−0.062", "+3.1", "−42", "<0.0001", "+9.9", "+10"]],
  [/“b”, −50/.test(mostOf(["a", "b"], new Map([[0, 0.02], [1, -0.5]]))), true],
  [new Set([0.7, 0.6, 0, -1].map(agreement)).size, 4],
  [kendall([1, 2, 3, 4], [1, 3, 2, 4]), 2 / 3],
  [kendall([1, 1, 2], [1, 2, 3]), 2 / Math.sqrt(6)], // tau-b: a tie
  [ON_NUMBERS.change({ outputs: { data: [1, 2, 3] } }, { outputs: { data: [1, 4, 2] } }), 1],
  [ON_NUMBERS.least({ outputs: { data: [-0.5, 0.2] } }), 0.0005],
  // an order of fewer than eight, or of effects within noise, is no verdict
  [[[7, 9], [9, 7], [9, 9]].map(([count, counted]) =>
    /tau 1.00/.test(ranked(range(count), range(count), range(count).map((i) => i < counted), "word"))),
    [false, false, true]],
]);

check("words", [
  [["", "a b", "\u00a0d"].map(sign), ["∅", "a␣b", "⍽d"]],
  [[cutText("abcdef", 5), cutText("abcde", 5), cutShort("a bcdef", 4)], ["abcd…", "abcde", "a␣b…"]],
  [[withoutBrackets("(film)"), withoutBrackets("()"), inBrackets("film")], ["film", "()", "(film)"]],
  [[1, 0].map((right) => verdictOf([["a", 0.2], ["b", 0.8]], right)[0]), ["✓", "✗"]],
]);

const runOf = (name, mean, more = {}) => ({
  name, input: "x", data: "x", files: [], measured: "mse", summary: { "test/mse": { mean } }, ...more,
});
const CURVES = [{ name: "one", measured: "mse", curves: {
  "train/mse": { steps: [10, 20], seeds: { 0: [4, 2], 1: [6, 2] } },
  "valid/mse": { steps: [0, 10, 20], seeds: { 0: [9, "NaN", 3], 1: [11, 5, 1] } },
} }];
const LINES = linesOf(CURVES, "mse");
const named = (...names) => Object.fromEntries(names.map((name) => [name, {}]));
check("results and curves", [
  [["test/mse", "valid/loss", "test/accuracy", "ensemble/test/f1"].map(isError),
    [true, true, false, false]],
  [groupsOf([runOf("a", 1), runOf("b", 1, { input: "y" }), runOf("c", 1), runOf("d", 1, { files: ["f"] })])
    .map((group) => group.map((own) => own.name)), [["a", "c"], ["b"], ["d"]]],
  [metricsOf([{ measured: "mae", curves: named("train/loss", "valid/mse", "test/mae") }]),
    ["mae", "loss", "mse"]],
  [metricsOf([named("train/mse", "valid/mse", "valid/loss"), named("valid/mse")]
    .map((curves) => ({ measured: "mse", curves }))), ["valid/mse", "train/mse", "valid/loss"]],
  [LINES.map((line) => [line.label, line.mean]), [["train", [5, 2]], ["valid", [10, 5, 2]]]],
  [[LINES[1].low, LINES[1].high], [[9, 5, 1], [11, 5, 3]]], // of the seeds that have a number
  [[wantsLog(LINES, "mse"), wantsLog(LINES, "accuracy")], [true, false]],
  [lineOf("a", 0, [1], [["NaN"]]).mean, [null]],
]);

const shapesAt = (rows) => rows.map(([kind, center, height]) => ({ kind, center, height, width: 6 }));
const FOUR = shapesAt([["triangle", 10, 2], ["triangle", 60, 4], ["box", 20, 8], ["box", 80, 16]]);
const ON_ITSELF = (count) => ({ rows: count, columns: count, at: (q, k) => Number(q === k) });
check("signals of shapes", [
  [heightIn([1, 5, 2, 0], { kind: "triangle", center: 1.4, width: 3 }), 5],
  [heightIn([9, 2, 4, 9, 9], { kind: "box", center: 1.5, width: 2 }), 3],
  [drawn([{ kind: "triangle", center: 10, width: 8, height: 4 }]).slice(5, 12),
    [0, 0.5, 1.5, 2.5, 3.5, 4, 3.5]],
  [["by_shape", "by_location"].map((task) => rightHeights(FOUR, task)),
    [[3, 3, 12, 12], [5, 10, 5, 10]]],
  [["by_shape", "by_location"].map((task) => groupOf(FOUR, 0, task)), [[0, 1], [0, 2]]],
  [[7, 8, 12, 13].map((t) => isIn({ center: 10, width: 4 }, t)), [false, true, true, false]],
  [[["box", 30, 5], ["triangle", 97, 5], ["triangle", 50, 26], ["triangle", 34, 5]].map((own) =>
    Boolean(unusual(shapesAt([["box", 30, 5], own].slice(own[1] === 30 ? 1 : 0))))),
    [false, true, true, true]],
  [verdict([0, 1], [3.04, 0, 0, 5], shapesAt([["triangle", 0], ["triangle", 3]]), [4, 4]), "✓ off by 1.0"],
  [verdict([0], [5.2], shapesAt([["triangle", 0]]), [4]), "✗ off by 1.2"],
  [[25, 50, 100].map((count) => shareOn(ON_ITSELF(count), [{ center: 50, width: 4 }],
    [{ center: 50, width: 4 }])), [1, 1, 1]],
  [rowShare(matrix([Array(100).fill(0), range(100)]), 1, { center: 10, width: 4 }), 50],
  [shapeParts(FOUR, { rows: 100, columns: 100, at: (q, k) => Number(k === 20) }).weights, [0, 0, 1, 0]],
]);

const SIGNAL = {
  inputs: [[0, 5, 0, 0, 7, 7, 0, 0]], targets: [[0, 6, 0, 0, 6, 6, 0, 0]],
  predictions: [[0, 5.52, 0, 1, 6.1, 6, 0, 0]],
  marks: [
    { kind: "triangle", center: 1, first: 0, last: 2, height: 5 },
    { kind: "box", center: 4.4, first: 4, last: 5, height: 7 },
  ],
};
const OF_BOX = [0, 0.1, 0, 0, 0.5, 0.25, 0.15, 0];
const ATTENDED = matrix(range(8).map((q) => (q === 4 || q === 5 ? OF_BOX : [1, 0, 0, 0, 0, 0, 0, 0])));
const SERIES = { inputs: [[0, 1, 2], [5, 3, 4]], targets: [[1, 2, 3]], predictions: [[1.5, 2, 2]] };
const STEPS = matrix([[0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]);
const contains = (text, ...parts) => parts.every((part) => plain(text).includes(part));
check("signals", [
  [contains(onShapes(SIGNAL), "5.5 (target: 6.0)"), true],
  [[onShapes({ ...SIGNAL, marks: [] }), onShapes({ ...SIGNAL, targets: undefined })],
    [null, null]],
  [contains(signalLook(SIGNAL, ATTENDED, 4, null), "in a box", "50 % on position 4", "75 % on boxes"),
    true],
  [contains(signalLook(SIGNAL, null, 1, null), "input 5, target 6, prediction 5.52"), true],
  [contains(signalLook({ inputs: SIGNAL.inputs, predictions: [0.1, 0.9], target: 1 }, ATTENDED, 4, 2),
    "Position 4: input 7", "0 % on position 2"), true], // a class has no values at a position
  [contains(signalLook(SERIES, STEPS, 1, null), "target 2, prediction 2", "60 % on series 0"), true],
  [contains(onChannels(STEPS, 0), "Series 1", "63 %", "series 0"), true],
  [[areOnChannels(SERIES, STEPS), areOnChannels(SIGNAL, ATTENDED), areOnChannels(SERIES, null)],
    [true, false, false]],
  [storedChannels(SERIES.inputs), { shape: [3, 2], data: [0, 5, 1, 3, 2, 4] }],
  [channelsOf({ shape: [3, 2], data: [0, 5, 1, 3, 2, 4] }), SERIES.inputs],
  [channelParts(true, STEPS).weights.map((own) => own.toFixed(2)), ["0.37", "0.63"]],
  [((own) => [own.names.at(-1), own.keys[1]])(channelParts(false, matrix([Array(25).fill(0.04)]))),
    ["positions 23 to 24", [3, 4]]],
  [sameSignals([[1], [2], [1]].map((inputs, i) => ({ input: "signal", target: "signal", i,
    examples: [{ inputs: [inputs] }] }))).map((group) => group.map(({ i }) => i)), [[0, 2]]],
]);

const IMAGE = { shape: [4, 8], data: range(32).map((i) => Number(i === 21)) };
const box = (wide) => Float32Array.from({ length: 1600 }, (_, i) =>
  Number(i % 40 >= 5 && i % 40 < 15 && (wide || i / 40 >= 20)));
check("images", [
  [[[[4, 8], 8], [[28, 28], 10], [[28, 14], 8]].map(([shape, count]) => gridOf({ shape }, count)),
    [{ size: 2, columns: 4, rows: 2 }, null, { size: 7, columns: 2, rows: 4 }]],
  [mostInked(IMAGE, gridOf(IMAGE, 8)), 6],
  [patchParts(IMAGE, matrix([[0, 0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0, 0]])).weights,
    [0.5, 0, 0, 0, 0, 0, 0, 0.5]],
  // MNIST has white digits on black, files the reverse
  [["mnist", "files"].map((data) => storedImage({ data }, { image: { shape: [1, 2], data: [0.25, 1] } })
    .inputs.data), [[0.25, 1], [0.75, 0]]],
  [centred(new Float32Array(100), 10), null],
  [((ink) => [ink.length, Math.round(ink.reduce((a, b) => a + b)), ink[14 * 28 + 14] > 0.9,
    ink[14 * 28 + 3]])(centred(box(false), 40)), [784, 200, true, 0]],
  [((ink) => range(28).filter((x) => ink[14 * 28 + x] > 0.5))(centred(box(true), 40)), [12, 13, 14, 15, 16]],
]);

const PASSAGE = {
  tokens: ["\\n", "a", "␣", "b", "c", "\\n", "d"],
  attention: { own: array([1, 2].map((head) => range(7).map((q) => range(7).map((k) =>
    (k === q ? head : 0))))) },
};
const KNOWN = { tokens: ["<S>", "a", "(film)", "(x)", "</S>"], known: [true, true, false, true, true] };
check("texts and tokens", [
  [textOf(KNOWN), "a film (x)"],
  [[["ein", "(xx)", "mann"], ["ein", "␣m", "ann"]].map((source) => textOf({ source })),
    ["ein xx mann", "ein mann"]],
  [textOf({ source: ["(a)"], known: [true] }), "(a)"],
  [keptText({}, KNOWN).tokens, ["<S>", "a", "film", "(x)", "</S>"]],
  [keptText({}, { source: ["ein", "(mann)"] }), { tokens: ["ein", "mann"], known: [true, false] }],
  [[joined(["a", "b"]), joined(["ab", "c"])], ["ab", "ab c"]],
  [[[["a", "b"], "ab"], [[], "ab"], [["ab", "c"], "ab d"]].map((own) => verdictOn(...own)[0]),
    ["✓", "✗", "✗"]],
  [keptOutput({}, { tokens: ["a", "men"], reference: "a men", attention: {} }).text, "a men"],
  [contains(tokenLook("a", " ", 0.25, 3), "“a”", "25 %", "“␣”", "3 back"), true],
  [[promptIn(PASSAGE), promptIn({ tokens: [..."abcdefghijklmnop"] })], [[1, 3], [0, 12]]],
  [promptOf(PASSAGE), "a "],
  [((own) => [own.tokens, own.attention.own.shape, own.attention.own.data])(keptPrompt({}, PASSAGE)),
    [["\\n", "a", " "], [2, 1, 3], [0, 0, 1, 0, 0, 2]]],
  [[false, true].map((always) => textOfTokens(["↵", "a", "→"], { always })), ["\na\t", "a\t"]],
  [[0, 0.24, 0.26, 0.99].map((number) => drawnToken({ classes: [["a", 0.2], ["<UNK>", 0.2],
    ["b", 0.6]], writes: [[1], null, [2]] }, number)), [[1], [1], [2], [2]]],
  [drawnToken({ classes: [["<UNK>", 1]], writes: [null] }, 0.5), null],
  [((next) => [next(), next()].map((own) => Math.round(own * 2147483647)))(numbersFrom(1)),
    [48271, 182605794]],
]);

const task = (input, target) => ({ input, target, classes: ["a", "b"] });
const CLASSES = { predictions: [0.2, 0.8], attention: {} };
check("what a run has kept, as a reply", [
  [keptReply(task("image", "classes"), CLASSES).classes, [["b", 0.8], ["a", 0.2]]],
  [keptReply(task("signal", "number"), { prediction: 3, attention: {} }).outputs, { shape: [1], data: [3] }],
  [keptReply(task("signal", "signal"), { predictions: [[1, 2]], attention: {} }).outputs,
    { shape: [2, 1], data: [1, 2] }],
  [keptReply(task("text", "classes"), { ...KNOWN, ...CLASSES }).tokens.length, 5],
  [[[1, 1], [9, 9], [200, 200], [6, 6]].map((at) => nearestPoint([[0, 0], [10, 10]], at, 1)),
    [0, 1, null, 0]],
]);

test("the one normaliser that makes the weights is named", () => {
  const reply = (name, scores, moved = 0) => ({
    attention: { own: array([[normalizers[name].weights(scores)]]) },
    scores: { own: array([[scores.map((own, i) => own + moved * i)]]) },
  });
  const spread = [2, 1.5, 1, 0.5];
  const replies = [reply("softmax", spread), reply("sparsemax", spread),
    reply("softmax", [9, -900, -900, -900]), reply("softmax", spread, 1)];
  assert.deepEqual(replies.map((own) => normalizerIn([own])), ["softmax", "sparsemax", null, null]);
});
