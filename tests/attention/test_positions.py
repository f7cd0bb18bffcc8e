import numpy as np

from flax_attn.attention import binary_digits


def test_binary_digits_spell_the_position():
    digits = np.asarray(binary_digits(100))
    assert digits.shape == (100, 7)
    np.testing.assert_array_equal(digits @ 2 ** np.arange(7), np.arange(100))
    np.testing.assert_array_equal(binary_digits(3, 4), [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
