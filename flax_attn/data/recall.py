"""Lines of associative recall: pairs of a key and a value, then each key with its newest value.

    d3f8d5f1?f1d5

A key that comes again overwrites its value: a memory must replace the 3 by the 5, and not add it.

Source: Arora et al. 2023 (arXiv:2312.04927), multi-query associative recall, there without
overwritten keys.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

KEYS = "abcdefghijklmnopqrstuvwxyz"
VALUES = "0123456789"
QUESTION = "?"
SYMBOLS = KEYS + VALUES + QUESTION


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def generate(key: Key[Array, ""], number: int, num_keys: int, writes: int) -> Int[Array, "n t"]:
    """Generates lines as indices into `SYMBOLS`.

    Args:
        key: a typed key, `jax.random.key(seed)`; the same key gives the same lines.
        number: of lines.
        num_keys: of a line, at most `len(KEYS)`. After the question mark, each comes once.
        writes: the pairs of each key, in any order among those of the others.

    Returns:
        `(number, 2 num_keys writes + 1 + 2 num_keys)`.
    """
    num_pairs = num_keys * writes

    def line(key: Key[Array, ""]) -> Int[Array, " t"]:
        of_keys, of_pairs, of_values, of_queries = jax.random.split(key, 4)
        keys = jax.random.permutation(of_keys, len(KEYS))[:num_keys]  # (k,)
        which = jax.random.permutation(of_pairs, jnp.arange(num_pairs) % num_keys)  # (p,)
        values = len(KEYS) + jax.random.randint(of_values, (num_pairs,), 0, len(VALUES))  # (p,)
        newest = jnp.zeros(num_keys, int).at[which].max(jnp.arange(num_pairs))  # (k,)
        pairs = jnp.stack([keys[which], values], axis=1)  # (p, 2)
        answers = jnp.stack([keys, values[newest]], axis=1)  # (k, 2)
        answers = jax.random.permutation(of_queries, answers)  # (k, 2), in any order
        question = jnp.array([SYMBOLS.index(QUESTION)])  # (1,)
        return jnp.concatenate([pairs.ravel(), question, answers.ravel()])  # (t,)

    keys = jax.random.split(jax.random.fold_in(key, num_keys), number)  # one for each line
    return jax.vmap(line)(keys)  # (n, t)


def lines(seed: int, number: int, num_keys: int, writes: int) -> list[str]:
    """Generates lines of text."""
    tokens = np.asarray(generate(jax.random.key(seed), number, num_keys, writes))  # (n, t)
    return ["".join(row) for row in np.array([*SYMBOLS])[tokens].tolist()]
