"""One of several classes for each input, trained on the cross-entropy.

A model gives logits `(b, classes)`. Of outputs `(b, t, classes)` they are the mean over positions.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.text import Text

from flax_attn.data.contents import check_classes
from flax_attn.data.raw import Raw
from flax_attn.data.sets import DataSet
from flax_attn.data.sets.texts import TextCSV
from flax_attn.data.text import encode_labels
from flax_attn.errors import escaped, shortened
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies
from flax_attn.tasks.artifacts import (
    Evaluation,
    Kept,
    LossAndMetrics,
    Prediction,
    Recipe,
    first_attention,
    outputs_of,
)
from flax_attn.tasks.comparison import ExampleScores
from flax_attn.tasks.inputs import INPUTS
from flax_attn.tasks.inputs.base import Input
from flax_attn.tasks.targets.base import Headline, Target, percent, probabilities, with_penalty
from flax_attn.tasks.token_rows import describe_tokens, print_tokens
from flax_attn.training.metrics import (
    Confusion,
    class_scores,
    confusion,
    cross_entropy,
    mask_of,
)
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

LARGEST = "the largest class alone"
MOST_CONFUSED = 30  # classes of which a page counts which is taken for which
MOST_RECALLS = 10  # classes, above which those of the least recall are named
MOST_DESCRIBED = 100  # classes, above which the most probable are described
BEST_MODEL = "ngram_attention"
WHY_BEST = "also reads parts of words and pairs of words; wants some thousand texts"


@dataclass(frozen=True)
class Classes(Target):
    """Classes by name. `weights` are one over the number of training examples of each.

    The `penalty` of a model is added to the loss, whose labels are smoothed in training.
    """

    name = "classes"
    score = "loss"
    measured = "accuracy"

    names: list[str]
    weights: list[float]

    @classmethod
    def fit(cls, data: DataSet, raw: Raw, recipe: Recipe, inputs: Input) -> "Classes":
        labels = {name: split.targets for name, split in raw.splits.items()}
        names = list(raw.classes or sorted({label for split in labels.values() for label in split}))
        if not are_numbers(labels["train"]):
            check_classes(labels)
        counts = np.bincount(encoded(labels["train"], names), minlength=len(names)).tolist()
        return cls(data, recipe, inputs, names, [1 / count if count else 0.0 for count in counts])

    @classmethod
    def restore(cls, data: DataSet, recipe: Recipe, kept: Kept, inputs: Input) -> "Classes":
        names, weights = kept.derived["classes"], kept.derived["class_weights"]
        if kept.files["labels.json"] != names or len(weights) != len(names):
            raise ValueError(f"expected the same {len(names)} classes in both")
        return cls(data, recipe, inputs, names, weights)

    @classmethod
    def file_names(cls) -> tuple[str, ...]:
        return ("labels.json",)

    @property
    def kept(self) -> Kept:
        facts = {"classes": self.names, "class_weights": self.weights}
        return Kept(facts, {"num_classes": len(self.names)}, {"labels.json": self.names})

    def encode(self, raw: UserInput) -> np.ndarray:
        return encoded(raw, self.names)

    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        recipe, logits, labels = self.recipe, logits_of(outputs), batch["targets"]  # (b, classes)
        weights = jnp.array(self.weights, jnp.float32) if recipe.class_weights else None
        mask = mask_of(batch, len(logits))  # (b,)
        error = smoothed = cross_entropy(logits, labels, mask, weights)
        if train:
            smoothed = cross_entropy(logits, labels, mask, weights, recipe.label_smoothing)
        loss = with_penalty(smoothed.compute(), aux, mask)
        return loss, {"loss": error, "confusion": confusion(logits, labels, mask)}

    def decode(self, outputs: Sequence[Array | np.ndarray]) -> Array:
        logits = jnp.stack([logits_of(jnp.asarray(one)) for one in outputs])  # (seeds, b, classes)
        return jax.nn.softmax(logits, axis=-1).mean(axis=0)  # (b, classes)

    def predicted(self, outputs: np.ndarray, inputs: UserInput) -> Prediction:
        best = [self.names[i] for i in outputs.argmax(axis=-1)]
        return Prediction(outputs, self.names, best)

    def results(
        self, outputs: Sequence[np.ndarray], targets: np.ndarray, shown: int, raw: UserInput
    ) -> Evaluation:
        logits = np.stack([logits_of(one) for one in outputs])  # (seeds, n, classes)
        every = jnp.ones(len(targets), bool)
        count = lambda one: confusion(jnp.asarray(one), jnp.asarray(targets), every).matrix
        matrices = np.stack([np.asarray(count(one)) for one in logits])  # (seeds, classes, classes)
        scores = [np.asarray(one).mean(axis=0) for one in class_scores(jnp.asarray(matrices))]
        by_class = {
            name: dict(zip(("precision", "recall", "f1"), (float(one[i]) for one in scores)))
            | {"support": int(matrices[0, i].sum())}
            for i, name in enumerate(self.names)
        }
        metrics: dict[str, list[float]] = {}
        if len(logits) > 1:
            together = Confusion(count(probabilities(logits).mean(axis=0))).compute()
            metrics = {f"ensemble/test/{name}": [float(one)] for name, one in together.items()}
        arrays = {
            "targets": targets[:shown],
            "predictions": probabilities(logits[0, :shown]),  # (shown, classes)
            "confusion": matrices.sum(axis=0).astype(np.int64),  # (classes, classes)
        }
        hits = (logits.argmax(axis=-1) == targets).mean(axis=0)  # (n,), the mean over seeds
        return Evaluation(arrays, metrics, {"classes": by_class}, scores={"accuracy": hits})

    def baselines(self, raw: Raw) -> dict[str, ExampleScores]:
        labels, right = (self.encode(raw.splits[name].targets) for name in ("train", "test"))
        answers = self.regressed(raw, labels) | {LARGEST: np.bincount(labels).argmax()}
        return {name: {"accuracy": 1.0 * (answer == right)} for name, answer in answers.items()}

    def reply(self, output: np.ndarray) -> JsonObject:
        return replies.classified(output, self.names)

    def describe(self, names: Sequence[str], prediction: Prediction) -> list[JsonObject]:
        rows: list[JsonObject] = []
        tokens, (_, attention) = describe_tokens(prediction), first_attention(prediction)
        for i, (name, shares) in enumerate(zip(names, outputs_of(prediction))):
            most = len(shares) if len(shares) <= MOST_DESCRIBED else replies.MOST_CLASSES
            order = np.argsort(-shares, kind="stable")[:most]  # equal ones keep their order
            row: JsonObject = {"input": name}
            row["classes"] = {prediction.names[k]: float(shares[k]) for k in order}
            if attention is not None and tokens:
                row["tokens"] = tokens[i]
            elif attention is not None:
                by_key = attention[i].reshape(-1, attention.shape[-1]).mean(axis=0)  # (k,)
                row[self.inputs.places] = by_key.tolist()
            rows.append(row)
        return rows

    def show(self, row: JsonObject, console: "Console") -> None:
        show_classes(row, console)

    def columns(self, prediction: Prediction) -> dict[str, list[str]]:
        shares = [f"{best:.4g}" for best in outputs_of(prediction).max(axis=-1)]
        return {"predicted_class": prediction.classes, "probability": shares}

    def verdicts(self, prediction: Prediction) -> list[str]:
        from flax_attn.analysis.classes import drawn_names, verdict

        names = drawn_names(prediction.names)
        return [verdict(shares, names)[0] for shares in outputs_of(prediction)]

    def class_names(self) -> list[str]:
        return self.names

    @classmethod
    def summary(cls, run: Record) -> str:
        number = len(run.config["derived"]["classes"])
        return f"tell {number} classes of {INPUTS[run.input].noun} apart"

    @classmethod
    def headline(cls, run: Record) -> Headline:
        counts = np.sum(run.examples.get("confusion", 0), axis=-1)
        share = np.max(counts) / max(np.sum(counts), 1)
        about = [f"always the most frequent class {percent(share)}"] if share else []
        return Headline("accuracy", "Accuracy", percent, about)

    @classmethod
    def remarks(cls, run: Record, data: DataSet) -> list[str]:
        """Returns the recall of each class, and a command to try next on a table."""
        num_seeds = len(run.summary["seeds"]) - len(run.summary.get("diverged", {}))
        lines = recalls(run.examples["confusion"], run.config["derived"]["classes"], num_seeds)
        if not isinstance(data, TextCSV) or run.summary["model"] == BEST_MODEL:
            return lines
        keys = ["file", "test_file", "text_column", "label_column"]
        values = {key: getattr(data, key) for key in keys}
        flags = shlex.join(f"--data.{key}={value}" for key, value in values.items() if value)
        return [*lines, f"to try next: flax-attn train text_csv_best {flags} ({WHY_BEST})"]

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        shares = replies.numbers(run.examples["predictions"][index])
        return {"predictions": shares, "target": int(run.examples["targets"][index])}

    @classmethod
    def beside_examples(cls, run: Record) -> JsonObject:
        few = len(run.config["derived"]["classes"]) <= MOST_CONFUSED
        return {"confusion": run.examples["confusion"].tolist()} if few else {}

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import classes, images

        names = classes.drawn_names(run.config["derived"]["classes"])
        pairs = zip(run.examples["predictions"], run.examples["targets"].tolist())
        verdicts = [classes.verdict(shares, names, target) for shares, target in pairs]
        figures = {"confusion": classes.confusion_matrix(run)}
        if run.input == "image":
            figures |= images.draw(run)
        for name, weights in run.attention.items():
            figures |= INPUTS[run.input].draw_examples(run, name, weights, verdicts)
        return figures


def recalls(counts: np.ndarray, names: list[str], num_seeds: int) -> list[str]:
    """Returns the recall of each class, and the classes that are never predicted.

    `counts` are of true classes, downwards, predicted as classes, across, over `num_seeds` seeds.
    """
    of_class = counts.sum(axis=1)  # (classes,)
    shares = np.diag(counts) / np.maximum(of_class, 1)  # (classes,)
    by_recall: list[int] = [i for i in np.argsort(shares, kind="stable").tolist() if of_class[i]]
    listed = [f"{shortened(names[i])}: {shares[i]:.2f}" for i in by_recall[:MOST_RECALLS]]
    least = f" of the lowest {MOST_RECALLS} of {len(by_recall)} classes"
    told = [f"recall{least if len(by_recall) > MOST_RECALLS else ''}: {', '.join(listed)}"]
    never = [i for i in by_recall if not counts[:, i].any()]
    if never:
        tested = of_class // num_seeds  # counts are over all seeds
        named = [f"{shortened(names[i])} ({tested[i]} test examples)" for i in never]
        more = [f"and {len(never) - MOST_RECALLS} more"] * (len(never) > MOST_RECALLS)
        told.append(f"never predicted: {', '.join(named[:MOST_RECALLS] + more)}")
    return told


def logits_of(outputs: Tree) -> Tree:
    """Returns logits `(b, classes)`, of `(b, t, classes)` the mean over positions."""
    return outputs.mean(axis=1) if outputs.ndim == 3 else outputs  # (b, classes)


def are_numbers(labels: UserInput) -> bool:
    """Returns whether labels are the numbers of classes already."""
    return isinstance(labels, np.ndarray) and labels.dtype.kind in "iu"


def encoded(labels: UserInput, names: Sequence[str]) -> np.ndarray:
    """Returns the number of the class of each label."""
    return labels if are_numbers(labels) else encode_labels(labels, names)


def show_classes(row: JsonObject, console: "Console") -> None:
    """Prints the classes in falling order, and the tokens on the colours of their weights."""
    console.print(Text(escaped(row["input"]), style="bold"), soft_wrap=True)
    classes = {escaped(name): share for name, share in row["classes"].items()}
    width = max(map(len, classes))
    for name, share in classes.items():
        console.print(Text(f"  {name:<{width}}  {share:6.1%}  {'█' * round(30 * share)}"))
    if (tokens := row.get("tokens")) and "weight" in tokens[0]:
        print_tokens(tokens, console)
