"""A text for each text, trained on the cross-entropy of its tokens."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Array
from rich.text import Text

from flax_attn.analysis.token_weights import printable
from flax_attn.data import dates
from flax_attn.data.raw import Columns, Raw
from flax_attn.data.sets import Dates, PairData, Reverse
from flax_attn.errors import UsageError, escaped
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies, requests
from flax_attn.tasks.artifacts import LossAndMetrics, Prediction, Recipe
from flax_attn.tasks.comparison import ExampleScores
from flax_attn.tasks.inputs.base import Input
from flax_attn.tasks.inputs.pairs import Pairs
from flax_attn.tasks.targets.base import Headline, Target, percent, token_loss
from flax_attn.types import Batch, JsonObject, Tree

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

WRITES = {"dates": "dates in digits", "reverse": "words in reverse"}  # by the name of the data


@dataclass(frozen=True)
class TargetText(Target):
    """A text by the tokenizer of the targets: a translation, or an answer that is known."""

    name = "text"
    score = "loss"
    measured = "accuracy"
    of_first_seed = True
    takes_beam = True

    data: PairData
    inputs: Pairs

    @classmethod
    def fit(cls, data: PairData, raw: Raw, recipe: Recipe, inputs: Input) -> Target:
        if data.is_natural and importlib.util.find_spec("sacrebleu") is None:
            raise UsageError(
                "expected the package sacrebleu, which measures translations; pip install "
                '"flax-attn[translate]"'
            )
        return super().fit(data, raw, recipe, inputs)

    def batch(self, rows: Columns) -> Batch:
        return self.inputs.rows(rows)

    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        return token_loss(self.recipe, outputs, batch, train)

    def scores(self, texts: Sequence[Sequence[str]], references: Sequence[str]) -> ExampleScores:
        """Measures the texts of every seed; returns the means over the seeds."""
        right = [self.inputs.clean(text) for text in references]
        by_seed = [
            example_scores([*map(self.inputs.clean, row)], right, self.data.is_natural)
            for row in texts
        ]
        return {name: np.mean([seed[name] for seed in by_seed], axis=0) for name in by_seed[0]}

    def baselines(self, raw: Raw) -> dict[str, ExampleScores]:
        sources, references, _ = raw.splits["test"]
        return {"the source itself": self.scores([sources], references)}

    def alignment_metrics(
        self, sources: Sequence[str], alignments: Sequence[Sequence[np.ndarray]]
    ) -> dict[str, list[float]]:
        """Measures whether attention points where the answer is known to be read from."""
        data = self.data
        if isinstance(data, Reverse):
            return {"test/anti_diagonal": [anti_diagonal(row) for row in alignments]}
        as_written = data.tokenizer == "character" and data.preprocessing == "lower"
        if isinstance(data, Dates) and as_written:
            return {"test/month_from_name": [month_from_name(sources, row) for row in alignments]}
        return {}

    def describe(self, names: Sequence[str], prediction: Prediction) -> list[JsonObject]:
        for i, found in enumerate(prediction.translations, 1):
            if found and not found[0].ended:
                requests.warn(
                    f"warning: the translation of text {i} did not come to its end in "
                    f"{self.inputs.max_length} tokens"
                )
        return [translations_to_json(name, prediction, i) for i, name in enumerate(names)]

    def show(self, row: JsonObject, console: "Console") -> None:
        """Prints a text and its translations, the best first, with the scores of several."""
        if not (found := row["translations"]):
            return
        console.print(Text(escaped(row["input"]), style="bold"), soft_wrap=True)
        for one in found:
            score = f"{one['score']:8.3f}  " if len(found) > 1 else ""
            console.print(Text(f"  {score}{escaped(one['text'])}"), soft_wrap=True)

    @classmethod
    def summary(cls, run: Record) -> str:
        is_natural = "test/bleu" in run.summary["metrics"]
        what = WRITES.get(run.config["data"]["name"], "answers")
        return "translate" if is_natural else f"write {what}"

    @classmethod
    def headline(cls, run: Record) -> Headline:
        if "test/bleu" in run.summary["metrics"]:
            return Headline("bleu", "BLEU", lambda bleu: f"{bleu:.3g}", ["of 100"])
        return Headline("exact_match", "Exact match", percent)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        length = run.examples["prediction_lengths"][index]
        tokens = replies.written(run.examples["predicted_words"][index, :length])
        return {"tokens": tokens, "reference": printable(str(run.examples["references"][index]))}

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import translation

        return translation.draw(run)


def example_scores(
    texts: Sequence[str], references: Sequence[str], natural: bool
) -> dict[str, np.ndarray]:
    """Measures each preprocessed text: of languages by chrF as a share, else by what is exact."""
    pairs = list(zip(texts, references))
    if natural:
        from sacrebleu import sentence_chrf  # pyright: ignore

        return {
            "chrF": np.array([sentence_chrf(text, [right]).score / 100 for text, right in pairs])
        }
    exact = np.array([float(text == right) for text, right in pairs])
    return {"exact match": exact, "edits": np.array([float(edits(*pair)) for pair in pairs])}


def edits(text: str, reference: str) -> int:
    """Counts the characters to insert, delete or replace (Levenshtein, 1966)."""
    row = np.arange(len(reference) + 1)
    places, letters = row.copy(), np.array(list(reference))
    for i, letter in enumerate(text, 1):
        replaced = row[:-1] + (letters != letter)
        row = np.concatenate([[i], np.minimum(row[1:] + 1, replaced)])
        row = np.minimum.accumulate(row - places) + places  # insertions
    return int(row[-1])


def corpus_scores(
    texts: Sequence[str], references: Sequence[str], clean: Callable[[str], str], data: PairData
) -> tuple[dict[str, float], list[str]]:
    """Computes exact match, and of languages BLEU and chrF by sacrebleu, with their signatures."""
    exact = [clean(text) == clean(reference) for text, reference in zip(texts, references)]
    scores = {"exact_match": float(np.mean(exact))}
    if not data.is_natural:
        return scores, []
    from sacrebleu.metrics import BLEU, CHRF  # pyright: ignore

    lowercase = data.preprocessing != "cased"
    measures = {"bleu": BLEU(lowercase=lowercase), "chrf": CHRF(lowercase=lowercase)}
    for name, measure in measures.items():
        scores[name] = float(measure.corpus_score(list(texts), [list(references)]).score)
    return scores, [f"{name}: {measure.get_signature()}" for name, measure in measures.items()]


def anti_diagonal(alignments: Sequence[np.ndarray]) -> float:
    """Computes the mean weight of the source token that mirrors the target token."""
    weights = [weights[i, -1 - i] for weights in alignments for i in range(min(weights.shape))]
    return float(np.mean(weights)) if weights else 0.0


def month_from_name(sources: Sequence[str], alignments: Sequence[np.ndarray]) -> float:
    """Computes the mean weight of the digits `mm` of `yyyy-mm-dd` on the name of the month."""
    weights = [
        weights[5:7, dates.place_of_month(text)].sum(axis=1)
        for text, weights in zip(sources, alignments)
        if len(weights) >= 7
    ]
    return float(np.mean(weights)) if weights else 0.0


def translations_to_json(text: str, prediction: Prediction, i: int) -> JsonObject:
    """Returns the translations of source `i` as JSON."""
    columns = prediction.translations, prediction.written, prediction.target_tokens
    translations = [
        {
            "text": written,
            "score": translation.score,
            "ended": translation.ended,
            "tokens": tokens,
            "alignment": np.round(translation.alignment, 4).tolist(),
        }
        for translation, written, tokens in zip(*(column[i] for column in columns))
    ]
    tokens = zip(prediction.tokens[i], prediction.known[i])
    source = [{"token": token, "known": known} for token, known in tokens]
    return {"input": text, "source_tokens": source, "translations": translations}
