"""The title of a picture of a user's own inputs says what is seen."""

import numpy as np
import pytest
from rich.console import Console

from flax_attn.tasks import images as image_kind
from flax_attn.tasks import signals as signal_kind
from flax_attn.tasks import texts as text_kind
from flax_attn.tasks.requests import Request
from flax_attn.tasks.task import Prediction
from tests.explore.living import run_of

NAMES = ["world", "sports"]


def of_texts(count, *shape):
    shares = np.tile([[0.08, 0.92]], (count, 1))
    attention = {"attention": np.full((count, *shape), 1 / 3, np.float32)}
    tokens, known = [["a", "b", "c"]] * count, [[True] * 3] * count
    return Prediction(shares, NAMES, tokens=tokens, known=known, attention=attention)


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        (of_texts(1, 3, 3), "sports (92%): what each token attends to"),
        (of_texts(1, 3), "sports (92%): colour is for more than 1/n, the uniform weight"),
        (of_texts(2, 3, 3), "2 texts: colour is for more than 1/n, the uniform weight"),
        (of_texts(9, 3), "the first 8 of 9 texts: colour is for more than 1/n, the uniform weight"),
    ],
)
def test_of_texts(prediction, expected):
    figure = text_kind.draw(prediction, "run")
    titles = {figure.get_suptitle(), *(ax.get_title(loc="left") for ax in figure.axes)}
    assert expected in titles


def test_of_images():
    images, shares = np.zeros((2, 8, 8)), np.array([[0.25, 0.75], [0.5, 0.5]])
    several = image_kind.draw(images, Prediction(shares, NAMES))
    assert several.get_suptitle() == "2 images: the predicted class is above"
    plain = image_kind.draw(images[:1], Prediction(shares[:1], NAMES))
    assert plain.get_suptitle() == "1 image: the predicted class is above"
    weights = {"pooling": np.full((1, 4), 0.25)}
    one = image_kind.draw(images[:1], Prediction(shares[:1], NAMES, attention=weights))
    assert one.get_suptitle() == "sports (75%):\ncolour is for more than 1/n, the uniform weight"


def test_of_signals():
    signals, weights = np.zeros((5, 6, 1)), {"attention": np.full((5, 6, 6), 1 / 6)}
    plain = signal_kind.draw(signals[:1], Prediction(signals[:1]), "x.npy")
    assert plain.get_suptitle() == "1 signal of x.npy: the prediction"
    attending = signal_kind.draw(signals, Prediction(signals, attention=weights), "x.npy")
    title = "the first 4 of 5 signals of x.npy: the prediction\n"
    assert attending.get_suptitle() == f"{title}beside what each position attends to"


@pytest.mark.parametrize("name", ["mnist_attention", "images_folder"])
def test_light_ink_is_drawn_dark_and_a_photograph_as_it_is(name, tmp_path, monkeypatch):
    shown, draw = [], image_kind.draw
    monkeypatch.setattr(image_kind, "draw", lambda *own: shown.append(own[0]) or draw(*own))
    run, source = run_of(name), tmp_path / "own.npy"
    request = Request(tmp_path, [], source=source, figure=tmp_path / "drawn.png")
    height, width = run.task.image_shape
    image = np.linspace(0, 1, height * width, dtype=np.float32).reshape(1, height, width)
    np.save(source, image)
    image_kind.ImageClasses.respond(request, lambda: run, Console(quiet=True))
    np.testing.assert_array_equal(shown, [image if name == "mnist_attention" else 1 - image])
    assert request.figure.exists()
