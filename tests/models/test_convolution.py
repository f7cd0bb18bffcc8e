import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn import platforms
from flax_attn.models import convolution


def test_a_program_that_is_exported_takes_xlas_form():
    convolve = jax.jit(convolution.convolve)
    arguments = np.ones((2, 100, 17), np.float32), np.ones((5, 17, 19), np.float32)
    assert "conv_general_dilated" not in str(convolve.trace(*arguments).jaxpr)
    with platforms.compiling_for(platforms.PORTABLE):
        assert "conv_general_dilated" in str(convolve.trace(*arguments).jaxpr)


def test_even_kernels_are_refused():
    with pytest.raises(ValueError, match="odd kernel_size"):
        convolution.Conv1D(3, 4).init(jax.random.key(0), jnp.zeros((1, 5, 1)))
