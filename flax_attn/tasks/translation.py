"""Texts that become other texts.

These are translations, the user's own pairs, and two tasks whose answers are known.
"""

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import flax.linen as nn
import numpy as np
from jaxtyping import Array

from flax_attn.data.pairs import Pair
from flax_attn.data.sets import Dates, PairData, Reverse
from flax_attn.data.text import pad
from flax_attn.errors import UsageError
from flax_attn.fields import LARGEST_BY_NAME
from flax_attn.models.decoding import Decoding, Translation, decode, translate
from flax_attn.models.forward import Inputs, Params
from flax_attn.tasks import alignment, next_token
from flax_attn.tasks.encoders import PairEncoder, knows_any
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
)
from flax_attn.types import Batch, Tree, UserInput

NUM_EXAMPLES = 16


@dataclass(frozen=True)
class PairsOfTexts(Task):
    """A task on texts that become other texts."""

    kind = "translation"
    score = "loss"
    measured = "accuracy"
    pictures = "translation"

    data: PairData
    recipe: Recipe
    kept: Kept
    encoder: PairEncoder
    rows: Rows
    test: Batch
    pairs: list[Pair]

    @classmethod
    def load(cls, data: PairData, recipe: Recipe, manual_dir: Path | None) -> "PairsOfTexts":
        """Pairs as tokens, by tokenizers that are fitted on the training split alone."""
        if recipe.class_weights:
            raise UsageError("expected class_weights=False for translation, which has no classes")
        if data.is_natural and importlib.util.find_spec("sacrebleu") is None:
            raise UsageError(
                "expected the package sacrebleu, which measures translations; pip install "
                '"flax-attn[translate]"'
            )
        splits, sums = data.load(manual_dir)
        encoder = PairEncoder.fit(data, splits["train"])
        batches = {name: encoder.rows(pairs) for name, pairs in splits.items()}
        ordered = {
            name: by_length(batch) if data.num_buckets > 1 else batch
            for name, batch in batches.items()
        }
        inputs = batches["train"]["inputs"]
        longest = {side: int(inputs[f"{side}_lengths"].max()) for side in ("source", "target")}
        kept = Kept({"files": sums, "longest": longest}, encoder.sizes(), encoder.files())
        rows = Rows(ordered["train"], {name: ordered[name] for name in recipe.evaluate})
        return cls(data, recipe, kept, encoder, rows, batches["test"], splits["test"])

    @classmethod
    def restore(cls, data: PairData, recipe: Recipe, kept: Kept) -> "PairsOfTexts":
        longest = [kept.derived["longest"][side] for side in ("source", "target")]
        if not all(isinstance(length, int) and length > 0 for length in longest):
            raise ValueError(f"got longest {kept.derived['longest']}")
        return cls(data, recipe, kept, PairEncoder.restore(data, kept), Rows({}, {}), {}, [])

    @classmethod
    def file_names(cls, data: PairData) -> tuple[str, ...]:
        return PairEncoder.file_names(data)

    @property
    def longest_source(self) -> int:
        """The tokens of the longest source in training."""
        return self.kept.derived["longest"]["source"]

    @property
    def max_length(self) -> int:
        """The tokens that a translation may have: twice those of the longest in training."""
        return 2 * self.kept.derived["longest"]["target"]

    def sample(self) -> Inputs:
        tokens = np.zeros((self.recipe.batch_size, 2), np.int32)
        lengths = np.ones(self.recipe.batch_size, np.int32)
        return {
            "source": tokens,
            "source_lengths": lengths,
            "target": tokens,
            "target_lengths": lengths,
        }

    def measure(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> Measured:
        """As `next_token.measure`."""
        return next_token.measure(self.recipe, outputs, batch, train)

    def translate(
        self,
        model: nn.Module,
        params: Params,
        sources: Inputs,
        decoding: Decoding,
        num_best: int = 1,
    ) -> list[list[Translation]]:
        """The best translations of encoded sources."""
        options = {"end": self.encoder.end, "max_length": self.max_length, "num_best": num_best}
        return translate(model, params, sources, decoding, **options)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Examples:
        """All of the test translated by beam and greedily.

        Some of it has the alignments of the first seed.
        """
        sources = {key: self.test["inputs"][key] for key in ("source", "source_lengths")}
        search = lambda decoding: [
            [best for (best,) in self.translate(model, seed, sources, decoding)] for seed in params
        ]
        by_beam = search(self.recipe.decoding)
        greedy = (
            by_beam
            if self.recipe.decoding.beam == 1
            else search(dataclasses.replace(self.recipe.decoding, beam=1))
        )
        return self.describe(by_beam, greedy)

    def describe(
        self, by_beam: list[list[Translation]], greedy: list[list[Translation]]
    ) -> Examples:
        """What is said of the translations of the test, by seed."""
        references = [pair.target for pair in self.pairs]
        texts = [[self.encoder.write(best.tokens) for best in row] for row in by_beam]
        metrics, summary = {}, {}
        greedy_texts = [[self.encoder.write(best.tokens) for best in row] for row in greedy]
        for prefix, rows in (("test/", texts), ("greedy/test/", greedy_texts)):
            measures = (
                score(row, references, self.encoder.clean, self.data.is_natural) for row in rows
            )
            scores, signatures = zip(*measures)
            metrics |= {prefix + name: [seed[name] for seed in scores] for name in scores[0]}
            summary |= {"signatures": signatures[0]} if signatures[0] else {}
        metrics |= self._alignment_metrics([[best.alignment for best in row] for row in by_beam])
        header = ("source", "reference", *(f"translation {i}" for i in range(len(texts))))
        table = [header, *zip(*zip(*self.pairs), *texts)]
        lines = "".join("\t".join(cells) + "\n" for cells in table)
        return Examples(self._arrays(by_beam[0]), metrics, summary, {"translations.tsv": lines})

    def _alignment_metrics(self, alignments: list[list[np.ndarray]]) -> dict[str, list[float]]:
        """Whether attention points where the answer is known to be read from."""
        data = self.data
        if isinstance(data, Reverse):
            return {"test/anti_diagonal": [alignment.anti_diagonal(row) for row in alignments]}
        if isinstance(data, Dates) and (data.tokenizer, data.preprocessing) == (
            "character",
            "lower",
        ):
            sources = [pair.source for pair in self.pairs]
            return {
                "test/month_from_name": [
                    alignment.month_from_name(sources, row) for row in alignments
                ]
            }
        return {}

    def _arrays(self, translations: list[Translation]) -> dict[str, np.ndarray]:
        """The arrays of the first examples: tokens as text, and alignments."""
        pairs, best = self.pairs[:NUM_EXAMPLES], translations[:NUM_EXAMPLES]
        predictions, lengths = pad([row.tokens for row in best])
        weights = np.zeros(
            (*predictions.shape, max(row.alignment.shape[1] for row in best)), np.float32
        )
        for i, row in enumerate(best):
            weights[i, : row.alignment.shape[0], : row.alignment.shape[1]] = row.alignment
        return {
            "inputs": self.test["inputs"]["source"][: len(pairs)],
            "targets": self.test["targets"][: len(pairs)],
            "predictions": predictions,
            "source_lengths": self.test["inputs"]["source_lengths"][: len(pairs)],
            "prediction_lengths": lengths,
            "source_words": _table([self.encoder.source_words(pair.source) for pair in pairs]),
            "predicted_words": _table([self.encoder.target_words(row.tokens) for row in best]),
            "references": np.array([pair.target for pair in pairs], dtype=str),
            "attention/alignment": weights,
        }

    def predict(
        self,
        model: nn.Module,
        params: Sequence[Params],
        inputs: UserInput,
        *,
        beam: int | None = None,
        num_best: int = 1,
    ) -> Prediction:
        """Translations of a text, or of several, by the first seed.

        Args:
            beam: of the search; None for that of the run.
            num_best: how many translations of each text are wanted, at most the beam.

        Raises:
            UsageError: more translations wanted than the beam holds.
        """
        texts, decoding = as_texts(inputs), self.recipe.decoding
        check_whole("beam", decoding.beam if beam is None else beam)
        check_whole("num_best", num_best)
        decoding = decoding if beam is None else dataclasses.replace(decoding, beam=beam)
        if not 1 <= num_best <= decoding.beam:
            raise UsageError(
                f"expected from 1 to the beam of {decoding.beam} translations of each text, got "
                f"{num_best}"
            )
        parts = [self.encoder.source_parts(text) for text in texts]
        usable = [i for i, row in enumerate(parts) if knows_any(row)]
        translations: list[list[Translation]] = [[] for _ in texts]
        if usable:
            sources = self.encoder.sources([texts[i] for i in usable])
            for i, best in zip(
                usable, self.translate(model, params[0], sources, decoding, num_best)
            ):
                translations[i] = best
        written = [[self.encoder.write(best.tokens) for best in row] for row in translations]
        return Prediction(
            [row[0] if row else "" for row in written],
            tokens=[[part for part, _ in row] for row in parts],
            known=[[known for _, known in row] for row in parts],
            attention={
                "alignment": [row[0].alignment if row else np.zeros((0, 0)) for row in translations]
            },
            translations=translations,
            written=written,
            target_tokens=[
                [self.encoder.target_words(best.tokens) for best in row] for row in translations
            ],
        )

    def input_shapes(self) -> Tree:
        return {"source": "b, s", "source_lengths": "b"}

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """Greedy translations by the first seed: `tokens` `(b, n)`, zeros after their `lengths`."""
        decoding = dataclasses.replace(self.recipe.decoding, beam=1)
        options = {"end": self.encoder.end, "max_length": self.max_length, "num_best": 1}
        decoded = decode(model, params[0], inputs, decoding=decoding, **options)
        tokens, lengths, scores, _, alignment = (leaf[:, 0] for leaf in decoded)
        arrays = {"tokens": tokens, "lengths": lengths, "scores": scores}
        return arrays | {"attention": {"alignment": alignment}}


def score(
    texts: Sequence[str], references: Sequence[str], clean: Callable[[str], str], natural: bool
) -> tuple[dict[str, float], list[str]]:
    """Exact match; of languages BLEU and chrF by sacrebleu, lower-cased, and their signatures."""
    exact = [clean(text) == clean(reference) for text, reference in zip(texts, references)]
    scores = {"exact_match": float(np.mean(exact))}
    if not natural:
        return scores, []
    from sacrebleu.metrics import BLEU, CHRF  # pyright: ignore

    measures = {"bleu": BLEU(lowercase=True), "chrf": CHRF(lowercase=True)}
    for name, measure in measures.items():
        scores[name] = float(measure.corpus_score(list(texts), [list(references)]).score)
    return scores, [f"{name}: {measure.get_signature()}" for name, measure in measures.items()]


def _table(rows: list[list[str]]) -> np.ndarray:
    """Rows of words as one array, filled up with empty ones."""
    longest = max(map(len, rows))
    return np.array([[*row, *[""] * (longest - len(row))] for row in rows], dtype=str)


def check_whole(name: str, number: UserInput) -> None:
    """Raises a UsageError for what is no number of translations."""
    most = LARGEST_BY_NAME["beam"]
    if not isinstance(number, int | np.integer) or not 1 <= number <= most:
        raise UsageError(f"expected {name} to be a whole number from 1 to {most:,}, got {number!r}")
