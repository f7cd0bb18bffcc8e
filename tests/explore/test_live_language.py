"""A language model of characters lives in the page, and says what the server says."""

import numpy as np
import pytest

from flax_attn.attention import Lens
from flax_attn.errors import UsageError
from flax_attn.explore.answers import Answers
from flax_attn.explore.live import live
from flax_attn.page.data import safe
from flax_attn.tasks.replies import numbers_of
from tests.explore import living

pytestmark = living.needs_node

TEXTS = ["", "a", "lena", "so it goes", "a text that is longer than what the model reads " * 3]
OPTIONS = [{}, {"temperature": 0.5}, {"reach": 2}, {"hidden": [0, 2]}, {"cut": [[0, 1]]}]


MODELS = {"names": {}, "induction": {}, "names without softmax": {"attention": "gated_delta"}}


@pytest.fixture(scope="module", params=MODELS)
def asked(request, tmp_path_factory):
    """A run, what is asked of it, and what node says."""
    (name, *_), changes = request.param.split(), MODELS[request.param]
    run, programs, content = living.programs(name, num_blocks=1, **changes)
    row = np.arange(run.task.data.max_length, dtype=np.int32)[None] % 20 + 2
    outputs = [value for own in programs.outputs.values() for value in own.values()]
    arrays = [row, np.int32(7), *living.settings_as_arrays(temperature=1.5, hidden=[2])]
    graphs = list(living.evaluated(programs.graph, outputs, content["graph"], arrays))
    requests = [
        {
            "inputs": {"text": text.replace(" ", "\n")},
            "settings": {"normalizer": normalizer, **options},
        }
        for normalizer in content["normalizers"]
        for text, options in zip(TEXTS, OPTIONS)
    ]
    content = {"live": safe(content), "graphs": graphs, "requests": requests}  # as in a page
    result = living.in_node(tmp_path_factory.mktemp("live"), content)
    print(request.param, f"{result['milliseconds']:.1f} ms an answer")
    return run, requests, result


def test_each_equation_is_as_in_jax(asked):
    _, _, result = asked
    assert len(result["equations"]) > 100
    assert not [(name, apart) for name, apart in result["equations"] if not apart < 1e-4]


def test_answers_are_those_of_the_server(asked):
    run, requests, result = asked
    answers = Answers(run)
    for request, reply in zip(requests, result["replies"]):
        expected = answers(request)
        for key in ("tokens", "known", "note", "error", "writes"):
            assert reply[key] == safe(expected[key])
        names = safe([name for name, _ in expected["classes"][:3]])
        assert [name for name, _ in reply["classes"][:3]] == names
        check(reply["outputs"], expected["outputs"])
        for kind in ("attention", "scores"):
            assert reply[kind].keys() == expected[kind].keys() != set()
            for name, own in reply[kind].items():
                check(own, expected[kind][name])


def test_masking_a_token_takes_its_weights_alone_where_there_is_no_softmax():
    run = living.run_of("names", num_blocks=1, attention="gated_delta")
    answers, text = Answers(run), "soitgoes"
    ask = lambda **settings: answers({"inputs": {"text": text}, "settings": settings})
    weights = lambda reply: numbers_of(reply["attention"]["block0"])[:, 0]  # (heads, tokens)
    plain, hot = ask(), ask(temperature=4.0, normalizer="hard")
    assert weights(plain).min() < 0
    strongest = int(np.abs(weights(plain)).max(axis=0).argmax())
    masked = ask(hidden=[strongest])
    expected = weights(plain) * (np.arange(weights(plain).shape[1]) != strongest)
    np.testing.assert_allclose(weights(masked), expected, atol=1e-6)
    with Lens(change={"*weights": lambda _, own: own.at[..., strongest].set(0)}):
        predicted = run.predict(text).outputs[0]
    shares = [numbers_of(reply["outputs"]) for reply in (plain, masked, hot)]
    assert np.abs(shares[1] - shares[0]).max() > 1e-3
    np.testing.assert_allclose(shares[1], predicted, atol=1e-6)
    np.testing.assert_allclose(shares[2], shares[0], atol=1e-6)


def check(own, expected):
    expected = numbers_of(expected)
    assert own["shape"] == list(expected.shape)
    extent = max(np.ptp(expected), 1e-3)
    np.testing.assert_allclose(np.ravel(own["data"]), expected.ravel(), atol=1e-3 * extent)


def test_characters_that_the_run_has_not_met_are_named(tmp_path):
    _, _, content = living.programs("names", num_blocks=1)
    requests = [{"inputs": {"text": "aXbä"}, "settings": {}}]
    (reply,) = living.in_node(tmp_path, {"live": content, "graphs": [], "requests": requests})[
        "replies"
    ]
    assert reply["error"] == (
        'expected characters that the run has seen, got "X", "ä"; leave them out'
    )


def test_byte_pairs_need_python(monkeypatch):
    run, _, _ = living.programs("names", num_blocks=1)
    kind = lambda tokenizer: {"kind": "bytes"}
    monkeypatch.setattr(type(run.task.inputs.tokenizer), "to_json", kind)
    with pytest.raises(UsageError, match=r"^its texts become tokens in Python; "):
        live(run)
