"""The recurrence of every cell beside the same loop that JAX differentiates."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models.cpu import recurrence
from flax_attn.models.recurrent import CELLS

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


def draw(cell, leading, dtype=np.float32):
    """A kernel, the terms of its cell and a state."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    gates, states, terms = CELLS[cell].num_gates, CELLS[cell].num_states, 1 + (cell == "gru")
    return (
        normal(FEATURES, gates * FEATURES) / 2,
        tuple(normal(STEPS, *leading, gates * FEATURES) for _ in range(terms)),
        tuple(normal(*leading, FEATURES) for _ in range(states)),
    )


def ours(cell):
    return functools.partial(recurrence.recur, CELLS[cell].step)


def in_a_loop(cell):
    return lambda *arguments, **options: recurrence.run(CELLS[cell].step, *arguments, **options)[:2]


def loss(recur, kernel, terms, state):
    """Depends on every hidden state and on the whole last state, with a slope at 0, which stands
    past the end.
    """
    hidden, (last, *memory) = recur(kernel, terms, state)
    offsets = jnp.arange(1, 1 + STEPS, dtype=hidden.dtype).reshape(-1, *[1] * (hidden.ndim - 1))
    total = jnp.sin(3 * hidden + offsets).sum() + (last**2).sum()
    return total + sum(jnp.cos(leaf).sum() for leaf in memory)


def gradient(recur, reverse, lengths):
    return jax.grad(
        functools.partial(loss, functools.partial(recur, reverse, lengths=lengths)), (0, 1, 2)
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cell", CELLS)
def test_values_and_gradients_are_those_of_the_loop(cell, case, reverse):
    leading, lengths = setting(case)
    arguments = draw(cell, leading)

    def values_and_gradient(recur):
        values = jax.jit(functools.partial(recur, reverse, lengths=lengths))(*arguments)
        return values, jax.jit(gradient(recur, reverse, lengths))(*arguments)

    of_loop = values_and_gradient(in_a_loop(cell))
    chex.assert_trees_all_close(values_and_gradient(ours(cell)), of_loop, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("case", "reverse"), [("lengths", False), ("a state", True)])
def test_second_gradients_are_those_of_the_loop(case, reverse):
    leading, lengths = setting(case)

    def second_derivative(recur):
        first = gradient(recur, reverse, lengths)
        second = jax.grad(
            lambda *arguments: sum(
                jnp.sin(leaf).sum() for leaf in jax.tree.leaves(first(*arguments))
            ),
            (0, 1, 2),
        )
        return jax.jit(second)(*draw("lstm", leading))

    of_loop = second_derivative(in_a_loop("lstm"))
    chex.assert_trees_all_close(second_derivative(ours("lstm")), of_loop, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
def test_seeds_together_are_the_seeds_alone(reverse):
    kernel, terms, state = draw("lstm", (3,))
    kernels, lengths = [kernel, 2 * kernel], [jnp.array([7, 2, 0]), jnp.array([1, 7, 4])]
    of_seed = lambda kernel, lengths: gradient(ours("lstm"), reverse, lengths)(kernel, terms, state)
    together = jax.jit(jax.vmap(of_seed))(jnp.stack(kernels), jnp.stack(lengths))
    one_by_one = map(jax.jit(of_seed), kernels, lengths)
    alone = jax.tree.map(lambda *leaves: np.stack(leaves), *one_by_one)
    chex.assert_trees_all_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_nothing_past_the_end_leaks(cell, reverse):
    kernel, (x, *added), state = draw(cell, (2,))
    recur = functools.partial(ours(cell), reverse, lengths=jnp.array([2, 7]))

    @jax.jit
    def pulled_back(x, past_the_end):
        (hidden, last), pull_back = jax.vjp(recur, kernel, (x, *added), state)
        return hidden, last, pull_back((jnp.ones_like(hidden).at[2:, 0].set(past_the_end), last))

    chex.assert_trees_all_equal(pulled_back(x.at[2:, 0].set(np.nan), np.nan), pulled_back(x, 0.0))


@pytest.mark.parametrize("case", ["a batch", "lengths"])
@pytest.mark.parametrize("cell", CELLS)
def test_half_precision_stays_half(cell, case):
    leading, lengths = setting(case)
    arguments = draw(cell, leading, jnp.bfloat16)
    gradients = jax.jit(gradient(ours(cell), False, lengths))
    half, exact = (
        gradients(*arguments),
        gradients(*jax.tree.map(lambda leaf: leaf.astype(jnp.float32), arguments)),
    )
    chex.assert_trees_all_equal_dtypes(half, arguments)
    for rounded, single in zip(jax.tree.leaves(half), jax.tree.leaves(exact)):
        error = np.linalg.norm(rounded.astype(jnp.float32) - single)
        assert error < 0.05 * np.linalg.norm(single)


def test_there_is_no_forward_mode():
    kernel, terms, state = draw("lstm", (3,))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda *x: ours("lstm")(False, kernel, x, state, None)[0], terms, terms)
