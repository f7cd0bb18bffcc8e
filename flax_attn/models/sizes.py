"""The few sizes that inputs are padded to, so that few programs are compiled."""

from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np

from flax_attn.types import Tree

ROWS = (1, 16, 64)  # of a batch
ROWS_OF_LARGE = (1, 4, 16)  # of a model that has enough to do with a row
SHORTEST = 16  # tokens


def rounded(length: int) -> int:
    """Returns the length that a text is padded to, a power of two."""
    return max(SHORTEST, 1 << (length - 1).bit_length())


def lengths_to(most: int) -> list[int]:
    """Returns the lengths that texts of at most `most` tokens are padded to."""
    first = SHORTEST.bit_length() - 1
    return [1 << power for power in range(first, rounded(most).bit_length())]


def longer(inputs: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
    """Pads inputs with zeros to a length where they have a number for each token."""

    def pad_one(array: np.ndarray) -> np.ndarray:
        widths = [(0, 0), (0, length - array.shape[1]), *[(0, 0)] * (array.ndim - 2)]
        return np.pad(array, widths)

    return {name: one if one.ndim < 2 else pad_one(one) for name, one in inputs.items()}


def batches(
    inputs: Tree, rows: tuple[int, int, int] = ROWS, size: int | None = None
) -> Iterator[tuple[int, Tree]]:
    """Cuts inputs into batches of a size, each with the number of its rows that are no filling.

    The filling is the last row, again and again. Without a size, it is one of `rows`.
    """
    number, (one, some, many) = len(jax.tree.leaves(inputs)[0]), rows
    size = size or (one if number == one else some if number <= many else many)
    for first in range(0, number, size):
        index = np.minimum(np.arange(first, first + size), number - 1)  # (size,)
        batch = jax.tree.map(lambda array, index=index: array[index], inputs)
        yield min(size, number - first), batch


def in_batches(
    compute: Callable[[Tree], Tree], inputs: Tree, rows: tuple[int, int, int] = ROWS
) -> Tree:
    """Computes in batches of `rows`. Returns NumPy arrays of all rows."""
    parts: list[Tree] = []
    for number, batch in batches(inputs, rows):
        computed = jax.device_get(compute(batch))  # from the device, so that NumPy joins them
        parts.append(jax.tree.map(lambda array, n=number: array[:n], computed))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
