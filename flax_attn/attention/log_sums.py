"""The logarithm of the sum that softmax divides by, which combines parts of attention."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention import looking, streaming
from flax_attn.attention.arrays import wide
from flax_attn.attention.checks import as_floats, check_chunk_size, check_function
from flax_attn.attention.core import dense
from flax_attn.attention.dot_products import scaled_dot
from flax_attn.attention.how import How
from flax_attn.attention.pairs import arrays_and_pairs
from flax_attn.attention.types import PerPair, Score, Vectors


def log_sum_exp(
    query: Vectors,
    key: Vectors,
    *,
    score: Score = scaled_dot,
    mask: PerPair | None = None,
    bias: PerPair | None = None,
    chunk_size: int | None = None,
) -> Float[Array, "... q"]:
    """The logarithm of the sum in softmax, `l_q = log sum_k exp(e_qk)` over the visible keys.

    It combines attention to parts of the keys: the context is the sum of the parts' contexts,
    weighted by the softmax of their `l`.

    Source: Dao et al. 2022 (arXiv:2205.14135), section 3.1.

    Args:
        query, key: `(..., q, d)`, `(..., k, d')`.
        score, mask, bias, chunk_size: as in `attend`.

    Returns:
        `(..., q)` in float32 or better; `-inf` for a query with nothing to attend.
    """
    nothing = as_floats("key", key)[..., :0]  # no context is wanted
    query, key, value, pairs = arrays_and_pairs(query, key, nothing)
    pairs = pairs.under(mask, bias)
    check_function("score", score)
    check_chunk_size(chunk_size)
    pairs, score = looking.of_softmax(pairs, score)
    if chunk_size is not None and 0 not in pairs.shape:
        _, logs = streaming.attend(query, key, value, pairs, How(score, chunk_size=chunk_size))
        return jnp.where(logs == jnp.inf, -jnp.inf, logs)
    visible = lambda scores, mask: scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    _, scores = dense(query, key, value, pairs, How(score, visible))
    scores = scores.astype(wide(scores.dtype))
    largest = jax.lax.stop_gradient(jnp.max(scores, axis=-1, initial=jnp.finfo(scores.dtype).min))
    total = jnp.sum(jnp.exp(scores - largest[..., None]), axis=-1)
    has_key = total != 0
    return jnp.where(has_key, largest + jnp.log(jnp.where(has_key, total, 1)), -jnp.inf)
