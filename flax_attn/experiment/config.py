"""A config as a value: its parts are the constructors of what they describe."""

import dataclasses
import importlib
import inspect
import math
import sys
from collections.abc import Collection
from dataclasses import dataclass
from types import NoneType
from typing import ClassVar, TypeVar

import flax.linen as nn
from ml_collections import ConfigDict

from flax_attn.data.sets import DATA, DataSet, PairData, Training
from flax_attn.data.sets.kinds import NUM_SEEDS
from flax_attn.data.sets.memory import Content
from flax_attn.errors import UsageError, counted, one_line, shortened, unknown
from flax_attn.fields import (
    Part,
    above_zero,
    build,
    check_limits,
    check_name,
    check_no_task,
    flatten,
    shares,
    stored,
    zero_or_above,
)
from flax_attn.kinds import kind_of
from flax_attn.kinds.task import Recipe, Task
from flax_attn.models import MODELS
from flax_attn.models.decoding import Decoding
from flax_attn.runs.metrics_log import MOST_ROWS
from flax_attn.runs.rows import SPLITS
from flax_attn.training.optimizer import Optimizer
from flax_attn.types import ConfigValues, JsonObject

# what decides the size of data made in code, and their numbers at most
DRAWN, MOST_DRAWN = ("num_train", "length", "num_series", "max_letters"), 2**31
Kind = TypeVar("Kind")
Allowed = Collection[str] | None  # modules that may be imported; None for all
PLAIN = (bool, int, float, str, tuple, list, NoneType)


@dataclass(frozen=True, kw_only=True)
class Config(Part):
    """All that decides a run.

    Attributes:
        name: of the config file, with `:quick` where it is short. It is the name of one folder
            below `runs/`, with `-` for `:`, so it has no `/`, is neither `.` nor `..`, and is at
            most 255 bytes long.
        seed, num_seeds: seeds from `seed` on, trained together.
        num_epochs: epochs at most.
        steps_per_epoch: 0 for once through the training examples.
        batch_size: examples of a step.
        keep_best: whether the parameters of the epoch best on validation are kept, or those of the
            last.
        patience: epochs without a best one after which a seed stops; 0 for never.
        evaluate: the splits that are measured after every epoch.
        learning_rate: the highest of the schedule.
        class_weights: whether each class is weighed by one over its training examples.
        label_smoothing: share of the target that is spread over all classes in training.
        optimizer, data, decoding: the parts of these names.
        model, model_class: the name of the model and its fields, and its class.
        reference: numbers by metric that results are shown beside.
        values: the config as a run directory has it.
    """

    PART: ClassVar[str] = ""

    name: str
    seed: int
    num_seeds: int
    num_epochs: int
    steps_per_epoch: int
    batch_size: int
    keep_best: bool
    patience: int
    evaluate: tuple | list
    learning_rate: float
    class_weights: bool
    label_smoothing: float
    optimizer: Optimizer
    data: DataSet
    model: JsonObject
    model_class: type
    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    reference: dict[str, float] = dataclasses.field(default_factory=dict)
    values: JsonObject = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        values: ConfigValues,
        *,
        complete: bool = False,
        content: Content | None = None,
        allowed: Allowed = None,
    ) -> "Config":
        """The config of these values, with the defaults of what is missing.

        Args:
            values: a ConfigDict, or a dict of what one holds.
            complete: whether nothing may be missing, as in the config of a run directory.
            content: of data that are given from Python.
            allowed: modules of the user's own that may be imported for a model or data set; None
                for all.

        Raises:
            UsageError: a key that is missing or unknown, a value of another type, or one that makes
                no sense.
        """
        values = values.to_dict() if isinstance(values, ConfigDict) else dict(values)
        check_no_task(values)
        flat = flatten(values)
        for key, value in flat.items():
            if not isinstance(value, PLAIN):
                kind = type(value).__name__
                raise UsageError(f"expected a plain value for config key '{key}', got {kind}")
        check_limits(flat)
        data = build_data(part_of(values, "data"), complete, allowed)
        if content is not None:
            data = dataclasses.replace(data, content=content)  # pyright: ignore
        optimizer = build(Optimizer, part_of(values, "optimizer"), complete)
        parts: JsonObject = {
            "data": data,
            "optimizer": optimizer,
            "model": part_of(values, "model"),
        }
        parts["reference"] = flatten(part_of({"reference": {}} | values, "reference"))
        check_reference(parts["reference"])
        fields = {field.name: getattr(data, field.name) for field in stored(data)}
        resolved = {"data": {"name": values["data"]["name"]} | fields}
        resolved["optimizer"] = dataclasses.asdict(optimizer)
        if "decoding" in values or isinstance(data, PairData):
            decoding = part_of({"decoding": {}} | values, "decoding")
            parts["decoding"] = build(Decoding, decoding, complete)
            resolved["decoding"] = dataclasses.asdict(parts["decoding"])
        model_class = class_of(
            "model.name", _model_name(parts["model"]), MODELS, nn.Module, allowed
        )
        return build(
            cls, values | parts | {"model_class": model_class, "values": values | resolved}
        )

    def __post_init__(self) -> None:
        above_zero(self, "num_epochs", "num_seeds", "batch_size", "learning_rate")
        zero_or_above(self, "steps_per_epoch", "seed", "patience")
        shares(self, "label_smoothing")
        check_name(self.name)
        check_model(self.model, self.model_class)
        check_amount(self.data)
        if self.seed + self.num_seeds > NUM_SEEDS:
            raise UsageError(
                f"expected seeds below 2**32, got seed={self.seed} and num_seeds={self.num_seeds}"
            )
        if (self.num_epochs + 1) * self.num_seeds > MOST_ROWS:
            raise UsageError(
                f"expected num_epochs below {MOST_ROWS // self.num_seeds:,} for "
                f"{counted(self.num_seeds, 'seed')}, got {self.num_epochs:,}; raise "
                f"steps_per_epoch instead"
            )
        kind_of(type(self.data))  # raises for a class of no kind
        self._check_evaluation()
        training = Training(tuple(self.evaluate), self.batch_size, self.keep_best)
        self.data.check_training(training)
        if self.model.get("shared_embeddings") and not getattr(
            self.data, "shared_vocabulary", False
        ):
            raise UsageError(
                "expected data.shared_vocabulary=True with model.shared_embeddings=True"
            )

    def _check_evaluation(self) -> None:
        waiting = {"keep_best": self.keep_best, "patience": self.patience}
        waiting |= {"optimizer.plateau_patience": self.optimizer.plateau_patience}
        who = next((name for name, number in waiting.items() if number), "")
        needed = {"test", "valid"} if who else {"test"}
        are_names = all(isinstance(name, str) for name in self.evaluate)
        if not are_names or not needed <= set(self.evaluate) <= set(SPLITS):
            names = " and ".join(sorted(needed))
            raise UsageError(
                f"expected config key 'evaluate' to name splits of {SPLITS}, among them {names}"
                f"{who and f', which {who} needs'}, got {str(self.evaluate)[:60]}"
            )
        if self.patience and not self.keep_best:
            raise UsageError(
                "expected keep_best=True with patience, which waits for the best epoch"
            )

    def check_changed(self, changed: Collection[str]) -> None:
        """Raises a UsageError for a key that was changed and decides nothing here."""
        for part in (self.data, self.optimizer):
            for name, needed in part.idle().items():
                if (key := f"{part.PART}.{name}") in changed:
                    raise UsageError(
                        f"expected {needed} with {key}={getattr(part, name)}, which decides "
                        f"nothing here; leave {key} out"
                    )

    @property
    def by_validation(self) -> bool:
        """Whether an epoch ends with a look at validation."""
        return self.keep_best or self.optimizer.plateau_patience > 0

    @property
    def kind(self) -> type[Task]:
        return kind_of(type(self.data))

    @property
    def recipe(self) -> Recipe:
        return Recipe(
            self.batch_size,
            tuple(self.evaluate),
            self.class_weights,
            self.label_smoothing,
            self.decoding,
        )

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.num_seeds)


def build_data(fields: JsonObject, complete: bool = False, allowed: Allowed = None) -> DataSet:
    """The data set of a config's `data` part: `name` chooses the class, the rest are its fields."""
    options = dict(fields)
    name = str(options.pop("name", None))
    data_class = class_of("data.name", name, DATA, DataSet, allowed)
    return build(data_class, options, complete, f"data.name={shortened(name)}")


def _model_name(fields: JsonObject) -> str:
    name = fields.get("name")
    if not isinstance(name, str):
        raise UsageError(f"expected str for config key 'model.name', got {name!r}")
    return name


def check_model(fields: JsonObject, model_class: type) -> None:
    """Raises a UsageError for numbers that no model takes, and for None where a value is needed.

    What a model needs, it says itself when it is built.

    An integer must be above 0, or 0 or above where 0 is the model's default.
    """
    known = {field.name: field for field in dataclasses.fields(model_class)}
    may_be_zero = [name for name, field in known.items() if field.default == 0]
    for name, value in fields.items():
        key = f"config key 'model.{name}'"
        if value is None and name in known and "None" not in str(known[name].type):
            raise UsageError(f"expected a value for {key}, got None; leave it out for the default")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"expected a finite number for {key}, got {value}")
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and value < (name not in may_be_zero)
        ):
            rule = "0 or above" if name in may_be_zero else "above 0"
            raise UsageError(f"expected {key} to be a number {rule}, got {value}")
        if name.endswith("dropout_rate") and not (
            isinstance(value, int | float) and 0 <= value < 1
        ):
            raise UsageError(f"expected {key} to be a number in [0, 1), got {value!r}")


def check_reference(reference: JsonObject) -> None:
    """Raises a UsageError for what results cannot be shown beside."""
    for name, value in reference.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UsageError(
                f"expected a number for config key 'reference.{shortened(name)}', got "
                f"{shortened(repr(value))}"
            )


def check_amount(data: DataSet) -> None:
    """Raises a UsageError for data made in code that fit into no memory."""
    sizes = {name: getattr(data, name) for name in DRAWN if hasattr(data, name)}
    if math.prod(sizes.values()) > MOST_DRAWN:
        names = " and ".join(f"data.{name}={size}" for name, size in sizes.items())
        raise UsageError(f"expected at most {MOST_DRAWN:,} numbers to draw, got {names}")


def part_of(values: JsonObject, name: str) -> JsonObject:
    part = values.get(name)
    if not isinstance(part, dict):
        raise UsageError(f"expected a part '{name}' of the config, got {part!r}")
    return part


def class_of(
    key: str, name: str, known: dict[str, type[Kind]], base: type[Kind], allowed: Allowed
) -> type[Kind]:
    """The class of a name.

    It is one of those known, or `package.module:Class` from the user's own Python path.

    A module that is imported already is always taken.

    Raises:
        UsageError: an unknown name, a module that may not or cannot be imported, or a class of
            another kind.
    """
    if ":" not in name:
        if name not in known:
            raise UsageError(unknown(key, name, known))
        return known[name]
    module, _, attribute = name.partition(":")
    if (
        module not in sys.modules
        and allowed is not None
        and not {module, module.split(".")[0]} & set(allowed)
    ):
        raise UsageError(
            f"the run names a {key} of one's own, '{name}'; allow its module if you trust it: "
            f"load(run, allow=['{module}']), or predict and explore with --allow {module}"
        )
    try:
        user_class = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module may raise
        is_lost = isinstance(error, ModuleNotFoundError) and error.name == module
        advice = "; set PYTHONPATH to the folder of its file, such as ." if is_lost else ""
        raise UsageError(
            f"cannot import {key} '{shortened(name)}' ({type(error).__name__}: {one_line(error)})"
            f"{advice}"
        ) from error
    expected = f"expected {key} '{shortened(name)}' to be a subclass of"
    expected = f"{expected} {base.__module__}.{base.__name__}, got"
    if not isinstance(user_class, type):
        raise UsageError(f"{expected} {type(user_class).__name__} {shortened(attribute)}")
    if not issubclass(user_class, base) or user_class is base:
        raise UsageError(f"{expected} class {shortened(attribute)}")
    if inspect.isabstract(user_class):
        raise UsageError(f"{expected} the abstract class {shortened(attribute)}")
    return user_class
