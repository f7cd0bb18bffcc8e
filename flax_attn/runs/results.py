"""The schemas of the JSON files of a run directory."""

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from flax_attn.types import JsonObject

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


class StoredConfig(TypedDict):
    """The content of `config.json`, as far as it is read without the classes that it names.

    `derived` has facts about the data, and the machine that the run began on.
    """

    name: str
    num_epochs: Count
    model: JsonObject
    data: JsonObject
    derived: NotRequired[JsonObject]
