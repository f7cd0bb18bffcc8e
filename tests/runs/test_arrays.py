import chex
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import arrays
from flax_attn.training.epoch import TrainState


def test_every_dtype_and_shape_comes_back(tmp_path):
    tree = {
        "bfloat16": jnp.asarray([1.5, np.nan, -0.0], jnp.bfloat16),
        "float16": jnp.asarray([[np.inf], [6e-8]], jnp.float16),
        "bool": jnp.asarray([True, False]),
        "uint32": jnp.uint32(2**32 - 1),
        "empty": jnp.zeros((0, 3)),
        "deep": [(jnp.int8(-1), {"a/b": jnp.float32(1)})],
    }
    arrays.write(tmp_path / "tree", tree)
    read = arrays.read(tmp_path, "tree", jax.tree.map(jnp.zeros_like, tree))
    chex.assert_trees_all_equal_structs(read, tree)
    for ours, expected in zip(jax.tree.leaves(read), jax.tree.leaves(tree), strict=True):
        assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
        assert np.asarray(ours).tobytes() == np.asarray(expected).tobytes()


def test_a_state_comes_back_into_its_classes(tmp_path):
    create = lambda seed: TrainState.create(
        seed, lambda key: ({"w": jax.random.normal(key, (3,))}, {}), optax.adam(1e-3)
    )
    state = create(jnp.uint32(3))
    arrays.write(tmp_path / "state", state)
    shapes = jax.eval_shape(create, jnp.uint32(3))
    chex.assert_trees_all_equal(arrays.read(tmp_path, "state", shapes), state)


def test_what_is_read_may_be_given_away(tmp_path):
    """A jitted step that is given the arrays must not write into the bytes of a file."""
    arrays.write(tmp_path / "tree", {"w": jnp.arange(1024.0)})
    template = {"w": jnp.zeros(1024)}
    first, second = (arrays.read(tmp_path, "tree", template)["w"] for _ in range(2))
    jax.jit(lambda w: w * 2, donate_argnums=0)(first).block_until_ready()
    assert first.is_deleted()
    np.testing.assert_array_equal(second, np.arange(1024.0))


def test_a_line_names_the_array_that_differs(tmp_path):
    arrays.write(tmp_path / "tree", {"w": np.zeros(2, ml_dtypes.bfloat16)})
    with pytest.raises(UsageError, match=r"expected \['w'\] float32\[2\], got bfloat16\[2\]"):
        arrays.read(tmp_path, "tree", {"w": jnp.zeros(2)})
