"""A config as a value: its parts are the constructors of what they describe."""

import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import flax.linen as nn
from msgspec import UNSET, Meta

from flax_attn import config_files, schema
from flax_attn.data.sets import DATA, DataSet, PairData
from flax_attn.data.sets.memory import Content
from flax_attn.errors import UsageError, one_line, shortened, unknown
from flax_attn.models import MODELS
from flax_attn.models.decoding import Decoding
from flax_attn.runs.stored import MOST_ROWS
from flax_attn.schema import (
    Count,
    FiniteFloat,
    Fraction,
    Key,
    Name,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    Split,
)
from flax_attn.tasks import task_of
from flax_attn.tasks.artifacts import Recipe
from flax_attn.tasks.task import Task
from flax_attn.training.optimizer import Optimizer
from flax_attn.types import ConfigValues, Hint, JsonObject

Kind = TypeVar("Kind")
Allowed = Collection[str] | None  # modules that may be imported; None for all
DEVICES = "across"  # the field of a model that a config cannot hold


@dataclass(frozen=True, kw_only=True)
class GeneralSettings:
    """The keys of a config that belong to no part.

    Attributes:
        name: that of the config file, with `:quick` where it is short. It names the run directory,
            with `-` for `:`.
        seed: the first seed.
        num_seeds: seeds that are trained together.
        num_epochs: epochs at most.
        steps_per_epoch: 0 for once through the training examples.
        batch_size: examples of a step.
        keep_best: whether the parameters of the epoch best on validation are kept, or those of the
            last.
        patience: epochs without a best one after which a seed stops; 0 for never.
        evaluate: the splits that are measured after every epoch.
        class_weights: whether each class is weighed by one over its training examples.
        label_smoothing: share of the target that is spread over all classes in training.
        learning_rate: the highest of the schedule.
        precision: of the computation in training. Parameters, the optimizer and losses are in
            float32 in either case, and so are evaluation and predictions.
    """

    name: Name
    seed: Seed = 0
    num_seeds: Annotated[int, Meta(ge=1, le=10_000)] = 1
    num_epochs: Count = 1
    steps_per_epoch: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    batch_size: Count = 64
    keep_best: bool = True
    patience: NonNegativeInt = 0
    evaluate: tuple[Split, ...] = ("valid", "test")
    class_weights: bool = False
    label_smoothing: Fraction = 0.0
    learning_rate: PositiveFloat = 1e-3
    precision: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True, kw_only=True)
class Config(GeneralSettings):
    """All that decides a run.

    Attributes:
        optimizer, data, decoding: the parts of these names.
        model, model_class: the name of the model and its fields, and its class.
        reference: numbers by metric that results are shown beside.
        values: all of it by key, in parts, as a run directory has it.
    """

    data: DataSet
    model: JsonObject
    model_class: type[nn.Module]
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)
    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    reference: dict[str, float] = dataclasses.field(default_factory=dict)
    values: JsonObject = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        values: ConfigValues,
        *,
        complete: bool = False,
        flags: Sequence[str] = (),
        content: Content | None = None,
        allowed: Allowed = None,
    ) -> "Config":
        """Returns the config of these values, with the defaults of those that are missing.

        Flags of a command line change values. With `complete` nothing may be missing, as in a run
        directory. `content` is that of data from Python. Modules of the user's own that may be
        imported for a model or data set are `allowed`; None for all.
        """
        flat = schema.flatten(values)
        for flag, value in zip(flags, [*flags[1:], ""]):  # `--key value` or `--key=value`
            name, equals, text = flag.partition("=")
            key = name.removeprefix("--").removeprefix("config.")
            if key in ("data.name", "model.name"):  # they decide what further keys there are
                flat[key] = text if equals else value
        data_class, model_class = classes_of(flat, allowed)
        known = keys_of(flat, data_class, model_class)
        parts = schema.read(known, flat, flags, complete)
        data = {key: value for key, value in parts["data"].items() if key != "name"}
        data |= {} if content is None else {"content": content}
        read = {"optimizer": Optimizer(**parts["optimizer"]), "data": data_class(**data)}
        read["decoding"] = Decoding(**parts.get("decoding", {}))
        return cls(**parts | read, model_class=model_class, values={"reference": {}} | parts)

    def __post_init__(self) -> None:
        """Raises a UsageError for a rule between settings that does not hold."""
        for expected, holds in (self.rules() | self.data.rules(self.evaluate)).items():
            schema.require(holds, expected)

    def rules(self) -> dict[str, bool]:
        """Returns whether each rule between parts holds, by what it expects."""
        task, target = self.task.name, self.task.name.rpartition("-")[2]
        needed = " and ".join(sorted(self.decisive))
        is_shared = getattr(self.data, "shared_vocabulary", False)
        num_rows = (self.num_epochs + 1) * self.num_seeds
        return {
            f"evaluate to name {needed}": self.decisive <= {*self.evaluate},
            "keep_best=True with patience": self.keep_best or not self.patience,
            f"num_epochs times num_seeds below {MOST_ROWS:,}; raise steps_per_epoch instead": (
                num_rows <= MOST_ROWS
            ),
            "data.shared_vocabulary=True with model.shared_embeddings=True": (
                is_shared or not self.model.get("shared_embeddings")
            ),
            f"class_weights=False for the task {task}, which has no classes": (
                target == "classes" or not self.class_weights
            ),
            f"label_smoothing=0 for the task {task}, which has no classes": (
                target not in ("signal", "number") or not self.label_smoothing
            ),
        }

    @functools.cached_property
    def decisive(self) -> set[str]:
        """Returns the splits that decide something: what is kept, a rate, the results."""
        waits = self.keep_best or self.optimizer.plateau_patience > 0
        return {"test", "valid"} if waits else {"test"}

    @functools.cached_property
    def task(self) -> type[Task]:
        return task_of(self.data)

    @property
    def recipe(self) -> Recipe:
        return Recipe(
            self.batch_size,
            self.evaluate,
            self.class_weights,
            self.label_smoothing,
            self.decoding,
        )

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.num_seeds)


def classes_of(flat: JsonObject, allowed: Allowed) -> tuple[type[DataSet], type[nn.Module]]:
    """Returns the classes of data set and model that a config names."""
    data, model = (str(flat.get(f"{part}.name", "")) for part in ("data", "model"))
    return (
        class_of("data.name", data, DATA, DataSet, allowed),
        class_of("model.name", model, MODELS, nn.Module, allowed),
    )


def keys_of(
    flat: JsonObject, data_class: type[DataSet], model_class: type[nn.Module]
) -> dict[str, Key]:
    """Returns all keys that a config of these classes has; `flat` is that config."""
    data = schema.keys_of(data_class, "data.")
    keys = schema.keys_of(GeneralSettings) | schema.keys_of(Optimizer, "optimizer.")
    keys |= schema.keys_of(Decoding, "decoding.") if issubclass(data_class, PairData) else {}
    keys |= {"data.name": Key(str, help="the data set, or module:Class")} | data
    keys |= {"model.name": Key(str, help="the model, or module:Class")}
    keys |= model_keys(schema.keys_of(model_class), {key.removeprefix("data.") for key in data})
    return keys | {key: Key(FiniteFloat) for key in flat if key.startswith("reference.")}


def model_keys(fields: dict[str, Key], of_data: set[str]) -> dict[str, Key]:
    """Returns the keys under `model`, from the fields of a Flax module that hold plain values.

    A size is above 0, or at least 0 where that is its default, and a rate of dropout is a share.
    The data decide fields without a default, and those that the data set has, too.
    """
    keys = {}
    for name, (hint, default, text) in fields.items():
        if name in ("parent", "name", "num_classes", "padded", DEVICES):
            continue
        if hint is int:
            hint = NonNegativeInt if default == 0 else PositiveInt
        elif hint is float:
            hint = Fraction if name.endswith("dropout_rate") else FiniteFloat
        is_open = default is dataclasses.MISSING or name in of_data or not is_plain(hint)
        keys[f"model.{name}"] = Key(hint, UNSET if is_open else default, text)
    return keys


def is_plain(hint: Hint) -> bool:
    """Returns whether JSON can hold the values of a type."""
    if get_origin(hint) is Literal or hint in (bool, int, float, str, type(None), ...):
        return True
    parts = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return bool(parts) and all(map(is_plain, parts))


def help_of(name: str, width: int) -> str:
    """Lists the keys of a config, with the values that it has. Errors are those of `read`."""
    flat = schema.flatten(config_files.read(name))
    known = keys_of(flat, *classes_of(flat, None))
    values = {key: k._replace(default=flat.get(key, k.default)) for key, k in known.items()}
    return schema.listed(values, width)


def shipped_values(name: str) -> JsonObject | None:
    """Returns all values of a config of the package, by dotted key; None if it has none so named.

    A value that the user has to give, such as a file, is empty. No other file is run: the name may
    come from anyone.
    """
    if name.partition(":")[0] not in config_files.names():
        return None
    try:
        flat = schema.flatten(config_files.read(name))
    except UsageError:  # no such variant
        return None
    known = keys_of(flat, *classes_of(flat, ()))
    defaults = {key: setting.default for key, setting in known.items()}
    needed = {key: "" for key, value in defaults.items() if value is dataclasses.MISSING}
    return {key: value for key, value in defaults.items() if value is not UNSET} | needed | flat


def changes(values: JsonObject) -> tuple[JsonObject, bool]:
    """Returns the keys that differ from the package's config, `{key: [value, in the package]}`.

    Also returns whether the package has a config of this name.
    """
    shipped = shipped_values(values["name"])
    if shipped is None:
        return {}, False
    plain = lambda value: list(value) if isinstance(value, tuple) else value  # as JSON has it
    now = {key: plain(value) for key, value in schema.flatten(values).items()}
    before = {key: plain(v) for key, v in shipped.items() if not key.startswith("reference.")}
    pairs = {key: [now[key], value] for key, value in before.items() if key in now}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}, True


def class_of(
    key: str, name: str, known: Mapping[str, type[Kind]], base: type[Kind], allowed: Allowed
) -> type[Kind]:
    """Returns the class of a name: a known one, or `package.module:Class` of the user's own.

    A module that is imported already needs not be allowed.
    """
    if name in known:
        return known[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise UsageError(unknown(key, name, known))
    is_allowed = allowed is None or {module, module.split(".")[0]} & {*allowed}
    if not is_allowed and module not in sys.modules:
        raise UsageError(
            f"the run names a {key} of one's own, '{name}'; allow its module if you trust it: "
            f"load(run, allow=['{module}']), or predict and explore with --allow {module}"
        )
    try:
        user_class: Any = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever the user's module may raise
        is_lost = isinstance(error, ModuleNotFoundError) and error.name == module
        advice = "; set PYTHONPATH to the folder of its file, such as ." if is_lost else ""
        raise UsageError(
            f"cannot import {key} '{shortened(name)}' ({type(error).__name__}: {one_line(error)})"
            f"{advice}"
        ) from error
    is_class = isinstance(user_class, type) and issubclass(user_class, base)
    if not is_class or inspect.isabstract(user_class):
        wanted = f"{base.__module__}.{base.__name__}"
        raise UsageError(f"expected {key} '{shortened(name)}' to be a subclass of {wanted}")
    return user_class  # pyright: ignore[reportReturnType] - checked above
