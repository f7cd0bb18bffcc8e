import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.kinds import classification
from flax_attn.kinds.task import Recipe


@pytest.mark.parametrize("weighted", [True, False])
def test_a_class_weighs_one_over_its_examples_where_the_config_says_so(weighted):
    weights = classification.class_weights(np.array([0, 0, 0, 1]), 2)
    measure = functools.partial(classification.measure, Recipe(class_weights=weighted), weights)
    logits, targets = np.array([[2, 0], [2, 0]], np.float32), np.array([0, 1])
    loss, _ = jax.jit(lambda logits, targets: measure(logits, {}, {"targets": targets}, True))(
        logits, targets
    )
    errors = np.log1p(np.exp([-2.0, 2.0]))
    np.testing.assert_allclose(
        loss, np.average(errors, weights=[1 / 3, 1] if weighted else [1, 1]), rtol=1e-6
    )


def test_padding_has_no_part_in_what_a_model_adds_to_the_loss():
    batch = {"targets": jnp.array([0, 1, 0]), "mask": jnp.array([True, True, False])}
    aux = {"penalty": jnp.array([1.0, 3.0, 100.0])}
    loss, _ = classification.measure(Recipe(), [1.0, 1.0], jnp.zeros((3, 2)), aux, batch, True)
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
    computed = classification.compute(Constant(), seeds, jnp.asarray(inputs))
    np.testing.assert_allclose(computed["outputs"], expected, rtol=1e-6)


def test_the_ensemble_of_the_test_is_that_of_predictions():
    """One seed is sure of the wrong class, so the mean of the logits would be wrong."""
    shares = np.array([[0.999, 0.001], [0.1, 0.9], [0.1, 0.9]])
    logits = np.repeat(np.log(shares)[:, None], 4, axis=1).astype(np.float32)
    _, metrics, _ = classification.results(logits, np.ones(4, int), ["a", "b"])
    assert metrics["ensemble/test/accuracy"] == [1.0]
