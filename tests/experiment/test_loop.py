import shutil
import signal

import chex
import flax.linen as nn
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import flax_attn
from configs import shapes_lstm
from flax_attn import experiment, platforms
from flax_attn.errors import UsageError
from flax_attn.experiment import running
from flax_attn.runs import checkpoints, directory, reading
from flax_attn.stopping import Stop, Stopped
from flax_attn.tasks import TASKS
from tests import tiny
from tests.experiment.test_running import small


class Poisoned(nn.Module):
    """A model that gives NaN where a random number is high.

    It does so in training from the third step on, or only when it is measured after training.
    """

    limit: float = 1.0
    in_training: bool = True

    @nn.compact
    def __call__(self, inputs, *, train=False):
        poison = self.param("poison", nn.initializers.normal(1.0), ())
        count = self.variable("carry", "count", lambda: jnp.float32(0))
        is_trained = self.param("trained", nn.initializers.zeros, ())
        outputs = nn.Dense(1)(inputs) + is_trained
        if not train and not self.in_training:
            is_bad = (poison > self.limit) & (is_trained != 0)
            return jnp.where(is_bad, jnp.nan, outputs), {}
        if train and self.in_training:
            is_bad = (poison > self.limit) & (count.value >= 2)
            count.value = count.value + 1
            outputs = outputs * jnp.sqrt(jnp.where(is_bad, -1.0, 1.0))
        return outputs, {}


def poisoned(limit, **changes):
    config = small(shapes_lstm, num_seeds=4, num_epochs=3)
    config.model = {"name": f"{__name__}:Poisoned", "limit": limit} | changes
    return config


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of four seeds: all stay finite in the first, and one goes bad in the second."""
    folder = tmp_path_factory.mktemp("runs")
    with tiny.no_pictures():
        sound = flax_attn.train(poisoned(99.0), workdir=folder / "sound")
    values = {seed: float(params["poison"]) for seed, params in sound.params.items()}
    first, second = sorted(values.values())[-2:]
    limit = (first + second) / 2
    bad = flax_attn.train(poisoned(limit), workdir=folder / "bad")
    return sound, bad, max(values, key=values.__getitem__)


def test_a_seed_that_goes_bad_stops_alone_and_is_named(runs):
    sound, bad, seed = runs
    assert bad.summary["diverged"] == {str(seed): {"epoch": 1}}
    assert set(bad.params) == {0, 1, 2, 3} - {seed}
    for other, params in bad.params.items():
        chex.assert_trees_all_equal(params, sound.params[other])
    rows = [[row for row in run.rows if row["seed"] != seed] for run in (sound, bad)]
    assert rows[0] == rows[1]
    assert len(bad.summary["metrics"]["test/mse"]["values"]) == 3
    assert bad.summary["stopped"] is False  # three seeds trained to the end
    before, *after = [row for row in bad.rows if row["seed"] == seed]
    assert all(row | {"epoch": 0} == before for row in after)
    values = np.delete(sound.summary["metrics"]["test/mse"]["values"], seed)
    assert bad.summary["metrics"]["test/mse"]["mean"] == np.mean(values)
    assert reading.read(bad.path).summary["epochs"] == 3
    assert (bad.path / "figures" / "loss.png").exists()


def test_what_is_said_of_the_test_is_said_by_the_seeds_that_did_not_diverge(
    runs, tmp_path, monkeypatch, no_pictures
):
    _, bad, _ = runs
    path = unfinished(bad, tmp_path / "run")
    signals, asked = TASKS["signal-signal"], []
    examples = signals.examples

    def listen(task, model, params):
        asked.extend(params)
        return examples(task, model, params)

    monkeypatch.setattr(signals, "examples", listen)
    experiment.run(experiment.Config.of(bad.config.values), path)
    chex.assert_trees_all_equal(asked, list(bad.params.values()))


def test_every_seed_has_parameters_of_its_own(runs):
    sound, _, _ = runs
    assert len({float(params["poison"]) for params in sound.params.values()}) == 4


def test_a_seed_whose_metrics_are_not_finite_stops_alone(runs, tmp_path, no_pictures):
    _sound, bad, seed = runs
    limit = bad.config.model["limit"]
    run = flax_attn.train(poisoned(limit, in_training=False), workdir=tmp_path / "run")
    assert run.summary["diverged"] == {str(seed): {"epoch": 1}}
    assert set(run.params) == {0, 1, 2, 3} - {seed}
    assert "NaN" not in (run.path / "metrics.jsonl").read_text()


def test_nothing_that_is_saved_is_not_finite(runs):
    _, bad, _ = runs
    assert "NaN" not in (bad.path / "metrics.jsonl").read_text()
    chex.assert_tree_all_finite(list(bad.params.values()))


def test_when_all_seeds_go_bad_the_run_ends_in_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"seed 0, 1, 2, 3 became infinite .*--debug_nans"):
        flax_attn.train(poisoned(-99.0), workdir=tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()


def test_debugging_says_where_the_first_nan_arose(tmp_path):
    with pytest.raises(FloatingPointError, match=r"in step 3 of epoch 1, seed 0: .*nan.* sqrt"):
        flax_attn.train(poisoned(-99.0), workdir=tmp_path / "run", debug_nans=True)


def test_debugging_names_the_one_seed_that_goes_bad(runs, tmp_path):
    _, bad, seed = runs
    with pytest.raises(FloatingPointError, match=rf"in step 3 of epoch 1, seed {seed}: .* sqrt"):
        flax_attn.train(bad.config.values, workdir=tmp_path / "run", debug_nans=True)


def test_a_stop_saves_and_the_same_call_goes_on(runs, tmp_path, no_pictures):
    sound, _, _ = runs
    stop = Stop()

    def end(rows):
        stop.number = int(signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped by SIGTERM; 4 of 4 steps of epoch 2 are saved"):
        experiment.run(
            experiment.Config.of(poisoned(99.0)), tmp_path / "run", on_epoch=end, stop=stop
        )
    assert (tmp_path / "run" / "checkpoints" / "1.npz").exists()
    run = flax_attn.train(poisoned(99.0), workdir=tmp_path / "run")
    assert run.rows == sound.rows
    chex.assert_trees_all_equal(run.params, sound.params)


def test_a_stop_waits_for_the_steps_of_one_chunk_alone(runs, tmp_path, monkeypatch, no_pictures):
    """The same call goes on to the last bit."""
    sound, _, _ = runs
    monkeypatch.setattr(running, "CHUNK", 1)
    monkeypatch.setattr(running, "PROGRESS", 0)
    stop, config = Stop(), experiment.Config.of(poisoned(99.0))

    def end(steps):
        stop.number = int(signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped by SIGTERM; 1 of 4 steps of epoch 1 are saved"):
        experiment.run(config, tmp_path / "run", on_steps=end, stop=stop)
    _, arrays = checkpoints.read(tmp_path / "run" / "checkpoints" / "0+1.npz")
    begun = flax_attn.load(tmp_path / "run").params  # those of now: none is the best yet
    now = [params["trained"] for params in begun.values()]
    np.testing.assert_array_equal(now, arrays["states.params['trained']"])
    facts = directory.read_config(tmp_path / "run")["derived"]
    monkeypatch.setattr(platforms, "instruction_set", lambda: "another")
    with pytest.raises(Stopped, match="SIGTERM; epoch 0 and 1 steps of epoch 1 is saved"):
        experiment.run(config, tmp_path / "run", stop=stop)
    run = flax_attn.train(poisoned(99.0), workdir=tmp_path / "run")
    assert directory.read_config(run.path)["derived"] == facts  # of the machine that it began on
    assert run.rows == sound.rows
    chex.assert_trees_all_equal(run.params, sound.params)


def unfinished(run, path):
    """A copy of a run that was killed before its results were written."""
    shutil.copytree(run.path, path)
    (path / "summary.json").unlink()
    return path


def test_an_epoch_whose_checkpoint_is_damaged_is_trained_again(runs, tmp_path, no_pictures):
    sound, _, _ = runs
    path = unfinished(sound, tmp_path / "run")
    (path / "checkpoints" / "3.npz").write_bytes(b"PK")
    lines = []
    experiment.run(experiment.Config.of(poisoned(99.0)), path, say=lines.append)
    assert [line for line in lines if "is damaged" in line or "resuming after epoch 2" in line][1:]
    again = flax_attn.load(path)
    assert again.rows == sound.rows
    chex.assert_trees_all_equal(again.params, sound.params)


def test_the_seconds_of_all_tries_add_up(runs, tmp_path, no_pictures):
    path = unfinished(runs[0], tmp_path / "run")
    (path / "metrics.jsonl").write_text("")  # which the checkpoint has, too
    note, arrays = checkpoints.read(path / "checkpoints" / "3.npz")
    note.seconds = 1e6
    content = np.frombuffer(msgspec.json.encode(note), np.uint8)
    np.savez(path / "checkpoints" / "3.npz", **arrays, note=content)
    assert flax_attn.load(path).rows == runs[0].rows
    longer = poisoned(99.0)
    longer.num_epochs = 4
    assert flax_attn.train(longer, workdir=path).summary["train_seconds"] >= 1e6
