"""Pairs of texts as tokens, and tokens back to text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np

from flax_attn.data.raw import Columns, Raw
from flax_attn.data.sets import PairData
from flax_attn.data.text import (
    PREPROCESSING,
    RULES,
    RULES_OF_JOINS,
    cleaned,
    join_words,
    pad,
    rules_of_javascript,
)
from flax_attn.data.tokenizers import (
    Tokenizer,
    bracketed,
    fit_tokenizer,
    known_parts,
    tokenizer_from_json,
)
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs
from flax_attn.models.sizes import SHORTEST, lengths_to, longer, rounded
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies, requests
from flax_attn.tasks.artifacts import Kept, Look, Prediction
from flax_attn.tasks.asking import Asked, check_length
from flax_attn.tasks.inputs.base import Encoded, Input, Requested
from flax_attn.tasks.inputs.texts import (
    Part,
    as_texts,
    check_sizes,
    knows_any,
    live_shapes,
    reading,
)
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure

MOST_DRAWN = 200  # tokens of a source, at which there is still something to see


@dataclass(frozen=True)
class Pairs(Input):
    """Texts that become other texts: both as tokens, and tokens of the target back to text.

    The end of sequence is the number after those of the target's tokenizer. It also stands before
    the first token.

    Attributes:
        source, target: the tokenizers, fitted on the training split alone.
        longest: the tokens of the longest source and target in training.
    """

    name = "text"
    noun = "texts"

    data: PairData
    source: Tokenizer
    target: Tokenizer
    longest: dict[str, int]

    @classmethod
    def fit(cls, data: PairData, raw: Raw, with_targets: bool) -> "Pairs":
        clean = PREPROCESSING[data.preprocessing]
        columns = raw.splits["train"][:2]
        sources, targets = ([clean(text) for text in texts] for texts in columns)
        fit = lambda texts: fit_tokenizer(data.tokenizer, texts, data.vocabulary_size)
        if data.shared_vocabulary:
            source = target = fit([*sources, *targets])
        else:
            source, target = fit(sources), fit(targets)
        prepared = [clean(data.prepare(text)) for text in columns[0]]
        longest = {
            "source": max(len(source.encode(text)) for text in prepared),
            "target": max(len(target.encode(text)) for text in targets) + 1,  # with its end
        }
        return cls(data, source, target, longest)

    @classmethod
    def restore(cls, data: PairData, kept: Kept) -> "Pairs":
        names = cls.file_names(data)
        tokenizers = [tokenizer_from_json(kept.files[name]) for name in names]
        restored = cls(data, tokenizers[0], tokenizers[-1], kept.derived["longest"])
        check_sizes(restored.kept.sizes, kept.sizes)
        return restored

    @classmethod
    def file_names(cls, data: PairData) -> tuple[str, ...]:
        names = "tokenizer.json", "target_tokenizer.json"
        return names[:1] if data.shared_vocabulary else names

    @property
    def kept(self) -> Kept:
        sizes = self.source.size, self.target.size + 1
        named = zip(self.file_names(self.data), (self.source, self.target))
        return Kept(
            {"longest": self.longest},
            dict(zip(("source_vocabulary_size", "target_vocabulary_size"), sizes)),
            {name: tokenizer.to_json() for name, tokenizer in named},
        )

    @property
    def end(self) -> int:
        """Returns the token that stands for the end of a sequence."""
        return self.target.size

    @property
    def max_length(self) -> int:
        """Returns the most tokens of a translation: twice those of the longest in training."""
        return 2 * self.longest["target"]

    def clean(self, text: str) -> str:
        """Returns the text after preprocessing."""
        return cleaned(self.data.preprocessing, text)

    def encode(self, raw: UserInput) -> Inputs:
        """Encodes sources as tokens `(n, s)` and lengths `(n,)`."""
        prepared = [self.clean(self.data.prepare(text)) for text in raw]
        tokens, lengths = pad([self.source.encode(text) for text in prepared])  # (n, s), (n,)
        return {"source": tokens, "source_lengths": lengths}

    def rows(self, pairs: Columns) -> Batch:
        """Encodes pairs as rows. Raises a UsageError where some are empty or too long."""
        most, inputs = self.data.max_length, self.encode(pairs.inputs)
        targets = [self.target.encode(self.clean(text)) for text in pairs.targets]
        lengths = np.stack([inputs["source_lengths"], [len(target) for target in targets]])
        if unfit := np.flatnonzero(((lengths < 1) | (lengths > most)).any(axis=0)).tolist():
            source, target = lengths[:, unfit[0]]
            raise UsageError(
                f"expected from 1 to data.max_length={most} tokens in source and target, got "
                f"{source} and {target} for '{pairs.inputs[unfit[0]][:40]}', and {len(unfit)} such "
                f"pairs in all, the longest with {lengths.max()}; raise it, or take them out"
            )
        tokens, target_lengths = pad([[self.end, *target] for target in targets])  # (n, t), (n,)
        labels, _ = pad([[*target, self.end] for target in targets])  # (n, t)
        inputs |= {"target": tokens, "target_lengths": target_lengths}
        return {"inputs": inputs, "targets": labels}

    def source_parts(self, text: str) -> list[Part]:
        """Returns the parts of a source that the model sees."""
        return known_parts(self.source, self.clean(self.data.prepare(text)))

    def target_words(self, tokens: Sequence[int]) -> list[str]:
        """Decodes each token of a target."""
        return [self.target.decode([token]).strip() or " " for token in tokens]

    def write(self, tokens: Sequence[int]) -> str:
        """Decodes a target."""
        text = self.target.decode(tokens)
        return join_words(text) if self.data.preprocessing == "words" else text

    def of_sizes(self, number: int, longest: int) -> list[Inputs]:
        tokens = np.zeros((number, 2), np.int32)
        widths = lengths_to(min(longest, self.longest["source"]))
        sources = [longer({"source": tokens}, width) for width in widths]
        return [
            one | {"source_lengths": np.full(number, one["source"].shape[1])} for one in sources
        ]

    def sample(self, number: int) -> Inputs:
        tokens, lengths = np.zeros((number, 2), np.int32), np.ones(number, np.int32)
        sources = {"source": tokens, "source_lengths": lengths}
        return sources | {"target": tokens, "target_lengths": lengths}

    def live_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return live_shapes("source", "source_lengths", self.live_length)

    @property
    def live_length(self) -> int:
        """Returns the most tokens of a source in a page: twice those of the longest in training."""
        most = min(2 * self.longest["source"], self.data.max_length)
        return most + (most == self.max_length)  # as in `answer`

    def tokenization(self) -> JsonObject:
        data, written = self.data, self.target.to_json()
        joins = RULES_OF_JOINS if data.preprocessing == "words" else []
        target = {"entries": written.get("entries"), "joins": rules_of_javascript(joins)}
        target |= {"between": " " if written["kind"] == "word" else ""}
        most = {"most": self.live_length, "cut": False, "ends": [], "target": target}
        rules = [*data.rules_of_preparing, *RULES[data.preprocessing]]
        return reading(self.source, rules) | most

    def shapes(self) -> Tree:
        return {"source": "b, s", "source_lengths": "b"}

    def read(self, inputs: UserInput) -> Encoded:
        """Encodes the texts in which the model knows something; of all it returns the parts."""
        texts = as_texts(inputs)
        parts = [self.source_parts(text) for text in texts]
        usable = [text for text, row in zip(texts, parts) if knows_any(row)]
        tokens = [[part for part, _ in row] for row in parts]
        known = [[is_known for _, is_known in row] for row in parts]
        return Encoded(self.encode(usable) if usable else {}, tokens, known)

    def requested(self, request: requests.Request) -> Requested:
        """Reads texts. Warns of unknown words, and of texts longer than in training.

        Raises:
            UsageError: a text given by hand in which the model knows nothing.
        """
        column = str(getattr(self.data, "source_column", requests.TEXT_COLUMN))
        texts = requests.read_texts(request, '"ein mann schläft ."', column)
        for i, text in enumerate(texts, 1):
            parts, longest = self.source_parts(text), self.longest["source"]
            unknown = " ".join(part for part, known in parts if not known)
            note = f"has what the run does not know: {unknown}" if unknown else ""
            if not knows_any(parts):
                if request.source is None:
                    raise UsageError(
                        f"expected a text with a word that the run has seen, got {text!r}"
                    )
                note = "has no word that the run has seen; its translation is left empty"
            elif len(parts) > longest:
                note += f"{' and ' * bool(note)}has {len(parts)} tokens, where the longest in "
                note += f"training had {longest}; expect less, or split it"
            if parts and note:
                which = "text" if request.source is None else "line"
                requests.warn(f"warning: {which} {i} {note}")
        return Requested(texts, texts)

    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        text = asked.words()
        parts = self.source_parts(text)
        if not knows_any(parts):
            raise UsageError(f"expected a text with a word that the run knows, got {text[:60]!r}")
        check_length(len(parts))
        sources = self.encode([text])
        longest = rounded(sources["source"].shape[1])
        # the decoder's attention on its own tokens must have another number of keys
        longest += SHORTEST if longest == self.max_length else 0
        return look(longer(sources, longest), longest), replies.with_tokens(parts)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        length = run.examples["source_lengths"][index]
        return {"source": replies.written(run.examples["source_words"][index, :length])}

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        target = int(run.examples["prediction_lengths"][index])
        source = int(run.examples["source_lengths"][index])
        whole = super().weights(run, index)
        return {name: weights[:, :target, :source] for name, weights in whole.items()}

    def draw(
        self, inputs: UserInput, prediction: Prediction, verdicts: list[tuple[str, str]], name: str
    ) -> "Figure":
        """Draws the alignment of the first translation with a token, without its end."""
        from flax_attn.analysis.translation import alignment_map

        for i, found in enumerate(prediction.translations):
            if found and found[0].tokens:
                words = bracketed(zip(prediction.tokens[i], prediction.known[i]))
                if len(words) > MOST_DRAWN:
                    most = f"at most {MOST_DRAWN} tokens to draw"
                    raise UsageError(f"expected {most}, got {len(words)}; leave out --figure")
                return alignment_map(
                    words, prediction.target_tokens[i][0], found[0].alignment, name
                )
        raise UsageError("expected a translation to draw, got empty ones; leave out --figure")
