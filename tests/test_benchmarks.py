"""The benchmarks can be imported, and the check of an accelerator finds faults."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import pytest

import benchmarks
from benchmarks import accelerator
from benchmarks.attention_cases import all_keys, causal, key_lengths, window
from benchmarks.attention_forms import DENSE, check, ours
from flax_attn.attention import core
from flax_attn.attention.forms import blockwise

pytestmark = pytest.mark.slow
MODULES = sorted(path.stem for path in Path(benchmarks.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name):
    for package in ("torch", "keras"):  # whose backend the benchmarks choose
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("make", [all_keys, causal, window, key_lengths])
def test_the_forms_of_attention_in_jax_do_equal_work(make):
    forms = {"ours": ours, **DENSE}
    check({name: form(make(320, heads=1), True) for name, form in forms.items()})


def test_the_check_of_an_accelerator_passes_on_a_cpu():
    forms = list(accelerator.forms(lengths=(8,)))
    assert {row["form"] for row in forms} == {"dense"}
    names = ["lengths, causal window"]
    numbers = list(accelerator.numbers(lengths=(33,), names=names))
    assert [row["passed"] for row in numbers] == [True] * 2
    assert accelerator.verdict({"numbers": numbers}) == "2 of 2 checks passed"
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
    monkeypatch.setitem(core.FORMS, "blockwise", (blockwise.why_not, shifted))
    rows = list(accelerator.numbers(lengths=(33,), names=["causal"]))
    assert not any(row["passed"] for row in rows)
