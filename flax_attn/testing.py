"""Checks an attention function, of this library or of another, against a reference in NumPy.

The reference is softmax attention with its gradients, in float64 without `jax_enable_x64`.
"""
# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flax_attn.types import Options

TOLERANCE = {"float32": 3e-5, "float16": 6e-3, "bfloat16": 4e-2}
VECTORS = "query", "key", "value"
# If a function takes not all limits that a case has of a group, they are in its mask.
GROUPS = {"causal", "window", "query_offset", "prefix_lengths"}, {"query_segments", "key_segments"}
PER_ROW = {"query_offset": 0, "prefix_lengths": 0, "query_lengths": 1e9, "key_lengths": 1e9}

B, Q, K, H, D = 2, 5, 9, 4, 8
SIZES: Options = dict(
    queries=Q, keys=K, heads=H, key_heads=H, value_features=D, dtype="float32", query_std=1, nan=()
)
RNG = np.random.default_rng(0)
MASK = (RNG.random((B, 1, Q, K)) < 0.6) | np.eye(Q, K, dtype=bool)  # no row is empty
HEAD_MASK = (RNG.random((B, H, Q, K)) < 0.6) | np.eye(Q, K, dtype=bool)
EMPTY_ROW = MASK & (np.arange(Q) != 2)[:, None]
HIDDEN_KEYS = (MASK & (np.arange(K) % 4 != 2)) | (np.arange(K) == 0)
BIAS = RNG.normal(size=(B, H, Q, K))
KEY_LENGTHS, QUERY_LENGTHS = np.array([9, 4], np.int32), np.array([3, 5], np.int32)
SEGMENTS: Options = {"query_segments": np.array([[0, 0, 1, 1, 2], [0, 1, 1, 1, 1]], np.int32)}
SEGMENTS["key_segments"] = np.array([[0, 0, 0, 1, 1, 2, 2, 3, 3], [0] * 3 + [1] * 6], np.int32)
CAUSAL: Options = {"causal": True}
CASES: dict[str, Options] = {  # arguments of `dot_product_attention`, and what differs from `SIZES`
    "plain": {},
    "one query": {"queries": 1},
    "value features": {"value_features": 3},
    "mask": {"mask": MASK},
    "mask for each head": {"mask": HEAD_MASK},
    "bias": {"bias": BIAS},
    "bias for all rows": {"bias": BIAS[:1], "mask": HEAD_MASK},
    "bias of -inf": {"bias": np.where(MASK, BIAS, -np.inf)},
    "causal": CAUSAL | {"queries": K},
    "causal, more keys": CAUSAL,
    "causal, more queries": CAUSAL | {"queries": K, "keys": Q},
    "causal, offset": CAUSAL | {"query_offset": 4},
    "causal, offsets": CAUSAL | {"query_offset": np.array([1, 4], np.int32)},
    "causal, prefix": CAUSAL | {"prefix_lengths": np.array([3, 1], np.int32)},
    "window": {"window": (2, 1)},
    "window, causal": CAUSAL | {"window": (2, 0), "queries": K},
    "key lengths": {"key_lengths": KEY_LENGTHS},
    "query lengths": {"query_lengths": QUERY_LENGTHS},
    "segments": SEGMENTS,
    "segments, causal": CAUSAL | {"query_offset": 3} | SEGMENTS,
    "scale": {"scale": 0.8},
    "soft-cap": {"softcap": 1.5, "bias": BIAS},
    "key heads": {"key_heads": 2, "mask": HEAD_MASK, "bias": BIAS},
    "key heads, one": {"key_heads": 1, "mask": MASK},
    "large scores": {"query_std": 60.0},
    "float16, large scores": {"query_std": 8.0, "dtype": "float16"},
    "float16": CAUSAL | {"key_lengths": KEY_LENGTHS, "bias": BIAS, "dtype": "float16"},
    "bfloat16": CAUSAL | {"key_lengths": KEY_LENGTHS, "dtype": "bfloat16"},
    "long": CAUSAL | {"window": (40, 0), "queries": 600, "keys": 600, "heads": 2, "key_heads": 2},
    # What follows are rules of this library, which others may leave open.
    "empty rows": {"mask": EMPTY_ROW},
    "empty rows, float16": {"mask": EMPTY_ROW, "dtype": "float16"},
    "empty rows, bias": {"bias": np.where(EMPTY_ROW, BIAS, -np.inf)},
    "empty rows, key lengths": {"key_lengths": np.array([9, 0], np.int32)},
    "empty rows, query lengths": {"query_lengths": QUERY_LENGTHS},
    "NaN in padded keys": {"key_lengths": KEY_LENGTHS, "nan": ("key", "value")},
    "NaN in padded queries": {"query_lengths": QUERY_LENGTHS, "nan": ("query",)},
    "NaN in masked keys": {"mask": HIDDEN_KEYS, "nan": ("key", "value")},
    "NaN in future keys": CAUSAL | {"nan": ("key", "value")},
}


class Result(NamedTuple):
    """The result of a case: `passed`, `failed` or `skipped`, largest relative error, and why."""

    name: str
    status: str
    error: float = 0.0
    reason: str = ""


def check_attention(
    function: Callable[..., Any],
    layout: str = "bthd",
    *,
    names: Mapping[str, str | None] = {},
    skip: str | tuple[str, ...] = (),
    raises: bool = True,
) -> list[Result]:
    """Compares the context and the gradients of an attention function with a reference.

    Args:
        function: `(query, key, value, mask=..., bias=...) -> context`, or a tuple that begins with
            the context. It is compiled, and gets the arguments that a case needs. The boolean mask
            is `(b, h, q, k)` or `(b, 1, q, k)`, the bias `(b, h, q, k)` or `(1, h, q, k)`.
        layout: the order of the axes of its arrays, `bthd` or `bhtd`.
        names: its names of arguments of `dot_product_attention`, such as `{"causal": "is_causal"}`.
            Limits without a name become part of the mask. Cases with `scale` or `softcap` need one;
            `{"bias": None}` is for a function that takes no bias.
        skip: beginnings of the names of cases to skip, such as `"empty rows"`.
        raises: False to return failed cases, too.

    Returns:
        A `Result` for each case.

    Raises:
        AssertionError: with a line for each case that failed or was skipped.
    """
    named: Options = {"mask": "mask", "bias": "bias", **names}

    def program(inputs: Options, limits: Options, cotangent: Array, static: Any) -> Any:
        def attend(inputs: Options) -> Array:
            arguments = inputs | limits | dict(static)
            vectors = [jnp.einsum(f"bhtd->{layout}", arguments.pop(name)) for name in VECTORS]
            made = function(*vectors, **{named[name]: x for name, x in arguments.items()})
            return jnp.einsum(f"{layout}->bhtd", jax.tree.leaves(made)[0])

        context, pull = jax.vjp(attend, inputs)
        return context, pull(cotangent.astype(context.dtype))[0]

    program = jax.jit(program, static_argnames="static")
    results = [_result(n, program, named) for n in CASES if not n.startswith(skip)]
    if raises and (number := sum(result.status == "failed" for result in results)):
        lines = [f"{r.status} {r.name}: {r.reason}" for r in results if r.status != "passed"]
        raise AssertionError("\n".join([f"{number} of {len(results)} cases failed", *lines]))
    return results


def _arguments(case: Options, names: Mapping[str, str | None]) -> tuple[Options, list[str]]:
    """Returns what the function gets, and what a mask cannot hold of the limits without a name."""
    limits: Options = {name: case[name] for name in case.keys() - SIZES}
    taken = {name for name in limits if names.get(name)}
    for group in GROUPS:
        taken -= set() if taken.issuperset(group & limits.keys()) else group
    rest = limits.keys() - taken
    mask = {"mask": _visible(SIZES | case, rest | ({"mask"} & taken))} if rest else {}
    lacking = sorted(rest & {"bias", "scale", "softcap"} if names["mask"] else rest)
    return {name: limits[name] for name in taken} | mask, lacking


def _visible(case: Options, names: Iterable[str]) -> Any:
    """Returns which keys each query sees by some limits, `(b, 1 or h, q, k)`."""
    limits: Options = {name: case[name] for name in names}
    offset, prefix, *lengths = (np.reshape((PER_ROW | limits)[n], (-1, 1, 1, 1)) for n in PER_ROW)
    query, key = np.arange(case["queries"])[:, None], np.arange(case["keys"])  # (q, 1), (k,)
    left, right = limits.get("window", (np.inf, np.inf))
    distance = query + offset - key  # (b or 1, 1, q, k)
    right = 0 if "causal" in limits else right
    seen = (-right <= distance) & (distance <= left) | (key < prefix)
    seen = seen & (query < lengths[0]) & (key < lengths[1])
    ids = (limits.get(name, np.zeros((B, 1))) for name in ("query_segments", "key_segments"))
    queries, keys = (array[:, None, :, None] for array in ids)
    seen = seen & (queries == keys.mT) & limits.get("mask", True)
    return seen & (limits.get("bias", 0.0) > -np.inf)


def _reference(case: Options, inputs: Options, visible: Any, cotangent: Any) -> Options:
    """Returns the context of softmax attention, and the gradients by the names of the inputs."""
    scale, softcap = case.get("scale", D**-0.5), case.get("softcap", 1e8)  # 1e8 caps nothing
    groups = case["heads"] // case["key_heads"]
    query, key, value = (inputs[name] for name in VECTORS)
    key, value = key.repeat(groups, axis=1), value.repeat(groups, axis=1)  # (b, h, k, d)
    tanh = np.tanh(scale * query @ key.mT / softcap)  # (b, h, q, k)
    scores = np.where(visible, softcap * tanh + inputs.get("bias", 0), -np.inf)
    largest = np.maximum(scores.max(axis=-1, keepdims=True), -1e300)  # finite in an empty row
    shares = np.exp(scores - largest)
    weights = shares / np.maximum(shares.sum(axis=-1, keepdims=True), 1e-300)
    # the backward pass
    by_weights = cotangent @ value.mT
    by_scores = weights * (by_weights - (weights * by_weights).sum(axis=-1, keepdims=True))
    by_dots = scale * (1 - tanh**2) * by_scores
    rows = len(inputs.get("bias", cotangent))  # 1 if all have the same bias
    by_bias = by_scores.reshape(rows, B // rows, *by_scores.shape[1:]).sum(axis=1)
    expected: Options = {"context": weights @ value, "query": by_dots @ key, "bias": by_bias}
    for name, array in {"key": by_dots.mT @ query, "value": weights.mT @ cotangent}.items():
        expected[name] = array.reshape(B, -1, groups, *array.shape[2:]).sum(axis=2)
    return expected


def _result(name: str, program: Callable[..., Any], names: Mapping[str, str | None]) -> Result:
    """Runs a case, and compares."""
    case, rng = SIZES | CASES[name], np.random.default_rng(1)
    arguments, lacking = _arguments(CASES[name], names)
    if lacking:
        return Result(name, "skipped", reason=f"takes no {', '.join(lacking)}")
    queries, keys = (B, case["heads"], case["queries"]), (B, case["key_heads"], case["keys"])
    sizes = {"query": (*queries, D), "key": (*keys, D), "value": (*keys, case["value_features"])}
    sizes["cotangent"] = *queries, case["value_features"]
    arrays: Options = {array: rng.normal(size=size) for array, size in sizes.items()}
    arrays["query"] *= case["query_std"]
    arrays |= {"bias": case["bias"]} if "bias" in case else {}
    # The reference gets the numbers that the function gets, rounded to the dtype.
    rounded = {n: x.astype(jnp.dtype(case["dtype"])).astype(float) for n, x in arrays.items()}
    visible = _visible(case, CASES[name].keys() - SIZES)
    has_key, has_query = visible.any(axis=3, keepdims=True), visible.any(axis=2, keepdims=True).mT
    is_checked = has_key | name.startswith("empty rows")
    cotangent = is_checked * rounded.pop("cotangent")
    expected = _reference(case, rounded, visible, cotangent)

    real = {"query": has_key, "key": has_query, "value": has_query}
    hidden = {array: np.where(real[array], rounded[array], np.nan) for array in case["nan"]}
    inputs = {n: jnp.asarray(x, case["dtype"]) for n, x in (rounded | hidden).items()}
    limits = {n: x for n, x in arguments.items() if isinstance(x, np.ndarray) and n != "bias"}
    static = tuple((n, x) for n, x in arguments.items() if not isinstance(x, np.ndarray))
    try:
        with jax.default_matmul_precision("highest"):  # a GPU or TPU would round float32
            context, made = jax.device_get(program(inputs, limits, cotangent, static=static))
    except Exception as error:  # of any kind: it is what the function does
        return Result(name, "failed", np.inf, f"{type(error).__name__}: {error}".partition("\n")[0])
    if context.dtype != case["dtype"]:
        return Result(name, "failed", np.inf, f"context is {context.dtype}")
    results: Options = {"context": np.where(is_checked, context, expected["context"]), **made}
    largest = 0.0
    for array in results:
        got, wanted = results[array].astype(float), expected[array]  # (b, h, t, d)
        errors = abs(np.where(np.isnan(got), np.inf, got) - wanted) / abs(wanted).max(initial=1)
        largest = max(largest, float(errors.max()))
        if largest > TOLERANCE[case["dtype"]]:
            place = b, h, t, _ = np.unravel_index(errors.argmax(), errors.shape)
            what = array if array == "context" else f"gradient of {array}"
            what = f"{what} is {got[place]:.3g} at batch {b}, head {h}, position {t}"
            return Result(name, "failed", largest, f"{what}, expected {wanted[place]:.3g}")
    return Result(name, "passed", largest)
