import functools

import jax
import numpy as np
import pytest

from flax_attn.tasks import Recipe, classification


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
