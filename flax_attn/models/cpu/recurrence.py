"""A loop over the steps of a sequence, with the gradient of its kernel as one product after it.

The derivative of the loop would add `h^T dz` to that gradient in every step. That passes over more
memory than all the rest, and takes `t` small products where `sum_t h_t^T dz_t` is one large one.

The derivative as it stands takes 1.30 times as long on jax 0.10 and 1.38 times on jax 0.12 (a
training step of `shapes_lstm`), 1.10 and 1.16 times (`sst_gru_attention`), and as long where the
layer is narrow or the batch large (`ag_news_rnn_attention`, `shapes_bilstm`). All platforms use
this form. There is no forward mode.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.types import Tree

RecurrentState = tuple[Array, ...]  # the hidden state is first
RecurrentStep = Callable[[RecurrentState, Array, Array], RecurrentState]

# What the loop adds to `h U`, (t, ..., gates e): `x W + b + c`, or for a GRU `x W + b` and `c`. The
# last one has the gradient of `h U`.
RecurrentTerms = tuple[Array, ...]


def run(
    step: RecurrentStep,
    reverse: bool,
    kernel: Array,
    terms: RecurrentTerms,
    state: RecurrentState,
    lengths: Array | None,
) -> tuple[Array, RecurrentState, Array]:
    """Runs a step over the first axis, for the first `lengths` `(...)` positions of each row.

    The kernel `U` is `(e, gates e)`, the terms are `(t, ..., gates e)`, the state before the first
    step `(..., e)`. Terms past the end of a row do not count, not even a NaN. Returns the hidden
    states `(t, ..., e)`, zeros where a row has ended, the last state, and the hidden state before
    each step.
    """

    def body(
        state: RecurrentState, at_step: tuple[RecurrentTerms, Array | None]
    ) -> tuple[RecurrentState, tuple]:
        (inputs, *added), is_going = at_step
        new = step(state, inputs, sum(added, jnp.einsum("...e,eg->...g", state[0], kernel)))
        if is_going is None:
            return new, (new[0], state[0])
        carried = tuple(jnp.where(is_going, a, b) for a, b in zip(new, state))  # (..., e) each
        return carried, (jnp.where(is_going, new[0], 0), state[0])

    is_going = None
    if lengths is not None:
        steps = jnp.arange(terms[0].shape[0]).reshape(-1, *(1,) * lengths.ndim)  # (t, 1, ...)
        is_going = (steps < lengths[None])[..., None]  # (t, ..., 1)
        terms = (jnp.where(is_going, terms[0], 0), *terms[1:])  # no NaN of padding gets in
    last, (hidden, before) = jax.lax.scan(body, state, (terms, is_going), reverse=reverse)
    return hidden, last, before


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def recur(
    step: RecurrentStep,
    reverse: bool,
    kernel: Array,
    terms: RecurrentTerms,
    state: RecurrentState,
    lengths: Array | None,
) -> tuple[Array, RecurrentState]:
    """Returns the hidden states and the last state of a `run`."""
    return run(step, reverse, kernel, terms, state, lengths)[:2]


def _forward(step: RecurrentStep, reverse: bool, *arguments: Tree) -> tuple:
    kernel, terms, state, lengths = arguments

    def loop(terms: RecurrentTerms, state: RecurrentState) -> tuple[tuple, Array]:
        hidden, last, before = run(step, reverse, kernel, terms, state, lengths)
        return (hidden, last), before

    outputs, pull_back, before = jax.vjp(loop, terms, state, has_aux=True)  # before (t, ..., e)
    return outputs, (pull_back, before)


def _backward(
    step: RecurrentStep, reverse: bool, residuals: tuple, cotangents: tuple[Array, RecurrentState]
) -> tuple:
    pull_back, before = residuals
    terms, state = pull_back(cotangents)  # the last term has the gradient of `h U`
    leading = list(range(before.ndim - 1))  # steps and rows, which are summed over
    return jnp.tensordot(before, terms[-1], (leading, leading)), terms, state, None  # (e, gates e)


recur.defvjp(_forward, _backward)
