"""Tokens decoded in parts, as the tests of caches compare them with the whole."""

import jax
import numpy as np

from tests.attention.compiled import apply, normal

B, T, D = 2, 11, 24
X, MEMORY = normal(0, B, T, D), normal(1, B, 5, D)
LENGTHS = np.array([6, 2])  # of two prompts
# in parts of few sizes: to compile a step for each size is most of the work
CUTS = {"at once": [T], "token by token": [1] * T, "a prompt and tokens": [3, 1, 1, 3, 3]}


def decoded(layer, variables, cuts, cache, **options):
    """The contexts of all tokens, decoded in parts of these sizes."""
    step = jax.jit(lambda x, cache: layer.apply(variables, x, cache, method="decode", **options))
    contexts, start = [], 0
    for size in cuts:
        attended, cache = step(X[:, start : start + size], cache)
        contexts, start = [*contexts, attended.context], start + size
    return np.concatenate(contexts, axis=1), cache


def in_rows(layer, variables, cache, **options):
    """The contexts of each row after prompts of `LENGTHS`: the first tokens of X, then tokens one
    by one from index 6 on.
    """
    step = jax.jit(
        lambda x, cache, lengths=None: layer.apply(
            variables, x, cache, lengths=lengths, method="decode", **options
        )
    )
    (context, _), cache = step(X[:, :6], cache, LENGTHS)
    contexts = [[context[row, :length]] for row, length in enumerate(LENGTHS)]
    for t in range(6, T):
        (context, _), cache = step(X[:, t : t + 1], cache)
        for row in range(B):
            contexts[row].append(context[row])
    return [np.concatenate(parts) for parts in contexts]


def wholes(layer, variables, **options):
    """The contexts of what `in_rows` decodes, of each row at once. Causality hides the padding."""
    padded = np.zeros_like(X)
    sizes = LENGTHS + T - 6
    for row, (length, size) in enumerate(zip(LENGTHS, sizes)):
        padded[row, :size] = np.concatenate([X[row, :length], X[row, 6:]])
    context = apply(layer, variables, padded, causal=True, **options).context
    return [context[row, :size] for row, size in enumerate(sizes)]
