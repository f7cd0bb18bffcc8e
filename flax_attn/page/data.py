"""A run as the data of a report's page."""

import contextlib
import math
import platform
import shlex
from importlib import metadata

import numpy as np

from flax_attn import platforms
from flax_attn.analysis.token_weights import are_shares, of_hops
from flax_attn.errors import escaped
from flax_attn.experiment.config import changes
from flax_attn.runs.reading import Record, curve, late_median
from flax_attn.runs.results import Row
from flax_attn.tasks import TASKS, comparison
from flax_attn.tasks.replies import pack
from flax_attn.types import Json, JsonObject

PACKAGES = ("flax-attn", "jax", "flax", "numpy")
DIGITS = 6  # significant ones of a curve
NUM_EXAMPLES = 16
ROOM = 470_000  # bytes of all packed weights of a run
KEPT = 64  # weights a row, where all of them are too many

Weights = np.ndarray  # (heads, q, k)


def run_data(run: Record, live: JsonObject | None = None, note: str | None = None) -> JsonObject:
    """Returns all that a page shows of a run. Equal runs give equal data."""
    summary, measured = run.summary, f"test/{run.measured}"
    shown, lines = examples(run)
    has_trained = any(row["epoch"] > 0 for row in run.sound_rows)
    changed, is_known = changes(run.config)
    target = TASKS[run.task].target_class
    return {
        "name": run.name,
        "input": run.input,
        "target": target.name,
        "data": run.config["data"]["name"],
        "files": run.files,
        "task": run.config["data"].get("task", ""),
        "relevant": run.config["data"].get("relevant"),
        "classes": run.config.get("derived", {}).get("classes"),
        "does": target.summary(run),
        "sentence": sentence(run),
        "comparisons": comparisons_of(run),
        "command": command(run.config, changed),
        "changes": changed,
        "config_known": is_known,
        "versions": versions(),
        "trained_on": trained_on(run.config.get("derived", {})),
        "measured": run.measured,
        "num_test": num_test(run),
        "model": summary["model"],
        "parameters": summary["parameters"],
        "seeds": len(summary["seeds"]),
        "steps": summary["steps"],
        "minutes": round(summary["train_seconds"] / 60, 1),
        "diverged": sorted(summary.get("diverged", {})),
        "summary": summary["metrics"],
        "late": late_median(run.sound_rows, measured) if has_trained else None,
        "curves": curves(run.sound_rows),
        "attention": attention_of(run),
        "examples": shown,
        "beside": target.beside_examples(run),
        "lines": lines,
        "live": live,
        "note": note,
    }


def examples(run: Record) -> tuple[list[JsonObject], list[str]]:
    """Returns the examples of a run that there is room for, and lines on what was left out."""
    left_out = run.summary.get("left_out", [])
    lines = [f"The weights {name} are too large to be kept." for name in left_out]
    inputs, target = TASKS[run.task].input_class, TASKS[run.task].target_class
    number = min(inputs.num_examples, len(run.examples["inputs"]), NUM_EXAMPLES)
    made = [inputs.example(run, i) | target.example(run, i) for i in range(number)]
    weights = [weights_of(run, i) for i in range(number)]
    packed = [{name: pack(of_one) for name, of_one in row.items()} for row in weights]
    sizes = np.cumsum([sum(len(one["data"]) for one in row.values()) for row in packed])
    fitting = int((sizes <= ROOM).sum())
    if not fitting and number:
        packed = [{name: pack(_largest(of_one)) for name, of_one in weights[0].items()}]
        lines.append(f"Attention is large here: the {KEPT} largest weights of each query are kept.")
        fitting = 1
    if fitting < number:
        lines.append(f"Attention is large here: {fitting} of {number} examples are shown.")
    return [one | {"attention": row} for one, row in zip(made[:fitting], packed)], lines


def weights_of(run: Record, index: int) -> dict[str, Weights]:
    """Returns the attention of an example by name. Hops are heads with one query each."""
    return TASKS[run.task].input_class.weights(run, index)


def _largest(weights: Weights) -> Weights:
    """Returns the weights with all but the largest of each query at zero."""
    if weights.shape[-1] <= KEPT:
        return weights
    sizes = np.abs(weights)
    least = np.partition(sizes, -KEPT, axis=-1)[..., -KEPT, None]
    return np.where(sizes >= least, weights, 0)


def sentence(run: Record) -> str:
    """Returns the task of a run, and how well its model does it on test data."""
    said, seeds = TASKS[run.task].target_class.sentence(run), len(run.summary["seeds"])
    return f"{said}, mean of {seeds} seeds" if seeds > 1 else said


def num_test(run: Record) -> int | None:
    """Counts the test examples of an accuracy; None where the run does not record them."""
    classes = run.summary.get("classes", {})
    if run.measured != "accuracy" or not classes:
        return None
    return sum(round(scores["support"]) for scores in classes.values())


def comparisons_of(run: Record) -> list[JsonObject]:
    """Returns each figure of the test with its interval, and other models beside it."""
    gap = comparison.difference
    return [
        {
            "metric": one["metric"],
            "examples": one["examples"],
            "sentence": comparison.sentence(one),
            "about": [f"{o['name']}: {o['about']}" for o in one["beside"] if "about" in o],
            "rows": [
                [run.name, one["run"], None, ""],
                *(
                    [o["name"], {"mean": o["mean"]}, gap(one["metric"], o), comparison.verdict(o)]
                    for o in one["beside"]
                ),
            ],
        }
        for one in run.summary.get("comparisons", [])
    ]


def attention_of(run: Record) -> list[JsonObject]:
    """Returns the names of attentions, and how many heads or hops each has."""
    is_some = len(run.examples["inputs"])
    weights = weights_of(run, 0) if is_some else dict.fromkeys(run.attention, ())
    return [
        {"name": name, "heads": len(heads), "of": "hop" if of_hops(name) else "head"}
        | ({} if are_shares(run.attention[name]) else {"signed": True})
        for name, heads in weights.items()
    ]


def curves(rows: list[Row]) -> JsonObject:
    """Returns every metric by step and seed."""
    names = dict.fromkeys(key for row in rows for key in row if "/" in key)
    seeds = sorted({row["seed"] for row in rows})
    made = {}
    for name in names:
        steps, values = curve(rows, name)
        by_seed = {
            str(seed): [float(f"{value:.{DIGITS}g}") for value in row]
            for seed, row in zip(seeds, values.tolist())
        }
        made[name] = {"steps": steps.tolist(), "seeds": by_seed}
    return made


def command(config: JsonObject, changed: JsonObject) -> str:
    """Returns the command that reproduces a run."""
    flags = [f"--{key}={value}" for key, (value, _) in changed.items()]
    return shlex.join(["flax-attn", "train", config["name"], *flags])


def versions() -> dict[str, str]:
    """Returns the versions of what wrote the report."""
    held = {"Python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):  # of a checkout
            held[name] = metadata.version(name)
    return held


def trained_on(derived: JsonObject) -> str | None:
    """Returns the platform of a training, and the precision of its products if below float32."""
    platform, precision = derived.get("platform"), derived.get("matmul_precision")
    if platform is None or precision is None:
        return None
    products = platforms.products(platform, precision)
    is_less = products != "float32"
    return f"{platform}, with float32 multiplied in {products}" if is_less else platform


def safe(value: Json) -> Json:
    """Returns a value that JSON holds, numbers that are not finite as words and texts escaped."""
    if isinstance(value, dict):
        return {escaped(str(key)): safe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [safe(entry) for entry in value]
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
