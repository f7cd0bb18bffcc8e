"""The grid of tasks: an input, a target, and everything that derives from the two.

The loss, predictions, exports and the answers of a page all call the model in the same way, and
leave encoding to the input and decoding to the target.
"""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array

from flax_attn.data.raw import Columns, Raw
from flax_attn.data.sets import DataSet
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params, apply, forward
from flax_attn.runs.reading import Record
from flax_attn.tasks import step_scores
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
from flax_attn.tasks.inputs.base import Input
from flax_attn.tasks.targets.base import Target
from flax_attn.tasks.task import Task, for_buckets, needs_python
from flax_attn.types import Batch, JsonObject, Tree, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure
    from flax_attn.tasks.requests import Load, Request


@dataclass(frozen=True)
class GridTask(Task):
    """An input and a target with their data. A subclass names the two.

    Attributes:
        input_class, target_class: the classes of the two.
        inputs, target: fitted on the training split.
        rows: to train on and to evaluate on; empty in a run that is restored.
        files: SHA-256 sums of the files that were read, by name.
        raw: the data as they were loaded; None in a run that is restored.
        tested: the encoded test split.
    """

    input_class: ClassVar[type[Input]]
    target_class: ClassVar[type[Target]]

    data: DataSet
    recipe: Recipe
    inputs: Input
    target: Target
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: Rows = dataclasses.field(default_factory=lambda: Rows({}, {}))
    raw: Raw | None = None
    tested: Batch = dataclasses.field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        """Fills in the attributes of a task that its input and its target decide."""
        if "input_class" not in cls.__dict__:  # a published model
            return
        inputs, target = cls.input_class, cls.target_class
        cls.name = f"{inputs.name}-{target.name}"
        cls.score, cls.measured = target.score, target.measured
        cls.tells_why = cls.name == "text-classes"

    # training

    @classmethod
    def load(cls, data: DataSet, recipe: Recipe, manual_dir: Path | None) -> "GridTask":
        """Reads a data set, fits the input and the target, and encodes all splits."""
        raw = data.load(manual_dir)
        if not len(raw.splits["train"].inputs):
            raise UsageError(
                "expected examples to train on, got none; give more, or lower data.valid_fraction"
            )
        with_targets = cls.target_class.name == "signal"
        inputs = cls.input_class.fit(data, raw, with_targets)
        target = cls.target_class.fit(data, raw, recipe, inputs)

        def batch(rows: Columns) -> Batch:
            arrays = inputs.normalize(inputs.encode(rows.inputs))
            return {"inputs": arrays, "targets": target.encode(rows.targets)}

        def draw(_: Batch, key: Array) -> Batch:  # every example is new
            return batch(data.draw(key, recipe.batch_size))

        used = {"train": raw.splits["train"].first(data.subset)} if data.subset else {}
        batches = {name: batch(rows) for name, rows in (raw.splits | used).items() if len(rows[0])}
        num_buckets = getattr(data, "num_buckets", 1)
        ordered = {name: for_buckets(rows, num_buckets) for name, rows in batches.items()}
        evaluated = {name: ordered[name] for name in recipe.evaluate if name in ordered}
        rows = Rows(ordered["train"], evaluated, draw if data.fresh else None)
        tested = jax.tree.map(np.asarray, batches.get("test", {}))
        return cls(data, recipe, inputs, target, raw.files, rows, raw, tested)

    @classmethod
    def restore(cls, data: DataSet, recipe: Recipe, kept: Kept) -> "GridTask":
        inputs, target = cls.input_class.restore(data, kept), cls.target_class
        files = kept.derived.get("files", {})
        return cls(data, recipe, inputs, target.restore(data, kept, recipe), files)

    @classmethod
    def file_names(cls, data: DataSet) -> tuple[str, ...]:
        return (*cls.input_class.file_names(data), *cls.target_class.file_names())

    @functools.cached_property
    def kept(self) -> Kept:  # pyright: ignore[reportIncompatibleVariableOverride]
        parts = Kept({"files": dict(self.files)}), self.inputs.kept, self.target.kept(self.inputs)
        return Kept(*(functools.reduce(operator.or_, values) for values in zip(*parts)))

    def sample(self) -> Inputs:
        return self.inputs.sample(self.recipe.batch_size)

    def loss(self, outputs: Tree, aux: Tree, batch: Batch, train: bool) -> LossAndMetrics:
        return self.target.loss(outputs, aux, batch, train)

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Evaluation:
        """Evaluates the parameters of every seed on the test split, and keeps some examples.

        The attention is that of the first seed.
        """
        assert self.raw is not None
        shown, test, arrays = self.inputs.num_examples, self.raw.splits["test"], self.tested
        if self.target.of_first_seed:
            params, arrays = params[:1], first_rows(arrays, shown)
        pairs = [forward(model, of_seed, arrays["inputs"]) for of_seed in params]
        outputs = [output for output, _ in pairs]
        results = self.target.results(outputs, arrays["targets"], shown, test.targets)
        few = test.first(shown)
        kept = self.inputs.tested(few.inputs, first_rows(arrays["inputs"], shown))
        marks = {name: np.asarray(mark) for name, mark in few.marks.items()}
        attention = to_store(first_rows(pairs[0][1], shown))
        summary = results.summary
        if self.target.name == "classes" and (simple := self.inputs.baselines(self.raw)):
            summary = summary | {"baselines": simple}
        return results._replace(arrays=kept | marks | results.arrays | attention, summary=summary)

    # predictions

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """Predicts by the parameters of every seed; the attention is that of the first."""
        arrays, tokens, known = self.inputs.read(inputs)
        prepared, count = self.inputs.normalize(arrays), len(jax.tree.leaves(arrays)[0])
        params = params[:1] if self.target.of_first_seed else params
        pairs = [forward(model, of_seed, prepared, count) for of_seed in params]
        decoded = np.asarray(self.target.decode([output for output, _ in pairs]))
        prediction = self.target.predicted(decoded, inputs)
        looks = {"tokens": tokens, "known": known, "attention": pairs[0][1]}
        return dataclasses.replace(prediction, **looks)

    def input_shapes(self) -> Tree:
        return self.inputs.shapes()

    def compute(
        self, model: nn.Module, params: Sequence[Params], inputs: Inputs
    ) -> dict[str, Tree]:
        params = params[:1] if self.target.of_first_seed else params
        prepared = self.inputs.normalize(inputs)
        outputs, attentions = zip(*(apply(model, of_seed, prepared) for of_seed in params))
        return {"outputs": self.target.decode(outputs), "attention": attentions[0]}

    # the page

    def keeps_scores(self, model: nn.Module) -> bool:
        return not step_scores.in_loop(model)

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """Computes what a page shows: `compute`, and the scores of an attention in a loop."""
        computed = self.compute(model, params, inputs)
        if not step_scores.has_scores(model):
            return computed
        prepared = self.inputs.normalize(inputs)
        return computed | {"scores": {"input": step_scores.of_series(model, params[0], prepared)}}

    def answer(self, asked: Asked, look: Look) -> JsonObject:
        looked, reply = self.inputs.answer(asked, look)
        return reply | self.target.reply(np.asarray(looked["outputs"][0]))

    def live_inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        sample: Tree = self.sample()
        if isinstance(sample, dict):  # tokens and their lengths
            raise needs_python()
        return {"inputs": jax.ShapeDtypeStruct((1, *sample.shape[1:]), sample.dtype)}

    def class_names(self) -> list[str] | None:
        return self.target.class_names()

    # a finished run, of which only the directory is read

    @classmethod
    def to_try(cls, data: DataSet, model: type[nn.Module]) -> tuple[str, str] | None:
        texts = "--why " if cls.tells_why else ""
        tries = {
            "signal": ("explore", ""),
            "image": ("predict", "--input IMAGE.png --figure attention.png"),
            "text": ("predict", f'"A TEXT" {texts}--figure attention.png'),
        }
        return tries[cls.input_class.name]

    @classmethod
    def respond(cls, request: "Request", load: "Load", console: "Console") -> list[Path]:
        from flax_attn.tasks import terminal

        return terminal.predict(request, load, console)

    @classmethod
    def summary(cls, run: Record) -> str:
        return cls.target_class.summary(run, cls.input_class)

    @classmethod
    def sentence(cls, run: Record) -> str:
        return cls.target_class.sentence(run, cls.input_class)

    @classmethod
    def baseline_note(cls, run: Record) -> str:
        return cls.target_class.baseline_note(run)

    @classmethod
    def remarks(cls, run: Record, data: DataSet) -> list[str]:
        return cls.target_class.remarks(run, data)

    @classmethod
    def figures(cls, run: Record) -> "dict[str, Figure]":
        return cls.target_class.figures(run, cls.input_class)

    @classmethod
    def draw_together(cls, runs: list[Record]) -> "dict[str, Figure]":
        from flax_attn.analysis import shapes

        drawn = cls.target_class.name == "signal" and "relevant" not in runs[0].config["data"]
        return {"predictions": shapes.predictions(runs)} if drawn else {}

    @classmethod
    def example(cls, run: Record, index: int) -> JsonObject:
        shown = cls.input_class.example(run, index)
        return shown | cls.target_class.example(run, index)

    @classmethod
    def beside_examples(cls, run: Record) -> JsonObject:
        return cls.target_class.beside_examples(run)

    @classmethod
    def weights(cls, run: Record, index: int) -> dict[str, np.ndarray]:
        return cls.input_class.weights(run, index)
