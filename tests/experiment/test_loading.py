"""A run that is loaded predicts without training's programs, and compiles its own once."""

import jax
import numpy as np
import pytest

import flax_attn
from tests import tiny

COMPILED = "/jax/core/compile/backend_compile_duration"  # one event a program


def signals(number):
    return np.random.default_rng(0).normal(size=(number, 30)).astype(np.float32)


def images(number):
    return np.random.default_rng(0).integers(0, 256, (number, 7, 14), np.uint8)


def texts(number):
    return [f"a {word} film" for word in ("fine", "poor") * 40][:number]


def pairs(number):
    return ["a b c", "d e", "f g h i", "b a", "e d c b a"][:number] * (-(-number // 5))


OWN = {"model.features": 6}  # so that no other test has compiled these programs before
KINDS = {  # a config, overrides, the inputs, and the targets of 40 of them
    "signals": ("shapes_attention", tiny.ATTENTION | OWN, signals, np.cumsum(signals(40), axis=1)),
    "images": ("mnist_attention", tiny.STEPS, images, ["dark", "light"] * 20),
    "texts": ("text_csv", tiny.TEXTS | OWN, texts, ["good", "bad"] * 20),
    "pairs": ("reverse_bahdanau", tiny.PAIRS | OWN, pairs, [text[::-1] for text in pairs(40)]),
}
CLASSES = ("images", "texts")  # which take the same way as signals


@pytest.fixture
def compiled():
    """The events of compilation as they come."""
    events = []

    def listen(event, duration, **about):
        if event == COMPILED:
            events.append(about)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize(
    "kind",
    ["signals", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("pairs", *CLASSES))],
)
def test_a_second_prediction_compiles_nothing(kind, tmp_path, compiled):
    config, overrides, inputs, targets = KINDS[kind]
    data = dict.fromkeys(("train", "test"), (inputs(40), targets))
    options = {"num_epochs": 1, "workdir": tmp_path, "overrides": overrides}
    with tiny.untrained():
        run = flax_attn.train(config, data=data, **options)
    compiled.clear()
    first = run.predict(inputs(5))
    assert compiled
    compiled.clear()
    second = run.predict(inputs(5)[::-1])
    assert not compiled
    np.testing.assert_array_equal(first.outputs[0], second.outputs[-1])
    loaded = flax_attn.load(run.path)
    compiled.clear()
    loaded.predict(inputs(5))
    assert {about["fun_name"] for about in compiled} <= {"jit(decode)"}  # which is small
