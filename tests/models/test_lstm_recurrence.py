"""The LSTM's recurrence beside its equations in a loop that JAX differentiates."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import lstm_recurrence, recurrent

STEPS, FEATURES = 7, 5
CASES = {
    "a state": ((), None),
    "a batch": ((3,), None),
    "two axes": ((2, 3), None),
    "lengths": ((3,), [7, 2, 0]),
    "lengths of two axes": ((2, 3), [[7, 2, 0], [1, 5, 3]]),
}


def setting(case):
    leading, lengths = CASES[case]
    return leading, None if lengths is None else jnp.array(lengths)


def draw(leading, dtype=np.float32):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    state = normal(*leading, FEATURES), normal(*leading, FEATURES)
    return normal(FEATURES, 4 * FEATURES) / 2, normal(STEPS, *leading, 4 * FEATURES), state


def in_a_loop(reverse, kernel, x, state, lengths):
    return recurrent.run(recurrent.lstm, reverse, kernel, (x,), state, lengths)[:2]


def loss(recurrence, kernel, x, state):
    """Depends on every hidden state and on both last states, with a slope at 0, which stands past
    the end.
    """
    hidden, (last, memory) = recurrence(kernel, x, state)
    offsets = jnp.arange(1, 1 + STEPS, dtype=hidden.dtype).reshape(-1, *[1] * (hidden.ndim - 1))
    return jnp.sin(3 * hidden + offsets).sum() + (last**2).sum() + jnp.cos(memory).sum()


def gradient(recurrence, reverse, lengths):
    return jax.grad(
        functools.partial(loss, functools.partial(recurrence, reverse, lengths=lengths)), (0, 1, 2)
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_loop(case, reverse):
    leading, lengths = setting(case)
    arguments = draw(leading)

    def values_and_gradient(recurrence):
        values = jax.jit(functools.partial(recurrence, reverse, lengths=lengths))(*arguments)
        return values, jax.jit(gradient(recurrence, reverse, lengths))(*arguments)

    chex.assert_trees_all_close(
        values_and_gradient(lstm_recurrence.recur),
        values_and_gradient(in_a_loop),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("case", ["lengths", pytest.param("a state", marks=pytest.mark.full)])
def test_second_gradients_are_those_of_the_loop(case, reverse):
    leading, lengths = setting(case)

    def second_derivative(recurrence):
        first = gradient(recurrence, reverse, lengths)
        second = jax.grad(
            lambda *arguments: sum(
                jnp.sin(leaf).sum() for leaf in jax.tree.leaves(first(*arguments))
            ),
            (0, 1, 2),
        )
        return jax.jit(second)(*draw(leading))

    chex.assert_trees_all_close(
        second_derivative(lstm_recurrence.recur), second_derivative(in_a_loop), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_seeds_together_are_the_seeds_alone(reverse):
    kernel, x, state = draw((3,))
    kernels, lengths = [kernel, 2 * kernel], [jnp.array([7, 2, 0]), jnp.array([1, 7, 4])]
    of_seed = lambda kernel, lengths: gradient(lstm_recurrence.recur, reverse, lengths)(
        kernel, x, state
    )
    together = jax.jit(jax.vmap(of_seed))(jnp.stack(kernels), jnp.stack(lengths))
    one_by_one = map(jax.jit(of_seed), kernels, lengths)
    alone = jax.tree.map(lambda *leaves: np.stack(leaves), *one_by_one)
    chex.assert_trees_all_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_past_the_end_leaks(reverse):
    kernel, x, state = draw((2,))
    recurrence = functools.partial(lstm_recurrence.recur, reverse, lengths=jnp.array([2, 7]))

    @jax.jit
    def pulled_back(x, past_the_end):
        (hidden, last), pull_back = jax.vjp(recurrence, kernel, x, state)
        return hidden, last, pull_back((jnp.ones_like(hidden).at[2:, 0].set(past_the_end), last))

    chex.assert_trees_all_equal(pulled_back(x.at[2:, 0].set(np.nan), np.nan), pulled_back(x, 0.0))


@pytest.mark.parametrize("case", ["a batch", "lengths"])
def test_half_precision_stays_half(case):
    leading, lengths = setting(case)
    arguments = draw(leading, jnp.bfloat16)
    gradients = jax.jit(gradient(lstm_recurrence.recur, False, lengths))
    ours, exact = (
        gradients(*arguments),
        gradients(*jax.tree.map(lambda leaf: leaf.astype(jnp.float32), arguments)),
    )
    chex.assert_trees_all_equal_dtypes(ours, arguments)
    for half, single in zip(jax.tree.leaves(ours), jax.tree.leaves(exact)):
        assert np.linalg.norm(half.astype(jnp.float32) - single) < 0.05 * np.linalg.norm(single)


def test_there_is_no_forward_mode():
    kernel, x, state = draw((3,))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: lstm_recurrence.recur(False, kernel, x, state, None)[0], (x,), (x,))
