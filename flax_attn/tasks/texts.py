"""Texts in classes."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import flax.linen as nn
import numpy as np
from jaxtyping import Array

from flax_attn.data import ngrams
from flax_attn.data.contents import check_classes
from flax_attn.data.sets import TextData
from flax_attn.data.text import END, PREPROCESSING, START, encode_labels
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params, forward
from flax_attn.tasks import classification
from flax_attn.tasks.encoders import Part, TextEncoder, knows_any
from flax_attn.tasks.task import (
    Examples,
    Kept,
    Measured,
    Prediction,
    Recipe,
    Rows,
    Task,
    as_texts,
    by_length,
    to_store,
)
from flax_attn.types import Batch, Tree, UserInput

NUM_EXAMPLES = 16


@dataclass(frozen=True)
class TextClasses(Task):
    """A task on texts in classes.

    `words` are those of the first test texts, in brackets the unknown ones.
    """

    kind = classification.KIND
    score = classification.SCORE
    measured = "accuracy"
    pictures = "texts"

    data: TextData
    recipe: Recipe
    kept: Kept
    encoder: TextEncoder
    rows: Rows
    test: Batch
    words: list[list[str]]

    @classmethod
    def load(cls, data: TextData, recipe: Recipe, manual_dir: Path | None) -> "TextClasses":
        """Texts as tokens, by a tokenizer that is fitted on the training split alone."""
        splits, classes, sums = data.load(manual_dir)
        clean = PREPROCESSING[data.preprocessing]
        cleaned = {name: [clean(text) for text in texts] for name, (texts, _) in splits.items()}
        encoder = TextEncoder.fit(data, cleaned["train"])
        if not any(cleaned["train"]):
            raise UsageError(
                "expected texts to train on, but preprocessing leaves nothing of any; choose "
                "another data.preprocessing"
            )
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
        ordered = {
            name: by_length(batch) if data.num_buckets > 1 else batch
            for name, batch in batches.items()
        }
        rows = Rows(ordered["train"], {name: ordered[name] for name in recipe.evaluate})
        words = [encoder.words(text) for text in cleaned["test"][:NUM_EXAMPLES]]
        return cls(data, recipe, kept, encoder, rows, batches["test"], words)

    @classmethod
    def restore(cls, data: TextData, recipe: Recipe, kept: Kept) -> "TextClasses":
        classification.check_classes(kept.derived["classes"], kept.derived["class_weights"])
        classification.check_labels(kept.files["labels.json"], kept.sizes["num_classes"])
        return cls(data, recipe, kept, TextEncoder.restore(data, kept), Rows({}, {}), {}, [])

    @classmethod
    def file_names(cls, data: TextData) -> tuple[str, ...]:
        return (*TextEncoder.file_names(data), "labels.json")

    @property
    def classes(self) -> list[str]:
        return self.kept.files["labels.json"]

    def sample(self) -> Inputs:
        shape = self.recipe.batch_size, 2
        inputs = {
            "tokens": np.zeros(shape, np.int32),
            "lengths": np.ones(self.recipe.batch_size, np.int32),
        }
        if self.data.num_pairs:
            inputs["pairs"] = np.zeros(shape, np.int32)
        if self.data.num_ngrams:
            dtype = np.min_scalar_type(self.data.num_ngrams - 1)
            inputs["ngrams"] = np.zeros((*shape, ngrams.A_WORD), dtype)
        return inputs

    def measure(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> Measured:
        """As `classification.measure`."""
        weights = self.kept.derived["class_weights"]
        return classification.measure(self.recipe, weights, outputs, aux, batch, train)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Examples:
        """The first test texts with the first seed's probabilities.

        The confusion matrix is of all seeds.
        """
        targets = self.test["targets"]
        outputs, attentions = zip(*(forward(model, seed, self.test["inputs"]) for seed in params))
        matrix, metrics, figures = classification.results(np.stack(outputs), targets, self.classes)
        tokens, lengths = (self.test["inputs"][key][:NUM_EXAMPLES] for key in ("tokens", "lengths"))
        words = [[*row, *[""] * (tokens.shape[1] - len(row))] for row in self.words]
        arrays = {
            "inputs": tokens,
            "lengths": lengths,
            "words": np.array(words, dtype=str),
            "targets": targets[:NUM_EXAMPLES],
            "predictions": classification.probabilities(outputs[0][:NUM_EXAMPLES]),
            "confusion": matrix,
        }
        attention = {name: weights[:NUM_EXAMPLES] for name, weights in attentions[0].items()}
        return Examples(arrays | to_store(attention), metrics, figures)

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """The classes of a text, or of several.

        Raises:
            UsageError: a text without a token, or of unknown words alone.
        """
        texts = as_texts(inputs)
        parts = self.parts(texts)
        encoded = self.encoder.inputs([self.encoder.clean(text) for text in texts])
        prediction = classification.predict(model, params, encoded, self.classes)
        tokens = [[part for part, _ in row] for row in parts]
        known = [[known for _, known in row] for row in parts]
        return dataclasses.replace(prediction, tokens=tokens, known=known)

    def input_shapes(self) -> Tree:
        shapes = {"tokens": "b, t", "lengths": "b", "pairs": "b, t", "ngrams": "b, t, ..."}
        return {name: shapes[name] for name in self.sample()}

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """As `classification.compute`, of tokens and lengths."""
        return classification.compute(model, params, inputs)

    def parts(self, texts: Sequence[str]) -> list[list[Part]]:
        """The parts of each text that the model sees."""
        if not texts:
            raise UsageError("expected a text, got none")
        rows = []
        for number, text in enumerate(texts, 1):
            cleaned = self.encoder.clean(text)
            parts = self.encoder.parts(cleaned)
            which = f", in text {number}" if len(texts) > 1 else ""
            if not text.strip() or not parts:
                left = f", of which '{cleaned[:60]}' is left" if text.strip() else ""
                raise UsageError(
                    f"expected a text with words in it, got {text[:60]!r}{left}{which}"
                )
            words = [part for part in parts if part[0] not in (START, END)]
            if not self.data.num_ngrams and not knows_any(words):
                raise UsageError(
                    f"expected a text with at least one word that the run has seen, got none in "
                    f"{text[:60]!r}{which}"
                )
            rows.append(parts)
        return rows
