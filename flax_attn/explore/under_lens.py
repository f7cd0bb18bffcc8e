"""A model under a lens: its outputs, weights and scores, where the attention is changed.

A program is compiled once for each normaliser and each shape of the inputs. Temperature, reach,
causality and the hidden keys are arguments of it, so changing them compiles nothing.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flax_attn.attention import Lens, entmax15, hard, masked_softmax, sparsemax, top_k
from flax_attn.attention.arrays import with_rank
from flax_attn.models.forward import Inputs, Params
from flax_attn.tasks.asking import AS_TRAINED, FAR, MOST_TOKENS, Settings
from flax_attn.types import Tree

TOP = 3  # keys that top_k keeps
MOST_HEADS = 16  # attentions, and heads of each, that a page can ablate
NORMALIZERS = {
    AS_TRAINED: None,
    "softmax": masked_softmax,
    "entmax15": entmax15,
    "sparsemax": sparsemax,
    "top_k": functools.partial(top_k, k=TOP),
    "hard": hard,
}

# Parameters of every seed and inputs, to outputs by name, `attention` among them. Those whose
# attention is in a loop have `scores`, too.
Compute = Callable[[list[Params], Inputs], dict[str, Tree]]


Setting = Array | np.ndarray


class Traced(NamedTuple):
    """The settings that a compiled program takes as arguments."""

    temperature: Setting
    reach: Setting
    causal: Setting
    hidden: Setting
    cut: Setting  # (attentions, heads)

    @classmethod
    def of(cls, settings: Settings) -> "Traced":
        hidden = np.zeros(MOST_TOKENS, bool)
        hidden[list(settings.hidden)] = True
        cut = np.zeros((MOST_HEADS, MOST_HEADS), bool)
        for place in settings.cut:
            if max(place) < MOST_HEADS:
                cut[place] = True
        reach = FAR if settings.reach is None else min(settings.reach, FAR)
        temperature = np.asarray(settings.temperature, np.float32)
        return cls(
            temperature, np.asarray(reach, np.int32), np.asarray(settings.causal), hidden, cut
        )

    def visible(self, query: Array, key: Array, num_keys: int | None) -> Array:
        """Returns which keys `(1, k)` each query `(q, 1)` may attend to.

        Reach and causality have a meaning where queries and keys are the same sequence. With
        `num_keys`, attention on another number of keys is left alone.
        """
        queries, keys = query.shape[-2], key.shape[-1]
        if num_keys not in (None, keys):
            return jnp.ones((1, 1), bool)
        may = ~jnp.asarray(self.hidden).at[key].get(mode="fill", fill_value=False)
        if queries == keys:
            may &= (jnp.abs(query - key) <= self.reach) & (~self.causal | (key <= query))
        return may

    def ablating(self) -> Callable[[str, Array], Array]:
        """Returns a change of contexts, in which those of cut heads are zero.

        Attentions have the numbers of the order of their calls, as their weights have.
        """
        numbers: dict[str, int] = {}

        def ablate(site: str, context: Array) -> Array:  # (..., q, heads, e)
            number, heads = numbers.setdefault(site, len(numbers)), context.shape[-2]
            if max(number, heads - 1) >= MOST_HEADS:
                return context
            is_cut = jnp.asarray(self.cut)[number, :heads, None]  # (heads, 1)
            return jnp.where(with_rank(is_cut, context.ndim), 0, context)

        return ablate


def under_lens(compute: Compute, keep_scores: bool = True) -> Callable[..., dict[str, Tree]]:
    """Returns the program of a computation under settings, with the `scores` of attention by name.

    With `num_keys`, the mask is for the attention on as many keys alone.
    """

    @functools.partial(jax.jit, static_argnames=("normalizer", "num_keys"))
    def look(
        params: list[Params],
        inputs: Inputs,
        traced: Traced,
        normalizer: str,
        num_keys: int | None = None,
    ) -> dict[str, Tree]:
        lens = Lens(
            temperature=traced.temperature,
            normalizer=NORMALIZERS[normalizer],
            mask=lambda query, key: traced.visible(query, key, num_keys),
            keep_scores=keep_scores,
            change={"*/context": traced.ablating()},
        )
        with lens:
            computed = compute(params, inputs)
        scores = lens.scores if keep_scores else []
        return {"scores": by_name(scores, computed.get("attention", {}))} | computed

    return look


def by_name(scores: list[Array], attention: dict[str, Array]) -> dict[str, Array]:
    """Names scores in the order of calls as their weights; empty where they do not pair.

    Models of several seeds are called one after another, and the weights are of the first.
    """
    pairs = list(zip(attention.items(), scores))
    fit = len(scores) >= len(attention) and all(
        weights.size == array.size for (_, weights), array in pairs
    )
    return {name: array.reshape(weights.shape) for (name, weights), array in pairs} if fit else {}
