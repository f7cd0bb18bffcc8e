import io
import json
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from configs import shapes_attention, shapes_cnn, shapes_lstm
from flax_attn import experiment
from flax_attn.errors import UsageError
from flax_attn.training import epoch


def small(module, **changes):
    """A config cut down to a few steps an epoch."""
    config = module.get_config()
    config.num_epochs, config.batch_size = 2, 32
    config.data.num_train, config.data.num_test, config.steps_per_epoch = 400, 50, 4
    config.update_from_flattened_dict(changes)
    return config


def start(config):
    model = experiment.build_model(config.model)
    data = experiment.load_data(config)
    sample = jnp.zeros((config.batch_size, 100, 1))
    programs = experiment.make_programs(config, model, sample, data.normalization)
    return model, data, programs, programs.create(range(config.seed, config.seed + config.num_seeds))


@pytest.mark.parametrize("module", [shapes_attention, shapes_lstm])
def test_a_seed_among_three_equals_that_seed_alone_after_20_steps(module):
    changes = {"steps_per_epoch": 10, "batch_size": 16}
    _, data, programs, together = start(small(module, num_seeds=3, seed=5, **changes))
    for number in (1, 2):
        together, _ = programs.train_epoch(together, jnp.int32(number), data.train)
    assert int(together.step[0]) == 20
    _, data, programs, _ = start(small(module, **changes))
    for i in range(3):
        alone = programs.create(range(5 + i, 6 + i))
        for number in (1, 2):
            alone, _ = programs.train_epoch(alone, jnp.int32(number), data.train)
        chex.assert_trees_all_close(jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], together), alone, atol=1e-5)


def test_seeds_at_once_equal_seeds_in_turn(monkeypatch):
    _, data, programs, states = start(small(shapes_attention, num_seeds=2, batch_size=8))
    in_turn, _ = programs.train_epoch(states, jnp.int32(1), data.train)
    monkeypatch.setattr(epoch, "sequential", epoch.vectorized)
    _, data, programs, states = start(small(shapes_attention, num_seeds=2, batch_size=8))
    at_once, _ = programs.train_epoch(states, jnp.int32(1), data.train)
    chex.assert_trees_all_close(at_once.params, in_turn.params, atol=1e-5)


def test_one_compilation_serves_all_epochs(monkeypatch):
    counted = chex.assert_max_traces(epoch.train_epoch, n=1)
    monkeypatch.setattr(epoch, "train_epoch", counted)
    _, data, programs, states = start(small(shapes_lstm, num_seeds=3))
    for number in range(1, 5):
        states, _ = programs.train_epoch(states, jnp.int32(number), data.train)
    assert int(states.step[0]) == 16


def test_fresh_data_is_new_in_every_step():
    config = small(shapes_lstm, **{"data.fresh": True, "learning_rate": 1e-3})
    _, data, programs, states = start(config)
    seen = []
    original = experiment.squared_error

    def spy(outputs, targets, mask):
        jax.debug.callback(lambda t: seen.append(np.asarray(t)), targets)
        return original(outputs, targets, mask)

    experiment.squared_error = spy
    try:
        for number in (1, 2):
            states, _ = programs.train_epoch(states, jnp.int32(number), data.train)
        jax.effects_barrier()
    finally:
        experiment.squared_error = original
    rows = np.concatenate(seen)[:, :, 0]
    assert len(rows) == 2 * 4 * 32
    assert len(np.unique(rows[:, 50])) == len(rows)
    assert abs(rows.mean()) < 0.2  # normalised as the stored data are


def test_the_step_descends_and_decay_spares_biases():
    config = small(shapes_cnn)
    optimizer = experiment.make_optimizer(config)
    params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    np.testing.assert_allclose(updates["kernel"], -1e-3 * 0.01, rtol=1e-5)
    np.testing.assert_array_equal(updates["bias"], 0)
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    assert (updates["bias"] < 0).all()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "attention"
    output = io.StringIO()
    config = small(shapes_attention, num_seeds=2)
    summary = experiment.run(config, workdir, Console(file=output, width=120))
    return config, workdir, summary, output.getvalue()


def test_the_run_directory(finished):
    _, workdir, summary, output = finished
    names = {path.name for path in workdir.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "summary.json", "examples.npz", "checkpoints", "figures"}
    assert {path.name for path in (workdir / "figures").iterdir()} == {"data_sample.png", "loss.png", "predictions.png", "attention.png"}
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [(row["epoch"], row["seed"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert set(rows[-1]) == {"epoch", "seed", "step", "train/mse", "valid/mse", "test/mse"}
    assert json.loads((workdir / "summary.json").read_text()) == summary
    assert (summary["parameters"], summary["steps"], summary["seeds"]) == (58_177, 8, [0, 1])
    assert summary["metrics"]["test/mse"]["mean"] == np.mean(summary["metrics"]["test/mse"]["values"])
    for word in ("cpu", "58,177", "epoch 2/2", "0.00075", str(workdir)):
        assert word in output


def test_test_figures_are_of_the_epoch_best_on_validation(finished):
    _, workdir, summary, _ = finished
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    for i, seed in enumerate((0, 1)):
        own = [row for row in rows if row["seed"] == seed and row["epoch"] > 0]
        best = min(own, key=lambda row: row["valid/mse"])
        np.testing.assert_allclose(summary["metrics"]["test/mse"]["values"][i], best["test/mse"], rtol=1e-6)
        np.testing.assert_allclose(summary["metrics"]["last/test/mse"]["values"][i], own[-1]["test/mse"], rtol=1e-6)


def test_examples_hold_what_the_model_predicts(finished):
    _, workdir, _, _ = finished
    examples = np.load(workdir / "examples.npz")
    assert examples["attention/attention"].shape == (16, 100, 100)
    assert examples["centers"].shape == (16, 4)
    model, params, normalization = experiment.load(workdir, warn=print)
    outputs, _ = experiment.predict(model, params, normalization, examples["inputs"])
    np.testing.assert_allclose(outputs, examples["predictions"], atol=1e-4)
    assert np.abs(outputs - examples["inputs"]).max() > 1e-3


def test_a_finished_run_is_reported_and_left_alone(finished):
    config, workdir, summary, _ = finished
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*") if path.is_file()}
    output = io.StringIO()
    assert experiment.run(config, workdir, Console(file=output, width=120)) == summary
    assert before == {path: path.stat().st_mtime_ns for path in workdir.rglob("*") if path.is_file()}
    assert "finished" in output.getvalue()
    assert "test/mse" in output.getvalue()


def test_more_epochs_go_on_from_the_last(finished, tmp_path):
    straight = experiment.run(small(shapes_attention, num_epochs=3, num_seeds=2), tmp_path / "straight", Console(file=io.StringIO()))
    shutil.copytree(finished[1], tmp_path / "grown")
    grown = experiment.run(small(shapes_attention, num_epochs=3, num_seeds=2), tmp_path / "grown", Console(file=io.StringIO()))
    assert grown["metrics"] == straight["metrics"]
    assert (tmp_path / "grown" / "metrics.jsonl").read_bytes() == (tmp_path / "straight" / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_size": 0}, "'batch_size' to be a number above 0, got 0"),
        ({"batch_size": 500}, "at most the 320 training examples, got 500"),
        ({"learning_rate": -1.0}, "'learning_rate'.*got -1.0"),
        ({"num_epochs": 0}, "'num_epochs'"),
        ({"seed": -1}, "'seed' to be 0 or above"),
        ({"task": "regresion"}, "'regresion'"),
        ({"data.task": "by_size"}, "'by_size'"),
        ({"data.valid_fraction": 1.5}, r"\[0, 1\), got 1.5"),
        ({"data.valid_fraction": 0.0}, "keep_best"),
        ({"evaluate": ("valid",)}, "among them test"),
        ({"model.name": "cnn_atention"}, "did you mean 'cnn_attention'"),
        ({"model.kernel_size": 4}, "odd kernel_size"),
        ({"model.features": 0}, "'model.features'"),
        ({"data.subset": 40, "data.fresh": True}, "no subset"),
    ],
)
def test_bad_configs_are_told_before_anything_is_made(tmp_path, change, said):
    with pytest.raises(UsageError, match=said) as caught:
        experiment.run(small(shapes_attention, **change), tmp_path / "run", Console(file=io.StringIO()))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_divergence_is_told_and_the_last_good_checkpoint_kept(tmp_path):
    config = small(shapes_attention, learning_rate=1e25, num_epochs=3)
    with pytest.raises(UsageError, match=r"diverged: .* in epoch 1 of seed 0"):
        experiment.run(config, tmp_path, Console(file=io.StringIO()))
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert not (tmp_path / "checkpoints" / "1").exists()


def test_boxes_come_to_attend_to_boxes():
    """The first thing that attention learns here: after 400 steps a box looks at both boxes, far more than at triangles."""
    config = small(shapes_attention, batch_size=64, steps_per_epoch=400, **{"data.fresh": True})
    model, data, programs, states = start(config)
    states, _ = programs.train_epoch(states, jnp.int32(1), data.train)
    inputs, _, drawn = jax.tree.map(np.asarray, data.test)
    params = jax.tree.map(lambda leaf: leaf[0], states.params)
    weights = experiment.predict(model, params, data.normalization, inputs)[1]["attention"]

    distance = np.abs(np.arange(100) - drawn.centers[:, :, None])  # (n, 4, t)
    inside, middle = distance < drawn.widths[:, :, None] / 2 + 1, distance < 1
    share = np.einsum("nsq,nqk,nrk->nsr", middle / middle.sum(axis=-1, keepdims=True), weights, inside).mean(axis=0)
    from_boxes = share[2:]  # weight that the middle of a box lays on each of triangle, triangle, box, box
    assert from_boxes[:, 2:].min() > 2 * from_boxes[:, :2].max()


def test_two_test_examples_are_enough_and_a_damaged_summary_is_made_anew(tmp_path):
    config = small(shapes_lstm, num_epochs=1, **{"data.num_test": 2})
    summary = experiment.run(config, tmp_path, Console(file=io.StringIO()))
    (tmp_path / "summary.json").write_text("{")
    assert experiment.run(config, tmp_path, Console(file=io.StringIO())) == summary
