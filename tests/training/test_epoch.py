import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flax_attn.training import epoch, mesh
from flax_attn.training.epoch import Plateau, TrainState
from flax_attn.training.metrics import Confusion, Mean, squared_error

X = np.random.default_rng(0).normal(size=(23, 3)).astype(np.float32)
DATA = jax.tree.map(
    jnp.asarray, {"inputs": X, "targets": X @ np.array([[1.0], [-2.0], [0.5]], np.float32)}
)
OPTIMIZER = optax.adam(1e-2)


def loss(params, carry, batch, key):
    """A linear model that counts its batches, to see what is carried, and reports the count before
    each.
    """
    error = squared_error(
        batch["inputs"] @ params["w"],
        batch["targets"],
        batch.get("mask", jnp.ones(len(batch["inputs"]), bool)),
    )
    return error.compute(), (
        {"batches": carry["batches"] + 1},
        {"mse": error, "before": Mean(carry["batches"], jnp.float32(1))},
    )


def init(key):
    return {"w": jax.random.normal(key, (3, 1))}, {"batches": jnp.float32(0)}


create = jax.jit(functools.partial(TrainState.create, init=init, optimizer=OPTIMIZER))
step = functools.partial(epoch.train_step, loss=loss, optimizer=OPTIMIZER)
plan = functools.partial(epoch.shuffled_rows, num_examples=23, batch_size=5, num_steps=6)
parts = {"step": step, "fetch": epoch.gather}
order_of = jax.jit(functools.partial(epoch.order_of_epoch, plan=plan))
train_steps = jax.jit(functools.partial(epoch.train_steps, **parts))
NOTHING = {name: Mean(jnp.float32(0), jnp.float32(0)) for name in ("mse", "before")}


def train(state, number, data, first=0, last=6, sums=NOTHING):
    """A whole epoch: the state and the metrics."""
    bounds = (number, np.int32(first), np.int32(last))
    state, sums, _ = train_steps(state, sums, order_of(state, number), *bounds, data)
    return state, epoch.compute(sums)


train_alone = train
evaluate = jax.jit(functools.partial(epoch.evaluate, loss=loss))


def test_training_finds_the_weights():
    state = create(jnp.uint32(0))
    for number in range(1, 200):
        state, metrics = train_alone(state, jnp.int32(number), DATA)
    np.testing.assert_allclose(state.params["w"][:, 0], [1.0, -2.0, 0.5], atol=1e-3)
    assert metrics["mse"] < 1e-5


def test_an_epoch_is_its_steps_one_after_another():
    state = create(jnp.uint32(0))
    scanned, _ = train_alone(state, jnp.int32(1), DATA)
    order_key, step_key = jax.random.split(state.epoch_key(jnp.int32(1)))
    one_step = jax.jit(lambda state, rows: step(state, epoch.gather(DATA, rows), step_key)[0])
    for rows in np.asarray(plan(order_key, 1)):
        state = one_step(state, rows)
    chex.assert_trees_all_close(scanned, state, rtol=1e-5)


@pytest.mark.parametrize("cuts", [(1,), (2, 3), (1, 2, 3, 4, 5)])
def test_an_epoch_in_parts_is_the_epoch_in_one_to_the_last_bit(cuts):
    start = create(jnp.uint32(3))
    whole, metrics = train(start, jnp.int32(2), DATA)
    state, sums = start, NOTHING
    for first, last in itertools.pairwise((0, *cuts, 6)):
        places = (jnp.int32(2), np.int32(first), np.int32(last))
        order = order_of(start, jnp.int32(2))
        state, sums, finite = train_steps(state, sums, order, *places, DATA)
    chex.assert_trees_all_equal(state, whole)
    chex.assert_trees_all_equal(epoch.compute(sums), metrics)
    assert finite


def test_a_stopped_seed_stays_as_it_is():
    start = create(jnp.uint32(0)).with_changes(stopped=jnp.bool_(True))
    order, bounds = order_of(start, jnp.int32(1)), (jnp.int32(1), np.int32(0), np.int32(6))
    state, sums, _ = train_steps(start, NOTHING, order, *bounds, DATA)
    chex.assert_trees_all_equal((state, sums), (start, NOTHING))


def test_a_seed_whose_numbers_are_not_finite_stops_and_stays_as_it_was():
    """The loss is finite, and its gradient is not."""

    def bad_loss(params, carry, batch, key):
        value, rest = loss(params, carry, batch, key)
        is_bad = (batch["inputs"] == 7).any()
        return value + jnp.sqrt(jnp.where(is_bad, 0 * params["w"], 1)).sum(), rest

    take = functools.partial(epoch.train_step, loss=bad_loss, optimizer=OPTIMIZER)
    run = jax.jit(functools.partial(epoch.train_steps, **parts | {"step": take}))
    start, bounds = create(jnp.uint32(0)), (jnp.int32(3), np.int32(0), np.int32(6))
    order, inputs = order_of(start, jnp.int32(3)), X.copy()
    assert run(start, NOTHING, order, *bounds, DATA)[2]
    inputs[0] = 7
    state, sums, finite = run(start, NOTHING, order, *bounds, DATA | {"inputs": inputs})
    assert not finite
    stopped = start.with_changes(stopped=jnp.bool_(True), diverged=jnp.int32(3))
    chex.assert_trees_all_equal((state, sums), (stopped, NOTHING))
    assert not epoch.is_finite({"a": jnp.ones(3), "b": jnp.array([0.0, jnp.inf])})


def test_every_step_has_a_key_of_its_own():
    def draw(params, carry, batch, key):
        value, (carry, _) = loss(params, carry, batch, key)
        return value, (carry, {"drawn": Mean(jax.random.uniform(key), jnp.float32(1))})

    take = functools.partial(epoch.train_step, loss=draw, optimizer=OPTIMIZER)
    run = jax.jit(functools.partial(epoch.train_steps, **parts | {"step": take}))
    nothing = {"drawn": NOTHING["mse"]}
    state, drawn = create(jnp.uint32(0)), set()
    for number in (1, 2):
        for i in range(6):
            places = jnp.int32(number), np.int32(i), np.int32(i + 1)
            order = order_of(state, jnp.int32(number))
            state, sums, _ = run(state, nothing, order, *places, DATA)
            drawn.add(float(sums["drawn"].total))
    assert len(drawn) == 12


def test_a_step_is_as_long_as_the_scale_of_the_rate_says():
    start = create(jnp.uint32(0))
    half, _ = jax.jit(step)(
        start.with_changes(rate_scale=jnp.float32(0.5)), DATA, jax.random.key(0)
    )
    whole, _ = jax.jit(step)(start, DATA, jax.random.key(0))
    change = lambda state: state.params["w"] - start.params["w"]
    np.testing.assert_allclose(change(half), change(whole) / 2, rtol=1e-3)
    assert np.abs(change(whole)).min() > 0


def test_the_carry_starts_at_zero_in_every_epoch_and_evaluation():
    state, _ = train_alone(create(jnp.uint32(0)), jnp.int32(1), DATA)
    state, _ = train_alone(state, jnp.int32(2), DATA)
    assert float(state.carry["batches"]) == 6
    scores = evaluate(state.params, state.carry, [epoch.pad_batches(DATA, 5)])
    assert float(scores["before"]) == np.mean([0, 1, 2, 3, 4])
    assert int(state.step) == 12


@pytest.mark.parametrize("over_seeds", [mesh.vectorized, mesh.sequential])
def test_seeds_together_equal_seeds_alone_in_one_compilation(over_seeds):
    together = mesh.stack_seeds(create, range(4, 7))
    train_together = jax.jit(chex.assert_max_traces(over_seeds(train), n=1))
    alone = [create(jnp.uint32(seed)) for seed in range(4, 7)]
    for number in range(1, 5):
        together, _ = train_together(together, jnp.int32(number), DATA)
        alone = [train_alone(state, jnp.int32(number), DATA)[0] for state in alone]
    together = jax.tree.map(np.asarray, together)
    for i, state in enumerate(alone):
        chex.assert_trees_all_close(
            jax.tree.map(lambda leaf, i=i: leaf[i], together), state, atol=1e-5
        )
    assert not np.allclose(together.params["w"][0], together.params["w"][1])


def test_the_seed_and_the_epoch_decide_the_order():
    one, other = (create(jnp.uint32(seed)) for seed in (0, 1))
    other = other.replace(params=one.params, best_params=one.params)
    moved = [
        train_alone(state, jnp.int32(number), DATA)[0].params["w"]
        for state, number in ((one, 1), (other, 1), (one, 2))
    ]
    assert not np.array_equal(moved[0], moved[1])
    assert not np.array_equal(moved[0], moved[2])


def test_shuffled_rows_visit_every_row_once_a_pass():
    rows = np.asarray(plan(jax.random.key(0), 1))
    assert rows.shape == (6, 5)
    for one_pass in (rows[:4], rows[4:]):  # 23 rows make 4 whole batches of 5
        assert len(np.unique(one_pass)) == one_pass.size
    assert not np.array_equal(rows[:2], rows[4:])


@pytest.mark.parametrize("batch_size", [1, 4, 5, 23, 50])
def test_evaluation_is_exact_whatever_the_batch(batch_size):
    params = {"w": np.ones((3, 1), np.float32)}
    batches = [epoch.pad_batches(DATA, batch_size)]
    expected = np.mean((X.sum(axis=1, keepdims=True) - np.asarray(DATA["targets"])) ** 2)
    np.testing.assert_allclose(
        evaluate(params, {"batches": jnp.float32(3)}, batches)["mse"], expected, rtol=1e-5
    )


def test_evaluation_adds_up_metrics_batch_by_batch():
    """A confusion matrix for each batch, all kept until the end, would take too much memory."""

    def count(params, carry, batch, key):
        matrix = jnp.ones((11, 11)) * batch["mask"].sum()
        return matrix.sum(), (carry, {"confusion": Confusion(matrix)})

    batches = [epoch.pad_batches(DATA, 3)]  # 8 of them
    traced = jax.make_jaxpr(functools.partial(epoch.evaluate, loss=count))({}, {}, batches)
    assert "f32[11,11]" in str(traced)
    assert "f32[8,11,11]" not in str(traced)


def test_best_parameters_are_those_of_the_lowest_score():
    state = create(jnp.uint32(0))
    for number, score in enumerate([3.0, 1.0, 2.0, jnp.nan], start=1):
        state = state.replace(params={"w": np.full((3, 1), number, np.float32)})
        state = state.after_epoch(
            jnp.float32(score), jnp.int32(number), plateau=Plateau(), patience=0
        )
    assert float(np.asarray(state.best_params["w"])[0, 0]) == 2.0
    assert (float(state.best_score), int(state.best_epoch)) == (1.0, 2)
