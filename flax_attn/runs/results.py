"""What a line of `metrics.jsonl` and what `summary.json` hold."""

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
        files: of older runs the SHA-256 of further files, by name.
        classes: precision, recall, F1 and number of examples of each class.
        signatures: how sacrebleu measured translations.
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
    files: NotRequired[dict[str, str]]
    classes: NotRequired[dict[str, dict[str, float]]]
    signatures: NotRequired[list[str]]
