"""What the benchmarks count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import accelerator, limit
from benchmarks.attention_cases import causal
from flax_attn.attention.forms import blockwise


def test_operations_are_those_of_the_products_inside_whatever_holds_them():
    a, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    signal, kernel = np.ones((2, 7, 3), np.float32), np.ones((5, 3, 11), np.float32)

    def convolve(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )

    def three_times(a, b):
        return jax.lax.scan(
            lambda total, _: (total + jax.jit(jnp.matmul)(a, b), None), jnp.zeros((3, 5)), length=3
        )[0]

    counted = lambda function, *arguments: limit.count(jax.make_jaxpr(function)(*arguments).jaxpr)
    assert counted(jnp.matmul, a, b) == 2 * 3 * 4 * 5
    assert counted(lambda a: jnp.einsum("bij,bkj->bik", a[None], a[None]), a) == 2 * 3 * 3 * 4
    assert counted(three_times, a, b) == 3 * 2 * 3 * 4 * 5
    assert counted(convolve, signal, kernel) == 2 * (2 * 7) * 5 * 3 * 11
    gradients = jax.grad(lambda x, w: convolve(x, w).sum(), argnums=(0, 1))
    assert counted(gradients, signal, kernel) == 3 * 2 * (2 * 7) * 5 * 3 * 11
    assert counted(lambda a: jnp.tanh(a) * a, a) == 0


@pytest.mark.full
def test_the_check_of_an_accelerator_passes_on_a_cpu():
    forms = list(accelerator.forms(lengths=(8,)))
    assert {row["form"] for row in forms} == {"dense"}
    names = ["lengths, causal window", "segments, causal"]
    numbers = list(accelerator.numbers(lengths=(33,), names=names))
    assert [row["passed"] for row in numbers] == [True] * 4
    assert accelerator.verdict({"numbers": numbers}) == "4 of 4 checks passed"
    wrong = {"call": "x", "passed": False}
    assert accelerator.verdict({"numbers": [*numbers, wrong]}).endswith("passed; failed: x")


def test_the_times_of_an_accelerator_leave_out_what_a_cpu_has_no_memory_for():
    rows = list(accelerator.times((causal(64, heads=2), causal(65_536, heads=2))))
    assert [row["call"] for row in rows] == ["1 x 64 causal, context", "1 x 64 causal, gradients"]
    assert all(row.keys() > {"ours (ms)", "the formula (ms)", "jax.nn (ms)"} for row in rows)
    (row,) = accelerator.sizes((("float32", 64),), blocks=(32,))
    assert row.keys() == {"call", "blocks of 32 (ms)", "the formula (ms)"}


def test_the_check_of_an_accelerator_sees_a_wrong_form(monkeypatch):
    shifted = lambda call: jnp.roll(blockwise.context_and_logs(call)[0], 1, axis=-2)
    monkeypatch.setattr(blockwise, "attend", shifted)
    rows = list(accelerator.numbers(lengths=(33,), names=["causal"]))
    assert not any(row["passed"] for row in rows)
