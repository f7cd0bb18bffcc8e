"""What all classification has in common: the loss, the results on test, and what is printed.

A next token is a class, too.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.console import Console
from rich.text import Text

from flax_attn.errors import escaped
from flax_attn.kinds.replies import MOST_CLASSES, numbers
from flax_attn.kinds.task import (
    Kept,
    Measured,
    Prediction,
    Recipe,
    Task,
    first_attention,
    outputs_of,
)
from flax_attn.kinds.token_rows import describe_tokens, print_tokens
from flax_attn.models.forward import Inputs, Params, apply, forward
from flax_attn.runs.reading import Record
from flax_attn.training.metrics import (
    Confusion,
    class_scores,
    confusion,
    cross_entropy,
    largest,
    mask_of,
    token_cross_entropy,
    weighted_mean,
)
from flax_attn.types import Batch, Json, JsonObject, Tree

MOST_DESCRIBED = 100  # classes, above which the most probable are described


class Classes(Task):
    """A task on inputs in classes. Its inputs have the name of the kind, such as `images`."""

    problem = "classification"
    score = "loss"
    measured = "accuracy"

    @property
    def classes(self) -> list[str]:
        return self.kept.files["labels.json"]

    def class_names(self) -> list[str]:
        return self.classes

    def measure(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> Measured:
        """Cross-entropy, weighted by class where the recipe says so.

        In training, labels are smoothed, and what a model adds to the loss is added.
        """
        recipe, weights = self.recipe, self.kept.derived["class_weights"]
        class_weights = jnp.array(weights, jnp.float32) if recipe.class_weights else None
        labels, mask = batch["targets"], mask_of(batch, len(outputs))
        error = smoothed = cross_entropy(outputs, labels, mask, class_weights)
        if train:
            smoothed = cross_entropy(outputs, labels, mask, class_weights, recipe.label_smoothing)
        loss = smoothed.compute()
        if "penalty" in aux:
            loss = loss + weighted_mean(aux["penalty"], mask).compute()
        return loss, {"loss": error, "confusion": confusion(outputs, labels, mask)}

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """The probabilities `(b, classes)` and the attention by name, as a pure function."""
        logits, attentions = zip(*(apply(model, seed, inputs) for seed in params))
        shares = jax.nn.softmax(jnp.stack(logits), axis=-1).mean(axis=0)
        return {"outputs": shares, "attention": attentions[0]}

    @classmethod
    def does(cls, run: Record) -> str:
        return f"tells {len(run.config['derived']['classes'])} classes of {cls.name} apart"

    @classmethod
    def sentence(cls, run: Record) -> str:
        count = len(run.config["derived"]["classes"])
        right = 100 * run.mean("accuracy")
        return f"names the right one of {count} classes for {right:.3g} % of the test {cls.name}"


def measure_tokens(recipe: Recipe, outputs: Array, batch: Batch, train: bool) -> Measured:
    """Cross-entropy a token, and the share of tokens that are the most probable ones.

    Padding counts nothing. In training, labels are smoothed.
    """
    labels, smoothing = batch["targets"], recipe.label_smoothing
    mask = (labels > 0) & mask_of(batch, len(labels))[:, None]
    error = token_cross_entropy(outputs, labels, mask)
    hits = weighted_mean(largest(outputs, labels).astype(outputs.dtype), mask)
    loss = token_cross_entropy(outputs, labels, mask, smoothing) if train and smoothing else error
    return loss.compute(), {"loss": error, "accuracy": hits}


def predict(
    model: nn.Module, params: Sequence[Params], inputs: Inputs, classes: list[str]
) -> Prediction:
    """The mean of the seeds' probabilities, and the attention of the first seed."""
    num_inputs = len(jax.tree.leaves(inputs)[0])
    outputs, attentions = zip(*(forward(model, seed, inputs, num_inputs) for seed in params))
    shares = np.mean([probabilities(logits) for logits in outputs], axis=0)
    best = [classes[i] for i in shares.argmax(axis=-1)]
    return Prediction(shares, classes, best, attention=attentions[0])


def check_kept(kept: Kept) -> None:
    """Raises a ValueError for classes, weights or labels that are not what `load` derives."""
    classes, weights = kept.derived["classes"], kept.derived["class_weights"]
    labels, num_classes = kept.files["labels.json"], kept.sizes["num_classes"]
    are_names = all(isinstance(name, str) for name in classes) and len(set(classes)) == len(classes)
    if len(classes) != len(weights) or not are_names:
        raise ValueError(f"got classes {classes} and class_weights {weights}")
    if not np.isfinite(weights).all():
        raise ValueError(f"got class_weights {weights}")
    if labels != classes or len(labels) != num_classes:
        raise ValueError(f"expected the same {num_classes} classes in both, in one order")


def class_weights(labels: np.ndarray, num_classes: int) -> list[float]:
    """One over the number of training examples of each class; 0 for a class without any."""
    counts = np.bincount(labels, minlength=num_classes)
    return [1 / int(count) if count else 0.0 for count in counts]


def results(
    logits: np.ndarray, labels: np.ndarray, classes: Sequence[str]
) -> tuple[np.ndarray, dict[str, list[float]], dict[str, Json]]:
    """From logits `(seeds, n, classes)` on the test split, what is said of it.

    Returns:
        The confusion matrix over all seeds, metrics of the ensemble, and figures of each class. The
        ensemble is the mean of the seeds' probabilities.
    """
    every = jnp.ones(len(labels), bool)
    count = lambda outputs: confusion(jnp.asarray(outputs), jnp.asarray(labels), every).matrix
    matrices = np.stack([np.asarray(count(outputs)) for outputs in logits])
    precision, recall, f1 = (
        np.asarray(values).mean(axis=0) for values in class_scores(jnp.asarray(matrices))
    )
    figures = {
        name: {
            "precision": float(precision[i]),
            "recall": float(recall[i]),
            "f1": float(f1[i]),
            "support": int(matrices[0, i].sum()),
        }
        for i, name in enumerate(classes)
    }
    metrics = {}
    if len(logits) > 1:
        scores = Confusion(count(probabilities(logits).mean(axis=0))).compute()
        metrics = {f"ensemble/test/{name}": [float(value)] for name, value in scores.items()}
    return matrices.sum(axis=0).astype(np.int64), metrics, {"classes": figures}


def probabilities(logits: np.ndarray) -> np.ndarray:
    return np.asarray(jax.nn.softmax(jnp.asarray(logits), axis=-1))


def example(run: Record, index: int) -> JsonObject:
    """Returns the probabilities of the classes, and the right one."""
    shares = run.examples["predictions"][index]
    return {"predictions": numbers(shares), "target": int(run.examples["targets"][index])}


def describe(names: list[str], prediction: Prediction) -> list[JsonObject]:
    """Of each input the classes in falling order, and its tokens or the weights of its patches.

    Of many classes, such as the words of a vocabulary, the most probable are described.
    """
    rows = []
    tokens = describe_tokens(prediction)
    _, attention = first_attention(prediction)
    for i, (name, shares) in enumerate(zip(names, outputs_of(prediction))):
        most = len(shares) if len(shares) <= MOST_DESCRIBED else MOST_CLASSES
        order = np.argsort(-shares, kind="stable")[:most]
        row: JsonObject = {"input": name}
        row["classes"] = {prediction.names[k]: float(shares[k]) for k in order}
        if attention is not None and tokens:
            row["tokens"] = tokens[i]
        elif attention is not None:
            row["patches"] = attention[i].reshape(-1, attention.shape[-1]).mean(axis=0).tolist()
        rows.append(row)
    return rows


def show_classes(row: JsonObject, console: Console) -> None:
    """The classes in falling order, and the tokens on the colours of their weights."""
    console.print(Text(escaped(row["input"]), style="bold"), soft_wrap=True)
    classes = {escaped(name): share for name, share in row["classes"].items()}
    width = max(map(len, classes))
    for name, share in classes.items():
        console.print(Text(f"  {name:<{width}}  {share:6.1%}  {'█' * round(30 * share)}"))
    if (tokens := row.get("tokens")) and "weight" in tokens[0]:
        print_tokens(tokens, console)
