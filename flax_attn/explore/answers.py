"""What a run answers: a request of the page to a reply, for every kind of task.

The numbers are those of `Run.predict` where no setting is changed.
"""

import inspect
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.analysis.report_data import safe
from flax_attn.data.text import pad
from flax_attn.errors import UsageError
from flax_attn.experiment.loading import Run
from flax_attn.explore import step_scores
from flax_attn.explore.asking import MOST_TOKENS, Asked, read
from flax_attn.explore.replies import (
    EMPTY,
    WITHOUT_WEIGHTS,
    array,
    attended,
    classified,
    likeliest,
    scores_of,
    with_tokens,
)
from flax_attn.explore.under_lens import Looking
from flax_attn.models.decoding import decode
from flax_attn.models.forward import Inputs, Params
from flax_attn.models.generation import NEVER, GeneratesText
from flax_attn.tasks import ImageClasses, LanguageModel, PairsOfTexts, Series, Signals, TextClasses
from flax_attn.tasks.encoders import knows_any
from flax_attn.tasks.language import PART
from flax_attn.types import Json, JsonObject, Options, Tree

LEAST_LENGTH = 8  # tokens that a text is padded to, at least
BEST = 3  # translations


class Answers:
    """Answers for one run."""

    def __init__(self, run: Run) -> None:
        self.run, self.task, self.model = run, run.task, run.model
        self.params: list[Params] = list(run.params.values())
        kinds = {
            Signals: self._signals,
            Series: self._series,
            ImageClasses: self._images,
            TextClasses: self._texts,
            PairsOfTexts: self._translation,
            LanguageModel: self._language,
        }
        self._answer = next(own for kind, own in kinds.items() if isinstance(run.task, kind))
        computes = {
            PairsOfTexts: self._decode,
            LanguageModel: self._continue,
            Series: self._compute_series,
        }
        compute = computes.get(type(run.task), self._compute)
        # no score leaves a loop: where attention is in one, the computation tells them
        self.looking = Looking(compute, not isinstance(run.task, PairsOfTexts | Series))

    def __call__(self, request: Json) -> JsonObject:
        """The reply to a request. Its texts are escaped, as all that a page shows.

        Raises:
            UsageError: a request that is none, or an input that the run does not take.
        """
        asked = read(request)
        reply = EMPTY | self._answer(asked)
        return safe(reply | WITHOUT_WEIGHTS if asked.brief else reply)

    def _compute(self, params: list[Params], inputs: Inputs) -> dict[str, Tree]:
        return self.task.compute(self.model, params, inputs)

    def _compute_series(self, params: list[Params], inputs: Inputs) -> dict[str, Tree]:
        computed = self._compute(params, inputs)
        if not step_scores.has_scores(self.model):
            return computed
        scores = step_scores.of_series(self.model, params[0], inputs)
        return computed | {"scores": {"input": scores}}

    def _look(self, asked: Asked, inputs: Inputs, num_keys: int | None = None) -> dict[str, Tree]:
        return self.looking.look(self.params, inputs, asked.settings, num_keys)

    def _signals(self, asked: Asked) -> JsonObject:
        assert isinstance(self.task, Signals)
        from flax_attn.tasks.signals import check_signals

        signal = check_signals(asked.numbers(), self.task.shape, "the input")
        looked = self._look(asked, signal.reshape(1, *self.task.shape))
        if not np.isfinite(looked["outputs"]).all():
            raise UsageError("expected a signal in the range of training; the answer overflows")
        return attended(looked) | {"outputs": array(looked["outputs"][0])}

    def _series(self, asked: Asked) -> JsonObject:
        assert isinstance(self.task, Series)
        series, data = asked.numbers(), self.task.data
        if series.shape != (data.length, data.num_series):
            raise UsageError(
                f"expected {data.num_series} series of {data.length} steps, got {series.shape}"
            )
        looked = self._look(asked, series[None])
        return attended(looked) | {"outputs": array(looked["outputs"][0])}

    def _images(self, asked: Asked) -> JsonObject:
        assert isinstance(self.task, ImageClasses)
        image = asked.numbers()
        if image.ndim != 2:
            raise UsageError(f"expected one image, got the shape {image.shape}")
        looked = self._look(asked, self.task.prepare(image, "the input"))
        return attended(looked) | classified(looked["outputs"][0], self.task.classes)

    def _texts(self, asked: Asked) -> JsonObject:
        assert isinstance(self.task, TextClasses)
        encoder, text = self.task.encoder, asked.words()
        (parts,) = self.task.parts([text])
        check_length(len(parts))
        encoded = encoder.inputs([encoder.clean(text)])
        length = encoded["tokens"].shape[1]
        looked = self._look(asked, longer(encoded, rounded(length)))
        reply = attended(looked, rounded(length), length)
        reply |= classified(looked["outputs"][0], self.task.classes)
        whole = len(encoder.tokenizer.encode(encoder.clean(text)))
        cut = f"the model reads the first {length} of {whole} tokens" if whole > length else None
        return reply | with_tokens(parts) | {"note": cut}

    def _translation(self, asked: Asked) -> JsonObject:
        assert isinstance(self.task, PairsOfTexts)
        encoder, text = self.task.encoder, asked.words()
        parts = encoder.source_parts(text)
        if not knows_any(parts):
            raise UsageError(f"expected a text with a word that the run knows, got {text[:60]!r}")
        check_length(len(parts))
        sources = encoder.sources([text])
        length = sources["source"].shape[1]
        longest = rounded(length)
        # the decoder's attention on its own tokens must have another number of keys
        longest += LEAST_LENGTH if longest == self.task.max_length else 0
        searched = self._look(asked, longer(sources, longest), longest)
        best = []
        for i in range(searched["tokens"].shape[1]):
            count = int(searched["lengths"][0, i])
            tokens = searched["tokens"][0, i, :count].tolist()
            weights = searched["attention"]["alignment"][0, i, :count, :length]
            best.append(
                {
                    "text": encoder.write(tokens),
                    "tokens": encoder.target_words(tokens),
                    "score": float(searched["merits"][0, i]),
                    "attention": {"alignment": array(weights[None])},
                    "scores": scores_of(searched, i, count, length),
                }
            )
        reply = {name: best[0][name] for name in ("text", "attention", "scores")}
        return reply | {"best": best} | with_tokens(parts)

    def _decode(self, params: list[Params], inputs: Inputs) -> dict[str, Tree]:
        assert isinstance(self.task, PairsOfTexts)
        decoding = self.task.recipe.decoding
        searched = inspect.unwrap(decode)(
            self.model,
            params[0],
            inputs,
            decoding=decoding,
            end=self.task.encoder.end,
            max_length=self.task.max_length,
            num_best=min(BEST, decoding.beam),
        )
        looked = {"tokens": searched.tokens, "lengths": searched.lengths, "merits": searched.scores}
        looked["attention"] = {"alignment": searched.alignment}
        if not step_scores.has_scores(self.model):
            return looked
        again = step_scores.of_translations
        scores = again(self.model, params[0], inputs, searched.tokens, self.task.encoder.end)
        return looked | {"scores": {"alignment": scores}}

    def _language(self, asked: Asked) -> JsonObject:
        assert isinstance(self.task, LanguageModel)
        if asked.text is None:
            raise UsageError("expected a text, got numbers")
        most = self.task.data.max_length
        whole = self.task.encoded(asked.text)
        row = whole[-most:]
        tokens, _ = pad([row], most)
        looked = self._look(asked, {"tokens": tokens, "last": np.int32(len(row) - 1)})
        names = self.task.written(np.arange(self.task.tokenizer.size)).tolist()
        written = self.task.written(np.array(row)).tolist()
        reply = attended(looked, most, len(row)) | classified(looked["outputs"], names)
        cut = f"the model reads the last {most} tokens" if len(whole) > most else None
        reply |= {"writes": self._writes(looked["outputs"])}
        return reply | {"tokens": written, "known": [True] * len(row), "note": cut}

    def _writes(self, shares: np.ndarray) -> list[list[int] | None]:
        """The code points that each of the classes of a reply writes; None for one that is no text.

        Names of classes have escapes.
        """
        assert isinstance(self.task, LanguageModel)
        tokens = likeliest(shares)
        texts = [self.task.tokenizer.decode([token]) for token in tokens]
        are_texts = [token >= NEVER and PART not in text for token, text in zip(tokens, texts)]
        return [[*map(ord, text)] if is_text else None for text, is_text in zip(texts, are_texts)]

    def _continue(self, params: list[Params], inputs: Inputs) -> dict[str, Tree]:
        """The probabilities of the next token, and what the last one looks at."""
        last, tokens = inputs["last"], jnp.asarray(inputs["tokens"])
        options: Options = {}
        if isinstance(self.model, GeneratesText):
            options["need_weights"] = True
        shares, attentions = [], []
        for own in params:
            applied: Tree = self.model.apply({"params": own}, tokens, **options)
            shares.append(jax.nn.softmax(applied[0][0, last]))
            attentions.append(applied[1].get("attention", {}))
        return {
            "outputs": jnp.mean(jnp.stack(shares), axis=0),
            "attention": attentions[0],
            "last": last,
        }


def check_length(length: int) -> None:
    """Raises a UsageError for a text that is too long to show what attends to what."""
    if length > MOST_TOKENS:
        raise UsageError(f"expected at most {MOST_TOKENS:,} tokens, got {length:,}; shorten it")


def rounded(length: int) -> int:
    """The length that a text is padded to, so that few programs are compiled."""
    return max(LEAST_LENGTH, 1 << (length - 1).bit_length())


def longer(inputs: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
    """Inputs of one text, with zeros up to a length where they have one number a token."""

    def pad_one(own: np.ndarray) -> np.ndarray:
        widths = [(0, 0), (0, length - own.shape[1]), *[(0, 0)] * (own.ndim - 2)]
        return np.pad(own, widths)

    return {name: own if own.ndim < 2 else pad_one(own) for name, own in inputs.items()}
