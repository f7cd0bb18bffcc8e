"""The arrays of a prediction on signals, texts or images."""

import numpy as np

from flax_attn.analysis.token_weights import over_tokens
from flax_attn.tasks import Prediction


def token_weights(prediction: Prediction) -> list[list[float]]:
    """The weight of each token of each text in the first attention.

    There are none for a model that does not attend.
    """
    if not prediction.attention:
        return [[] for _ in prediction.tokens]
    kind, weights = next(iter(attention_of(prediction).items()))
    return [
        [float(w) for w in over_tokens(kind, array, len(tokens))]
        for tokens, array in zip(prediction.tokens, weights)
    ]


def outputs_of(prediction: Prediction) -> np.ndarray:
    """The outputs on signals, texts or images, which are an array."""
    assert isinstance(prediction.outputs, np.ndarray)
    return prediction.outputs


def attention_of(prediction: Prediction) -> dict[str, np.ndarray]:
    """The weights on signals, texts or images, which are an array over all inputs."""
    return {name: np.asarray(weights) for name, weights in prediction.attention.items()}
