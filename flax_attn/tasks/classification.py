"""What all classification has in common: the loss, and what the test says of it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.tasks.task import Batch
from flax_attn.training.metrics import Confusion, Metric, class_scores, confusion, cross_entropy, weighted_mean

KIND = "classification"
SCORE = "loss"


def make_measure(config: Any, derived: dict[str, Any]) -> Any:
    """Cross-entropy, weighted by class where the config says so, with label smoothing in training alone, and what a model adds to it."""
    weights = jnp.array(derived["class_weights"], jnp.float32) if config.class_weights else None

    def measure(outputs: Any, aux: dict, batch: Batch, train: bool) -> tuple[jax.Array, dict[str, Metric]]:
        labels, mask = batch["targets"], batch.get("mask", jnp.ones(len(outputs), bool))
        error = cross_entropy(outputs, labels, mask, weights)
        found: dict[str, Metric] = {"loss": error, "confusion": confusion(outputs, labels, mask)}
        loss = (cross_entropy(outputs, labels, mask, weights, config.label_smoothing) if train else error).compute()
        if "penalty" in aux:
            loss = loss + weighted_mean(aux["penalty"], mask).compute()
        return loss, found

    return measure


def check_derived(derived: dict[str, Any]) -> None:
    """Raises a ValueError for what no task in classes derived."""
    classes, weights = derived["classes"], derived["class_weights"]
    if len(classes) != len(weights) or not all(isinstance(name, str) for name in classes) or not np.isfinite(weights).all():
        raise ValueError(f"got classes {classes} and class_weights {weights}")


def class_weights(labels: np.ndarray, num_classes: int) -> list[float]:
    """One over the number of training examples of each class; 0 for a class without any."""
    counts = np.bincount(labels, minlength=num_classes)
    return [1 / int(count) if count else 0.0 for count in counts]


def results(logits: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    """From logits `(seeds, n, classes)` on the test split: the confusion matrix over all seeds, metrics of the ensemble, figures a class.

    The ensemble is the mean of the seeds' probabilities.
    """
    every = jnp.ones(len(labels), bool)
    matrices = np.stack([np.asarray(confusion(jnp.asarray(each), jnp.asarray(labels), every).matrix) for each in logits])
    matrix = matrices.sum(axis=0)
    precision, recall, f1 = (np.asarray(values).mean(axis=0) for values in class_scores(jnp.asarray(matrices)))
    figures = {
        name: {"precision": float(precision[i]), "recall": float(recall[i]), "f1": float(f1[i]), "support": int(matrices[0, i].sum())}
        for i, name in enumerate(classes)
    }
    metrics = {}
    if len(logits) > 1:
        together = np.asarray(jax.nn.softmax(jnp.asarray(logits), axis=-1)).mean(axis=0)
        scores = Confusion(confusion(jnp.asarray(together), jnp.asarray(labels), every).matrix).compute()
        metrics = {f"ensemble/test/{name}": [float(value)] for name, value in scores.items()}
    return matrix.astype(np.int64), metrics, {"classes": figures}


def probabilities(logits: np.ndarray) -> np.ndarray:
    return np.asarray(jax.nn.softmax(jnp.asarray(logits), axis=-1))
