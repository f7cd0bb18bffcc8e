"""What a language model says of texts `(n, t)`, and what it looks at."""

import functools
from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from flax_attn.models import by_block
from flax_attn.models.by_block import InBlocks
from flax_attn.models.forward import Params, in_order
from flax_attn.models.sizes import in_batches
from flax_attn.types import Options, Tree


def logits_of(
    model: nn.Module,
    params: Params,
    tokens: Int[Array | np.ndarray, "n t"],
    last: Int[Array | np.ndarray, " n"] | None = None,
) -> Float[Array, "n *t v"]:
    """Computes the logits of the token after each, or after the one `last` in each text alone."""
    return apply(model, params, tokens, last, need_weights=False)[0]


def attention_of(
    model: nn.Module, params: Params, tokens: Int[np.ndarray, "n t"]
) -> dict[str, Float[np.ndarray, "n h t t"]]:
    """Computes the weights of each block of `GPT`, by its name."""
    last = np.zeros(len(tokens), np.int32)  # logits are not wanted
    return in_order(jax.device_get(apply(model, params, tokens, last, need_weights=True)[1]))


def apply(
    model: nn.Module,
    params: Params,
    tokens: Int[Array | np.ndarray, "n t"],
    last: Int[Array | np.ndarray, " n"] | None = None,
    *,
    need_weights: bool,
) -> tuple[Array, dict[str, Array]]:
    """Computes logits as `logits_of`, and the weights of each block if needed."""
    is_apart = by_block.is_large(model, params)
    compute = _apply if is_apart else _together
    return compute(model, params, tokens, last, need_weights=need_weights)


def _apply(
    model: nn.Module,
    params: Params,
    tokens: Int[Array | np.ndarray, "n t"],
    last: Int[Array | np.ndarray, " n"] | None,
    *,
    need_weights: bool,
) -> tuple[Array, dict[str, Array]]:
    if isinstance(model, InBlocks):
        x = by_block.begin(model, params, tokens)  # (n, t, d)
        x, attention, _ = by_block.through(model, params, x, need_weights=need_weights)
        return by_block.end(model, params, x, last), attention
    options: Options = {"need_weights": True} if need_weights else {}
    applied: Tree = cast(nn.Module, model).apply({"params": params}, tokens, **options)
    logits = applied[0] if last is None else by_block.at(applied[0], last)  # (n, v) or (n, t, v)
    return logits, applied[1].get("attention", {})


_together = jax.jit(_apply, static_argnames=("model", "need_weights"))


def losses(
    model: nn.Module,
    params: Params,
    inputs: Int[np.ndarray, "n t"],
    targets: Int[np.ndarray, "n t"],
) -> Float[np.ndarray, "n t"]:
    """Computes the cross-entropy of each token, 0 where there is padding."""
    return in_batches(lambda rows: _losses(model, params, *rows), (inputs, targets))


@functools.partial(jax.jit, static_argnames="model")
def _losses(
    model: nn.Module, params: Params, inputs: Int[Array, "n t"], targets: Int[Array, "n t"]
) -> Float[Array, "n t"]:
    logits = logits_of(model, params, inputs).astype(jnp.float32)  # (n, t, v)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)  # (n, t)
    return jnp.where(targets > 0, losses, 0)  # token 0 pads


def softmax(logits: Float[Array, "*b v"]) -> Float[Array, "*b v"]:
    """Returns probabilities in float32."""
    return jax.nn.softmax(logits.astype(jnp.float32), axis=-1)
