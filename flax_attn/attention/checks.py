"""The types that signatures share, and checks of arguments.

A check is here if JAX would compute something else in silence, or its error would not show what to
do. Letters: `q`, `k` query and key positions, `d`, `e` features.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from flax_attn.types import UserInput

# Inputs of the functions, which convert them to arrays.
Vectors = Annotated[ArrayLike, "(..., length, features)"]
HeadVectors = Annotated[ArrayLike, "(..., length, heads, features)"]

# Arrays of a score. The widths of queries and keys are equal, or differ where the score allows it.
Queries = Float[Array, "*b q d"]
Keys = Float[Array, "*c k d"]
KeysOfOtherWidth = Float[Array, "*c k e"]
PairScores = Float[Array, "*_ q k"]

# Arrays of a normaliser of rows, one for each query.
RowScores = Float[Array, "*b k"]
RowMask = Bool[Array, "*#b #k"]
RowWeights = Float[Array, "*b k"]

# Arrays of a normaliser that needs all queries.
AllScores = Float[Array, "*b q k"]
AllMask = Bool[Array, "*#b #q #k"]
AllWeights = Float[Array, "*b q k"]

Score = Callable[..., Array]  # (queries, keys) -> scores
Normalizer = Callable[..., Array]  # (scores, mask=mask) -> weights

# A mask or a bias: an array that broadcasts to the weights, or a function of the positions of
# queries (q, 1) and keys (1, k) that returns one.
PerPair = ArrayLike | Callable[..., Array]

# (left, right): the number of keys before and after the query's position; None for no bound.
Window = tuple[int | None, int | None]

# Arguments of other libraries, and what they are here.
FOREIGN = {
    "attention_mask": "mask",
    "attn_mask": "mask",
    "deterministic": "train, with the opposite value",
    "is_causal": "causal",
    "key_padding_mask": "key_lengths, or a mask with True at real keys",
    "key_value_seq_lengths": "key_lengths",
    "local_window_size": "window",
    "output_attentions": "need_weights",
    "query_seq_lengths": "query_lengths",
    "return_attention_scores": "need_weights",
    "training": "train",
    "use_causal_mask": "causal",
}

FARTHEST = 2**30  # a bound beyond it hides nothing; positions and their sums stay below 2**31


def check_expected(others: Iterable[str]) -> None:
    """Raises a TypeError for an argument that no function here has."""
    for name in others:
        hint = f"; here it is {FOREIGN[name]}" if name in FOREIGN else ""
        raise TypeError(f"unexpected argument {name!r}{hint}")


def as_array(array: ArrayLike | Sequence[float]) -> Array:
    """Converts to an array, where it is none."""
    # `jnp.asarray` takes much longer to return the same array
    return array if isinstance(array, jax.Array) else jnp.asarray(array)


def as_mask(mask: ArrayLike) -> Bool[Array, "..."]:
    """Converts a mask to an array. Raises a TypeError for another dtype than bool.

    Zeros and ones, and 0 and -inf, mean opposite things in other libraries.
    """
    mask = as_array(mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(
            f"expected a boolean mask, True where a key may be attended, got {mask.dtype}; "
            "an additive mask goes in bias=, one of zeros and ones is mask.astype(bool) or "
            "nn.make_attention_mask(..., dtype=bool)"
        )
    return mask


def as_integers(name: str, array: ArrayLike) -> Int[Array, "..."]:
    """Converts to integers of 32 bits, or of 64 where JAX allows them.

    Raises:
        TypeError: another dtype.
        ValueError: integers of 64 bits that JAX would cut to 32.
    """
    integers = as_array(array)
    if not jnp.issubdtype(integers.dtype, jnp.integer):
        raise TypeError(f"expected integers in {name}, got {integers.dtype}")
    is_numpy = isinstance(array, np.ndarray | np.generic)
    if is_numpy and (array != array.astype(integers.dtype)).any():  # JAX cuts int64 in silence
        raise ValueError(
            f"expected integers of 32 bits in {name}; set jax_enable_x64, or number ids of queries "
            "and keys together by np.unique(ids, return_inverse=True)"
        )
    # sums do not overflow
    return integers.astype(jnp.int64 if integers.itemsize == 8 else jnp.int32)


def as_lengths(name: str, array: ArrayLike) -> Int[Array, "..."]:
    """Converts to integers of 0 or above. Under `jit` only the dtype can be checked."""
    integers = as_integers(name, array)
    if (least := known_bound(jnp.min, integers)) < 0:
        raise ValueError(f"expected lengths of 0 or above in {name}, got {least}")
    return integers


def known_bound(bound: Callable[[Array], Array], numbers: Array) -> int | float:
    """Returns the least or largest number, by `jnp.min` or `jnp.max`.

    It is 0 for an empty array, and under `jit`, where the numbers are not known.
    """
    if isinstance(numbers, jax.core.Tracer) or not numbers.size:  # pyright: ignore
        return 0
    with jax.ensure_compile_time_eval():  # inside `jit` a constant is traced, too
        return bound(numbers).item()


def as_floats(name: str, array: ArrayLike) -> Float[Array, "..."]:
    """Converts to an array of floats. Raises a TypeError that names it for another dtype."""
    array = as_array(array)
    if not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize < 2:
        raise TypeError(
            f"expected floats of 16 bits or more as {name}, got {array.dtype}"
            + ("; a boolean mask goes in mask=" if array.dtype == jnp.bool_ else "")
        )
    return array


def broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Returns whether a shape has as many axes as another, each of them as large or 1."""
    return len(shape) == len(full) and all(size in (1, most) for size, most in zip(shape, full))


def broadcastable(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """Reshapes to the rank of the weights. Raises a ValueError unless each axis is full or 1."""
    padded = (1,) * (len(shape) - array.ndim) + array.shape
    if not broadcasts(padded, shape):
        axes = ", ".join([":", *["None"] * (len(shape) - 2), ":"])
        of_keys = name == "mask" and array.shape == (shape[0], shape[-1])
        advice = f"; a mask of keys is mask[{axes}], or key_lengths=" if of_keys else ""
        raise ValueError(
            f"expected a {name} that broadcasts to the weights {shape}, got {array.shape}{advice}"
        )
    return array.reshape(padded)


def as_window(window: Window | None, causal: bool) -> Window:
    """Returns the bounds `(left, right)`; causality ends a window at the query's position."""
    left, right = (None, None) if window is None else window
    near = lambda bound: None if bound is None or bound > FARTHEST else bound
    return near(as_bound(left)), 0 if causal else near(as_bound(right))


def as_bound(bound: int | None) -> int | None:
    """Returns a bound of a window as an integer. Raises a ValueError for one below 0."""
    if bound is None:
        return None
    if (bound := operator.index(bound)) < 0:
        raise ValueError(f"expected a window with bounds of 0 or above, or None, got {bound}")
    return bound


def check_dropout(rate: float, rng: Array | None) -> None:
    """Raises a ValueError for a rate outside [0, 1), and for dropout without a key."""
    if not 0 <= rate < 1:
        raise ValueError(f"expected dropout_rate in [0, 1), got {rate!r}")
    if rate and rng is None:
        raise ValueError(f"expected dropout_rng with dropout_rate={rate}, got None")


def as_number(number: UserInput) -> float | Array:
    """Returns a Python number, or a traced array `()`.

    Numbers of NumPy and JAX have a dtype, which would change that of a result.
    """
    if isinstance(number, jax.core.Tracer):  # pyright: ignore
        return number.reshape(())
    return float(number)


def as_scale(scale: ArrayLike | None) -> float | Array | None:
    """Returns the scale by `as_number`; None stays."""
    return None if scale is None else as_number(scale)


def as_positive(name: str, number: UserInput) -> float | Array:
    """Returns a number by `as_number`. Raises a ValueError unless it is above 0 and finite."""
    number = as_number(number)
    if isinstance(number, float) and not 0 < number < math.inf:
        raise ValueError(f"expected {name} above 0 and finite, got {number}")
    return number


def weights_shape(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    """Returns the shape `(..., q, k)` of the weights. Raises a ValueError with all three shapes."""
    shapes = query.shape, key.shape, value.shape
    fit = (
        min(map(len, shapes)) >= 2 and query.ndim == key.ndim and key.shape[:-1] == value.shape[:-1]
    )
    pairs = zip(query.shape[:-2], key.shape[:-2])
    if not fit or any(1 not in sizes and sizes[0] != sizes[1] for sizes in pairs):
        expected = "query (..., q, d), key (..., k, d'), value (..., k, e)"
        raise ValueError(f"expected {expected}; got {', '.join(map(str, shapes))}")
    leading = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return (*leading, query.shape[-2], key.shape[-2])


def weights_shape_in_heads(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    """Returns the shape `(..., heads, q, k)` of the weights, for arrays `(..., length, heads, d)`.

    Raises a ValueError with all three shapes.
    """
    shapes = query.shape, key.shape, value.shape
    fit = query.ndim == key.ndim >= 3 and query.shape[:-3] == key.shape[:-3]
    fit = fit and query.shape[-1] == key.shape[-1] and key.shape[:-1] == value.shape[:-1]
    if not fit or not key.shape[-2] or query.shape[-2] % key.shape[-2]:
        raise ValueError(
            "expected query (..., q, heads, d), key (..., k, key heads, d), value (..., k, key "
            "heads, e), with heads a multiple of the key heads above 0; got "
            f"{', '.join(map(str, shapes))}"
        )
    return (*query.shape[:-3], query.shape[-2], query.shape[-3], key.shape[-3])


def check_same_width(query: Array, key: Array) -> None:
    """Raises a ValueError for queries and keys of different numbers of features."""
    if query.shape[-1:] != key.shape[-1:]:
        raise ValueError(
            f"expected a query and a key of one width, got {query.shape} and {key.shape}"
        )
