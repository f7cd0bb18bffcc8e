"""Images with numbers in [0, 1]: `(n, height, width)`, or `(n, height, width, 3)` in colour."""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flax_attn.data import pictures
from flax_attn.data.contents import as_pixels, real_numbers
from flax_attn.data.raw import Raw
from flax_attn.data.sets import ImageData
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs
from flax_attn.runs.reading import Record
from flax_attn.tasks import baselines, replies, user_files
from flax_attn.tasks.artifacts import Kept, Look, Prediction, first_attention
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.baselines import Features
from flax_attn.tasks.inputs.base import Encoded, Input, Requested, title_of
from flax_attn.tasks.requests import Request
from flax_attn.tasks.token_rows import STRONG
from flax_attn.types import JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure


CELLS = 4  # along each side of an image, which are covered in turn


@dataclass(frozen=True)
class Images(Input):
    """Images of one size. `shape` is their height and width, and 3 for those in colour."""

    name = "image"
    noun = "images"
    places = "patches"
    num_examples = 64
    grounded: ClassVar[bool] = True  # as in `pictures.read`

    data: ImageData
    shape: tuple[int, ...]

    @classmethod
    def fit(cls, data: ImageData, raw: Raw, with_targets: bool) -> "Images":
        return cls(data, raw.splits["train"].inputs.shape[1:])

    @classmethod
    def restore(cls, data: ImageData, kept: Kept) -> "Images":
        return cls(data, tuple(kept.derived["shape"]))

    @property
    def channels(self) -> int:
        """Returns the number of channels of an image; grey ones have one."""
        return self.shape[2] if len(self.shape) > 2 else 1

    @property
    def kept(self) -> Kept:
        return Kept({"shape": list(self.shape)})

    def encode(self, raw: UserInput) -> Inputs:
        return raw

    def sample(self, number: int) -> Inputs:
        return np.zeros((number, *self.shape), np.float32)

    def shapes(self) -> Tree:
        return f"b, {', '.join(map(str, self.sample(1).shape[1:]))}"

    def read(self, inputs: UserInput) -> Encoded:
        return Encoded(self.scaled(inputs))

    def batch(self, inputs: UserInput, source: str) -> np.ndarray:
        """Adds a batch axis to one image. Grey images get the channels of a model for colours."""
        images = real_numbers(source, inputs)
        is_coloured = images.ndim == 3 and images.shape[-1] == self.channels > 1
        images = images[None] if images.ndim == 2 or is_coloured else images  # a batch of one
        if images.ndim == 3 and self.channels > 1:
            images = np.repeat(images[..., None], self.channels, axis=-1)  # (n, height, width, 3)
        return images

    def scaled(self, inputs: UserInput, source: str = "the inputs") -> np.ndarray:
        """Returns images in [0, 1] of the size that the model takes.

        Inputs are one image or several, of bytes or of numbers in [0, 1]. They may have any size
        where the data set scales its images. A model for colours takes grey ones, too.

        Raises:
            UsageError: images of another size, or values outside [0, 1].
        """
        images = self.batch(inputs, source)
        if images.ndim == 1 + len(self.shape) and images.size:
            images = self.data.prepare(as_pixels(images, source))
        if images.shape[1:] != self.shape or not len(images):
            kind = "images in colour" if self.channels > 1 else "grey images"
            raise UsageError(
                f"expected {kind} of {self.shape[0]} x {self.shape[1]} pixels in {source}, "
                f"(n, {', '.join(map(str, self.shape))}), got shape {images.shape}"
            )
        return images

    def covered(self, row: np.ndarray) -> dict[str, np.ndarray]:
        """Paints one cell of a grid after another with the median of each colour."""
        ground, made = np.median(row, axis=(0, 1)), {}  # (channels,) or one number
        rows, columns = (np.linspace(0, side, CELLS + 1).astype(int) for side in row.shape[:2])
        for i, (top, bottom) in enumerate(itertools.pairwise(rows), 1):
            for j, (left, right) in enumerate(itertools.pairwise(columns), 1):
                image = row.copy()
                image[top:bottom, left:right] = ground
                made[f"row {i}, column {j} of {CELLS} x {CELLS}"] = image
        return made

    def requested(self, request: Request) -> Requested:
        source = request.source
        if request.texts or source is None:
            raise UsageError(
                "expected --input FILE with a picture (PNG or JPEG), a folder of pictures, or a "
                ".npy or IDX file of images"
            )
        paths = pictures.within(source) if source.is_dir() else [source]
        options = {"light_ink": self.data.light_ink, "grounded": self.grounded}
        options["in_colour"] = self.channels > 1
        in_files = [
            self.scaled(user_files.read_images(path, **options), str(path)) for path in paths
        ]
        names = [
            path.name if len(images) == 1 else f"{path.name} [{i}]"
            for path, images in zip(paths, in_files)
            for i in range(len(images))
        ]
        return Requested(names, np.concatenate(in_files))

    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        image = self.scaled(asked.numbers(), "the input")
        if len(image) != 1:
            raise UsageError(f"expected one image, got {len(image)}")
        looked = look(image)
        return looked, replies.attended(looked)

    def features(self, train: UserInput, test: UserInput) -> Features | None:
        return baselines.of_pixels(np.asarray(train), np.asarray(test))

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Returns an image as ink, 1 for black; in colour, the ink that takes each colour away."""
        image = run.examples["inputs"][index]
        image = image if run.config["data"]["name"] == "mnist" else 1 - image
        return {"image": replies.pack(image)}

    @classmethod
    def draw_examples(
        cls, run: Record, name: str, weights: np.ndarray, verdicts: list[tuple[str, str]]
    ) -> "dict[str, Figure]":
        from flax_attn.analysis import images

        return images.draw_attention(run, name, weights)

    def draw(
        self, inputs: UserInput, prediction: Prediction, verdicts: list[tuple[str, str]], name: str
    ) -> "Figure":
        from flax_attn.analysis import images as figures

        # digits show ink; photographs are shown as they are
        images = self.scaled(inputs)
        shown = images if self.data.light_ink else 1 - images
        _, weights = first_attention(prediction)
        if len(images) == 1 and weights is not None:
            return figures.attention_on_image(shown[0], weights[0], f"{verdicts[0][0]}:\n{STRONG}")
        title = title_of(len(images), figures.SHOWN, "image")
        return figures.grid(shown, verdicts, f"{title}: the prediction is above")
