"""A run that is there, ready for predictions."""
# pyright: strict, reportUnknownMemberType=false

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import flax.linen as nn
import numpy as np

from flax_attn import published
from flax_attn.errors import UsageError, one_line, shortened
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import build_model, shapes_of_states
from flax_attn.experiment.running import kept_params, params_by_seed, silent
from flax_attn.files import expanded
from flax_attn.kinds.language import Generated, OnTexts
from flax_attn.kinds.task import Kept, Prediction, Task
from flax_attn.models.forward import Params, check_finite
from flax_attn.runs import checkpoints, shipped, sums, untrusted
from flax_attn.runs.checkpoints import Checkpoint
from flax_attn.runs.directory import read_whole
from flax_attn.runs.reading import Record
from flax_attn.runs.results import Row, Summary
from flax_attn.runs.untrusted import MEND
from flax_attn.types import ArraysOrTexts, Json, JsonObject, Options, UserInput


@dataclass(frozen=True)
class Model:
    """A trained model, of a run or published.

    Attributes:
        path: the run directory, or the folder of the published model.
        task: its kind of task, with what the data decided.
        model: the Flax module.
        params: the parameters by seed, without those of seeds that diverged. A published model has
            them under 0.
    """

    path: Path
    task: Task
    model: nn.Module
    params: dict[int, Params]

    def predict(self, inputs: ArraysOrTexts, **options: int | None) -> Prediction:
        """The predictions of the model for your own inputs.

        Args:
            inputs: signals `(n, t)` or `(n, t, channels)`, series `(n, t, series)`, images
                `(n, height, width)`, a text or a list of texts.
            options: for translations `beam` and `num_best`.

        Raises:
            UsageError: inputs that are not of the kind that the model was trained on, or outputs
                that are no finite numbers.
        """
        prediction = self.task.predict(self.model, list(self.params.values()), inputs, **options)
        if isinstance(prediction.outputs, np.ndarray):
            check_finite(prediction.outputs)
        return prediction

    def generate(
        self,
        prompts: str | Sequence[str] = "",
        *,
        length: int = 500,
        temperature: float = 0.8,
        top_k: int = 40,
        seed: int = 0,
        on_texts: OnTexts | None = None,
    ) -> Generated:
        """Continues texts with a language model.

        Args:
            prompts: the beginning of a text, or of several; an empty one leaves it to the model.
            length: the number of tokens to write. A published model may end a text before.
            temperature: 1 for the probabilities of the model, less for safer texts, 0 for the most
                probable token.
            top_k: the number of most probable tokens to choose among; 0 for all.
            seed: decides the texts.
            on_texts: a function that gets the texts whenever more of them is written.

        Raises:
            UsageError: no language model, or a prompt that it cannot read.
        """
        sampling: Options = {
            "length": length,
            "temperature": temperature,
            "top_k": top_k,
            "seed": seed,
        }
        if on_texts is not None:
            check_function("on_texts", on_texts)
        params = list(self.params.values())
        return self.task.generate(self.model, params, prompts, **sampling, on_texts=on_texts)


@dataclass(frozen=True)
class Run(Model):
    """A run with its trained model.

    Attributes:
        config: all that decided the run.
        summary: the results, as in `summary.json`; empty for a run that is not finished.
        rows: the metrics, one row an epoch and seed.
    """

    config: Config
    summary: Summary
    rows: list[Row]


# The path alone tells what is opened. So a type checker takes a run for granted.
if TYPE_CHECKING:
    Opened = Run
else:
    Opened = Model


def load(
    path: Path | str, warn: Callable[[str], None] = silent, *, allow: Collection[str] = ()
) -> Opened:
    """Opens the run in a directory, or a published model in a folder.

    Args:
        path: the run directory. Or a folder as `transformers` writes it, of which `config.json`,
            safetensors and `tokenizer.json` are read.
        warn: a function that gets a line of text if a checkpoint is damaged.
        allow: names of your own modules that may be imported, if the run has a model or data set
            from them.

    Raises:
        UsageError: no run, one that has not begun to train, or one whose files are damaged; a
            published model with an option or an array that is not covered.
    """
    path = shipped.place(expanded(path, "the path of a run"))
    check_function("warn", warn)
    check_modules(allow)
    if published.is_published(path):
        from flax_attn.published import tasks  # and its models, for such a folder alone

        task, model, params = tasks.load(path, warn=warn)
        return cast("Opened", Model(path, task, model, {0: params}))
    return load_run(path, warn, allow)


def load_run(path: Path, warn: Callable[[str], None] = silent, allow: Collection[str] = ()) -> Run:
    """Opens the run in a directory. Errors are those of `load`."""
    config, derived = read_values(path, allow)
    task, model, checkpoint = restore(path, config, derived, warn)
    summary = read_summary(path)
    params = sound_params(config, checkpoint, summary)
    return Run(path, task, model, params, config, summary, checkpoint.rows())


def of_record(
    record: Record, warn: Callable[[str], None] = silent, *, allow: Collection[str] = ()
) -> Run:
    """The run of a record. What the record holds is not read and checked again.

    Arguments and errors are those of `load`.
    """
    config, derived = parted(record.config, allow)
    task, model, checkpoint = restore(record.path, config, derived, warn)
    params = sound_params(config, checkpoint, record.summary)
    return Run(record.path, task, model, params, config, record.summary, record.rows)


def restore(
    path: Path, config: Config, derived: JsonObject | None, warn: Callable[[str], None]
) -> tuple[Task, nn.Module, Checkpoint]:
    """The task, the model and the newest checkpoint of a run.

    Raises:
        UsageError: a run that has not begun to train, or one whose files are damaged.
    """
    if derived is None:
        raise UsageError(
            f"the run in {path} has not begun to train; run train.py with --workdir={path} again"
        )
    task = restore_task(path, config, derived)
    model = build_model(config, task.kept.sizes)
    return task, model, restore_states(path, config, model, task, warn)


def sound_params(config: Config, checkpoint: Checkpoint, summary: Summary) -> dict[int, Params]:
    """The kept parameters by seed, without those of seeds that diverged.

    Raises:
        UsageError: the results of a finished run are of another epoch, or every seed diverged.
    """
    progress = checkpoint.progress
    if summary and progress != (summary["epochs"], 0):
        raise UsageError(
            f"expected a checkpoint of epoch {summary['epochs']}, as the results of {config.name} "
            f"are, got one of epoch {progress.epoch}; {MEND}"
        )
    params = params_by_seed(kept_params(config, checkpoint.state), config)
    diverged = summary.get("diverged", {})
    if not set(map(str, params)) - diverged.keys():
        raise UsageError(f"expected a seed of {config.name} that did not diverge; {MEND}")
    return {seed: of_seed for seed, of_seed in params.items() if str(seed) not in diverged}


def read_values(path: Path, allow: Collection[str] = ()) -> tuple[Config, JsonObject | None]:
    """The config of a run, and what its data decided; None for a run that has not begun to train.

    Errors and `allow` are those of `load`.
    """
    config, derived = parted(read_whole(path), allow)
    if derived is not None and not sums.read(path):
        raise UsageError(f"the run in {path} has lost its {sums.SUMS}; {MEND}")
    return config, derived


def parted(stored: JsonObject, allow: Collection[str]) -> tuple[Config, JsonObject | None]:
    """The config in a run's `config.json`, and what the data decided, which stands beside it.

    Raises:
        UsageError: modules to allow that are no list of names, or a config that is none.
    """
    check_modules(allow)
    stored = dict(stored)
    derived = stored.pop("derived", None)
    return Config.of(stored, complete=True, allowed=allow), derived


def check_modules(allow: UserInput) -> None:
    """Raises a UsageError for modules to allow that are no collection of names.

    A text is one, too: that of its letters. None would allow every module.
    """
    is_list = isinstance(allow, Collection) and not isinstance(allow, str)
    names: Collection[object] = cast(Collection[object], allow) if is_list else [None]
    if not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"expected a list of names of modules as allow, such as allow=['my_models'], got "
            f"{shortened(repr(cast(object, allow)))}"
        )


def check_function(name: str, function: UserInput) -> None:
    """Raises a UsageError for an argument that is no function, or one of other arguments."""
    if not callable(function):
        raise UsageError(f"expected a function as {name}, got {shortened(repr(function))}")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise UsageError(f"expected a function of one argument as {name} ({error})") from error
    except ValueError:  # code of C may not tell
        return


# what a run that goes on takes over, beside what the data decided
TAKEN_OVER = ("sizes", "instruction_set", "platform", "matmul_precision")


def restore_task(path: Path, config: Config, derived: JsonObject) -> Task:
    """The task of a run, by what its directory keeps of the data."""
    names = config.kind.file_names(config.data)
    files = {name: read_kept(path, name) for name in names}
    try:
        sizes = derived["sizes"]
        decided = {key: value for key, value in derived.items() if key not in TAKEN_OVER}
    except KeyError as error:
        raise damaged(path, error) from error
    try:
        return config.kind.restore(config.data, config.recipe, Kept(decided, sizes, files))
    except UsageError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
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
        UsageError: it is lost or damaged.
    """
    try:
        return untrusted.read_json(path, name)
    except FileNotFoundError as error:
        raise UsageError(
            f"expected what training wrote in {path / name}, which is missing; {MEND}"
        ) from error


def restore_states(
    path: Path, config: Config, model: nn.Module, task: Task, warn: Callable[[str], None]
) -> Checkpoint:
    """The newest checkpoint, with the states of all seeds."""
    try:
        states = shapes_of_states(config, model, task.sample())
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"expected the model of a run in {path / 'config.json'} ({one_line(error)}); restore "
            f"that file"
        ) from error
    folder = path / "checkpoints"
    checkpoint = checkpoints.restore(folder, states, warn, only_newest=True)
    if checkpoint is None:
        raise UsageError(
            f"no whole checkpoint in {folder}; run train.py with --workdir={path} again"
        )
    return checkpoint


def read_summary(path: Path) -> Summary:
    """The results; empty for a run that is not finished."""
    try:
        summary: Summary = untrusted.read_json(path, "summary.json", Summary)
        return summary
    except FileNotFoundError:
        return cast(Summary, {})
