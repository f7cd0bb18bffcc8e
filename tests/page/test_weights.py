"""Weights of any library as the data of a page: what is taken, what is told, and how much it is."""

import inspect
import json
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import flax_attn
from flax_attn.__main__ import main
from flax_attn.attention import MultiHeadAttention
from flax_attn.errors import UsageError
from flax_attn.page.report import digest
from flax_attn.page.weights import page_of_weights, weights_data
from tests.page.attacks import ATTACKS
from tests.page.test_report import data_of, unpacked

WORDS = ["the", "cat", "sat", "on", "the", "mat"]
show = inspect.unwrap(flax_attn.show)  # the types are checked first in tests


def soft(*shape, seed=0, dtype=np.float32):
    """Random weights that sum to 1."""
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), shape[:-1]).astype(dtype)


def shown(*arguments, **options):
    """The data of the page of weights."""
    (run,) = data_of(show(*arguments, **options).html)["runs"]
    return run


def arrays(run):
    return [unpacked(layer["weights"]) for layer in run["attention"]]


def names(run):
    return [(layer["name"], layer["heads"]) for layer in run["attention"]]


# what is taken


@pytest.mark.parametrize(
    ("weights", "expected", "sentence"),
    [
        (soft(3, 5), [("", 1)], "3 queries and 5 keys"),
        (soft(1, 1), [("", 1)], "1 query and 1 key"),
        (soft(2, 3, 5), [("", 2)], "2 heads, 3 queries and 5 keys"),
        (soft(1, 2, 3, 5), [("", 2)], "2 heads, 3 queries and 5 keys"),
        (soft(2, 4, 3, 5), [("layer 0", 4), ("layer 1", 4)], "2 layers of 4 heads, "),
        ({"a": soft(3, 5), "b": soft(2, 3, 5)}, [("a", 1), ("b", 2)], "2 layers with 3 heads, "),
        ((soft(1, 2, 3, 5), soft(1, 2, 3, 5)), [("layer 0", 2), ("layer 1", 2)], "2 layers of 2"),
        ([soft(1, 2, 3, 5)], [("", 2)], "2 heads, "),
        ([[0.5, 0.5], [1, 0]], [("", 1)], "2 queries and 2 keys"),
        ([np.array([0.5, 0.5]), np.array([1.0, 0])], [("", 1)], "2 queries and 2 keys"),
        (
            {"m": {"x_0": {"own": {"w": (soft(1, 2, 3, 5),)}}, "x_1": {"own": {"w": soft(3, 5)}}}},
            [("x_0", 2), ("x_1", 1)],
            "2 layers with 3 heads",
        ),
    ],
)
def test_layers_and_heads_have_the_names_and_shapes_of_the_arrays(weights, expected, sentence):
    run = shown(weights)
    assert names(run) == expected
    assert run["sentence"].startswith(sentence)
    leaves = jax.tree.leaves(weights, is_leaf=lambda own: hasattr(own, "shape"))
    if isinstance(weights, np.ndarray):
        leaves = weights.reshape(-1, *weights.shape[-3:]) if weights.ndim == 4 else [weights]
    if all(np.ndim(leaf) > 1 for leaf in leaves):
        for array, leaf in zip(arrays(run), leaves, strict=True):
            np.testing.assert_allclose(array, leaf.reshape(array.shape), atol=5e-3)


def of_this_library():
    x = jax.random.normal(jax.random.key(0), (1, 6, 16))
    return MultiHeadAttention(2).init_with_output(jax.random.key(1), x)[0].weights


def of_linen():
    layer, x = nn.MultiHeadDotProductAttention(2), jax.random.normal(jax.random.key(0), (1, 6, 16))
    variables = layer.init(jax.random.key(1), x)
    call = layer.apply(variables, x, sow_weights=True, mutable=["intermediates"])
    return call[1]


def of_nnx():
    layer = nnx.MultiHeadAttention(2, 16, decode=False, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (1, 6, 16))
    return nnx.capture(layer, nnx.Intermediate)(x, sow_weights=True)[1]


def of_torch():
    torch = pytest.importorskip("torch")
    layer = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.ones(1, 6, 16)
    weights = layer(x, x, x, need_weights=True, average_attn_weights=False)[1]
    assert weights.requires_grad
    return weights


def of_torch_in_bfloat16():
    return (of_torch().bfloat16(),) * 2


@pytest.mark.parametrize(
    "weights_of", [of_this_library, of_linen, of_nnx, of_torch, of_torch_in_bfloat16]
)
def test_the_weights_of_each_library_are_shown_in_one_line(weights_of):
    run = shown(weights_of(), rows=WORDS)
    assert [heads for _, heads in names(run)] == [2] * len(run["attention"])
    assert arrays(run)[0].shape == (2, 6, 6)
    np.testing.assert_allclose(arrays(run)[0].sum(-1), 1, atol=0.02)
    assert run["columns"] == WORDS


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int32])
def test_precisions_of_jax_are_numbers(dtype):
    np.testing.assert_allclose(arrays(shown(jnp.eye(3, dtype=dtype)))[0][0], np.eye(3))


def test_tokens_stand_on_both_sides_where_there_are_as_many():
    assert shown(soft(6, 6), WORDS)["columns"] == WORDS
    assert shown(soft(6, 5), WORDS)["columns"] is None
    run = shown(soft(6, 5), WORDS, np.arange(5))
    assert (run["rows"], run["columns"]) == (WORDS, list("01234"))
    run = shown(soft(2, 2), rows=["a", "b"], columns=(0.5, 2), title="mine")
    assert (run["name"], run["columns"]) == ("mine", ["0.5", "2"])


def test_runs_and_arrays_are_told_apart():
    page = show("dates", model=False)
    assert not page.saves
    assert 'sandbox="allow-scripts"' in page._repr_html_()
    page = show(soft(2, 2), height=300)
    assert 'sandbox="allow-scripts allow-downloads"' in page._repr_html_()
    assert 'height="300"' in page._repr_html_()


# masks and notes


def hidden_cells(run):
    packed = run["attention"][0]["hidden"]
    return None if packed is None else unpacked(packed).astype(bool)[0]


def causal(heads=2, length=5):
    weights = np.tril(soft(heads, length, length))
    return weights / weights.sum(-1, keepdims=True)


def padded():
    weights = soft(2, 5, 5)
    weights[..., 3:] = 0
    return weights / weights.sum(-1, keepdims=True)


def tall():
    weights = causal()[..., :3]
    return weights / weights.sum(-1, keepdims=True)


def with_nan_behind():
    weights = causal()
    weights[:, np.triu(np.ones((5, 5), bool), 1)] = np.nan
    return weights


LATER = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.arange(5)[None] >= np.full((5, 1), 3)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (causal(), LATER),
        (with_nan_behind(), LATER),
        (padded(), PADDING),
        (soft(2, 5, 5), None),
        (np.array([[[0.0, 1, 0]]]), None),
        (np.full((2, 3, 3), np.nan), None),
        (causal()[:, 3:], LATER[3:]),
        (tall(), LATER[:, :3]),
    ],
    ids=["causal", "NaN behind", "padded", "all", "one query", "NaN alone", "cached", "tall"],
)
def test_what_is_exactly_0_in_all_heads_is_masked(weights, expected):
    run = shown(weights)
    assert run["is_guessed"]
    np.testing.assert_array_equal(hidden_cells(run), expected)
    assert not [line for line in run["notes"] if "sum" in line]


def test_a_query_with_nothing_but_nan_is_marked_and_not_masked():
    weights = causal()
    weights[:, 2] = np.nan
    run = shown(weights)
    np.testing.assert_array_equal(hidden_cells(run), LATER & (np.arange(5) != 2)[:, None])
    assert run["notes"] == ["10 weights are not a number (NaN): orange here."]


def test_a_weight_in_any_head_is_no_mask():
    weights = causal()
    weights[1, 0] = 0.2
    assert hidden_cells(shown(weights)) is None


def test_a_mask_of_ones_own_is_taken_and_hides_what_is_behind_it():
    run = shown(soft(2, 3, 5, 5), mask=~LATER)
    assert not run["is_guessed"]
    np.testing.assert_array_equal(hidden_cells(run), LATER)
    assert unpacked(run["attention"][2 - 1]["weights"])[:, LATER].max() == 0
    of_heads = np.ones((3, 5, 5), bool)
    of_heads[1, 0, 0] = False
    packed = shown(soft(2, 3, 5, 5), mask=of_heads)["attention"][0]["hidden"]
    assert np.argwhere(unpacked(packed)).tolist() == [[1, 0, 0]]
    assert hidden_cells(shown(causal(), mask=np.ones((5, 5), bool))) is None


def test_a_mask_that_hides_weights_has_a_line():
    mean_so_far = np.tri(5) / np.arange(1, 6)[:, None]
    (note,) = shown(mean_so_far, mask=LATER)["notes"]
    assert "10 cells that have weight, up to 1." in note
    assert shown(causal(), mask=~LATER)["notes"] == []
    no_key = np.array([[True, True], [False, False]])  # other libraries spread its weights
    assert shown(np.full((2, 2), 0.5), mask=no_key)["notes"] == []


def test_what_is_unusual_has_a_line():
    assert shown(soft(2, 5, 5))["notes"] == []
    weights = soft(2, 5, 5)
    weights[0, 1] *= 0.5
    weights[1, 2, 3] = np.nan
    run = shown(weights)
    assert run["notes"][0] == "1 weight is not a number (NaN): orange here."
    assert run["notes"][1].startswith("Of 9 rows of weights, 1 do not sum to 1: the sum is 0.5.")
    assert np.argwhere(unpacked(run["attention"][0]["broken"])).tolist() == [[1, 2, 3]]
    (low,) = shown(np.array([[0.9, 0.0], [0.5, 0.5]]))["notes"]
    assert low.startswith("Of 2 rows of weights, 1 do not sum to 1: the sum is 0.9.")
    (_, swapped) = shown(soft(4, 5).T)["notes"]
    assert "weights.swapaxes(-1, -2)" in swapped
    assert shown(np.eye(3) * [[1], [0], [1]])["notes"] == []  # a query that may attend to nothing


def test_weights_without_softmax_are_shown_with_their_signs():
    signed = causal() * [[[1.0]], [[-3.0]]]
    run = shown({"full": causal(), "linear": signed})
    for layer, weights in zip(run["attention"], (causal(), signed)):
        np.testing.assert_allclose(unpacked(layer["weights"]), weights, atol=0.02)
        np.testing.assert_array_equal(unpacked(layer["hidden"])[0].astype(bool), LATER)
    (note,) = run["notes"]
    assert "below 0" in note
    (_, hides) = shown(-soft(2, 5, 5), mask=~LATER)["notes"][::-1]
    assert "cells that have weight" in hides


# what is refused


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((soft(5),), {}),
        ((soft(2, 2, 2, 3, 3),), {}),
        (((soft(4, 2, 3, 3),) * 2,), {}),  # a batch
        ((np.zeros((0, 3)),), {}),
        (({},), {}),
        (([None, None],), {}),  # weights that transformers did not return
        ((np.array([["a"]]),), {}),
        ((soft(2, 2) * 1j,), {}),
        (([[0.5, 0.5], [1]],), {}),
        ((np.zeros((2, 2), "V2"),), {}),  # as NumPy stores bfloat16
        ((np.array([[np.inf]]),), {}),
        ((np.array([[1, -np.inf]]),), {}),  # masked scores
        ((np.ones((3000, 1, 1)),), {}),
        ((np.zeros((9, 1024, 512)),), {}),
        ((np.zeros((1, 1025)),), {}),
        (({"a": soft(2, 2), "b": soft(2, 3)},), {}),
        ((soft(2, 2), list("abc")), {}),
        ((soft(2, 2), "ab"), {}),
        ((soft(2, 2), {"a", "b"}), {}),
        ((soft(2, 2), 3), {}),
        ((soft(2, 2), [b"a", b"b"]), {}),
        ((soft(2, 2),), {"mask": np.ones((2, 2))}),
        ((soft(2, 2),), {"mask": np.ones(3, bool)}),
        (("dates",), {"rows": WORDS}),
        ((), {"rows": WORDS}),
    ],
)
def test_what_cannot_be_shown_is_a_one_line_error(arguments, options):
    with pytest.raises(UsageError) as error:
        show(*arguments, **options)
    assert len(str(error.value).splitlines()) == 1


def test_a_weight_of_low_precision_may_be_off_by_rounding():
    assert arrays(shown(np.array([[1.004, -1e-9]])))[0].tolist() == [[[1, 0]]]


# the page


def test_a_page_of_many_heads_is_small_and_of_equal_bytes():
    weights = soft(12, 12, 64, 64)
    page = page_of_weights(weights, ["token"] * 64)
    assert len(page.encode()) < 3_000_000
    assert page == page_of_weights(jnp.asarray(weights), ["token"] * 64)
    assert len(page_of_weights(np.full((12, 12, 64, 64), np.nan)).encode()) < 200_000


def test_a_page_has_the_policy_of_reports_and_no_text_runs_in_it():
    page = page_of_weights(soft(10, 10), ATTACKS, title=ATTACKS[0])
    script = re.search(r'<script type="module" id="script">(.*?)</script>', page, re.DOTALL)[1]
    policy = re.search(r'Policy" content="(.*?)">', page)[1]
    assert f"script-src {digest(script)};" in policy
    assert "connect-src 'none'" in policy
    assert page.count("<script") == 2
    assert not re.search("[\u202e\u2066\x07\x1b\x9b]", page)
    assert len(weights_data(soft(1, 1), ["x" * 10_000], None, None, "")["rows"][0]) <= 100


def test_a_page_is_saved_from_python(tmp_path):
    page = show(soft(2, 2))
    assert page.save(tmp_path / "page.html") == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_text() == page.html
    with pytest.raises(UsageError):
        page.save(tmp_path / "page.txt")


# the command


def report_of(path, *more):
    return main(["report", str(path), *map(str, more)])


def test_the_command_writes_the_page_of_a_file(tmp_path, capsys):
    path, output = tmp_path / "bert.npz", tmp_path / "page.html"
    weights, mask = soft(2, 3, 6, 6), np.tri(6, dtype=bool)
    np.savez(path, weights=weights, rows=WORDS, columns=WORDS[::-1], mask=mask)
    assert report_of(path, "-o", output) == 0
    assert capsys.readouterr() == (f"wrote {output}\n", "")
    same = show(weights, WORDS, WORDS[::-1], mask=mask, title="bert")
    assert output.read_text() == same.html
    np.savez(path, one=soft(2, 2), two=soft(3, 2, 2))
    assert report_of(path, "-o", "-") == 0
    (run,) = data_of(capsys.readouterr().out)["runs"]
    assert names(run) == [("one", 1), ("two", 3)]


@pytest.mark.parametrize(
    "held",
    [
        {"weights": soft(2, 2), "rows": np.array(["a", "b"], object)},
        {"rows": ["a"]},
        {"weights": np.full((2, 2), -np.inf)},
        None,
    ],
)
def test_a_bad_file_of_weights_leaves_the_old_page(held, tmp_path, capsys):
    path, output = tmp_path / "weights.npz", tmp_path / "page.html"
    output.write_text("before")
    if held:
        np.savez(path, **held)
    assert report_of(path, "-o", output) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert output.read_text() == "before"


def test_data_are_json_without_numbers_that_json_lacks():
    weights = soft(2, 2)
    weights[0] = np.nan
    text = re.search(r'id="data">(.*?)</script>', page_of_weights(weights), re.DOTALL)[1]
    json.loads(text, parse_constant=lambda name: pytest.fail(name))
