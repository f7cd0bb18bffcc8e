"""One mean and one deviation of all numbers, and what a run may keep of them."""

import numpy as np

from flax_attn.tasks.inputs.signals import Normalization


def test_it_is_of_all_numbers_of_all_arrays_together():
    """By the number of elements, not by the mean of the means, and without n - 1."""
    first, second = np.array([[0.0], [2.0]]), np.array([7.0])
    normalization = Normalization.of(first, second)
    np.testing.assert_allclose(normalization, [3, np.std([0, 2, 7])])
    np.testing.assert_allclose(normalization.apply(np.array([3.0])), 0)
    np.testing.assert_allclose(normalization.undo(normalization.apply(first)), first)


def test_large_numbers_lose_no_digits():
    """In float32, a mean of many large numbers would."""
    numbers = np.full(1_000_000, 4_096.5, np.float32)
    numbers[::2] += 1
    normalization = Normalization.of(numbers)
    np.testing.assert_allclose(normalization, [4_097, 0.5], rtol=1e-12)


def test_a_run_keeps_both_numbers():
    assert Normalization.restore({"mean": 1, "std": 2, "other": 3}) == (1.0, 2.0)
