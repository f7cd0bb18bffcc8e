"""The parts of a lesson's page that answer do what the lesson does.

A form says what `check` says, word for word. A network gives the outputs and weights of Flax.
"""

import ast
import contextlib
import io
import itertools
import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.parts import PARTS, as_json
from flax_attn.attention import (
    AttentionPooling,
    EncoderBlock,
    FeedForward,
    MultiHeadAttention,
    masks,
)
from flax_attn.data import shapes
from tests.faults import ROOT

no_node = pytest.mark.skipif(not shutil.which("node"), reason="node runs the pages' scripts")
pytestmark = [pytest.mark.slow, no_node]

SCRIPTS = ROOT / "docs" / "_static" / "course"
FORMS = [name for name, parts in PARTS.items() if "exercise" in parts]
# fmt: off
TEXTS = [
    "", "abc", "1,5", "131,072", "131 072", "131\N{NARROW NO-BREAK SPACE}072", "1 31072",
    "1,310,720", "131,072,5", "1,310 720", "1,0000", "0,500", "54,6%", "54.6%", "3,200 %", "5%%",
    "%", "1_000", "0x10", "nan", "-inf", "Infinity", "1e999", "-1", "-0.0", "0",
]
# fmt: on
TEXTS += ["1e-320", "1e-5", ".125", "0.5", "+1", "1.", "5050.7", "100", "10000", "1e6", "1e30"]
PAIRS = ["", "abc", "1,5", "nan", "inf", "-1", "0", "0.3125", "0.5", "1", "100", "5 050", "1e4"]
CLOSE = {  # to where the verdict changes
    "02_averaging_what_is_similar": ["0.9", "1", "1.2", "1.5", "2", "2.5", "3", "8", "24"],
    "03_scores": ["8", "31.8", "31.85", "31.99", "32", "32.15", "32.2", "123456.5", "1234567"],
    "05_one_layer_that_sees_everything": ["0.0349", "0.035", "0.07", "0.1", "0.14", "0.141", "17%"],
    "08_which_words_mattered": ["0.53", "0.54", "0.546", "0.55", "0.994", "0.996", "1.004"],
    "12_sparse_hard_local": ["1", "2", "5", "9.9", "9.98", "9.99", "10", "10.01", "10.02"],
    "04a_from_numpy_to_flax": ["15", "20", "20.0", "21", "twenty", "15+5"],
    "16_images_as_patches": ["4", "14", "16", "196", "197", "784", "50176"],
    "17_what_todays_models_changed": [
        "4096",
        "16384",
        "32768",
        "65536",
        "131072",
        "262144",
        "524288",
    ],
    "18_a_memory_that_forgets": ["3", "3.2", "4.914", "4.92", "4.925", "5", "6", "6.2", "6.205"],
}


def reads_number(text):
    """The number that a text says, as a share or with gaps between thousands, or the text."""
    if share := re.fullmatch(r"(.*[\d.]) ?%", text):
        number = reads_number(share[1])
        return text if isinstance(number, str) else number / 100
    is_grouped = re.fullmatch(r"[+-]?[1-9]\d{0,2}([,\s])\d{3}(\1\d{3})*", text)
    try:
        return float(re.sub(r"[,\s]", "", text) if is_grouped else text)
    except ValueError:
        return text


# decimals behind a comma, and behind a point
COMMAS = {"1,5": "1.5", "1,0000": "1.0000", "0,500": "0.500", "54,6%": "54.6%"}


def defined(name, *wanted):
    """Returns what a lesson makes before its exercise, as far as it is wanted, and its `check`."""
    source = (ROOT / "docs" / "course" / f"{name}.md").read_text(encoding="utf-8")
    cells = re.findall(r"^```\{code-cell\}\n(.*?)^```", source, re.MULTILINE | re.DOTALL)
    made = {"np": np, "jnp": jnp, "jax": jax, "nn": nn, "AttentionPooling": AttentionPooling}
    made["masks"] = SimpleNamespace(window=window)
    for cell in cells:
        code = re.sub(r"\A(---\n(.*\n)*?---\n|(:.*\n)+)", "", cell)
        for statement in ast.parse(code).body:
            names = {getattr(statement, "name", None)}
            if isinstance(statement, ast.Assign):
                stored = [node for target in statement.targets for node in ast.walk(target)]
                names = {node.id for node in stored if isinstance(node, ast.Name)}
            if names & {"check", *wanted}:
                exec(ast.unparse(statement), made)
    assert {"check", *wanted} <= set(made)
    return made


WANTED = {
    "01_soft_dictionary": "keys values",
    "02_averaging_what_is_similar": "rng read_at readings asked true_temperature estimate",
    "10_transformer_block": "norm attend feed_forward block x",
    "12_sparse_hard_local": "sparsemax_by_sorting",
}


def lesson(name):
    """Returns the names that `check` of a lesson needs. What is trained there is made up here."""
    made = defined(name, *WANTED.get(name, "").split())
    if name == "08_which_words_mattered":
        made["effects"] = np.random.default_rng(0).random((6, 64, 15))
        made["weights"] = made["effects"].copy()
        made["weights"][0, 35:] *= -1  # 35 of 64 agree
    if name == "09_encoder_and_decoder":
        right = jnp.arange(64)[:, None] * jnp.ones((1, 8)) < 20
        made["is_right"] = lambda params, target: right
        made |= {"kept": {100: None}, "target": None}
    if name == "10_transformer_block":
        encoder = EncoderBlock(MultiHeadAttention(4), FeedForward(128), pre_norm=True)
        params = encoder.init(jax.random.key(0), made["x"])["params"]
        made["stack"] = jax.tree.map(lambda array: array[None], params)
    if name == "15_which_head_does_it":
        made["effects"] = {"blocks_0/attention": jnp.array([0.125, 0.5, -0.25, 0.375])}
    return made


def answers_of(name, form):
    """Answers as the page reads them, and as `check` gets them."""
    if fields := form.get("fields"):
        is_pair = len(fields) == 2
        close = CLOSE.get(name, [])
        texts = itertools.product(PAIRS + close, repeat=2) if is_pair else zip(TEXTS + close)
        for row in texts:
            values = [reads_number(text) for text in row]
            yield list(row), (values if is_pair else values[0]) if any(row) else None
        return
    yield None, None
    if "grid" in form:
        query, key = np.arange(7)[:, None], np.arange(7)[None, :]
        expected = window(query, key, 1, 3)
        for i in range(49):
            mask = expected ^ (np.arange(49).reshape(7, 7) == i)
            yield mask.tolist(), clicked(mask)
        yield expected.tolist(), clicked(expected)
    elif form.get("several"):
        for size in range(1, len(form["choices"]) + 1):
            for some in itertools.combinations(form["choices"], size):
                yield some, some
    else:
        yield from zip(form["choices"], form["choices"])


def clicked(mask):
    """Returns the function that gives a mask that was clicked where it is asked for."""
    return lambda query, key, *bounds: mask if bounds == (1, 3) else window(query, key, *bounds)


def window(query, key, left, right):
    arrays = jnp.asarray(query), jnp.asarray(key)
    return np.asarray(masks.window(*arrays, left=left, right=right))


def with_point(held):
    """Returns what the page says to decimals behind a comma; no `check` gets them."""
    texts = [text for text in COMMAS if isinstance(held, list) and text in held]
    return f"Not yet: write a point for the comma, {COMMAS[texts[0]]}." if texts else ""


def said_by(check, answer):
    with contextlib.redirect_stdout(io.StringIO()) as said, np.errstate(all="ignore"):
        check(answer)
    return said.getvalue().removesuffix("\n")


def on_the_page(name, **asked):
    """The form of a lesson, what it says to answers, or what a function of its script returns."""
    command = ["node", ROOT / "tests" / "site" / "check_course.mjs", SCRIPTS / f"{name}.js"]
    said = json.dumps(asked) if asked else ""
    return json.loads(
        subprocess.run(command, input=said, check=True, capture_output=True, text=True).stdout
    )


@pytest.mark.parametrize("name", FORMS)
def test_a_form_says_what_the_lesson_says(name):
    made = lesson(name)
    answers = list(answers_of(name, on_the_page(name)))
    facts = json.loads(as_json(eval(PARTS[name]["exercise"], made)))
    verdicts = on_the_page(name, facts=facts, answers=[answer for answer, _ in answers])
    expected = [with_point(held) or said_by(made["check"], answer) for held, answer in answers]
    assert dict(enumerate(verdicts)) == dict(enumerate(expected))
    assert {text.split(":")[0] for text in expected} == {"Not answered yet.", "Not yet", "Right"}


def test_the_network_of_lesson_5_gives_what_flax_gives():
    name = "05_one_layer_that_sees_everything"
    network = defined(name, "Attention", "Network")["Network"](sees_all=True)
    drawn = shapes.generate(jax.random.key(0), 1).shapes
    parts = {"centers": drawn.centers[0], "widths": drawn.widths[0]}
    arrays = json.loads(as_json([parts, drawn.heights[0]]))
    signal = shapes.draw(drawn, drawn.heights)
    drawing = on_the_page(name, function="drawn", arguments=arrays)
    np.testing.assert_allclose(drawing, signal[0], atol=1e-4)
    scaled = (signal[..., None] - 3.3) / 6.0
    params = network.init(jax.random.key(1), scaled)["params"]
    outputs, weights = network.apply({"params": params}, scaled)
    arrays = json.loads(as_json([signal[0], params, 24]))
    page = on_the_page(name, function="levelled", arguments=arrays)
    np.testing.assert_allclose(page["outputs"], outputs[0, :, 0] * 6 + 3.3, atol=1e-3)
    np.testing.assert_allclose(page["weights"], weights[0, 24], atol=1e-5)


def test_the_network_of_lesson_8_gives_what_flax_gives():
    name = "08_which_words_mattered"
    made = defined(name, "WORDS", "Reader")
    tokens = jnp.array([[12, 6, 13, 9, 3, 12, 7, 13, 10, 0, 12, 8, 13, 11, 5]])
    model = made["Reader"]()
    params = jax.jit(model.init)(jax.random.key(0), tokens)
    output, weights, _ = jax.jit(model.apply)(params, tokens)
    arrays = json.loads(as_json([tokens[0], params["params"]]))
    page = on_the_page(name, function="praise", arguments=arrays)
    np.testing.assert_allclose(page["output"], output[0], atol=1e-5)
    np.testing.assert_allclose(page["weights"], weights[0], atol=1e-5)
