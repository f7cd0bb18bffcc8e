import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flax_attn.training.epoch import Plateau, TrainState


def run(scores, plateau=Plateau(), patience=0):  # noqa: B008
    state = TrainState.create(jnp.uint32(0), lambda key: ({"w": jnp.zeros(())}, {}), optax.sgd(1.0))
    after_epoch = jax.jit(
        functools.partial(TrainState.after_epoch, plateau=plateau, patience=patience)
    )
    states = []
    for epoch, score in enumerate(scores, 1):
        state = state.replace(
            params={"w": np.where(state.stopped, state.params["w"], np.float32(epoch))}
        )
        state = after_epoch(state, jnp.float32(score), jnp.int32(epoch))
        states.append(state)
    return states


@pytest.mark.parametrize("patience", [1, 3])
def test_the_rate_falls_when_pytorchs_does(patience):
    """Its rule, step by step: bad epochs are counted, and beyond the patience the rate falls and
    the count starts again.
    """
    scores = [3.0, 2.0, 2.0, 1.99999, 2.5, 2.0, 1.0, *[1.0] * 9]
    best, bad, rate, expected = np.inf, 0, 1.0, []
    for score in scores:
        if score < best * (1 - 1e-4):
            best, bad = score, 0
        else:
            bad += 1
        if bad > patience:
            rate, bad = rate * 0.1, 0
        expected.append(rate)
    np.testing.assert_allclose(
        [float(s.rate_scale) for s in run(scores, Plateau(patience))], expected, rtol=1e-5
    )
    assert expected[-1] < 0.1


def test_patience_0_never_lowers_the_rate_and_never_stops():
    last = run([1.0] * 20)[-1]
    assert (float(last.rate_scale), bool(last.stopped)) == (1.0, False)


def test_a_seed_stops_after_its_patience_and_changes_no_more():
    states = run([3.0, 2.0, 2.5, 2.5, 1.0, 0.5], patience=2)
    assert [bool(state.stopped) for state in states] == [False, False, False, True, True, True]
    assert (
        float(states[-1].best_score),
        int(states[-1].best_epoch),
        float(states[-1].best_params["w"]),
    ) == (2.0, 2, 2.0)


def test_each_seed_has_its_own_patience():
    states = jax.tree.map(lambda *leaves: np.stack(leaves), *[run([1.0])[-1]] * 2)
    after_epoch = functools.partial(TrainState.after_epoch, plateau=Plateau(), patience=1)
    after = jax.jit(jax.vmap(after_epoch, in_axes=(0, 0, None)))(
        states, np.array([2.0, 0.5], np.float32), np.int32(2)
    )
    assert after.stopped.tolist() == [True, False]


def test_an_equal_score_is_no_better_one():
    last = run([2.0, 2.0])[-1]
    assert (int(last.best_epoch), float(last.best_params["w"])) == (1, 1.0)


def test_a_gain_of_the_threshold_is_none():
    last = run([1.0, 0.5], Plateau(patience=3, threshold=0.5))[-1]
    assert (int(last.plateau_epochs), float(last.plateau_score)) == (1, 1.0)
