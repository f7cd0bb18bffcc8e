"""The block size of attention whose caller leaves it open."""

import math
from collections.abc import Iterator

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array

from flax_attn.attention.pairs import Pairs
from flax_attn.attention.types import Score

SMALLEST, LARGEST = 128, 1024
CPU_BLOCK = 2**21  # numbers in the largest array of one block: 8 MiB in float32
CPU_DENSE = 2**22  # numbers up to which all scores at once are as fast
GPU_DENSE = 2**28  # numbers up to which all scores fit in memory: 1 GiB in float32


def best_chunk_size(query: Array, key: Array, pairs: Pairs, score: Score) -> int | None:
    """The block size for a caller who leaves it open; None for all scores at once.

    It is a fixed rule of sizes, limits and device, made from benchmarks: every process and every
    resumed run takes the same. The rule looks at the largest array inside the score, such as the
    hidden layer of an additive one. Causality or a window makes blocks smaller, so that blocks
    outside it can be left out. Symbolic sizes, those of a program that is exported, are not known:
    such a program computes all scores at once.
    """
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    if pairs.is_symbolic:
        return None
    largest = _largest_inside(jax.make_jaxpr(score)(query, key).jaxpr)
    if jax.default_backend() != "cpu":
        return LARGEST if largest > GPU_DENSE else None
    numbers_a_pair = largest / max(num_queries * num_keys, 1)
    size = math.sqrt(CPU_BLOCK / max(numbers_a_pair, 1))
    if pairs.right is not None:
        size = min(size, num_keys / 4)
    if pairs.left is not None and pairs.right is not None:
        size = min(size, (pairs.left + pairs.right + 1) / 2)
    size = 2 ** int(math.log2(min(max(size, SMALLEST), LARGEST)))
    return size if largest > CPU_DENSE and size < max(num_queries, num_keys) else None


def _largest_inside(jaxpr: Jaxpr) -> int:
    """The size of the largest array that a program computes."""
    largest = 0
    for equation in jaxpr.eqns:
        sizes = [math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars]
        inner = [_largest_inside(program) for program in _programs(equation.params)]
        largest = max(largest, *sizes, *inner)
    return largest


def _programs(params: dict) -> Iterator[Jaxpr]:
    """The programs inside an equation: the body of a loop, the branches of a condition."""
    for value in params.values():
        for program in value if isinstance(value, tuple | list) else (value,):
            if isinstance(program, ClosedJaxpr):
                yield program.jaxpr
            elif isinstance(program, Jaxpr):
                yield program
