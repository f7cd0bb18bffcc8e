"""The loss of tokens, of a translation or of a text that goes on."""

from jaxtyping import Array

from flax_attn.tasks.artifacts import LossAndMetrics, Recipe
from flax_attn.training.metrics import largest, mask_of, token_cross_entropy, weighted_mean
from flax_attn.types import Batch


def token_loss(recipe: Recipe, outputs: Array, batch: Batch, train: bool) -> LossAndMetrics:
    """Computes the cross-entropy of each token, and the share of tokens with the largest logit.

    Padding counts nothing. In training, labels are smoothed.
    """
    labels, smoothing = batch["targets"], recipe.label_smoothing
    mask = (labels > 0) & mask_of(batch, len(labels))[:, None]
    error = token_cross_entropy(outputs, labels, mask)
    hits = weighted_mean(largest(outputs, labels).astype(outputs.dtype), mask)
    loss = token_cross_entropy(outputs, labels, mask, smoothing) if train and smoothing else error
    return loss.compute(), {"loss": error, "accuracy": hits}
