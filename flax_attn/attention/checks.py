"""Argument checks. They raise before anything is computed, and return arrays ready for use."""

import numbers
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int


def as_mask(mask: ArrayLike) -> Bool[Array, "..."]:
    """The mask as an array. Raises a TypeError for another dtype than bool.

    Zeros and ones, and 0 and -inf, mean opposite things in other libraries.
    """
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(
            f"expected a boolean mask, True where a key may be attended, got {mask.dtype}; "
            "an additive mask goes in bias="
        )
    return mask


def as_integers(name: str, array: ArrayLike) -> Int[Array, "..."]:
    """The argument as integers. Raises a TypeError that names it."""
    array = jnp.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"expected integers in {name}, got {array.dtype}")
    return array if array.dtype == jnp.int64 else array.astype(jnp.int32)  # sums do not overflow


def as_lengths(name: str, array: ArrayLike) -> Int[Array, "..."]:
    """The argument as integers of 0 or above. Under `jit` only the dtype can be checked."""
    integers = as_integers(name, array)
    if (least := known_bound(jnp.min, integers)) < 0:
        raise ValueError(f"expected lengths of 0 or above in {name}, got {least}")
    return integers


def known_bound(bound: Callable[[Array], Array], numbers: Array) -> int | float:
    """The least or largest number, by `jnp.min` or `jnp.max`.

    It is 0 for an empty array, and under `jit`, where the numbers are not known.
    """
    if isinstance(numbers, jax.core.Tracer) or not numbers.size:  # pyright: ignore
        return 0
    with jax.ensure_compile_time_eval():
        return bound(numbers).item()


def check_bound(name: str, bound: int | None) -> None:
    """Raises a ValueError for a bound of a window that is not None or an integer of 0 or above."""
    if bound is None:
        return
    if not isinstance(bound, numbers.Real) or bound < 0 or bound != int(bound):
        raise ValueError(
            f"expected {name} of a window to be an integer of 0 or above, or None, got {bound!r}"
        )


def check_dropout(rate: float, rng: Array | None) -> None:
    """Raises a ValueError for a rate outside [0, 1), or for dropout without a key."""
    if not 0 <= rate < 1:
        raise ValueError(f"expected dropout_rate in [0, 1), got {rate}")
    if rate > 0 and rng is None:
        raise ValueError(
            f"expected dropout_rng with dropout_rate={rate}, got None; "
            "pass a key or dropout_rate=0.0"
        )


def check_size(name: str, size: int, least: int = 1) -> None:
    """Raises for a size that is not an integer of `least` or above."""
    message = f"expected {name} to be an integer of {least} or above, got {size!r}"
    if isinstance(size, bool) or not isinstance(size, numbers.Integral):
        raise TypeError(message)
    if size < least:
        raise ValueError(message)


def check_rate(name: str, rate: float) -> None:
    """Raises for a share that is not a number in [0, 1)."""
    message = f"expected {name} in [0, 1), got {rate!r}"
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real):
        raise TypeError(message)
    if not 0 <= rate < 1:
        raise ValueError(message)


def check_array(name: str, array: object) -> None:
    """Raises a TypeError for lists and tuples, which are slow to convert and easy to confuse."""
    if isinstance(array, list | tuple):
        kind = type(array).__name__
        raise TypeError(f"expected an array as {name}, got a {kind}; pass jnp.asarray({name})")
