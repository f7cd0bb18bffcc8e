"""The LSTM's recurrence beside its equations in a loop that JAX differentiates."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import lstm_recurrence, recurrent

STEPS, FEATURES = 5, 3
CASES = {
    "a state": ((), None),
    "a batch": ((2,), None),
    "two axes": ((2, 3), None),
    "lengths": ((4,), [5, 2, 0, 3]),
    "lengths of two axes": ((2, 3), [[5, 2, 0], [1, 5, 3]]),
}


def setting(case):
    leading, lengths = CASES[case]
    return leading, None if lengths is None else jnp.array(lengths)


def draw(leading, dtype=np.float32):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    state = normal(*leading, FEATURES), normal(*leading, FEATURES)
    return normal(FEATURES, 4 * FEATURES), normal(STEPS, *leading, 4 * FEATURES), state


def in_a_loop(reverse, kernel, x, state, lengths):
    return recurrent.run(recurrent.lstm, reverse, kernel, (x,), state, lengths)[:2]


def loss(recurrence, kernel, x, state):
    """Depends on every hidden state and on both last states, with a slope at 0, which stands past the end."""
    hidden, (last, memory) = recurrence(kernel, x, state)
    return (
        jnp.sin(3 * hidden + jnp.arange(1.0, 1 + STEPS).reshape(-1, *[1] * (hidden.ndim - 1))).sum()
        + (last**2).sum()
        + jnp.cos(memory).sum()
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_loop(case, reverse):
    leading, lengths = setting(case)
    arguments = draw(leading)

    def found(recurrence):
        recurrence = functools.partial(recurrence, reverse, lengths=lengths)
        return jax.jit(recurrence)(*arguments), jax.jit(jax.grad(functools.partial(loss, recurrence), (0, 1, 2)))(*arguments)

    chex.assert_trees_all_close(found(lstm_recurrence.recur), found(in_a_loop), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", [pytest.param("lengths"), pytest.param("a state", marks=pytest.mark.full)])
def test_second_gradients_are_those_of_the_loop(case):
    leading, lengths = setting(case)

    def found(recurrence):
        first = jax.grad(functools.partial(loss, functools.partial(recurrence, True, lengths=lengths)), (0, 1, 2))
        return jax.jit(jax.grad(lambda *arguments: sum(jnp.sin(g).sum() for g in jax.tree.leaves(first(*arguments))), (0, 1, 2)))(
            *draw(leading)
        )

    chex.assert_trees_all_close(found(lstm_recurrence.recur), found(in_a_loop), rtol=1e-4, atol=1e-4)


def test_seeds_together_are_the_seeds_alone():
    kernel, x, state = draw((2,))
    gradient = jax.grad(functools.partial(loss, functools.partial(lstm_recurrence.recur, False, lengths=None)), (0, 1))
    kernels = [kernel, 2 * kernel]
    together = jax.jit(jax.vmap(gradient, (0, None, None)))(jnp.stack(kernels), x, state)
    alone = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(gradient(kernel, x, state) for kernel in kernels))
    chex.assert_trees_all_close(together, alone, rtol=1e-4, atol=1e-5)


def test_nothing_past_the_end_leaks():
    kernel, x, state = draw((2,))
    lengths = jnp.array([2, 5])
    gradient = jax.jit(
        jax.value_and_grad(functools.partial(loss, functools.partial(lstm_recurrence.recur, False, lengths=lengths)), (0, 1, 2))
    )
    chex.assert_trees_all_equal(gradient(kernel, x.at[2:, 0].set(np.nan), state), gradient(kernel, x, state))


def test_half_precision_stays_half():
    arguments = draw((2,), jnp.bfloat16)
    gradient = jax.grad(functools.partial(loss, functools.partial(lstm_recurrence.recur, False, lengths=None)), (0, 1, 2))
    ours, exact = gradient(*arguments), gradient(*jax.tree.map(lambda leaf: leaf.astype(jnp.float32), arguments))
    chex.assert_trees_all_equal_dtypes(ours, arguments)
    chex.assert_trees_all_close(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), ours), exact, atol=0.3)
    assert np.linalg.norm(ours[0].astype(jnp.float32) - exact[0]) < 0.03 * np.linalg.norm(exact[0])
