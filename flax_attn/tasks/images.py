"""Images in classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import flax.linen as nn
import numpy as np
from jaxtyping import Array

from flax_attn.data.sets import ImageData
from flax_attn.data.sets.images import as_pixels
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params, forward
from flax_attn.tasks import classification
from flax_attn.tasks.task import Examples, Kept, Measured, Prediction, Recipe, Rows, Task, to_store
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
        kept = Kept(derived, {"num_classes": len(classes)}, {"labels.json": list(classes)})
        rows = Rows(batches["train"], {name: batches[name] for name in recipe.evaluate})
        return cls(data, recipe, kept, rows, batches["test"])

    @classmethod
    def restore(cls, data: ImageData, recipe: Recipe, kept: Kept) -> "ImageClasses":
        classification.check_classes(kept.derived["classes"], kept.derived["class_weights"])
        classification.check_labels(kept.files["labels.json"], kept.sizes["num_classes"])
        return cls(data, recipe, kept, Rows({}, {}), {})

    @classmethod
    def file_names(cls, data: ImageData) -> tuple[str, ...]:
        return ("labels.json",)

    @property
    def classes(self) -> list[str]:
        return self.kept.files["labels.json"]

    def sample(self) -> Inputs:
        return np.zeros((self.recipe.batch_size, *self.data.image_shape), np.float32)

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

        Images are `(n, height, width)` or `(height, width)`, of bytes or of numbers in [0, 1].

        Raises:
            UsageError: images of another size, or values outside [0, 1].
        """
        images = check_images(inputs, self.data.image_shape)
        return classification.predict(model, params, images, self.classes)


def check_images(
    images: UserInput, shape: tuple[int, int], source: str = "the inputs"
) -> np.ndarray:
    """The images `(n, height, width)` as float32 in [0, 1].

    Raises a UsageError for anything else.
    """
    images = np.asarray(images)
    images = images[None] if images.ndim == 2 else images
    height, width = shape
    if images.ndim != 3 or images.shape[1:] != shape or not len(images):
        raise UsageError(
            f"expected images of {height} x {width} pixels in {source}, got shape {images.shape}"
        )
    return as_pixels(images, source)
