"""What published models are asked: texts to go on with, texts to read, and images.

Each is the kind of task of the same name. It has no data, no training and no results.
"""

import abc
import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, NoReturn

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from flax_attn.data.contents import as_pixels
from flax_attn.data.sets import ImageData, LanguageData, PairData, TextData
from flax_attn.data.text import pad
from flax_attn.errors import UsageError, shortened
from flax_attn.models import by_block
from flax_attn.models.decoding import Decoding, Translation, translate
from flax_attn.models.forward import Inputs, Params, check_finite, in_order
from flax_attn.models.language import softmax
from flax_attn.models.sizes import ROWS_OF_LARGE, SHORTEST, in_batches, longer, rounded
from flax_attn.published.families import MOST_READ, read
from flax_attn.published.folder import HubTokenizer, ModelConfig, read_json, read_tokenizer
from flax_attn.published.modules import Decoder, Encoder, EncoderDecoder, Stack, VisionTransformer
from flax_attn.schema import require
from flax_attn.tasks import ClassesOfImages, ClassesOfTexts, replies, requests
from flax_attn.tasks.artifacts import Kept, Prediction, Recipe
from flax_attn.tasks.asking import Asked, check_length
from flax_attn.tasks.inputs.base import Input, Requested
from flax_attn.tasks.inputs.images import Images
from flax_attn.tasks.inputs.pairs import Pairs
from flax_attn.tasks.inputs.signals import Normalization
from flax_attn.tasks.inputs.texts import Part, Texts, as_texts
from flax_attn.tasks.inputs.tokens import Passages
from flax_attn.tasks.language import LanguageModel
from flax_attn.tasks.targets.classes import Classes
from flax_attn.tasks.targets.next_token import NextToken
from flax_attn.tasks.targets.numbers import Number
from flax_attn.tasks.targets.texts import TargetText
from flax_attn.tasks.task import Task
from flax_attn.tasks.translation import TextsOfTexts
from flax_attn.types import JsonObject, Options, Tree, UserInput

BlockWeights = Float[Array | np.ndarray, "b h _ _"]
MASK = "[MASK]"
NO_CLASSES = ["(the model has no classes)"]
MOST_SHOWN = 512  # tokens of a text that a page shows
MOST_WRITTEN = 256  # tokens of a text that is written for another
MOST_WRITTEN_SHOWN = 64  # the same on a page


class NoData:
    """Stands where the data of a run stand."""

    def load(self, manual_dir: Path | None) -> NoReturn:
        raise UsageError("expected a run, got a published model, which has no test split")


class NoLanguage(NoData, LanguageData): ...


class NoTexts(NoData, TextData): ...


class NoPairs(NoData, PairData): ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoImages(NoData, ImageData):
    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


class InParts:
    """What a task adds to the parts of a model, each of which is a program of its own.

    Parameters are those of `by_block.outside`.
    """

    batch_rows = ROWS_OF_LARGE

    def begin(self, model: nn.Module, params: Params, inputs: Inputs) -> Tree:
        """Computes the states before the first block."""
        return model.apply({"params": params}, inputs, method="begin")

    @abc.abstractmethod
    def end(
        self, model: nn.Module, params: Params, x: Tree, inputs: Inputs
    ) -> Float[Array, "b classes"]:
        """Computes probabilities from the states after the last block."""

    def shown(self, weights: BlockWeights) -> BlockWeights:
        """Returns those of the weights of a block that are shown."""
        return weights

    @functools.cached_property
    def programs(self) -> tuple[Callable[..., Tree], Callable[..., Array]]:
        """Returns the programs of `begin` and `end`."""
        return jax.jit(self.begin, static_argnums=0), jax.jit(self.end, static_argnums=0)

    def outputs_of(self, model: nn.Module, params: Params, x: Array, inputs: Inputs) -> Array:
        """Computes what `predict` returns from the states after the last block."""
        return self.programs[1](model, params, x, inputs)

    def compute(
        self,
        model: nn.Module,
        params: Sequence[Params],
        inputs: Inputs,
        need_weights: bool = False,
    ) -> dict[str, Tree]:
        """Computes outputs, the states after the last block, and the weights of each if needed."""
        assert isinstance(model, Stack)
        outside = by_block.outside(params[0])
        options: Options = {"lengths": by_block.lengths_of(inputs), "need_weights": need_weights}
        x = self.programs[0](model, outside, inputs)
        x, attention, _ = by_block.through(model, params[0], x, **options)
        shown = {name: self.shown(weights) for name, weights in attention.items()}
        outputs = self.outputs_of(model, outside, x, inputs)
        return {"outputs": outputs, "attention": shown, "states": x}

    def applied(
        self, model: nn.Module, params: Sequence[Params], arrays: Inputs
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        compute = functools.partial(self.compute, model, params, need_weights=True)
        computed = in_batches(compute, arrays, self.batch_rows)
        return computed["outputs"], in_order(computed["attention"])


class Prepared(NamedTuple):
    """An input of a page, as a model takes it.

    Attributes:
        inputs: of one text, padded, or of one image.
        tokens: of the text, without padding; empty for an image.
        length, width: the number of tokens or patches, and with padding.
        token: the one that the answer is read from.
        first: the number of tokens that come before the first patch.
        note: what the user should know, or None.
        target: what is written for a source.
        read: of a target, the tokens that the decoder has read where it writes `tokens`.
    """

    inputs: Inputs
    tokens: list[str]
    length: int
    width: int
    token: int
    first: int = 0
    note: str | None = None
    target: "Prepared | None" = None
    read: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class HubTokens(Passages):
    """Text for a published language model. Every token may be read and written."""

    tokenizer: HubTokenizer
    num_unwritten: ClassVar[int] = 0

    def encoded(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def decoded(self, texts: list[list[int]]) -> list[str]:
        return [self.tokenizer.decode(text) for text in texts]

    def written(self, tokens: np.ndarray) -> np.ndarray:
        return np.array([self.tokenizer.written(token) for token in tokens.tolist()], dtype=str)


@dataclasses.dataclass(frozen=True)
class Continued(LanguageModel, InParts):
    """A published language model."""

    batch_rows = ROWS_OF_LARGE

    def begin(self, model: nn.Module, params: Params, inputs: Inputs) -> Tree:
        return super().begin(model, params, inputs["tokens"])

    def end(self, model: nn.Module, params: Params, x: Array, inputs: Inputs) -> Array:
        """Computes the probabilities of the token after the `last`."""
        x = by_block.at(x, inputs["last"][None])
        logits: Tree = model.apply({"params": params}, x, method="end")
        return softmax(logits)

    def prepared(self, asked: Asked) -> Prepared:
        most = min(self.inputs.data.max_length, MOST_SHOWN)
        whole = self.inputs.encoded(asked.words())
        row = whole[-most:]
        width = min(rounded(len(row)), most)
        tokens, _ = pad([row], width)
        last = len(row) - 1
        note = f"the model reads the last {most} tokens" if len(whole) > most else None
        written = self.inputs.written(np.array(row)).tolist()
        inputs = {"tokens": tokens, "last": np.int32(last)}
        return Prepared(inputs, written, len(row), width, last, note=note)


@dataclasses.dataclass(frozen=True)
class Reader(Texts):
    """Texts for a published encoder. Ends of texts are cut where they are too long."""

    tokenizer: HubTokenizer

    def clean(self, text: str) -> str:
        return text

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes texts, without what is too long."""
        return [row[: self.data.max_length] for row in self.whole_rows(texts)]

    def whole_rows(self, texts: Sequence[str]) -> list[list[int]]:
        require(texts and all(text.strip() for text in texts), "a text, got an empty one")
        return [self.tokenizer.encode(text) for text in texts]

    def inputs(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        tokens, lengths = pad(self.rows(texts))
        return {"tokens": tokens, "lengths": lengths}

    def checked_parts(self, texts: Sequence[str]) -> list[list[Part]]:
        return [[(self.tokenizer.written(i), True) for i in row] for row in self.rows(texts)]

    def warn_of_unknown(self, texts: Sequence[str]) -> None:
        """Warns of nothing: the tokenizer cuts unknown words into known parts."""


@dataclasses.dataclass(frozen=True)
class Read(InParts, ClassesOfTexts):
    """A published encoder of texts. Its classes are its own, or the words for a `[MASK]`.

    Attributes:
        mask: the id of `[MASK]`.
        labels: the words, or the classes of tokens.
        folder: of the model.
    """

    mask: int | None = None
    labels: tuple[str, ...] = ()
    folder: Path = Path()

    @property
    def reader(self) -> Reader:
        assert isinstance(self.inputs, Reader)
        return self.inputs

    def end(self, model: nn.Module, params: Params, x: Array, inputs: Inputs) -> Array:
        assert isinstance(model, Encoder)
        if model.head in ("states", "tokens"):
            return jnp.ones((len(x), 1))  # a text has no classes
        if model.head == "words":  # those in place of the first mask, else of the first token
            masked = jnp.argmax(inputs["tokens"] == self.mask, axis=-1)
            x = by_block.at(x, masked)[:, None]
        outputs: Tree = model.apply({"params": params}, x, method="end")
        if model.num_classes == 1:
            return jnp.asarray(outputs, jnp.float32)
        return softmax(outputs[:, 0] if model.head == "words" else outputs)

    def outputs_of(self, model: nn.Module, params: Params, x: Array, inputs: Inputs) -> Array:
        assert isinstance(model, Encoder)
        if model.head in ("states", "tokens"):
            outputs: Tree = by_block.end(model, params, x)
            return outputs if model.head == "states" else softmax(outputs)
        outputs = super().outputs_of(model, params, x, inputs)
        return outputs[:, 0] if model.num_classes == 1 else outputs

    def prepared(self, asked: Asked) -> Prepared:
        text = asked.words()
        inputs, (parts,), _ = self.reader.read([text])
        length = len(parts)
        check_length(length)
        width = min(rounded(length), self.reader.data.max_length)
        row = inputs["tokens"][0].tolist()
        token = row.index(self.mask) if self.mask in row else 0
        whole = self.reader.length(text)
        note = f"the model reads the first {length} tokens" if whole > length else None
        return Prepared(longer(inputs, width), parts, length, width, token, note=note)

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        texts = as_texts(inputs)
        encoded, tokens, known = self.reader.read(texts)
        assert isinstance(model, Encoder)
        if model.head == "words":
            counts = (encoded["tokens"] == self.mask).sum(axis=-1)
            name = MASK if self.mask is None else self.reader.tokenizer.written(self.mask)
            got = f"got {counts.tolist()}"
            require((counts == 1).all(), f"one {name} in every text, for the word to name, {got}")
        length = encoded["tokens"].shape[1]
        outputs, weights = self.applied(model, params, self.reader.to_size(encoded))
        attention = {name: w[..., :length, :length] for name, w in weights.items()}
        looks: Options = {"tokens": tokens, "known": known, "attention": attention}
        if model.head in ("states", "tokens"):
            return Prediction(outputs[:, :length], list(self.labels), **looks)
        if model.num_classes == 1:
            return Prediction(outputs, **looks)
        predicted = self.target.predicted(outputs, texts)
        return dataclasses.replace(predicted, **looks)

    def embed(self, model: nn.Module, params: Sequence[Params], texts: UserInput) -> np.ndarray:
        """Computes vectors `(n, features)` of texts, as the folder pools its states."""
        most, num_pooled, normalized = pooling_of(self.folder, self.reader.data.max_length)
        rows = self.reader.whole_rows(as_texts(texts))
        for row in rows:  # the last token, if there is one after every text, stays
            end = row[-1:] if row[-1] in self.reader.tokenizer.around else []
            row[:] = row if len(row) <= most else row[: most - len(end)] + end
        tokens, lengths = pad(rows)
        inputs = self.reader.to_size({"tokens": tokens, "lengths": lengths})
        compute = functools.partial(self.compute, model, params)
        computed = in_batches(compute, inputs, self.batch_rows)
        states = np.asarray(computed["states"], np.float32)  # (n, t, d)
        number = np.minimum(lengths, num_pooled)[:, None]  # (n, 1)
        is_pooled = np.arange(states.shape[1]) < number  # (n, t)
        vectors = np.where(is_pooled[..., None], states, 0).sum(axis=1) / number  # (n, d)
        check_finite(vectors)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalized else vectors


@dataclasses.dataclass(frozen=True)
class Masked(Read):
    """A published encoder of texts that names words or classes of tokens, or has states alone."""

    tells_why = False

    @functools.cached_property
    def kept(self) -> Kept:
        kept = super().kept
        return kept._replace(files=kept.files | {"labels.json": list(self.labels)})


class Rated(Read):
    """A published encoder of texts that gives a number, as it was trained for."""

    name = "text-number"
    target_class = Number
    tells_why = False


@dataclasses.dataclass(frozen=True)
class Sources(Pairs):
    """Texts for a published encoder and decoder. Ends of texts are cut where they are too long."""

    source: HubTokenizer
    target: HubTokenizer
    last: int  # the token that ends what is written

    @property
    def end(self) -> int:
        return self.last

    def row(self, text: str) -> list[int]:
        return self.source.encode(text)[: self.data.max_length] if text.strip() else []

    def encode(self, raw: UserInput) -> Inputs:
        tokens, lengths = pad([self.row(text) for text in raw])
        return {"source": tokens, "source_lengths": lengths}

    def source_parts(self, text: str) -> list[Part]:
        return [(self.source.written(token), True) for token in self.row(text)]

    def target_words(self, tokens: Sequence[int]) -> list[str]:
        return [self.target.written(token) for token in tokens]

    def write(self, tokens: Sequence[int]) -> str:
        return self.target.decode(tokens)

    def requested(self, request: requests.Request) -> Requested:
        requested, most = super().requested(request), self.data.max_length
        for number, text in enumerate(requested.names, 1):
            if (length := len(self.source.encode(text))) > most:
                cut = f"has {length} tokens, of which the first {most} are read"
                requests.warn(f"warning: text {number} {cut}")
        return requested


@dataclasses.dataclass(frozen=True)
class WrittenText(TargetText):
    """A text that a published encoder and decoder writes, any of its tokens in each place."""

    names: list[str]

    def reply(self, output: np.ndarray) -> JsonObject:
        return replies.classified(output, self.names)

    def class_names(self) -> list[str]:
        return self.names


@dataclasses.dataclass(frozen=True)
class Translated(TextsOfTexts, InParts):
    """A published encoder and decoder, which writes a text for each text."""

    inputs: Sources

    def predict(
        self, model: nn.Module, params: Sequence[Params], inputs: UserInput, **options: Tree
    ) -> Prediction:
        """Writes texts, greedily without a beam.

        Beside the alignment, the attention has the weights of all heads on the best text. A row of
        `decoder0` or `cross0` is of the token that is written there, the last one of the end.
        """
        assert isinstance(model, EncoderDecoder)
        predicted = super().predict(model, params, inputs, **options)
        attention = {name: list(arrays) for name, arrays in predicted.attention.items()}
        nothing = Translation([], 0.0, False, np.zeros((0, 0)))
        for text, found in zip(as_texts(inputs), predicted.translations):
            best = found[0] if found else nothing
            for name, weights in self.looks(model, params[0], text, best).items():
                attention.setdefault(name, []).append(weights)
        return dataclasses.replace(predicted, attention=attention)

    def looks(
        self, model: EncoderDecoder, params: Params, text: str, best: Translation
    ) -> dict[str, np.ndarray]:
        """Computes the weights `(heads, q, k)` of each attention on a source and its text."""
        sources, size = self.inputs.encode([text]), len(best.tokens) + best.ended
        (length,), read = sources["source_lengths"].tolist(), [model.start_token, *best.tokens]
        inputs = longer(sources, rounded(length)) | {"target": pad([read[:size]], rounded(size))[0]}
        options: Options = {"lengths": inputs["source_lengths"], "need_weights": True}
        x = by_block.begin(model, params, inputs)
        _, attention, _ = by_block.through(model, params, x, **options)
        sizes = {"encoder": (length, length), "decoder": (size, size), "cross": (size, length)}
        looks = {}
        for name, weights in attention.items():
            rows, keys = sizes[name.rstrip("0123456789")]
            looks[name] = np.asarray(weights)[0, :, :rows, :keys]
        return looks

    def end(self, model: nn.Module, params: Params, x: Tree, inputs: Inputs) -> Array:
        """Computes the probabilities of the token that is written at the place `last`."""
        x = {"target": by_block.at(x["target"], inputs["last"][None])}
        logits: Tree = model.apply({"params": params}, x, method="end")
        return softmax(logits)

    def prepared(self, model: nn.Module, params: Params, text: str) -> Prepared:
        """Returns a source, with what the model writes for it greedily: its first tokens."""
        whole = self.inputs.row(text)
        row = whole[:MOST_SHOWN]
        tokens, lengths = pad([row], rounded(len(row)))
        inputs = {"source": tokens, "source_lengths": lengths}
        options: Options = self._search(self._greedy, 1) | {"max_length": MOST_WRITTEN_SHOWN}
        assert isinstance(model, EncoderDecoder)
        ((best,),) = translate(model, params, inputs, **options)
        size, words = len(best.tokens) + best.ended, self.inputs.target_words
        read, written = [model.start_token, *best.tokens][:size], [*best.tokens, self.inputs.end]
        # another number of keys than in the source, so that keys are masked there alone
        width = rounded(size) + (SHORTEST if rounded(size) == tokens.shape[1] else 0)
        target = Prepared({}, words(written[:size]), size, width, 0, read=words(read))
        inputs |= {"target": pad([read], width)[0]}
        note = None if best.ended else f"the first {size} tokens of its text are shown"
        if len(whole) > len(row):
            note = f"the model reads the first {len(row)} tokens"
        return Prepared(inputs, words(row), len(row), tokens.shape[1], 0, note=note, target=target)


@dataclasses.dataclass(frozen=True)
class ImagesOfAnySize(Images):
    """Images of any size for a published encoder. A grey image has its values in every channel."""

    grounded = False

    data: NoImages

    @property
    def channels(self) -> int:
        return self.data.channels

    def sample(self, number: int) -> Inputs:
        return np.zeros((number, *self.shape, self.channels), np.float32)

    def scaled(self, inputs: UserInput, source: str = "the inputs") -> np.ndarray:
        """Scales images `(n, height, width)` or `(n, height, width, channels)` in [0, 1].

        Three axes are one image in colour where the last is the number of channels, above 1.
        """
        images = self.batch(inputs, source)
        images = images[..., None] if images.ndim == 3 else images
        fit = images.ndim == 4 and images.shape[-1] == self.channels and images.size
        expected = f"images (n, height, width) or with {self.channels} channels"
        require(fit, f"{expected} in {source}, got shape {images.shape}")
        shape = (len(images), *self.shape, self.channels)
        return np.asarray(jax.image.resize(as_pixels(images, source), shape, "bilinear"))


@dataclasses.dataclass(frozen=True)
class Seen(InParts, ClassesOfImages):
    """A published encoder of images. Pixels are normalized as it was trained.

    The attention is that of the first token, which the classes are read from, to the patches.
    """

    data: NoImages
    patches: int = 1  # along a side
    first: int = 1  # tokens before the patches

    def begin(self, model: nn.Module, params: Params, inputs: Inputs) -> Tree:
        row = lambda numbers: jnp.array(numbers)[None, None, None]
        mean, std = row(self.data.mean), row(self.data.std)
        dtype = params["patches"]["kernel"].dtype
        return super().begin(model, params, ((inputs - mean) / std).astype(dtype))

    def end(self, model: nn.Module, params: Params, x: Array, inputs: Inputs) -> Array:
        assert isinstance(model, VisionTransformer)
        if not model.num_classes:
            return jnp.ones((len(x), 1))
        logits: Tree = model.apply({"params": params}, x, method="end")
        return softmax(logits)

    def outputs_of(self, model: nn.Module, params: Params, x: Array, inputs: Inputs) -> Array:
        assert isinstance(model, VisionTransformer)
        if not model.num_classes:
            return by_block.end(model, params, x)
        return super().outputs_of(model, params, x, inputs)

    def shown(self, weights: BlockWeights) -> BlockWeights:
        return weights[..., :1, self.first :]

    def prepared(self, asked: Asked) -> Prepared:
        image = asked.numbers()
        require(image.ndim in (2, 3), f"one image, got the shape {image.shape}")
        assert isinstance(self.inputs, ImagesOfAnySize)
        sides = self.patches
        inputs = self.inputs.scaled(image if image.ndim == 2 else image[None], "the input")
        return Prepared(inputs, [], sides**2, sides**2, 0, self.first)

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        outputs, attention = self.applied(model, params, self.inputs.read(inputs).arrays)
        assert isinstance(model, VisionTransformer)
        if not model.num_classes:
            return Prediction(np.asarray(outputs, np.float32), attention=attention)
        predicted = self.target.predicted(outputs, inputs)
        return dataclasses.replace(predicted, attention=attention)


def load(
    folder: Path,
    max_length: int = MOST_READ,
    dtype: DTypeLike = jnp.float32,
    warn: Callable[[str], None] = lambda line: None,
) -> tuple[Task, nn.Module, Params]:
    """Loads the task, the model and the parameters of a folder. Errors are those of `read`.

    Warns of a tokenizer that knows less than half of the tokens of the model, and of an end of
    texts that is no token.
    """
    require(jnp.issubdtype(dtype, jnp.floating), f"a dtype of floats, got {dtype}")
    config, model, params = read(folder, max_length, dtype)
    if isinstance(model, VisionTransformer):
        return images_of(folder, config, model), model, params
    first = config.content.get("bos_token_id")
    is_token = type(first) is int and 0 <= first < model.vocabulary_size
    tokenizer = read_tokenizer(folder, first if is_token else None)
    path, size, known = folder / "tokenizer.json", tokenizer.size, model.vocabulary_size
    require(size <= known, f"at most {known:,} tokens, as the model has, in {path}, got {size:,}")
    if 2 * size < known:
        warn(f"warning: {path} has {size:,} tokens, where the model has {known:,}; is it its own?")
    if isinstance(model, Decoder | EncoderDecoder):
        tokenizer.size = model.vocabulary_size  # some are there for no text
    if isinstance(model, EncoderDecoder):
        data, recipe = NoPairs(max_length=model.max_length), Recipe(decoding=Decoding(beam=1))
        longest = {"source": data.max_length, "target": MOST_WRITTEN // 2}
        end = config.get("eos_token_id", 1)
        sources = Sources(data, tokenizer, tokenizer, longest, end)
        target = WrittenText(data, recipe, sources, sources.target_words(range(tokenizer.size)))
        return Translated(data, recipe, sources, target), model, params
    if isinstance(model, Decoder):
        inputs = HubTokens(NoLanguage(max_length=model.max_length), tokenizer)
        ends = config.get("eos_token_id", [])
        ends = frozenset(ends if isinstance(ends, list) else [ends])
        beyond = sorted(end for end in ends if end >= known)
        if beyond:
            path, listed = folder / "config.json", ", ".join(map(str, beyond))
            warn(f"warning: no token of {known:,} has the eos_token_id {listed} in {path}")
        target = NextToken(inputs.data, Recipe(), inputs)
        return Continued(inputs.data, Recipe(), inputs, target, ends=ends), model, params
    assert isinstance(model, Encoder)
    names = class_names(config, model.num_classes)
    if model.head == "words":
        names = [tokenizer.written(i) for i in range(model.vocabulary_size)]
    labels = () if model.head == "states" else tuple(names)
    if model.head in ("states", "tokens"):
        names = NO_CLASSES
    data = NoTexts(tokenizer="bpe", max_length=model.max_length)
    reader = Reader(data, tokenizer, None)
    mask = tokenizer.model.token_to_id(MASK)
    mask = tokenizer.model.token_to_id("<mask>") if mask is None else mask
    options: Options = {"data": data, "recipe": Recipe(), "inputs": reader}
    options |= {"mask": mask, "folder": folder}
    if model.head == "classes" and model.num_classes == 1:
        target = Number(data, Recipe(), reader, Normalization(0.0, 1.0))
        return Rated(**options, target=target), model, params
    target = classes_of(reader, names)
    if model.head == "classes":
        return Read(**options, target=target), model, params
    return Masked(**options, target=target, labels=labels), model, params


def pooling_of(folder: Path, most: int) -> tuple[int, int, bool]:
    """Reads how sentence-transformers pools: the number of tokens that are read, of how many first
    ones a vector is the mean, and whether it has the length 1.

    Raises a UsageError for a module or a rule that is not covered.
    """
    if not (folder / "modules.json").exists():
        return most, most, False
    modules = json.loads((folder / "modules.json").read_bytes())
    paths = {one["type"].rsplit(".", 1)[-1]: folder / one["path"] for one in modules}
    known = {"Transformer", "Pooling", "Normalize"}
    require(paths.keys() <= known, f"modules of {', '.join(known)} in {folder}, got {[*paths]}")
    path = folder / "sentence_bert_config.json"
    most = min(read_json(path).get("max_seq_length") or most, most) if path.exists() else most
    path = paths["Pooling"] / "config.json"
    rule = ModelConfig(read_json(path), path)
    is_first = rule.get("pooling_mode_cls_token", False)
    rule.only(pooling_mode_mean_tokens=not is_first, include_prompt=True)
    rule.unused("word_embedding_dimension")
    for name in rule.content.keys() - rule.known:
        rule.only(**{name: False})
    return most, 1 if is_first else most, "Normalize" in paths


def images_of(folder: Path, config: ModelConfig, model: VisionTransformer) -> Task:
    """Makes the task of an encoder of images, whose pixels `preprocessor_config.json` scales."""
    require(model.num_classes != 1, f"no class or several of images in {folder}, got one")
    channels, name = model.channels, "preprocessor_config.json"
    scaling: JsonObject = {"image_mean": [0.5] * channels, "image_std": [0.5] * channels}
    if (folder / name).exists():
        scaling |= read_json(folder / name)
    preprocessing = ModelConfig(scaling, folder / name)
    preprocessing.only(do_rescale=True)
    if not preprocessing.get("do_normalize", True):
        scaling |= {"image_mean": [0] * channels, "image_std": [1] * channels}
    mean, std = (tuple(map(float, scaling[key])) for key in ("image_mean", "image_std"))
    data = NoImages(size=model.image_size, channels=channels, mean=mean, std=std)
    names = class_names(config, model.num_classes) or NO_CLASSES
    first = 2 if model.has_teacher_token else 1
    patches = model.image_size // model.patch_size
    inputs = ImagesOfAnySize(data, (model.image_size, model.image_size))
    return Seen(data, Recipe(), inputs, classes_of(inputs, names), patches=patches, first=first)


def class_names(config: ModelConfig, number: int) -> list[str]:
    """Returns the names of the classes, or their numbers where a config has none."""
    names = config.get("id2label", {})
    return [shortened(str(names.get(str(i), f"class {i}"))) for i in range(number)]


def classes_of(inputs: Input, names: list[str]) -> Classes:
    """Returns classes with these names; equal ones get their numbers."""
    counts = Counter(names)
    names = [name if counts[name] == 1 else f"{name} ({i})" for i, name in enumerate(names)]
    return Classes(inputs.data, Recipe(), inputs, names, [1.0] * len(names))
