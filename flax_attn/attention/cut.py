"""How a sequence is cut over devices.

In order, device `i` of `n` holds the piece `i`. Under causality the last device would then have the
most to attend to. So there the sequence has `2 n` pieces, and device `i` holds the pieces `i` and
`2 n - 1 - i`: an early and a late one. All devices have the same number of visible pairs.

Source: Zhu 2024, github.com/zhuzilin/ring-flash-attention, for this order, called zig-zag.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from flax_attn.attention.arrays import filled


class Cut(NamedTuple):
    """A sequence of `length` on `devices`: each holds one piece of `size`, or two in zig-zag.

    `block` divides `size`.
    """

    length: int
    devices: int
    size: int
    block: int
    is_zigzag: bool = False

    @property
    def on_device(self) -> int:
        """The number of tokens on each device."""
        return self.size * (2 if self.is_zigzag else 1)

    @property
    def is_filled(self) -> bool:
        """Whether there are more places than tokens."""
        return self.on_device * self.devices > self.length

    def indices(self) -> Int[np.ndarray, "n t"]:
        """The indices of the tokens on each device. What fills up has those beyond the last one."""
        indices = np.arange(self.on_device * self.devices).reshape(-1, self.size)
        if not self.is_zigzag:
            return indices
        return np.concatenate([indices[: self.devices], indices[: self.devices - 1 : -1]], axis=1)

    def filled(self, array: Array) -> Array:
        """The array `(..., t, d)` with a place for each token. The last token fills it up."""
        return filled(array, self.on_device * self.devices)


def cut(length: int, devices: int, most: int | None = None, is_zigzag: bool = False) -> Cut:
    """The cut of a sequence, with pieces of equal blocks of at most `most`."""
    size = -(-length // (devices * (2 if is_zigzag else 1)))
    number = 1 if most is None else -(-size // most)
    block = -(-size // number)
    return Cut(length, devices, number * block, block, is_zigzag)


def to_zigzag(array: Array, axis: str, number: Array, back: bool = False) -> Array:
    """Moves the pieces of `(..., t, d)`, inside `shard_map`, from order to zig-zag, or back.

    In order, device `number` holds the pieces `2 number` and `2 number + 1`. Each device sends the
    even one to the device that it belongs to, and the odd one to another. In zig-zag an even device
    has the even piece first.
    """
    devices = jax.lax.axis_size(axis)
    owner = lambda piece: min(piece, 2 * devices - 1 - piece)
    to_even = [(i, owner(2 * i)) for i in range(devices)]
    to_odd = [(i, owner(2 * i + 1)) for i in range(devices)]
    first, second = jnp.split(array, 2, axis=-2)
    in_turn = lambda a, b: (jnp.where(number % 2 == 0, a, b), jnp.where(number % 2 == 0, b, a))
    if back:
        home = lambda pairs: [(to, i) for i, to in pairs]
        even, odd = in_turn(first, second)
        pieces = [
            jax.lax.ppermute(even, axis, home(to_even)),
            jax.lax.ppermute(odd, axis, home(to_odd)),
        ]
    else:
        even = jax.lax.ppermute(first, axis, to_even)
        pieces = in_turn(even, jax.lax.ppermute(second, axis, to_odd))
    return jnp.concatenate(pieces, axis=-2)
