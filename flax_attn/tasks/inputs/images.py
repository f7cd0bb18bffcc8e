"""Grey images `(n, height, width)` with numbers in [0, 1]."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flax_attn.data import pictures
from flax_attn.data.contents import as_pixels, real_numbers
from flax_attn.data.raw import Raw
from flax_attn.data.sets import ImageData
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies, user_files
from flax_attn.tasks.artifacts import Kept, Look, Prediction, first_attention
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.inputs.base import Encoded, Input, Requested, title_of
from flax_attn.tasks.requests import Request
from flax_attn.tasks.token_rows import STRONG
from flax_attn.types import JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure


@dataclass(frozen=True)
class Images(Input):
    """Images of one size. `shape` is their height and width."""

    name = "image"
    noun = "images"
    places = "patches"
    num_examples = 64

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
        return 1

    @property
    def kept(self) -> Kept:
        return Kept({"shape": list(self.shape)})

    def encode(self, raw: UserInput) -> Inputs:
        return raw

    def sample(self, number: int) -> Inputs:
        return np.zeros((number, *self.shape), np.float32)

    def shapes(self) -> Tree:
        return f"b, {', '.join(map(str, self.shape))}"

    def read(self, inputs: UserInput) -> Encoded:
        return Encoded(self.scaled(inputs))

    def scaled(self, inputs: UserInput, source: str = "the inputs") -> np.ndarray:
        """Returns images `(n, height, width)` in [0, 1], of the size that the model takes.

        Inputs are `(n, height, width)` or `(height, width)`, of bytes or of numbers in [0, 1]. They
        may have any size where the data set scales its images.

        Raises:
            UsageError: images of another size, or values outside [0, 1].
        """
        images = real_numbers(source, inputs)
        images = images[None] if images.ndim == 2 else images
        if images.ndim == 3 and images.size:
            images = self.data.prepare(as_pixels(images, source))
        if images.ndim != 3 or images.shape[1:] != self.shape or not len(images):
            height, width = self.shape
            raise UsageError(
                f"expected grey images of {height} x {width} pixels in {source}, "
                f"(n, {height}, {width}), got shape {images.shape}"
            )
        return images

    def requested(self, request: Request) -> Requested:
        source = request.source
        if request.texts or source is None:
            raise UsageError(
                "expected --input FILE with a picture (PNG or JPEG), a folder of pictures, or a "
                ".npy or IDX file of images"
            )
        paths = pictures.within(source) if source.is_dir() else [source]
        options = {"light_ink": self.data.light_ink, "in_colour": self.channels > 1}
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
        image = asked.numbers()
        if image.ndim != 2:
            raise UsageError(f"expected one image, got the shape {image.shape}")
        looked = look(self.scaled(image, "the input"))
        return looked, replies.attended(looked)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Returns an image as ink, 1 for black."""
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
