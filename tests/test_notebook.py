"""In a notebook the package trains, predicts and draws, and leaves the user's settings as they are.

nbconvert runs the notebook in a kernel of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent

PLOT = "import matplotlib.pyplot as plt\n_ = plt.plot([0, 1], [1, 0])"
SETTINGS = """
import json, logging, sys
import jax
import matplotlib
import numpy as np


def settings():
    return {
        "backend": matplotlib.get_backend(),
        "matplotlib": {key: repr(value) for key, value in matplotlib.rcParams.items()},
        "figures": plt.get_fignums(),
        "level": logging.root.level,
        "handlers": [repr(handler) for handler in logging.root.handlers],
        "arguments": sys.argv,
        "jax": {key: repr(value) for key, value in jax.config.values.items()},
    }


before = settings()
"""
TRAIN = """
import flax_attn

overrides = {"model.features": 8, "data.num_train": 64, "data.num_test": 8}
overrides |= {"steps_per_epoch": 2, "batch_size": 16}
trained = flax_attn.train("shapes_attention:quick", num_epochs=1, overrides=overrides)
run = flax_attn.load(trained.path)
prediction = run.predict(np.zeros((2, 100)))
"""
FIGURE = 'flax_attn.plot.attention(prediction.attention["attention"][0])'
COMPARE = "print(json.dumps([before, settings()]))"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Returns the outputs of each cell."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    folder = tmp_path_factory.mktemp("notebook")
    codes = (PLOT, SETTINGS, TRAIN, FIGURE, PLOT, COMPARE)
    cells = [nbformat.v4.new_code_cell(code) for code in codes]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "user.ipynb")
    own = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
    command = [sys.executable, "-m", "nbconvert", "--to=notebook", "--execute"]
    done = subprocess.run(
        [*command, "--output=run.ipynb", "user.ipynb"],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return [cell.outputs for cell in nbformat.read(folder / "run.ipynb", as_version=4).cells]


def test_the_users_plots_and_the_picture_of_attention_are_shown(outputs):
    for number in (0, 3, 4):  # a plot, the picture, a plot
        (output,) = outputs[number]
        assert len(output["data"]["image/png"]) > 5_000
    for number in (1, 2):  # no word from training or from those whom it calls
        assert outputs[number] == []


def test_the_users_settings_are_as_before(outputs):
    before, after = json.loads(outputs[-1][0]["text"])
    assert before["backend"].endswith("backend_inline")
    assert "jax_default_matmul_precision" in before["jax"]
    assert before == after
