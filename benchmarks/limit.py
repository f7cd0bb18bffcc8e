"""The time that the products of a function take at the rate of a large one: what no faster code for
the same products can go below.

An algorithm with fewer products can, as Cook-Toom convolutions do.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from benchmarks import timing


def milliseconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Multiplications and additions of all products and convolutions in `function(*arguments)` over
    the measured rate.
    """
    return 1e3 * count(jax.make_jaxpr(function)(*arguments).jaxpr) / rate()


@functools.cache
def rate(size: int = 2048, repeats: int = 7) -> float:
    """Operations a second in a product of two square matrices of float32."""
    x = jax.random.normal(jax.random.key(0), (size, size))
    multiply = jax.jit(jnp.matmul)
    return (
        2
        * size**3
        / timing.alternate({"product": lambda: jax.block_until_ready(multiply(x, x))}, repeats)[
            "product"
        ]
    )


def count(jaxpr: core.Jaxpr) -> int:
    """Two for each pair of numbers that products and convolutions multiply; a scan counts as often
    as it runs, a `while` once.
    """
    total = 0
    for equation in jaxpr.eqns:
        name, options = equation.primitive.name, equation.params
        outputs = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
        if name == "dot_general":
            (contracted, _), _ = options["dimension_numbers"]
            total += 2 * outputs * math.prod(equation.invars[0].aval.shape[i] for i in contracted)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            total += (
                2 * outputs * math.prod(kernel) // kernel[options["dimension_numbers"].rhs_spec[0]]
            )
        elif name == "cond":  # of which one branch runs
            total += max(map(count, _jaxprs(options["branches"])))
        else:
            times = options.get("length", 1) if name == "scan" else 1
            total += times * sum(count(inner) for inner in _jaxprs(list(options.values())))
    return total


def _jaxprs(value: Any) -> list[core.Jaxpr]:
    """The programs within a parameter of an equation."""
    if isinstance(value, (tuple, list)):
        return [inner for item in value for inner in _jaxprs(item)]
    value = getattr(value, "jaxpr", value)
    return [value] if isinstance(value, core.Jaxpr) else []
