"""`check_attention` finds each planted fault, and passes attention in every form."""

import functools
import json
import re
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from docs.draw import DOCS, run_example
from flax_attn import testing
from flax_attn.attention import Across, dot_product_attention
from flax_attn.testing import CASES, check_attention
from tests.on_devices import on

POSITIONS = ("causal", "window", "query_offset", "prefix_lengths")
LIMITS = (*POSITIONS, "query_lengths", "key_lengths", "query_segments", "key_segments")
NAMES = {name: name for name in (*LIMITS, "scale", "softcap")}


def softmax(scores, seen):
    hidden = jnp.where(seen, scores.astype(jnp.float32), -1e9)
    return jnp.where(seen, jax.nn.softmax(hidden), 0)


def test_the_beginning_of_names_to_skip_may_be_one_text():
    results = check_attention(dot_product_attention, names=NAMES, skip="empty rows")
    assert {name for name in CASES if not name.startswith("empty rows")} == {
        r.name for r in results
    }


@jax.custom_vjp
def halved_gradient(weights, value):
    return weights @ value


halved_gradient.defvjp(
    lambda weights, value: (weights @ value, (weights, value)),
    lambda saved, g: (g @ saved[1].mT, saved[0].mT @ g / 2),
)
PARTS = {
    "scale": lambda query: query.shape[-1] ** -0.5,
    "repeated": lambda array, groups: jnp.repeat(array, groups, axis=1),
    "positions": lambda queries, keys: jnp.arange(queries),
    "left": lambda left: left,
    "lengths": lambda lengths: lengths,
    "same": lambda queries, keys: queries[:, None, :, None] == keys[:, None, None],
    "hide": lambda array, real: jnp.where(real[..., None], array, 0),
    "softmax": softmax,
    "biased": lambda scores, bias, seen, softmax: softmax(scores + bias, seen),
    "product": lambda weights, value: weights @ value,
    "result": lambda context, dtype: context.astype(dtype),
}


def attention_of(parts):
    """Attention of arrays `(b, h, t, d)`, short and slow, made of parts."""
    part = PARTS | parts

    def attention(
        query, key, value, mask=None, bias=None, causal=False, window=None, query_offset=0,
        key_lengths=None, query_segments=None, key_segments=None,
    ):  # fmt: skip
        keys = jnp.arange(key.shape[2])[None, None, None]
        positions = part["positions"](query.shape[2], keys.size)[None, None, :, None]
        positions = positions + jnp.reshape(query_offset, (-1, 1, 1, 1))
        seen = jnp.ones((len(query), 1, query.shape[2], keys.size), bool)
        seen &= True if mask is None else mask
        seen &= keys <= positions if causal else True
        if window is not None:
            seen &= positions - part["left"](window[0]) <= keys
            seen &= keys <= positions + window[1]
        if key_lengths is not None:
            seen &= keys < part["lengths"](key_lengths)[:, None, None, None]
        if query_segments is not None:
            seen &= part["same"](query_segments, key_segments)
        seen &= True if bias is None else bias > -jnp.inf
        bias = jnp.zeros((1, 1, 1, 1)) if bias is None else jnp.where(bias > -jnp.inf, bias, 0)
        groups = query.shape[1] // key.shape[1]
        query = part["hide"](query, seen.any(axis=3))
        key, value = (part["repeated"](array, groups) for array in (key, value))
        key, value = (part["hide"](array, seen.any(axis=2)) for array in (key, value))
        scores = query @ key.mT * jnp.asarray(part["scale"](query), query.dtype)
        weights = part["biased"](scores, bias.astype(scores.dtype), seen, part["softmax"])
        return part["result"](part["product"](weights.astype(value.dtype), value), query.dtype)

    return attention


def overflowing(scores, seen):
    shares = jnp.where(seen, jnp.exp(scores), 0)
    return shares / jnp.maximum(shares.sum(axis=-1, keepdims=True), 1e-6)


OF_PARTS = {name: name for name in LIMITS if name not in ("prefix_lengths", "query_lengths")}
CONTROL = "plain|mask|causal"
FAULTS = {  # the parts that are wrong, and the cases that find them
    "window of one key more": ({"left": lambda left: left + 1}, "window.*|long"),
    "causality from the last key": (
        {"positions": lambda queries, keys: jnp.arange(keys - queries, keys)},
        "causal, (more|offset).*",
    ),
    "scale by the number of heads": ({"scale": lambda query: query.shape[1] ** -0.5}, CONTROL),
    "softmax without the maximum": ({"softmax": overflowing}, ".*large scores"),
    "-1e9 for a hidden key": (
        {
            "softmax": lambda scores, seen: jax.nn.softmax(jnp.where(seen, scores, -1e9)),
            "hide": lambda array, real: array,
        },
        "empty rows.*",
    ),
    "0 * NaN": ({"hide": lambda array, real: array}, "NaN.*"),
    "interleaved groups": (
        {"repeated": lambda array, groups: jnp.tile(array, (1, groups, 1, 1))},
        "key heads",
    ),
    "gradient of the value": ({"product": halved_gradient}, CONTROL),
    "lengths of one key more": ({"lengths": lambda lengths: lengths + 1}, "key lengths"),
    "segments ignored": ({"same": lambda queries, keys: True}, "segments.*"),
    "bias after softmax": (
        {"biased": lambda scores, bias, seen, softmax: softmax(scores, seen) + bias * seen},
        "bias.*",
    ),
    "result in float32": (
        {"result": lambda context, dtype: context.astype(jnp.float32)},
        "b?float16.*",
    ),
}


def failed(results):
    return [result.name for result in results if result.status == "failed"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_in_its_cases_and_in_no_other(fault, monkeypatch):
    parts, expected = FAULTS[fault]
    cases = {name: CASES[name] for name in CASES if re.fullmatch(f"{CONTROL}|{expected}", name)}
    monkeypatch.setattr(testing, "CASES", cases)
    results = check_attention(attention_of(parts), "bhtd", names=OF_PARTS, raises=False)
    assert failed(results) == [name for name in cases if re.fullmatch(expected, name)]


FORMS = {
    "dense": {},
    "fastest": {"need_weights": False},
    "blocks": {"chunk_size": 4},
    "gathered": {"across": Across(ring=False)},
    "ring": {"across": Across(ring=True), "chunk_size": 4},
}


# in blocks and across devices; tests of these forms have the others
FEW = ["bias of -inf", "causal, more keys", "window", "segments, causal", "key heads", "bfloat16"]
FEW += ["empty rows, key lengths", "NaN in padded keys"]


def statuses(form):
    names = FEW if "chunk_size" in FORMS[form] or "across" in FORMS[form] else CASES
    cases = {name: CASES[name] for name in names}
    mesh = jax.make_mesh((jax.device_count(),), ("sequence",), (jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh), mock.patch.object(testing, "CASES", cases):
        attention = functools.partial(dot_product_attention, **FORMS[form])
        results = check_attention(attention, names=NAMES)
    return [result.status for result in results]


@pytest.mark.parametrize(
    "form", ["dense", "fastest", pytest.param("blocks", marks=pytest.mark.slow)]
)
def test_attention_passes_in_every_form(form):
    assert set(statuses(form)) == {"passed"}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gathered", "ring"])
def test_attention_passes_across_four_devices(form):
    assert set(on(4, "tests.test_testing", form)) == {"passed"}


@pytest.mark.slow
def test_the_page_says_what_each_library_passes():
    pytest.importorskip("equinox")
    page = (DOCS / "testing.md").read_text()
    names = run_example(page)
    assert f"```text\n{names['report']}\n```" in page
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", page, re.MULTILINE)
    listed = {function: re.findall("`(.+?)`", cases) for function, cases in rows}
    for function, failed in names["failed"].items():
        beginnings = tuple(listed[function])
        assert all(name.startswith(beginnings) for name in failed)
        assert all(any(name.startswith(start) for name in failed) for start in beginnings)


if __name__ == "__main__":
    print(json.dumps(statuses(sys.argv[1])))
