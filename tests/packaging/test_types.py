"""What a type checker makes of a user's file: no errors where it is right, an error in each wrong
line, and a type for every name of the Python face.

The checkers read the package as an installed one, whose own errors they do not show.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

RIGHT = """
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from matplotlib.figure import Figure
from ml_collections import ConfigDict

import flax_attn
from flax_attn import Prediction, Run
from flax_attn.attention import MultiHeadAttention, attend
from flax_attn.attention import nnx as fx
from flax_attn.data import shapes

FEATURES = {"model.features": 8, "data.num_train": 200}


def show(rows: list[dict[str, int | float]]) -> None:
    print(rows[0]["epoch"])


def trained(config: ConfigDict) -> list[Run]:
    signals = np.zeros((16, 30))
    numbers = {"train": (signals, signals), "test": (signals, signals)}
    texts = {"train": (["a film"], ["good"]), "test": (["a film"], ["good"])}
    return [
        flax_attn.train("shapes_cnn:quick", num_epochs=1, overrides=FEATURES, on_epoch=show),
        flax_attn.train(Path("mine.py"), data=numbers, workdir="runs/mine", say=print),
        flax_attn.train(config, data=texts, learning_rate=1e-3),
    ]


run = flax_attn.load(Path("runs/shapes_attention"), allow=["mine"])
prediction: Prediction = run.predict(shapes.generate(jax.random.key(0), 4)[0])
translated = run.predict(["ein hund"], beam=2, num_best=2)
weights = prediction.attention["attention"]
figure: Figure = flax_attn.plot.attention(weights[0], ["a", "b"], mask=np.tri(2) > 0, title="one")
flax_attn.plot.attention(weights[0], scale="linear", cmap="viridis", width=5.5, names=["one"])
flax_attn.plot.attention(weights[0], figsize=(5, 3), ax=figure.axes[0])
flax_attn.plot.attention_on_text(prediction.tokens[0], weights[0])
flax_attn.plot.attention_on_text(prediction.tokens, weights)
context, of_heads = attend(np.ones((2, 3)), np.ones((4, 3)), np.ones((4, 1)))
if of_heads is not None:
    flax_attn.plot.attention(of_heads)
rngs = nnx.Rngs(0)
feed = fx.FeedForward(8, nnx.gelu, in_features=4, rngs=rngs)
heads = fx.MultiHeadAttention(2, in_features=4, rngs=rngs)
block = fx.DecoderBlock(heads, None, feed, pre_norm=False, norm=nnx.RMSNorm, rngs=rngs)
page = flax_attn.show(np.ones((2, 2)), rows=["a", "b"], mask=np.tri(2) > 0, title="one", height=9)
pages: list[Path] = [
    flax_attn.show(context, ["a"], range(4), title="one").save(Path("page.html")),
    flax_attn.show({"one": np.ones((2, 2)), "two": np.ones((3, 2, 2))}).save("page.html"),
    flax_attn.show((np.ones((2, 2)), np.ones((2, 2))), rows="ab".split()).save("page.html"),
    flax_attn.show(run, "runs/shapes_cnn", model=False).save("page.html"),
]
error: float = run.summary["metrics"]["test/mse"]["mean"]
"""
TYPES = {  # a word of the type of each expression
    'flax_attn.train("shapes_cnn")': "Run",
    'flax_attn.load("runs/shapes_cnn")': "Run",
    "flax_attn.load": "Path | str",
    "flax_attn.plot.attention": "Figure",
    "flax_attn.plot.attention_on_text": "Figure",
    "run.predict": "Prediction",
    "run.path": "Path",
    "run.config": "Config",
    "run.config.data": "DataSet",
    "run.config.num_epochs": "int",
    "run.task": "Task",
    "run.model": "Module",
    "run.params": "dict[int, Mapping[str,",
    "run.summary": "Summary",
    'run.summary["metrics"]["test/mse"]': "Measure",
    "run.rows": "list[dict[str, int | float]]",
    "prediction.outputs": "ndarray",
    "prediction.names": "list[str]",
    "prediction.classes": "list[str]",
    "prediction.tokens": "list[list[str]]",
    "prediction.known": "list[list[bool]]",
    "prediction.attention": "ndarray",
    "prediction.translations[0][0].tokens": "list[int]",
    "prediction.translations[0][0].alignment": "ndarray",
    "prediction.written": "list[list[str]]",
    "prediction.target_tokens": "list[list[list[str]]]",
    "MultiHeadAttention(2)": "MultiHeadAttention",
    "of_heads": "Array",
    "block": "DecoderBlock",
    "block.attention.init_cache((2,), 8)": "KeyValueCache",
}
WRONG = """
import numpy as np
import flax_attn
from flax import nnx
from flax_attn.attention import nnx as fx
import flax_attn.attention as fa
from flax_attn.attention import MultiHeadAtention
run = flax_attn.load(3)
prediction = flax_attn.load("runs/shapes_cnn").predict()
flax_attn.lod("runs/shapes_cnn")
flax_attn.train("shapes_cnn", data={"train": np.zeros((16, 30))})
flax_attn.train("shapes_cnn", on_epoch=3)
flax_attn.train("shapes_cnn", overrides={"model.features": print})
flax_attn.plot.attention(np.ones((2, 3)), titel="weights")
flax_attn.plot.attention_on_text("a text", print)
flax_attn.show(np.ones((2, 2)), rows=3)
flax_attn.show(np.ones((2, 2)), tokens=["a", "b"])
flax_attn.load("runs/shapes_cnn").predict(print).output
flax_attn.load("runs/shapes_cnn").summary["metric"]
fa.MultiHeadAttention(2, dropout=0.1)
fa.MultiHeadAttention("2")
fa.EncoderBlock(fa.MultiHeadAttention(2))
fx.MultiHeadAttention(2, in_features=4, dropout=0.1, rngs=nnx.Rngs(0))
fx.MultiHeadAttention("2", in_features=4, rngs=nnx.Rngs(0))
fx.MultiHeadAttention(2, in_features=4)
fx.FeedForward(8, in_features="4", rngs=nnx.Rngs(0))
fx.LearnedPositions(8, 4)
fx.BlockStack(fx.EncoderBlock, 2)
"""
OPEN = r"d?type\[Any\]|tuple\[Any, \.\.\.\]|Mapping\[str, Any\]"  # of NumPy, JAX, a tree of arrays


def pyright(path):
    """Errors by line, and the types that are revealed."""
    if shutil.which("pyright") is None:
        pytest.skip("no pyright; pip install -e '.[dev]'")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    settings["reportMissingTypeStubs"] = False  # ml_collections has none
    (path.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=240)
    messages = json.loads(done.stdout)["generalDiagnostics"]
    errors = {
        message["range"]["start"]["line"] + 1: message["message"]
        for message in messages
        if message["severity"] == "error"
    }
    revealed = [
        re.fullmatch('Type of "(.*?)" is "(.*)"', message["message"])[2]
        for message in messages
        if message["severity"] == "information"
    ]
    return errors, revealed


def mypy(path):
    """Errors by line, and the types that are revealed."""
    pytest.importorskip("mypy")
    options = ["--strict", "--follow-imports=silent", "--ignore-missing-imports", "--no-pretty"]
    command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={path.parent}", path.name]
    done = subprocess.run(
        command,
        cwd=path.parent,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode < 2, done.stdout + done.stderr
    errors = {
        int(line): message
        for line, message in re.findall(r"^\w+\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    }
    return errors, re.findall(r'note: Revealed type is "(.*)"', done.stdout)


@pytest.mark.parametrize("check", [pyright, mypy])
def test_a_users_file_has_no_errors_and_every_name_has_a_type(check, tmp_path):
    path = tmp_path / "right.py"
    path.write_text(RIGHT + "".join(f"reveal_type({expression})\n" for expression in TYPES))
    errors, revealed = check(path)
    assert errors == {}
    for (expression, word), kind in zip(TYPES.items(), revealed, strict=True):
        kind = kind.replace("typing.", "").replace("pathlib.", "")
        assert word in kind, f"{expression} is {kind}"
        assert not re.search(r"\b(Any|Unknown)\b", re.sub(OPEN, "", kind)), (
            f"{expression} is {kind}"
        )


@pytest.mark.parametrize("check", [pyright, mypy])
def test_each_wrong_line_of_a_users_file_is_an_error(check, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    errors, _ = check(path)
    lines = WRONG.splitlines()
    assert set(range(7, len(lines) + 1)) <= errors.keys()
    assert not set(range(1, 7)) & errors.keys()
