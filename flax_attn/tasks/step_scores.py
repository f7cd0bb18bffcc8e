"""Scores of attention in a loop, which no score can leave: each step is taken once more by itself.

A step returns its weights, and a lens can put the scores in their place. That step's state is not
used: the loop goes on with the one of the real weights.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention import Lens
from flax_attn.models.forward import Inputs, Params
from flax_attn.models.series import InputAttentionRNN
from flax_attn.models.translation import Seq2Seq
from flax_attn.types import Tree


def as_they_are(scores: Array, mask: Array | None = None) -> Array:
    """Returns the scores in the place of weights."""
    return scores


def _applied(model: nn.Module, params: Params) -> Callable[..., Tree]:
    """Returns the methods of a model with its parameters, by name."""
    return functools.partial(model.apply, {"params": params})


def of_series(model: nn.Module, params: Params, inputs: Inputs) -> Array:
    """Computes the scores `(b, t, series)` of each step of some series `(b, t, series)`."""
    apply = _applied(model, params)

    def one_step(state: Array, x: Array) -> tuple[Array, Array]:
        with Lens(normalizer=as_they_are):
            _, scored = apply(state, x, method="step")  # the next state is of scores, not used
        state, _ = apply(state, x, method="step")
        return state, scored.weights

    inputs = jnp.asarray(inputs)
    start = apply(inputs, method="start")
    _, scores = jax.lax.scan(one_step, start, jnp.swapaxes(inputs, 0, 1))  # (t, b, series)
    return jnp.swapaxes(scores, 0, 1)  # (b, t, series)


def of_translations(
    model: nn.Module, params: Params, inputs: Inputs, tokens: Array, end: int
) -> Array:
    """Computes scores `(b, n, t, s)` of each token of translations `(b, n, t)` of each source."""
    apply = _applied(model, params)
    memory = apply(inputs, method="encode")

    def one_step(state: Tree, token: Array) -> tuple[Tree, Array]:
        with Lens(normalizer=as_they_are):
            _, _, scores = apply(state, token, memory, method="decode_step")  # scores (b, n, s)
        _, state, _ = apply(state, token, memory, method="decode_step")
        return state, scores

    batch, number, _ = tokens.shape
    state = apply(memory, tokens.shape[-1], method="start")
    widen = lambda leaf: jnp.broadcast_to(leaf, (batch, number, *leaf.shape[2:]))
    state = jax.tree.map(widen, state)  # (b, n, ...)
    before = jnp.concatenate([jnp.full_like(tokens[..., :1], end), tokens[..., :-1]], axis=-1)
    _, scores = jax.lax.scan(one_step, state, jnp.moveaxis(before, -1, 0))  # (t, b, n, s)
    return jnp.moveaxis(scores, 0, 2)  # (b, n, t, s)


def has_scores(model: nn.Module) -> bool:
    """Returns whether weights of the model are normalized scores that a step can return.

    A Transformer that translates has the mean weights of several heads, and around a position
    weights are multiplied by a Gaussian.
    """
    if isinstance(model, Seq2Seq):
        return model.reach == 0
    return isinstance(model, InputAttentionRNN)
