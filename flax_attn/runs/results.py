"""What the JSON files of a run directory hold."""

from typing import NotRequired, TypedDict

Row = dict[str, int | float]  # the epoch, the seed, the step, and every metric


class Measure(TypedDict):
    """A metric of several seeds, with the deviation of the sample, 0 for one seed."""

    mean: float
    std: float
    values: list[float]


class Summary(TypedDict):
    """What `summary.json` holds.

    Attributes:
        config, task, model: their names.
        parameters: of one seed.
        seeds: those that were trained.
        epochs: the last one.
        stopped: whether every seed stopped before `num_epochs`.
        steps: the most that a seed has trained.
        train_seconds: of all tries together.
        measured: the metric that the run is known by, such as `mse`.
        pictures: the kind under which its pictures are drawn.
        metrics: by `split/metric`.
        diverged: of seeds with too many steps that are not finite, the step and their number.
        classes: precision, recall, F1 and number of examples of each class.
        baselines: of texts in classes, the share of the test that simple classifiers get right.
        signatures: how sacrebleu measured translations.
        induction_head: of language models the block and the head that does most induction.
        left_out: attention weights that were too large for `examples.npz`.
    """

    config: str
    task: str
    model: str
    parameters: int
    seeds: list[int]
    epochs: int
    stopped: bool
    steps: int
    train_seconds: float
    measured: str
    pictures: str
    metrics: dict[str, Measure]
    diverged: NotRequired[dict[str, dict[str, int]]]
    classes: NotRequired[dict[str, dict[str, float]]]
    baselines: NotRequired[dict[str, float]]
    signatures: NotRequired[list[str]]
    induction_head: NotRequired[str]
    left_out: NotRequired[list[str]]


class StoredModel(TypedDict):
    """The part `model` of a config: its name and its fields."""

    name: NotRequired[str]
    patch_size: NotRequired[int]


class StoredData(TypedDict):
    """The part `data` of a config: its name and its fields."""

    name: NotRequired[str]
    task: NotRequired[str]
    relevant: NotRequired[int]


class Derived(TypedDict):
    """What the data decided, and on what the run began.

    That is the platform, and the instruction set and precision of products. A run that goes on
    takes over the last two.
    """

    instruction_set: NotRequired[str]
    platform: NotRequired[str]
    matmul_precision: NotRequired[str]
    sizes: NotRequired[dict[str, int]]
    classes: NotRequired[list[str]]
    class_weights: NotRequired[list[float]]
    files: NotRequired[dict[str, str]]
    longest: NotRequired[dict[str, int]]
    mean: NotRequired[float]
    relevant: NotRequired[int]
    shape: NotRequired[list[int]]
    std: NotRequired[float]


class StoredConfig(TypedDict):
    """What `config.json` holds, as far as it is read without the classes that it names."""

    name: str
    num_epochs: int
    model: StoredModel
    data: StoredData
    derived: NotRequired[Derived]


class Metadata(TypedDict):
    """What `metadata.json` of a checkpoint holds.

    Attributes:
        epoch, step: whole epochs, and steps of the next.
        train_seconds: of all tries together.
        config: `config.json`, with what the data decided.
    """

    epoch: int
    step: int
    train_seconds: float
    config: dict[str, object]  # checked as a StoredConfig before it is used
