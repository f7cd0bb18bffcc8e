"""Some of the queries and keys: those of one device, or all of them."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from flax_attn.attention.arrays import split
from flax_attn.attention.pairs import Block, Pairs


class Part(NamedTuple):
    """Which queries and keys some arrays hold.

    Attributes:
        queries, keys: their indices, `(q,)` and `(k,)`, in any order. A key at an index beyond the
            last one is none; it fills up the array.
        bias: the array of their biases `(..., q, k)`, with axes of full size or 1. None where there
            is none, and where the bias is a function.
        is_filled: whether there may be keys that fill up.
    """

    queries: Int[Array, " q"]
    keys: Int[Array, " k"]
    bias: Array | None = None
    is_filled: bool = False

    def in_blocks(
        self, query_size: int, key_size: int, num_keys: int
    ) -> tuple[Int[Array, "i q"], Int[Array, "j k"]]:
        """The indices of queries and of keys in blocks.

        The last query fills up its block. What fills up the last block of keys has the index
        `num_keys`, beyond the last key.
        """
        padded = jnp.pad(self.keys, (0, -len(self.keys) % key_size), constant_values=num_keys)
        return split(self.queries, query_size, -1), padded.reshape(-1, key_size)

    def block(self, pairs: Pairs) -> Block:
        """All its pairs as one block. A key that fills up stands as the last key."""
        keys = jnp.minimum(self.keys, pairs.shape[-1] - 1) if self.is_filled else self.keys
        return pairs.block(self.queries[:, None], keys[None, :], self.bias)


def whole(pairs: Pairs) -> Part:
    """All queries and keys in their order."""
    num_queries, num_keys = pairs.shape[-2:]
    bias = None if callable(pairs.bias) else pairs.bias
    return Part(jnp.arange(num_queries), jnp.arange(num_keys), bias)
