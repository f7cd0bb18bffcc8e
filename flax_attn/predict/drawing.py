"""Pictures of predictions for a user's own inputs."""

import numpy as np

from flax_attn.analysis import images as image_figures
from flax_attn.analysis import shapes as signal_figures
from flax_attn.analysis import texts as text_figures
from flax_attn.analysis.classes import drawn_names
from flax_attn.analysis.drawing import Figure
from flax_attn.analysis.drawing import save as save
from flax_attn.analysis.token_weights import of_hops
from flax_attn.analysis.translation import alignment_map
from flax_attn.data.tokenizers import bracketed
from flax_attn.errors import UsageError
from flax_attn.predict.arrays import attention_of, outputs_of, token_weights
from flax_attn.tasks import Prediction

MOST_DRAWN = 200  # tokens of a translation's source, at which there is still something to see
READS, STRONG = "attends to", "strong colours have most of the weight"


def draw_signals(inputs: np.ndarray, prediction: Prediction, source: str) -> Figure:
    """Signals `(n, t, channels)` of a file with their predictions, and the first attention."""
    weights = next(iter(attention_of(prediction).values()), None)
    outputs = outputs_of(prediction).reshape(len(inputs), -1, 1)
    title = f"{first_of('signal', signal_figures.SHOWN, len(inputs))} of {source}: the prediction"
    title += "" if weights is None else f"\nbeside what each position {READS}"
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
    verdicts = [
        text_figures.verdict(shares, drawn_names(prediction.names))
        for shares in outputs_of(prediction)
    ]
    said, is_one = verdicts[0][0], len(words) == 1
    if is_one and weights.ndim == 3:
        title = f"{said}: what each {'hop' if of_hops(kind) else 'token'} {READS}"
        return text_figures.attention_map(words[0], weights[0], of_hops(kind), title)
    shown = slice(None, text_figures.SHOWN)
    return text_figures.attention_on_tokens(
        words[shown],
        token_weights(prediction)[shown],
        [] if is_one else verdicts[shown],
        f"{said if is_one else first_of('text', text_figures.SHOWN, len(words))}: {STRONG}",
    )


def draw_images(images: np.ndarray, prediction: Prediction) -> Figure:
    """The images with their classes, or the attention on a single image."""
    weights = next(iter(attention_of(prediction).values()), None)
    shares = outputs_of(prediction)
    if len(images) == 1 and weights is not None:
        verdict, _ = text_figures.verdict(shares[0], drawn_names(prediction.names))
        title = f"{verdict}:\n{STRONG}"
        return image_figures.attention_on_image(images[0], weights[0], title)
    title = f"{first_of('image', image_figures.SHOWN, len(images))}: the predicted class is above"
    return image_figures.predictions(images, shares, None, drawn_names(prediction.names), title)


def draw_translation(prediction: Prediction, i: int, title: str) -> Figure:
    """The alignment of the best translation of source `i`; the end of sequence is no part of it."""
    words = bracketed(zip(prediction.tokens[i], prediction.known[i]))
    return alignment_map(
        words, prediction.target_tokens[i][0], prediction.translations[i][0].alignment, title
    )


def first_of(kind: str, shown: int, number: int) -> str:
    """What a picture shows that has room for `shown` of `number` inputs."""
    if number > shown:
        return f"the first {shown} of {number} {kind}s"
    return f"{number} {kind}" if number == 1 else f"{number} {kind}s"
