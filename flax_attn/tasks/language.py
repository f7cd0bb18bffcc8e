"""Language models: text that a model learns to continue."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from flax_attn.data import toy
from flax_attn.data.sets import DataSet
from flax_attn.data.sets.language import LanguageData, Names
from flax_attn.data.text import pad
from flax_attn.data.tokenizers import Tokenizer, fit_tokenizer, tokenizer_from_json
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params
from flax_attn.models.generation import NEVER, GeneratesText, Sampling, check_numbers, generate
from flax_attn.models.language import AT_ONCE, attention_of, logits_of, look, loss_by_position
from flax_attn.runs.reading import Record
from flax_attn.tasks import induction, replies, requests
from flax_attn.tasks.artifacts import (
    Evaluation,
    Kept,
    Look,
    LossAndMetrics,
    Prediction,
    Recipe,
    Rows,
    outputs_of,
    to_store,
)
from flax_attn.tasks.asking import Asked, rounded
from flax_attn.tasks.inputs.texts import as_texts
from flax_attn.tasks.pairs import check_sizes
from flax_attn.tasks.targets.classes import show_classes
from flax_attn.tasks.targets.tokens import token_loss
from flax_attn.tasks.task import Task, needs_python
from flax_attn.types import Batch, Json, JsonObject, Options, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

PART = "\ufffd"  # what bytes are decoded to that are a part of a character
SAMPLE_LENGTH = 500  # tokens of the text that every run writes
NUM_EXAMPLES = 16  # test passages
MOST_NEXT = 10  # tokens that may come next

OnTexts = Callable[[list[str]], object]


@dataclass
class Generated:
    """Texts that a model wrote.

    Attributes:
        texts: each with its prompt.
        tokens: the last ones of the first text, as the model reads them.
        attention: what the last of these tokens looks at, by block `(heads, tokens)`.
    """

    texts: list[str]
    tokens: list[str]
    attention: dict[str, np.ndarray]


@dataclass(frozen=True)
class LanguageModel(Task):
    """A task on running text."""

    name = "tokens-next"
    score = "loss"
    measured = "loss"

    data: LanguageData
    recipe: Recipe
    kept: Kept
    tokenizer: Tokenizer
    rows: Rows
    test: Batch
    ends: frozenset[int] = frozenset()  # the tokens that end a text

    @classmethod
    def load(cls, data: LanguageData, recipe: Recipe, manual_dir: Path | None) -> "LanguageModel":
        """Encodes texts as rows of tokens, by a tokenizer fitted on the training split alone."""
        raw = data.load(manual_dir)
        splits = {name: split.inputs for name, split in raw.splits.items()}
        check_vocabulary(data, splits["train"])
        tokenizer = fit_tokenizer(data.tokenizer, [splits["train"]], data.vocabulary_size)
        batches = {name: to_rows(tokenizer, text, data) for name, text in splits.items()}
        train, draw = batches["train"], None
        if not data.by_line:
            length = check_lengths(data, batches)
            draw = functools.partial(draw_passages, length=length, batch_size=recipe.batch_size)
        sizes = {"vocabulary_size": tokenizer.size, "max_length": data.max_length}
        kept = Kept({"files": dict(raw.files)}, sizes, {"tokenizer.json": tokenizer.to_json()})
        evaluated = {name: batches[name] for name in recipe.evaluate if name in batches}
        rows = Rows(train, evaluated, draw)
        return cls(data, recipe, kept, tokenizer, rows, batches["test"])

    @classmethod
    def restore(cls, data: LanguageData, recipe: Recipe, kept: Kept) -> "LanguageModel":
        tokenizer = tokenizer_from_json(kept.files["tokenizer.json"])
        check_sizes({"vocabulary_size": tokenizer.size, "max_length": data.max_length}, kept.sizes)
        return cls(data, recipe, kept, tokenizer, Rows({}, {}), {})

    @classmethod
    def file_names(cls, data: LanguageData) -> tuple[str, ...]:
        return ("tokenizer.json",)

    def sample(self) -> Inputs:
        return np.zeros((self.recipe.batch_size, self.data.max_length), np.int32)

    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        return token_loss(self.recipe, outputs, batch, train)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Evaluation:
        """Evaluates the loss at each position, and induction; writes a text by every seed.

        Arrays have the losses `(seeds, max_length)`, and of the first seed the induction `(blocks,
        heads)`, the attention of the best head on one repeated string, and that of all heads on
        the first test text.
        """
        first = {name: rows[:NUM_EXAMPLES] for name, rows in self.test.items()}
        losses = np.stack([loss_by_position(model, one_seed, **self.test) for one_seed in params])
        arrays = first | {"losses": losses}
        if not isinstance(model, GeneratesText):
            logits = logits_of(model, params[0], first["inputs"])
            return Evaluation(arrays | {"predictions": np.asarray(logits.argmax(axis=-1))})
        logits, attention = look(model, params[0], first["inputs"])
        arrays["predictions"] = logits.argmax(axis=-1)
        n = int((self.test["targets"][0] > 0).sum())
        tokens = self.written(self.test["inputs"][0, :n])
        weights = {name: array[0, :, :n, :n] for name, array in attention.items()}
        write = functools.partial(self.generate, model, prompts="", length=SAMPLE_LENGTH)
        texts = [write(params=[one_seed]).texts[0] for one_seed in params]
        induced, metrics, summary = self._induction(model, params)
        if isinstance(self.data, Names):
            metrics["test/harmony"] = [share_in_harmony(text) for text in texts]
        arrays |= induced | to_store(weights) | {"tokens": tokens}
        return Evaluation(arrays, metrics, summary, {"sample.txt": texts[0] + "\n"})

    def _induction(
        self, model: nn.Module, params: Sequence[Params]
    ) -> tuple[dict[str, np.ndarray], dict[str, list[float]], dict[str, Json]]:
        """Returns arrays, metrics and summary of the head that does most induction.

        The strings are as long as the data can hold, and begin as its lines do. All is empty where
        they are too short to show induction.
        """
        names = self.written(np.arange(self.tokenizer.size)).tolist()
        tokens = [i for i, name in enumerate(names) if i >= NEVER and name != "\n"]
        period = min(len(tokens), self.data.most_repeated)
        if period < 2:
            return {}, {}, {}
        start = self.encoded("") if self.data.by_line else []
        strings = induction.repeated_strings(tokens, period, self.data.seed, start)
        looks = [attention_of(model, one_seed, strings) for one_seed in params]
        score = lambda of_block: induction.scores(of_block, period)
        by_head = [np.stack([*map(score, blocks.values())]) for blocks in looks]
        block, head = map(int, np.unravel_index(by_head[0].argmax(), by_head[0].shape))
        name = list(looks[0])[block]
        arrays = {"induction": by_head[0], "string": self.written(strings[0])}
        arrays["induction_weights"] = looks[0][name][0, head]
        metrics = {"test/induction": [float(of_heads.max()) for of_heads in by_head]}
        return arrays, metrics, {"induction_head": f"{name}, head {head}"}

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """Predicts the token after each text, whose last `max_length` tokens are read.

        The probabilities are the mean over the seeds, and the attention is that of the first.
        """
        rows = [self.encoded(text)[-self.data.max_length :] for text in as_texts(inputs)]
        most = min(rounded(max(map(len, rows))), self.data.max_length)
        shares, weights = [], []
        for first in range(0, len(rows), AT_ONCE):
            tokens, lengths = pad(rows[first : first + AT_ONCE], most)
            ends = np.arange(len(tokens)), lengths - 1
            logits = [logits_of(model, one_seed, tokens)[ends] for one_seed in params]
            shares.append(np.mean([jax.nn.softmax(one, axis=-1) for one in logits], axis=0))
            if isinstance(model, GeneratesText):
                of_blocks = attention_of(model, params[0], tokens)
                weights += [
                    {name: array[i, :, :n, :n] for name, array in of_blocks.items()}
                    for i, n in enumerate(lengths)
                ]
        outputs = np.concatenate(shares)
        names = self.class_names()
        written = [self.written(np.array(row)).tolist() for row in rows]
        known = [[token >= self.num_unwritten for token in row] for row in rows]
        best = [names[i] for i in outputs.argmax(axis=-1)]
        blocks = weights[0] if weights else {}
        attention = {name: [row[name] for row in weights] for name in blocks}
        return Prediction(outputs, names, best, written, known, attention)

    def generate(
        self,
        model: nn.Module,
        params: Sequence[Params],
        prompts: str | Sequence[str],
        *,
        length: int = 500,
        temperature: float = 0.8,
        top_k: int = 40,
        seed: int = 0,
        on_texts: OnTexts | None = None,
    ) -> Generated:
        """Writes texts that begin with the prompts, by the first seed.

        Args:
            prompts: a text, or several. An empty one leaves the beginning to the model.
            length: the number of tokens to write, unless a token that ends the text comes first.
            temperature, top_k: as in `Sampling`.
            seed: decides what is written, with the prompt and its index. Other prompts do not.
            on_texts: takes the texts each time that some more of them is written.
        """
        if not isinstance(model, GeneratesText):
            raise UsageError(
                "expected a model with the methods start and decode of gpt, which write texts"
            )
        check_numbers(length, temperature, top_k, seed)
        texts = [self.encoded(text) for text in as_texts(prompts)]
        most = self.tokenizer.size - self.num_unwritten
        sampling = Sampling(temperature, top_k if top_k < most else 0)
        going = set(range(len(texts)))
        for parts in generate(model, params[0], texts, length, sampling, seed):
            for i in tuple(going):
                goes_on = lambda token: token not in self.ends
                part = list(itertools.takewhile(goes_on, parts[i].tolist()))
                texts[i].extend(part)
                going -= {i} if len(part) < parts.shape[1] else set()
            if on_texts is not None:
                on_texts(self._decoded(texts))
            if not going:
                break
        tokens = np.array(texts[0][-self.data.max_length :], np.int32)
        weights = attention_of(model, params[0], tokens[None])
        last = {name: array[0, :, -1] for name, array in weights.items()}
        return Generated(self._decoded(texts), self.written(tokens).tolist(), last)

    def input_shapes(self) -> Tree:
        return f"b, {self.data.max_length}"

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """Computes probabilities `(b, max_length, vocabulary)` of the token after each."""
        logits = [logits_of(model, one_seed, inputs) for one_seed in params]
        return {"outputs": jax.nn.softmax(jnp.stack(logits), axis=-1).mean(axis=0)}

    @classmethod
    def respond(
        cls, request: requests.Request, load: requests.Load, console: "Console"
    ) -> list[Path]:
        """Prints the most probable next tokens. Draws what the last token of the first sees."""
        if request.output is not None:
            raise UsageError("expected no --output, as next tokens are printed; --json prints JSON")
        requests.check_figure(request.figure, request.source)
        texts = requests.read_texts(request, '"ROMEO:"')
        run = load()
        assert isinstance(run.task, LanguageModel)
        most = run.task.data.max_length
        for number, text in enumerate(texts, 1):
            if (length := len(run.task.encoded(text))) > most:
                requests.warn(
                    f"warning: text {number} has {length} tokens, of which the last {most} are read"
                )
        prediction = run.predict(texts)
        if request.figure is not None and not prediction.attention:
            raise UsageError(f"the model of {request.run.name} has no weights to draw")
        rows: list[JsonObject] = []
        for text, shares in zip(texts, outputs_of(prediction)):
            order = np.argsort(-shares, kind="stable")[:MOST_NEXT]
            best = [{"token": prediction.names[i], "probability": float(shares[i])} for i in order]
            rows.append({"input": text, "next": best})
        if request.as_json:
            requests.print_json(rows, console)
        else:
            for row in rows:
                shown = {repr(token["token"]): token["probability"] for token in row["next"]}
                show_classes({"input": row["input"], "classes": shown}, console)

        def draw() -> "Figure":
            from flax_attn.analysis import language

            last = {name: weights[0][:, -1] for name, weights in prediction.attention.items()}
            return language.looks(prediction.tokens[0], last, request.run.resolve().name)

        return requests.write_all(requests.picture_to_write(request, draw))

    @classmethod
    def to_try(cls, data: DataSet, model: type[nn.Module]) -> tuple[str, str] | None:
        return ("generate", "") if hasattr(model, "decode") else None

    def keeps_scores(self, model: nn.Module) -> bool:
        return True

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """Computes the probabilities of the next token, and what the last one attends to."""
        last, tokens = inputs["last"], jnp.asarray(inputs["tokens"])
        options: Options = {}
        if isinstance(model, GeneratesText):
            options["need_weights"] = True
        shares, attentions = [], []
        for of_seed in params:
            applied: Tree = model.apply({"params": of_seed}, tokens, **options)
            shares.append(jax.nn.softmax(applied[0][0, last]))
            attentions.append(applied[1].get("attention", {}))
        outputs = jnp.mean(jnp.stack(shares), axis=0)[None]
        return {"outputs": outputs, "attention": attentions[0], "last": last}

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        most, whole = self.data.max_length, self.encoded(asked.text())
        row = whole[-most:]
        width = min(rounded(len(row)), most)
        tokens, _ = pad([row], width)
        looked = look({"tokens": tokens, "last": np.int32(len(row) - 1)})
        reply = replies.attended(looked, width, len(row))
        shares = looked["outputs"][0]
        reply |= replies.classified(shares, self.class_names())
        reply |= {"writes": self.writes(shares)}
        cut = f"the model reads the last {most} tokens" if len(whole) > most else None
        tokens_as_text = self.written(np.array(row)).tolist()
        return reply | {"tokens": tokens_as_text, "known": [True] * len(row), "note": cut}

    def writes(self, shares: np.ndarray) -> list[list[int] | None]:
        """Returns the code points of each class that a reply names; None for what is no text."""
        tokens = replies.likeliest(shares)
        texts = [self.tokenizer.decode([token]) for token in tokens]
        least = self.num_unwritten
        are_texts = [token >= least and PART not in text for token, text in zip(tokens, texts)]
        return [[*map(ord, text)] if is_text else None for text, is_text in zip(texts, are_texts)]

    def live_inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        if self.tokenizer.to_json()["kind"] != "character":
            raise needs_python()
        tokens = jax.ShapeDtypeStruct((1, self.data.max_length), np.int32)
        return {"tokens": tokens, "last": jax.ShapeDtypeStruct((), np.int32)}

    def class_names(self) -> list[str]:
        return self._names

    @functools.cached_property
    def _names(self) -> list[str]:
        """Returns every token as text, once, as a vocabulary may be large."""
        return self.written(np.arange(self.tokenizer.size)).tolist()

    @property
    def num_unwritten(self) -> int:
        """Returns the number of first tokens that are not text, such as padding."""
        return NEVER

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

    @classmethod
    def summary(cls, run: Record) -> str:
        return "continues a text"

    @classmethod
    def sentence(cls, run: Record) -> str:
        loss = run.mean("loss")
        share = 100 * float(np.exp(-loss))
        does = f"gives the right next token a probability of {share:.2g} %"
        return f"{does}, a loss of {loss:.3g}, on test text"

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import language

        return language.draw(run)

    @classmethod
    def num_examples(cls, run: Record) -> int:
        return 1

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Returns the first test text, and what shows induction."""
        held = run.examples
        tokens = replies.written(held["tokens"]) if "tokens" in held else []
        shown: JsonObject = {"tokens": tokens, "losses": replies.numbers(held["losses"])}
        if "induction" in held:
            shown["induction"] = replies.numbers(held["induction"])
            shown["string"] = replies.written(held["string"])
            shown["induction_weights"] = replies.pack(held["induction_weights"][None])
        return shown

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        return {name: np.asarray(weights) for name, weights in run.attention.items()}

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

    def _decoded(self, texts: list[list[int]]) -> list[str]:
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


def check_vocabulary(data: LanguageData, text: str) -> None:
    """Raises a UsageError for a text of one character, or of more than the vocabulary holds."""
    kinds = len(set(text))
    if kinds == 1:
        raise UsageError(
            f"expected a text of several characters to train on, got {text[0]!r} alone"
        )
    if data.tokenizer == "character" and kinds + NEVER > data.vocabulary_size:
        raise UsageError(
            f"expected data.vocabulary_size of at least {kinds + NEVER:,} for the {kinds:,} kinds "
            f"of characters of the text, got {data.vocabulary_size:,}"
        )


def to_rows(tokenizer: Tokenizer, text: str, data: LanguageData) -> Batch:
    """Cuts a text into passages, with the token after each: both are `(n, max_length)`.

    A line that is a text of its own has a row. The end of the line before it is its first input.
    The last row, and rows of short lines, are filled up with padding.
    """
    if not data.by_line:
        tokens = tokenizer.encode(text)
        number = -(-max(len(tokens) - 1, 0) // data.max_length)
        padded = np.zeros(number * data.max_length + 1, np.int32)
        padded[: len(tokens)] = tokens[: len(padded)]
        shape = number, data.max_length
        return {"inputs": padded[:-1].reshape(shape), "targets": padded[1:].reshape(shape)}
    lines = [tokenizer.encode(f"\n{line}\n") for line in text.split("\n")]
    rows, _ = pad(lines, data.max_length + 1)
    targets = rows[:, 1:]
    return {"inputs": np.where(targets > 0, rows[:, :-1], 0), "targets": targets}


def check_lengths(data: LanguageData, batches: dict[str, Batch]) -> int:
    """Returns the tokens of the text to train on.

    Raises:
        UsageError: there are too few of them to draw passages from, or a split that is measured is
            shorter than one passage.
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


def draw_passages(train: Batch, key: Array, *, length: int, batch_size: int) -> Batch:
    """Draws passages that begin anywhere in the `length` tokens of the rows to train on."""
    max_length = train["inputs"].shape[1]
    text = jnp.concatenate([train["inputs"].ravel(), train["targets"][-1, -1:]])
    starts = jax.random.randint(key, (batch_size, 1), 0, length - max_length)
    windows = text[starts + jnp.arange(max_length + 1)[None]]
    return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}


def share_in_harmony(text: str) -> float:
    """Computes the share of the whole lines of a text that are names with vowels of one kind."""
    names = text.split("\n")[1:-1]
    return float(np.mean([toy.in_harmony(name) for name in names])) if names else 0.0
