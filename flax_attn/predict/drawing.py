"""Pictures of predictions for a user's own inputs."""

import numpy as np

from flax_attn.analysis import images as image_figures
from flax_attn.analysis import shapes as signal_figures
from flax_attn.analysis import texts as text_figures
from flax_attn.analysis.drawing import Figure
from flax_attn.analysis.drawing import save as save
from flax_attn.analysis.token_weights import of_hops
from flax_attn.analysis.translation import alignment_map
from flax_attn.data.tokenizers import bracketed
from flax_attn.errors import UsageError
from flax_attn.predict.arrays import attention_of, outputs_of, token_weights
from flax_attn.tasks import Prediction

MOST_DRAWN = 200  # tokens of a translation's source, at which there is still something to see


def draw_signals(inputs: np.ndarray, prediction: Prediction, title: str) -> Figure:
    """Signals `(n, t, channels)` beside their predictions, and the first attention."""
    weights = next(iter(attention_of(prediction).values()), None)
    outputs = outputs_of(prediction).reshape(len(inputs), -1, 1)
    return signal_figures.predicted(inputs, outputs, weights, title)


def draw_texts(prediction: Prediction, name: str) -> Figure:
    """The first attention on the tokens of the texts, or the matrix of a single text.

    Raises:
        UsageError: a model that does not attend.
    """
    if not prediction.attention:
        raise UsageError(f"the model of {name} does not attend; leave out --figure")
    kind, weights = next(iter(attention_of(prediction).items()))
    words = [bracketed(zip(row, known)) for row, known in zip(prediction.tokens, prediction.known)]
    verdicts = [text_figures.verdict(shares, prediction.names) for shares in outputs_of(prediction)]
    if len(words) == 1 and weights.ndim == 3:
        return text_figures.attention_map(
            words[0], weights[0], of_hops(kind), f"{name}: {verdicts[0][0]}"
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
    weights = next(iter(attention_of(prediction).values()), None)
    shares = outputs_of(prediction)
    if len(images) == 1 and weights is not None:
        verdict, _ = text_figures.verdict(shares[0], prediction.names)
        return image_figures.attention_on_image(images[0], weights[0], f"{name}: {verdict}")
    title = first_of(name, image_figures.SHOWN, len(images))
    return image_figures.predictions(images, shares, None, prediction.names, title)


def draw_translation(prediction: Prediction, i: int, title: str) -> Figure:
    """The alignment of the best translation of source `i`; the end of sequence is no part of it."""
    words = bracketed(zip(prediction.tokens[i], prediction.known[i]))
    return alignment_map(
        words, prediction.target_tokens[i][0], prediction.translations[i][0].alignment, title
    )


def first_of(name: str, shown: int, number: int) -> str:
    """The title of a picture that shows at most `shown` of `number` inputs."""
    return name if number <= shown else f"{name}: the first {shown} of {number}"
