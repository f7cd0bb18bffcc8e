"""Functions that close over arrays, made ready for derivatives of their own.

A function with a derivative of its own (`jax.custom_vjp`) may not close over arrays that are
differentiated or vectorised. Here they become arguments.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from flax_attn.types import Tree


def without_closure(function: Callable, *examples: Tree) -> tuple[Callable, list[Tree]]:
    """The function with the arrays that it closes over as a first argument, and these arrays.

    The examples are arguments of the shapes and dtypes that it will be called with.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    # `call` keeps no array alive: newer JAX has the arrays in the program itself
    bare = ClosedJaxpr(closed.jaxpr, [None] * len(closed.consts))
    tree, jaxpr = jax.tree.structure(shape), bare.jaxpr

    def call(arrays: list[Tree], *args: Tree) -> Tree:
        outputs = jaxpr_as_fun(ClosedJaxpr(jaxpr, arrays))(*jax.tree.leaves(args))
        return jax.tree.unflatten(tree, outputs)

    return call, [jnp.asarray(array) for array in closed.consts]  # a number may be a Python one


def with_gradient_of(exact: Callable, fast: Callable, *args: Tree) -> Tree:
    """`fast(*args)`, with the gradient of `exact(*args)`, which must be the same function."""
    fast_call, of_fast = without_closure(fast, *args)
    exact_call, of_exact = without_closure(exact, *args)

    @jax.custom_vjp
    def call(of_fast: list[Tree], of_exact: list[Tree], *args: Tree) -> Tree:
        return fast_call(of_fast, *args)

    def forward(of_fast: list[Tree], of_exact: list[Tree], *args: Tree) -> tuple[Tree, Tree]:
        return call(of_fast, of_exact, *args), (of_fast, of_exact, args)

    def backward(kept: Tree, gradient: Tree) -> tuple:
        of_fast, of_exact, args = kept
        _, pull = jax.vjp(exact_call, of_exact, *args)
        return [None] * len(of_fast), *pull(gradient)

    call.defvjp(forward, backward)
    return call(of_fast, of_exact, *args)
