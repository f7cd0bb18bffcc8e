"""Running text as tokens, that a language model learns to continue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import jax
import numpy as np
from jaxtyping import Int

from flax_attn.data.raw import Raw
from flax_attn.data.sets.language import LanguageData
from flax_attn.data.text import pad
from flax_attn.data.tokenizers import Tokenizer, fit_tokenizer, tokenizer_from_json
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs
from flax_attn.models.generation import NEVER
from flax_attn.models.sizes import lengths_to, rounded
from flax_attn.runs.reading import Record
from flax_attn.tasks import replies, requests
from flax_attn.tasks.artifacts import Kept, Look, Prediction
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.inputs.base import SERVED, Encoded, Input, Requested
from flax_attn.tasks.inputs.texts import as_texts, check_sizes
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure

PART = "\ufffd"  # what bytes are decoded to that are a part of a character


@dataclass(frozen=True)
class Passages(Input):
    """Passages of `max_length` tokens, by a tokenizer fitted on the training split alone.

    The first `num_unwritten` tokens are not text, such as padding.
    """

    name = "tokens"
    noun = "passages"
    num_examples = 1  # all heads on one
    num_unwritten: ClassVar[int] = NEVER

    data: LanguageData
    tokenizer: Tokenizer

    @classmethod
    def fit(cls, data: LanguageData, raw: Raw, with_targets: bool) -> "Passages":
        text = raw.splits["train"].inputs
        check_vocabulary(data, text)
        return cls(data, fit_tokenizer(data.tokenizer, [text], data.vocabulary_size))

    @classmethod
    def restore(cls, data: LanguageData, kept: Kept) -> "Passages":
        restored = cls(data, tokenizer_from_json(kept.files["tokenizer.json"]))
        check_sizes(restored.kept.sizes, kept.sizes)
        return restored

    @classmethod
    def file_names(cls, data: LanguageData) -> tuple[str, ...]:
        return ("tokenizer.json",)

    @property
    def kept(self) -> Kept:
        sizes = {"vocabulary_size": self.tokenizer.size, "max_length": self.data.max_length}
        return Kept({}, sizes, {"tokenizer.json": self.tokenizer.to_json()})

    def rows(self, text: str) -> Batch:
        """Cuts a text into passages, with the token after each: both are `(n, max_length)`.

        A line that is a text of its own has a row. The end of the line before it is its first
        input. The last row, and rows of short lines, are filled up with padding.
        """
        length = self.data.max_length
        if not self.data.by_line:
            tokens = self.tokenizer.encode(text)
            number = -(-max(len(tokens) - 1, 0) // length)
            padded = np.zeros(number * length + 1, np.int32)  # (n max_length + 1,)
            padded[: len(tokens)] = tokens[: len(padded)]
            shape = number, length
            return {"inputs": padded[:-1].reshape(shape), "targets": padded[1:].reshape(shape)}
        lines = text.split("\n")
        rows, _ = pad([self.tokenizer.encode(f"\n{line}\n") for line in lines], length + 1)
        inputs, targets = np.where(rows[:, 1:] > 0, rows[:, :-1], 0), np.zeros_like(rows[:, 1:])
        for line, row, of_row in zip(lines, rows, targets):
            scored = self.data.scored(line)
            of_row[scored] = row[1:][scored]
        return {"inputs": inputs, "targets": targets}

    def encode(self, raw: UserInput) -> Inputs:
        tokens, _ = pad([self.last(text) for text in raw], self.data.max_length)  # (n, max_length)
        return tokens

    def encoded(self, text: str) -> list[int]:
        """Encodes a prompt as at least one token. A line of its own follows the end of another.

        Raises:
            UsageError: characters that the run has not seen.
        """
        end = self.tokenizer.encode("\n")
        start = end if end[0] >= NEVER else [NEVER]  # the most frequent character
        tokens = self.tokenizer.encode(text)
        parts = zip(self.tokenizer.split(text), tokens)
        if unknown := list(dict.fromkeys(part for part, token in parts if token < NEVER)):
            raise UsageError(
                f"expected characters that the run has seen in {text[:60]!r}, got "
                f"{', '.join(map(repr, unknown[:10]))}; leave them out"
            )
        return start + tokens if self.data.by_line else tokens or start

    def last(self, text: str) -> list[int]:
        """Encodes the end of a prompt, as much as the model reads."""
        return self.encoded(text)[-self.data.max_length :]

    def decoded(self, texts: list[list[int]]) -> list[str]:
        """Decodes texts. Where each line is a text, the text ends at the first line end."""
        decoded = [self.tokenizer.decode(text) for text in texts]
        if not self.data.by_line:
            return decoded
        return [text[1:].partition("\n")[0] for text in decoded]

    def written(self, tokens: Int[np.ndarray, " n"]) -> np.ndarray:
        """Returns each token as text. A part of a character is shown by its number: `<130>`."""
        decoded = [(token, self.tokenizer.decode([token])) for token in tokens.tolist()]
        names = [f"<{token}>" if PART in text else text for token, text in decoded]
        return np.array(names, dtype=str)

    def sample(self, number: int) -> Inputs:
        return np.zeros((number, self.data.max_length), np.int32)

    def of_sizes(self, number: int, longest: int) -> list[Inputs]:
        most, lengths = self.data.max_length, np.ones(number, np.int32)
        shapes = [(number, min(width, most)) for width in lengths_to(min(longest, most))]
        return [{"tokens": np.zeros(shape, np.int32), "lengths": lengths} for shape in shapes]

    def shapes(self) -> Tree:
        return "b, t"

    def live_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        if self.tokenizer.to_json()["kind"] != "character":
            raise UsageError(f"its texts become tokens in Python; {SERVED}")
        tokens = jax.ShapeDtypeStruct((1, self.data.max_length), np.int32)
        return {"tokens": tokens, "last": jax.ShapeDtypeStruct((), np.int32)}

    def tokenization(self) -> JsonObject:
        """Returns how a text becomes tokens: the character of each, and what stands before it.

        A page shows `entries` with escapes, and finds a character by its code point in `codes`.
        `start` is what an empty text is read as; where each line is a text, all begin with it.
        """
        entries = self.tokenizer.to_json()["entries"]
        return {
            "entries": entries,
            "codes": [ord(entry) if len(entry) == 1 else None for entry in entries],
            "first": NEVER,  # the first token that is a character
            "start": self.encoded(""),
            "always": self.data.by_line,
            "most": self.data.max_length,
        }

    def read(self, inputs: UserInput) -> Encoded:
        """Encodes texts, whose last `max_length` tokens are read, as `tokens` and `lengths`."""
        rows = [self.last(text) for text in as_texts(inputs)]
        most = min(rounded(max(map(len, rows))), self.data.max_length)
        tokens, lengths = pad(rows, most)
        written = [self.written(np.array(row)).tolist() for row in rows]
        known = [[token >= self.num_unwritten for token in row] for row in rows]
        return Encoded({"tokens": tokens, "lengths": lengths}, written, known)

    def requested(self, request: requests.Request) -> Requested:
        texts, most = requests.read_texts(request, '"ROMEO:"'), self.data.max_length
        for number, text in enumerate(texts, 1):
            if (length := len(self.encoded(text))) > most:
                requests.warn(
                    f"warning: text {number} has {length} tokens, of which the last {most} are read"
                )
        return Requested(texts, texts)

    def answer(self, asked: Asked, look: Look) -> tuple[dict[str, Tree], JsonObject]:
        most, whole = self.data.max_length, self.encoded(asked.text())
        row = whole[-most:]
        width = min(rounded(len(row)), most)
        tokens, _ = pad([row], width)
        looked = look({"tokens": tokens, "last": np.int32(len(row) - 1)})
        cut = f"the model reads the last {most} tokens" if len(whole) > most else None
        texts = [(text, True) for text in self.written(np.array(row)).tolist()]
        reply = replies.attended(looked, width, len(row)) | replies.with_tokens(texts)
        return looked, reply | {"note": cut}

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        held = run.examples
        return {"tokens": replies.written(held["tokens"]) if "tokens" in held else []}

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        return {name: np.asarray(weights) for name, weights in run.attention.items()}

    def draw(
        self, inputs: UserInput, prediction: Prediction, verdicts: list[tuple[str, str]], name: str
    ) -> "Figure":
        """Draws what the last token of the first text sees."""
        from flax_attn.analysis import language

        if not prediction.attention:
            raise UsageError(f"the model of {name} has no weights to draw")
        last = {name: weights[0][:, -1] for name, weights in prediction.attention.items()}
        return language.looks(prediction.tokens[0], last, name)


def check_vocabulary(data: LanguageData, text: str) -> None:
    """Raises a UsageError for a text of more characters than the vocabulary holds."""
    kinds = len(set(text))
    if data.tokenizer == "character" and kinds + NEVER > data.vocabulary_size:
        raise UsageError(
            f"expected data.vocabulary_size of at least {kinds + NEVER:,} for the {kinds:,} kinds "
            f"of characters of the text, got {data.vocabulary_size:,}"
        )


def check_lengths(data: LanguageData, batches: Mapping[str, Batch]) -> int:
    """Returns the tokens of the text to train on.

    Raises a UsageError for too few to draw passages from, or for a split shorter than a passage.
    """
    lengths = {name: int((batch["targets"] > 0).sum()) + 1 for name, batch in batches.items()}
    for name, length in lengths.items():
        least = data.max_length + (name == "train")
        if length < least:
            raise UsageError(
                f"expected at least {least} tokens of text in the {name} split for "
                f"data.max_length={data.max_length}, got {length}; give a longer text"
            )
    return lengths["train"]
