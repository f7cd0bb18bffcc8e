"""Runs with random parameters that live, and what node makes of them."""

import base64
import functools
import importlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

from flax_attn.experiment.config import Config
from flax_attn.experiment.loading import Run
from flax_attn.experiment.programs import build_model
from flax_attn.explore.graph import body_graph
from flax_attn.explore.live import programs_of, written
from flax_attn.explore.primitives import bodies
from flax_attn.tasks.artifacts import Kept
from flax_attn.tasks.language import LanguageModel

SCRIPT = Path(__file__).parent.parent / "page" / "check_live.mjs"
DIGITS = list("0123456789")
CLASSES = {"classes": DIGITS, "class_weights": [1.0] * 10}
SIGNAL = {"shape": [100, 1], "inputs": {"mean": 11.0, "std": 6.0}}
NUMBER = {"targets": {"mean": 26.0, "std": 9.0}}
LABELS = {"num_classes": 10}, {"labels.json": DIGITS}
KEPT = {  # facts about the data, of tasks whose runs live
    "signal-signal": Kept(SIGNAL, {}, {}),
    "signal-classes": Kept(SIGNAL | CLASSES, *LABELS),
    "signal-number": Kept(SIGNAL | NUMBER, {}, {}),
    "image-classes": Kept({"shape": [28, 28]} | CLASSES, *LABELS),
    "image-number": Kept({"shape": [32, 32]} | NUMBER, {"num_classes": 1}, {}),
}
SERIES = {"shape": [20, 8]}
OWN_FILES = ("signals_npz", "images_folder", "text_file", "images_numbers")
OWN_FILES += ("signals_classes", "series_classes", "letters_tsv")
CHARACTERS = ["<PAD>", "<UNK>", "\n", *"abcdefghijklmnopqrstuvwxyz"]
LETTERS = {"tokenizer.json": {"kind": "character", "entries": CHARACTERS}}
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None and not os.environ.get("CI"), reason="needs node; apt-get install nodejs"
)


def run_of(name, kept=None, **changes):
    """A run of a config whose parameters are random.

    `kept` is what its data decide, and `changes` are of its model.
    """
    config = importlib.import_module(f"configs.{name}").get_config()
    config.model.update(changes)
    if name in OWN_FILES:
        config.data.file = "own"
    config = Config.of(config)
    if kept is None and config.task is LanguageModel:
        sizes = {"vocabulary_size": len(CHARACTERS), "max_length": config.data.max_length}
        kept = Kept({}, sizes, LETTERS)
    else:
        kept = kept or KEPT[config.task.name]
        if "series" in name:
            kept = kept._replace(derived=kept.derived | SERIES)
    task = config.task.restore(config.data, config.recipe, kept)
    model = build_model(config, task.kept.sizes)
    one = jax.tree.map(lambda array: array[:1], task.sample())
    params = jax.jit(model.init)(jax.random.key(0), one)["params"]
    random = np.random.default_rng(0)
    moved = lambda leaf: np.asarray(leaf + 0.05 * random.normal(size=leaf.shape), np.float32)
    return Run(Path("none"), task, model, {0: jax.tree.map(moved, params)}, config, {}, [])


def random_inputs(run, number, seed=0):
    """Examples in the user's units."""
    random = np.random.default_rng(seed)
    shape = run.task.sample().shape[1:]
    drawn = random.uniform(0, 1, (number, *shape)).astype(np.float32)
    return drawn * 25 if run.task.inputs.name == "signal" else drawn


def packed(array):
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def evaluated(graph, outputs, content, inputs):
    """A graph with all its values by JAX, and the graphs that its equations hold, likewise."""
    shipped, equations = graph.needed(outputs)
    made = [value for equation in equations for value in equation.outputs]
    order = [*graph.inputs, *shipped, *made]
    values = dict(zip(order, graph.evaluate(order, dict(zip(graph.inputs, inputs)))))
    yield {"graph": content, "values": [packed(values[value]) for value in order]}
    for equation, (name, params, _, _) in zip(equations, content["equations"]):
        if name == "scan":  # its program on the first step
            first = params["num_consts"] + params["num_carry"]
            operands = [values[value] for value in equation.inputs]
            step = -1 if params["reverse"] else 0
            operands = operands[:first] + [array[step] for array in operands[first:]]
            (body,) = bodies(equation.source)["jaxpr"]
            yield from evaluated(*body_graph(body), params["jaxpr"][0], operands)


def settings_as_arrays(temperature=1.0, reach=None, causal=False, hidden=()):
    from flax_attn.explore.under_lens import Traced
    from flax_attn.tasks.asking import Settings

    return Traced.of(Settings("as trained", temperature, reach, causal, tuple(hidden)))


def in_node(folder, content):
    """What the script says of a content."""
    paths = folder / "in.json", folder / "out.json"
    paths[0].write_text(json.dumps(content, allow_nan=False))
    subprocess.run([NODE, str(SCRIPT), *map(str, paths)], check=True, timeout=300)
    return json.loads(paths[1].read_text())


@functools.cache
def programs(name, **changes):
    run = run_of(name, **changes)
    made = programs_of(run)
    return run, made, written(run, made)
