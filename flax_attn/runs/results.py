"""The schemas of the JSON files of a run directory."""

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

Row = dict[str, int | float]  # the epoch, the seed, the step, and every metric
Count = Annotated[int, Meta(ge=0)]


class Measure(TypedDict):
    """A metric of several seeds, with the deviation of the sample, 0 for one seed."""

    mean: float
    std: float
    values: list[float]


class Summary(TypedDict):
    """The content of `summary.json`.

    Attributes:
        config, task, model: their names.
        parameters: of one seed.
        seeds: those that were trained.
        epochs: the last one.
        stopped: whether every seed stopped before `num_epochs`.
        steps: the most that a seed has trained.
        train_seconds: of all tries together.
        measured: the metric that the run is known by, such as `mse`.
        metrics: by `split/metric`.
        diverged: the epoch of each seed whose numbers became infinite or NaN.
        classes: precision, recall, F1 and number of examples of each class.
        baselines: the test accuracy of simple classifiers on texts with classes.
        signatures: the settings of sacrebleu for translations.
        induction_head: of language models the block and the head that does most induction.
        left_out: attention weights that were too large for `examples.npz`.
    """

    config: str
    task: str
    model: str
    parameters: Count
    seeds: list[Count]
    epochs: Count
    stopped: bool
    steps: Count
    train_seconds: float
    measured: str
    metrics: dict[str, Measure]
    diverged: NotRequired[dict[str, dict[str, Count]]]
    classes: NotRequired[dict[str, dict[str, float]]]
    baselines: NotRequired[dict[str, float]]
    signatures: NotRequired[list[str]]
    induction_head: NotRequired[str]
    left_out: NotRequired[list[str]]


class StoredModel(TypedDict):
    """The part `model` of a config: its name and its fields."""

    name: NotRequired[str]
    patch_size: NotRequired[Count]


class StoredData(TypedDict):
    """The part `data` of a config: its name and its fields."""

    name: NotRequired[str]
    task: NotRequired[str]
    relevant: NotRequired[Count]


class Derived(TypedDict):
    """Facts about the data, and the machine that the run began on.

    A run that goes on takes over the precision of products.
    """

    instruction_set: NotRequired[str]
    platform: NotRequired[str]
    matmul_precision: NotRequired[str]
    sizes: NotRequired[dict[str, Count]]
    classes: NotRequired[list[str]]
    class_weights: NotRequired[list[float]]
    files: NotRequired[dict[str, str]]
    longest: NotRequired[dict[str, Count]]
    mean: NotRequired[float]
    relevant: NotRequired[Count]
    shape: NotRequired[list[Count]]
    std: NotRequired[float]


class StoredConfig(TypedDict):
    """The content of `config.json`, as far as it is read without the classes that it names."""

    name: str
    num_epochs: Count
    model: StoredModel
    data: StoredData
    derived: NotRequired[Derived]
