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


def losses(
    model: nn.Module,
    params: Params,
    inputs: Int[np.ndarray, "n t"],
    targets: Int[np.ndarray, "n t"],
) -> Float[np.ndarray, "n t"]:
    """Computes the cross-entropy of each token, 0 where there is padding."""
    number, filling = len(inputs), ((0, -len(inputs) % AT_ONCE), (0, 0))  # for one program
    inputs, targets = np.pad(inputs, filling), np.pad(targets, filling)
    rows = [slice(first, first + AT_ONCE) for first in range(0, number, AT_ONCE)]
    found = [np.asarray(_losses(model, params, inputs[some], targets[some])) for some in rows]
    return np.concatenate(found)[:number]


@functools.partial(jax.jit, static_argnames="model")
def _losses(
    model: nn.Module, params: Params, inputs: Int[Array, "n t"], targets: Int[Array, "n t"]
) -> Float[Array, "n t"]:
    logits = logits_of(model, params, inputs)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.where(targets > 0, losses, 0)
