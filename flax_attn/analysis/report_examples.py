"""The examples of a run as a report shows them: plain values, and packed attention weights."""

import base64
import zlib
from collections.abc import Callable

import numpy as np

from flax_attn.analysis import shapes
from flax_attn.analysis.token_lines import printable
from flax_attn.analysis.token_weights import of_hops
from flax_attn.runs.reading import Record
from flax_attn.types import JsonObject

NUM_EXAMPLES = 16
ROOM = 470_000  # bytes of all packed weights of a run
KEPT = 64  # weights a row, where all of them are too many
FIRST_WORD = 2  # of a vocabulary: before it are padding and the unknown word
DIGITS = 5  # significant ones

Weights = np.ndarray  # (heads, q, k)


def examples(run: Record) -> tuple[list[JsonObject], list[str]]:
    """The examples of a run, as many as there is room for, and lines on what was left out."""
    left_out = run.summary.get("left_out", [])
    lines = [f"The weights {name} are too large to be kept." for name in left_out]
    if run.pictures == "language":
        made = [_language(run)]
        number = len(made)
    else:
        number = min(len(run.examples["inputs"]), NUM_EXAMPLES)
        made = [EXAMPLES[run.pictures](run, i) for i in range(number)]
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
    """The attention of one example by name, as `(heads, q, k)` without padding.

    Hops stand where heads do, with one query each, and pooling without queries has one.
    """
    if run.pictures == "language":
        return {name: np.asarray(weights) for name, weights in run.attention.items()}
    cut = {name: weights[index] for name, weights in run.attention.items()}
    return {name: _cut(run, index, name, weights) for name, weights in cut.items()}


def _cut(run: Record, index: int, name: str, weights: np.ndarray) -> Weights:
    if weights.ndim == 1:
        weights = weights[None, None]
    elif weights.ndim == 2:
        weights = weights[:, None] if of_hops(name) else weights[None]
    if run.pictures == "texts":
        length = int(run.examples["lengths"][index])
        return weights[:, :length, :length]
    if run.pictures == "translation":
        target = int(run.examples["prediction_lengths"][index])
        return weights[:, :target, : int(run.examples["source_lengths"][index])]
    return weights


def pack(weights: np.ndarray) -> JsonObject:
    """Numbers in [0, 1] as bytes of their square roots, deflated, in base64.

    `broken` lists what is not a finite number.
    """
    flat = np.asarray(weights, np.float32).ravel()
    broken = np.flatnonzero(~np.isfinite(flat))
    clean = np.clip(np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0), 0, 1)
    roots = np.round(255 * np.sqrt(clean)).astype(np.uint8)
    text = base64.b64encode(zlib.compress(roots.tobytes(), 9)).decode()
    packed = {"shape": list(weights.shape), "data": text}
    return packed | ({"broken": broken.tolist()} if broken.size else {})


def _largest(weights: Weights) -> Weights:
    """The weights with all but the largest of each query at zero."""
    if weights.shape[-1] <= KEPT:
        return weights
    least = np.partition(weights, -KEPT, axis=-1)[..., -KEPT, None]
    return np.where(weights >= least, weights, 0)


def numbers(values: np.ndarray) -> list:
    """Numbers with as many digits as a picture shows, nested as the array is."""
    if values.ndim > 1:
        return [numbers(row) for row in values]
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]


def _signal(run: Record, index: int) -> JsonObject:
    """Channels `(channels, t)` of a signal, and the shapes in it."""
    held = {name: run.examples[name][index] for name in ("inputs", "targets", "predictions")}
    channels = {name: numbers(np.atleast_2d(array.T)) for name, array in held.items()}
    shown = shapes.marks_of(run, index)
    heights = shown["heights"].tolist() if shown else []
    marks = [
        {"kind": kind, "center": center, "first": first, "last": last, "height": height}
        for (center, first, last, kind, _, _), height in zip(shapes.spans(shown), heights)
    ]
    return channels | {"marks": marks}


def _image(run: Record, index: int) -> JsonObject:
    """An image as ink, 1 for black, and its classes."""
    image = run.examples["inputs"][index]
    image = image if run.config["data"]["name"] == "mnist" else 1 - image
    return {"image": pack(image)} | _classes(run, index)


def _text(run: Record, index: int) -> JsonObject:
    length = int(run.examples["lengths"][index])
    tokens = written(run.examples["words"][index, :length])
    ids = run.examples["inputs"][index, :length]
    known = [bool(token >= FIRST_WORD) for token in ids]
    return {"tokens": tokens, "known": known} | _classes(run, index)


def _classes(run: Record, index: int) -> JsonObject:
    """The probabilities of the classes, and the right one."""
    shares = run.examples["predictions"][index]
    return {"predictions": numbers(shares), "target": int(run.examples["targets"][index])}


def _series(run: Record, index: int) -> JsonObject:
    """The input series `(series, t)`, and the output beside what is predicted."""
    held = {name: run.examples[name][index] for name in ("inputs", "targets", "predictions")}
    return {name: numbers(np.atleast_2d(array.T)) for name, array in held.items()}


def _translation(run: Record, index: int) -> JsonObject:
    example = run.examples
    sources = example["source_words"][index, : example["source_lengths"][index]]
    targets = example["predicted_words"][index, : example["prediction_lengths"][index]]
    reference = printable(str(example["references"][index]))
    texts = {"source": written(sources), "tokens": written(targets)}
    return texts | {"reference": reference}


def _language(run: Record) -> JsonObject:
    """The first test text, whose tokens each look at those before them."""
    held = run.examples
    made: JsonObject = {"tokens": written(held["tokens"]) if "tokens" in held else []}
    made["losses"] = numbers(held["losses"])
    if "induction" in held:
        made["induction"] = numbers(held["induction"])
        made["string"] = written(held["string"])
        made["induction_weights"] = pack(held["induction_weights"][None])
    return made


def written(tokens: np.ndarray) -> list[str]:
    """Tokens as a page shows them."""
    return [printable(token) for token in tokens.tolist()]


EXAMPLES: dict[str, Callable[[Record, int], JsonObject]] = {
    "signals": _signal,
    "images": _image,
    "texts": _text,
    "series": _series,
    "translation": _translation,
}
