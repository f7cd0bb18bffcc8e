"""Loads a run or a published model for predictions."""
# pyright: strict, reportUnknownMemberType=false

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import flax.linen as nn
import numpy as np
from jax.typing import DTypeLike

from flax_attn import published
from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import NOT_MADE, States, build_model, shapes_of_states
from flax_attn.experiment.running import kept_params, params_by_seed, silent
from flax_attn.files import expanded
from flax_attn.models.forward import Params, check_finite
from flax_attn.runs import checkpoints, shipped
from flax_attn.runs.directory import CHECKPOINTS, OF_OLDER, read_config
from flax_attn.runs.results import Row, Summary
from flax_attn.runs.stored import MEND, read_json
from flax_attn.tasks.artifacts import Kept, Prediction
from flax_attn.tasks.language import Generated, OnTexts
from flax_attn.tasks.task import Task
from flax_attn.types import ArraysOrTexts, JsonObject

# entries of `derived` that are not passed to `Task.restore` as facts about the data
NOT_ABOUT_DATA = ("sizes", "instruction_set", "platform", "matmul_precision")


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
        """Predicts for your own inputs.

        Args:
            inputs: signals `(n, t)` or `(n, t, channels)`, series `(n, t, series)`, images
                `(n, height, width)` or `(n, height, width, 3)`, a text or a list of texts.
            options: for translations `beam` and `num_best`.

        Raises:
            UsageError: inputs that are not of the kind that the model was trained on, or outputs
                that are no finite numbers.
        """
        prediction = self.task.predict(self.model, list(self.params.values()), inputs, **options)
        if isinstance(prediction.outputs, np.ndarray):
            check_finite(prediction.outputs)
        return prediction

    def warm(self, longest: int = 128) -> None:
        """Compiles `predict` ahead, for texts of up to `longest` tokens, and for images or signals.

        After that, up to 64 inputs wait for no compilation, or 16 of a published model or to
        translate.
        """
        self.task.warm(self.model, list(self.params.values()), longest)

    def embed(self, texts: str | Sequence[str]) -> np.ndarray:
        """Computes vectors `(n, features)` of texts with a published encoder.

        A vector is the mean of the states of all tokens, unless the folder has a `modules.json` of
        sentence-transformers with another rule.

        Raises:
            UsageError: another kind of model, an empty text, or a rule that is not covered.
        """
        return self.task.embed(self.model, list(self.params.values()), texts)

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
        return self.task.generate(
            self.model,
            list(self.params.values()),
            prompts,
            length=length,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
            on_texts=on_texts,
        )


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
    path: Path | str,
    warn: Callable[[str], None] = silent,
    *,
    allow: Collection[str] = (),
    dtype: DTypeLike = np.float32,
) -> Opened:
    """Opens the run in a directory, or a published model in a folder.

    Args:
        path: the run directory. Or a folder as `transformers` writes it, of which `config.json`,
            safetensors and `tokenizer.json` are read.
        warn: a function that gets a line of text if a checkpoint is damaged.
        allow: names of your own modules that may be imported, if the run has a model or data set
            from them.
        dtype: of the parameters of a published model and of what is computed with them, such as
            `jnp.bfloat16`. A run is always in float32.

    Raises:
        UsageError: no run, one that has not begun to train, or one whose files are damaged; a
            published model with an option or an array that is not covered.
    """
    path = shipped.place(expanded(path, "the path of a run"))
    if published.is_published(path):
        from flax_attn.published import tasks  # and its models, for such a folder alone

        task, model, params = tasks.load(path, dtype=dtype, warn=warn)
        return cast("Opened", Model(path, task, model, {0: params}))
    return load_run(path, warn, allow)


def load_run(path: Path, warn: Callable[[str], None] = silent, allow: Collection[str] = ()) -> Run:
    """Restores the task, the model and the newest checkpoint of a run. Errors: `load`."""
    config, derived = parted(read_config(path), allow)
    summary = cast(Summary, {})
    if (path / "summary.json").exists():
        summary = read_json(path / "summary.json", Summary)
    if twin := derived.get("twin"):
        raise UsageError(
            f"the run in {path} is a twin with {twin}, which is compared and reported alone"
        )
    facts = {key: value for key, value in derived.items() if key not in NOT_ABOUT_DATA}
    try:
        names = config.task.file_names(config.data)
        kept = Kept(facts, derived["sizes"], {name: read_json(path / name) for name in names})
        task = config.task.restore(config.data, config.recipe, kept)
        model = build_model(config, task.kept.sizes)
        templates = {"states": shapes_of_states(config, model, task.sample())}
    except UsageError:  # also a ValueError
        raise
    except FileNotFoundError as error:
        raise UsageError(f"the run in {path} has lost {error.filename}; {MEND}") from error
    except NOT_MADE as error:
        raise UsageError(
            f"expected a run in {path} with the facts about its data ({one_line(error)}); {MEND}"
        ) from error
    restored = checkpoints.restore(path / CHECKPOINTS, templates, warn)
    if restored is None:
        raise UsageError(f"the run in {path} has no checkpoint yet; {MEND}")
    note, trees = restored
    if summary and note.progress != (summary["epochs"], 0):
        raise UsageError(
            f"expected a checkpoint of epoch {summary['epochs']}, as the results of {config.name} "
            f"are, got one of epoch {note.epoch}; {MEND}"
        )
    states: States = trees["states"]
    params = params_by_seed(kept_params(config, states, note.epoch), config)
    good = {seed: params[seed] for seed, bad in zip(config.seeds, states.diverged) if not bad}
    return Run(path, task, model, good, config, summary, note.rows)


def parted(stored: JsonObject, allow: Collection[str]) -> tuple[Config, JsonObject]:
    """Parts the content of `config.json` into the config and the facts about the data."""
    stored = OF_OLDER | stored
    derived = stored.pop("derived", {})
    allowed = {allow} if isinstance(allow, str) else {*allow}  # None would allow all modules
    return Config.of(stored, complete=True, allowed=allowed), derived
