import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import MLP, PatchAttention, PatchTransformer
from flax_attn.models.images import cut_patches, shift
from tests.models import variables

IMAGES = np.random.default_rng(0).uniform(size=(3, 28, 28)).astype(np.float32)


IMAGE_MODELS = {
    "MLP": MLP(10),
    "patches": PatchAttention(10),
    "Transformer": PatchTransformer(10, 7, 8, 2, 1, 8),
}


def test_images_move_by_up_to_the_limit_in_every_direction():
    images = np.zeros((200, 5, 7), np.float32)
    images[:, 2, 3] = 1
    moved = np.asarray(jax.jit(shift, static_argnums=2)(jax.random.key(0), images, 1))
    assert (moved.sum(axis=(1, 2)) == 1).all()
    rows, columns = (places.tolist() for places in np.nonzero(moved)[1:])
    assert set(zip(rows, columns)) == {(y, x) for y in (1, 2, 3) for x in (2, 3, 4)}


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_images_to_logits(name):
    model = IMAGE_MODELS[name]
    logits = jax.jit(model.apply)(variables.draw(model, IMAGES), IMAGES)[0]
    assert logits.shape == (3, 10)
    assert np.isfinite(logits).all()


def test_patches_are_cut_row_by_row():
    image = jnp.asarray(np.arange(24.0).reshape(1, 4, 6))
    patches = np.asarray(cut_patches(image, 2))
    np.testing.assert_array_equal(patches[0, 1], [2, 3, 8, 9])
    np.testing.assert_array_equal(patches[0, 3], [12, 13, 18, 19])
    with pytest.raises(ValueError, match="patch_size"):
        cut_patches(image, 4)
