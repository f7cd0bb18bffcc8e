"""Which form a call takes, and why the others do not fit."""

import functools

import jax
import jax.numpy as jnp
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import normal, run

SHORT, LONG = (jax.ShapeDtypeStruct((1, length, 2, 8), jnp.float32) for length in (8, 4096))
ROW = jax.ShapeDtypeStruct((1, 4096, 8), jnp.float32)
NO_WEIGHTS = {"need_weights": False}
on_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="the choice of CPUs")
softmax = functools.partial(fa.masked_softmax)


@on_cpu
@pytest.mark.parametrize(
    ("x", "arguments", "name"),
    [
        (SHORT, {}, "dense"),
        (LONG, {"causal": True}, "dense"),
        (SHORT, NO_WEIGHTS, "dense"),
        (LONG, NO_WEIGHTS, "blockwise"),
        (ROW, NO_WEIGHTS | {"score": fa.dot}, "blockwise"),
        (ROW, NO_WEIGHTS | {"normalizer": softmax}, "blockwise"),
        (ROW, NO_WEIGHTS | {"normalizer": fa.sparsemax}, "dense"),
        (SHORT, {"chunk_size": 4}, "blockwise"),
        (SHORT, {"chunk_size": 4, "normalizer": fa.sparsemax}, "query_blocks"),
    ],
)
def test_a_call_takes_the_first_form_that_fits(x, arguments, name):
    assert fa.form_of(x, x, x, **arguments).name == name


@on_cpu
def test_the_forms_before_say_why_they_do_not_fit():
    form = fa.form_of(LONG, LONG, LONG, causal=True, **NO_WEIGHTS)
    assert list(form.why_not) == ["cudnn", "splash", "few_queries"]
    assert form.why_not["cudnn"] == "the program is not for a GPU of NVIDIA"
    form = fa.form_of(SHORT, SHORT, SHORT, **NO_WEIGHTS)
    assert form.why_not["blockwise"] == "all scores at once are as fast"
    form = fa.form_of(ROW, ROW, ROW, **NO_WEIGHTS, normalizer=fa.sparsemax)
    assert form.why_not["blockwise"] == "the normalizer is not softmax"
    assert set(fa.form_of(SHORT, SHORT, SHORT).why_not.values()) == {"weights are wanted"}


def test_devices_and_lenses_decide_too():
    mesh = jax.make_mesh((1,), ("sequence",), axis_types=(jax.sharding.AxisType.Auto,))
    across = {"across": fa.Across(mesh)}
    assert fa.form_of(SHORT, SHORT, SHORT, **across).name == "gathered"
    assert fa.form_of(SHORT, SHORT, SHORT, **across, **NO_WEIGHTS).name == "ring"
    with fa.Lens(normalizer=fa.sparsemax):
        assert fa.form_of(SHORT, SHORT, SHORT, chunk_size=4).name == "query_blocks"


def test_a_softmax_in_a_partial_is_computed_in_blocks_of_keys():
    x = normal(0, 1, 9, 4)
    attend = functools.partial(fa.attend, chunk_size=4)
    expected, ours = run(attend, x, x, x), run(attend, x, x, x, normalizer=softmax)
    assert (expected.context == ours.context).all()
