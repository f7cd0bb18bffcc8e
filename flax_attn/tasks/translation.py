"""Texts that become other texts.

These are translations, the user's own pairs, and two tasks whose answers are known.
"""

import dataclasses
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array
from msgspec import Meta
from rich.console import Console
from rich.text import Text

from flax_attn import schema
from flax_attn.analysis.token_weights import printable
from flax_attn.data import dates
from flax_attn.data.pairs import Pair
from flax_attn.data.sets import DataSet, Dates, PairData, Reverse
from flax_attn.data.text import pad
from flax_attn.data.tokenizers import bracketed
from flax_attn.errors import UsageError, escaped
from flax_attn.models.decoding import MOST_BEAM, Decoding, Translation, decode, translate
from flax_attn.models.forward import Inputs, Params
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies, requests, step_scores, user_files
from flax_attn.tasks.artifacts import (
    Evaluation,
    Kept,
    Look,
    LossAndMetrics,
    Prediction,
    Recipe,
    Rows,
    first_rows,
)
from flax_attn.tasks.asking import LEAST_LENGTH, Asked, check_length, longer, rounded
from flax_attn.tasks.inputs.texts import as_texts
from flax_attn.tasks.pairs import PairEncoder, knows_any, table_of
from flax_attn.tasks.targets.tokens import token_loss
from flax_attn.tasks.task import Task, for_buckets, needs_python
from flax_attn.types import Batch, JsonObject, Options, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure

NUM_EXAMPLES = 16
BEST = 3  # translations that a page shows
MOST_DRAWN = 200  # tokens of a source, at which there is still something to see
WRITES = {"dates": "dates in digits", "reverse": "words in reverse"}  # by the name of the data


@dataclass(frozen=True)
class PairsOfTexts(Task):
    """A task on texts that become other texts."""

    name = "text-text"
    score = "loss"
    measured = "accuracy"
    takes_beam = True

    data: PairData
    recipe: Recipe
    kept: Kept
    encoder: PairEncoder
    rows: Rows
    test: Batch
    pairs: list[Pair]

    @classmethod
    def load(cls, data: PairData, recipe: Recipe, manual_dir: Path | None) -> "PairsOfTexts":
        """Encodes pairs as tokens, by tokenizers that are fitted on the training split alone."""
        if data.is_natural and importlib.util.find_spec("sacrebleu") is None:
            raise UsageError(
                "expected the package sacrebleu, which measures translations; pip install "
                '"flax-attn[translate]"'
            )
        raw = data.load(manual_dir)
        splits = {
            name: [Pair(*pair) for pair in zip(*split[:2])] for name, split in raw.splits.items()
        }
        encoder = PairEncoder.fit(data, splits["train"])
        batches = {name: encoder.rows(pairs) for name, pairs in splits.items()}
        ordered = {name: for_buckets(batch, data.num_buckets) for name, batch in batches.items()}
        inputs = batches["train"]["inputs"]
        longest = {side: int(inputs[f"{side}_lengths"].max()) for side in ("source", "target")}
        kept = encoder.kept._replace(derived={"files": dict(raw.files), "longest": longest})
        rows = Rows(ordered["train"], {name: ordered[name] for name in recipe.evaluate})
        return cls(data, recipe, kept, encoder, rows, batches["test"], splits["test"])

    @classmethod
    def restore(cls, data: PairData, recipe: Recipe, kept: Kept) -> "PairsOfTexts":
        return cls(data, recipe, kept, PairEncoder.restore(data, kept), Rows({}, {}), {}, [])

    @classmethod
    def file_names(cls, data: PairData) -> tuple[str, ...]:
        return PairEncoder.file_names(data)

    @property
    def longest_source(self) -> int:
        """Returns the tokens of the longest source in training."""
        return self.kept.derived["longest"]["source"]

    @property
    def max_length(self) -> int:
        """Returns the most tokens of a translation: twice those of the longest in training."""
        return 2 * self.kept.derived["longest"]["target"]

    def sample(self) -> Inputs:
        number = self.recipe.batch_size
        tokens, lengths = np.zeros((number, 2), np.int32), np.ones(number, np.int32)
        sources = {"source": tokens, "source_lengths": lengths}
        return sources | {"target": tokens, "target_lengths": lengths}

    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        return token_loss(self.recipe, outputs, batch, train)

    def _search(self, decoding: Decoding, num_best: int) -> Options:
        """Returns the options of a search for the best translations."""
        end, most = self.encoder.end, self.max_length
        return {"decoding": decoding, "end": end, "max_length": most, "num_best": num_best}

    @property
    def _greedy(self) -> Decoding:
        return dataclasses.replace(self.recipe.decoding, beam=1)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Evaluation:
        """Translates the test split by beam and greedily, by every seed."""
        sources = {key: self.test["inputs"][key] for key in ("source", "source_lengths")}

        def search(decoding: Decoding) -> list[list[Translation]]:
            options = self._search(decoding, 1)
            found = [translate(model, of_seed, sources, **options) for of_seed in params]
            return [[best for (best,) in of_seed] for of_seed in found]

        by_beam = search(self.recipe.decoding)
        greedy = by_beam if self.recipe.decoding.beam == 1 else search(self._greedy)
        return self.describe(by_beam, greedy)

    def describe(
        self, by_beam: list[list[Translation]], greedy: list[list[Translation]]
    ) -> Evaluation:
        """Measures translations of the test split, by seed; keeps some with their alignments."""
        references, clean = [pair.target for pair in self.pairs], self.encoder.clean
        texts, greedy_texts = (
            [[self.encoder.write(best.tokens) for best in row] for row in found]
            for found in (by_beam, greedy)
        )
        metrics, summary = {}, {}
        for prefix, rows in (("test/", texts), ("greedy/test/", greedy_texts)):
            measures = [score(row, references, clean, self.data.is_natural) for row in rows]
            scores, signatures = zip(*measures)
            metrics |= {prefix + name: [seed[name] for seed in scores] for name in scores[0]}
            summary |= {"signatures": signatures[0]} if signatures[0] else {}
        metrics |= self._alignment_metrics([[best.alignment for best in row] for row in by_beam])
        header = ("source", "reference", *(f"translation {i}" for i in range(len(texts))))
        table = [header, *zip(*zip(*self.pairs), *texts)]
        lines = "".join("\t".join(cells) + "\n" for cells in table)
        return Evaluation(self._arrays(by_beam[0]), metrics, summary, {"translations.tsv": lines})

    def _alignment_metrics(self, alignments: list[list[np.ndarray]]) -> dict[str, list[float]]:
        """Measures whether attention points where the answer is known to be read from."""
        data, sources = self.data, [pair.source for pair in self.pairs]
        if isinstance(data, Reverse):
            return {"test/anti_diagonal": [anti_diagonal(row) for row in alignments]}
        as_written = data.tokenizer == "character" and data.preprocessing == "lower"
        if isinstance(data, Dates) and as_written:
            return {"test/month_from_name": [month_from_name(sources, row) for row in alignments]}
        return {}

    def _arrays(self, translations: list[Translation]) -> dict[str, np.ndarray]:
        """Returns the arrays of the first examples: tokens as text, and alignments."""
        pairs, best = self.pairs[:NUM_EXAMPLES], translations[:NUM_EXAMPLES]
        predictions, lengths = pad([row.tokens for row in best])
        sources = [self.encoder.source_words(pair.source) for pair in pairs]
        targets = [self.encoder.target_words(row.tokens) for row in best]
        longest = max(row.alignment.shape[1] for row in best)
        weights = np.zeros((*predictions.shape, longest), np.float32)
        for i, row in enumerate(best):
            weights[i, : row.alignment.shape[0], : row.alignment.shape[1]] = row.alignment
        first = first_rows({**self.test["inputs"], "targets": self.test["targets"]}, len(pairs))
        return {
            "inputs": first["source"],
            "targets": first["targets"],
            "predictions": predictions,
            "source_lengths": first["source_lengths"],
            "prediction_lengths": lengths,
            "source_words": table_of(sources, max(map(len, sources))),
            "predicted_words": table_of(targets, max(map(len, targets))),
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
        """Translates a text, or several, by the first seed.

        Args:
            beam: of the search; None for that of the run.
            num_best: how many translations of each text are wanted, at most the beam.
        """
        texts, beam = as_texts(inputs), self.recipe.decoding.beam if beam is None else beam
        check_beam("beam", beam, "num_best", num_best)
        encoder = self.encoder
        options = self._search(dataclasses.replace(self.recipe.decoding, beam=beam), num_best)
        parts = [encoder.source_parts(text) for text in texts]
        usable = [i for i, row in enumerate(parts) if knows_any(row)]
        found: list[list[Translation]] = [[] for _ in texts]
        if usable:
            sources = encoder.sources([texts[i] for i in usable])
            for i, best in zip(usable, translate(model, params[0], sources, **options)):
                found[i] = best
        written = [[encoder.write(best.tokens) for best in row] for row in found]
        alignments = [row[0].alignment if row else np.zeros((0, 0)) for row in found]
        return Prediction(
            [row[0] if row else "" for row in written],
            tokens=[[part for part, _ in row] for row in parts],
            known=[[known for _, known in row] for row in parts],
            attention={"alignment": alignments},
            translations=found,
            written=written,
            target_tokens=[[encoder.target_words(best.tokens) for best in row] for row in found],
        )

    def input_shapes(self) -> Tree:
        return {"source": "b, s", "source_lengths": "b"}

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """Translates greedily by the first seed: `tokens` `(b, n)`, zeros after `lengths`."""
        decoded = decode(model, params[0], inputs, **self._search(self._greedy, 1))
        tokens, lengths, scores, _, alignment = (leaf[:, 0] for leaf in decoded)
        arrays = {"tokens": tokens, "lengths": lengths, "scores": scores}
        return arrays | {"attention": {"alignment": alignment}}

    @classmethod
    def respond(
        cls, request: requests.Request, load: requests.Load, console: Console
    ) -> list[Path]:
        """Prints translations, or writes the best of each line. Draws the first with a token."""
        if request.output is not None:
            user_files.check_text_file(request.output, "--output", request.source)
            if request.num_best > 1 or request.as_json:
                raise UsageError(
                    "expected --output, for the best translations, or --best or --json"
                )
        requests.check_figure(request.figure, request.source)
        run = load()
        task = run.task
        assert isinstance(task, PairsOfTexts)
        beam = task.recipe.decoding.beam if request.beam is None else request.beam
        check_beam("--beam", beam, "--best", request.num_best)
        column = str(getattr(task.data, "source_column", requests.TEXT_COLUMN))
        texts = requests.read_texts(request, '"ein mann schläft ."', column)
        usable = task.usable(texts, request)
        prediction = run.predict(texts, beam=beam, num_best=request.num_best)
        for i in usable:
            if not prediction.translations[i][0].ended:
                requests.warn(
                    f"warning: the translation of text {i + 1} did not come to its end in "
                    f"{task.max_length} tokens"
                )
        if request.as_json:
            rows = [translations_to_json(text, prediction, i) for i, text in enumerate(texts)]
            requests.print_json(rows, console)
        elif request.output is None:
            for i in usable:
                show_translations(texts[i], prediction, i, console)
        return requests.write_all(translations_to_write(request, prediction, usable))

    def usable(self, texts: list[str], request: requests.Request) -> list[int]:
        """Returns the indices of the texts that can be translated.

        Warns of unknown words, of texts longer than in training, and of lines that are left empty.

        Raises:
            UsageError: a text given by hand in which the model knows nothing.
        """
        usable: list[int] = []
        for i, text in enumerate(texts):
            parts, which = self.encoder.source_parts(text), f"text {i + 1}"
            if request.source is not None:
                which = f"line {i + 1}"
            elif not knows_any(parts):
                raise UsageError(f"expected a text with a word that the run has seen, got {text!r}")
            unknown = [part for part, known in parts if not known]
            if not knows_any(parts) and parts:
                requests.warn(
                    f"warning: {which} has no word that the run has seen; its translation is left "
                    "empty"
                )
            elif unknown:
                requests.warn(
                    f"warning: {which} has what the run does not know: {' '.join(unknown)}"
                )
            usable += [i] if knows_any(parts) else []
            if knows_any(parts) and len(parts) > self.longest_source:
                requests.warn(
                    f"warning: {which} has {len(parts)} tokens, where the longest in training had "
                    f"{self.longest_source}; expect less, or split it"
                )
            if request.figure is not None and usable == [i] and len(parts) > MOST_DRAWN:
                most = f"at most {MOST_DRAWN} tokens to draw"
                raise UsageError(f"expected {most}, got {len(parts)}; leave out --figure")
        return usable

    def keeps_scores(self, model: nn.Module) -> bool:
        return False  # a translation is searched for in a loop

    def live_inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        raise needs_python()

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """Computes the best translations by beam, with the scores of each step if it has any."""
        options = self._search(self.recipe.decoding, min(BEST, self.recipe.decoding.beam))
        searched = inspect.unwrap(decode)(model, params[0], inputs, **options)
        looked = {"tokens": searched.tokens, "lengths": searched.lengths, "merits": searched.scores}
        looked["attention"] = {"alignment": searched.alignment}
        if not step_scores.has_scores(model):
            return looked
        again = step_scores.of_translations
        scores = again(model, params[0], inputs, searched.tokens, self.encoder.end)
        return looked | {"scores": {"alignment": scores}}

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        encoder, text = self.encoder, asked.words()
        parts = encoder.source_parts(text)
        if not knows_any(parts):
            raise UsageError(f"expected a text with a word that the run knows, got {text[:60]!r}")
        check_length(len(parts))
        sources = encoder.sources([text])
        length = sources["source"].shape[1]
        longest = rounded(length)
        # the decoder's attention on its own tokens must have another number of keys
        longest += LEAST_LENGTH if longest == self.max_length else 0
        searched = look(longer(sources, longest), longest)
        best, scored = [], searched["scores"].get("alignment")
        for i in range(searched["tokens"].shape[1]):
            count = int(searched["lengths"][0, i])
            tokens = searched["tokens"][0, i, :count].tolist()
            weights = searched["attention"]["alignment"][0, i, :count, :length]
            scores = None if scored is None else replies.array(scored[0, i, :count, :length][None])
            best.append(
                {
                    "text": encoder.write(tokens),
                    "tokens": encoder.target_words(tokens),
                    "score": float(searched["merits"][0, i]),
                    "attention": {"alignment": replies.array(weights[None])},
                    "scores": scores and {"alignment": scores},
                }
            )
        reply = {name: best[0][name] for name in ("text", "attention", "scores")}
        return reply | {"best": best} | replies.with_tokens(parts)

    @classmethod
    def to_try(cls, data: DataSet, model: type[nn.Module]) -> tuple[str, str]:
        return "predict", '"A TEXT" --figure alignment.png'

    @classmethod
    def summary(cls, run: Record) -> str:
        is_natural = "test/bleu" in run.summary["metrics"]
        what = WRITES.get(run.config["data"]["name"], "answers")
        return "translates" if is_natural else f"writes {what}"

    @classmethod
    def sentence(cls, run: Record) -> str:
        if "test/bleu" in run.summary["metrics"]:
            return f"translates with a BLEU of {run.mean('bleu'):.3g} on test sentences"
        exact = 100 * run.mean("exact_match")
        return f"{cls.summary(run)}, {exact:.3g} % of the test without a mistake"

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import translation

        return translation.draw(run)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        example = run.examples
        sources = example["source_words"][index, : example["source_lengths"][index]]
        targets = example["predicted_words"][index, : example["prediction_lengths"][index]]
        texts = {"source": replies.written(sources), "tokens": replies.written(targets)}
        return texts | {"reference": printable(str(example["references"][index]))}

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        target = int(run.examples["prediction_lengths"][index])
        source = int(run.examples["source_lengths"][index])
        whole = super().weights(run, index)
        return {name: weights[:, :target, :source] for name, weights in whole.items()}


def score(
    texts: Sequence[str], references: Sequence[str], clean: Callable[[str], str], natural: bool
) -> tuple[dict[str, float], list[str]]:
    """Computes exact match, and of languages BLEU and chrF by sacrebleu, with their signatures."""
    exact = [clean(text) == clean(reference) for text, reference in zip(texts, references)]
    scores = {"exact_match": float(np.mean(exact))}
    if not natural:
        return scores, []
    from sacrebleu.metrics import BLEU, CHRF  # pyright: ignore

    measures = {"bleu": BLEU(lowercase=True), "chrf": CHRF(lowercase=True)}
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


def check_beam(name: str, beam: UserInput, name_best: str, num_best: UserInput) -> None:
    """Raises a UsageError for a beam out of range, or one too small for the translations wanted."""
    schema.convert(name, beam, Annotated[int, Meta(ge=1, le=MOST_BEAM)])
    schema.convert(name_best, num_best, Annotated[int, Meta(ge=1, le=int(beam))])


def show_translations(text: str, prediction: Prediction, i: int, console: Console) -> None:
    """Prints a text and its translations, the best first, with the scores of several."""
    console.print(Text(escaped(text), style="bold"), soft_wrap=True)
    several = len(prediction.translations[i]) > 1
    for translation, written in zip(prediction.translations[i], prediction.written[i]):
        score = f"{translation.score:8.3f}  " if several else ""
        console.print(Text(f"  {score}{escaped(written)}"), soft_wrap=True)


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


def translations_to_write(
    request: requests.Request, prediction: Prediction, usable: list[int]
) -> requests.ToWrite:
    """Returns the files that a request for translations wants."""
    to_write: requests.ToWrite = {}
    if request.output is not None:
        lines = "".join(f"{text}\n" for text in prediction.outputs)
        to_write[request.output] = lambda path: path.write_text(lines, encoding="utf-8")
    drawn = next((i for i in usable if prediction.translations[i][0].tokens), None)
    if request.figure is not None and drawn is None:
        requests.warn(f"warning: every translation is empty; {request.figure} is not drawn")
        return to_write
    title = request.run.resolve().name
    return to_write | requests.picture_to_write(
        request, lambda: draw(prediction, drawn or 0, title)
    )


def draw(prediction: Prediction, i: int, title: str) -> "Figure":
    """Draws the alignment of the best translation of source `i`, without the end of sequence."""
    from flax_attn.analysis.translation import alignment_map

    words = bracketed(zip(prediction.tokens[i], prediction.known[i]))
    best, alignment = prediction.target_tokens[i][0], prediction.translations[i][0].alignment
    return alignment_map(words, best, alignment, title)
