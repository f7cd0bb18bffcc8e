import dataclasses
import inspect
import io
import json
import math
import shutil
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from configs import dates_bahdanau, names, shapes_attention, shapes_cnn, shapes_lstm
from flax_attn import experiment, kinds, platforms
from flax_attn.commands import progress
from flax_attn.commands.training import train
from flax_attn.data import shapes
from flax_attn.errors import UsageError
from flax_attn.experiment import running
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import (
    build_model,
    count_steps,
    layer_table,
    make_batches,
    make_plan,
    make_programs,
)
from flax_attn.experiment.running import check_enough, check_memory
from flax_attn.kinds import signals
from flax_attn.kinds.task import Task
from flax_attn.models import GPT
from flax_attn.models.cpu import convolution, instruction_set
from flax_attn.page.data import run_data
from flax_attn.runs import checkpoints
from flax_attn.runs.checkpoints import Progress
from flax_attn.runs.directory import RunDirectory
from flax_attn.stopping import Stop
from flax_attn.training import epoch, mesh
from tests import tiny
from tests.written_runs import vouch


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


def load(config) -> Task:
    """The task of a config, with its data."""
    config = config if isinstance(config, Config) else Config.of(config)
    return config.kind.load(config.data, config.recipe, None)


def first_seed(params):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], params)


def predict(run, inputs):
    """Predictions of the first seed of a run in true units, and its attention."""
    prediction = experiment.load(run, warn=print).predict(inputs)
    return prediction.outputs, prediction.attention


@pytest.mark.parametrize(
    "module", [shapes_lstm, pytest.param(shapes_attention, marks=pytest.mark.full)]
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


@pytest.mark.full
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


def test_the_step_descends_and_decay_spares_biases():
    config = small(shapes_lstm)
    optimizer = Config.of(config).optimizer.build(1e-3, 10)
    params = {"kernel": np.ones((2, 3), np.float32), "bias": np.ones(3, np.float32)}
    update = jax.jit(lambda gradients: optimizer.update(gradients, optimizer.init(params), params))
    updates, _ = update(jax.tree.map(np.zeros_like, params))
    np.testing.assert_allclose(updates["kernel"], -1e-3 * 0.01, rtol=1e-5)
    np.testing.assert_array_equal(updates["bias"], 0)
    updates, _ = update(params)
    assert (np.asarray(updates["bias"]) < 0).all()


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


@pytest.mark.parametrize(("warmup_steps", "first"), [(0, 1e-3), (100, 0.0)])
def test_a_rise_longer_than_training_takes_half_of_it(warmup_steps, first):
    config = small(
        shapes_cnn,
        **{
            "optimizer.schedule": "cosine",
            "optimizer.warmup_steps": warmup_steps,
            "optimizer.weight_decay": 0.0,
        },
    )
    optimizer, params = Config.of(config).optimizer.build(1e-3, 4), {"bias": np.ones(3, np.float32)}
    state, rates = optimizer.init(params), []
    for _ in range(5):
        updates, state = jax.jit(optimizer.update)(params, state, params)
        rates.append(float(-updates["bias"][0]))
    np.testing.assert_allclose(rates[0], first, atol=1e-7)
    np.testing.assert_allclose(rates[4], 0, atol=1e-7)
    assert max(rates) == pytest.approx(1e-3, rel=1e-3)


def test_steps_of_an_epoch_go_once_through_the_examples():
    config = small(shapes_cnn)
    config.steps_per_epoch = 0
    assert count_steps(Config.of(config), load(config)) == 320 // 32
    config = dates_bahdanau.get_config()
    config.data.update({"num_train": 100, "num_valid": 5, "num_test": 5, "num_buckets": 1})
    assert count_steps(Config.of(config), load(config)) == 2  # of 64, the second filled up


def test_many_seeds_take_their_memory_each():
    config = small(shapes_cnn, num_epochs=1, **{"model.features": 2_000})
    task = load(config)
    model = build_model(Config.of(config), task.kept.sizes)
    check_memory(Config.of(config), model, task.sample())
    config.num_seeds = 10_000
    with pytest.raises(UsageError, match=r"whose training fits into .*, or num_seeds"):
        check_memory(Config.of(config), model, task.sample())


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
    summary = train(config, workdir, Console(file=output, width=120))
    return config, workdir, summary, output.getvalue()


def test_the_run_directory(finished):
    _, workdir, summary, output = finished
    names = {path.name for path in workdir.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "sums.json",
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
    assert summary["task"] == "regression"
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
    assert train(config, workdir, Console(file=output, width=120)) == summary
    assert before == {
        path: path.stat().st_mtime_ns for path in workdir.rglob("*") if path.is_file()
    }
    assert "finished" in output.getvalue()
    assert "test/mse" in output.getvalue()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_size": 500}, "at most the 320 training examples"),
        ({"data.valid_fraction": 0.0}, "data.valid_fraction"),
        ({"evaluate": ("valid",)}, "evaluate"),
        ({"model.name": "cnn_atention"}, "did you mean 'cnn_attention'"),
        ({"model.kernel_size": 4}, "odd kernel_size"),
        ({"data.subset": 40, "data.fresh": True}, "data.subset"),
        ({"data.name": "shape"}, "unknown data.name 'shape'; did you mean 'shapes'"),
    ],
)
def test_bad_configs_are_told_before_anything_is_made(tmp_path, change, said):
    with pytest.raises(UsageError, match=said) as caught:
        experiment.run(experiment.Config.of(small(shapes_attention, **change)), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_devices_are_no_field_of_a_model_in_a_config():
    config = names.get_config("quick")
    config.model.across = "sequence"
    with pytest.raises(UsageError, match=r"model\.across"):
        Config.of(config)


def test_the_largest_seed_is_one_that_a_run_may_have():
    largest = 2**32 - 1
    assert Config.of(small(shapes_attention, seed=largest)).seeds == range(largest, 2**32)


def test_a_batch_of_all_training_examples_is_large_enough():
    config = Config.of(small(shapes_attention, batch_size=320))
    task = load(config)
    assert len(task.rows.train["inputs"]) == 320
    check_enough(config, task)


def test_a_loss_that_is_not_finite_is_told_and_never_written(tmp_path):
    with pytest.raises(UsageError, match=r"expected a finite loss, but .* in epoch 1 of seed 0"):
        experiment.run(experiment.Config.of(small(shapes_lstm, learning_rate=1e25)), tmp_path)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert not (tmp_path / "checkpoints" / "1").exists()


def test_nor_is_one_before_training(tmp_path, monkeypatch):
    original = running.metric_rows
    monkeypatch.setattr(
        running,
        "metric_rows",
        lambda *args: [row | {"valid/mse": math.nan} for row in original(*args)],
    )
    with pytest.raises(UsageError, match=r"valid/mse is nan in epoch 0 of seed 0"):
        experiment.run(experiment.Config.of(small(shapes_lstm)), tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.full
def test_boxes_come_to_attend_to_boxes():
    """The first thing that attention learns here: after 400 steps a box looks at both boxes, far
    more than at triangles.
    """
    config = small(shapes_attention, batch_size=64, steps_per_epoch=400, **{"data.fresh": True})
    model, data, programs, states = start(config)
    states, _ = programs.train_epoch(states, 1, data.rows.train)
    inputs, _, marks = jax.tree.map(np.asarray, data.test)
    drawn = shapes.Shapes(**marks)
    _, aux = jax.jit(model.apply)(
        {"params": first_seed(states.params)}, data.normalization.apply(inputs)
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


def remove(name):
    return lambda folder: (folder / name).unlink()


def overwrite(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def flip_bits(name, place):
    def damage(folder):
        content = bytearray((folder / name).read_bytes())
        # in the directory at the end of the archive
        start = content.index(b"PK\x01\x02") + place + 2
        content[start] ^= 0xFF
        (folder / name).write_bytes(content)

    return damage


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A finished run, and its config."""
    config, workdir = small(shapes_lstm), tmp_path_factory.mktemp("runs") / "short"
    experiment.run(experiment.Config.of(config), workdir)
    return config, workdir


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (overwrite("summary.json", b"{"), "is damaged"),
        (overwrite("summary.json", b'{"epochs": 2}'), "is damaged"),
        (overwrite("metrics.jsonl", b'{"epoch": 0}\n'), "is damaged"),
        (overwrite("metrics.jsonl", b""), "is damaged"),
        (overwrite("metrics.jsonl", b"\xff\xfe\n"), "is damaged"),
        (overwrite("examples.npz", b"PK"), "is damaged"),
        (flip_bits("examples.npz", 8), "is damaged"),  # the compression method of the first array
        (remove("summary.json"), "not finished"),
        (remove("metrics.jsonl"), "has lost its metrics.jsonl"),
        (remove("examples.npz"), "has lost its examples.npz"),
    ],
)
def test_damage_to_a_finished_run_is_told(short, tmp_path, damage, said):
    """Where the list of sums tells it, and where that has been written anew."""
    for name in ("listed", "vouched"):
        shutil.copytree(short[1], tmp_path / name)
        damage(tmp_path / name)
    vouch(tmp_path / "vouched")
    with pytest.raises(UsageError, match=said):
        kinds.read(tmp_path / "vouched")
    with pytest.raises(UsageError, match=r"since training wrote it|is damaged|not finished|lost"):
        kinds.read(tmp_path / "listed")


def test_a_run_that_has_lost_its_list_of_sums_is_not_loaded(short, tmp_path):
    shutil.copytree(short[1], tmp_path / "run")
    (tmp_path / "run" / "sums.json").unlink()
    with pytest.raises(UsageError, match=r"has lost its sums\.json"):
        experiment.load(tmp_path / "run")


@pytest.mark.usefixtures("no_pictures")
def test_the_same_command_mends_a_damaged_run(short, tmp_path):
    config, original = short
    workdir = tmp_path / "run"
    shutil.copytree(original, workdir)
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    (workdir / "metrics.jsonl").write_text("\n".join([lines[0], '{"torn', lines[2]]))
    (workdir / "examples.npz").unlink()
    experiment.run(experiment.Config.of(config), workdir)
    chex.assert_trees_all_equal(contents(workdir), contents(original))


@pytest.mark.usefixtures("no_pictures")
def test_a_figure_that_was_half_written_is_removed(short, tmp_path):
    config, original = short
    workdir = shutil.copytree(original, tmp_path / "run")
    (workdir / "figures").mkdir(exist_ok=True)
    (workdir / "figures" / ".loss.1.partial.png").touch()
    experiment.run(experiment.Config.of(config), workdir)
    assert not (workdir / "figures" / ".loss.1.partial.png").exists()


@pytest.mark.usefixtures("no_pictures")
def test_more_epochs_go_on_from_the_last(short, tmp_path):
    longer = small(shapes_lstm, num_epochs=3)
    experiment.run(experiment.Config.of(longer), tmp_path / "straight")
    shutil.copytree(short[1], tmp_path / "grown")
    experiment.run(experiment.Config.of(longer), tmp_path / "grown")
    chex.assert_trees_all_equal(contents(tmp_path / "grown"), contents(tmp_path / "straight"))


INSTRUCTION_SETS = [
    ("avx512", "avx2", "by_batched_tiles"),
    pytest.param("avx2", "avx512", "by_tiles", marks=pytest.mark.full),
]


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(("begun", "other", "form"), INSTRUCTION_SETS)
def test_a_run_goes_on_with_the_recorded_instruction_set(begun, other, form, tmp_path, monkeypatch):
    narrow = {"model.features": 16, "model.num_layers": 3}
    traced = set()
    for name in ("by_tiles", "by_batched_tiles"):
        compute = getattr(convolution, name)
        spy = lambda *arguments, name=name, compute=compute: traced.add(name) or compute(*arguments)
        monkeypatch.setattr(convolution, name, spy)

    def run(machine, num_epochs):
        traced.clear()
        monkeypatch.setattr(instruction_set, "of_machine", lambda: machine)
        experiment.run(
            experiment.Config.of(small(shapes_cnn, num_epochs=num_epochs, **narrow)),
            tmp_path / begun,
        )
        return kinds.read(tmp_path / begun).config["derived"]["instruction_set"]

    for machine, num_epochs in ((begun, 1), (other, 2)):
        assert run(machine, num_epochs) == begun
        assert traced == {form}


@pytest.mark.usefixtures("no_pictures")
def test_a_run_goes_on_with_the_recorded_precision(tmp_path, monkeypatch):
    taken, fill = [], running.fill
    spy = lambda *arguments: taken.append(platforms.matmul_precision()) or fill(*arguments)
    monkeypatch.setattr(running, "fill", spy)
    for precision, num_epochs in (("highest", 1), ("default", 2)):
        with jax.default_matmul_precision(precision):
            experiment.run(
                experiment.Config.of(small(shapes_lstm, num_epochs=num_epochs)), tmp_path / "run"
            )
    assert taken == ["highest", "highest"]
    run = run_data(kinds.read(tmp_path / "run"))
    assert run["trained_on"] == "cpu"


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("instruction_set", "avx512, avx2, other, got 'sse' under 'derived'"),
        ("matmul_precision", "'highest', got 'sse' under 'derived'"),
    ],
)
def test_what_a_run_began_with_and_is_not_here_is_told(key, said, short, tmp_path):
    config, workdir = small(shapes_lstm, num_epochs=3), tmp_path / "run"
    shutil.copytree(short[1], workdir)
    stored = json.loads((workdir / "config.json").read_text())
    stored["derived"][key] = "sse"
    (workdir / "config.json").write_text(json.dumps(stored))
    vouch(workdir)
    with pytest.raises(UsageError, match=said):
        experiment.run(experiment.Config.of(config), workdir)


def test_a_run_that_cannot_go_on_keeps_its_results(short, tmp_path):
    _, original = short
    workdir = tmp_path / "run"
    shutil.copytree(original, workdir)
    for number in (1, 2):
        (workdir / "checkpoints" / str(number) / "metadata.json").write_text("{}")
    with pytest.raises(UsageError, match="none before it is whole"):
        experiment.run(experiment.Config.of(small(shapes_lstm, num_epochs=3)), workdir)
    chex.assert_trees_all_equal(contents(workdir), contents(original))
    assert kinds.read(workdir).config["num_epochs"] == 2


def test_reading_a_run_leaves_it_alone(short, tmp_path):
    """Another process may be in the midst of writing a checkpoint."""
    workdir = tmp_path / "run"
    shutil.copytree(short[1], workdir)
    (workdir / "checkpoints" / "3.orbax-checkpoint-tmp").mkdir()
    before = sorted(workdir.rglob("*"))
    experiment.load(workdir, print)
    assert sorted(workdir.rglob("*")) == before


def test_a_prediction_does_not_depend_on_the_other_signals(short):
    inputs = np.random.default_rng(0).uniform(0, 20, (3, 100, 1)).astype(np.float32)
    forward, _ = predict(short[1], inputs)
    backward, _ = predict(short[1], inputs[::-1])
    np.testing.assert_allclose(forward, backward[::-1], atol=1e-5)


def test_many_signals_are_predicted_in_batches(finished):
    inputs = np.random.default_rng(0).uniform(0, 20, (67, 100, 1)).astype(np.float32)
    outputs, attention = predict(finished[1], inputs)
    assert attention["attention"].shape == (67, 100, 100)
    alone, _ = predict(finished[1], inputs[-1:])
    np.testing.assert_allclose(outputs[-1:], alone, atol=1e-4)


def test_a_line_of_progress_has_the_seconds_of_its_epoch(monkeypatch):
    times = iter([10.0, 12.0, 15.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    output = io.StringIO()
    with progress.shown(2, Console(file=output, width=120)) as shown:
        for number in (1, 2):
            shown.on_epoch([{"epoch": number, "seed": seed, "test/mse": seed} for seed in (1, 4)])
    first, second = output.getvalue().splitlines()
    assert first == "epoch 1/2  test/mse 2.5  2.0 s"
    assert second == "epoch 2/2  test/mse 2.5  3.0 s"


def test_a_bar_moves_within_an_epoch():
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True)
    with progress.shown(2, console) as shown:
        shown.on_steps(running.Steps(1, 30, 60, {"mse": 0.25}))
        shown.on_steps(running.Steps(1, 60, 60, {"mse": 0.125}))
        half = output.getvalue()
        shown.on_epoch([{"epoch": 1, "seed": 0, "test/mse": 0.5}])
    assert "epoch 1/2" in half
    assert "steps/s" in output.getvalue()
    assert "test/mse 0.5" in output.getvalue()


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


def test_a_figure_that_is_gone_or_damaged_is_drawn_again(short, tmp_path):
    config, original = short
    shutil.copytree(original, tmp_path / "run")
    figures = tmp_path / "run" / "figures"
    (figures / "loss.png").unlink()
    (figures / "predictions.png").write_text("no picture")
    experiment.run(experiment.Config.of(config), tmp_path / "run")
    assert (figures / "predictions.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in figures.iterdir()} == {
        "data_sample.png",
        "loss.png",
        "predictions.png",
    }


def prepare(config, programs, data, directory):
    """The loop of a run, and where it stands before training."""
    made = running.Loop(config, programs, data, directory, Stop())
    at = made.begin(print)
    made.log.begin(at.rows)
    return made, at


def stop(*args, **kwargs):
    raise KeyboardInterrupt


@pytest.mark.usefixtures("no_pictures")
def test_a_run_stopped_before_it_trains_goes_on(short, tmp_path, monkeypatch):
    config, original = short
    workdir = tmp_path / "run"
    monkeypatch.setattr(running.Loop, "begin", stop)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(experiment.Config.of(config), workdir)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="not begun to train"):
        experiment.load(workdir, print)
    experiment.run(experiment.Config.of(config), workdir)
    chex.assert_trees_all_equal(contents(workdir), contents(original))


def test_a_grown_run_is_not_finished_until_it_is(short, tmp_path, monkeypatch):
    _, original = short
    workdir = tmp_path / "run"
    shutil.copytree(original, workdir)
    monkeypatch.setattr(checkpoints, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(experiment.Config.of(small(shapes_lstm, num_epochs=4)), workdir)
    with pytest.raises(UsageError, match="not finished"):
        kinds.read(workdir)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_seeds": 3}, r"of the config beside it: expected .* uint32\[3\], got uint32\[1\]"),
        ({"model.features": 7}, "of the config beside it"),
        ({"batch_size": "many"}, "batch_size"),
        ({"derived.std": "wide"}, r"derived\.std is missing"),
        ({"derived.std": 0.0}, "what the data decided under 'derived'"),
        ({"optimizer": {}}, "optimizer.b1"),
        ({"data.num_trian": 3}, "'data.num_train'"),
    ],
)
def test_a_config_edited_by_hand_is_told_when_it_is_read_back(short, tmp_path, change, said):
    workdir = tmp_path / "run"
    shutil.copytree(short[1], workdir)
    config = json.loads((workdir / "config.json").read_text())
    for key, value in change.items():
        part, _, name = key.rpartition(".")
        (config[part] if part else config)[name] = value
    (workdir / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"config\.json has changed since training wrote it"):
        experiment.load(workdir, print)
    vouch(workdir)
    with pytest.raises(UsageError, match=said):
        experiment.load(workdir, print)


def test_data_are_what_the_config_says():
    config = small(shapes_lstm, **{"data.task": "by_location", "data.seed": 7, "data.subset": 100})
    data = load(config)
    normalization = data.normalization
    splits = shapes.splits(7, num_train=400, num_test=50, task="by_location")
    arrays = [
        np.asarray(array, np.float64) for name in ("train", "valid") for array in splits[name][:2]
    ]
    elements = np.concatenate([array.ravel() for array in arrays])
    np.testing.assert_allclose(normalization, [elements.mean(), elements.std()], rtol=1e-6)
    np.testing.assert_array_equal(data.test.inputs, splits["test"].inputs)
    expected = (splits["train"].targets[:100] - elements.mean()) / elements.std()
    np.testing.assert_allclose(data.rows.train["targets"], expected, atol=1e-5)
    valid = make_batches(Config.of(config), data)["valid"][0]["inputs"].reshape(-1, 100, 1)[:80]
    np.testing.assert_allclose(normalization.undo(valid), splits["valid"].inputs, atol=1e-5)
    config.data.subset = 400  # more than validation leaves
    assert Config.of(config).data.num_used == len(splits["train"].inputs) == 320


def test_the_table_of_layers_fits_a_screen():
    model = GPT(vocabulary_size=11, max_length=12, features=8, num_heads=2, num_blocks=2)
    table = layer_table(model, np.zeros((1, 12), np.int32), {})
    for layer in "embedding", "blocks_0", "blocks_1", "norm":
        assert f"│ {layer} " in table
    assert "_block)" not in table  # a helper of the model is no layer
    assert len(table.splitlines()) < 40


def test_evaluation_counts_every_example_once():
    """50 test examples in batches of 32, against one batch of 50."""
    config = small(shapes_attention, num_seeds=2)
    model, data, programs, states = start(config)
    normalization = data.normalization
    scores = programs.evaluate(states.params, states.carry, make_batches(Config.of(config), data))
    outputs, _ = jax.jit(model.apply)(
        {"params": first_seed(states.params)}, normalization.apply(data.test.inputs)
    )
    expected = np.mean(
        (np.asarray(outputs) - np.asarray(normalization.apply(data.test.targets))) ** 2
    )
    np.testing.assert_allclose(scores["test"]["mse"][0], expected, rtol=1e-5)


def trained_against_validation(config, path):
    """The states and the rows of a training with the validation targets turned over: what improves
    the test makes validation worse.
    """
    model, data, programs, _ = start(config)
    valid = data.rows.splits["valid"]
    turned = data.rows.splits | {"valid": valid | {"targets": -5 * valid["targets"]}}
    data = dataclasses.replace(data, rows=data.rows._replace(splits=turned))
    config = Config.of(config)
    directory = RunDirectory.open(path, config.values)
    directory.begin(config.values)
    made, at = prepare(config, programs, data, directory)
    states = made.train(at, model, running.Listeners()).states
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return states, [json.loads(line) for line in lines][1:]


def test_best_is_chosen_on_validation_alone(tmp_path):
    """The first epoch is kept."""
    states, rows = trained_against_validation(small(shapes_lstm, num_epochs=3), tmp_path)
    assert min(rows, key=lambda row: row["test/mse"])["epoch"] == 3
    assert min(rows, key=lambda row: row["valid/mse"])["epoch"] == int(states.best_epoch[0]) == 1


def test_the_rate_falls_on_validation_also_where_the_last_epoch_is_kept(tmp_path):
    changes = {"keep_best": False, "optimizer.plateau_patience": 1, "num_epochs": 3}
    states, _ = trained_against_validation(small(shapes_lstm, **changes), tmp_path)
    np.testing.assert_allclose(states.rate_scale, [0.1])


@pytest.mark.usefixtures("no_pictures")
def test_figures_examples_and_predictions_are_of_the_kept_parameters_in_true_units(tmp_path):
    """Kept parameters of zero: the outputs are 0 in normalised units, so the predictions are the
    mean.
    """
    config = small(shapes_lstm, num_epochs=1)
    model, data, programs, states = start(config)
    states = states.replace(best_params=jax.tree.map(np.zeros_like, states.params))
    config = Config.of(config)
    directory = RunDirectory.open(tmp_path, config.values)
    directory.begin(config.values)
    rows = [{"epoch": epoch, "seed": 0, "step": 4 * epoch, "test/mse": 1.0} for epoch in (0, 1)]
    normalization = data.normalization
    made, at = prepare(config, programs, data, directory)
    made.log.begin(rows)
    directory.go_on(config.values | {"derived": data.kept.derived | {"sizes": {}}}, [])
    at = at._replace(progress=Progress(1), states=states, rows=rows)
    made.save(at)
    summary = running.finish(config, model, made, data, directory, at)
    expected = np.mean(np.asarray(normalization.apply(data.test.targets)) ** 2)
    np.testing.assert_allclose(summary["metrics"]["test/mse"]["mean"], expected, rtol=1e-5)
    assert abs(summary["metrics"]["last/test/mse"]["mean"] - expected) > 1e-4
    np.testing.assert_allclose(
        kinds.read(tmp_path).examples["predictions"], normalization.mean, rtol=1e-5
    )
    outputs, _ = predict(tmp_path, np.zeros((2, 100, 1), np.float32))
    np.testing.assert_allclose(outputs, normalization.mean, rtol=1e-5)


def described_mesh(monkeypatch, devices, *sizes, num_seeds=4, batch_size=32):
    monkeypatch.setattr(running.jax, "device_count", lambda: devices)
    mesh = SimpleNamespace(axis_sizes=sizes, size=math.prod(sizes))
    config = SimpleNamespace(num_seeds=num_seeds, batch_size=batch_size)
    return inspect.unwrap(running.describe_mesh)(mesh, config)


def test_the_line_on_the_mesh_says_what_a_device_has(monkeypatch):
    said = described_mesh(monkeypatch, 8, 2, 4)
    assert said == "mesh: 2 x 4 (seed x data); 2 of 4 seed(s) and 8 of 32 rows a device"
    said = described_mesh(monkeypatch, 10, 1, 4, 2)
    assert said == (
        "mesh: 1 x 4 x 2 (seed x data x sequence); 4 of 4 seed(s) and 8 of 32 rows a device, and "
        "1/2 of each sequence; 2 device(s) idle, which do not divide the work"
    )


def test_where_training_stands_is_said_in_words():
    assert running.describe(Progress(3)) == "epoch 3"
    assert running.describe(Progress(3, 7)) == "epoch 3 and 7 steps of epoch 4"


def test_the_line_on_the_device_says_how_many_there_are(monkeypatch):
    own = SimpleNamespace(platform="gpu", device_kind="H100")
    monkeypatch.setattr(running.jax, "devices", lambda: [own])
    monkeypatch.setattr(running.jax, "device_count", lambda: 3)
    monkeypatch.setattr(running.platforms, "products", lambda: "bfloat16")
    jax_version = f"(jax {running.jax.__version__})"
    said = f"gpu, 3 device(s), H100 {jax_version}, float32 multiplied in bfloat16"
    assert running.describe_device() == said
    own.platform = "cpu"
    monkeypatch.setattr(running.platforms, "products", lambda: "float32")
    monkeypatch.setattr(running.os, "cpu_count", lambda: 6)
    assert running.describe_device() == f"cpu, 6 cores {jax_version}"


def test_sizes_that_make_a_model_large_are_those_of_model_data_and_seeds():
    model = {"name": "a", "features": 8, "layers": 3, "dropout": 0.5, "none": 0}
    config = SimpleNamespace(model=model, data=SimpleNamespace(num_ngrams=10), num_seeds=2)
    assert sorted(inspect.unwrap(running.sizes_of)(config)) == [2, 3, 8, 10]
