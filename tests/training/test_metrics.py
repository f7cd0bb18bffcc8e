import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from flax_attn.training.metrics import (
    Confusion,
    Mean,
    class_scores,
    compute,
    confusion,
    cross_entropy,
    largest,
    squared_error,
    token_cross_entropy,
)


def test_masked_rows_count_nothing():
    outputs, targets = (
        jnp.array([[1.0, 2.0], [9.0, 9.0], [0.0, 0.0]]),
        jnp.array([[0.0, 0.0], [0.0, 0.0], [0.0, 4.0]]),
    )
    error = squared_error(outputs, targets, jnp.array([True, False, True]))
    assert float(error.compute()) == (1 + 4 + 0 + 16) / 4


def test_uneven_batches_add_up_to_the_whole():
    x, y = np.random.default_rng(0).normal(size=(2, 12, 3)).astype(np.float32)
    whole = jax.jit(squared_error)(x, y, np.ones(12, bool)).compute()
    mask = np.array([[True] * 5, [True] * 5, [True] * 2 + [False] * 3])
    padded = (
        np.pad(x, ((0, 3), (0, 0)), constant_values=7.0).reshape(3, 5, 3),
        np.pad(y, ((0, 3), (0, 0))).reshape(3, 5, 3),
    )
    batches = jax.jit(jax.vmap(squared_error))(*padded, mask)
    total = jax.tree.map(lambda leaf: leaf.sum(axis=0), {"mse": batches})
    np.testing.assert_allclose(compute(total)["mse"], whole, rtol=1e-6)


def test_adding_leaves_joins_means():
    total = jax.tree.map(
        jnp.add, Mean(jnp.float32(6), jnp.float32(2)), Mean(jnp.float32(3), jnp.float32(1))
    )
    assert float(total.compute()) == 3.0


LABELS, PREDICTED = np.array([0, 0, 1, 2, 2, 2, 0, 1, 3]), np.array([0, 1, 1, 2, 0, 2, 0, 0, 2])


@pytest.mark.parametrize("split", [9, 4, 2])
def test_scores_of_classes_equal_scikit_learns_whatever_the_batches(split):
    # the fifth class never occurs and is never predicted
    logits = np.eye(5, dtype=np.float32)[PREDICTED]
    batches = [slice(i, i + split) for i in range(0, 9, split)]
    parts = [
        jax.jit(confusion)(logits[b], LABELS[b], np.ones(len(LABELS[b]), bool)) for b in batches
    ]
    matrix = jnp.asarray(sum(np.asarray(part.matrix) for part in parts))
    np.testing.assert_array_equal(
        np.asarray(matrix)[:4, :4], sklearn.metrics.confusion_matrix(LABELS, PREDICTED)
    )
    scores = jax.jit(compute)({"confusion": Confusion(matrix)})
    options = {"average": "weighted", "zero_division": 0}
    precision, recall, f1, _ = sklearn.metrics.precision_recall_fscore_support(
        LABELS, PREDICTED, **options
    )
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(LABELS, PREDICTED),
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "macro/f1": sklearn.metrics.f1_score(LABELS, PREDICTED, average="macro", zero_division=0),
    }
    assert scores.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(scores[name], value, rtol=1e-6)
    of_classes = sklearn.metrics.precision_recall_fscore_support(
        LABELS, PREDICTED, average=None, zero_division=0
    )
    np.testing.assert_allclose(
        [np.asarray(values)[:4] for values in class_scores(matrix)], of_classes[:3], rtol=1e-6
    )


def test_rows_that_are_masked_are_in_no_confusion():
    logits = np.eye(5, dtype=np.float32)[PREDICTED]
    mask = np.array([True, True, False, True, False, True, True, True, False])
    together = jax.jit(confusion)(logits, LABELS, mask).matrix
    alone = jax.jit(confusion)(logits[mask], LABELS[mask], np.ones(6, bool)).matrix
    np.testing.assert_array_equal(together, alone)
    assert together.sum() == 6


def test_a_class_that_is_predicted_and_never_occurs_counts_in_macro_f1():
    labels, predicted = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 1])
    every = np.ones(4, bool)
    scores = jax.jit(confusion)(np.eye(4, dtype=np.float32)[predicted], labels, every).compute()
    assert scores["macro/f1"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    expected = sklearn.metrics.f1_score(labels, predicted, average="macro", zero_division=0)
    assert scores["macro/f1"] == pytest.approx(expected)


def test_the_largest_logit_is_the_first_of_equal_ones():
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 3, (50, 4, 7)).astype(np.float32)  # with many ties
    logits[0], logits[1, 0, 3] = 0, np.inf
    labels = rng.integers(0, 7, (50, 4))
    expected = np.argmax(logits, axis=-1) == labels
    assert expected.any()
    np.testing.assert_array_equal(jax.jit(largest)(logits, labels), expected)


def test_cross_entropy_is_weighted_masked_and_smoothed():
    logits = np.array([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0], [5.0, 5.0, 5.0]], np.float32)
    labels, mask, weights = (
        np.array([0, 2, 1]),
        np.array([True, True, False]),
        np.array([1.0, 7.0, 3.0], np.float32),
    )
    loss = lambda *weights, smoothing=0.0: jax.jit(
        functools.partial(cross_entropy, smoothing=smoothing)
    )(logits, labels, mask, *weights)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    plain = -np.log([shares[0, 0], shares[1, 2]])
    np.testing.assert_allclose(loss().compute(), plain.mean(), rtol=1e-6)
    np.testing.assert_allclose(loss(weights).compute(), (plain[0] + 3 * plain[1]) / 4, rtol=1e-6)
    smooth = 0.9 * plain + 0.1 * -np.log(shares[:2]).mean(axis=1)
    np.testing.assert_allclose(loss(smoothing=0.1).compute(), smooth.mean(), rtol=1e-6)


def test_cross_entropy_of_tokens_is_that_of_examples():
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(2, 3, 5)), jnp.float32)
    labels, every = jnp.asarray(rng.integers(0, 5, (2, 3))), jnp.ones(3, bool)
    mask = jnp.array([[True, True, False], [True, False, False]])
    for smoothing in (0.0, 0.1):
        tokens = token_cross_entropy(logits, labels, mask, smoothing).compute()
        rows = cross_entropy(logits[mask], labels[mask], every, smoothing=smoothing)
        np.testing.assert_allclose(tokens, rows.compute(), rtol=1e-6)
