"""Images in classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import flax.linen as nn
import numpy as np
from jaxtyping import Array

from flax_attn.data.contents import as_pixels, real_numbers
from flax_attn.data.sets import ImageData
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params, forward
from flax_attn.tasks import classification
from flax_attn.tasks.task import (
    Examples,
    Kept,
    Measured,
    Prediction,
    Recipe,
    Rows,
    Task,
    check_shape,
    to_store,
)
from flax_attn.types import Batch, Tree, UserInput

NUM_EXAMPLES = 64


@dataclass(frozen=True)
class ImageClasses(Task):
    """A task on images in classes."""

    kind = classification.KIND
    score = classification.SCORE
    measured = "accuracy"
    pictures = "images"

    data: ImageData
    recipe: Recipe
    kept: Kept
    rows: Rows
    test: Batch

    @classmethod
    def load(cls, data: ImageData, recipe: Recipe, manual_dir: Path | None) -> "ImageClasses":
        splits, classes, sums = data.load(manual_dir)
        batches = {
            name: {"inputs": images, "targets": labels} for name, (images, labels) in splits.items()
        }
        weights = classification.class_weights(batches["train"]["targets"], len(classes))
        derived = {"classes": list(classes), "class_weights": weights, "files": sums}
        derived["shape"] = list(splits["train"][0].shape[1:])
        kept = Kept(derived, {"num_classes": len(classes)}, {"labels.json": list(classes)})
        rows = Rows(batches["train"], {name: batches[name] for name in recipe.evaluate})
        return cls(data, recipe, kept, rows, batches["test"])

    @classmethod
    def restore(cls, data: ImageData, recipe: Recipe, kept: Kept) -> "ImageClasses":
        classification.check_classes(kept.derived["classes"], kept.derived["class_weights"])
        classification.check_labels(kept.files["labels.json"], kept.sizes["num_classes"])
        task = cls(data, recipe, kept, Rows({}, {}), {})
        check_shape(task.image_shape)
        return task

    @classmethod
    def file_names(cls, data: ImageData) -> tuple[str, ...]:
        return ("labels.json",)

    @property
    def classes(self) -> list[str]:
        return self.kept.files["labels.json"]

    @property
    def image_shape(self) -> tuple[int, int]:
        """The height and width of the images."""
        height, width = self.data.image_shape or self.kept.derived["shape"]
        return height, width

    def sample(self) -> Inputs:
        return np.zeros((self.recipe.batch_size, *self.image_shape), np.float32)

    def measure(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> Measured:
        """As `classification.measure`."""
        weights = self.kept.derived["class_weights"]
        return classification.measure(self.recipe, weights, outputs, aux, batch, train)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Examples:
        """The first test images with the first seed's probabilities.

        The confusion matrix is of all seeds.
        """
        inputs, targets = self.test["inputs"], self.test["targets"]
        outputs, attentions = zip(*(forward(model, seed, inputs) for seed in params))
        matrix, metrics, figures = classification.results(np.stack(outputs), targets, self.classes)
        arrays = {
            "inputs": inputs[:NUM_EXAMPLES],
            "targets": targets[:NUM_EXAMPLES],
            "confusion": matrix,
        }
        arrays["predictions"] = classification.probabilities(outputs[0][:NUM_EXAMPLES])
        return Examples(arrays | to_store(attentions[0]), metrics, figures)

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """The classes of images.

        Images are `(n, height, width)` or `(height, width)`, of bytes or of numbers in [0, 1]. They
        may have any size where the data set scales its images.

        Raises:
            UsageError: images of another size, or values outside [0, 1].
        """
        images = self.prepare(inputs)
        return classification.predict(model, params, images, self.classes)

    def input_shapes(self) -> Tree:
        height, width = self.image_shape
        return f"b, {height}, {width}"

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """As `classification.compute`, of images in [0, 1]."""
        return classification.compute(model, params, inputs)

    def prepare(self, inputs: UserInput, source: str = "the inputs") -> np.ndarray:
        """Images `(n, height, width)` as float32 in [0, 1], of the size that the model takes.

        Raises a UsageError for anything else.
        """
        images = real_numbers(source, inputs)
        images = images[None] if images.ndim == 2 else images
        if images.ndim == 3 and images.size:
            images = self.data.prepare(as_pixels(images, source))
        height, width = self.image_shape
        if images.ndim != 3 or images.shape[1:] != (height, width) or not len(images):
            raise UsageError(
                f"expected images of {height} x {width} pixels in {source}, got shape "
                f"{images.shape}"
            )
        return images
