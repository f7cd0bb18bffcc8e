"""Twins of a run, whose attention learns no weights."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import mnist_attention, shapes_attention, shapes_best, shapes_cnn
from flax_attn import schema
from flax_attn.attention import Lens, dot_product_attention
from flax_attn.errors import UsageError
from flax_attn.experiment import Config, load, twins
from flax_attn.experiment.face import take_data
from tests import tiny


def test_uniform_weights_are_the_mean_of_what_is_visible():
    scores = jax.random.normal(jax.random.key(0), (2, 3, 4))
    mask = jnp.array([[True, True, False, False], [False] * 4, [True] * 4])
    expected = [[0.5, 0.5, 0, 0], [0] * 4, [0.25] * 4]
    np.testing.assert_array_equal(twins.uniform(scores, mask=mask), [expected] * 2)
    np.testing.assert_array_equal(twins.uniform(scores), np.full((2, 3, 4), 0.25))
    query, value = jnp.ones((1, 3, 1, 2)), jnp.arange(6.0).reshape(1, 3, 1, 2)
    with Lens(normalizer=twins.uniform, change={"*weights": twins.identity}):
        context, _ = dot_product_attention(query, query, value)
    np.testing.assert_array_equal(context, value)  # each position has its own
    with Lens(normalizer=twins.uniform):
        causal, _ = dot_product_attention(query, query, value, causal=True)
    np.testing.assert_allclose(causal[0, :, 0, 0], [0, 1, 2])


def test_a_run_stands_beside_its_twins(tmp_path):
    random = np.random.default_rng(0)
    rows = random.uniform(size=(32, 8, 8)).astype(np.float32), [str(i % 2) for i in range(32)]
    values = mnist_attention.get_config("quick")
    values.update(tiny.STEPS)
    values.model.patch_size = 4
    flat, content = take_data(schema.flatten(values), {"train": rows, "test": rows})
    config, said = Config.of(flat, content=content), []
    with tiny.no_pictures():
        summary = twins.run_with_twins(config, tmp_path / "run", say=said.append)
        again = twins.run_with_twins(config, tmp_path / "run")
    (compared,) = summary["comparisons"]
    *_, uniform, identity = compared["beside"]
    assert [uniform["name"], identity["name"]] == [twins.UNIFORM, twins.IDENTITY]
    assert again == summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    weights = {"uniform_weights": np.full((4, 4), 0.25), "each_position_alone": np.eye(4)}
    for one, (name, expected) in zip((uniform, identity), weights.items()):
        folder = tmp_path / "run-twins" / name
        own = json.loads((folder / "summary.json").read_text())
        assert one["mean"] == pytest.approx(own["metrics"]["test/accuracy"]["mean"])
        assert one["gain"]["mean"] == pytest.approx(compared["run"]["mean"] - one["mean"])
        with np.load(folder / "examples.npz") as held:
            np.testing.assert_array_equal(held["attention/attention"][0], expected)
    with pytest.raises(UsageError, match="is a twin with"):
        load(tmp_path / "run-twins" / "uniform_weights")
    assert any(twins.ABOUT[twins.UNIFORM] in line for line in said)


def test_shapes_have_a_twin_of_convolutions_on_the_same_data():
    config = Config.of(
        schema.flatten(shapes_attention.get_config("quick")) | {"num_seeds": 2, "num_epochs": 2}
    )
    made = twins.twins_of(config)
    assert list(made) == [twins.UNIFORM, twins.IDENTITY, twins.CNN]
    values, _ = made[twins.CNN]
    own = Config.of(values)
    assert own.model["name"] == "cnn"
    assert own.data == config.data
    assert own.seeds == config.seeds
    assert (own.name, own.num_epochs) == ("shapes_cnn:quick", 2)
    residual = Config.of(shapes_best.get_config("quick"))
    assert list(twins.twins_of(residual)) == [twins.UNIFORM, twins.CNN]


def test_a_model_without_attention_has_no_twin(tmp_path):
    config = shapes_cnn.get_config("quick")
    config.update(tiny.STEPS | {"num_epochs": 1})
    config.model.update({"features": 8, "num_layers": 2})
    config.data.update({"num_train": 200, "num_test": 20})
    with pytest.raises(UsageError, match="a model with attention"):
        twins.run_with_twins(Config.of(config), tmp_path / "run", say=print)
