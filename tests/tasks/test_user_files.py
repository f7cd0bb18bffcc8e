"""The files that a user names."""

import numpy as np
import pytest
from PIL import Image

from flax_attn.tasks import user_files as files


@pytest.mark.parametrize("light_ink", [True, False])
def test_a_picture_with_a_light_ground_is_inverted_for_light_ink_alone(tmp_path, light_ink):
    pixels = np.full((5, 4), 255, np.uint8)
    pixels[2, 1] = 40
    Image.fromarray(pixels).save(tmp_path / "own.png")
    images = files.read_images(tmp_path / "own.png", light_ink)
    np.testing.assert_array_equal(images, [255 - pixels if light_ink else pixels])
