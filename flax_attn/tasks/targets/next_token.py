"""The token that comes next, trained on the cross-entropy of every token of a passage."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flax_attn.data import toy
from flax_attn.data.raw import Columns, Raw
from flax_attn.runs.reading import Record
from flax_attn.tasks import induction, replies
from flax_attn.tasks.artifacts import LossAndMetrics, Prediction, outputs_of
from flax_attn.tasks.comparison import ExampleScores
from flax_attn.tasks.inputs.tokens import PART, Passages, check_lengths
from flax_attn.tasks.targets.base import Headline, Target, percent, token_loss
from flax_attn.tasks.targets.classes import show_classes
from flax_attn.types import Batch, JsonObject, Tree

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

MOST_NEXT = 10  # tokens that may come next


@dataclass(frozen=True)
class NextToken(Target):
    """The next token of a text, by the tokenizer of its input."""

    name = "next"
    score = "loss"
    measured = "loss"

    inputs: Passages

    def batch(self, rows: Columns) -> Batch:
        return self.inputs.rows(rows.inputs)

    def sampler(self, batches: Mapping[str, Batch]) -> Callable[[Batch, Array], Batch] | None:
        """Samples passages that begin anywhere in the text, unless each line is a text."""
        if self.inputs.data.by_line:
            return None
        length = check_lengths(self.inputs.data, batches)
        sizes = {"length": length, "batch_size": self.recipe.batch_size}
        return functools.partial(draw_passages, **sizes)

    def loss(self, outputs: Array, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        return token_loss(self.recipe, outputs, batch, train)

    def baselines(self, raw: Raw) -> dict[str, ExampleScores]:
        """Measures the share of each token in training, and that after the token before."""
        train, test = (self.batch(raw.splits[name]) for name in ("train", "test"))
        size, mask = self.inputs.tokenizer.size, test["targets"] > 0
        counts = np.bincount(train["targets"].ravel(), minlength=size)[1:] + 1.0
        alone = np.append(0.0, counts / counts.sum())
        pairs, tested = (size * rows["inputs"] + rows["targets"] for rows in (train, test))
        kinds, numbers = np.unique(pairs[train["targets"] > 0], return_counts=True)
        found = np.minimum(np.searchsorted(kinds, tested), len(kinds) - 1)
        after = np.where(kinds[found] == tested, numbers[found], 0)
        before = np.bincount(train["inputs"][train["targets"] > 0], minlength=size)
        # as if each token had come once more after every other, by its share
        both = (after + alone[test["targets"]]) / (before[test["inputs"]] + 1)
        shares = {"the share of each token": alone[test["targets"]], "pairs of tokens": both}
        per_passage = mask.sum(axis=1).mean()
        losses = {name: -np.log(np.where(mask, share, 1)) for name, share in shares.items()}
        return {name: {"loss": loss.sum(axis=1) / per_passage} for name, loss in losses.items()}

    def decode(self, outputs: Sequence[Array | np.ndarray]) -> Array:
        return jax.nn.softmax(jnp.stack(outputs), axis=-1).mean(axis=0)

    def reply(self, output: np.ndarray) -> JsonObject:
        return replies.classified(output, self.class_names()) | {"writes": self.writes(output)}

    def writes(self, shares: np.ndarray) -> list[list[int] | None]:
        """Returns the code points of each class that a reply names; None for what is no text."""
        tokens, least = replies.likeliest(shares), self.inputs.num_unwritten
        texts = [self.inputs.tokenizer.decode([token]) for token in tokens]
        are_texts = [token >= least and PART not in text for token, text in zip(tokens, texts)]
        return [[*map(ord, text)] if is_text else None for text, is_text in zip(texts, are_texts)]

    def describe(self, names: Sequence[str], prediction: Prediction) -> list[JsonObject]:
        rows: list[JsonObject] = []
        for text, shares in zip(names, outputs_of(prediction)):
            order = np.argsort(-shares, kind="stable")[:MOST_NEXT]
            best = [{"token": prediction.names[i], "probability": float(shares[i])} for i in order]
            rows.append({"input": text, "next": best})
        return rows

    def show(self, row: JsonObject, console: "Console") -> None:
        shares = {repr(token["token"]): token["probability"] for token in row["next"]}
        show_classes({"input": row["input"], "classes": shares}, console)

    def verdicts(self, prediction: Prediction) -> list[str]:
        return prediction.classes

    def class_names(self) -> list[str]:
        return self._names

    @functools.cached_property
    def _names(self) -> list[str]:
        """Returns every token as text, once, as a vocabulary may be large."""
        return self.inputs.written(np.arange(self.inputs.tokenizer.size)).tolist()

    @classmethod
    def summary(cls, run: Record) -> str:
        return "continue a text"

    @classmethod
    def headline(cls, run: Record) -> Headline:
        accuracy = run.mean("accuracy")
        about = [] if np.isnan(accuracy) else [f"accuracy {percent(accuracy)}"]
        about.insert(0, f"perplexity {np.exp(run.mean('loss')):.3g}")
        return Headline("loss", "Loss", lambda loss: f"{loss:.3g} nats per token", about)

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        """Returns the loss by position, and what shows induction."""
        held = run.examples
        shown: JsonObject = {"losses": replies.numbers(held["losses"])}
        if "induction" in held and induction.is_found(held["induction"], len(held["string"])):
            shown["induction"] = replies.numbers(held["induction"])
            shown["string"] = replies.written(held["string"])
            weights = held["induction_weights"]
            shown["induction_weights"] = replies.pack(weights.reshape(-1, *weights.shape[2:]))
        return shown

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        from flax_attn.analysis import language

        return language.draw(run)


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
