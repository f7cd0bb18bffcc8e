import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models.convolution import by_xla
from flax_attn.models.cpu import convolution

FORMS = [
    by_xla,
    convolution.by_shifts,
    convolution.by_tiles,
    convolution.convolve,
]


def draw(length, taps, features=19, batch=2):
    rng = np.random.default_rng(0)
    return rng.normal(size=(batch, length, 17)).astype(np.float32), rng.normal(
        size=(taps, 17, features)
    ).astype(np.float32) / 9


def naive(x, kernel):
    taps, length = len(kernel), x.shape[1]
    padded = np.pad(np.asarray(x, np.float64), ((0, 0), (taps // 2, taps // 2), (0, 0)))
    return np.stack(
        [
            sum(padded[:, t + j] @ np.asarray(kernel[j], np.float64) for j in range(taps))
            for t in range(length)
        ],
        axis=1,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [1, 4, 7, 100])
@pytest.mark.parametrize("taps", [3, 5])
def test_every_form_equals_the_sum(form, length, taps):
    x, kernel = draw(length, taps)
    np.testing.assert_allclose(jax.jit(form)(x, kernel), naive(x, kernel), atol=3e-5)


@pytest.mark.parametrize("length", [1, 4, 100])
@pytest.mark.parametrize("taps", [1, 3, 5])
def test_shifts_of_narrow_outputs_equal_the_sum(length, taps):
    x, kernel = draw(length, taps, features=3)
    np.testing.assert_allclose(
        jax.jit(convolution.by_shifts)(x, kernel), naive(x, kernel), atol=3e-5
    )


@pytest.mark.parametrize(
    ("form", "features"),
    [
        (convolution.by_shifts, 19),
        (convolution.by_shifts, 3),
        (convolution.by_tiles, 19),
    ],
)
@pytest.mark.parametrize("batch", [2, 3])
def test_gradients_equal_those_of_xla(form, features, batch):
    arguments = draw(13, 5, features, batch)
    gradient = lambda form: jax.jit(
        jax.grad(lambda x, w: jnp.sum(jnp.sin(form(x, w))), argnums=(0, 1))
    )(*arguments)
    for ours, expected in zip(gradient(form), gradient(by_xla)):
        np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_cook_toom_is_exact_in_double_precision():
    outputs_of, kernel_of, inputs_of = convolution.cook_toom(4, 5)
    x, w = np.random.default_rng(0).normal(size=8), np.random.default_rng(1).normal(size=5)
    expected = [sum(w[j] * x[i + j] for j in range(5)) for i in range(4)]
    np.testing.assert_allclose(
        outputs_of @ ((kernel_of @ w) * (inputs_of @ x)), expected, atol=1e-12
    )


def test_tiles_have_a_forward_mode_and_a_vmap():
    x, kernel = draw(13, 5)
    tangent = lambda form: jax.jvp(form, (x, kernel), (jnp.cos(x), jnp.sin(kernel)))[1]
    np.testing.assert_allclose(tangent(convolution.by_tiles), tangent(by_xla), atol=1e-4)
    kernels = np.stack([kernel, 2 * kernel])
    mapped = jax.vmap(convolution.by_tiles, in_axes=(None, 0))(x, kernels)
    np.testing.assert_allclose(mapped[1], 2 * mapped[0], atol=3e-5)
    np.testing.assert_allclose(mapped[0], naive(x, kernel), atol=3e-5)
