"""Texts that become other texts, found by a search.

These are translations, the user's own pairs, and two tasks whose answers are known.
"""

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import flax.linen as nn
import numpy as np
from msgspec import Meta

from flax_attn import schema
from flax_attn.data.text import pad
from flax_attn.data.tokenizers import bracketed
from flax_attn.models.decoding import MOST_BEAM, Decoding, Translation, decode, translate
from flax_attn.models.forward import Inputs, Params
from flax_attn.models.search import probabilities
from flax_attn.tasks import replies, step_scores
from flax_attn.tasks.artifacts import Evaluation, Look, Prediction, first_rows
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.inputs.pairs import Pairs
from flax_attn.tasks.inputs.texts import knows_any, table_of
from flax_attn.tasks.targets.texts import TargetText, corpus_scores
from flax_attn.tasks.task import Task
from flax_attn.types import JsonObject, Options, Tree, UserInput

BEST = 3  # translations that a page shows


@dataclass(frozen=True)
class TextsOfTexts(Task):
    """A task on texts that become other texts."""

    input_class, target_class = Pairs, TargetText

    inputs: Pairs
    target: TargetText

    def _search(self, decoding: Decoding, num_best: int) -> Options:
        """Returns the options of a search for the best translations."""
        end, most = self.inputs.end, self.inputs.max_length
        return {"decoding": decoding, "end": end, "max_length": most, "num_best": num_best}

    @property
    def _greedy(self) -> Decoding:
        return dataclasses.replace(self.recipe.decoding, beam=1)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Evaluation:
        """Translates the test split by beam and greedily, by every seed."""
        sources = {key: self.tested["inputs"][key] for key in ("source", "source_lengths")}

        def search(decoding: Decoding) -> list[list[Translation]]:
            options = self._search(decoding, 1)
            found = [translate(model, of_seed, sources, **options) for of_seed in params]
            return [[best for (best,) in of_seed] for of_seed in found]

        by_beam = search(self.recipe.decoding)
        greedy = by_beam if self.recipe.decoding.beam == 1 else search(self._greedy)
        return self.evaluate(by_beam, greedy)

    def evaluate(
        self, by_beam: list[list[Translation]], greedy: list[list[Translation]]
    ) -> Evaluation:
        """Measures translations of the test split, by seed; keeps some with their alignments."""
        assert self.raw is not None
        sources, references, _ = self.raw.splits["test"]
        texts, greedy_texts = (
            [[self.inputs.write(best.tokens) for best in row] for row in found]
            for found in (by_beam, greedy)
        )
        metrics, summary = {}, {}
        for prefix, rows in (("test/", texts), ("greedy/test/", greedy_texts)):
            measures = [
                corpus_scores(row, references, self.inputs.clean, self.inputs.data) for row in rows
            ]
            scores, signatures = zip(*measures)
            metrics |= {prefix + name: [seed[name] for seed in scores] for name in scores[0]}
            summary |= {"signatures": signatures[0]} if signatures[0] else {}
        alignments = [[best.alignment for best in row] for row in by_beam]
        metrics |= self.target.alignment_metrics(sources, alignments)
        header = ("source", "reference", *(f"translation {i}" for i in range(len(texts))))
        table = [header, *zip(sources, references, *texts)]
        lines = "".join("\t".join(cells) + "\n" for cells in table)
        files, scored = {"translations.tsv": lines}, self.target.scores(texts, references)
        return Evaluation(self._arrays(by_beam[0]), metrics, summary, files, scored)

    def _arrays(self, translations: list[Translation]) -> dict[str, np.ndarray]:
        """Returns the arrays of the first examples: tokens as text, and alignments."""
        assert self.raw is not None
        inputs, pairs = self.inputs, self.raw.splits["test"].first(self.inputs.num_examples)
        best = translations[: inputs.num_examples]
        predictions, lengths = pad([row.tokens for row in best])  # (n, t), (n,)
        sources = [bracketed(inputs.source_parts(text)) for text in pairs.inputs]
        targets = [inputs.target_words(row.tokens) for row in best]
        longest = max(row.alignment.shape[1] for row in best)
        weights = np.zeros((*predictions.shape, longest), np.float32)  # (n, t, s)
        for i, row in enumerate(best):
            weights[i, : row.alignment.shape[0], : row.alignment.shape[1]] = row.alignment
        first = first_rows({**self.tested["inputs"], "targets": self.tested["targets"]}, len(best))
        return {
            "inputs": first["source"],
            "targets": first["targets"],
            "predictions": predictions,
            "source_lengths": first["source_lengths"],
            "prediction_lengths": lengths,
            "source_words": table_of(sources, max(map(len, sources))),
            "predicted_words": table_of(targets, max(map(len, targets))),
            "references": np.array(pairs.targets, dtype=str),
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
        """Translates a text, or several, by the first seed, and by the beam of the run for None.

        Of each text it returns the `num_best` translations, at most as many as the beam.
        """
        beam = self.recipe.decoding.beam if beam is None else beam
        schema.convert("beam (--beam)", beam, Annotated[int, Meta(ge=1, le=MOST_BEAM)])
        schema.convert("num_best (--best)", num_best, Annotated[int, Meta(ge=1, le=int(beam))])
        sources, tokens, known = self.inputs.read(inputs)
        options = self._search(dataclasses.replace(self.recipe.decoding, beam=beam), num_best)
        best = iter(translate(model, params[0], sources, **options) if sources else [])
        parts = [list(zip(*row)) for row in zip(tokens, known)]
        found = [next(best) if knows_any(row) else [] for row in parts]
        written = [[self.inputs.write(one.tokens) for one in row] for row in found]
        alignments = [row[0].alignment if row else np.zeros((0, 0)) for row in found]
        return Prediction(
            [row[0] if row else "" for row in written],
            tokens=tokens,
            known=known,
            attention={"alignment": alignments},
            translations=found,
            written=written,
            target_tokens=[[self.inputs.target_words(one.tokens) for one in row] for row in found],
        )

    def applied(self, model: nn.Module, params: Sequence[Params], arrays: Inputs) -> None:
        """Searches the best translation of each encoded source."""
        translate(model, params[0], arrays, **self._search(self.recipe.decoding, 1))

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """Translates greedily by the first seed: `tokens` `(b, n)`, zeros after `lengths`."""
        decoded = decode(model, params[0], inputs, **self._search(self._greedy, 1))
        tokens, lengths, scores, _, alignment = (leaf[:, 0] for leaf in decoded)
        arrays = {"tokens": tokens, "lengths": lengths, "scores": scores}
        return arrays | {"attention": {"alignment": alignment}}

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """Computes the best translations by beam, with the scores of each step if it has any."""
        options = self._search(self.recipe.decoding, min(BEST, self.recipe.decoding.beam))
        searched = inspect.unwrap(decode)(model, params[0], inputs, **options)
        looked = {"tokens": searched.tokens, "lengths": searched.lengths}
        looked["probabilities"] = probabilities(searched, self.recipe.decoding.length_penalty)
        looked["attention"] = {"alignment": searched.alignment}
        if not step_scores.has_scores(model):
            return looked
        again = step_scores.of_translations
        scores = again(model, params[0], inputs, searched.tokens, self.inputs.end)
        return looked | {"scores": {"alignment": scores}}

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        searched, reply = self.inputs.answer(asked, look)
        best, scored = [], searched["scores"].get("alignment")
        length = len(reply["tokens"])
        for i in range(searched["tokens"].shape[1]):
            count = int(searched["lengths"][0, i])
            tokens = searched["tokens"][0, i, :count].tolist()
            weights = searched["attention"]["alignment"][0, i, :count, :length]
            scores = None if scored is None else replies.array(scored[0, i, :count, :length][None])
            best.append(
                {
                    "text": self.inputs.write(tokens),
                    "tokens": self.inputs.target_words(tokens),
                    "probability": float(searched["probabilities"][0, i]),
                    "attention": {"alignment": replies.array(weights[None])},
                    "scores": scores and {"alignment": scores},
                }
            )
        first = {name: best[0][name] for name in ("text", "attention", "scores")}
        return first | {"best": best} | reply
