"""Texts in classes."""

import dataclasses
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import flax.linen as nn
import numpy as np
from rich.text import Text

from flax_attn.analysis.token_weights import of_hops
from flax_attn.data.contents import check_classes
from flax_attn.data.sets import DataSet, TextData
from flax_attn.data.sets.texts import TextCSV
from flax_attn.data.text import PREPROCESSING, encode_labels
from flax_attn.data.tokenizers import bracketed
from flax_attn.errors import UsageError, escaped
from flax_attn.kinds import baselines, classification, encoders, evidence, replies
from flax_attn.kinds.asking import Asked
from flax_attn.kinds.baselines import Labelled
from flax_attn.kinds.encoders import TextEncoder
from flax_attn.kinds.requests import (
    TEXT_COLUMN,
    Load,
    Loaded,
    Request,
    check_printed,
    has_table,
    picture_to_write,
    print_json,
    read_texts,
    table_to_write,
    write_all,
    writing,
)
from flax_attn.kinds.task import (
    Examples,
    Kept,
    Look,
    Prediction,
    Recipe,
    Rows,
    as_texts,
    first_attention,
    first_of,
    for_buckets,
    outputs_of,
    to_store,
)
from flax_attn.kinds.token_rows import STRONG, token_weights
from flax_attn.models.forward import Inputs, Params, forward
from flax_attn.runs.examples import CLASSES, TEXTS, WHOLE, Form
from flax_attn.runs.reading import Record
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

NUM_EXAMPLES = 16
IN_PICTURE = "the picture shows the weights; a word with little weight may still decide"
BEST_MODEL = "ngram_attention"
WHY_BEST = "also reads parts of words and pairs of words; wants some thousand texts"


@dataclass(frozen=True)
class TextClasses(classification.Classes):
    """A task on texts in classes.

    `words` are those of the first test texts, in brackets the unknown ones. `labelled` are the
    preprocessed texts and classes of the splits `train` and `test`.
    """

    name = "texts"
    data_class = TextData
    form = Form(
        CLASSES | {"inputs": (WHOLE, "nt"), "lengths": (WHOLE, "n"), "words": (TEXTS, "nt")},
        attends="tt",
        lengths={"lengths": "t"},
        has_classes=True,
    )
    try_it = "predict", '"A TEXT" --why --figure attention.png'
    tells_why = True

    data: TextData
    recipe: Recipe
    kept: Kept
    encoder: TextEncoder
    rows: Rows
    test: Batch
    words: list[list[str]]
    labelled: Mapping[str, Labelled]

    @classmethod
    def load(cls, data: TextData, recipe: Recipe, manual_dir: Path | None) -> "TextClasses":
        """Texts as tokens, by a tokenizer that is fitted on the training split alone."""
        splits, classes, sums = data.load(manual_dir)
        clean = PREPROCESSING[data.preprocessing]
        cleaned = {name: [clean(text) for text in texts] for name, (texts, _) in splits.items()}
        encoder = TextEncoder.fit(data, cleaned["train"])
        check_classes({name: labels for name, (_, labels) in splits.items()})
        batches: dict[str, Batch] = {
            name: {
                "inputs": encoder.inputs(cleaned[name]),
                "targets": encode_labels(labels, classes),
            }
            for name, (_, labels) in splits.items()
        }
        weights = classification.class_weights(batches["train"]["targets"], len(classes))
        kept = Kept(
            {"classes": list(classes), "class_weights": weights, "files": sums},
            encoder.sizes() | {"num_classes": len(classes)},
            encoder.files() | {"labels.json": list(classes)},
        )
        ordered = {name: for_buckets(batch, data.num_buckets) for name, batch in batches.items()}
        rows = Rows(ordered["train"], {name: ordered[name] for name in recipe.evaluate})
        words = [encoder.words(text) for text in cleaned["test"][:NUM_EXAMPLES]]
        labelled = {name: (cleaned[name], splits[name][1]) for name in ("train", "test")}
        return cls(data, recipe, kept, encoder, rows, batches["test"], words, labelled)

    @classmethod
    def restore(cls, data: TextData, recipe: Recipe, kept: Kept) -> "TextClasses":
        classification.check_kept(kept)
        return cls(data, recipe, kept, TextEncoder.restore(data, kept), Rows({}, {}), {}, [], {})

    @classmethod
    def file_names(cls, data: TextData) -> tuple[str, ...]:
        return (*TextEncoder.file_names(data), "labels.json")

    def sample(self) -> Inputs:
        return self.encoder.sample(self.recipe.batch_size)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Examples:
        """The first test texts with the first seed's probabilities.

        The confusion matrix is of all seeds.
        """
        targets = self.test["targets"]
        outputs, attentions = zip(*(forward(model, seed, self.test["inputs"]) for seed in params))
        matrix, metrics, figures = classification.results(np.stack(outputs), targets, self.classes)
        arrays = self.encoder.examples(self.test["inputs"], self.words) | {
            "targets": targets[:NUM_EXAMPLES],
            "predictions": classification.probabilities(outputs[0][:NUM_EXAMPLES]),
            "confusion": matrix,
        }
        attention = {name: weights[:NUM_EXAMPLES] for name, weights in attentions[0].items()}
        simple = baselines.measure(self.labelled["train"], self.labelled["test"])
        return Examples(arrays | to_store(attention), metrics, figures | {"baselines": simple})

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """The classes of a text, or of several.

        Raises:
            UsageError: a text without a token, or of unknown words alone.
        """
        texts = as_texts(inputs)
        encoded, tokens, known = self.encoder.read(texts)
        prediction = classification.predict(model, params, encoded, self.classes)
        return dataclasses.replace(prediction, tokens=tokens, known=known)

    def input_shapes(self) -> Tree:
        return self.encoder.input_shapes()

    @classmethod
    def respond(cls, request: Request, load: Load, console: "Console") -> list[Path]:
        """Prints the classes of texts in falling order, with the weights of the tokens.

        The classes of a table are written beside its texts.
        """
        check_printed(request, tables=True)
        if has_table(request):
            return respond_beside(request, load, console)
        run = load()
        assert isinstance(run.task, TextClasses)
        texts = run.task.encoder.texts_of(request, '"The final starts next week."')
        prediction = run.predict(texts)
        tell(request, run, texts, prediction, console)
        return write_all(picture_to_write(request, lambda: draw(prediction, request.run.name)))

    @classmethod
    def tell_words(cls, request: Request, load: Load, console: "Console") -> None:
        """Prints of each class the words without which it is less probable, in texts of the test.

        With `--input`, the texts are those of a file.
        """
        run = load()
        task = run.task
        assert isinstance(task, TextClasses)
        if request.source is None:
            texts = task.tested(request.manual_dir)
        else:
            column = getattr(task.data, "text_column", TEXT_COLUMN)
            texts = read_texts(request, "", column)
        texts = [text for text in texts if task.encoder.can_read(text)]
        if not texts:
            raise UsageError("expected texts with a word that the run has seen, got none")
        chosen = np.linspace(0, len(texts) - 1, min(len(texts), request.num_texts)).astype(int)
        texts = [texts[i] for i in chosen]  # a file may stand in the order of its classes
        _, tokens, _ = task.encoder.read(texts)
        moved = evidence.changes(run, task.encoder, texts)
        table = evidence.words_by_class(tokens, moved, task.classes, request.num_words)
        if request.as_json:
            print_json(evidence.to_json(table, len(texts)), console)
        else:
            evidence.print_words(table, len(texts), console)

    def tested(self, manual_dir: Path | None) -> list[str]:
        """The texts of the test split, which are read again.

        Raises:
            UsageError: the data are not there, or are others than the run began with.
        """
        try:
            if isinstance(self.data, TextCSV):  # parsed afterwards: an error says what stands in it
                self.check_sums(self.data.sums())
            splits, _, sums = self.data.load(manual_dir)
            self.check_sums(sums)
        except UsageError as error:
            raise UsageError(f"{error}; or give texts by --input FILE") from error
        return list(splits["test"][0])

    def check_sums(self, sums: dict[str, str]) -> None:
        """Raises a UsageError for files that are others than the run began with."""
        if sums != self.kept.derived.get("files"):
            raise UsageError(
                f"expected {', '.join(sums)} as the run began with, got other contents; restore "
                "them"
            )

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        looked, reply = self.encoder.answer(asked, look)
        return reply | replies.classified(looked["outputs"][0], self.classes)

    @classmethod
    def comparison(cls, run: Record) -> str:
        simple = run.summary.get("baselines")
        return f"Beside it: {baselines.clause(simple)}." if simple else ""

    @classmethod
    def remarks(cls, run: Record, data: DataSet) -> list[str]:
        """The baselines beside the test accuracy, and what to try next on the user's own table."""
        simple = run.summary.get("baselines")
        lines = baselines.lines(simple, run.mean("accuracy")) if simple else []
        if not isinstance(data, TextCSV) or run.summary["model"] == BEST_MODEL:
            return lines
        keys = ["file", "test_file", "text_column", "label_column"]
        flags = shlex.join(
            f"--data.{key}={getattr(data, key)}" for key in keys if getattr(data, key)
        )
        return [*lines, f"to try next: flax-attn train text_csv_best {flags} ({WHY_BEST})"]

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import texts

        return texts.draw(run)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """The tokens of a text, which of them the model knows, and its classes."""
        return encoders.example(run, index) | classification.example(run, index)

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        return encoders.within(run, index, super().weights(run, index))


def tell(
    request: Request,
    run: Loaded,
    texts: list[str],
    prediction: Prediction,
    console: "Console",
) -> None:
    """Prints the classes of texts, and which words mattered where that is asked for."""
    rows = classification.describe(texts, prediction)
    if request.why:
        assert isinstance(run.task, TextClasses)
        moved = evidence.changes(run, run.task.encoder, texts)
        evidence.add(rows, prediction.tokens, moved, prediction.names)
    if request.as_json:
        print_json(rows, console)
        return
    for row in rows:
        classification.show_classes(row, console)
        if request.why:
            evidence.print_why(row, console)
    if request.why and request.figure is not None:
        console.print(Text(IN_PICTURE, style="dim"), soft_wrap=True)


def respond_beside(request: Request, load: Load, console: "Console") -> list[Path]:
    """Writes a table with the class of each text and its probability, and counts the classes."""
    output, run = table_to_write(request), load()
    task = run.task
    assert isinstance(task, TextClasses)
    rows, usable, texts = task.encoder.rows_of(request)
    prediction = run.predict(texts)
    if request.as_json or request.why:
        tell(request, run, texts, prediction, console)
    to_write = picture_to_write(request, lambda: draw(prediction, request.run.name))
    if output is not None:
        shares = [f"{best:.4g}" for best in outputs_of(prediction).max(axis=-1)]
        added = {"predicted_class": prediction.classes, "probability": shares}
        to_write[output] = writing(rows, usable, added)
    paths = write_all(to_write)
    if not request.as_json:
        counts = Counter(prediction.classes).most_common()
        listed = ", ".join(f"{number:,} {name}" for name, number in counts)
        console.print(Text(escaped(f"{len(texts):,} texts: {listed}")), soft_wrap=True)
    return paths


def draw(prediction: Prediction, name: str) -> "Figure":
    """Draws the first attention on the tokens of the texts, or the matrix of a single text.

    Raises:
        UsageError: a model that does not attend.
    """
    from flax_attn.analysis import texts as figures
    from flax_attn.analysis.classes import drawn_names, verdict

    kind, weights = first_attention(prediction)
    if weights is None:
        raise UsageError(f"the model of {name} does not attend; leave out --figure")
    words = [bracketed(zip(row, known)) for row, known in zip(prediction.tokens, prediction.known)]
    names = drawn_names(prediction.names)
    verdicts = [verdict(shares, names) for shares in outputs_of(prediction)]
    best, is_one = verdicts[0][0], len(words) == 1
    if is_one and weights.ndim == 3:
        title = f"{best}: what each {'hop' if of_hops(kind) else 'token'} attends to"
        return figures.attention_map(words[0], weights[0], of_hops(kind), title)
    shown = slice(None, figures.SHOWN)
    return figures.attention_on_tokens(
        words[shown],
        token_weights(prediction)[shown],
        [] if is_one else verdicts[shown],
        f"{best if is_one else first_of('text', figures.SHOWN, len(words))}: {STRONG}",
    )
