"""Every config trains for two steps and every variant is sound; its lab note says what a reader needs."""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn import experiment
from flax_attn.config import check_config

NAMES = sorted(path.stem for path in (Path(__file__).parent.parent / "configs").glob("*_*.py"))


def load(name, variant=""):
    return importlib.import_module(f"configs.{name}").get_config(variant)


@pytest.mark.parametrize("name", NAMES)
def test_quick_is_the_same_experiment_made_short(name):
    full, quick = load(name), load(name, "quick")
    check_config(quick)
    assert quick.model == full.model
    assert quick.num_epochs < full.num_epochs


@pytest.mark.parametrize("name", NAMES)
def test_two_steps(name):
    config = load(name)
    check_config(config)
    config.steps_per_epoch, config.data.num_train, config.data.num_test = 2, 400, 20
    config.batch_size = min(config.batch_size, 32)
    model = experiment.build_model(config.model)
    data = experiment.load_data(config)
    programs = experiment.make_programs(config, model, jnp.zeros((config.batch_size, 100, 1)), data.normalization)
    states = programs.create(range(1))
    before = jax.tree.map(np.asarray, states.params)
    states, metrics = programs.train_epoch(states, jnp.int32(1), data.train)
    assert int(states.step[0]) == 2
    assert 0 < float(metrics["mse"][0]) < 10
    moved = [float(np.abs(a - b).max()) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(states.params))]
    assert all(0 < distance < 0.05 for distance in moved)


@pytest.mark.parametrize("name", NAMES)
def test_the_note_says_task_source_and_command(name):
    note = importlib.import_module(f"configs.{name}").__doc__
    assert f"python train.py --config=configs/{name}.py" in note
    assert all(word in note for word in ("Task ", "Source ", "Expect "))
    assert load(name).name == name
    assert load(name, "quick").name == f"{name}:quick"


def test_unknown_variant():
    with pytest.raises(ValueError, match="'quik' of config 'shapes_cnn'"):
        load("shapes_cnn", "quik")


def test_published_recipe():
    config = load("shapes_attention")
    assert (config.batch_size, config.num_epochs, config.learning_rate) == (128, 50, 1e-3)
    assert config.optimizer.to_dict() == {"b1": 0.9, "b2": 0.99, "eps": 1e-5, "weight_decay": 0.01}
    assert (config.data.num_train, config.data.num_test, config.data.valid_fraction) == (25_000, 1_000, 0.2)
