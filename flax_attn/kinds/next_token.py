"""What all models of the next token have in common: how they are measured."""

from jaxtyping import Array

from flax_attn.kinds.task import Measured, Recipe
from flax_attn.training.metrics import largest, mask_of, token_cross_entropy, weighted_mean
from flax_attn.types import Batch


def measure(recipe: Recipe, outputs: Array, batch: Batch, train: bool) -> Measured:
    """Cross-entropy a token, and the share of tokens that are the most probable ones.

    Padding counts nothing. In training, labels are smoothed.
    """
    labels, smoothing = batch["targets"], recipe.label_smoothing
    mask = (labels > 0) & mask_of(batch, len(labels))[:, None]
    error = token_cross_entropy(outputs, labels, mask)
    hits = weighted_mean(largest(outputs, labels).astype(outputs.dtype), mask)
    loss = token_cross_entropy(outputs, labels, mask, smoothing) if train and smoothing else error
    return loss.compute(), {"loss": error, "accuracy": hits}
