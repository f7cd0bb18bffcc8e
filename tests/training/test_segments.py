"""How many steps run in one call, by the operations of one."""

import jax
import jax.numpy as jnp

from flax_attn.training.epoch import CALL, SEGMENT, steps_a_segment, weigh

X = jnp.zeros((4, 8))


def weight(function, *arguments):
    return weigh(jax.make_jaxpr(function)(*arguments).jaxpr)


def test_an_operation_weighs_its_elements_and_a_product_its_multiplications():
    assert weight(jnp.negative, X) == 32 + CALL
    assert weight(lambda a, b: jax.lax.dot(a, b), X, jnp.zeros((8, 5))) == 4 * 8 * 5 + CALL


def test_a_convolution_weighs_its_multiplications():
    signal, kernel = jnp.zeros((2, 3, 10)), jnp.zeros((7, 3, 5))
    convolve = lambda a, b: jax.lax.conv_general_dilated(a, b, (1,), "SAME")
    assert weight(convolve, signal, kernel) == 2 * 7 * 10 * 3 * 5 + CALL


def test_a_scan_weighs_its_steps_a_while_one_and_branches_the_heaviest():
    step = lambda x, _: (-x, None)
    assert weight(lambda x: jax.lax.scan(step, x, length=10)[0], X) == 10 * weight(step, X, None)
    loop = lambda x, n: jax.lax.fori_loop(0, n, lambda _, x: -x, x)
    assert weight(jnp.negative, X) <= weight(loop, X, 5) < 10 * weight(jnp.negative, X)
    light, heavy = jnp.negative, lambda x: jnp.exp(-x)
    choose = lambda condition, x: jax.lax.cond(condition, light, heavy, x)
    assert weight(choose, True, X) >= weight(heavy, X)


def test_a_segment_has_a_step_at_least_and_more_of_a_lighter_one():
    assert steps_a_segment(jax.make_jaxpr(jnp.negative)(X)) == SEGMENT // (32 + CALL)
    huge = jax.ShapeDtypeStruct((300_000, 300_000), jnp.float32)
    assert steps_a_segment(jax.make_jaxpr(jnp.negative)(huge)) == 1
