"""A run that is there, ready for predictions."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import flax.linen as nn
import jax

from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.building import build_model, make_create
from flax_attn.experiment.config import Config
from flax_attn.experiment.running import by_seed, kept_params, silent
from flax_attn.files import sha256
from flax_attn.models.forward import Params
from flax_attn.runs import checkpoints
from flax_attn.runs.directory import MEND, read_config
from flax_attn.runs.rows import Row
from flax_attn.tasks import Kept, Prediction, Task
from flax_attn.training import epoch
from flax_attn.types import Json, JsonObject, UserInput


@dataclass(frozen=True)
class Run:
    """A run with its trained model.

    Attributes:
        path: the run directory.
        config: all that decided the run.
        task: its kind of task, with what the data decided.
        model: the Flax module.
        params: the kept parameters by seed.
        summary: the results, as in `summary.json`; empty for a run that is not finished.
        rows: the metrics, one row an epoch and seed.
    """

    path: Path
    config: Config
    task: Task
    model: nn.Module
    params: dict[int, Params]
    summary: JsonObject
    rows: list[Row]

    def predict(self, inputs: UserInput, **options: int | None) -> Prediction:
        """What the run says of inputs of the user's.

        Args:
            inputs: signals `(n, t)`, images `(n, height, width)`, a text or a list of texts.
            options: for translations `beam` and `num_best`.

        Raises:
            UsageError: inputs that are not of the kind that the run was trained on.
        """
        return self.task.predict(self.model, list(self.params.values()), inputs, **options)


def load(
    path: Path | str, warn: Callable[[str], None] = silent, *, allow: Collection[str] = ()
) -> Run:
    """The run in a directory.

    Args:
        path: of the run directory.
        warn: takes a line on a damaged checkpoint.
        allow: modules of the user's own that may be imported, where the run has a model or data set
            of them.

    Raises:
        UsageError: no run, one that has not begun to train, or one whose files are damaged.
    """
    path = Path(path).expanduser()
    config, derived = read_values(path, allow)
    if derived is None:
        raise UsageError(
            f"the run in {path} has not begun to train; run train.py with --workdir={path} again"
        )
    task = restore_task(path, config, derived)
    model = build_model(config, task.kept.sizes)
    return Run(
        path, config, task, model, restore_params(path, config, model, task, warn), *_results(path)
    )


def read_values(path: Path, allow: Collection[str] = ()) -> tuple[Config, JsonObject | None]:
    """The config of a run, and what its data decided; None for a run that has not begun to train.

    Errors and `allow` are those of `load`.
    """
    stored = read_config(path)
    derived = stored.pop("derived", None)
    return Config.of(stored, complete=True, allowed=allow), derived


def restore_task(path: Path, config: Config, derived: JsonObject) -> Task:
    """The task of a run, by what its directory keeps of the data."""
    names = config.task_class.file_names(config.data)
    files = {name: read_kept(path, name) for name in names}
    try:
        sizes = {key: int(value) for key, value in derived["sizes"].items()}
        decided = {
            key: value for key, value in derived.items() if key not in ("sizes", "instruction_set")
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error
    try:
        return config.task_class.restore(config.data, config.recipe, Kept(decided, sizes, files))
    except UsageError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(path, error, *names) from error


def damaged(path: Path, error: Exception, *names: str) -> UsageError:
    """The error for what a run keeps of its data and is not what training wrote."""
    beside = "".join(f" and {name}" for name in names)
    return UsageError(
        f"expected what the data decided under 'derived' in {path / 'config.json'}{beside} "
        f"({one_line(error)}); {MEND}"
    )


def read_kept(path: Path, name: str) -> Json:
    """The content of a JSON file that a run keeps.

    Raises:
        UsageError: it is lost, damaged, or not the one that the run ended with.
    """
    file = path / name
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        summary = path / "summary.json"
        known = json.loads(summary.read_text())["files"][name] if summary.exists() else None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"expected what training wrote in {file} ({one_line(error)}); {MEND}"
        ) from error
    if known is not None and known != sha256(file):
        raise UsageError(
            f"expected what training wrote in {file}, got other contents than the run ended with; "
            f"{MEND}"
        )
    return content


def restore_params(
    path: Path, config: Config, model: nn.Module, task: Task, warn: Callable[[str], None]
) -> dict[int, Params]:
    """The kept parameters of each seed, of the newest whole checkpoint."""
    create = make_create(
        config, model, task.sample(), num_steps=1
    )  # only the shapes of its states count
    try:
        template = jax.eval_shape(lambda: epoch.stack_seeds(create, config.seeds))
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"expected the model of a run in {path / 'config.json'} ({one_line(error)}); restore "
            f"that file"
        ) from error
    checkpoint = checkpoints.restore(path / "checkpoints", template, warn)
    if checkpoint is None:
        raise UsageError(
            f"no whole checkpoint in {path / 'checkpoints'}; run train.py with --workdir={path} "
            f"again"
        )
    _, states, _ = checkpoint
    return dict(zip(config.seeds, by_seed(kept_params(config, states), config.num_seeds)))


def _results(path: Path) -> tuple[JsonObject, list[Row]]:
    """The summary and the rows of metrics, as far as they are there."""
    metrics, results = path / "metrics.jsonl", path / "summary.json"
    try:
        rows = (
            [json.loads(line) for line in metrics.read_text().splitlines()]
            if metrics.exists()
            else []
        )
        return json.loads(results.read_text()) if results.exists() else {}, rows
    except ValueError as error:
        raise UsageError(f"the run in {path} is damaged ({one_line(error)}); {MEND}") from error
