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


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 4, 1)])
def test_outputs_are_written_as_a_row_for_each_input(tmp_path, shape):
    outputs = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    files.write_outputs(tmp_path / "own.csv", outputs)
    rows = np.loadtxt(tmp_path / "own.csv", delimiter=",", ndmin=2)
    np.testing.assert_array_equal(rows, outputs.reshape(3, -1))
