"""The primitives that the interpreter in the page knows, with the parameters that it needs.

The interpreter is `page/engine/interpreter.mjs`. A test compares the names that both know.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.lax import GatherScatterMode, RoundingMethod

from flax_attn.errors import UsageError
from flax_attn.types import Json, JsonObject, Options, Tree

DTYPES = ("float32", "int32", "uint32", "bool", "uint8", "int8", "uint16", "int16")


# all that decides the outputs is the inputs, and the shapes and dtypes of both
PLAIN = (
    "abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy "
    "cos cosh div dynamic_slice dynamic_update_slice eq erf erfc exp exp2 expm1 floor ge gt "
    "is_finite le log log1p logistic lt max min mul ne neg not or pow rem reshape rsqrt select_n "
    "shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square squeeze "
    "stop_gradient sub tan tanh xor"
)
REDUCTIONS = "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin"
RUNNING = "cumsum cumprod cummax cummin cumlogsumexp"
BODIES = {  # those that hold programs, by the names of their parameters
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
}


def _take(*names: str) -> Callable[[Options], JsonObject]:
    """Takes parameters as they are, and leaves out those that are None."""
    return lambda params: {name: params[name] for name in names if params[name] is not None}


def _gather(params: Options) -> JsonObject:
    numbers, filling = params["dimension_numbers"], params["fill_value"]
    if filling is None or np.isnan(filling):  # NaN is no JSON, and what the page takes for floats
        filling = "default"
    elif np.isinf(filling):
        raise UsageError("the primitive 'gather' with an infinite fill value")
    return {
        "offset": numbers.offset_dims,
        "collapsed": numbers.collapsed_slice_dims,
        "mapped": numbers.start_index_map,
        "batch": numbers.operand_batching_dims,
        "indexBatch": numbers.start_indices_batching_dims,
        "sizes": params["slice_sizes"],
        "fill": filling if params["mode"] == GatherScatterMode.FILL_OR_DROP else None,
    }


def _dot_general(params: Options) -> JsonObject:
    contracted, batch = params["dimension_numbers"]
    return {"contracted": contracted, "batch": batch}


def _conv(params: Options) -> JsonObject:
    groups = params["feature_group_count"], params["batch_group_count"]
    if groups != (1, 1) or any(n != 1 for n in params["lhs_dilation"]):
        raise UsageError("the primitive 'conv_general_dilated' with groups, or transposed")
    numbers = params["dimension_numbers"]
    return {
        "strides": params["window_strides"],
        "padding": params["padding"],
        "dilation": params["rhs_dilation"],
        "lhs": numbers.lhs_spec,
        "rhs": numbers.rhs_spec,
        "out": numbers.out_spec,
    }


PARAMETERS: dict[str, Callable[[Options], JsonObject]] = {
    **{name: lambda params: {} for name in PLAIN.split()},
    **{name: _take("axes") for name in REDUCTIONS.split()},
    **{name: _take("axis", "reverse") for name in RUNNING.split()},
    "broadcast_in_dim": _take("broadcast_dimensions"),
    "concatenate": _take("dimension"),
    "conv_general_dilated": _conv,
    "dot_general": _dot_general,
    "gather": _gather,
    "integer_pow": _take("y"),
    "iota": _take("dimension"),
    "pad": _take("padding_config"),
    "rev": _take("dimensions"),
    "round": lambda params: {"even": params["rounding_method"] == RoundingMethod.TO_NEAREST_EVEN},
    "slice": _take("start_indices", "strides"),
    "sort": _take("dimension", "num_keys"),
    "split": _take("sizes", "axis"),
    "stack": _take("axis"),
    "top_k": _take("k", "axis"),
    "transpose": _take("permutation"),
    "scan": _take("reverse", "length"),
    "while": _take("cond_nconsts", "body_nconsts"),
    "cond": lambda params: {},
}


def parameters(equation: JaxprEqn) -> JsonObject:
    """Returns the parameters of an equation that the interpreter needs, without its programs.

    Raises:
        UsageError: a primitive, or a form of one, that the interpreter does not know; its text is
            a part of a sentence.
    """
    name = equation.primitive.name
    if name not in PARAMETERS:
        raise UsageError(f"the primitive '{name}'")
    for variable in (*equation.invars, *equation.outvars):
        dtype_name(variable.aval.dtype)  # pyright: ignore
    known = PARAMETERS[name](equation.params) | (_counts(equation) if name == "scan" else {})
    return {key: _plain(value) for key, value in known.items()}


def _counts(scan: JaxprEqn) -> JsonObject:
    """Counts the inputs of a scan that are constants, and those that are carried.

    Newer JAX does not keep the counts. Scanned arrays have one axis less inside.
    """
    (body,) = bodies(scan)["jaxpr"]

    def whole(variables: Sequence[Tree], inside: Sequence[Tree]) -> int:
        return sum(
            variable.aval.ndim == aval.ndim
            for variable, aval in zip(variables, inside, strict=True)
        )

    num_carry = whole(scan.outvars, body.out_avals)
    return {"num_consts": whole(scan.invars, body.in_avals) - num_carry, "num_carry": num_carry}


def _plain(value: Json) -> Json:
    """Converts sequences to lists, and NumPy's numbers to Python's."""
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def bodies(equation: JaxprEqn) -> dict[str, list[ClosedJaxpr]]:
    """Returns the programs that an equation holds, by name."""
    held = {name: equation.params[name] for name in BODIES.get(equation.primitive.name, ())}
    return {
        name: list(value) if isinstance(value, (list, tuple)) else [value]
        for name, value in held.items()
    }


def dtype_name(dtype: np.dtype) -> str:
    """Returns the name of a dtype. Raises a UsageError where the interpreter does not know it."""
    name = str(dtype)
    if name not in DTYPES:
        raise UsageError(f"arrays of {name}")
    return name
