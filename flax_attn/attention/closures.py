"""Functions that close over arrays, made ready for derivatives of their own.

A function with a derivative of its own (`jax.custom_vjp`) may not close over arrays that are
differentiated or vectorised. Here they become arguments.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun


def without_closure(function: Callable, *examples: Any) -> tuple[Callable, list[Any]]:
    """The function with the arrays that it closes over as a first argument, and these arrays.

    The examples are arguments of the shapes and dtypes that it will be called with.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    tree = jax.tree.structure(shape)

    def call(arrays: list[Any], *args: Any) -> Any:
        outputs = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, arrays))(*jax.tree.leaves(args))
        return jax.tree.unflatten(tree, outputs)

    return call, [jnp.asarray(array) for array in closed.consts]  # a number may be a Python one


def with_gradient_of(exact: Callable, fast: Callable, *args: Any) -> Any:
    """`fast(*args)`, with the gradient of `exact(*args)`, which must be the same function."""
    fast_call, of_fast = without_closure(fast, *args)
    exact_call, of_exact = without_closure(exact, *args)

    @jax.custom_vjp
    def call(of_fast: list[Any], of_exact: list[Any], *args: Any) -> Any:
        return fast_call(of_fast, *args)

    def forward(of_fast: list[Any], of_exact: list[Any], *args: Any) -> tuple[Any, Any]:
        return call(of_fast, of_exact, *args), (of_fast, of_exact, args)

    def backward(kept: Any, gradient: Any) -> tuple:
        of_fast, of_exact, args = kept
        _, pull = jax.vjp(exact_call, of_exact, *args)
        return [None] * len(of_fast), *pull(gradient)

    call.defvjp(forward, backward)
    return call(of_fast, of_exact, *args)
