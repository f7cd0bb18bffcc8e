"""Where attention points when the answer is known."""

import numpy as np
import pytest

from flax_attn.kinds import alignment


def test_weights_of_the_month_on_its_name():
    read = np.zeros((10, 13))  # 2006-07-11
    read[5, 3:7] = 0.2
    read[6, 6], read[6, 7], read[4, 5] = 0.5, 0.5, 1.0
    assert alignment.month_from_name(
        ["11 july 2006", "2 may 1999"], [read, read[:6]]
    ) == pytest.approx((0.8 + 0.5) / 2)


def test_weights_on_the_anti_diagonal():
    sharp, flat = np.eye(3)[::-1], np.full((4, 4), 0.25)
    assert alignment.anti_diagonal([sharp]) == 1
    assert alignment.anti_diagonal([np.eye(4)]) == 0
    np.testing.assert_allclose(alignment.anti_diagonal([sharp, flat]), (3 + 4 * 0.25) / 7)
