"""The examples of a run as a page shows them: plain values, and packed attention weights."""

import numpy as np

from flax_attn.kinds import KINDS
from flax_attn.kinds.replies import pack
from flax_attn.runs.reading import Record
from flax_attn.types import JsonObject

NUM_EXAMPLES = 16
ROOM = 470_000  # bytes of all packed weights of a run
KEPT = 64  # weights a row, where all of them are too many

Weights = np.ndarray  # (heads, q, k)


def examples(run: Record) -> tuple[list[JsonObject], list[str]]:
    """The examples of a run, as many as there is room for, and lines on what was left out."""
    left_out = run.summary.get("left_out", [])
    lines = [f"The weights {name} are too large to be kept." for name in left_out]
    kind = KINDS[run.kind]
    number = min(kind.num_examples(run), NUM_EXAMPLES)
    made = [kind.example(run, i) for i in range(number)]
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
    """The attention of one example by name. Hops stand where heads do, with one query each."""
    return KINDS[run.kind].weights(run, index)


def _largest(weights: Weights) -> Weights:
    """The weights with all but the largest of each query at zero."""
    if weights.shape[-1] <= KEPT:
        return weights
    least = np.partition(weights, -KEPT, axis=-1)[..., -KEPT, None]
    return np.where(weights >= least, weights, 0)
