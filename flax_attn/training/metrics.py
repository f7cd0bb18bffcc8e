"""Metrics as sums and counts, so that batches add up exactly whatever their padding."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from flax_attn.types import Batch


class Mean(NamedTuple):
    """A mean that is still to be divided.

    Adding the leaves of two of them gives the mean over both.
    """

    total: Float[Array, "*s"]
    count: Float[Array, "*s"]

    def compute(self) -> Float[Array, "*s"]:
        return self.total / self.count


def squared_error(
    outputs: Float[Array, "b *d"], targets: Float[Array, "b *d"], mask: Bool[Array, " b"]
) -> Mean:
    """Computes `mean (y - t)^2` over the unmasked examples and all their elements."""
    chex.assert_equal_shape([outputs, targets])
    weights = mask.reshape(mask.shape + (1,) * (outputs.ndim - 1)) * jnp.ones_like(outputs)
    return Mean(jnp.sum(weights * jnp.square(outputs - targets)), jnp.sum(weights))


class Confusion(NamedTuple):
    """How often each true class (rows) was taken for each class (columns)."""

    matrix: Float[Array, "*s classes classes"]

    def compute(self) -> dict[str, Array]:
        """Computes accuracy, and precision, recall and F1 as means over the classes.

        They are weighted by the support of the classes; `macro/f1` weighs them alike.

        A class that is never predicted has precision 0, one that never occurs recall 0, as in
        scikit-learn.
        """
        support, total = self.matrix.sum(axis=-1), self.matrix.sum(axis=(-2, -1))  # (*s, c), (*s)
        precision, recall, f1 = class_scores(self.matrix)
        weighted = lambda values: (values * support).sum(axis=-1) / total
        return {
            "accuracy": jnp.trace(self.matrix, axis1=-2, axis2=-1) / total,
            "precision": weighted(precision),
            "recall": weighted(recall),
            "f1": weighted(f1),
            "macro/f1": f1.sum(axis=-1)
            / jnp.maximum((support + self.matrix.sum(axis=-2) > 0).sum(axis=-1), 1),
        }


def class_scores(
    matrix: Float[Array, "*s c c"],
) -> tuple[Float[Array, "*s c"], Float[Array, "*s c"], Float[Array, "*s c"]]:
    """Computes precision, recall and F1 of each class of a confusion matrix; 0 where undefined."""
    hits = jnp.diagonal(matrix, axis1=-2, axis2=-1)  # (*s, c)
    share = lambda part, whole: part / jnp.where(whole > 0, whole, 1)
    predicted, true = matrix.sum(axis=-2), matrix.sum(axis=-1)  # (*s, c) each
    return share(hits, predicted), share(hits, true), share(2 * hits, predicted + true)


def confusion(
    logits: Float[Array, "b c"], labels: Int[Array, " b"], mask: Bool[Array, " b"]
) -> Confusion:
    """Counts the confusion matrix of the examples that the mask allows, by the largest logit."""
    chex.assert_equal_shape_prefix([logits, labels, mask], 1)
    one_hot = lambda places: jax.nn.one_hot(places, logits.shape[-1])
    return Confusion(
        jnp.einsum(  # (true class, predicted class)
            "bt,bp->tp", one_hot(labels) * mask[:, None], one_hot(jnp.argmax(logits, axis=-1))
        )
    )


def cross_entropy(
    logits: Float[Array, "b c"],
    labels: Int[Array, " b"],
    mask: Bool[Array, " b"],
    class_weights: Float[Array, " c"] | None = None,
    smoothing: float = 0.0,
) -> Mean:
    """Computes the mean cross-entropy over the unmasked examples.

    With class weights it is `sum w_y ce / sum w_y`, as in PyTorch.

    Args:
        smoothing: share of the target that is spread over all classes; an example keeps the weight
            of its own.
    """
    chex.assert_equal_shape_prefix([logits, labels, mask], 1)
    weights = mask.astype(logits.dtype) * (1 if class_weights is None else class_weights[labels])
    targets = optax.smooth_labels(  # (b, c)
        jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype), smoothing
    )
    return Mean(jnp.sum(weights * optax.softmax_cross_entropy(logits, targets)), jnp.sum(weights))


def token_cross_entropy(
    logits: Float[Array, "b t v"],
    labels: Int[Array, "b t"],
    mask: Bool[Array, "b t"],
    smoothing: float = 0.0,
) -> Mean:
    """Computes the mean cross-entropy over the unmasked tokens.

    That of a token is `log sum exp(z) - (1 - s) z_y - s mean(z)`.

    Args:
        smoothing: share of the target that is spread over all tokens.
    """
    chex.assert_equal_shape_prefix([logits, labels, mask], 2)
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]  # (b, t)
    errors = jax.nn.logsumexp(logits, axis=-1) - (1 - smoothing) * chosen  # (b, t)
    errors = errors - smoothing * logits.mean(axis=-1) if smoothing else errors  # (b, t)
    return Mean(jnp.where(mask, errors, 0).sum(), mask.sum().astype(logits.dtype))


def largest(logits: Float[Array, "*b v"], labels: Int[Array, "*b"]) -> Bool[Array, "*b"]:
    """Returns whether the label's logit is the largest, the first of equal ones."""
    return jnp.argmax(logits, axis=-1) == labels


def mask_of(batch: Batch, num_rows: int) -> Bool[Array, " b"]:
    """Returns which rows of a batch are real; all of them without a mask."""
    return batch["mask"] if "mask" in batch else jnp.ones(num_rows, bool)


def weighted_mean(values: Float[Array, "*b"], mask: Bool[Array, "*b"]) -> Mean:
    """Computes the mean over the examples that the mask allows."""
    return Mean(jnp.sum(values * mask), jnp.sum(mask.astype(values.dtype)))


Metric = Mean | Confusion


def compute(metrics: dict[str, Metric]) -> dict[str, Array]:
    """Computes scores by name from sums and counts."""
    scores = {}
    for name, metric in metrics.items():
        score = metric.compute()
        scores |= score if isinstance(score, dict) else {name: score}
    return scores
