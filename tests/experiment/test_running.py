import dataclasses
import io
import json
import math
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from configs import dates_bahdanau, shapes_attention, shapes_cnn, shapes_lstm
from flax_attn import experiment, platforms
from flax_attn.commands import progress
from flax_attn.commands.training import train
from flax_attn.data import shapes
from flax_attn.errors import UsageError
from flax_attn.experiment import running
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import (
    build_model,
    count_steps,
    describe_layers,
    make_batches,
    make_plan,
    make_programs,
)
from flax_attn.experiment.running import check_enough
from flax_attn.models import GPT
from flax_attn.page.data import run_data
from flax_attn.runs import checkpoints, reading
from flax_attn.tasks.targets import signals
from flax_attn.tasks.task import Task
from flax_attn.training import epoch, mesh
from tests import tiny


def small(module, **changes):
    """A config cut down to a few steps an epoch."""
    config = module.get_config()
    config.num_epochs, config.batch_size = 2, 32
    config.data.num_train, config.data.num_test, config.steps_per_epoch = 400, 50, 4
    config.optimizer.schedule = "constant"  # so that a run can go on for longer
    config.update_from_flattened_dict(changes)
    return config


def start(config):
    config = Config.of(config)
    task = load(config)
    model = build_model(config, task.kept.sizes)
    programs = make_programs(config, model, task)
    return model, task, programs, programs.create(config.seeds)


@pytest.mark.parametrize("module", [shapes_attention, dates_bahdanau])
def test_in_bfloat16_losses_are_close_and_parameters_stay_in_float32(module):
    losses = {}
    for precision in ("float32", "bfloat16"):
        config = small(module, precision=precision, steps_per_epoch=20)
        _, data, programs, states = start(config)
        states, metrics = programs.train_epoch(states, 1, data.rows.train)
        losses[precision] = float(metrics[data.target.score][0])
        assert {leaf.dtype for leaf in jax.tree.leaves(states.params)} == {np.dtype("float32")}
    assert losses["bfloat16"] != losses["float32"]
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0.02)


def load(config) -> Task:
    """The task of a config, with its data."""
    config = config if isinstance(config, Config) else Config.of(config)
    return config.task.load(config.data, config.recipe, None)


def first_seed(params):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], params)


def predict(run, inputs):
    """Predictions of the first seed of a run in true units, and its attention."""
    prediction = experiment.load(run, warn=print).predict(inputs)
    return prediction.outputs, prediction.attention


@pytest.mark.parametrize(
    "module", [shapes_lstm, pytest.param(shapes_attention, marks=pytest.mark.slow)]
)
def test_a_seed_among_three_equals_that_seed_alone_after_20_steps(module):
    _, data, programs, together = start(small(module, num_seeds=3, seed=5))
    for number in range(1, 6):
        together, _ = programs.train_epoch(together, number, data.rows.train)
    assert int(together.step[0]) == 20
    together = jax.tree.map(np.asarray, together)
    _, data, programs, _ = start(small(module))
    for i in range(3):
        alone = programs.create(range(5 + i, 6 + i))
        for number in range(1, 6):
            alone, _ = programs.train_epoch(alone, number, data.rows.train)
        chex.assert_trees_all_close(
            jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], together), alone, atol=1e-5
        )


@pytest.mark.slow
def test_seeds_at_once_equal_seeds_in_turn(monkeypatch):
    _, data, programs, states = start(small(shapes_attention, num_seeds=2, batch_size=8))
    in_turn, _ = programs.train_epoch(states, 1, data.rows.train)
    monkeypatch.setattr("flax_attn.experiment.programs.sequential", mesh.vectorized)
    _, data, programs, states = start(small(shapes_attention, num_seeds=2, batch_size=8))
    at_once, _ = programs.train_epoch(states, 1, data.rows.train)
    # four steps of Adam move them by 4e-3
    chex.assert_trees_all_close(at_once.params, in_turn.params, atol=1e-4)


def test_one_compilation_serves_all_epochs(monkeypatch):
    counted = chex.assert_max_traces(epoch.train_steps, n=1)
    monkeypatch.setattr(epoch, "train_steps", counted)
    _, data, programs, states = start(small(shapes_lstm, num_seeds=3))
    for number in range(1, 5):
        states, _ = programs.train_epoch(states, number, data.rows.train)
    assert int(states.step[0]) == 16


def test_fresh_data_is_new_in_every_step():
    config = small(shapes_lstm, **{"data.fresh": True, "learning_rate": 1e-3})
    batches = []
    original = signals.squared_error

    def spy(outputs, targets, mask):
        jax.debug.callback(lambda t: batches.append(np.asarray(t)), targets)
        return original(outputs, targets, mask)

    signals.squared_error = spy
    try:
        _, data, programs, states = start(config)
        for number in (1, 2):
            states, _ = programs.train_epoch(states, number, data.rows.train)
        jax.effects_barrier()
    finally:
        signals.squared_error = original
    rows = np.concatenate(batches)[:, :, 0]
    assert len(rows) == 2 * 4 * 32
    assert len(np.unique(rows[:, 50])) == len(rows)
    assert abs(rows.mean()) < 0.2  # normalised as the stored data are


def test_gradients_are_scaled_down_before_their_moments_are_taken():
    plain = Config.of(small(shapes_lstm)).optimizer
    gradients, params = [np.full(4, size, np.float32) for size in (2, 0.25)], np.ones(4, np.float32)

    def updates(clip_norm, gradients):
        optimizer = dataclasses.replace(plain, clip_norm=clip_norm).build(1e-3, 10)
        state = optimizer.init(params)
        for gradient in gradients:
            own, state = jax.jit(optimizer.update)(gradient, state, params)
        return own

    clipped = [gradients[0] / 4, gradients[1]]  # of norms 4 and 1/2
    np.testing.assert_allclose(updates(1.0, gradients), updates(0.0, clipped), rtol=1e-5)


def test_a_cosine_falls_to_zero_with_the_last_step_of_training():
    config = small(
        shapes_cnn,
        **{
            "optimizer.schedule": "cosine",
            "optimizer.warmup_steps": 2,
            "optimizer.weight_decay": 0.0,
        },
    )
    _, data, programs, states = start(config)  # 2 epochs of 4 steps
    moved = []
    for number in (1, 2, 3):
        before = jax.tree.map(np.asarray, states.params)
        states, _ = programs.train_epoch(states, number, data.rows.train)
        moved.append(
            max(
                np.abs(a - b).max()
                for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(states.params))
            )
        )
    assert moved[0] > moved[1] > 0
    assert moved[2] == 0


def test_steps_of_an_epoch_go_once_through_the_examples():
    config = small(shapes_cnn)
    config.steps_per_epoch = 0
    assert count_steps(Config.of(config), load(config)) == 320 // 32
    config = dates_bahdanau.get_config()
    config.data.update({"num_train": 100, "num_valid": 5, "num_test": 5, "num_buckets": 1})
    assert count_steps(Config.of(config), load(config)) == 2  # of 64, the second filled up


@pytest.mark.parametrize("shuffle", [False, True])
def test_texts_come_in_their_order_unless_they_are_shuffled(shuffle):
    changes = {"data.shuffle": shuffle, "data.num_buckets": 1}
    config = Config.of(small(dates_bahdanau, **changes))
    plan, _ = make_plan(config, load(config), num_steps=4)
    for number in (1, 2):
        _, rows = plan(jax.random.key(number), jnp.int32(number))
        assert (rows.ravel().tolist() == list(range(4 * 32))) != shuffle


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "attention"
    output = io.StringIO()
    config = small(shapes_attention, num_seeds=2)
    summary = train(Config.of(config), workdir, Console(file=output, width=120))
    return config, workdir, summary, output.getvalue()


def test_the_run_directory(finished):
    _, workdir, summary, output = finished
    names = {path.name for path in workdir.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "examples.npz",
        "checkpoints",
        "figures",
    }
    assert {path.name for path in (workdir / "figures").iterdir()} == {
        "data_sample.png",
        "loss.png",
        "predictions.png",
        "attention.png",
    }
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [(row["epoch"], row["seed"]) for row in rows] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert set(rows[-1]) == {"epoch", "seed", "step", "train/mse", "valid/mse", "test/mse"}
    assert json.loads((workdir / "summary.json").read_text()) == summary
    assert (summary["parameters"], summary["steps"], summary["seeds"]) == (58_177, 8, [0, 1])
    assert summary["task"] == "signal-signal"
    assert "task" not in json.loads((workdir / "config.json").read_text())
    assert summary["metrics"]["test/mse"]["mean"] == np.mean(
        summary["metrics"]["test/mse"]["values"]
    )
    for word in ("cpu", "58,177", "epoch 2/2", "0.00075", str(workdir)):
        assert word in output


def test_test_figures_are_of_the_epoch_best_on_validation(finished):
    _, workdir, summary, _ = finished
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    for i, seed in enumerate((0, 1)):
        own = [row for row in rows if row["seed"] == seed and row["epoch"] > 0]
        best = min(own, key=lambda row: row["valid/mse"])
        np.testing.assert_allclose(
            summary["metrics"]["test/mse"]["values"][i], best["test/mse"], rtol=1e-6
        )
        np.testing.assert_allclose(
            summary["metrics"]["last/test/mse"]["values"][i], own[-1]["test/mse"], rtol=1e-6
        )


def test_examples_hold_what_the_model_predicts(finished):
    _, workdir, _, _ = finished
    examples = np.load(workdir / "examples.npz")
    assert examples["attention/attention"].shape == (16, 100, 100)
    assert examples["centers"].shape == (16, 4)
    outputs, _ = predict(workdir, examples["inputs"])
    np.testing.assert_allclose(outputs, examples["predictions"], atol=1e-4)
    assert np.abs(outputs - examples["inputs"]).max() > 1e-3


def test_a_finished_run_is_reported_and_left_alone(finished):
    config, workdir, summary, _ = finished
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*") if path.is_file()}
    output = io.StringIO()
    assert train(Config.of(config), workdir, Console(file=output, width=120)) == summary
    assert before == {
        path: path.stat().st_mtime_ns for path in workdir.rglob("*") if path.is_file()
    }
    assert "finished" in output.getvalue()
    assert "│ mse" in output.getvalue()


def test_a_batch_of_all_training_examples_is_large_enough():
    config = Config.of(small(shapes_attention, batch_size=320))
    task = load(config)
    assert len(task.rows.train["inputs"]) == 320
    check_enough(config, task)


def test_a_loss_that_is_not_finite_before_training_writes_nothing(tmp_path, monkeypatch):
    original = running.metric_rows
    monkeypatch.setattr(
        running,
        "metric_rows",
        lambda *args: [row | {"valid/mse": math.nan} for row in original(*args)],
    )
    with pytest.raises(UsageError, match=r"valid/mse is nan in epoch 0 of seed 0"):
        experiment.run(experiment.Config.of(small(shapes_lstm)), tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.slow
def test_boxes_come_to_attend_to_boxes():
    """The first thing that attention learns here: after 400 steps a box looks at both boxes, far
    more than at triangles.
    """
    config = small(shapes_attention, batch_size=64, steps_per_epoch=400, **{"data.fresh": True})
    model, data, programs, states = start(config)
    states, _ = programs.train_epoch(states, 1, data.rows.train)
    inputs, _, marks = jax.tree.map(np.asarray, data.raw.splits["test"])
    drawn = shapes.ShapeBatch(**marks)
    _, aux = jax.jit(model.apply)(
        {"params": first_seed(states.params)}, data.inputs.normalize(inputs)
    )
    weights = np.asarray(aux["attention"]["attention"])

    distance = np.abs(np.arange(100) - drawn.centers[:, :, None])  # (n, 4, t)
    inside, middle = distance < drawn.widths[:, :, None] / 2 + 1, distance < 1
    share = np.einsum(
        "nsq,nqk,nrk->nsr", middle / middle.sum(axis=-1, keepdims=True), weights, inside
    ).mean(axis=0)
    # weight that the middle of a box lays on each of triangle, triangle, box, box
    from_boxes = share[2:]
    assert from_boxes[:, 2:].min() > 2 * from_boxes[:, :2].max()


def contents(folder):
    """What is in a run directory, without what differs from one run to the next: seconds, and
    figures and checkpoints.
    """
    summary = json.loads((folder / "summary.json").read_text()) | {"train_seconds": 0}
    with np.load(folder / "examples.npz") as examples:
        return {
            "metrics": (folder / "metrics.jsonl").read_text(),
            "summary": summary,
            "examples": dict(examples),
        }


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A finished run, and its config."""
    config, workdir = small(shapes_lstm), tmp_path_factory.mktemp("runs") / "short"
    experiment.run(experiment.Config.of(config), workdir)
    return config, workdir


@pytest.mark.usefixtures("no_pictures")
def test_more_epochs_go_on_from_the_last(short, tmp_path):
    longer = small(shapes_lstm, num_epochs=3)
    experiment.run(experiment.Config.of(longer), tmp_path / "straight")
    shutil.copytree(short[1], tmp_path / "grown")
    experiment.run(experiment.Config.of(longer), tmp_path / "grown")
    chex.assert_trees_all_equal(contents(tmp_path / "grown"), contents(tmp_path / "straight"))


@pytest.mark.usefixtures("no_pictures")
def test_a_run_goes_on_with_the_recorded_precision(tmp_path, monkeypatch):
    taken, original = [], running.train
    spy = lambda *arguments: taken.append(platforms.matmul_precision()) or original(*arguments)
    monkeypatch.setattr(running, "train", spy)
    for precision, num_epochs in (("highest", 1), ("default", 2)):
        with jax.default_matmul_precision(precision):
            experiment.run(
                experiment.Config.of(small(shapes_lstm, num_epochs=num_epochs)), tmp_path / "run"
            )
    assert taken == ["highest", "highest"]
    run = run_data(reading.read(tmp_path / "run"))
    assert run["trained_on"] == "cpu"


def test_many_signals_are_predicted_in_batches(finished):
    inputs = np.random.default_rng(0).uniform(0, 20, (67, 100, 1)).astype(np.float32)
    outputs, attention = predict(finished[1], inputs)
    assert attention["attention"].shape == (67, 100, 100)
    alone, _ = predict(finished[1], inputs[-1:])
    np.testing.assert_allclose(outputs[-1:], alone, atol=1e-4)


def test_a_bar_is_as_long_as_the_part_that_is_done():
    """Without colours a bar has no rest. It is 40 characters wide."""
    for done, length in ((15, 5), (30, 10), (60, 20)):
        output = io.StringIO()
        console = Console(file=output, width=120, force_terminal=True, no_color=True)
        with progress.shown(2, console) as shown:
            shown.on_steps(running.Steps(1, done, 60, {"mse": 0.25}))
        assert output.getvalue().rpartition("epoch 1/2")[2].count("━") == length


def test_listeners_hear_of_steps_and_models(tmp_path):
    steps, models = [], []
    config = experiment.Config.of(small(shapes_lstm, num_epochs=2))
    with tiny.no_pictures():
        experiment.run(config, tmp_path, on_steps=steps.append, on_model=models.append)
    last = [own for own in steps if own.done == own.of]
    assert [own.epoch for own in last] == [1, 2]
    rows = [model.rows[0] for model in models]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert [own.metrics["mse"] for own in last] == [row["train/mse"] for row in rows[1:]]
    first, _, end = (model.params[0] for model in models)
    kept = experiment.load(tmp_path).params[0]
    assert jax.tree.all(jax.tree.map(np.array_equal, end, kept))
    assert not jax.tree.all(jax.tree.map(np.array_equal, end, first))


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def test_a_grown_run_is_not_finished_until_it_is(short, tmp_path, monkeypatch):
    _, original = short
    workdir = tmp_path / "run"
    shutil.copytree(original, workdir)
    monkeypatch.setattr(checkpoints, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(experiment.Config.of(small(shapes_lstm, num_epochs=4)), workdir)
    with pytest.raises(UsageError, match="not finished"):
        reading.read(workdir)


def test_data_are_what_the_config_says():
    config = small(shapes_lstm, **{"data.task": "by_location", "data.seed": 7, "data.subset": 100})
    data = load(config)
    normalization = data.inputs.normalization
    splits = shapes.splits(7, num_train=400, num_test=50, task="by_location")
    arrays = [
        np.asarray(array, np.float64) for name in ("train", "valid") for array in splits[name][:2]
    ]
    elements = np.concatenate([array.ravel() for array in arrays])
    np.testing.assert_allclose(normalization, [elements.mean(), elements.std()], rtol=1e-6)
    np.testing.assert_array_equal(data.raw.splits["test"].inputs, splits["test"].inputs)
    expected = (splits["train"].targets[:100] - elements.mean()) / elements.std()
    np.testing.assert_allclose(data.rows.train["targets"], expected, atol=1e-5)
    valid = make_batches(Config.of(config), data)["valid"][0]["inputs"].reshape(-1, 100, 1)[:80]
    np.testing.assert_allclose(normalization.undo(valid), splits["valid"].inputs, atol=1e-5)
    config.data.subset = 400  # more than validation leaves
    assert len(load(config).rows.train["targets"]) == len(splits["train"].inputs) == 320


def test_a_line_names_the_layers():
    params = {"embedding": {"table": np.zeros((11, 8))}, "norm": {"scale": np.zeros(8)}}
    line = describe_layers(GPT(vocabulary_size=11, max_length=12), params)
    assert line == "model: GPT, 96 parameters (embedding 88, norm 8)"


def test_evaluation_counts_every_example_once():
    """50 test examples in batches of 32, against one batch of 50."""
    config = small(shapes_attention, num_seeds=2)
    model, data, programs, states = start(config)
    normalization, test = data.inputs.normalization, data.raw.splits["test"]
    scores = programs.evaluate(states.params, states.carry, make_batches(Config.of(config), data))
    outputs, _ = jax.jit(model.apply)(
        {"params": first_seed(states.params)}, normalization.apply(test.inputs)
    )
    expected = np.mean((np.asarray(outputs) - np.asarray(normalization.apply(test.targets))) ** 2)
    np.testing.assert_allclose(scores["test"]["mse"][0], expected, rtol=1e-5)


@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_cannot_go_on_keeps_its_results(short, tmp_path):
    workdir = shutil.copytree(short[1], tmp_path / "run")
    for path in (workdir / "checkpoints").iterdir():
        path.write_bytes(b"PK")
    with pytest.raises(UsageError, match="none before it is valid; remove"):
        experiment.run(experiment.Config.of(small(shapes_lstm, num_epochs=3)), workdir)
    chex.assert_trees_all_equal(contents(workdir), contents(short[1]))
    assert reading.read(workdir).config["num_epochs"] == 2


def test_a_figure_that_is_gone_is_drawn_again(short, tmp_path):
    config, original = short
    workdir = shutil.copytree(original, tmp_path / "run")
    (workdir / "figures" / "loss.png").unlink()
    experiment.run(experiment.Config.of(config), workdir)
    assert {path.name for path in (workdir / "figures").iterdir()} == {
        "data_sample.png",
        "loss.png",
        "predictions.png",
    }


def test_a_loss_that_is_not_finite_ends_the_run_and_is_never_written(tmp_path):
    with pytest.raises(UsageError, match="seed 0 became infinite or NaN in epoch 1, and no seed"):
        experiment.run(experiment.Config.of(small(shapes_lstm, learning_rate=1e25)), tmp_path)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert not (tmp_path / "checkpoints").exists()


def test_a_resumed_run_reports_another_cpu(monkeypatch):
    lines = []
    monkeypatch.setattr(platforms, "instruction_set", lambda: "avx2")
    for before in ({}, {"instruction_set": "avx2"}, {"instruction_set": "avx512"}):
        facts = running.with_machine(before, lines.append)
        assert facts["matmul_precision"] == platforms.matmul_precision()
    assert len(lines) == 1


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("chunk", [1, 3])
def test_the_size_of_a_chunk_changes_no_bit(short, tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(running, "CHUNK", chunk)
    experiment.run(experiment.Config.of(short[0]), tmp_path / "run")
    chex.assert_trees_all_equal(contents(tmp_path / "run"), contents(short[1]))


def train_against_validation(path, monkeypatch, **changes):
    """Trains where the validation targets are inverted: what improves the test makes it worse."""
    original = running.load_task

    def load_inverted(config, manual_dir):
        task = original(config, manual_dir)
        valid = task.rows.splits["valid"]
        inverted = task.rows.splits | {"valid": valid | {"targets": -5 * valid["targets"]}}
        return dataclasses.replace(task, rows=task.rows._replace(splits=inverted))

    monkeypatch.setattr(running, "load_task", load_inverted)
    experiment.run(Config.of(small(shapes_lstm, num_epochs=3, **changes)), path)
    _, arrays = checkpoints.read(path / "checkpoints" / "3.npz")
    return arrays, reading.read(path).rows[1:]


@pytest.mark.usefixtures("no_pictures")
def test_best_is_chosen_on_validation_alone(tmp_path, monkeypatch):
    """The first epoch is kept."""
    arrays, rows = train_against_validation(tmp_path, monkeypatch)
    assert min(rows, key=lambda row: row["test/mse"])["epoch"] == 3
    assert min(rows, key=lambda row: row["valid/mse"])["epoch"] == 1
    assert arrays["states.best_epoch"].tolist() == [1]


@pytest.mark.usefixtures("no_pictures")
def test_the_rate_falls_on_validation_also_where_the_last_epoch_is_kept(tmp_path, monkeypatch):
    changes = {"keep_best": False, "optimizer.plateau_patience": 1}
    arrays, _ = train_against_validation(tmp_path, monkeypatch, **changes)
    np.testing.assert_allclose(arrays["states.rate_scale"], [0.1])


@pytest.mark.usefixtures("no_pictures")
def test_results_examples_and_predictions_are_of_the_kept_parameters_in_true_units(
    tmp_path, monkeypatch
):
    """Kept parameters of zero predict 0 in normalized units, which is the mean."""
    original = running.end_epoch

    def keep_zeros(*arguments):
        states, rows = original(*arguments)
        return states.replace(best_params=jax.tree.map(jnp.zeros_like, states.params)), rows

    monkeypatch.setattr(running, "end_epoch", keep_zeros)
    config = small(shapes_lstm, num_epochs=1)
    summary, task = experiment.run(Config.of(config), tmp_path), load(config)
    normalization = task.inputs.normalization
    expected = np.mean(np.asarray(normalization.apply(task.raw.splits["test"].targets)) ** 2)
    np.testing.assert_allclose(summary["metrics"]["test/mse"]["mean"], expected, rtol=1e-5)
    assert abs(summary["metrics"]["last/test/mse"]["mean"] - expected) > 1e-4
    predictions = reading.read(tmp_path).examples["predictions"]
    np.testing.assert_allclose(predictions, normalization.mean, rtol=1e-5)
    outputs, _ = predict(tmp_path, np.zeros((2, 100, 1), np.float32))
    np.testing.assert_allclose(outputs, normalization.mean, rtol=1e-5)
