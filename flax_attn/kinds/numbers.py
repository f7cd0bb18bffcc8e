"""A number for each text or signal, measured by the squared error in normalised units.

All of this kind stands here: its data sets, what its inputs are, and the task. A text model gives
the number as its one logit. Of a signal model it is the mean of the outputs over all positions.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.text import Text

from flax_attn.analysis.token_weights import of_hops
from flax_attn.data import contents, shapes, table
from flax_attn.data.normalization import Normalization
from flax_attn.data.sets import DataSet, Training
from flax_attn.data.sets.kinds import ReadTexts, check_validation
from flax_attn.data.sets.memory import Content, InMemory
from flax_attn.data.sets.memory import Rows as ContentRows
from flax_attn.data.sets.texts import TextTable
from flax_attn.data.splits import at_random, taken
from flax_attn.data.text import PREPROCESSING
from flax_attn.data.tokenizers import bracketed
from flax_attn.errors import UsageError, escaped
from flax_attn.files import expanded
from flax_attn.kinds import encoders, replies, user_files
from flax_attn.kinds.asking import Asked
from flax_attn.kinds.encoders import TextEncoder
from flax_attn.kinds.requests import (
    Load,
    Loaded,
    Request,
    ToWrite,
    check_figure,
    has_table,
    picture_to_write,
    print_json,
    table_to_write,
    write_all,
    writing,
)
from flax_attn.kinds.signals import check_signals, fit_normalization
from flax_attn.kinds.task import (
    Examples,
    Kept,
    Look,
    Measured,
    Prediction,
    Recipe,
    Rows,
    Task,
    as_texts,
    check_no_classes,
    check_shape,
    first_attention,
    first_of,
    for_buckets,
    outputs_of,
    to_store,
)
from flax_attn.kinds.token_rows import STRONG, describe_tokens, print_tokens
from flax_attn.models.forward import Inputs, Params, apply, forward
from flax_attn.runs.examples import FLOATS, TEXTS, WHOLE, Arrays, Form
from flax_attn.runs.reading import Record
from flax_attn.schema import Count, Fraction, PositiveInt
from flax_attn.training.metrics import mask_of, squared_error, weighted_mean
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

Raw = Tree  # a list of texts, or signals `(n, t, channels)`
NUM_EXAMPLES = 16  # test examples kept with their inputs and attention
NUM_POINTS = 2_000  # test examples kept with their number and the prediction
SHOWN = 8  # inputs in a picture


# data sets


class Numbered(NamedTuple):
    """Inputs and their numbers `(n,)` by split, and the SHA-256 sums of files that were read."""

    splits: dict[str, tuple[Raw, np.ndarray]]
    files: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class NumberData(DataSet):
    """A number for each input. A data set is of one of the two kinds below."""

    @abc.abstractmethod
    def load(self, manual_dir: Path | None) -> Numbered:
        """The splits `train`, `valid` and `test`; `valid` may be missing."""


@dataclass(frozen=True, kw_only=True)
class NumbersOfTexts(NumberData, ReadTexts):
    """A number for each text."""

    topic = "numbers of texts"


@dataclass(frozen=True, kw_only=True)
class NumbersOfSignals(NumberData):
    """A number for each signal."""

    topic = "numbers of signals"

    @property
    def shape(self) -> tuple[int, int] | None:
        """The length and the number of channels; None where only the data say."""
        return None


COUNTS = "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
COLOURS = "", "red ", "blue ", "old ", "small "
THINGS = "boats", "hats", "birds", "books", "shoes", "cups", "cats", "chairs"


def texts_with_counts(seed: int, number: int) -> tuple[list[str], np.ndarray]:
    """Texts with up to three numbers as words, among things without one, and the largest of each.

    Such as `the old boats and seven red hats and three birds`, whose largest is 7.
    """
    rng = np.random.default_rng(seed)
    pick = lambda words: words[rng.integers(len(words))]
    texts: list[str] = []
    largest: list[int] = []
    for _ in range(number):
        counts = rng.integers(1, len(COUNTS) + 1, size=rng.integers(1, 4)).tolist()
        beginnings = [COUNTS[count - 1] for count in counts] + ["the"] * rng.integers(1, 4)
        parts = [f"{word} {pick(COLOURS)}{pick(THINGS)}" for word in rng.permutation(beginnings)]
        texts.append(" and ".join(parts))
        largest.append(max(counts))
    return texts, np.array(largest, np.float32)


@dataclass(frozen=True, kw_only=True)
class Drawn(NumberData):
    """What data sets made in code have.

    Attributes:
        num_train: examples drawn for training and validation together.
        valid_fraction: the share of them that validates.
        num_test: examples drawn for the test.
    """

    num_train: Count = 10_000
    valid_fraction: Fraction = 0.1
    num_test: Count = 1_000

    def check_training(self, training: Training) -> None:
        check_validation(self.valid_fraction, training)


@dataclass(frozen=True, kw_only=True)
class LargestCount(Drawn, NumbersOfTexts):
    """Texts made in code, each with the largest of the numbers that it has as words."""

    def load(self, manual_dir: Path | None) -> Numbered:
        texts, numbers = texts_with_counts(self.seed, self.num_train + self.num_test)
        test = texts[self.num_train :], numbers[self.num_train :]
        rows = texts[: self.num_train], numbers[: self.num_train]
        return Numbered(parted(rows, self.valid_fraction, self.seed) | {"test": test})


@dataclass(frozen=True, kw_only=True)
class BoxSums(Drawn, NumbersOfSignals):
    """Signals of the shapes task, each with the sum of the heights of its two boxes."""

    @property
    def shape(self) -> tuple[int, int]:
        return shapes.LENGTH, 1

    def load(self, manual_dir: Path | None) -> Numbered:
        drawn = shapes.splits(
            self.seed,
            num_train=self.num_train,
            num_test=self.num_test,
            valid_fraction=self.valid_fraction,
        )
        sums = lambda rows: np.asarray(rows.shapes.heights[:, 2:].sum(axis=1))
        return Numbered(
            {name: (np.asarray(rows.inputs), sums(rows)) for name, rows in drawn.items()}
        )


@dataclass(frozen=True, kw_only=True)
class NumberCSV(TextTable, NumbersOfTexts):
    """The user's own table of texts and numbers, as `TextTable` reads it.

    Attributes:
        number_column: as `text_column`.
    """

    beside = "number"

    number_column: str = "number"

    def load(self, manual_dir: Path | None) -> Numbered:
        rows, test = self.read()
        test_fraction = 0.0 if test else self.test_fraction
        splits = parted(rows, self.valid_fraction, self.seed, test_fraction)
        splits |= {"test": test} if test else {}
        self.check_splits(splits, len(rows[0]))
        return Numbered(splits, self.sums())

    def rows_in(self, path: str) -> tuple[list[str], np.ndarray]:
        columns = self.text_column, self.number_column
        rows = table.read_pairs(expanded(path), *columns, "number")
        numbers = [
            number_in(written.strip(), f"{path}, line {line}")
            for written, line in zip(rows.column(1), rows.lines)
        ]
        return rows.column(), np.array(numbers, np.float32)


def number_in(written: str, where: str) -> float:
    """The number that a table has. Raises a UsageError for what is none, or not finite."""
    try:
        number = float(written)
    except ValueError:
        number = float("nan")
    if not abs(number) <= contents.LARGEST:
        hint = " (with a point, as in 3.5)" if "," in written else ""
        beyond = f", beyond {contents.LARGEST:g}" if np.isfinite(number) else ""
        raise UsageError(
            f"expected a finite number{hint} in {where}, got '{written[:60]}'{beyond}; mend it"
        )
    return number


def parted(
    rows: ContentRows, valid_fraction: float, seed: int, test_fraction: float = 0.0
) -> dict[str, tuple[Raw, np.ndarray]]:
    """The splits of inputs and numbers at random; there is none where its share is 0."""
    fractions = {"valid": valid_fraction, "test": test_fraction}
    fractions = {name: fraction for name, fraction in fractions.items() if fraction}
    parts = at_random(len(rows[1]), list(fractions.values()), seed)
    return taken(rows, dict(zip([*fractions, "train"], parts)))


def check_numbers(where: str, numbers: UserInput) -> np.ndarray:
    """A user's numbers `(n,)` as float32. Raises a UsageError for others, and for no numbers."""
    array = contents.float32(where, numbers)
    if array.ndim != 1:
        raise UsageError(f"expected a number for each input (n,) in {where}, got {array.shape}")
    contents.check_finite(where, array)
    return array


def _with_valid(data: InMemory, content: Content) -> Numbered:
    """The splits of contents from Python; without `valid` it is held out of `train`."""
    splits = dict(content)
    if "valid" not in splits:
        splits |= parted(splits["train"], data.valid_fraction, data.seed)
    return Numbered(splits, {"data": data.sha256})


@dataclass(frozen=True, kw_only=True)
class TextNumbers(InMemory, NumbersOfTexts):
    """Texts from Python, and the number of each."""

    replaces = NumbersOfTexts

    @staticmethod
    def checked(where: str, inputs: UserInput, targets: UserInput) -> ContentRows:
        numbers = check_numbers(where, targets)
        texts, _ = contents.texts(where, inputs, range(len(numbers)))
        return texts, numbers

    def load(self, manual_dir: Path | None) -> Numbered:
        return _with_valid(self, self._content())


@dataclass(frozen=True, kw_only=True)
class SignalNumbers(InMemory, NumbersOfSignals):
    """Signals from Python, `(n, t)` or `(n, t, channels)`, and the number of each.

    Attributes:
        length, channels: of the signals.
    """

    replaces = NumbersOfSignals
    sizes = "length", "channels"

    length: PositiveInt
    channels: PositiveInt

    @staticmethod
    def checked(where: str, inputs: UserInput, targets: UserInput) -> ContentRows:
        numbers = check_numbers(where, targets)
        signals = contents.real_numbers(where, inputs)
        signals = signals[..., None] if signals.ndim == 2 else signals
        if signals.ndim != 3 or not signals.size:
            raise UsageError(
                f"expected signals (n, t) or (n, t, channels) in {where}, got {signals.shape}"
            )
        contents.check_as_many(where, signals, numbers)
        return check_signals(signals, (signals.shape[1], signals.shape[2]), where), numbers

    @property
    def shape(self) -> tuple[int, int]:
        return self.length, self.channels

    def load(self, manual_dir: Path | None) -> Numbered:
        return _with_valid(self, self._content())


# what the inputs are


class Texts(TextEncoder):
    """Texts, as tokens by a tokenizer that is fitted on the training split alone."""

    @classmethod
    def fit(cls, data: ReadTexts, texts: Sequence[str]) -> "Texts":
        """As `TextEncoder.fit`, on texts that are not yet preprocessed."""
        clean = PREPROCESSING[data.preprocessing]
        return super().fit(data, [clean(text) for text in texts])

    @classmethod
    def restore(cls, data: ReadTexts, kept: Kept) -> "Texts":
        if kept.sizes["num_classes"] != 1:
            raise ValueError(f"got num_classes {kept.sizes['num_classes']}")
        return super().restore(data, kept)

    def kept(self) -> Kept:
        """What a run keeps: the model gives the number as its only logit."""
        return Kept({}, self.sizes() | {"num_classes": 1}, self.files())

    def tested(self, texts: Sequence[str], inputs: Batch) -> dict[str, np.ndarray]:
        """The arrays that a run keeps of the first test examples."""
        words = [self.words(self.clean(text)) for text in texts]
        arrays = self.examples(inputs, words)
        return arrays | {"inputs": arrays["inputs"][..., None]}

    def requested(self, request: Request) -> list[str]:
        return self.texts_of(request, '"Seven hats."')


class Signals(NamedTuple):
    """Signals of one length, normalised by one mean and one deviation of the training split."""

    normalization: Normalization
    shape: tuple[int, int]

    @classmethod
    def fit(cls, data: NumbersOfSignals, signals: np.ndarray) -> "Signals":
        normalization = fit_normalization(signals)
        _, length, channels = signals.shape
        return cls(normalization, (length, channels))

    @classmethod
    def restore(cls, data: NumbersOfSignals, kept: Kept) -> "Signals":
        length, channels = data.shape or kept.derived["shape"]
        check_shape((length, channels))
        return cls(Normalization.restore(kept.derived["inputs"]), (length, channels))

    def kept(self) -> Kept:
        inputs = self.normalization._asdict()
        return Kept({"inputs": inputs, "shape": list(self.shape)}, {}, {})

    def encode(self, signals: Inputs) -> Inputs:
        return self.normalization.apply(signals)

    def sample(self, number: int) -> Inputs:
        return np.zeros((number, *self.shape), np.float32)

    def input_shapes(self) -> Tree:
        return f"b, t, {self.shape[1]}"

    def read(self, inputs: UserInput) -> tuple[Inputs, list[list[str]], list[list[bool]]]:
        signals = check_signals(inputs, self.shape).reshape(-1, *self.shape)
        return self.encode(signals), [], []

    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        signal = check_signals(asked.numbers(), self.shape, "the input")
        looked = look(signal.reshape(1, *self.shape))
        return looked, replies.attended(looked)

    def tested(self, signals: np.ndarray, inputs: Inputs) -> dict[str, np.ndarray]:
        lengths = np.full(len(signals), signals.shape[1])
        return {"inputs": np.asarray(signals), "lengths": lengths}

    def requested(self, request: Request) -> np.ndarray:
        if request.texts or request.source is None:
            raise UsageError(
                f"expected --input FILE with signals of {self.shape[0]} points, and no text, for a "
                f"run on signals"
            )
        source = request.source
        signals = check_signals(user_files.read_signals(source), self.shape, str(source))
        return signals.reshape(-1, *self.shape)


Reader = Texts | Signals


def reader_class(data: NumberData) -> "type[Texts] | type[Signals]":
    """What the inputs of a data set are."""
    if isinstance(data, NumbersOfTexts):
        return Texts
    if isinstance(data, NumbersOfSignals):
        return Signals
    names = f"{NumbersOfTexts.__name__} or {NumbersOfSignals.__name__}"
    raise UsageError(f"expected a subclass of {names} as data.name, got {type(data).__name__}")


# the task


def check_examples(arrays: Arrays, model: JsonObject) -> dict[str, int]:
    """Raises a ValueError unless the inputs are finite, and the first ones that were tested."""
    if not np.isfinite(arrays["inputs"]).all():
        raise ValueError("the examples inputs are not finite")
    if len(arrays["inputs"]) > len(arrays["targets"]):
        raise ValueError("the examples have more inputs than targets")
    return {}


@dataclass(frozen=True)
class Numbers(Task):
    """A task on numbers. `first` are the inputs of the first test examples, as they came."""

    name = "numbers"
    problem = "regression"
    score = "mse"
    measured = "mae"
    data_class = NumberData
    data_sets = {
        "largest_count": LargestCount,
        "box_sums": BoxSums,
        "number_csv": NumberCSV,
        "text_numbers": TextNumbers,
        "signal_numbers": SignalNumbers,
    }
    form = Form(
        {
            "inputs": (FLOATS + WHOLE, "ntc"),
            "lengths": (WHOLE, "n"),
            "words?": (TEXTS, "nt"),
            "targets": (FLOATS, "m"),
            "predictions": (FLOATS, "m"),
        },
        attends="tt",
        lengths={"lengths": "t"},
        sizes=check_examples,
    )
    try_it = "explore", ""

    data: NumberData
    recipe: Recipe
    kept: Kept
    reader: Reader
    normalization: Normalization
    rows: Rows
    test: Batch
    first: Raw

    @classmethod
    def load(cls, data: NumberData, recipe: Recipe, manual_dir: Path | None) -> "Numbers":
        check_no_classes(recipe, "numbers, which have")
        splits, sums = data.load(manual_dir)
        inputs, numbers = splits["train"]
        if not len(numbers):
            raise UsageError(contents.NO_TRAINING)
        normalization = Normalization.of(numbers)
        if normalization.std == 0:
            raise UsageError(
                f"expected numbers to train on that vary, got {numbers[0]:g} everywhere; nothing "
                f"can be learned from it"
            )
        reader = reader_class(data).fit(data, inputs)  # pyright: ignore[reportArgumentType]
        batches: dict[str, Batch] = {
            name: {"inputs": reader.encode(column), "targets": normalization.apply(numbers)}
            for name, (column, numbers) in splits.items()
            if len(numbers)
        }
        kept = reader.kept()
        derived = {**normalization._asdict(), "files": sums, **kept.derived}
        num_buckets = data.num_buckets if isinstance(data, NumbersOfTexts) else 1
        ordered = {name: for_buckets(batch, num_buckets) for name, batch in batches.items()}
        measured = {name: ordered[name] for name in recipe.evaluate if name in ordered}
        rows, first = Rows(ordered["train"], measured), splits["test"][0][:NUM_EXAMPLES]
        kept = kept._replace(derived=derived)
        return cls(data, recipe, kept, reader, normalization, rows, batches["test"], first)

    @classmethod
    def restore(cls, data: NumberData, recipe: Recipe, kept: Kept) -> "Numbers":
        reader = reader_class(data).restore(data, kept)  # pyright: ignore[reportArgumentType]
        return cls(
            data, recipe, kept, reader, Normalization.restore(kept.derived), Rows({}, {}), {}, []
        )

    @classmethod
    def file_names(cls, data: NumberData) -> tuple[str, ...]:
        return Texts.file_names(data) if isinstance(data, NumbersOfTexts) else ()

    @classmethod
    def to_try(cls, data: DataSet, model: type[nn.Module]) -> tuple[str, str] | None:
        if isinstance(data, NumbersOfTexts):
            return "predict", '"A TEXT" --figure attention.png'
        return super().to_try(data, model)

    @property
    def shape(self) -> tuple[int, int] | None:
        """The length and the number of channels of signals; None for texts."""
        return None if isinstance(self.reader, Texts) else self.reader.shape

    def sample(self) -> Inputs:
        return self.reader.sample(self.recipe.batch_size)

    def measure(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> Measured:
        """The mean squared error, and the mean absolute error in the user's units.

        What a model adds to the loss is added.
        """
        mask, predicted = mask_of(batch, len(outputs)), number_of(outputs)
        error = squared_error(predicted, batch["targets"], mask)
        distance = jnp.abs(predicted - batch["targets"]) * self.normalization.std
        loss = error.compute()
        if "penalty" in aux:
            loss = loss + weighted_mean(aux["penalty"], mask).compute()
        return loss, {"mse": error, "mae": weighted_mean(distance, mask)}

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Examples:
        """The numbers of the test as predicted by all seeds, and the first inputs.

        The attention on these is that of the first seed.
        """
        outputs, attentions = zip(*(forward(model, seed, self.test["inputs"]) for seed in params))
        predicted = self.normalization.undo(np.mean([number_of(one) for one in outputs], axis=0))
        right = self.normalization.undo(self.test["targets"])
        first = jax.tree.map(lambda array: array[:NUM_EXAMPLES], self.test["inputs"])
        arrays = self.reader.tested(self.first, first)
        arrays |= {"targets": right[:NUM_POINTS], "predictions": predicted[:NUM_POINTS]}
        attention = {name: weights[:NUM_EXAMPLES] for name, weights in attentions[0].items()}
        metrics: dict[str, list[float]] = {}
        if len(params) > 1:
            metrics["ensemble/test/mae"] = [float(np.abs(predicted - right).mean())]
        return Examples(arrays | to_store(attention), metrics)

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """The number of each input, the mean over the seeds, and the attention of the first seed.

        Raises:
            UsageError: texts without a known token, signals of another shape, or numbers that
                overflow.
        """
        examples = as_texts(inputs) if isinstance(self.reader, Texts) else inputs
        encoded, tokens, known = self.reader.read(examples)
        count = len(jax.tree.leaves(encoded)[0])
        outputs, attentions = zip(*(forward(model, seed, encoded, count) for seed in params))
        predicted = self.normalization.undo(np.mean([number_of(one) for one in outputs], axis=0))
        check_finite(predicted)
        return Prediction(predicted, tokens=tokens, known=known, attention=attentions[0])

    def input_shapes(self) -> Tree:
        return self.reader.input_shapes()

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """`predict` as a pure function: the numbers `(b,)`, and the attention by name."""
        prepared = inputs if isinstance(self.reader, Texts) else self.reader.encode(inputs)
        outputs, attentions = zip(*(apply(model, seed, prepared) for seed in params))
        predicted = jnp.stack([number_of(output) for output in outputs]).mean(axis=0)
        return {"outputs": self.normalization.undo(predicted), "attention": attentions[0]}

    @classmethod
    def respond(cls, request: Request, load: Load, console: "Console") -> list[Path]:
        """Prints the number of each text with the weights of its tokens, or of each signal.

        The numbers of a table of texts are written beside its texts.
        """
        check_figure(request.figure, request.source)
        run = load()
        assert isinstance(run.task, Numbers)
        if has_table(request) and isinstance(run.task.reader, Texts):
            return respond_beside(request, run, run.task.reader, console)
        output = request.output
        if output is not None:
            user_files.check_destination(output, "--output", user_files.ARRAYS, request.source)
        inputs = run.task.reader.requested(request)
        prediction = run.predict(inputs)
        rows = describe(inputs, prediction)
        if request.as_json:
            print_json(rows, console)
        else:
            print_rows(rows, console)
        predicted = outputs_of(prediction)
        to_write: ToWrite = {}
        if output is not None:
            column = predicted if output.suffix == ".npy" else predicted[:, None]
            to_write[output] = lambda path: user_files.write_signals(path, column)
        draw = lambda: draw_predicted(inputs, prediction, request.run.name)
        return write_all(to_write | picture_to_write(request, draw))

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        looked, reply = self.reader.answer(asked, look)
        check_finite(looked["outputs"])
        return reply | {"outputs": replies.array(looked["outputs"][:1])}

    @classmethod
    def does(cls, run: Record) -> str:
        return f"tells the number of a {'text' if 'words' in run.examples else 'signal'}"

    @classmethod
    def sentence(cls, run: Record) -> str:
        return f"{cls.does(run)}, off by {run.mean('mae'):.2g} on average"

    @classmethod
    def comparison(cls, run: Record) -> str:
        mean = run.config["derived"]["mean"]
        distance = float(np.abs(run.examples["targets"] - mean).mean())
        return f"One that always says {mean:.3g}, the mean, is off by {distance:.2g}."

    @classmethod
    def remarks(cls, run: Record, data: DataSet) -> list[str]:
        """What one that always says the mean is off by."""
        return [cls.comparison(run)]

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        drawn = {"predictions": draw_scatter(run)}
        targets, predicted = (run.examples[name] for name in ("targets", "predictions"))
        verdicts = [
            f"{number:.3g}, right is {right:.3g}" for number, right in zip(predicted, targets)
        ]
        for name, weights in run.attention.items():
            title = f"{run.name}, {name}: test examples"
            if "words" in run.examples:
                drawn[name] = draw_texts(kept_words(run), name, weights, verdicts, title)
            else:
                drawn[name] = draw_signals(run.examples["inputs"], verdicts, weights, title)
        return drawn

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """The tokens of a text, or the channels `(channels, t)` of a signal, and its number."""
        numbers = {key: float(run.examples[f"{key}s"][index]) for key in ("target", "prediction")}
        if "words" in run.examples:
            return encoders.example(run, index) | numbers
        return {"inputs": replies.numbers(run.examples["inputs"][index].T)} | numbers

    @classmethod
    def beside_examples(cls, run: Record) -> JsonObject:
        """The numbers of the test and their predictions, as far as they are kept."""
        names = ("targets", "predictions")
        return {name: replies.numbers(run.examples[name]) for name in names}

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        return encoders.within(run, index, super().weights(run, index))


def number_of(outputs: Tree) -> Tree:
    """The number `(b,)` of each row of outputs `(b, 1)`; of `(b, t, 1)` it is the mean over t."""
    number = outputs[..., 0]
    return number.mean(axis=1) if number.ndim == 2 else number


def check_finite(predicted: np.ndarray) -> None:
    """Raises a UsageError for predictions that overflow."""
    if not np.isfinite(predicted).all():
        raise UsageError(
            "expected inputs in the range that the model was trained on; the predictions overflow"
        )


# what is printed and drawn


def respond_beside(request: Request, run: Loaded, reader: Texts, console: "Console") -> list[Path]:
    """Writes a table with the number of each text."""
    output = table_to_write(request)
    rows, usable, texts = reader.rows_of(request)
    prediction = run.predict(texts)
    if request.as_json:
        print_json(describe(texts, prediction), console)
    to_write: ToWrite = {}
    if output is not None:
        numbers = [f"{number:.6g}" for number in outputs_of(prediction)]
        to_write[output] = writing(rows, usable, {"predicted_number": numbers})
    draw = lambda: draw_predicted(texts, prediction, request.run.name)
    return write_all(to_write | picture_to_write(request, draw))


def describe(inputs: Raw, prediction: Prediction) -> list[JsonObject]:
    """Of each text or signal the number, and the tokens of a text with their weights."""
    tokens = describe_tokens(prediction)
    rows: list[JsonObject] = []
    for i, number in enumerate(outputs_of(prediction)):
        text = inputs[i] if isinstance(inputs, list) else f"signal {i}"
        row: JsonObject = {"input": text, "number": float(f"{number:.6g}")}
        if prediction.attention and tokens:
            row["tokens"] = tokens[i]
        rows.append(row)
    return rows


def print_rows(rows: list[JsonObject], console: "Console") -> None:
    for row in rows:
        console.print(Text(escaped(row["input"]), style="bold"), soft_wrap=True)
        console.print(Text(f"  {row['number']:.4g}"))
        if tokens := row.get("tokens"):
            print_tokens(tokens, console)


def kept_words(run: Record) -> list[list[str]]:
    """The words of the first texts that a run has kept."""
    rows = zip(run.examples["words"][:SHOWN], run.examples["lengths"])
    return [row[:length].tolist() for row, length in rows]


def draw_scatter(run: Record) -> "Figure":
    """Predictions over the true numbers of the test, with the line where both are equal."""
    from flax_attn.analysis import drawing

    def draw() -> "Figure":
        targets, predicted = (run.examples[name] for name in ("targets", "predictions"))
        figure = drawing.Picture(figsize=(5.4, 5.2), layout="constrained")
        ax = figure.subplots()
        both = np.concatenate([targets, predicted])
        room = 0.04 * float(np.ptp(both)) or 1.0
        ends = [float(both.min()) - room, float(both.max()) + room]
        ax.plot(ends, ends, color=drawing.theme().quiet, lw=1.2, ls="--", label="right")
        ax.scatter(
            targets, predicted, s=14, color=drawing.BLUE, alpha=0.45, lw=0, label="test example"
        )
        ax.set(xlim=ends, ylim=ends, aspect="equal", xlabel="true number", ylabel="prediction")
        ax.grid(alpha=0.2)
        ax.legend(loc="upper left")
        error = run.mean("mae")
        figure.suptitle(f"{run.name}: off by {error:.2g} on average on {len(targets)} of the test")
        return figure

    return drawing.styled(draw)()


def draw_texts(
    words: list[list[str]], name: str, weights: np.ndarray, predicted: list[str], title: str
) -> "Figure":
    """Draws an attention on the tokens of texts, with the number of each."""
    from flax_attn.analysis import drawing
    from flax_attn.analysis import texts as figures
    from flax_attn.analysis.token_weights import over_tokens

    over = [over_tokens(name, matrix, len(row)).tolist() for matrix, row in zip(weights, words)]
    verdicts = [(text, drawing.theme().ink) for text in predicted[: len(words)]]
    return figures.attention_on_tokens(words, over, verdicts, f"{title}: {STRONG}")


def draw_signals(
    signals: np.ndarray, predicted: list[str], weights: np.ndarray | None, title: str
) -> "Figure":
    """Draws signals `(n, t, channels)` with their numbers beside what each position attends to."""
    from flax_attn.analysis import drawing
    from flax_attn.analysis.matrices import draw_matrix

    def draw() -> "Figure":
        shown, columns = min(len(signals), SHOWN // 2), 1 if weights is None else 2
        size = 1.5 + 3.4 * columns, 2.7 * shown + 0.6
        figure = drawing.Picture(figsize=size, layout="constrained")
        axes = figure.subplots(shown, columns, squeeze=False, width_ratios=(1.6, 1)[:columns])
        for i in range(shown):
            axes[i, 0].plot(signals[i], color=drawing.BLUE, lw=1.6)
            axes[i, 0].set(xlabel="position", ylabel="height", title=predicted[i])
            if weights is not None:
                matrix = weights[i].reshape(-1, *weights.shape[-2:]).mean(axis=0)
                top = float(np.nan_to_num(matrix).max())
                draw_matrix(axes[i, 1], matrix, top=top)
                axes[i, 1].set(xlabel="key", ylabel="query", title="attention")
                drawing.colour_bar(figure, top, ax=axes[i, 1])
        figure.suptitle(title)
        return figure

    return drawing.styled(draw)()


def draw_predicted(inputs: Raw, prediction: Prediction, name: str) -> "Figure":
    """Draws the first attention on a user's texts or signals.

    Raises:
        UsageError: a model that does not attend to texts.
    """
    predicted = [f"{number:.4g}" for number in outputs_of(prediction)]
    kind, weights = first_attention(prediction)
    if not isinstance(inputs, list):
        return draw_signals(inputs, predicted, weights, first_of("signal", SHOWN // 2, len(inputs)))
    if weights is None:
        raise UsageError(f"the model of {name} does not attend; leave out --figure")
    rows = zip(prediction.tokens, prediction.known)
    words = [bracketed(zip(row, known)) for row, known in rows][:SHOWN]
    if len(inputs) == 1 and weights.ndim == 3:
        from flax_attn.analysis import texts as figures

        title = f"{predicted[0]}: what each {'hop' if of_hops(kind) else 'token'} attends to"
        return figures.attention_map(words[0], weights[0], of_hops(kind), title)
    return draw_texts(words, kind, weights, predicted, first_of("text", SHOWN, len(inputs)))
