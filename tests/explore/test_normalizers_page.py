"""The curve of a normaliser that a page draws goes through the library's weights."""

import json
import subprocess

import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.explore.under_lens import NORMALIZERS, TOP
from flax_attn.tasks.asking import AS_TRAINED
from tests.explore import living

pytestmark = living.needs_node

RANDOM = np.random.default_rng(0)
SCORES = [
    RANDOM.normal(size=9),
    3 * RANDOM.normal(size=40),
    RANDOM.normal(size=5) - 100,  # far from 0
    np.array([2.0, 2.0, 1.0, 2.0, 2.0]),  # equal ones
    np.array([0.5]),  # one key
]
UNTIED = (0, 1, 2, 4)
STEPS = [np.linspace(row.min() - 1, row.max() + 1, 61) for row in SCORES]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("normalizers")
    content = {"scores": SCORES, "steps": STEPS}
    text = json.dumps(content, default=np.ndarray.tolist)
    (folder / "in.json").write_text(text)
    script = living.SCRIPT.parent / "check_normalizers.mjs"
    subprocess.run([living.NODE, script, folder / "in.json", folder / "out.json"], check=True)
    return json.loads((folder / "out.json").read_text())


def curve_of(name, steps, scores, weights):
    """The weight of a score `s` beside these: the threshold is the library's, from the best key."""
    best, most, number = scores.max(), weights.max(), min(TOP, len(scores))
    least = np.sort(scores)[-number]
    exponential = most * np.exp(steps - best)
    return {
        "softmax": exponential,
        "entmax15": np.maximum(steps / 2 - best / 2 + np.sqrt(most), 0) ** 2,
        "sparsemax": np.maximum(steps - best + most, 0),
        "top_k": np.where(steps < least, 0, exponential),
        "hard": np.where(steps < best, 0, 1),
    }[name]


def test_weights_and_curves_are_the_librarys(drawn):
    assert list(drawn) == [name for name in NORMALIZERS if name != AS_TRAINED]
    for name, made in drawn.items():
        for i, scores in enumerate(SCORES):
            expected = NORMALIZERS[name](jnp.asarray(scores, jnp.float32), mask=None)
            weights = np.asarray(expected, np.float64)
            np.testing.assert_allclose(made["weights"][i], weights, atol=2e-5, err_msg=name)
            if i in UNTIED:
                curve = curve_of(name, STEPS[i], scores, weights)
                np.testing.assert_allclose(made["curves"][i], curve, atol=1e-4, rtol=2e-3)
