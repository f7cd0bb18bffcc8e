"""Images in classes: MNIST."""

from pathlib import Path
from typing import Any

import numpy as np

from flax_attn.data import mnist
from flax_attn.data.splits import stratified
from flax_attn.errors import UsageError
from flax_attn.tasks import classification
from flax_attn.tasks.task import Examples, Task

KIND, SCORE = classification.KIND, classification.SCORE
make_measure, check_derived = classification.make_measure, classification.check_derived
NUM_EXAMPLES = 64
CLASSES = [str(digit) for digit in range(mnist.NUM_CLASSES)]


def keys(name: str) -> dict[str, type]:
    return {"data.seed": int, "data.valid_fraction": float, "data.num_train": int, "data.num_test": int}


def check(config: Any) -> None:
    """Raises a UsageError for splits that make no sense."""
    if not 0 <= config.data.valid_fraction < 1 or min(config.data.num_train, config.data.num_test) < 0:
        raise UsageError("expected data.valid_fraction in [0, 1), and data.num_train and data.num_test of 0 (for all) or above")
    if ("valid" in config.evaluate) != (config.data.valid_fraction > 0):
        raise UsageError("expected 'valid' in config key 'evaluate' where data.valid_fraction is above 0, and only there")


def load(config: Any, manual_dir: Path | None) -> Task:
    """The digits, with a part of the training images held out for validation."""
    arrays, sums = mnist.load_mnist(manual_dir)
    rows = {split: _rows(*arrays[split], config.data[f"num_{split}"]) for split in ("train", "test")}
    if config.data.valid_fraction:
        held, kept = stratified(rows["train"]["targets"], (config.data.valid_fraction, 1 - config.data.valid_fraction), config.data.seed)
        rows["valid"], rows["train"] = ({key: array[part] for key, array in rows["train"].items()} for part in (held, kept))
    return Task(
        train=rows["train"],
        splits={name: rows[name] for name in config.evaluate},
        derived={
            "classes": CLASSES,
            "class_weights": classification.class_weights(rows["train"]["targets"], len(CLASSES)),
            "files": sums,
        },
        sizes={"num_classes": len(CLASSES)},
        files={"labels.json": CLASSES},
        draw=None,
        test=rows["test"],
    )


def sample(config: Any) -> Any:
    return np.zeros((config.batch_size, mnist.SIZE, mnist.SIZE), np.float32)


def examples(config: Any, task: Task, predict: Any) -> Examples:
    """The first test images with the probabilities of the first seed; the confusion matrix of all."""
    inputs, targets = task.test["inputs"], task.test["targets"]
    logits, attention = predict(inputs)
    matrix, metrics, figures = classification.results(logits, targets, CLASSES)
    kept = {"inputs": inputs[:NUM_EXAMPLES], "targets": targets[:NUM_EXAMPLES], "confusion": matrix}
    kept["predictions"] = classification.probabilities(logits[0, :NUM_EXAMPLES])
    return Examples(kept | attention, metrics, figures)


def _rows(images: np.ndarray, labels: np.ndarray, limit: int) -> dict[str, np.ndarray]:
    images, labels = (images[:limit], labels[:limit]) if limit else (images, labels)
    return {"inputs": images.astype(np.float32) / 255, "targets": labels}
