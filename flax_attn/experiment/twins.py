"""Does attention help? A run beside twins that learn no weights, on the same seeds and data.

A twin is the model of the run, trained under a lens that replaces the weights of every attention.
The runs of twins stand in a folder beside that of the run. They are compared and reported; `load`
refuses them, as their models attend otherwise without the lens.
"""

from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flax_attn import config_files, schema
from flax_attn.attention import Lens
from flax_attn.experiment.config import Config, changes
from flax_attn.experiment.running import run
from flax_attn.runs import stored
from flax_attn.runs.results import Summary
from flax_attn.schema import require
from flax_attn.tasks.comparison import ExampleScores, against
from flax_attn.types import ConfigValues, UserInput

NO_ATTENTION = ("bilstm", "cnn", "lstm", "mlp")
NO_OTHER_PATH = ("cnn_attention", "gru_attention", "patch_attention")  # around the attention
UNIFORM, IDENTITY, CNN = "uniform weights", "each position alone", "convolutions alone"
ABOUT = {
    UNIFORM: "every query sees the mean of its keys, and what else the model computes",
    IDENTITY: "every position sees itself, and what else the model computes",
    CNN: "the model of shapes_cnn, without attention",
}


def uniform(scores: Array, mask: Array | None = None) -> Array:
    """Gives all visible keys of a query the same weight; 0 where none is visible."""
    visible = jnp.ones(scores.shape, bool) if mask is None else jnp.broadcast_to(mask, scores.shape)
    return visible / jnp.maximum(visible.sum(axis=-1, keepdims=True), 1).astype(scores.dtype)


def identity(name: str, weights: Array) -> Array:
    """Gives the whole weight of each position to itself, where queries are keys."""
    queries, keys = weights.shape[-2:]
    if queries != keys:
        return weights  # a query is no key there
    return jnp.broadcast_to(jnp.eye(keys, dtype=weights.dtype), weights.shape)  # (..., q, k)


def twins_of(config: Config) -> dict[str, tuple[ConfigValues, Lens]]:
    """Returns the configs of the twins, and the lens under which each is trained, by name."""
    twins = {UNIFORM: (config.values, Lens(normalizer=uniform))}
    if config.model["name"] in NO_OTHER_PATH:
        twins[IDENTITY] = config.values, Lens(normalizer=uniform, change={"*weights": identity})
    name, _, variant = config.name.partition(":")
    if config.values["data"]["name"] == "shapes" and name != "shapes_cnn":
        known = f"shapes_cnn:{variant}" if variant in ("quick", "tutorial") else "shapes_cnn"
        twins[CNN] = on_same_data(config, known), Lens()
    return twins


def on_same_data(config: Config, name: str) -> ConfigValues:
    """Returns the config of a name, on the data of another and with what its user has changed."""
    changed = {key: value for key, (value, _) in changes(config.values)[0].items()}
    own = {key: value for key, value in changed.items() if not key.startswith(("data.", "model."))}
    base = schema.flatten(config_files.read(name))
    values = {key: value for key, value in base.items() if not key.startswith("data.")}
    return values | schema.flatten({"data": config.values["data"]}) | own


def run_with_twins(config: Config, workdir: Path, **options: UserInput) -> Summary:
    """Trains a config and its twins, and adds the twins to the comparisons of the run.

    Arguments and errors are those of `running.run`. A model without attention, a single test
    example and several processes are a UsageError, too.
    """
    require(jax.process_count() == 1, "one process with --twin")
    attends = config.model["name"] not in NO_ATTENTION
    require(attends, f"a model with attention, got {config.model['name']}")
    say = options.get("say", print)
    summary = run(config, workdir, **options)
    scores = scores_of(workdir)
    comparisons = summary.get("comparisons", [])
    require(comparisons, "several test examples to compare twins on")
    options.pop("on_model", None)
    for name, (values, lens) in twins_of(config).items():
        say(f"twin with {name}: {ABOUT[name]}")
        content = getattr(config.data, "content", None)  # of data from Python
        twin = Config.of(values, content=content)
        folder = workdir.with_name(f"{workdir.name}-twins") / name.replace(" ", "_")
        with lens:
            run(twin, folder, **options)
        if name != CNN:
            kept = stored.read_json(folder / "config.json")
            kept["derived"]["twin"] = name  # by it, `load` refuses the run
            stored.write_json(folder / "config.json", kept)
        others = scores_of(folder)
        for comparison in comparisons:
            metric = comparison["metric"]
            beside = [one for one in comparison["beside"] if one["name"] != name]
            made = against(metric, name, scores[metric], others[metric])
            made["about"] = ABOUT[name]
            comparison["beside"] = [*beside, made]
    stored.write_json(workdir / "summary.json", cast(dict, summary))
    return summary


def scores_of(folder: Path) -> ExampleScores:
    """Reads the scores of the test examples of a run, by metric."""
    prefix = stored.SCORES
    with np.load(folder / stored.EXAMPLES) as held:
        return {name.removeprefix(prefix): held[name] for name in held if name.startswith(prefix)}
