"""From a trained decoder to translations of any number of sources."""

import dataclasses
import functools
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float
from msgspec import Meta

from flax_attn.models.generation import NEVER
from flax_attn.models.search import Decoded, beam_search, greedy
from flax_attn.models.sizes import ROWS, batches, longer, rounded
from flax_attn.schema import NonNegativeFloat
from flax_attn.types import Tree

SEQUENCES_AT_ONCE = 320  # 64 sources with a beam of 5
MOST_BEAM = 1_000


class Translation(NamedTuple):
    """One sequence that a source became.

    `tokens` leave out the end of sequence, `ended` says whether it came, and `alignment` holds the
    weights `(t, s)`.
    """

    tokens: list[int]
    score: float
    ended: bool
    alignment: Float[np.ndarray, "t s"]


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How sequences are searched for.

    Attributes:
        beam: beginnings that are kept at every step; 1 is greedy.
        length_penalty: the larger, the more long sequences are preferred; 0 for not at all.
    """

    beam: Annotated[int, Meta(ge=1, le=MOST_BEAM)] = 5
    length_penalty: NonNegativeFloat = 1.0


@runtime_checkable
class StepDecoder(Protocol):
    """A model with methods `encode(inputs) -> memory`, `start(memory, max_length) -> state` and
    `decode_step(state, tokens, memory) -> (logits, state, weights)`, which its `apply` calls.

    It may have `start_token`, if that is not the end, and `num_unwritten` and `sequences_at_once`.
    """

    def apply(self, variables: Tree, *args: Tree, method: str | None = None) -> Tree: ...


def translate(
    model: StepDecoder,
    params: Tree,
    inputs: dict[str, Tree],
    decoding: Decoding,
    *,
    end: int,
    max_length: int,
    num_best: int = 1,
) -> list[list[Translation]]:
    """Searches the best sequences for each `source` `(n, s)` with its `source_lengths` `(n,)`.

    Other arguments are those of `beam_search`. Tokens 0 and 1, for padding and for what is unknown,
    never come, unless a model has another number of such tokens.
    """
    lengths = np.asarray(inputs["source_lengths"])
    order, translations = np.argsort(lengths, kind="stable"), {}
    most = getattr(model, "sequences_at_once", SEQUENCES_AT_ONCE)
    at_once = max(most // decoding.beam, 1)
    for rows in (order[first : first + at_once] for first in range(0, len(order), at_once)):
        longest = int(lengths[rows].max())
        cut = {"source": np.asarray(inputs["source"])[rows, :longest]}
        cut = longer(cut | {"source_lengths": lengths[rows]}, rounded(longest))
        options = {"decoding": decoding, "end": end, "max_length": max_length, "num_best": num_best}
        size = next(size for size in (*ROWS[:2], at_once) if len(rows) <= size)
        ((_, batch),) = batches(cut, size=min(size, at_once))
        decoded = jax.device_get(decode(model, params, batch, **options))
        for i, row in enumerate(rows):
            translations[int(row)] = _translations(decoded, i, int(lengths[row]))
    return [translations[i] for i in range(len(lengths))]


@functools.partial(jax.jit, static_argnames=("model", "decoding", "end", "max_length", "num_best"))
def decode(
    model: StepDecoder,
    params: Tree,
    inputs: dict[str, Array],
    *,
    decoding: Decoding,
    end: int,
    max_length: int,
    num_best: int,
) -> Decoded:
    """Searches the best sequences for each source of a batch; arguments as in `translate`."""
    apply = functools.partial(model.apply, {"params": params})
    memory = apply(inputs, method="encode")
    step = lambda state, tokens: apply(state, tokens, memory, method="decode_step")
    state = apply(memory, max_length, method="start")
    common: dict[str, Tree] = {"end": end, "max_length": max_length}
    common["first"] = getattr(model, "start_token", end)
    common["forbidden"] = tuple(range(getattr(model, "num_unwritten", NEVER)))
    common["length_penalty"] = decoding.length_penalty
    if decoding.beam == num_best == 1:
        return greedy(step, state, **common)
    return beam_search(step, state, beam=decoding.beam, num_best=num_best, **common)


def _translations(decoded: Decoded, i: int, num_source: int) -> list[Translation]:
    return [
        Translation(tokens[:n].tolist(), float(score), bool(ended), weights[:n, :num_source])
        for tokens, n, score, ended, weights in zip(*(leaf[i] for leaf in decoded))
    ]
