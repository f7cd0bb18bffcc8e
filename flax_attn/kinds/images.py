"""Images in classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import flax.linen as nn
import numpy as np

from flax_attn.data import pictures
from flax_attn.data.contents import as_pixels, real_numbers
from flax_attn.data.sets import ImageData
from flax_attn.errors import UsageError
from flax_attn.kinds import classification, replies, user_files
from flax_attn.kinds.asking import Asked
from flax_attn.kinds.requests import Load, Request, check_printed, print_json
from flax_attn.kinds.task import (
    Examples,
    Kept,
    Look,
    Prediction,
    Recipe,
    Rows,
    check_shape,
    first_attention,
    first_of,
    outputs_of,
    to_store,
)
from flax_attn.kinds.token_rows import STRONG
from flax_attn.models.forward import Inputs, Params, forward
from flax_attn.runs.examples import CLASSES, FLOATS, Arrays, Form
from flax_attn.runs.reading import Record
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

NUM_EXAMPLES = 64


def count_patches(arrays: Arrays, model: JsonObject) -> dict[str, int]:
    """Counts the patches p of an image, of a model that has them."""
    _, height, width = arrays["inputs"].shape
    size = model.get("patch_size")
    return {"p": height * width // size**2} if size else {}


@dataclass(frozen=True)
class ImageClasses(classification.Classes):
    """A task on images in classes."""

    name = "images"
    data_class = ImageData
    form = Form(
        CLASSES | {"inputs": (FLOATS, "nhw")},
        attends="pp",
        has_classes=True,
        sizes=count_patches,
    )
    try_it = "predict", "--input IMAGE.png --figure attention.png"

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
        classification.check_kept(kept)
        task = cls(data, recipe, kept, Rows({}, {}), {})
        check_shape(task.image_shape)
        return task

    @classmethod
    def file_names(cls, data: ImageData) -> tuple[str, ...]:
        return ("labels.json",)

    @property
    def image_shape(self) -> tuple[int, int]:
        """The height and width of the images."""
        height, width = self.data.image_shape or self.kept.derived["shape"]
        return height, width

    @property
    def channels(self) -> int:
        """The number of channels of an image; grey ones have one."""
        return 1

    def sample(self) -> Inputs:
        return np.zeros((self.recipe.batch_size, *self.image_shape), np.float32)

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
                f"expected grey images of {height} x {width} pixels in {source}, "
                f"(n, {height}, {width}), got shape {images.shape}"
            )
        return images

    @classmethod
    def respond(cls, request: Request, load: Load, console: "Console") -> list[Path]:
        """Prints the classes of images in falling order, and draws them on request."""
        check_printed(request)
        run = load()
        assert isinstance(run.task, ImageClasses)
        names, images = run.task.read(request)
        prediction = run.predict(images)
        rows = classification.describe(names, prediction)
        if request.as_json:
            print_json(rows, console)
        else:
            for row in rows:
                classification.show_classes(row, console)
        if request.figure is None:
            return []
        from flax_attn.analysis.drawing import save  # and matplotlib, for a picture alone

        # pictures show ink; photographs are shown as they are
        shown = images if run.task.data.light_ink else 1 - images
        return [save(draw(shown, prediction), request.figure)]

    def read(self, request: Request) -> tuple[list[str], np.ndarray]:
        """Reads the images of a file, or the pictures of a folder, with a name for each.

        They are as `prepare` makes them.
        """
        source = request.source
        if request.texts or source is None:
            raise UsageError(
                "expected --input FILE with a picture (PNG or JPEG), a folder of pictures, or a "
                ".npy or IDX file of images"
            )
        paths = pictures.within(source) if source.is_dir() else [source]
        options = {"light_ink": self.data.light_ink, "in_colour": self.channels > 1}
        in_files = [
            self.prepare(user_files.read_images(path, **options), str(path)) for path in paths
        ]
        names = [
            path.name if len(images) == 1 else f"{path.name} [{i}]"
            for path, images in zip(paths, in_files)
            for i in range(len(images))
        ]
        return names, np.concatenate(in_files)

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        image = asked.numbers()
        if image.ndim != 2:
            raise UsageError(f"expected one image, got the shape {image.shape}")
        looked = look(self.prepare(image, "the input"))
        return replies.attended(looked) | replies.classified(looked["outputs"][0], self.classes)

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import images

        return images.draw(run)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """An image as ink, 1 for black, and its classes."""
        image = run.examples["inputs"][index]
        image = image if run.config["data"]["name"] == "mnist" else 1 - image
        return {"image": replies.pack(image)} | classification.example(run, index)


def draw(images: np.ndarray, prediction: Prediction) -> "Figure":
    """Draws images with their classes, or the attention on a single image."""
    from flax_attn.analysis import images as figures
    from flax_attn.analysis.classes import drawn_names
    from flax_attn.analysis.texts import verdict

    _, weights = first_attention(prediction)
    shares, names = outputs_of(prediction), drawn_names(prediction.names)
    if len(images) == 1 and weights is not None:
        best, _ = verdict(shares[0], names)
        title = f"{best}:\n{STRONG}"
        return figures.attention_on_image(images[0], weights[0], title)
    title = f"{first_of('image', figures.SHOWN, len(images))}: the predicted class is above"
    return figures.predictions(images, shares, None, names, title)
