"""What the modules of the page compute, say and draw, by their own functions in Chromium.

The modules are joined as in a page, into a script whose names a test can use.
"""

import json

import numpy as np
import pytest

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def matrix(rows):
    return f"matrixOf({json.dumps(np.asarray(rows).tolist())})"


VALUES = [  # an expression, and its value
    # numbers as people write them
    ("[null, 'NaN', NaN].map(shown)", [DASH, "NaN", "NaN"]),
    ("[12, 1234, 1234.5, -2345.6].map(shown)", ["12", "1,234", "1,235", "-2,346"]),
    ("[0.123456, 56.78, 0.0001, 0.00005].map(shown)", ["0.123", "56.8", "0.0001", "5.00e-5"]),
    ("[0.0994, 0.0996, 0.0005, 0.0004].map(percent)", ["9.9 %", "10 %", "0.1 %", "0 %"]),
    ("[0, 0.256, 1, NaN].map(percent)", ["0 %", "26 %", "100 %", "not a number"]),
    ("[null, undefined, '0.5', 'Infinity'].map((own) => String(asNumber(own)))",
     ["NaN", "NaN", "0.5", "Infinity"]),
    # axes
    ("(({ place, value }) => [place(5), value(50)])(scale(0, 10, 0, 100))", [50, 5]),
    ("(({ place, value }) => [place(10), value(5)])(scale(1, 100, 0, 10, true))", [5, 10]),
    ("scale(2, 2, 0, 100).place(2)", 0),
    ("[ticks(0, 10), ticks(0, 1), ticks(3, 47)]",
     [[0, 2, 4, 6, 8, 10], [0, 0.2, 0.4, 0.6, 0.8, 1], [10, 20, 30, 40]]),
    ("scale(1, 100, 0, 1, true).ticks", [1, 2, 5, 10, 20, 50, 100]),
    ("scale(0.03, 20000, 0, 1, true).ticks", [0.1, 1, 10, 100, 1000, 10000]),
    ("[across(100, 658).place(0), across(100, 658).place(99)]", [44, 644]),
    (
        """(() => {
          const chart = document.createElement("div");
          let at = 0;
          pointAlong(chart, 10, () => 100, () => at, (position) => { at = position; });
          return ["ArrowLeft", "End", "ArrowRight", "Home"].map((key) => {
            chart.dispatchEvent(new KeyboardEvent("keydown", { key }));
            return at;
          });
        })()""",
        [0, 9, 9, 0],
    ),
    # what is read aloud, at most once a second
    (
        """(() => {
          const { node, say } = sentence("first");
          const spoken = () => node.querySelector("[aria-live]").textContent;
          return ["second", "third"].map((words) => { say(words); return spoken(); });
        })()""",
        ["second", "second"],
    ),
    # weights
    (f"rowOf({matrix([[1, 0], [0.5, 0.5]])}, null)", [0.75, 0.25]),
    (f"rowOf({matrix([[1, 0], [0.5, 0.5]])}, 1)", [0.5, 0.5]),
    (f"[0, 1].map((q) => largest({matrix([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])}, q))", [1, 0]),
    ("largest(matrixOf([[NaN, 0.2, 0.1]]), 0)", 1),
    ("ticksTo(1).map(([, tick]) => tick)", [0, 0.05, 0.1, 0.25, 0.5, 0.75, 1]),
    ("ticksTo(0.94).map(([, tick]) => tick)", [0, 0.05, 0.1, 0.25, 0.5, 0.94]),
    ("ticksTo(0.2).map(([place, tick]) => [Number(place.toFixed(4)), tick])",
     [[0, 0], [0.2236, 0.01], [0.5, 0.05], [0.7071, 0.1], [1, 0.2]]),
    (f"(({{ rows, columns, at }}) => [rows, columns, at(0, 0), at(1, 1)])"
     f"(pooled({matrix(np.arange(16).reshape(4, 4) / 16)}, 2))", [2, 2, 5 / 16, 15 / 16]),
    ("['own', 'other'].map((name) => weightsIn({ attention: { own: arrayOf([[[1]], [[2]]]) } },"
     " name, 7)?.at(0, 0) ?? null)", [2, None]),
    ("scoresIn({ scores: { own: arrayOf([[[1]], [[2]]]) } }, 'own', 1).at(0, 0)", 2),
    ("strengthLegend(8).querySelector('.what').textContent",
     "weight: no colour up to 1/8 = 0.13, the uniform weight of 8 words"),
    ("textsIn(strengthLegend(8), '.ticks span')", ["0.13", "0.25", "0.5", "1"]),
    ("textsIn(legend(0.2, true), '.what')",
     ["attention weight, square-root scale", "hatched: masked"]),
    ("rgb(NaN)", [213, 94, 0]),
    # heads
    (f"[0, 1].map((q) => mostTold({matrix([[0.7, 0.3], [0.1, 0.9]])}, q, (_, k) => k === 0))",
     [0.7, 0.1]),
    (f"mostTelling([{matrix(np.eye(3))}, {matrix(np.eye(3, k=1) + 0.0)}], (q, k) => k !== q)", 1),
    ("[[0, 1], [1, 0]].map((own) => headName({ attention: [{ name: 'block1', heads: 2 },"
     " { name: 'pool', heads: 1 }] }, ...own))", ["block1, head 1", "pool"]),
    ("headName({ attention: [{ name: '', heads: 1 }] }, 0, 0)", "head 0"),
    ("allHeads({ attention: [{ name: 'a', heads: 2, of: 'head' }, { name: 'hops', heads: 1,"
     " of: 'hop' }] }).map((own) => [own.name, own.head, own.label])",
     [["a", 0, "a, head 0"], ["a", 1, "a, head 1"], ["hops", 0, "hops"]]),
    ("allHeads({ attention: [{ name: 'hops', heads: 2, of: 'hop' }] }).map((own) => own.label)",
     ["hop 0", "hop 1"]),
    ("weightsOf({ attention: { a: arrayOf([[[1]], [[2]]]) } }, { name: 'a', head: 1 }).at(0,"
     " 0)", 2),
    ("weightsOf({ attention: { a: arrayOf([[[1]]]) } }, { name: 'a', head: 1 })", None),
    ("[null, 1].map((q) => tellingHead({ attention: [{ name: 'a', heads: 2, of: 'head' }],"
     " examples:"
     " [{ attention: { a: arrayOf([[[0.1, 0.9], [0.2, 0.8]], [[0.6, 0.4], [0.5, 0.5]]]) } }] },"
     " q))",
     [0, 1]),
    # settings
    ("[0, 10, 20, 25, 40].map(temperatureAt)", [0.0625, 0.25, 1, 2, 16]),
    ("['as trained', 'entmax15', 'own'].map(nameOfNormalizer)", ["as trained", "entmax-1.5",
     "own"]),
    ("[isUnchanged({ ...UNCHANGED }), isUnchanged({ ...UNCHANGED, hidden: [1] })]", [True, False]),
    ("[[1, 3, 3], [1, 3, 4], [1, 1, 1]].map((shape) => isBetween({ examples: [{ attention: { own:"
     " { shape } } }] }))", [True, False, False]),
    # changes of an answer
    ("[0.4, -0.4, 0.9].map(strengthColour)",
     ["color-mix(in srgb, var(--orange) 56%, transparent)",
      "color-mix(in srgb, var(--blue) 56%, transparent)",
      "color-mix(in srgb, var(--orange) 70%, transparent)"]),
    ("mostOf(['a', 'b'], new Map([[0, 0.02], [1, -0.5]]))", f"Most changes without “b”:"
     f" {MINUS}50."),
    ("mostOf(['a'], new Map([[0, 0.0005]]))", "None of them alone changes more than 0.1."),
    ("mostOf(['a'], new Map([[0, 0.005]]))", "Most changes without “a”: +0.5."),
    ("[NaN, 0.7, 0.6, 0.3, 0, -0.3, -1].map(agreement)",
     ["cannot be compared", "agree well", "agree in part", "hardly agree", "hardly agree",
      "contradict each other", "contradict each other"]),
    ("OF_NUMBERS.change({ outputs: { data: [1, 2, 3] } }, { outputs: { data: [1, 4, 2] } })", 1),
    ("[1e-4, 1].map((own) => OF_NUMBERS.isNothing(own, { outputs: { data: [-0.5, 0.2] } }))",
     [True, False]),
    # words
    ("['', 'a b', 'c', '\\u00a0d'].map(sign)", ["∅", "a␣b", "c", "⍽d"]),
    ("[cutText('abcdef', 5), cutText('abcde', 5), cutShort('a bcdef', 4)]",
     ["abcd…", "abcde", "a␣b…"]),
    ("[withoutBrackets('(film)'), withoutBrackets('()'), inBrackets('film'), inBrackets('(film)')]",
     ["film", "()", "(film)", "(film)"]),
    ("verdictOf([['a', 0.2], ['b', 0.8]], 1)", "✓ The model says b (80 %), which is right."),
    ("verdictOf([['a', 0.2], ['b', 0.8]], 0)", "✗ The model says b (80 %); right is a."),
    # results
    ("['test/mse', 'valid/loss', 'test/accuracy', 'test/mae', 'ensemble/test/f1'].map(isError)",
     [True, True, False, True, False]),
    ("[fourDigits(0.123456), fourDigits(NaN)]", ["0.1235", "NaN"]),
    ("[NaN, 3, 1, 2].sort(compareCells).map(String)", ["1", "2", "3", "NaN"]),
    ("['b', 'a'].sort(compareCells)", ["a", "b"]),
    # signals of shapes
    ("heightIn([1, 5, 2, 0], { kind: 'triangle', center: 1.4, width: 3 })", 5),
    ("heightIn([9, 2, 4, 9, 9], { kind: 'box', center: 1.5, width: 2 })", 3),
    ("drawn([{ kind: 'box', center: 10, width: 4, height: 3 }]).slice(7, 14)",
     [0, 0, 3, 3, 3, 0, 0]),
    ("drawn([{ kind: 'triangle', center: 10, width: 8, height: 4 }]).slice(5, 12)",
     [0, 0.5, 1.5, 2.5, 3.5, 4, 3.5]),
    ("['by_shape', 'by_location'].map((task) => rightHeights([['triangle', 10, 2], ['triangle', 60,"
     " 4], ['box', 20, 8], ['box', 80, 16]].map(([kind, center, height]) => ({ kind, center, height"
     " })), task))", [[3, 3, 12, 12], [5, 10, 5, 10]]),
    ("['by_shape', 'by_location'].map((task) => groupOf([['triangle', 10], ['triangle', 60],"
     " ['box', 20], ['box', 80]].map(([kind, center]) => ({ kind, center })), 0, task))",
     [[0, 1], [0, 2]]),
    ("[7, 8, 12, 13].map((t) => isIn({ center: 10, width: 4 }, t))", [False, True, True, False]),
    ("[[10, 5], [90, 5], [97, 5], [50, 26]].map(([center, height]) => unusual([{ kind: 'box',"
     " center: 30, width: 6, height: 5 }, { kind: 'triangle', center, width: 6, height }]))",
     ["", "", *["A triangle is outside of the range of training."] * 2]),
    ("unusual([{ kind: 'box', center: 30, width: 6, height: 5 }, { kind: 'triangle', center: 35,"
     " width: 6, height: 5 }])", "A box and a triangle overlap. In training no shapes did."),
    ("[[3.04, 5], [4, 5.2]].map((own) => verdict([0, 1], [own[0], 0, 0, own[1]], [0,"
     " 3].map((center)"
     " => ({ kind: 'triangle', center })), [4, 4]))", ["✓ off by 1.0", "✓ off by 0.6"]),
    ("verdict([0], [5.2], [{ kind: 'triangle', center: 0 }], [4])", "✗ off by 1.2"),
    (f"keysOf({matrix([[0.99, 0.01, 0.0], [0.5, 0.495, 0.005]])})", "2.0"),
    ("(({ names, weights, keys }) => [names, weights, keys[2]])(shapeParts([10, 30, 50, 70].map("
     "(center, i) => ({ kind: i < 2 ? 'triangle' : 'box', center, width: 4 })), { rows: 100,"
     " columns: 100, at: (q, k) => Number(k === 50) }))",
     [["triangle 1", "triangle 2", "box 1", "box 2"], [0, 0, 1, 0], [48, 49, 50, 51, 52]]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), VALUES, ids=range(len(VALUES)))
def test_a_function_of_the_page_has_its_value(expression, expected, js):
    assert js(expression) == expected


EXAMPLES = """
const SIGNAL = {
  inputs: [[0, 5, 0, 0, 7, 7, 0, 0]], targets: [[0, 6, 0, 0, 6, 6, 0, 0]],
  predictions: [[0, 5.52, 0, 1, 6.1, 6, 0, 0]],
  marks: [
    { kind: "triangle", center: 1, first: 0, last: 2, height: 5 },
    { kind: "box", center: 4.4, first: 4, last: 5, height: 7 },
  ],
};
const LOOKS = matrixOf([...Array(8).keys()].map((q) => [...Array(8).keys()].map((k) =>
  q === 4 || q === 5 ? [0, 0.1, 0, 0, 0.5, 0.25, 0.15, 0][k] : Number(k === 0))));
const SERIES = { inputs: [[0, 1, 2], [5, 3, 4]], targets: [[1, 2, 3]], predictions: [[1.5, 2, 2]] };
const STEPS = matrixOf([[0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]);
const PASSAGE = {
  tokens: ["\\\\n", "a", "␣", "b", "c", "\\\\n", "d"],
  attention: { own: arrayOf([1, 2].map((head) => [...Array(7).keys()].map((q) =>
    [...Array(7).keys()].map((k) => (k === q ? head : 0))))) },
};
"""
SAID = [  # what the views say of an example
    ("setTo(SIGNAL, LOOKS)",
     "Triangles set to 5.5 (right: 6.0), on average 100 % of their attention on triangles; boxes "
     "set to 6.1 (right: 6.0), on average 75 % of their attention on boxes."),
    ("setTo(SIGNAL, null)",
     "Triangles set to 5.5 (right: 6.0); boxes set to 6.1 (right: 6.0)."),
    ("setTo({ ...SIGNAL, marks: [] }, LOOKS)", None),
    ("signalLook(SIGNAL, LOOKS, 4, null)",
     "Position 4, in a box, puts 50 % of its weight on position 4, the most of all, and 75 % on "
     "boxes."),
    ("signalLook(SIGNAL, LOOKS, 3, 0)", "Position 3 puts 100 % of its weight on position 0."),
    ("valuesAt(SIGNAL, 1)", "Position 1: input 5, right 6, the model says 5.52."),
    ("[0, 2, 3, 4, 6].map((t) => kindAt(SIGNAL, t))", ["triangle", "triangle", None, "box", None]),
    ("looksAt([{ name: 'run', weights: LOOKS }], 5)",
     " run looks most at position 4, with 50 %."),
    ("sameSignals([[1], [2], [1]].map((inputs, i) => ({ kind: i < 3 ? 'signals' : 'series', i,"
     " examples: [{ inputs }] }))).map((group) => group.map(({ i }) => i))", [[0, 2]]),
    ("seriesShare(STEPS, 0)",
     "Series 1 has the most weight, 63 % on average, and series 0 decides the output."),
    ("seriesShare(STEPS, null)", "Series 1 has the most weight, 63 % on average."),
    ("seriesLook(SERIES, STEPS, 1, null)",
     "Step 1: 60 % of the weight on series 0; the model says 2, right is 2."),
    ("seriesLook(SERIES, STEPS, 0, 0)",
     "Step 0: 20 % of the weight on series 0; the model says 1.5, right is 1."),
    ("seriesLook(SERIES, null, 0, null)", "Step 0: the model says 1.5, right is 1."),
    ("storedChannels(SERIES).inputs", {"shape": [3, 2], "data": [0, 5, 1, 3, 2, 4]}),
    ("channelsOf({ shape: [3, 2], data: [0, 5, 1, 3, 2, 4] })", [[0, 1, 2], [5, 3, 4]]),
    ("keptChannels({ predictions: [[1, 2]], attention: 3 })",
     {"outputs": {"shape": [2, 1], "data": [1, 2]}, "attention": 3, "scores": None}),
    ("(({ names, weights, what }) => [names, weights.map((own) => own.toFixed(2)), what])"
     "(seriesParts(true, STEPS))", [["series 0", "series 1"], ["0.37", "0.63"], "series"]),
    ("(({ names, labels, keys, weights, what }) => [names.at(-1), labels[0], keys[1], weights.map("
     "(own) => own.toFixed(2)), what])(seriesParts(false, matrixOf([Array(25).fill(0.04)])))",
     ["positions 23 to 24", f"0{DASH}2", [3, 4], ["0.12", "0.08"] * 5, "stretch"]),
    # numbers
    ("[[1, 1], [9, 9], [200, 200], [6, 6]].map((at) => nearestPoint([[0, 0], [10, 10]], at, 1))",
     [0, 1, None, 0]),
    ("numberedLook(SIGNAL, LOOKS, 4, null)",
     "Position 4, where the signal is 7, puts 50 % of its weight on position 4, the most of all."),
    ("numberedLook(SIGNAL, matrixOf([[0, 0.5, 0.5, 0, 0, 0, 0, 0]]), 4, 2)",
     "The model puts 50 % of its weight on position 2."),
    ("numberedLook(SIGNAL, null, 4, null)", "Position 4: the signal is 7."),
    ("AS_NUMBER.verdict({}, { target: 2, prediction: 2.5 })",
     "The model says 2.5; right is 2."),
    ("(({ textContent, outerHTML }) => [/width: (\\d+)%/.exec(outerHTML)[1],"
     " textContent])(numberBar("
     "{ beside: { targets: [2, 4, 12] } }, 7))",
     ["50", "the number7The bar goes from 2 to 12, the numbers of the test."]),
    # texts and translations
    ("textOf({ tokens: ['<S>', 'a', '(film)', '(x)', '</S>'], known: [true, true, false, true,"
     " true]"
     " })", "a film (x)"),
    ("keptText({ tokens: ['(a)', '(b)'], known: [true, false], attention: 1 }).tokens",
     ["(a)", "b"]),
    ("[['ab', ['a', 'b']], ['a b', ['a', 'b']], ['a c', ['a', 'b']]].map(([text, own]) =>"
     " areText(own, text))", [True, True, False]),
    ("[joined(['a', 'b']), joined(['ab', 'c'])]", ["ab", "ab c"]),
    ("[translated(['a', 'b'], 'ab'), translated([], 'ab'), translated(['ab', 'c'], 'ab d')]",
     ["✓ The model wrote “ab”, which is right.", "✗ The model wrote nothing; right is “ab”.",
      "The model wrote “ab c”; the reference is “ab d”."]),
    ("[{ source: ['ein', '(xx)', 'mann'] }, { source: ['ein', '␣m', 'ann'] }, { source: ['(a)'],"
     " known: [true] }].map(sourceOf)", ["ein xx mann", "ein mann", "(a)"]),
    ("(({ text, tokens, known, best }) => [text, tokens, known, best[0].tokens])(keptTranslation({"
     " source: ['ein', '(mann)'], tokens: ['a', 'man'], reference: 'a men', attention: {} }))",
     ["a man", ["ein", "mann"], [True, False], ["a", "man"]]),
    # language
    ("[tokenLook('a', ' ', 0.25, 3), tokenLook('a', 'a', 1, 0)]",
     ["To say what follows “a”, the head puts 25 % of its weight on “␣”, 3 back.",
      "To say what follows “a”, the head puts 100 % of its weight on “a”, itself."]),
    ("[promptIn(PASSAGE), promptIn({ tokens: [...'abcdefghijklmnop'] })]", [[1, 3], [0, 12]]),
    ("promptOf(PASSAGE)", "a "),
    ("(({ tokens, attention: { own } }) => [tokens, own.shape, own.data])(keptPrompt(PASSAGE, 3))",
     [["\\n", "a", " "], [2, 1, 3], [0, 0, 1, 0, 0, 2]]),
    ("[0, 0.24, 0.26, 0.99].map((number) => drawnToken({ classes: [['a', 0.2], ['<UNK>', 0.2],"
     " ['b', 0.6]], writes: [[1], null, [2]] }, number))", [[1], [1], [2], [2]]),
    ("drawnToken({ classes: [['<UNK>', 1]], writes: [null] }, 0.5)", None),
    ("((next) => [next(), next()].map((own) => Math.round(own * 2147483647)))(numbersFrom(1))",
     [48271, 182605794]),
    ("[false, true].map((always) => textOfTokens(['↵', 'a', '→'], { always }))",
     ["\na\t", "a\t"]),
    ("(({ names, weights }) => [names, weights])(tokenParts({ tokens: ['a', 'b', 'c'] },"
     " matrixOf([[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])))",
     [["a", "b", "c"], [0.25, 0.25, 0.5]]),
    # images
    ("[[[4, 8], 8], [[28, 28], 16], [[28, 28], 10], [[28, 14], 8]].map(([shape, count]) =>"
     " gridOf({ shape }, count))",
     [{"size": 2, "columns": 4, "rows": 2}, {"size": 7, "columns": 4, "rows": 4}, None,
      {"size": 7, "columns": 2, "rows": 4}]),
    ("mostInked({ shape: [4, 8], data: Array.from({ length: 32 }, (_, i) => Number(i === 21)) },"
     " { size: 2, columns: 4, rows: 2 })", 6),
    ("(({ names, weights, columns }) => [names[1], weights, columns])(patchParts({ image: { shape:"
     " [4, 8] } }, matrixOf([[...Array(7).fill(0), 1], [1, ...Array(7).fill(0)]])))",
     ["patch 1", [0.5, 0, 0, 0, 0, 0, 0, 0.5], 4]),
    ("(({ classes }) => classes)(kindOf({ kind: 'images' }).kept({ classes: ['a', 'b'] },"
     " { predictions: [0.2, 0.8], attention: {} }))", [["b", 0.8], ["a", 0.2]]),
    ("(({ classes }) => classes)(kindOf({ kind: 'texts' }).kept({ classes: ['a', 'b'] }, { tokens:"
     " [], known: [], predictions: [0.2, 0.8], attention: {} }))", [["b", 0.8], ["a", 0.2]]),
    ("kindOf({ kind: 'numbers' }).kept({}, { prediction: 3, attention: {} }).outputs",
     {"shape": [1], "data": [3]}),
    # a drawn digit
    ("centred(new Float32Array(100), 10)", None),
    ("((ink) => [ink.length, Math.round(ink.reduce((a, b) => a + b)), ink[14 * 28 + 14] > 0.9,"
     " ink[14 * 28 + 3], ink[3 * 28 + 14]])(centred(Float32Array.from({ length: 1600 }, (_, i) =>"
     " Number(i % 40 >= 5 && i % 40 < 15 && i / 40 >= 20 && i / 40 < 40)), 40))",
     [784, 200, True, 0, 0]),
    ("((ink) => [...Array(28).keys()].filter((x) => ink[14 * 28 + x] > 0.5))(centred("
     "Float32Array.from({ length: 1600 }, (_, i) => Number(i % 40 >= 5 && i % 40 < 15)), 40))",
     [*range(12, 16)]),
    # runs side by side
    ("[[['a', 0.3], ['b', 0.2]], [['a', 0.2], ['b', 0.2]]].map((own) => bestOf(own.map(([name,"
     " mean])"
     " => ({ name, kind: 'x', data: 'x', measured: 'mse', summary: { 'test/mse': { mean } } }))))"
     ".map((own) => own && [own.best.name, own.figures])",
     [["b", "test mse 0.2 against 0.3"], None]),
    *(
        (f"(({{ figures, chance }}) => figures + chance)(bestOf([['a', 0.7], ['b', {other}]].map("
         f"([name, mean]) => ({{ name, kind: 'x', data: 'x', num_test: {count},"
         " measured: 'accuracy', summary: { 'test/accuracy': { mean } } }))))",
         f"test accuracy 0.7 against {other}{said}")
        for other, count, said in (
            # 2 sqrt((0.7 * 0.3 + 0.583 * 0.417) / 60)
            (0.583, 60, ", of 60 test examples. So small a difference may be chance: two standard "
             "errors are 0.174"),
            (0.583, 7600, ", of 7,600 test examples"),
            (0.52, 60, ", of 60 test examples"),
            (0.583, "null", ""),
        )
    ),
    ("bestOf([['a', 0.3], ['b', 0.2]].map(([name, mean]) => ({ name, kind: 'x', data: 'x',"
     " measured:"
     " 'accuracy', summary: { 'test/accuracy': { mean } } }))).best.name", "a"),
    ("[{ live: {}, note: 'n', attention: [1] }, { note: null, attention: [1] }, { note: 'Too"
     " large.',"
     " attention: [1] }, { note: 'n', attention: [] }].map((own) => withoutModel(own, false))",
     ["n", "The model is not in this page. So what hiding a part does to the answer is not shown.",
      "Too large. So what hiding a part does to the answer is not shown.", "n"]),
    ("[[], [0, 2]].map((own) => diverged({ diverged: own }))",
     [None, "Seeds that diverged are left out: 0, 2."]),
    ("['flax-attn train a:quick', 'flax-attn train a:quicker'].map((command) => quickly({"
     " command }))",
     [" (:quick)", ""]),
    ("[0, 5].map((steps) => headline(...((runs) => [runs, bestOf(runs), false])([['a', 0.3, 5],"
     " ['b', 0.2, 5 + steps]].map(([name, mean, steps]) => ({ name, steps, kind: 'x', data: 'x',"
     " measured: 'mse', sentence: 'does it', does: 'it', command: '', summary: { 'test/mse': { mean"
     " } } })))).map((own) => own.textContent))",
     [["b, the best of 2 runsDoes it", "Test mse 0.2 against 0.3."],
      ["b, the best of 2 runsDoes it", "Test mse 0.2 against 0.3. They trained for different "
       "numbers of steps: b 10, a 5."]]),
    ("metricsOf([{ measured: 'mae', curves: Object.fromEntries(['train/loss', 'valid/mse',"
     " 'test/mae',"
     " 'valid/mae'].map((own) => [own, {}])) }])", ["mae", "loss", "mse"]),
    ("metricsOf([['train/mse', 'valid/mse', 'test/mse', 'valid/loss'], ['test/mse', 'valid/mse']]"
     ".map((own) => ({ measured: 'mse', curves: Object.fromEntries(own.map((name) => [name,"
     " {}])) })))",
     ["valid/mse", "test/mse", "train/mse", "valid/loss"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), SAID, ids=range(len(SAID)))
def test_what_a_view_says_of_an_example(expression, expected, js):
    assert js(f"(() => {{ {EXAMPLES} return {expression}; }})()") == expected


CURVES = """
const RUNS = [{ name: "one", measured: "mse", curves: {
  "train/mse": { steps: [10, 20], seeds: { 0: [4, 2], 1: [6, 2] } },
  "valid/mse": { steps: [0, 10, 20], seeds: { 0: [9, "NaN", 3], 1: [11, 5, 1] } },
} }];
const NAMES = { across: "training step", up: "mse", at: "Step" };
const LINES = linesOf(RUNS, "mse");
"""


def test_a_line_is_the_mean_of_the_seeds_within_their_least_and_most(js):
    lines = js(f"(() => {{ {CURVES} return LINES; }})()")
    assert [line["label"] for line in lines] == ["train", "valid"]
    assert lines[1]["mean"] == [10, 5, 2]  # of the seeds that have a number
    assert (lines[1]["low"], lines[1]["high"]) == ([9, 5, 1], [11, 5, 3])
    assert js(f"(() => {{ {CURVES} return wantsLog(LINES, 'mse'); }})()") is True
    assert js(f"(() => {{ {CURVES} return wantsLog(LINES, 'accuracy'); }})()") is False
    assert js(f"(() => {{ {CURVES} return wantsLog(LINES.slice(0, 1), 'mse'); }})()") is False


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("", "Step 0 to 20: train goes from 5 at step 10 to 2 (mean of 2 seeds); valid goes from"
         " 10 "
         "to 2 (mean of 2 seeds)."),
        ("ArrowRight", "Step 0: valid 10."),
        ("ArrowRight ArrowRight", "Step 10: train 5, valid 5."),
        ("ArrowRight ArrowRight ArrowRight ArrowRight", "Step 20: train 2, valid 2."),
        ("ArrowRight ArrowRight ArrowLeft", "Step 0: valid 10."),
        ("+", " Shown from 5 to 15."),
        ("+ -", "(mean of 2 seeds)."),
        ("ArrowRight + ArrowRight Escape", "(mean of 2 seeds)."),
        ("ArrowRight ArrowRight + Escape + +", " Shown from 7.5 to 12.5."),
    ],
)  # fmt: skip
def test_keys_move_along_a_chart_and_zoom_it(keys, said, js):
    press = f"for (const key of {json.dumps(keys.split())}) pressIn(drawn, key);"
    box = "const box = onPage(chart(LINES, NAMES)); const drawn = box.querySelector('svg.chart');"
    assert js(f"(() => {{ {CURVES} {box} {press} return saidIn(box); }})()").endswith(said)


def test_a_run_that_ended_earlier_is_said_with_its_own_last_step(js):
    said = js("""(() => {
      const line = (name, steps, values) => ({ name, measured: "mse",
        curves: { "test/mse": { steps, seeds: { 0: values } } } });
      const runs = [line("a", [0, 60, 120], [4, 3, 2]), line("b", [0, 48], [5, 1])];
      const names = { across: "training step", up: "mse", at: "Step" };
      return saidIn(onPage(chart(linesOf(runs, "test/mse"), names)));
    })()""")
    assert said == (
        "a goes from 4 at step 0 to 2 at step 120; b goes from 5 at step 0 to 1 at step 48."
    )


def test_a_chart_has_a_band_a_dash_a_table_and_a_key_for_each_line(js):
    drawn = js(f"""(async () => {{
      {CURVES}
      const box = onPage(chart(LINES, NAMES));
      const picture = box.querySelector("svg.chart");
      box.querySelector("details").open = true;
      await later(50);
      return [textsIn(box, ".key span"), textsIn(box, "tbody tr").map((own) => own),
        box.querySelectorAll("polygon.band").length, box.querySelectorAll("circle.dot").length,
        [...box.querySelectorAll("path.line")].map((own) => own.getAttribute("stroke-dasharray")),
        textsIn(picture, ".axes text").slice(-2), box.querySelector("input").checked];
    }})()""")
    key, rows, bands, dots, dashes, names, is_log = drawn
    assert key == ["train", "valid"]
    assert rows == [f"0{DASH}10", "1055", "2022"]
    assert (bands, dots) == (2, 5)
    assert len(set(dashes)) == 2
    assert names == ["training step", "mse"]
    assert is_log


RESULTS = """
const run = (name, mean, more = {}) => ({
  name, kind: "x", data: "y", measured: "mse", parameters: 1234, seeds: 2, steps: 500,
  minutes: 1.5, late: mean / 2, ...more,
  summary: {
    "test/mse": { mean, std: 0.0123, values: [1, 2] },
    "last/test/mse": { mean: 2 * mean, std: 0, values: [1] },
    "ensemble/test/f1": { mean: mean / 4, std: 0, values: [1] },
    "train/mse": { mean: 1, std: 0, values: [1] },
  },
});
const RUNS = [run("b", 0.5), run("a", 0.25, { late: null }), run("c", "NaN")];
const table = onPage(resultsTable(RUNS));
const rows = () => [...table.querySelectorAll("tbody tr")].map((row) =>
  [...row.children].map((own) => own.textContent));
const strong = () => textsIn(table, "strong");
"""


def test_a_table_of_results_has_the_figures_of_each_run_and_the_best_in_bold(js):
    heads, breaks, rows, strong = js(f"""(() => {{ {RESULTS}
      const heads = [...table.querySelectorAll("thead th")];
      const broken = heads.filter((own) => own.querySelector("wbr")).map((own) =>
        own.querySelector("button").innerHTML.replaceAll("<wbr>", "|").split("<span")[0]);
      return [textsIn(table, "thead th"), broken, rows(), strong()];
    }})()""")
    assert heads == [
        *("run", "parameters", "seeds", "steps", "minutes"),
        *("test/mse, kept", "last", "median of last 10 epochs", "ensemble/test/f1"),
    ]
    assert breaks == ["test/|mse, kept", "ensemble/|test/|f1"]  # nowhere else in a word
    counts = ["1,234", "2", "500", "1.5"]
    assert rows[0] == ["b", *counts, "0.5 ± 0.01", "1", "0.25", "0.125"]
    assert rows[1] == ["a", *counts, "0.25 ± 0.01", "0.5", "NaN", "0.0625"]
    assert rows[2][5] == "NaN ± 0.01"
    assert strong == [
        "0.25",
        "0.125",
        "0.25 ± 0.01",
        "0.5",
    ]  # of f1 the highest, of errors the least


def test_the_last_epoch_has_a_column_where_it_is_not_what_was_kept(js):
    told = js(f"""(() => {{ {RESULTS}
      const own = run("a", 0.5);
      const both = [aboutColumns([own])];
      own.summary["last/test/mse"] = own.summary["test/mse"];
      return [...both, aboutColumns([own]), textsIn(onPage(resultsTable([own])), "thead th")];
    }})()""")
    assert " Last: after the last epoch. Median" in told[0]
    assert "Last: " not in told[1]
    assert "last" not in told[2]


@pytest.mark.parametrize(
    ("head", "presses", "order"),
    [
        ("test/mse, kept", 1, "abc"),
        ("test/mse, kept", 2, "cba"),
        ("run", 1, "abc"),
        ("run", 2, "cba"),
    ],
)
def test_a_press_on_a_head_sorts_the_table(head, presses, order, js):
    press = f"""for (let i = 0; i < {presses}; i++)
      [...table.querySelectorAll("thead button")]
        .find((own) => own.textContent.startsWith("{head}")).click();"""
    names, sorts = js(f"""(() => {{ {RESULTS} {press} return [rows().map(([name]) => name),
      [...table.querySelectorAll("[aria-sort]")].map((own) => own.getAttribute("aria-sort"))];
        }})()""")
    assert "".join(names) == order
    assert [own for own in sorts if own != "none"] == [["ascending", "descending"][presses - 1]]


def test_words_and_bars_say_their_shares(js):
    labels, classes, texts, points = js("""(() => {
      const points = [];
      const own = words("a text", ["a", "b c", "d"], { known: [true, false, true],
        onPoint: (i) => points.push(i), onPick: (i) => points.push(-i) });
      onPage(own.node);
      own.show([0.5, 0.25, NaN], 2);
      own.pick(1);
      own.buttons[2].click();
      own.buttons[0].dispatchEvent(new Event("pointerenter"));
      return [own.buttons.map((one) => one.getAttribute("aria-label")),
        own.buttons.map((one) => [one.className, one.getAttribute("aria-pressed")]),
        own.buttons.map((one) => one.textContent), points];
    })()""")
    assert labels == ["a: 50 %", "b c: 25 %", "d: not a number"]
    assert [pressed for _, pressed in classes] == ["false", "true", "false"]
    assert ["unknown" in name for name, _ in classes] == [False, True, False]
    assert texts == ["a", "(b␣c)", "d"]
    assert points == [-2, 0]
    shown = js("""(() => {
      const list = bars([["a", 0.2], ["b", 0.7], ["c", 0.1]], 0);
      return [...list.children].map((own) =>
        [own.className, own.textContent, own.querySelector(".fill").style.width]);
    })()""")
    assert shown == [
        ["", "a ✓ (the right class)20 %", "20%"],
        ["best", "b70 %", "70%"],
        ["", "c10 %", "10%"],
    ]


def test_arrows_move_among_buttons_and_one_is_a_stop_of_the_tab_key(js):
    stops = js("""(() => {
      const buttons = [...Array(6).keys()].map(() => document.createElement("button"));
      const box = document.createElement("div");
      box.append(...buttons);
      onPage(box);
      roving(buttons, 1, 3);
      const at = () => buttons.indexOf(document.activeElement);
      const stop = () => buttons.findIndex((own) => own.tabIndex === 0);
      const before = stop();
      buttons[1].focus();
      return [before, ...["ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft", "Home",
        "ArrowUp", "End"].map((key) => { pressIn(document.activeElement, key); return at(); }),
          stop()];
    })()""")
    assert stops == [1, 4, 5, 5, 2, 1, 0, 0, 5, 5]


def test_a_list_of_heads_follows_the_attention_that_is_chosen(js):
    chosen, texts = js("""(() => {
      const calls = [];
      const run = { attention: [{ name: "a", heads: 3, of: "head" }, { name: "hops", heads: 2,
        of: "hop" }] };
      const own = headChooser(run, (now) => calls.push({ ...now }), 2);
      onPage(own.node);
      const first = [own.now.name, own.now.head];
      const press = (i) => own.node.querySelectorAll("button")[i].click();
      press(1);
      const list = own.node.querySelector("select");
      list.selectedIndex = 1;
      list.dispatchEvent(new Event("change"));
      press(1);
      const last = headChooser(run, ignored);
      return [[first, ...calls.map((own) => [own.name, own.head]), [last.now.name, last.now.head]],
        [own.node.querySelectorAll("button").length, headChooser({ attention: [{ name: "a",
        heads: 1 }] }, ignored).node]];
    })()""")
    assert chosen == [["a", 2], ["a", 1], ["hops", 0], ["hops", 1], ["hops", 0]]
    assert texts == [2, None]


ASKED = """
const asked = [];
const ask = async (request) => {
  asked.push(request);
  return reply(request);
};
const shownBy = async (parts) => {
  const own = evidenceRow(ask);
  onPage(own.node);
  own.show(parts);
  await later(450);
  return [textsIn(own.node, ".try-change small"), own.node.querySelector(".sentence").textContent,
    textsIn(own.node, ".try-title"), textsIn(own.node, ".hint"), asked,
    own.node.getAttribute("aria-busy")];
};
"""


def test_hiding_each_part_says_what_becomes_of_the_likeliest_class(js):
    changes, said, title, hint, asked, busy = js(f"""(() => {{ {ASKED}
      const shares = {{ "": 0.8, "0": 0.5, "1": 0.9, "2": 0.78, "0,3": 0.5 }};
      const reply = ({{ settings: {{ hidden }} }}) => {{
        const own = {{ "3": 0.8, "3,0": 0.5, "3,1": 0.9, "3,2": 0.78 }}[hidden.join()];
        return {{ classes: own > 0.6 ? [["b", own], ["a", 1 - own]] : [["a", 1 - own], ["b", own]]
          }};
      }};
      return shownBy({{ names: ["x", "y", "z"], weights: [0.6, 0.1, 0.3], inputs: {{ text: "x" }},
        settings: {{ hidden: [3] }}, weighed: "the mean over all" }});
    }})()""")
    assert changes == [f"{MINUS}30", "+10", f"{MINUS}2"]
    assert said == (
        "The order by attention and the order by what hiding does agree well: Kendall's tau is "
        f"1.00, where 1 is the same order and {MINUS}1 the reverse."
    )
    assert title == ["What hiding each word does to “b”, in percentage points"]
    assert hint == [
        "Each word is hidden from the attention in turn; flax-attn predict --why leaves it out of "
        "the text, so its figures differ. Above: the attention on it, the mean over all. Below: "
        "the change."
    ]
    assert [own["settings"]["hidden"] for own in asked] == [[3], [3, 0], [3, 1], [3, 2]]
    assert all(own["brief"] for own in asked)
    assert busy == "false"


def test_hiding_each_part_says_how_far_the_numbers_of_an_answer_move(js):
    changes, said, title, hint, _, _ = js(f"""(() => {{ {ASKED}
      const moved = {{ "": 0, "0,1": 2, "2": -1 }};
      const reply = ({{ settings: {{ hidden }} }}) => ({{ classes: null, outputs: {{
        data: [1 + moved[hidden.join()], 3] }} }});
      return shownBy({{ names: ["x", "y"], weights: [0.2, 0.8], keys: [[0, 1], [2]], what: "shape",
        inputs: {{}}, settings: {{ hidden: [] }} }});
    }})()""")
    assert changes == ["1", "0.5"]
    assert f"contradict each other: Kendall's tau is {MINUS}1.00, where" in said
    assert title == ["What hiding each shape does to the answer"]
    assert hint == [
        "Each shape is hidden from the attention in turn. Below: by how much the numbers of the "
        "answer change, on average."
    ]


@pytest.mark.parametrize(
    ("reply", "count", "said"),
    [
        ("({ settings: { hidden } }) => ({ classes: [['b', 0.8 + 1e-4 * hidden.length]] })", 2,
         "Hiding any one word changes next to nothing, by at most 0.01 percentage points, so it "
         "cannot tell which word mattered."),
        ("({ settings: { hidden } }) => (hidden.length ? { error: 'no' } : { classes: [['b', 1]]"
         " })",
         2, "It cannot be said: no"),
        ("() => ({ classes: [['b', 1]] })", 65,
         "There are more than 64 parts, so none is hidden in turn."),
    ],
)  # fmt: skip
def test_what_hiding_cannot_say_is_said(reply, count, said, js):
    shown = js(f"""(() => {{ {ASKED} const reply = {reply};
      const names = Array.from({{ length: {count} }}, (_, i) => String(i));
      return shownBy({{ names, weights: names.map(() => 0.1), inputs: {{}},
        settings: {{ hidden: [] }} }});
    }})()""")
    assert shown[1] == said
    assert shown[5] == "false"


def formula(query, settings=""):
    return f"""(() => {{
      const own = fromScores();
      onPage(own.node);
      own.node.open = true;
      own.settings({{ ...UNCHANGED, {settings} }});
      own.show({query});
      return [textsIn(own.node, "p"), textsIn(own.node, ".try-term-name"),
        textsIn(own.node, ".try-term"), own.node.querySelectorAll(".try-dot").length];
    }})()"""


def test_scores_become_weights_by_the_formula_of_the_normaliser(js):
    scores = np.log([0.1, 0.2, 0.3, 0.1, 0.1, 0.1, 0.05, 0.05])
    query = f"""{{ what: "own", q: 0,
      weights: {matrix([np.exp(scores)])}, scores: {matrix([scores])},
      visible: (k) => k !== 9, key: (k) => `key ${{k}}` }}"""
    lines, names, terms, dots = js(formula(query))
    assert lines[0] == "The query (what looks) is own. The keys are what it may look at."
    assert lines[1].startswith(
        f"softmax: weight = exp(score / T {MINUS} largest) / sum of these; T is"
    )
    assert lines[1].endswith("T is the temperature, 1.")
    assert lines[-1] == "All weights of this query add up to 1.000."
    assert names == ["key 2", "key 1", "key 0", "key 3", "key 4", "key 5", "the 2 other keys"]
    assert terms[0] == f"score {MINUS}1.20: exp(0.00) / 3.33 = 0.300"
    assert terms[1] == f"score {MINUS}1.61: exp({MINUS}0.41) / 3.33 = 0.200"
    assert terms[-1] == "together 0.100"
    assert dots == 8
    halved = np.exp(scores / 2) / np.exp(scores / 2).sum()
    query = query.replace(matrix([np.exp(scores)]), matrix([halved]))
    lines, _, terms, _ = js(formula(query, 'normalizer: "softmax", temperature: 2'))
    assert lines[1].endswith("T is the temperature, 2.")
    assert terms[0].startswith(f"score {MINUS}1.20 / 2: exp(0.00) / ")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("scores: null", "Its weights come without scores."),
        ("scores: null, without: 'A mean.'", "A mean."),
        ("visible: () => false", "It may attend to no key, so all weights are 0."),
    ],
)
def test_a_query_without_scores_or_keys_says_so(more, said, js):
    one = "matrixOf([[0.5, 0.5]])"
    query = f"{{ what: 'own', weights: {one}, scores: {one}, q: 0, visible: () => true, key: String"
    assert js(formula(f"{query}, {more} }}"))[0][-1] == said
    assert js(formula("null"))[0] == ["Choose what looks at something, to see its scores."]


def test_a_normaliser_that_is_none_of_the_known_ones_is_the_models_own(js):
    query = """{ what: 'own', weights: matrixOf([[0.9, 0.9]]), scores: matrixOf([[1, 2]]), q: 0,
      visible: () => true, key: String }"""
    lines, _, terms, dots = js(formula(query))
    assert lines[1] == "The normaliser is the model's own. The temperature is 1."
    assert terms == ["score 1.00 = 0.900", "score 2.00 = 0.900"]
    assert dots == 0


TRIED = """
const calls = [];
const parts = (run, more = {}) => ({
  runs: [run], asks: [async () => ({ error: "asked" })], changed: () => calls.push("changed"),
  hide: (keys) => calls.push(keys), forget: () => calls.push("forget"),
  pick: () => calls.push("pick"), again: () => calls.push("again"), ...more,
});
const settings = (more = {}) => ({ ...UNCHANGED, ...more });
"""
LANGUAGE = """
const run = { kind: "language", name: "run", live: {}, attention: [{ name: "block1", heads: 2,
  of: "head" }], examples: [PASSAGE] };
run.examples = [{ tokens: PASSAGE.tokens, attention: { block1: PASSAGE.attention.own } }];
const view = tryLanguage(parts(run));
view.begin(0);
const reply = {
  tokens: ["a", " ", "\\\\n"], attention: { block1: arrayOf([[[0.1, 0.7, 0.2]], [[0, 0, 1]]]) },
  scores: { block1: arrayOf([[[1, 3, 2]], [[0, 0, 9]]]) }, note: null,
  classes: [["<UNK>", 0.4], [" ", 0.3], ["\\\\n", 0.2], ["c", 0.1]],
  writes: [null, [32], [10], [99]],
};
onPage(view.node);
"""


def test_a_language_model_that_is_tried_says_what_comes_next_and_what_it_looks_at(js):
    said, keys, buttons, classes, text = js(f"""(() => {{ {EXAMPLES} {TRIED} {LANGUAGE}
      view.show([reply], settings({{ hidden: [1] }}), {{ inputs: view.input() }});
      const {{ what, visible, key, q }} = view.query();
      const shown = [view.say([reply]), [what, q, [0, 1, 2].map(visible), key(1)],
        textsIn(view.node, "[aria-label='write the next token'] button"),
        textsIn(view.node, ".bars .class-name")];
      view.node.querySelectorAll("[aria-label='write the next token'] button")[1].click();
      return [...shown, [view.input().text, calls.at(-1)]];
    }})()""")
    assert said == (
        "Here the likeliest next is “<UNK>”, 40 %. For it the last token looks most at “␣”, 1"
        " back, "
        "with 70 %."
    )
    assert keys == ["the last token, “⏎”", 0, [True, False, True], "“␣” at 1"]
    assert buttons == ["+ ␣", "+ ⏎", "+ c"]  # what is no text cannot be written
    assert classes == ["␣", "⏎", "c"]
    assert text == ["a \n", "changed"]


def test_a_text_in_classes_that_is_tried_says_its_class_and_the_word_with_most_weight(js):
    said, texts, query, calls = js(f"""(() => {{ {TRIED}
      const example = {{ tokens: ["a", "(x)", "</S>"], known: [true, false, true], predictions:
        [1, 0],
        attention: {{ own: arrayOf([[[0, 1, 0], [0, 1, 0], [0, 1, 0]]]) }} }};
      const run = {{ kind: "texts", name: "run", classes: ["n", "p"], attention: [{{ name: "own",
        heads: 1, of: "head" }}], examples: [example] }};
      const view = tryTexts(parts(run));
      view.begin(0);
      onPage(view.node);
      const reply = {{ tokens: ["a", "x"], known: [true, false], classes: [["p", 0.6], ["n", 0.4]],
        attention: {{ own: arrayOf([[[0.1, 0.9], [0.7, 0.3]]]) }}, scores: null }};
      view.show([reply], settings({{ hidden: [0] }}), {{}});
      const said = view.say([reply]);
      const before = view.query();
      const buttons = view.node.querySelectorAll(".words .word");
      buttons[1].dispatchEvent(new Event("pointerenter"));
      const labels = [...buttons].map((own) => own.getAttribute("aria-label"));
      const {{ what, q, visible }} = view.query();
      buttons[0].click();
      return [[said, view.input().text, view.between], labels,
        [before.what, what, q, visible(0), visible(1)], calls];
    }})()""")
    assert said == [
        "The answer is p, 60 %. Most attention is on “x”, 60 %.",
        "a x",
        True,
    ]
    assert texts == ["a: 70 %", "x: 30 %"]
    assert query == ["“a”", "“x”", 1, False, True]
    assert calls == ["pick", [0]]


@pytest.mark.parametrize(
    ("settings", "visible"),
    [("reach: 1", [1, 2, 3]), ("causal: true", [0, 1, 2]), ("hidden: [2]", [0, 1, 3])],
)
def test_the_scores_of_a_text_are_of_the_keys_that_a_word_may_look_at(settings, visible, js):
    shown = js(f"""(() => {{ {TRIED}
      const same = [0, 1, 2, 3].map(() => [0.25, 0.25, 0.25, 0.25]);
      const example = {{ tokens: [..."abcd"], known: null, attention: {{ own: arrayOf([same]) }} }};
      const run = {{ kind: "texts", name: "run", classes: ["n"], attention: [{{ name: "own",
        heads: 1,
        of: "head" }}], examples: [example] }};
      const view = tryTexts(parts(run));
      view.begin(0);
      onPage(view.node);
      view.show([{{ tokens: [..."abcd"], known: [true, true, true, true], classes: [["n", 1]],
        attention: {{ own: arrayOf([same]) }} }}], settings({{ {settings} }}), {{}});
      view.node.querySelectorAll(".words .word")[2].dispatchEvent(new Event("focus"));
      return [0, 1, 2, 3].filter(view.query().visible);
    }})()""")
    assert shown == visible


def test_a_translation_that_is_tried_says_what_its_parts_are_read_from(js):
    said, query, pressed, names = js(f"""(() => {{ {TRIED}
      const run = {{ kind: "translation", name: "run", data: "reverse", attention: [{{
        name: "alignment", heads: 1, of: "head" }}], examples: [{{ source: ["ab", "(cd)"] }}] }};
      const best = (text, rows) => ({{ text, tokens: text.split(" "), attention: {{
        alignment: arrayOf([rows]) }}, scores: {{ alignment: arrayOf([rows]) }} }});
      const all = [best("x y", [[0.4, 0.6], [0.9, 0.1]]), best("z", [[0.2, 0.8]])];
      const reply = {{ ...all[0], best: all, tokens: ["ab", "cd"], known: [true, false] }};
      const view = tryTranslation(parts(run));
      view.begin(0);
      onPage(view.node);
      view.show([reply], settings({{ hidden: [1] }}));
      const first = view.say([reply]);
      const words = view.node.querySelectorAll("[aria-label='what the model writes'] button");
      words[0].click();
      const chosen = view.say([reply]);
      const {{ what, q, visible, key }} = view.query();
      const source = [...view.node.querySelectorAll("[aria-label='what you type'] button")];
      const numbers = view.node.querySelectorAll(".numbered button");
      numbers[1].click();
      return [[view.input().text, first, chosen, view.say([reply])], [what, q, visible(0),
        visible(1),
        key(1)], source.map((own) => [own.textContent, own.getAttribute("aria-pressed")]),
        [...numbers].map((own) => own.getAttribute("aria-label"))];
    }})()""")
    assert said == [
        "ab cd",
        "“x y”. “y” is read from “ab” with 90 %.",
        "“x y”. “x” is read from “cd” with 60 %.",
        "“z”. “z” is read from “cd” with 80 %.",
    ]
    assert query == ["“x”", 0, True, False, "“cd”"]
    assert pressed == [["ab", "false"], ["(cd)", "true"]]
    assert names == ["answer 1 of 2: x y", "answer 2 of 2: z"]


SERIES_RUN = """
const run = { kind, name: "run", relevant: 1, attention: [{ name: "input", heads: 1, of: "head" }],
  examples: [{ inputs: [[0, 1, 2, 3], [4, 2, 4, 2]] }] };
const view = trySeries(parts(run));
view.begin(0);
onPage(view.node);
onPage(view.node).append(view.after);
const reply = { attention: { input: arrayOf([[[0.2, 0.8], [0.2, 0.8], [0.4, 0.6], [0.4, 0.6]]]) },
  scores: null, outputs: { shape: [4, 1], data: [2, 3, 3, 4] } };
view.show([reply], settings({ hidden: [0] }), {});
const sliders = view.node.querySelectorAll("[role=slider]");
"""


def test_a_series_that_is_tried_is_moved_whole_and_says_its_weight_and_error(js):
    said, spoken, buttons, moved, query = (
        js(f"""(() => {{ {TRIED} const kind = "series"; {SERIES_RUN}
      pressIn(sliders[1], "ArrowUp");
      pressIn(sliders[1], "ArrowUp");
      pressIn(sliders[0], "ArrowDown");
      const {{ inputs }} = view.input();
      const said = view.say([reply]);
      view.show([reply], settings(), {{}});
      const {{ what, q, visible, key }} = view.query();
      return [said, [...sliders].map((own) => own.getAttribute("aria-valuetext")),
        textsIn(view.node, ".try-series-line button"), inputs, [what, q, visible(0), key(1)]];
    }})()""")
    )
    # right is half of the series and half of it a step before: 2.2, 3.4, 3.4, 3.4
    assert said == "Series 1 gets 70 % of the attention. It is off by 0.40 on average."
    assert spoken == [
        "moved by -0.20, 30 % of the attention",
        "moved by 0.40, 70 % of the attention",
    ]
    assert buttons == ["hide", "hide"]
    assert moved["shape"] == [4, 2]
    np.testing.assert_allclose(moved["data"], [-0.2, 4.4, 0.8, 2.4, 1.8, 4.4, 2.8, 2.4])
    assert query == ["step 3", 3, True, "series 1"]


def test_what_is_hidden_of_a_series_can_be_shown_and_reset_takes_all_back(js):
    texts, pressed, data, calls = js(f"""(() => {{ {TRIED} const kind = "series"; {SERIES_RUN}
      const buttons = view.node.querySelectorAll(".try-series-line button");
      const texts = [...buttons].map((own) => own.textContent);
      buttons[1].click();
      pressIn(sliders[0], "ArrowRight");
      view.begin(0);
      return [texts, [...buttons].map((own) => own.getAttribute("aria-pressed")),
        view.input().inputs.data, calls];
    }})()""")
    assert texts == ["show", "hide"]
    assert pressed == ["true", "false"]
    assert data == [0, 4, 1, 2, 2, 4, 3, 2]
    assert calls == [[1], "changed"]


def test_a_signal_without_shapes_follows_and_may_look_at_its_keys(js):
    said, visible, between = js(f"""(() => {{ {TRIED} const kind = "signals"; {SERIES_RUN}
      const square = arrayOf([[0, 1, 2, 3].map((q) => [0, 1, 2, 3].map((k) => Number(k === q)))]);
      const own = {{ ...reply, attention: {{ input: square }} }};
      view.show([own], settings({{ reach: 1, hidden: [2] }}), {{}});
      const query = view.query();
      return [view.say([own]), [0, 1, 2, 3].filter(query.visible).concat(query.q, query.what),
        view.between];
    }})()""")
    assert said == "The answer follows the signal."
    assert visible == [3, 3, "position 3"]
    assert between


IMAGES_RUN = """
const image = { shape: [4, 4], data: [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0] };
const run = { kind: "images", name: "run", data, classes: ["a", "b"], attention: [{ name: "own",
  heads: 1, of: "head" }], examples: [{ image, predictions: [1, 0], target: 0, attention: { own:
  arrayOf([[0, 1, 2, 3].map(() => [0.1, 0.2, 0.3, 0.4])]) } }] };
const view = tryImages(parts(run));
view.begin(0);
onPage(view.node);
const reply = { classes: [["b", 0.7], ["a", 0.3]], scores: null, attention: { own:
  arrayOf([[0, 1, 2, 3].map((q) => [0, 1, 2, 3].map((k) => (k === q ? 0.7 : 0.1)))]) } };
view.show([reply], settings({ hidden: [3], reach: 1 }), {});
"""


def test_an_image_that_is_tried_says_two_classes_and_its_patches_where_they_look(js):
    said, labels, pressed, query, calls = (
        js(f"""(() => {{ {TRIED} const data = "mnist"; {IMAGES_RUN}
      const patches = [...view.node.querySelectorAll(".try-patches button")];
      const labels = patches.map((own) => own.getAttribute("aria-label"));
      const {{ what, q, visible, key }} = view.query();
      patches[0].dispatchEvent(new Event("pointerenter"));
      patches[1].click();
      return [view.say([reply]), labels, patches.map((own) => own.getAttribute("aria-pressed")),
        [what, q, [0, 1, 2, 3].filter(visible), key(1)], calls];
    }})()""")
    )
    assert said == "The model sees b (70 %), then a (30 %)."
    assert labels == [  # the patch with most ink, the third, looks
        "patch in row 1, column 1: 10 %",
        "patch in row 1, column 2: 10 %",
        "patch in row 2, column 1: 70 %",
        "patch in row 2, column 2: 10 %",
    ]
    assert pressed == ["false", "false", "false", "true"]
    assert query == ["the patch in row 2, column 1", 2, [1, 2], "patch in row 1, column 2"]
    assert calls == ["again", [1]]


@pytest.mark.parametrize(("data", "ground"), [("mnist", 0), ("files", 1)])
def test_an_image_is_asked_in_the_units_of_its_run_and_an_empty_paper_is_told(data, ground, js):
    inputs, said = js(f"""(() => {{ {TRIED} const data = "{data}"; {IMAGES_RUN}
      const {{ inputs }} = view.input();
      [...view.node.querySelectorAll("button")].find((own) =>
        /Clear/.test(own.textContent)).click();
      return [[inputs.data[0], inputs.data[8], inputs.shape], [view.say([reply]),
        view.input().inputs.data.every((own) => own === {ground}), calls.at(-1)]];
    }})()""")
    assert inputs == [ground, 1 - ground, [4, 4]]
    assert said == ["The paper is empty. Draw a digit.", True, "changed"]


SHAPES_RUN = """
const marks = ["triangle", "triangle", "box", "box"].map((kind, i) => {
  const center = 10 + 20 * i;
  return { kind, center, first: center - 4, last: center + 4, height: 4 + 4 * i };
});
const shapes = marks.map((own) => ({ ...own, width: 8 }));
const inputs = [drawn(shapes).map((value) => value + 0.25)];
const inShape = (q) => shapes.findIndex((own) => isIn(own, q));
const square = [...Array(100).keys()].map((q) => [...Array(100).keys()].map((k) =>
  inShape(q) < 0 ? 0.01 : Number(k === shapes[inShape(q)].center)));
const run = { kind: "signals", task: "by_shape", name: "run", attention: [{ name: "own", heads: 1,
  of: "head" }], examples: [{ inputs, marks, attention: { own: arrayOf([square]) } }] };
const view = shapesView(parts(run));
view.begin(view.first);
onPage(view.node);
view.node.append(view.after);
const right = [6, 6, 14, 14];
const answer = drawn(shapes, [6, 8.5, 14, 14]);
const reply = { outputs: { shape: [100, 1], data: answer }, scores: null,
  attention: { own: arrayOf([square]) } };
view.show([reply], settings(), {});
const handles = view.node.querySelectorAll("[role=slider]");
"""


def test_shapes_that_are_dragged_say_their_heights_and_their_attention(js):
    said, spoken, table, moved, query = js(f"""(() => {{ {TRIED} {SHAPES_RUN}
      const said = view.say([reply]);
      const rows = [...view.after.querySelectorAll("tbody tr")].map((row) =>
        [...row.children].map((own) => own.textContent));
      const before = [...handles].map((own) => own.getAttribute("aria-valuetext"));
      pressIn(handles[1], "ArrowUp");
      pressIn(handles[1], "ArrowRight", {{ shiftKey: true }});
      const own = view.input().inputs;
      const {{ what, q, key }} = view.query();
      return [said, [before[1], handles[1].getAttribute("aria-valuetext")], rows,
        [own.shape, own.data[35], own.data[30], own.data[10]], [what, q, key(35), key(0)]];
    }})()""")
    assert said == (
        "Triangles set to 6.0 and 8.5 (right: 6.0, ✗ off by 1.3), on average 100 % of their "
        "attention on triangles; boxes set to 14.0 and 14.0 (right: 14.0, ✓ off by 0.0), on"
        " average "
        "100 % of their attention on boxes."
    )
    assert spoken == ["position 30, height 8.0", "position 35, height 8.5"]
    assert table == [
        ["triangles", "6.0 and 8.5", "6.0", "✗ off by 1.3 on average", "100 %"],
        ["boxes", "14.0 and 14.0", "14.0", "✓ off by 0.0 on average", "100 %"],
    ]
    assert moved == [[100, 1], 8.75, 0.25, 4.25]
    assert query == ["triangle at 35", 35, "position 35, triangle", "position 0"]


def test_a_shape_is_hidden_by_its_keys_and_shown_again(js):
    texts, keys = js(f"""(() => {{ {TRIED} {SHAPES_RUN}
      const hider = [...view.after.querySelectorAll("button")].find((own) =>
        /Hide/.test(own.textContent));
      const before = hider.textContent;
      hider.click();
      const [keys] = calls.slice(-1);
      view.show([reply], settings({{ hidden: keys }}), {{}});
      return [[before, hider.textContent, hider.getAttribute("aria-pressed")], keys];
    }})()""")
    assert texts == ["Hide this triangle from the attention", "Show this triangle again", "true"]
    assert keys == [*range(6, 15)]


def test_settings_are_told_and_taken_back(js):
    told, texts = js("""(() => {
      const told = [];
      const own = lensControls({ most: 6, between: true, ordered: false,
        onChange: ({ normalizer, temperature, reach, causal }) =>
          told.push([normalizer, temperature, reach, causal]),
        onReset: () => told.push("reset") });
      onPage(own.node);
      const list = own.node.querySelector("select");
      const [temperature, reach] = own.node.querySelectorAll("[type=range]");
      const set = (node, value, event) => {
        node.value = value;
        node.dispatchEvent(new Event(event));
      };
      list.selectedIndex = 3;
      list.dispatchEvent(new Event("change"));
      set(temperature, 10, "input");
      set(reach, 2, "input");
      own.node.querySelector("[type=checkbox]").click();
      set(reach, 5, "input");
      const texts = [textsIn(own.node, "output"), reach.max, temperature.max];
      own.clear();
      own.trained("softmax");
      own.node.querySelector(".reset").click();
      return [told, [texts, textsIn(own.node, "output"), list.options[0].textContent,
        own.node.querySelector("[type=checkbox]").checked]];
    })()""")
    assert told == [
        ["sparsemax", 1, None, False],
        ["sparsemax", 0.25, None, False],
        ["sparsemax", 0.25, 2, False],
        ["sparsemax", 0.25, 2, True],
        ["sparsemax", 0.25, None, True],
        "reset",
    ]
    before, after, name, checked = texts
    assert before == [["0.25", "no limit"], "5", "40"]
    assert after == ["1", "no limit"]
    assert name == "as trained (softmax)"
    assert not checked


TRY = """
const asked = [];
const ask = async (request) => {
  asked.push(request);
  const own = request.settings.hidden.length ? 0.4 : 0.9;
  return answers(own);
};
const answers = (own) => ({ tokens: ["a", "x"], known: [true, true], note: "a note", scores: null,
  classes: [["p", own], ["n", 1 - own]].sort((a, b) => b[1] - a[1]),
  attention: { own: arrayOf([[[0.25, 0.75]]]) } });
const run = { kind: "texts", name: "run", classes: ["n", "p"], attention: [{ name: "own", heads: 1,
  of: "head" }], examples: [{ tokens: ["a", "x"], known: [true, true], predictions: [0.8, 0.2],
  attention: { own: arrayOf([[[0.5, 0.5]]]) } }] };
const node = onPage(tryIt(run, ask));
const words = () => node.querySelectorAll("[aria-label='words of the text'] .word");
"""


def test_what_is_tried_shows_what_was_kept_and_then_what_the_model_answers(js):
    first, then, hidden, again, asked = js(f"""(async () => {{ {TRY}
      const first = saidIn(node.querySelector(".try-said").parentNode);
      const said = () => node.querySelector(".try-said > span").textContent;
      await later(30);
      const then = [said(), node.querySelector(".try-problem").textContent,
        node.querySelector("figure").getAttribute("aria-busy")];
      words()[1].click();
      await later(30);
      const hidden = said();
      words()[1].click();
      await later(30);
      const again = [said(), asked.slice(0, 3).map(({{ settings }}) => settings.hidden)];
      node.querySelector(".reset").click();
      return [first, then, hidden, again, asked[0]];
    }})()""")
    assert first == "The answer is n, 80 %. Most attention is on “a”, 50 %."
    assert then[:2] == ["The answer is p, 90 %. Most attention is on “x”, 75 %.", "a note"]
    assert hidden.startswith("The answer is n, 60 %.")
    assert again == ["The answer is p, 90 %. Most attention is on “x”, 75 %.", [[], [1], []]]
    assert asked["inputs"] == {"text": "a x"}


def test_an_error_of_an_answer_is_shown_and_what_was_said_is_stale(js):
    problem, said, stale = js(f"""(async () => {{
      {
        TRY.replace(
            "return answers(own);", 'return own < 0.9 ? { error: "not so" } : answers(own);'
        )
    }
      await later(30);
      words()[0].click();
      await later(30);
      return [node.querySelector(".try-problem").textContent,
        node.querySelector(".try-said > span").textContent,
        node.querySelector("figure").classList.contains("stale")];
    }})()""")
    assert (problem, said, stale) == ("not so", "", True)


def test_the_path_of_a_token_has_its_vectors_scores_and_what_would_follow(js):
    title, terms, hints, rows = js("""(() => {
      const own = tokenPath();
      onPage(own.node);
      own.show({ view: { token: 1, head: 2 }, attention: { block1: { data: [0.25, 0.75, 0] } },
        scores: { block1: { data: [1, 2.5, -3e38] } }, path: {
          embedding: { data: [3, 4] }, query: { data: [0, 2] }, key: { data: [1, 0] },
          context: { data: [0, 0, 6, 8] }, after: [[["a", 0.5], ["b", 0.25]], [["b", 0.75], ["c",
          0.1]]] } }, "block1", ["x", "y z", "w"]);
      return [own.node.querySelector("h3").textContent, textsIn(own.node, "dt"),
        textsIn(own.node, "dd .hint"), textsIn(own.node, "tr")];
    })()""")
    assert title == "The path of “y␣z” through block1, head 2"
    assert terms == ["embedding", "query", "key", "scores", "weights", "context"]
    assert hints[0].endswith(": 2 numbers, length 5")
    assert hints[3].endswith(": the largest is 2.5")
    assert hints[4].endswith(": 75 % on “y␣z”")
    assert hints[5].endswith(": 4 numbers, length 10")
    assert rows == ["afterlikeliestno. 2", "embeddinga 50 %b 25 %", "block1b 75 %c 10 %"]


def test_bars_of_numbers_go_up_and_down_from_zero(js):
    paths = js("[[1, 2], [1, -2]].map((own) => barsOf('x', own).querySelector('path')"
               ".getAttribute('d'))")  # fmt: skip
    assert paths == ["M0.5,40V20.5M1.5,40V1.0", "M0.5,20V10.5M1.5,20V39.0"]
