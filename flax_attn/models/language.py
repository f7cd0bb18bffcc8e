"""What a language model says of texts `(n, t)`, and what it looks at."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from flax_attn.models.forward import Params, in_order
from flax_attn.types import Options, Tree

AT_ONCE = 64  # texts


@functools.partial(jax.jit, static_argnames="model")
def logits_of(
    model: nn.Module, params: Params, tokens: Int[Array | np.ndarray, "n t"]
) -> Float[Array, "n t v"]:
    """Computes the logits of the token after each."""
    return model.apply({"params": params}, tokens)[0]


def attention_of(
    model: nn.Module, params: Params, tokens: Int[np.ndarray, "n t"]
) -> dict[str, Float[np.ndarray, "n h t t"]]:
    """Computes the weights of each block of `GPT`, by its name."""
    return look(model, params, tokens)[1]


def look(
    model: nn.Module, params: Params, tokens: Int[np.ndarray, "n t"]
) -> tuple[Float[np.ndarray, "n t v"], dict[str, Float[np.ndarray, "n h t t"]]]:
    """Computes the logits of the token after each, and the weights of each block by its name."""
    logits, attention = jax.device_get(_look(model, params, tokens))
    return logits, in_order(attention)


@functools.partial(jax.jit, static_argnames="model")
def _look(model: nn.Module, params: Params, tokens: Int[Array, "n t"]) -> tuple[Array, Tree]:
    options: Options = {"need_weights": True}
    applied: Tree = model.apply({"params": params}, tokens, **options)
    return applied[0], applied[1]["attention"]


def loss_by_position(
    model: nn.Module,
    params: Params,
    inputs: Int[np.ndarray, "n t"],
    targets: Int[np.ndarray, "n t"],
) -> Float[np.ndarray, " t"]:
    """Computes the mean cross-entropy at each position, NaN where all is padding."""
    totals = np.zeros((2, inputs.shape[1]))
    filling = ((0, -len(inputs) % AT_ONCE), (0, 0))  # rows of padding, so that one program does
    inputs, targets = np.pad(inputs, filling), np.pad(targets, filling)
    for first in range(0, len(inputs), AT_ONCE):
        rows = slice(first, first + AT_ONCE)
        totals += np.asarray(_totals(model, params, inputs[rows], targets[rows]))
    return np.where(totals[1] > 0, totals[0] / np.maximum(totals[1], 1), np.nan)


@functools.partial(jax.jit, static_argnames="model")
def _totals(
    model: nn.Module, params: Params, inputs: Int[Array, "n t"], targets: Int[Array, "n t"]
) -> Float[Array, "2 t"]:
    """Sums the losses at each position, and counts them."""
    logits, mask = logits_of(model, params, inputs), targets > 0
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.stack([jnp.where(mask, losses, 0).sum(axis=0), mask.sum(axis=0)])
