"""Pictures of predictions for a user's own inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from flax_attn.analysis import images as image_figures
from flax_attn.analysis import shapes as signal_figures
from flax_attn.analysis import texts as text_figures
from flax_attn.analysis.drawing import Figure
from flax_attn.analysis.translation import alignment_map
from flax_attn.data.text import bracketed
from flax_attn.errors import UsageError
from flax_attn.tasks import Prediction

MOST_DRAWN = 200  # tokens of a translation's source, at which there is still something to see


def draw_signals(inputs: np.ndarray, prediction: Prediction, title: str) -> Figure:
    """Signals beside their predictions, and the first attention."""
    weights = next(iter(prediction.attention.values()), None)
    rows = inputs.shape[0] if inputs.ndim > 1 else 1
    signals, outputs = (array.reshape(rows, -1, 1) for array in (inputs, prediction.outputs))
    return signal_figures.predicted(signals, outputs, weights, title)


def draw_texts(prediction: Prediction, name: str) -> Figure:
    """The first attention on the tokens of the texts, or the matrix of a single text.

    Raises:
        UsageError: a model that does not attend.
    """
    if not prediction.attention:
        raise UsageError(f"the model of {name} does not attend; leave out --figure")
    kind, weights = next(iter(prediction.attention.items()))
    words = [bracketed(zip(row, known)) for row, known in zip(prediction.tokens, prediction.known)]
    verdicts = [text_figures.verdict(shares, prediction.names) for shares in prediction.outputs]
    if len(words) == 1 and weights.ndim == 3:
        return text_figures.attention_map(
            words[0], weights[0], text_figures.of_hops(kind), f"{name}: {verdicts[0][0]}"
        )
    shown = slice(None, text_figures.SHOWN)
    return text_figures.attention_on_tokens(
        words[shown],
        token_weights(prediction)[shown],
        verdicts[shown],
        first_of(name, text_figures.SHOWN, len(words)),
    )


def draw_images(images: np.ndarray, prediction: Prediction, name: str) -> Figure:
    """The images with their classes, or the attention on a single image."""
    weights = next(iter(prediction.attention.values()), None)
    if len(images) == 1 and weights is not None:
        verdict, _ = text_figures.verdict(prediction.outputs[0], prediction.names)
        return image_figures.attention_on_image(images[0], weights[0], f"{name}: {verdict}")
    title = first_of(name, image_figures.SHOWN, len(images))
    return image_figures.predictions(images, prediction.outputs, None, prediction.names, title)


def draw_translation(prediction: Prediction, i: int, title: str) -> Figure:
    """The alignment of the best translation of source `i`; the end of sequence is no part of it."""
    words = bracketed(zip(prediction.tokens[i], prediction.known[i]))
    return alignment_map(
        words, prediction.target_tokens[i][0], prediction.translations[i][0].alignment, title
    )


def token_weights(prediction: Prediction) -> list[list[float]]:
    """The weight of each token of each text in the first attention.

    There are none for a model that does not attend.
    """
    if not prediction.attention:
        return [[] for _ in prediction.tokens]
    kind, weights = next(iter(prediction.attention.items()))
    rows: Sequence[Any] = zip(prediction.tokens, weights)  # pyright: ignore
    return [
        [float(w) for w in text_figures.over_tokens(kind, array, len(tokens))]
        for tokens, array in rows
    ]


def first_of(name: str, shown: int, number: int) -> str:
    """The title of a picture that shows at most `shown` of `number` inputs."""
    return name if number <= shown else f"{name}: the first {shown} of {number}"
