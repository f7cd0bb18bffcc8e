"""Segments: how many steps of an epoch run in one call.

Between segments training can stop and save. A segment takes about a second with every model. The
number of steps follows from the operations of one step, not from a clock, so it is the same in
every process and on every start.
"""

import math
from typing import Any

from jax.extend import core

SEGMENT = 50_000_000_000  # what 2 CPU cores do in one or two seconds, in weights of operations
CALL = 20_000  # what it costs to begin an operation


def steps_a_segment(jaxpr: core.ClosedJaxpr) -> int:
    """The steps of a segment, from the operations of a program whose loop takes one step."""
    return max(1, SEGMENT // weigh(jaxpr.jaxpr))


def weigh(jaxpr: core.Jaxpr) -> int:
    """The weight of a program: multiplications of products, elements of all else, and the calls.

    The body of a loop counts as often as a `scan` runs it, and once in a `while`, whose number
    is not known. Of branches the heaviest counts.
    """
    return sum(_weigh_equation(equation) for equation in jaxpr.eqns)


def _weigh_equation(equation: Any) -> int:  # Any: of JAX, which has no public type for it
    name, params = equation.primitive.name, equation.params
    if name == "cond":
        return max(weigh(branch.jaxpr) for branch in params["branches"])
    programs = core.Jaxpr, core.ClosedJaxpr  # the one is the other from JAX 0.12 on
    inner = [_opened(value) for value in params.values() if isinstance(value, programs)]
    if inner:
        return (params["length"] if name == "scan" else 1) * sum(map(weigh, inner))
    size = sum(math.prod(out.aval.shape) for out in equation.outvars)
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        size *= math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, features = equation.invars[1].aval.shape, params["dimension_numbers"].rhs_spec[0]
        size *= math.prod(kernel) // kernel[features]
    return size + CALL


def _opened(program: core.Jaxpr | core.ClosedJaxpr) -> core.Jaxpr:
    return program.jaxpr if isinstance(program, core.ClosedJaxpr) else program
