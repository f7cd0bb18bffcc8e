"""Training from a config into a run directory."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.errors import UsageError
from flax_attn.experiment.building import (
    Programs,
    States,
    build_model,
    count_parameters,
    layer_table,
    make_batches,
    make_programs,
)
from flax_attn.experiment.checks import check_enough, check_same_data
from flax_attn.experiment.config import Config
from flax_attn.files import replacing, sha256
from flax_attn.models import instruction_set
from flax_attn.models.forward import Params
from flax_attn.runs import checkpoints, reading
from flax_attn.runs.directory import RunDirectory
from flax_attn.runs.rows import (
    Row,
    check_finite,
    metric_rows,
    repeat_stopped,
    summarize,
    summarize_values,
)
from flax_attn.tasks import Task
from flax_attn.types import ConfigValues, JsonObject, UserInput

Summary = JsonObject  # what `summary.json` holds
Say = Callable[[str], None]  # takes a line, or several, for the user
OnEpoch = Callable[[list[Row]], None]  # takes the rows of an epoch, one a seed


def silent(_: object) -> None:
    """Takes what nobody wants to hear."""


def run(
    config: ConfigValues,
    workdir: Path,
    *,
    manual_dir: Path | None = None,
    content: UserInput = None,
    say: Say = silent,
    on_epoch: OnEpoch = silent,
) -> Summary:
    """Trains what the config describes, or resumes it, and returns the summary.

    A finished run is left alone.

    Args:
        config: a ConfigDict, or a dict of what one holds.
        workdir: the run directory, one that is there or is to be made.
        manual_dir: a folder with one folder a data set; None for downloads.
        content: of data that are given from Python, as `data.sets.from_python` makes it.
        say: takes lines for the user.
        on_epoch: takes the rows of each epoch as it ends.

    Raises:
        UsageError: a config that cannot be run, data that are not there, or a directory that is not
            this run's; all of these before anything is written. All checkpoints damaged, or a loss
            that is not finite; what was there is left as it is.
    """
    config = Config.of(config, content=content)
    directory = RunDirectory.open(workdir, config.values)
    record = read_finished(workdir, config)
    if record is not None:
        from flax_attn.analysis import figures  # matplotlib is not there to train

        figures.draw_missing(record)
        say("this run is finished; its results:")
        return record.summary
    try:
        forms = instruction_set.taking(directory.instruction_set() or instruction_set.current())
    except ValueError as error:
        raise UsageError(
            f"{error} under 'derived' in {workdir / 'config.json'}; restore that file"
        ) from error
    with forms:
        return fill(config, directory, manual_dir, say, on_epoch)


def fill(
    config: Config, directory: RunDirectory, manual_dir: Path | None, say: Say, on_epoch: OnEpoch
) -> Summary:
    """Trains a run that is not finished, fills its directory and returns the summary."""
    task = config.task_class.load(config.data, config.recipe, manual_dir)
    check_same_data(directory.path, task)
    check_enough(config, task)
    model = build_model(config, task.kept.sizes)
    layers = layer_table(model, task.sample())
    programs = make_programs(config, model, task)
    directory.begin(config.values)
    say(f"device: {describe_device()}")
    say(layers)
    states, seconds = train(config, programs, task, directory, say, on_epoch)
    return finish(config, model, programs, task, directory, Trained(states, seconds))


def read_finished(workdir: Path, config: Config) -> reading.Record | None:
    """The run in a directory, if it is whole and as long as the config says.

    Training mends any other.
    """
    try:
        record = reading.read(workdir)
    except UsageError:
        return None
    return (
        record
        if record.summary["epochs"] == config.num_epochs or record.summary["stopped"]
        else None
    )


class Start(NamedTuple):
    """Where training goes on: after this epoch, with the seconds and metrics until there."""

    epoch: int
    states: States
    seconds: float
    history: list[Row]


class Trained(NamedTuple):
    """The states after training, and the seconds that it took in all tries."""

    states: States
    seconds: float


def train(
    config: Config,
    programs: Programs,
    task: Task,
    directory: RunDirectory,
    say: Say,
    on_epoch: OnEpoch,
) -> Trained:
    """Trains from the last whole checkpoint, or from the start, to `num_epochs`."""
    rows, batches = jax.device_put(task.rows.train), make_batches(config, task)
    start = restore(config, programs, directory, say)
    states, seconds, history = start.states, start.seconds, start.history
    before = None if start.epoch else programs.evaluate(states.params, states.carry, batches)
    train_epoch = None
    if start.epoch < config.num_epochs:
        began = time.perf_counter()
        lowered = programs.train_epoch.lower(states, np.int32(0), rows)
        train_epoch = lowered.compile()  # beside that evaluation
        seconds += time.perf_counter() - began
    if before is not None:
        history = metric_rows(0, states, before)
        check_finite(history)
    begin_to_write(config, task, directory, history)
    for number in range(start.epoch + 1, config.num_epochs + 1):
        stopped = np.asarray(states.stopped)
        if stopped.all():
            break
        assert train_epoch is not None
        began = time.perf_counter()
        states, train_scores = train_epoch(states, np.int32(number), rows)
        scores = {"train": train_scores} | programs.evaluate(states.params, states.carry, batches)
        if config.by_validation:
            states = programs.after_epoch(states, scores["valid"][task.score], jnp.int32(number))
        new = repeat_stopped(metric_rows(number, states, scores), stopped, history)
        check_finite(new)
        seconds += time.perf_counter() - began
        history = history + new
        directory.append_metrics(new)
        metadata = {"train_seconds": seconds, "rows": history}
        checkpoints.save(directory.checkpoints, number, states, metadata)
        on_epoch(new)
    return Trained(states, seconds)


def restore(config: Config, programs: Programs, directory: RunDirectory, say: Say) -> Start:
    """The last whole checkpoint, or the start. What stands after it is removed.

    A checkpoint holds the rows of all epochs up to its own, so `metrics.jsonl` is written anew from
    it.
    """
    states = programs.create(config.seeds)
    checkpoint = checkpoints.restore(directory.checkpoints, states, warn=say)
    start = Start(0, states, 0.0, [])
    if checkpoint is not None:
        epoch, states, metadata = checkpoint
        start = Start(epoch, states, metadata["train_seconds"], metadata["rows"])
        say(f"resuming after epoch {epoch}")
    checkpoints.discard_after(directory.checkpoints, start.epoch)
    return start


def begin_to_write(config: Config, task: Task, directory: RunDirectory, history: list[Row]) -> None:
    """Sets the directory to where training goes on.

    It then holds what the data decided, and the metrics until there.
    """
    for name, content in task.kept.files.items():
        directory.write_json(name, content)
    derived = task.kept.derived | {
        "sizes": task.kept.sizes,
        "instruction_set": instruction_set.current(),
    }
    directory.go_on(config.values | {"derived": derived}, history)


def finish(
    config: Config,
    model: nn.Module,
    programs: Programs,
    task: Task,
    directory: RunDirectory,
    trained: Trained,
) -> Summary:
    """Writes the examples, the summary, and last the figures, which are drawn from both."""
    states, batches = trained.states, make_batches(config, task)
    kept = kept_params(config, states)
    metrics = summarize("", programs.evaluate(kept, states.carry, batches))
    if config.keep_best:
        metrics |= summarize("last/", programs.evaluate(states.params, states.carry, batches))
    examples = task.examples(model, by_seed(kept, config.num_seeds))
    metrics |= {name: summarize_values(values) for name, values in examples.metrics.items()}
    summary = {
        "config": config.name,
        "task": config.task,
        "model": config.model["name"],
        "parameters": count_parameters(states.params) // config.num_seeds,
        "seeds": [int(seed) for seed in states.seed],
        "epochs": directory.last_epoch(),
        "stopped": bool(np.asarray(states.stopped).all()),
        "steps": int(states.step.max()),
        "train_seconds": round(trained.seconds, 1),
        "measured": task.measured,
        "pictures": task.pictures,
        "metrics": metrics,
    } | examples.summary
    with replacing(directory.path / "examples.npz") as partial:
        np.savez_compressed(partial, **examples.arrays)
    for name, text in examples.texts.items():
        directory.write_text(name, text)
    summary["files"] = {
        name: sha256(directory.path / name) for name in (*task.kept.files, *examples.texts)
    }
    directory.write_json("summary.json", summary)
    from flax_attn.analysis import figures

    figures.draw_run(directory.path)
    return summary


def kept_params(config: Config, states: States) -> Params:
    """The parameters that a run is judged by: of the epoch best on validation, or of the last."""
    return states.best_params if config.keep_best else states.params


def by_seed(params: Params, num_seeds: int) -> list[Params]:
    """The parameters of each seed, from those of all."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], params) for i in range(num_seeds)]


def describe_device() -> str:
    device = jax.devices()[0]
    count = f"{jax.device_count()} device(s), {device.device_kind}"
    if device.platform == "cpu":
        count = f"{os.cpu_count()} cores"
    return f"{device.platform}, {count} (jax {jax.__version__})"
