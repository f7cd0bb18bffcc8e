import io

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax_attn.tasks.images import ImageClasses
from rich.console import Console

from flax_attn.data.sets import MNIST
from flax_attn.tasks import classification
from flax_attn.tasks.task import Kept, Prediction, Recipe, Rows


def task_with(weights, **recipe):
    kept = Kept({"class_weights": weights}, {}, {})
    return ImageClasses(MNIST(), Recipe(**recipe), kept, Rows({}, {}), {})


@pytest.mark.parametrize("weighted", [True, False])
def test_a_class_weighs_one_over_its_examples_where_the_config_says_so(weighted):
    weights = classification.class_weights(np.array([0, 0, 0, 1]), 2)
    task = task_with(weights, class_weights=weighted)
    logits, targets = np.array([[2, 0], [2, 0]], np.float32), np.array([0, 1])
    measure = lambda logits, targets: task.measure(logits, {}, {"targets": targets}, True)
    loss, _ = jax.jit(measure)(logits, targets)
    errors = np.log1p(np.exp([-2.0, 2.0]))
    np.testing.assert_allclose(
        loss, np.average(errors, weights=[1 / 3, 1] if weighted else [1, 1]), rtol=1e-6
    )


def test_padding_has_no_part_in_what_a_model_adds_to_the_loss():
    batch = {"targets": jnp.array([0, 1, 0]), "mask": jnp.array([True, True, False])}
    aux = {"penalty": jnp.array([1.0, 3.0, 100.0])}
    loss, _ = task_with([1.0, 1.0]).measure(jnp.zeros((3, 2)), aux, batch, True)
    np.testing.assert_allclose(loss, np.log(2) + 2, rtol=1e-6)


def test_seeds_predict_the_mean_of_their_probabilities():
    """Not the mean of their logits, and not those of one seed."""

    class Constant(nn.Module):
        @nn.compact
        def __call__(self, inputs, train=False):
            logits = self.param("logits", nn.initializers.zeros, (3,))
            return jnp.broadcast_to(logits, (len(inputs), 3)), {}

    seeds = [
        {"logits": jnp.log(jnp.array(shares))} for shares in ((0.7, 0.2, 0.1), (0.1, 0.8, 0.1))
    ]
    inputs, expected = np.zeros((2, 4), np.float32), np.array([[0.4, 0.5, 0.1]] * 2)
    prediction = classification.predict(Constant(), seeds, inputs, ["a", "b", "c"])
    np.testing.assert_allclose(prediction.outputs, expected, rtol=1e-6)
    assert prediction.classes == ["b", "b"]
    computed = task_with([]).compute(Constant(), seeds, jnp.asarray(inputs))
    np.testing.assert_allclose(computed["outputs"], expected, rtol=1e-6)


def test_the_ensemble_of_the_test_is_that_of_predictions():
    """One seed is sure of the wrong class, so the mean of the logits would be wrong."""
    shares = np.array([[0.999, 0.001], [0.1, 0.9], [0.1, 0.9]])
    logits = np.repeat(np.log(shares)[:, None], 4, axis=1).astype(np.float32)
    _, metrics, _ = classification.results(logits, np.ones(4, int), ["a", "b"])
    assert metrics["ensemble/test/accuracy"] == [1.0]


def test_figures_of_a_class_are_means_over_seeds_and_its_support_the_examples_that_it_has():
    """Class a has 3 examples; one seed calls all of them b, the other is right."""
    labels, names = np.array([0, 0, 0, 1]), ["a", "b"]
    right, all_b = np.eye(2)[labels], np.eye(2)[[1] * 4]
    logits = 10 * np.stack([all_b, right]).astype(np.float32)
    matrix, _, figures = classification.results(logits, labels, names)
    assert matrix.tolist() == [[3, 3], [0, 2]]
    of_a, of_b = (figures["classes"][name] for name in names)
    assert (of_a["support"], of_b["support"]) == (3, 1)
    assert (of_a["precision"], of_a["recall"]) == (0.5, 0.5)
    np.testing.assert_allclose([of_b["precision"], of_b["recall"]], [(1 + 1 / 4) / 2, 1])
    assert classification.results(logits[:1], labels, names)[1] == {}  # one seed is no ensemble


@pytest.mark.parametrize(("count", "described"), [(2, 2), (100, 100), (101, 12)])
def test_of_many_classes_the_most_probable_are_described(count, described):
    shares = np.linspace(0, 1, count, dtype=np.float32)[None]
    names = [f"class {i}" for i in range(count)]
    (row,) = classification.describe(["one"], Prediction(shares, names))
    assert row["input"] == "one"
    expected = names[::-1][:described]
    assert list(row["classes"]) == expected
    assert row["classes"][expected[0]] == 1
    assert "patches" not in row
    assert "tokens" not in row


def test_classes_that_are_alike_are_described_in_their_order():
    (row,) = classification.describe(["one"], Prediction(np.full((1, 3), 1 / 3), ["c", "a", "b"]))
    assert list(row["classes"]) == ["c", "a", "b"]


def test_a_patch_has_the_mean_over_heads_and_queries():
    weights = np.arange(8.0).reshape(1, 2, 2, 2)
    prediction = Prediction(np.ones((1, 1)), ["a"], attention={"first": weights, "other": -weights})
    (row,) = classification.describe(["image.png"], prediction)
    assert row["patches"] == [3, 4]


def test_a_class_is_printed_with_its_share_and_a_bar():
    console = Console(file=io.StringIO(), width=80)
    shares = {"good": 0.6, "bad": 0.4}
    classification.show_classes({"input": "a text", "classes": shares}, console)
    first, *lines = console.file.getvalue().splitlines()
    assert first == "a text"
    assert lines == [f"  good   60.0%  {'█' * 18}", f"  bad    40.0%  {'█' * 12}"]
