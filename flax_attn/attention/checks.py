"""The types that signatures share, and checks of arguments.

Checks raise before anything is computed, and return arrays ready for use. Letters: `q`, `k` query
and key positions, `d`, `e` features.
"""

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from flax_attn.errors import shortened

# Inputs of the functions, which convert them to arrays.
Vectors = Annotated[ArrayLike, "(..., length, features)"]
HeadVectors = Annotated[ArrayLike, "(..., length, heads, features)"]

# Arrays of a score. The widths of queries and keys are equal, or differ where the score allows it.
Queries = Float[Array, "*b q d"]
Keys = Float[Array, "*c k d"]
KeysOfOtherWidth = Float[Array, "*c k e"]
Scores = Float[Array, "*_ q k"]

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

# Arguments of attention in flax, PyTorch, Keras, transformers and jax.nn, and what they are here.
ELSEWHERE = {
    "attention_fn": "score and normalizer",
    "attention_mask": "mask, True where a key may be attended",
    "attn_mask": "mask, True where a key may be attended",
    "average_attn_weights": "False, and the weights of each head are returned",
    "batch_first": "True, and the batch comes first",
    "decode": "the methods init_cache and decode",
    "deterministic": "train, with the opposite value",
    "dropout": "dropout_rate",
    "dropout_p": "dropout_rate",
    "embed_dim": "key_features, by default the width of the query",
    "enable_gqa": "True, and keys and values may have fewer heads",
    "implementation": "chosen by a fixed rule, and form_of tells how",
    "in_kv_features": "in_key_features, in flax_attn.attention.nnx",
    "inputs_k": "key",
    "inputs_kv": "key",
    "inputs_q": "query",
    "inputs_v": "value",
    "is_causal": "causal",
    "key_dim": "key_features, of all heads together",
    "key_padding_mask": "key_lengths, or a mask with True at real keys and an axis for queries",
    "key_value_seq_lengths": "key_lengths",
    "lengths": "query_lengths and key_lengths",
    "local_window_size": "window",
    "normalize_qk": "query_key_norm",
    "num_kv_heads": "num_key_heads",
    "output_attentions": "need_weights, and the weights are returned",
    "qkv_features": "key_features",
    "query_seq_lengths": "query_lengths",
    "return_attention_scores": "need_weights, and the weights are returned",
    "sow_weights": "need_weights, and the weights are returned",
    "src_key_padding_mask": "lengths, the number of real positions",
    "training": "train",
    "use_causal_mask": "causal",
    "value_dim": "value_features, of all heads together",
}

# Attributes of layers that are functions, and an example of each.
FUNCTIONS = {
    "kernel_init": "nn.initializers.lecun_normal()",
    "bias_init": "nn.initializers.zeros",
    "embedding_init": "nn.initializers.normal(0.02)",
    "activation": "nn.gelu",
    "out_activation": "nn.gelu",
}
Taking = TypeVar("Taking", bound=Callable[..., object])

FARTHEST = 2**30  # a bound beyond it hides nothing; positions and their sums stay below 2**31


def tells_names(target: Taking) -> Taking:
    """Makes a function or a class answer an argument of another library with the name it has here.

    The signature stays. Another unknown argument is a TypeError of Python's own.
    """
    if isinstance(target, type):
        setattr(target, "__init__", tells_names(target.__init__))  # noqa: B010 - for type checkers
        return target  # pyright: ignore
    elsewhere = ELSEWHERE.keys() - inspect.signature(target).parameters.keys()

    @functools.wraps(target)
    def told(*arguments: object, **named: object) -> object:
        for name in elsewhere & named.keys():
            who = target.__qualname__.partition(".__")[0]
            raise TypeError(f"unknown argument '{name}' of {who}; here it is {ELSEWHERE[name]}")
        return target(*arguments, **named)

    return told  # pyright: ignore


def described(value: object) -> str:
    """What came, on one line: the shape of an array, the type of what would take several lines."""
    if isinstance(value, jax.Array | np.ndarray):
        is_traced = isinstance(value, jax.core.Tracer)  # pyright: ignore
        return f"{'a traced' if is_traced else 'an'} array of {value.shape}"
    text = repr(value)
    return type(value).__name__ if "\n" in text else shortened(text)


def as_array(name: str, array: ArrayLike | Sequence[float]) -> Array:
    """The argument as an array. Raises a TypeError that names it for what is none."""
    if isinstance(array, jax.Array):
        return array  # `jnp.asarray` takes much longer to do the same
    try:
        return jnp.asarray(array)
    except (OverflowError, TypeError, ValueError) as error:
        kind = "an array of numbers" if isinstance(array, np.ndarray) else "an array"
        raise TypeError(f"expected {kind} as {name}, got {shortened(repr(array))}") from error


def check_flag(name: str, flag: object) -> None:
    """Raises a TypeError for what is not True or False, such as a word, which counts as true."""
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"expected {name} to be True or False, got {described(flag)}")


def as_mask(mask: ArrayLike) -> Bool[Array, "..."]:
    """The mask as an array. Raises a TypeError for another dtype than bool.

    Zeros and ones, and 0 and -inf, mean opposite things in other libraries.
    """
    mask = as_array("mask", mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(
            f"expected a boolean mask, True where a key may be attended, got {mask.dtype}; "
            "an additive mask goes in bias=, one of zeros and ones is mask.astype(bool)"
        )
    return mask


def as_integers(name: str, array: ArrayLike) -> Int[Array, "..."]:
    """The argument as integers of 32 bits, or of 64 where JAX allows them.

    Raises:
        TypeError: another dtype.
        ValueError: integers of 64 bits that JAX would cut to 32.
    """
    integers = as_array(name, array)
    if not jnp.issubdtype(integers.dtype, jnp.integer):
        raise TypeError(f"expected integers in {name}, got {integers.dtype}")
    if isinstance(array, np.ndarray | np.generic) and array.itemsize > integers.itemsize:
        wide, limits = np.atleast_1d(array), jnp.iinfo(jnp.int32)
        beyond = wide[(wide < limits.min) | (wide > limits.max)]
        if beyond.size:
            raise ValueError(
                f"expected integers of 32 bits in {name}, got {beyond[0]}; set jax_enable_x64, or "
                "number ids of queries and keys together by np.unique(ids, return_inverse=True)"
            )
    # sums do not overflow
    return integers.astype(jnp.int64 if integers.itemsize == 8 else jnp.int32)


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


def as_floats(name: str, array: ArrayLike) -> Float[Array, "..."]:
    """The argument as an array of floats. Raises a TypeError that names it for another dtype."""
    array = as_array(name, array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        is_mask = name == "bias" and array.dtype == jnp.bool_
        advice = "; a boolean mask goes in mask=" if is_mask else ""
        raise TypeError(f"expected a {name} of floats, got {array.dtype}{advice}")
    if array.dtype.itemsize < 2:
        raise TypeError(f"expected a {name} of floats of 16 bits or more, got {array.dtype}")
    return array


def as_vectors(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, in_heads: bool = False
) -> tuple[Array, Array, Array, tuple[int, ...]]:
    """The arrays by `as_floats`, and the shape of their weights. Errors are those of both."""
    query, key, value = as_floats("query", query), as_floats("key", key), as_floats("value", value)
    shape_of = weights_shape_in_heads if in_heads else weights_shape
    return query, key, value, shape_of(query, key, value)


def broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Whether a shape has as many axes as another, each of them as large or 1."""
    return len(shape) == len(full) and all(size in (1, most) for size, most in zip(shape, full))


def broadcastable(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """The array with the rank of the weights. Raises a ValueError unless each axis is full or 1."""
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
    """The bounds `(left, right)` of a window; causality ends it at the query's position.

    Raises:
        TypeError: a `causal` that is not True or False.
        ValueError: anything else than a window or None.
    """
    check_flag("causal", causal)
    window = (None, None) if window is None else window
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise ValueError(f"expected a window (left, right) of two integers or None, got {window!r}")
    left, right = window
    check_bound("left", left)
    check_bound("right", right)
    near = lambda bound: None if bound is None or bound > FARTHEST else int(bound)
    return near(left), 0 if causal else near(right)


def check_bound(name: str, bound: int | None) -> None:
    """Raises a ValueError for a bound of a window that is not None or an integer of 0 or above."""
    if bound is None:
        return
    is_number = isinstance(bound, numbers.Real) and not isinstance(bound, bool)
    if not is_number or not 0 <= bound < math.inf or bound != int(bound):
        is_traced = isinstance(bound, jax.core.Tracer)  # pyright: ignore
        advice = "; pass a mask function, such as mask=lambda q, k: q - k <= left"
        raise ValueError(
            f"expected {name} of a window to be an integer of 0 or above, or None, got "
            f"{described(bound)}{advice if is_traced else ''}"
        )


def check_dropout(rate: float, rng: Array | None) -> None:
    """Raises for a rate that is not a number in [0, 1), and for dropout without a key."""
    check_rate("dropout_rate", rate)
    if rate > 0 and rng is None:
        raise ValueError(
            f"expected dropout_rng with dropout_rate={rate}, got None; "
            "pass a key or dropout_rate=0.0"
        )
    if rate > 0:
        check_key("dropout_rng", rng)


def check_key(name: str, key: object) -> None:
    """Raises a TypeError for what is not one random key, of the new kind or of the old."""
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", ())
    is_new = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if len(shape) != (0 if is_new else 1) or not (is_new or dtype == jnp.uint32):
        got = f"an array of {dtype} {shape}" if dtype is not None else repr(key)
        raise TypeError(f"expected {name} to be one key, such as jax.random.key(0), got {got}")


def check_size(name: str, size: int, least: int = 1) -> None:
    """Raises for a size that is not an integer of `least` or above.

    The symbolic size of a program that is exported stands for an integer of 1 or above.
    """
    if jax.export.is_symbolic_dim(size):
        return
    message = f"expected {name} to be an integer of {least} or above, got {described(size)}"
    if isinstance(size, bool) or not isinstance(size, numbers.Integral):
        raise TypeError(message)
    if size < least:
        raise ValueError(message)


def check_length(name: str, length: int | Array) -> None:
    """Raises for a length that is not an integer of 0 or above, or an array `()` that holds one."""
    is_traced = isinstance(length, jax.core.Tracer)  # pyright: ignore
    if isinstance(length, jax.Array | np.ndarray) and length.shape == () and not is_traced:
        length = length.item()
    check_size(name, length, least=0)  # pyright: ignore


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


def check_mapping(expected: str, mapping: object) -> None:
    """Raises a TypeError for what has no values by name."""
    if not isinstance(mapping, Mapping):
        raise TypeError(f"expected {expected}, got a {type(mapping).__name__}")


def check_chunk_size(chunk_size: int | None) -> None:
    """Raises for a block size that is not None or an integer of 1 or above."""
    if chunk_size is None:
        return
    message = f"expected an integer chunk_size of 1 or above, or None, got {chunk_size!r}"
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, numbers.Integral):
        raise TypeError(message)
    if chunk_size < 1:
        raise ValueError(message)


def as_number(expected: str, number: object) -> float | Array:
    """A number of Python, or a traced array `()`. Raises a TypeError for anything else.

    Numbers of NumPy and JAX have a dtype, which would change that of a result.
    """
    message = f"expected {expected}, got"
    if isinstance(number, jax.Array | np.ndarray | np.generic):
        if number.shape != ():
            raise TypeError(f"{message} an array of shape {number.shape}")
        if not any(jnp.issubdtype(number.dtype, kind) for kind in (jnp.integer, jnp.floating)):
            raise TypeError(f"{message} one of {number.dtype}")
    elif isinstance(number, bool) or not isinstance(number, numbers.Real):
        raise TypeError(f"{message} {number!r}")
    return number if isinstance(number, jax.core.Tracer) else float(number)  # pyright: ignore


def as_scale(scale: object) -> float | Array | None:
    """The scale as None or by `as_number`. Raises a ValueError for one that is not finite."""
    if scale is None:
        return None
    number = as_number("scale to be a number or None", scale)
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError(f"expected scale to be finite, got {scale!r}")
    return number


def as_softcap(softcap: object) -> float | Array | None:
    """The soft-cap as None or by `as_number`. Raises a ValueError for a number not above 0."""
    if softcap is None:
        return None
    expected = "softcap above 0 and finite, or None"
    number = as_number(expected, softcap)
    if isinstance(number, float) and not 0 < number < math.inf:
        raise ValueError(f"expected {expected}, got {softcap!r}")
    return number


def check_options(
    score: object, normalizer: object, chunk_size: int | None, need_weights: object
) -> None:
    """Raises for a score or normaliser that is no such function, and for other bad options."""
    check_score(score)
    check_normalizer(normalizer)
    check_chunk_size(chunk_size)
    check_flag("need_weights", need_weights)


def check_score(score: object) -> None:
    """Raises a TypeError for what is no function, and for one without its parameters."""
    check_function("score", score)
    # by its code: a signature takes much longer
    code_of = lambda function: getattr(function, "__code__", None)
    takes_any = lambda code: code.co_flags & inspect.CO_VARKEYWORDS
    is_last = lambda function: code_of(function) is not None and not takes_any(code_of(function))
    inner = inspect.unwrap(score, stop=is_last)  # pyright: ignore
    if (code := code_of(inner)) is None:
        return
    first, optional = code.co_argcount, getattr(inner, "__kwdefaults__", None) or {}
    names = code.co_varnames[first : first + code.co_kwonlyargcount]
    if needed := [name for name in names if name not in optional]:
        raise TypeError(
            f"expected a score of query and key alone, got {inner.__name__}, which needs "
            f"{' and '.join(needed)}; give them by functools.partial"
        )


def check_normalizer(normalizer: object) -> None:
    """Raises a TypeError for what is not a function of scores and a mask, and of those alone."""
    check_function("normalizer", normalizer)
    try:
        taken = inspect.signature(normalizer).parameters  # pyright: ignore
    except (TypeError, ValueError):  # code of C may not tell
        return
    is_open = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
    name = lambda: getattr(normalizer, "__name__", "") or described(normalizer)
    if "mask" not in taken and not is_open:
        raise TypeError(
            f"expected a normalizer that takes (scores, mask=mask), got {name()}, which takes "
            f"({', '.join(taken)}); for softmax, leave normalizer out or pass masked_softmax"
        )
    outer = inspect.signature(normalizer, follow_wrapped=False).parameters  # pyright: ignore
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(one.kind in rest for one in outer.values()):  # it hands on what it gets
        outer = taken
    needed = [one for one in list(outer.values())[1:] if one.default is one.empty]
    if needed := [one.name for one in needed if one.name != "mask" and one.kind not in rest]:
        raise TypeError(
            f"expected a normalizer of scores and mask alone, got {name()}, which needs "
            f"{' and '.join(needed)}; give them by functools.partial"
        )


def check_function(
    name: str, function: object, example: str = "those of flax_attn.attention"
) -> None:
    """Raises a TypeError for an object that cannot be called, and for a class."""
    if not callable(function):
        raise TypeError(
            f"expected a function as {name}, such as {example}, got {described(function)}"
        )
    if isinstance(function, type):
        made = f"{function.__name__}(...)"
        raise TypeError(f"expected a function as {name}, got a class; make an object of it: {made}")


def check_functions(layer: object) -> None:
    """Raises a TypeError for an initialiser or activation of a layer that is no function."""
    for name, example in FUNCTIONS.items():
        if (function := getattr(layer, name, None)) is not None:
            check_function(name, function, example)


def check_takes_positions(name: str, function: Callable[..., object]) -> None:
    """Raises a TypeError for a mask or bias function of other arguments than two positions."""
    check_takes_two(f"{name} function of the positions of queries (q, 1) and keys (1, k)", function)


def check_takes_two(expected: str, function: Callable[..., object]) -> None:
    """Raises a TypeError for a function of another number of arguments than two."""
    try:
        inspect.signature(function).bind(0, 0)
    except TypeError as error:
        raise TypeError(
            f"expected a {expected}, got one that does not take two arguments ({error})"
        ) from error
    except ValueError:  # code of C may not tell
        return


def check_leading(query: Array, key: Array, value: Array) -> None:
    """Raises a ValueError for unequal batch rows, or for keys and values of unequal lengths."""
    same = query.shape[:-2] == key.shape[:-2] and key.shape[:-1] == value.shape[:-1]
    if query.ndim < 2 or not same:
        raise ValueError(
            "expected query (..., q, d), key (..., k, d'), value (..., k, e) with equal leading "
            f"axes; got {query.shape}, {key.shape}, {value.shape}"
        )


def weights_shape(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    """The shape `(..., q, k)` of the weights. Raises a ValueError with all three shapes."""
    fit = min(query.ndim, key.ndim, value.ndim) >= 2 and query.ndim == key.ndim
    fit = fit and key.shape[:-1] == value.shape[:-1]
    if not fit or any(
        1 not in sizes and len(set(sizes)) > 1 for sizes in zip(query.shape[:-2], key.shape[:-2])
    ):
        raise ValueError(
            "expected query (..., q, d), key (..., k, d'), value (..., k, e); "
            f"got {query.shape}, {key.shape}, {value.shape}"
        )
    leading = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return (*leading, query.shape[-2], key.shape[-2])


def weights_shape_in_heads(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    """The shape `(..., heads, q, k)` of the weights. Raises a ValueError for bad arrays."""
    fit = query.ndim == key.ndim >= 3 and query.shape[:-3] == key.shape[:-3]
    if not fit or key.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            "expected query (..., q, heads, d), key (..., k, heads, d'), value (..., k, heads, e); "
            f"got {query.shape}, {key.shape}, {value.shape}"
        )
    heads, key_heads = query.shape[-2], key.shape[-2]
    if not key_heads or not heads or heads % key_heads:
        raise ValueError(
            f"expected heads that are a multiple of the key heads, got {heads} and {key_heads} "
            f"in {query.shape} and {key.shape}, whose axes are (..., length, heads, features)"
        )
    check_same_width(query, key)
    return (*query.shape[:-3], heads, query.shape[-3], key.shape[-3])


def check_same_width(query: Array, key: Array) -> None:
    """Raises a ValueError for queries and keys of different numbers of features."""
    if query.shape[-1:] != key.shape[-1:]:
        raise ValueError(
            f"expected a query and a key of one width, got {query.shape} and {key.shape}"
        )
