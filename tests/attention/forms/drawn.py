"""Calls of attention drawn at random, in the terms of the kernels of GPUs and TPUs, with NaN where
nothing reaches; and what a form makes of them.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.attention.core import Attended, dot_product_attention, heads_last, make_call
from flax_attn.attention.scores import DotProduct
from tests.attention.compiled import run


class Drawn(NamedTuple):
    """A call: its arrays, its limits, and the factors of its scores. Some limits are arrays."""

    arrays: list[np.ndarray]
    limits: dict
    factors: dict

    def call(self, arrays=None, numbers=()):
        arrays = self.arrays if arrays is None else arrays
        options = {"score": DotProduct(**self.factors), "need_weights": False}
        return make_call(*arrays, in_heads=True, **options, **self.limits | dict(numbers))


def draw(rng, terms, lengths, widths=(8, 8)):
    """Draws a call with some of the terms, whose lengths lie below `lengths`."""
    has = lambda name: name in terms and rng.random() < 0.5
    rows, key_heads = ((2,), (2, 3), ())[rng.integers(3)], int(rng.choice([1, 2, 4]))
    num_queries, num_keys = (int(n) for n in rng.integers(1, lengths, 2))
    limits = {}
    if has("one query"):
        num_queries = 1
        limits |= {"query_offset": np.zeros(rows if has("rows") else (), int)}
        limits |= {"window": (None, 2)} if rng.random() < 0.3 else {"causal": True}
    elif has("causal"):
        limits |= {"causal": True}
        limits |= {"window": (int(rng.integers(0, num_keys)), 0)} if rng.random() < 0.5 else {}
    elif has("window"):
        bounds = [int(bound) for bound in rng.integers(0, num_keys, 2)]
        limits |= {"window": tuple(None if rng.random() < 0.3 else bound for bound in bounds)}
        limits |= {"query_offset": int(rng.integers(0, 9))}
    if has("segments"):
        limits["key_segments"] = np.zeros((*rows, num_keys), int)
        if "causal" in limits or "window" in limits:  # self-attention
            limits.pop("query_offset", None)
            num_queries, limits["query_segments"] = num_keys, limits["key_segments"]
        else:
            limits["query_segments"] = np.zeros((*rows, num_queries), int)
    if "query_segments" not in limits or not {"causal", "window"} & limits.keys():
        names = [name for name in ("query_lengths", "key_lengths") if has(name)]
        limits |= {name: np.zeros(rows if has("rows") else (), int) for name in names}
    factors = {"scale": 0.3 if has("scale") else None, "softcap": 2.0 if has("softcap") else None}
    shapes = [(num_queries, 4, widths[0]), (num_keys, key_heads, widths[0])]
    shapes += [(num_keys, key_heads, widths[1])]
    return Drawn([np.zeros((*rows, *shape)) for shape in shapes], limits, factors)


def with_numbers(rng, drawn):
    """Draws the numbers of a call: its arrays, with NaN where nothing reaches; and its limits.

    Lengths may be 0, and lie beyond the arrays. Ids repeat, and some are of keys or queries alone.
    """
    limits, num_keys = dict(drawn.limits), drawn.arrays[1].shape[-3]
    for name, value in drawn.limits.items():
        if name == "query_segments":
            limits[name] = rng.choice([-5, 0, 2**31 - 1], value.shape).astype(np.int32)
        elif isinstance(value, np.ndarray):
            limits[name] = rng.integers(0, num_keys + 3, value.shape)
    if "query_segments" in limits:
        is_same = drawn.limits["query_segments"] is drawn.limits["key_segments"]
        ids = rng.choice([-5, 7, 2**31 - 1], drawn.limits["key_segments"].shape).astype(np.int32)
        limits["key_segments"] = limits["query_segments"] if is_same else ids
    query, key, value = (rng.normal(size=x.shape).astype(np.float32) for x in drawn.arrays)
    ones = [np.ones_like(array[..., :1]) for array in drawn.arrays]
    weights = run(dot_product_attention, *ones, **limits).weights[..., 0, :, :]
    query[~weights.any(-1)] = np.nan
    key[~weights.any(-2)], value[~weights.any(-2)] = np.inf, np.nan
    return drawn._replace(arrays=[query, key, value], limits=limits)


def check(rng, drawn, form, times, **tolerance):
    """Compares a form's context and three gradients with those of the formula, some times.

    Returns how many queries saw no key.
    """
    is_number = lambda value: isinstance(value, np.ndarray)

    def outcome(attend):
        def loss(arrays, numbers):
            if "key_segments" in numbers:  # which array it is decides
                same = drawn.limits["query_segments"] is drawn.limits["key_segments"]
                ids = numbers["query_segments"] if same else numbers["key_segments"]
                numbers = numbers | {"key_segments": ids}
            context = attend(arrays, numbers)
            return jnp.sum(jnp.sin(context)), context

        return jax.jit(jax.grad(loss, has_aux=True))

    def by_form(arrays, numbers):
        call = drawn.call(arrays, numbers)
        return heads_last(Attended(form(call), None), call.visible.weights_shape).context

    def by_formula(arrays, numbers):
        limits = drawn.limits | numbers
        return dot_product_attention(*arrays, **limits, **drawn.factors).context

    ours, formula, empty = outcome(by_form), outcome(by_formula), 0
    for _ in range(times):
        one = with_numbers(rng, drawn)
        numbers = {name: value for name, value in one.limits.items() if is_number(value)}
        expected = formula(one.arrays, numbers)
        chex.assert_tree_all_finite(expected)
        chex.assert_trees_all_close(ours(one.arrays, numbers), expected, **tolerance)
        empty += int(np.isnan(one.arrays[0][..., 0]).sum())
    return empty
