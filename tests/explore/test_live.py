"""What a page says of a model is what JAX says, equation by equation and as a whole."""

import dataclasses
import json

import flax.linen as nn
import jax
import numpy as np
import pytest

from flax_attn import platforms
from flax_attn.errors import UsageError
from flax_attn.experiment.programs import count_parameters
from flax_attn.explore.live import MOST_BYTES, computation, live
from flax_attn.explore.primitives import PARAMETERS
from flax_attn.explore.under_lens import Traced, under_lens
from flax_attn.tasks.asking import AS_TRAINED, NORMALIZERS, Settings
from tests.explore import living

pytestmark = living.needs_node

full = lambda *values: pytest.param(values, marks=pytest.mark.slow)

# A block of a Transformer has the equations that each other block has. Configs marked `slow` have
# the model of another one.
NAMES = [
    ("shapes_attention", {}),
    ("shapes_cnn", {}),
    full("shapes_best", {}),
    full("shapes_by_location_best", {}),
    ("shapes_lstm", {}),
    full("shapes_bilstm", {}),
    ("mnist_attention", {}),
    full("mnist_transformer", {"num_blocks": 1}),
    ("series_input_attention", {}),
    ("numbers_shapes", {}),
    full("signals_classes", {}),
    ("series_classes", {}),
    full("images_numbers", {"num_blocks": 1}),
]
OPTIONS = [
    {},
    {"temperature": 3.0},
    {"temperature": 0.3},
    {"reach": 9},
    {"causal": True},
    {"hidden": [0, 3, 4]},
    {"temperature": 2.0, "reach": 20, "causal": True, "hidden": [5]},
    {"hidden": list(range(900))},  # all of them
]
OF_EACH = [{}, *OPTIONS[-2:]]  # normalizer; the one of the model has all


@pytest.fixture(scope="module", params=NAMES, ids=str)
def checked(request, tmp_path_factory):
    """A run, the settings asked of it, and what node says."""
    name, changes = request.param
    run, programs, content = living.programs(name, **changes)
    inputs = living.random_inputs(run, len(OPTIONS))
    outputs = [value for own in programs.outputs.values() for value in own.values()]
    arrays = [inputs[:1], *living.settings_as_arrays(temperature=1.5, reach=60, hidden=[2])]
    graphs = list(living.evaluated(programs.graph, outputs, content["graph"], arrays))
    asked = [
        (normalizer, options, array)
        for normalizer in content["normalizers"]
        for options, array in zip(OPTIONS, inputs)
        if normalizer == AS_TRAINED or options in OF_EACH
    ]
    requests = [
        {
            "inputs": {"inputs": {"shape": array.shape, "data": array.ravel().tolist()}},
            "settings": {"normalizer": normalizer, **options},
        }
        for normalizer, options, array in asked
    ]
    content = {"live": content, "graphs": graphs, "requests": requests}
    result = living.in_node(tmp_path_factory.mktemp("live"), content)
    print(
        name,
        f"{len(json.dumps(content['live'])):,} bytes,",
        f"{result['milliseconds']:.1f} ms an answer",
    )
    return run, content, asked, result


def test_it_fits_into_a_page(checked):
    run, content, _, _ = checked
    check_size(run, content["live"])


@pytest.mark.slow
def test_all_blocks_fit_into_a_page():
    run, _, content = living.programs("mnist_transformer")
    check_size(run, content)


def check_size(run, content):
    assert len(json.dumps(content, separators=(",", ":"))) <= MOST_BYTES
    assert len(content["constants"]) < 1.36 * 4 * count_parameters(run.params[0]) + 9_000


def test_each_equation_is_as_in_jax(checked):
    _, content, _, result = checked
    assert len(result["equations"]) >= len(content["live"]["graph"]["equations"]) > 5
    far = [(name, apart) for name, apart in result["equations"] if not apart < 1e-4]
    assert not far
    print(f"{len(result['equations'])} equations, at most {max(b for _, b in result['equations'])}")


def test_answers_are_those_of_jax(checked):
    run, _, asked, result = checked
    params = [run.params[0]]
    programs = {kept: under_lens(computation(run), kept) for kept in (True, False)}
    # attention in a loop tells its scores itself
    can_keep = not any(hasattr(run.model, name) for name in ("step", "decode_step"))
    for (normalizer, options, array), reply in zip(asked, result["replies"]):
        assert reply["error"] is None
        settings = Settings(normalizer, **options)
        has_scores = reply["scores"] is not None or not reply["attention"]
        program = programs[can_keep and has_scores]
        with platforms.compiling_for(platforms.PORTABLE):
            expected = program(params, array[None], Traced.of(settings), normalizer)
        check(reply["outputs"], expected["outputs"])
        for kind in ("attention", "scores"):
            own = reply[kind] or {}
            assert own.keys() == expected[kind].keys()
            for name, weights in own.items():
                check(weights, expected[kind][name])
                assert len(weights["shape"]) == 3


def check(own, expected):
    expected = np.asarray(expected)
    array = np.array(own["data"], np.float32).reshape(own["shape"])
    assert array.size == expected.size
    extent = max(np.ptp(expected), 1e-3, 1e-3 * np.abs(expected).max())  # a number has none
    np.testing.assert_allclose(array.ravel(), expected.ravel(), atol=1e-3 * extent, rtol=0)


def test_without_settings_it_is_the_trained_model(checked):
    run, content, asked, result = checked
    compute = jax.jit(computation(run))
    for (normalizer, options, array), reply in zip(asked, result["replies"]):
        if normalizer == AS_TRAINED and not options:
            expected = compute([run.params[0]], array[None])
            check(reply["outputs"], expected["outputs"])
            assert reply["outputs"]["shape"] == list(expected["outputs"].shape[1:])
            if content["live"]["classes"]:
                best = content["live"]["classes"][int(np.argmax(expected["outputs"]))]
                assert reply["classes"][0][0] == best


def test_a_hidden_key_has_no_weight(checked):
    _, _, asked, result = checked
    for (_, options, _), reply in zip(asked, result["replies"]):
        for weights in reply["attention"].values():
            array = np.array(weights["data"]).reshape(weights["shape"])
            hidden = [key for key in options.get("hidden", []) if key < array.shape[2]]
            assert not array[:, :, hidden].any()
            if "hidden" not in options:
                np.testing.assert_allclose(array.sum(axis=2), 1, atol=1e-4)


def test_python_and_the_page_know_the_same_primitives(tmp_path):
    known = living.in_node(tmp_path, {})["primitives"]
    assert known == sorted(PARAMETERS)
    assert len(known) > 70


class Unknown(nn.Module):
    """A model of one's own with a primitive that the page does not know."""

    @nn.compact
    def __call__(self, inputs, *, train=False):
        return jax.lax.lgamma(nn.Dense(1)(inputs)), {}


def test_an_unknown_primitive_is_told_in_one_line():
    run, _, _ = living.programs("shapes_cnn")
    model = Unknown()
    params = model.init(jax.random.key(0), np.zeros((1, 100, 1), np.float32))["params"]
    own = dataclasses.replace(run, model=model, params={0: params})
    with pytest.raises(UsageError, match="lgamma") as error:
        live(own)
    assert "\n" not in str(error.value)


def test_more_than_1_mb_is_told_in_one_line(monkeypatch):
    run = living.run_of("mnist_mlp")
    with pytest.raises(UsageError, match=r"3\.3 MB") as error:
        live(run)
    assert "\n" not in str(error.value)
    small = living.run_of("mnist_mlp", hidden_features=20)
    assert len(json.dumps(live(small))) < 100_000


def test_of_several_seeds_the_page_has_the_first_and_says_so():
    run, _, content = living.programs("mnist_attention")
    two = dataclasses.replace(run, params={3: run.params[0], 4: run.params[0]})
    assert live(two) == content | {"note": "The page has the model of seed 3, the first of 2."}


def test_a_model_without_attention_has_one_program_and_all_others_six():
    for name in ("shapes_cnn", "shapes_lstm"):
        assert living.programs(name)[2]["normalizers"] == [AS_TRAINED]
    for name in ("shapes_attention", "mnist_attention", "series_input_attention"):
        assert tuple(living.programs(name)[2]["normalizers"]) == NORMALIZERS


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"inputs": {"inputs": {"data": [1.0] * 99}}},
        {"inputs": {"inputs": {"data": ["x"] * 100}}},
        {"inputs": {"inputs": {"data": [1e60] * 100}}},
        {"settings": {"normalizer": "hasOwn"}},
        {"settings": {"temperature": 0}},
        {"settings": {"temperature": -1}},
    ],
)
def test_what_is_no_request_has_an_error_for_a_reply(request_, tmp_path):
    _, _, content = living.programs("shapes_cnn")
    whole = {"inputs": {"inputs": {"data": [1.0] * 100}}}
    content = {"live": content, "graphs": [], "requests": [whole | request_ if request_ else {}]}
    (reply,) = living.in_node(tmp_path, content)["replies"]
    assert reply["error"]
    assert reply["outputs"] is None
