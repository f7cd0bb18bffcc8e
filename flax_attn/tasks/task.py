"""A task: an input, a target, and everything that derives from the two.

Predictions, exports and the answers of a page apply the model in the same way, and leave encoding
to the input and decoding to the target; translation and language models override how. `load` reads
data to train on; `restore` takes what a run has kept, to predict with.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array, Int

from flax_attn.data.raw import Raw
from flax_attn.data.sets import DataSet
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params, apply, apply_together, forward, in_order
from flax_attn.models.sizes import ROWS, in_batches
from flax_attn.runs.results import Comparison
from flax_attn.tasks import baselines, step_scores
from flax_attn.tasks.artifacts import (
    Evaluation,
    Kept,
    Look,
    LossAndMetrics,
    Prediction,
    Recipe,
    Rows,
    first_rows,
    to_store,
)
from flax_attn.tasks.asking import Asked
from flax_attn.tasks.comparison import ExampleScores, compare
from flax_attn.tasks.inputs.base import Input
from flax_attn.tasks.replies import without_padding
from flax_attn.tasks.targets.base import Target
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.tasks.language import Generated


@dataclass(frozen=True)
class Task:
    """An input and a target with their data. A subclass names the two.

    Attributes:
        input_class, target_class: the classes of the two.
        name: of both, such as `signal-classes`.
        tells_why: whether the effect of each word, or part of an input, on the prediction can be
            computed.
        inputs, target: fitted on the training split.
        files: SHA-256 sums of the files that were read, by name.
        rows: to train on and to evaluate on; empty in a run that is restored.
        raw: the data as they were loaded; None in a run that is restored.
        tested: the encoded test split.
    """

    input_class: ClassVar[type[Input]]
    target_class: ClassVar[type[Target]]
    name: ClassVar[str]
    tells_why: ClassVar[bool]
    batch_rows: ClassVar[tuple[int, int, int]] = ROWS

    data: DataSet
    recipe: Recipe
    inputs: Input
    target: Target
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: Rows = dataclasses.field(default_factory=lambda: Rows({}, {}))
    raw: Raw | None = None
    tested: Batch = dataclasses.field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        if "input_class" in cls.__dict__:  # else a published model
            cls.name = f"{cls.input_class.name}-{cls.target_class.name}"
            cls.tells_why = cls.target_class.name == "classes"

    # training

    @classmethod
    def load(cls, data: DataSet, recipe: Recipe, manual_dir: Path | None) -> "Task":
        """Reads a data set, fits the input and the target, and encodes all splits.

        Raises:
            UsageError: data that are missing, damaged, or do not make a task.
        """
        raw = data.load(manual_dir)
        if not len(raw.splits["train"].inputs):
            raise UsageError(
                "expected examples to train on, got none; give more, or lower data.valid_fraction"
            )
        inputs = cls.input_class.fit(data, raw, cls.target_class.name == "signal")
        target = cls.target_class.fit(data, raw, recipe, inputs)
        if data.subset:  # fitted on all rows; only training has fewer
            used = {"train": raw.splits["train"].first(data.subset)}
            raw = raw._replace(splits=raw.splits | used)
        batches = {name: target.batch(rows) for name, rows in raw.splits.items() if len(rows[0])}
        num_buckets = getattr(data, "num_buckets", 1)
        ordered = {name: for_buckets(rows, num_buckets) for name, rows in batches.items()}
        evaluated = {name: ordered[name] for name in recipe.evaluate if name in ordered}
        rows = Rows(ordered["train"], evaluated, target.sampler(batches))
        tested = jax.tree.map(np.asarray, batches.get("test", {}))
        return cls(data, recipe, inputs, target, raw.files, rows, raw, tested)

    @classmethod
    def restore(cls, data: DataSet, recipe: Recipe, kept: Kept) -> "Task":
        """Restores the task of a run, without rows.

        Raises:
            ValueError, KeyError, TypeError: what was kept is not what `load` makes.
        """
        inputs = cls.input_class.restore(data, kept)
        target = cls.target_class.restore(data, recipe, kept, inputs)
        return cls(data, recipe, inputs, target, kept.derived.get("files", {}))

    @classmethod
    def file_names(cls, data: DataSet) -> tuple[str, ...]:
        """Returns the names of the further files of the run directory that `restore` needs."""
        return (*cls.input_class.file_names(data), *cls.target_class.file_names())

    @functools.cached_property
    def kept(self) -> Kept:
        """Returns what a run keeps of its data, so that it can predict without them."""
        parts = Kept({"files": dict(self.files)}), self.inputs.kept, self.target.kept
        return Kept(*(functools.reduce(operator.or_, values) for values in zip(*parts)))

    def sample(self) -> Inputs:
        """Returns inputs of the shapes and dtypes that a model is built for."""
        return self.inputs.sample(self.recipe.batch_size)

    def loss(self, outputs: Tree, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        """Computes the loss of a batch, and its metrics."""
        return self.target.loss(outputs, aux, batch, train)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Evaluation:
        """Evaluates the parameters of every seed on the test split, and keeps some examples.

        The attention is that of the first seed.
        """
        assert self.raw is not None
        shown, test, arrays = self.inputs.num_examples, self.raw.splits["test"], self.tested
        outputs = [forward(model, of_seed, arrays["inputs"]) for of_seed in params]
        batch = first_rows(arrays["inputs"], ROWS[-1])  # whose program is compiled already
        _, attention = in_batches(functools.partial(apply_together, model, params[0]), batch)
        results = self.target.results(outputs, arrays["targets"], shown, test.targets)
        few = test.first(shown)
        kept = self.inputs.tested(few.inputs, first_rows(arrays["inputs"], shown))
        marks = {name: np.asarray(mark) for name, mark in few.marks.items()}
        stored = to_store(in_order(first_rows(attention, shown)))
        return results._replace(arrays=kept | marks | results.arrays | stored)

    def compare(self, scores: ExampleScores) -> list[Comparison]:
        """Compares the scores of the test examples with those of simple models."""
        assert self.raw is not None
        return compare(scores, self.target.baselines(self.raw))

    def import_for_results(self) -> None:
        """Imports what the results of a run need, and its training does not."""
        from flax_attn.tasks import figures  # noqa: F401

        if self.target_class.name in baselines.REGRESSED and baselines.has_sklearn():
            import sklearn.linear_model  # noqa: F401

    # predictions

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """Predicts by the parameters of every seed; the attention is that of the first."""
        arrays, tokens, known = self.inputs.read(inputs)
        outputs, attention = self.applied(model, params, arrays)
        prediction = self.target.predicted(outputs, inputs)
        return dataclasses.replace(prediction, tokens=tokens, known=known, attention=attention)

    def applied(
        self, model: nn.Module, params: Sequence[Params], arrays: Inputs
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Computes the outputs and the attention of encoded inputs."""
        padded = self.inputs.to_size(arrays)  # to one of few sizes: few programs
        params = params[:1] if self.target.of_first_seed else params

        def compute(batch: Inputs) -> Tree:
            outputs, attentions = zip(*(apply_together(model, one, batch) for one in params))
            return self.decode(outputs), attentions[0]

        outputs, attention = in_batches(compute, self.inputs.normalize(padded), self.batch_rows)
        if isinstance(arrays, dict):
            widths = padded["tokens"].shape[1], arrays["tokens"].shape[1]
            attention = {name: without_padding(name, w, *widths) for name, w in attention.items()}
        return outputs, in_order(attention)

    @functools.cached_property
    def decode(self) -> Callable[[Sequence[Tree]], Array]:
        """Returns the program that makes one output of those of the seeds."""
        return jax.jit(self.target.decode)

    def warm(self, model: nn.Module, params: Sequence[Params], longest: int) -> None:
        """Compiles what up to 64 inputs take, or 16 of a large model, up to a length."""
        for number in self.batch_rows[:2]:
            for arrays in self.inputs.of_sizes(number, longest):
                self.applied(model, params, arrays)

    def generate(
        self, model: nn.Module, params: Sequence[Params], prompts: UserInput, **options: UserInput
    ) -> "Generated":
        """Continues texts, where the task is a language model."""
        raise UsageError(
            f"expected the run of a language model, such as shakespeare_char, got one of the task "
            f"{self.name}"
        )

    def embed(self, model: nn.Module, params: Sequence[Params], texts: UserInput) -> np.ndarray:
        """Computes a vector for each text, where the task is of a published encoder of texts."""
        raise UsageError(f"expected a published encoder of texts, got the task {self.name}")

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        """Computes `predict` as a pure function of encoded inputs in the user's units."""
        params = params[:1] if self.target.of_first_seed else params
        prepared = self.inputs.normalize(inputs)
        outputs, attentions = zip(*(apply(model, of_seed, prepared) for of_seed in params))
        return {"outputs": self.target.decode(outputs), "attention": attentions[0]}

    # the page

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """Computes what a page shows: `compute`, and the scores of an attention in a loop."""
        computed = self.compute(model, params, inputs)
        if not step_scores.has_scores(model):
            return computed
        prepared = self.inputs.normalize(inputs)
        return computed | {"scores": {"input": step_scores.of_series(model, params[0], prepared)}}

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        """Replies to a page, whose settings `look` takes into account."""
        looked, reply = self.inputs.answer(asked, look)
        return reply | self.target.reply(np.asarray(looked["outputs"][0]))


def row_lengths(rows: Batch) -> Int[np.ndarray, " n"] | None:
    """Returns the length of each row, of several sequences the longest; None for equal lengths."""
    inputs = rows["inputs"]
    if not isinstance(inputs, dict):
        return None
    lengths = [np.asarray(array) for key, array in inputs.items() if key.endswith("lengths")]
    return np.max(lengths, axis=0) if lengths else None  # (n,)


def for_buckets(rows: Batch, num_buckets: int) -> Batch:
    """Sorts rows by their lengths where there are several buckets, each of like lengths."""
    if num_buckets == 1:
        return rows
    lengths = row_lengths(rows)
    assert lengths is not None
    order = np.argsort(lengths, kind="stable")  # (n,), equal lengths in their order
    ordered: Batch = jax.tree.map(lambda array: array[order], rows)
    return ordered
