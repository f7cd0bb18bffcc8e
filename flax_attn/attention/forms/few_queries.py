"""Attention of few queries to the many keys of a cache, as in decoding, on a CPU.

A query reads every key once, so the time is that of reading memory. The formula copies keys and
values, to zero hidden ones. Here they are read where they lie. Where a result is not finite,
perhaps for a NaN in a hidden key or value, the formula computes it again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn import platforms
from flax_attn.attention.arrays import add, product, wide
from flax_attn.attention.forms.blockwise import without_closure
from flax_attn.attention.normalizers import is_softmax, masked_softmax
from flax_attn.attention.scores import as_dot_product
from flax_attn.types import Tree

if TYPE_CHECKING:
    from flax_attn.attention.core import Call

MOST_QUERIES = 4
LEAST_NUMBERS = 2**16  # in the keys


def why_not(call: "Call") -> str:
    """Tells why the form does not fit a call; nothing where it does."""
    is_dot = as_dot_product(call.score) is not None
    num_queries = call.query.shape[-2]
    if platforms.current() != platforms.CPU or not call.is_cached:
        return "there is no cache of keys on a CPU"
    if not (is_softmax(call.normalizer) and is_dot) or call.chunk_size is not None:
        return "it is not softmax of dot products at once"
    if call.visible.is_symbolic or num_queries > MOST_QUERIES or call.key.size < LEAST_NUMBERS:
        return (
            f"there are more than {MOST_QUERIES} queries, or fewer than {LEAST_NUMBERS:,} numbers"
        )
    single = call.query.dtype == call.key.dtype == jnp.float32
    return "" if single and not call.dropout_rate else "it is not float32, or has dropout"


def attend(call: "Call") -> Array:
    """Computes the context `(..., q, e)`. The gradient is that of the formula."""

    def exact(query: Array, key: Array, value: Array) -> Array:
        return call._replace(query=query, key=key, value=value).dense()[0]

    def fast(query: Array, key: Array, value: Array) -> Array:
        context = _read(call, query, key, value)  # (..., q, e)
        is_finite = jnp.isfinite(context).all()
        return jax.lax.cond(is_finite, lambda: context, lambda: exact(query, key, value))

    arrays = call.query, call.key, call.value
    context = _read(call, *arrays)  # (..., q, e)
    # outside `jit` a `cond` would be compiled at every call
    if not isinstance(context, jax.core.Tracer):  # pyright: ignore
        return context if jnp.isfinite(context).all() else exact(*arrays)
    return _with_gradient_of(exact, fast, *arrays)


def _read(call: "Call", query: Array, key: Array, value: Array) -> Array:
    """Computes the formula without hiding: hidden keys and values are read with a weight of 0."""
    mask, bias = call.visible.block()  # (..., q, k) each, or None
    scores = call.score(query, key)  # (..., q, k)
    weights = masked_softmax(scores if bias is None else add(scores, bias), mask=mask)
    return product("...qk,...ke->...qe", weights, value, wide(value.dtype))  # (..., q, e)


def _with_gradient_of(exact: Callable, fast: Callable, *args: Array) -> Array:
    """Computes `fast(*args)`, with the gradient of `exact(*args)`, which is the same function."""
    fast_call, of_fast = without_closure(fast, *args)
    exact_call, of_exact = without_closure(exact, *args)

    @jax.custom_vjp
    def call(of_fast: list[Tree], of_exact: list[Tree], *args: Tree) -> Tree:
        return fast_call(of_fast, *args)

    def forward(of_fast: list[Tree], of_exact: list[Tree], *args: Tree) -> tuple[Tree, Tree]:
        return call(of_fast, of_exact, *args), (of_fast, of_exact, args)

    def backward(arguments: Tree, gradient: Tree) -> tuple:
        of_fast, of_exact, args = arguments
        _, pull = jax.vjp(exact_call, of_exact, *args)
        return [None] * len(of_fast), *pull(gradient)

    call.defvjp(forward, backward)
    return call(of_fast, of_exact, *args)
