"""Losses, metrics and results of targets, worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.data.sets import MNIST, LargestCount
from flax_attn.tasks.artifacts import Prediction, Recipe
from flax_attn.tasks.inputs.images import Images
from flax_attn.tasks.inputs.signals import Normalization
from flax_attn.tasks.targets.classes import Classes
from flax_attn.tasks.targets.numbers import Number, number_of


def classes(weights=(1.0, 1.0), names=("a", "b"), **recipe):
    inputs = Images(MNIST(), (28, 28))
    return Classes(MNIST(), Recipe(**recipe), inputs, list(names), list(weights))


def test_a_number_is_trained_in_normalized_units_and_measured_in_the_users():
    target = Number(LargestCount(), Recipe(), None, Normalization(10.0, 3.0))
    batch = {"targets": jnp.array([1.0, -1.0, 5.0]), "mask": jnp.array([True, True, False])}
    loss, metrics = target.loss(jnp.array([[2.0], [1.0], [0.0]]), {}, batch, True)
    assert float(loss) == pytest.approx((1 + 4) / 2)
    assert float(metrics["mse"].compute()) == pytest.approx(2.5)
    assert float(metrics["mae"].compute()) == pytest.approx(3 * (1 + 2) / 2)
    loss, _ = target.loss(jnp.zeros((3, 1)), {"penalty": jnp.array([2.0, 4, 9])}, batch, True)
    assert float(loss) == pytest.approx(1 + 3)
    np.testing.assert_allclose(target.decode([jnp.zeros((2, 1)), jnp.ones((2, 1))]), [11.5] * 2)


def test_outputs_along_a_signal_are_averaged():
    outputs = np.array([[[1.0], [2.0], [6.0]], [[0.0], [0.0], [3.0]]])
    np.testing.assert_allclose(number_of(outputs), [3, 1])
    batch = {"targets": jnp.array([0])}
    logits = jnp.array([[[2.0, 0.0], [0.0, 0.0]]])  # (1, t, classes)
    loss, _ = classes().loss(logits, {}, batch, False)
    np.testing.assert_allclose(loss, np.log1p(np.exp(-1)), rtol=1e-6)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_class_weighs_one_over_its_examples_where_the_config_says_so(weighted):
    target = classes([1 / 3, 1.0], class_weights=weighted)
    logits, targets = np.array([[2, 0], [2, 0]], np.float32), np.array([0, 1])
    loss, _ = jax.jit(lambda x, y: target.loss(x, {}, {"targets": y}, True))(logits, targets)
    errors = np.log1p(np.exp([-2.0, 2.0]))
    expected = np.average(errors, weights=[1 / 3, 1] if weighted else [1, 1])
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_padding_has_no_part_in_a_penalty():
    batch = {"targets": jnp.array([0, 1, 0]), "mask": jnp.array([True, True, False])}
    aux = {"penalty": jnp.array([1.0, 3.0, 100.0])}
    loss, _ = classes().loss(jnp.zeros((3, 2)), aux, batch, True)
    np.testing.assert_allclose(loss, np.log(2) + 2, rtol=1e-6)


def test_seeds_predict_the_mean_of_their_probabilities():
    """One seed is sure of the wrong class, so the mean of the logits would be wrong."""
    shares = np.array([[0.999, 0.001], [0.1, 0.9], [0.1, 0.9]])
    logits = np.repeat(np.log(shares)[:, None], 4, axis=1).astype(np.float32)
    np.testing.assert_allclose(
        classes().decode(list(logits)), [[1.199 / 3, 1.801 / 3]] * 4, rtol=1e-5
    )
    results = classes().results(list(logits), np.ones(4, int), 4, ["b"] * 4)
    assert results.metrics["ensemble/test/accuracy"] == [1.0]


def test_figures_of_a_class_are_means_over_seeds():
    """Class a has 3 examples; one seed calls all of them b, the other is right."""
    labels = np.array([0, 0, 0, 1])
    logits = 10 * np.stack([np.eye(2)[[1] * 4], np.eye(2)[labels]]).astype(np.float32)
    results = classes().results(list(logits), labels, 4, [])
    assert results.arrays["confusion"].tolist() == [[3, 3], [0, 2]]
    of_a, of_b = (results.summary["classes"][name] for name in "ab")
    assert (of_a["support"], of_b["support"]) == (3, 1)
    assert (of_a["precision"], of_a["recall"]) == (0.5, 0.5)
    np.testing.assert_allclose([of_b["precision"], of_b["recall"]], [(1 + 1 / 4) / 2, 1])
    assert (
        classes().results(list(logits[:1]), labels, 4, []).metrics == {}
    )  # one seed is no ensemble


@pytest.mark.parametrize(("count", "described"), [(2, 2), (100, 100), (101, 12)])
def test_of_many_classes_the_most_probable_are_described(count, described):
    shares = np.linspace(0, 1, count, dtype=np.float32)[None]
    names = [f"class {i}" for i in range(count)]
    (row,) = classes().describe(["one"], Prediction(shares, names))
    assert list(row["classes"]) == names[::-1][:described]
    weights = np.arange(8.0).reshape(1, 2, 2, 2)
    attending = Prediction(np.ones((1, 1)), ["a"], attention={"first": weights, "x": -weights})
    (row,) = classes().describe(["image.png"], attending)
    assert row["patches"] == [3, 4]  # the mean over heads and queries
