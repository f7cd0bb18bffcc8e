"""Training from a config into a run directory."""

import contextlib
import os
from pathlib import Path
from typing import cast

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh

from flax_attn.data.sets.memory import Content
from flax_attn.errors import UsageError
from flax_attn.experiment import processes
from flax_attn.experiment.building import (
    States,
    build_model,
    count_parameters,
    layer_table,
)
from flax_attn.experiment.checks import check_enough, check_same_data
from flax_attn.experiment.config import Config
from flax_attn.experiment.loop import Loop, OnEpoch, Say, Standing
from flax_attn.experiment.programs import make_programs, mesh_of
from flax_attn.files import replacing
from flax_attn.models import instruction_set
from flax_attn.models.forward import Params
from flax_attn.runs import checkpoints, lock, reading, sums
from flax_attn.runs.directory import RunDirectory
from flax_attn.runs.examples import fitting
from flax_attn.runs.results import Measure, Summary
from flax_attn.runs.rows import summarize, summarize_values
from flax_attn.stopping import Stop
from flax_attn.tasks import Task
from flax_attn.types import ConfigValues, Tree

# bytes that a checkpoint takes at most for each parameter, and for what a model carries
A_PARAMETER, BESIDE = 64, 2**28


def silent(_: object) -> None:
    """Takes lines, and shows none."""


def run(
    config: ConfigValues,
    workdir: Path,
    *,
    manual_dir: Path | None = None,
    content: Content | None = None,
    say: Say = silent,
    on_epoch: OnEpoch = silent,
    stop: Stop | None = None,
    debug_nans: bool = False,
    sequence: int = 1,
) -> Summary:
    """Trains what the config describes, or resumes it, and returns the summary.

    A finished run is left alone. One whose files are damaged is mended.

    Args:
        config: a ConfigDict, or a dict of what one holds.
        workdir: the run directory, one that is there or is to be made.
        manual_dir: a folder with one folder a data set; None for downloads.
        content: of data that are given from Python, as `data.sets.from_python` makes it.
        say: takes lines for the user.
        on_epoch: takes the rows of each epoch as it ends.
        stop: what hears signals; None for nothing.
        debug_nans: whether the first step that is not finite ends the run, and says where.
        sequence: the number of devices that share each sequence, for a Transformer.

    Raises:
        UsageError: a config that cannot be run, data that are not there, or a directory that is not
            this run's, or in use; all of these before anything is written. All checkpoints damaged,
            a disk that is full, or seeds that all went bad; what was there is left as it is.
        Stopped: a signal has come. Where training stands is saved.
        FloatingPointError: with `debug_nans`, where the first NaN arose.
    """
    config = Config.of(config, content=content)
    stop, is_first = stop or Stop(), processes.is_first()
    if jax.process_count() > 1:
        stop.agree = processes.agree
        own = {"workdir": str(workdir), "debug_nans": debug_nans, "sequence": sequence}
        processes.check_same(config.values | own)
    if not is_first:
        say, on_epoch = silent, silent
    RunDirectory.open(workdir, config.values, silent)  # before anything is made
    mesh_of(config, sequence=sequence)  # the same error in all processes at once
    with lock.held(workdir) if is_first else contextlib.nullcontext():
        processes.check_shared(workdir)
        stored = RunDirectory.open(workdir, config.values, say).stored if is_first else None
        directory = RunDirectory(workdir, processes.tell(stored))
        summary = report_finished(directory, config, say) if is_first else None
        summary = processes.tell(summary, processes.ALONE)
        if summary is not None:
            return cast(Summary, summary)
        try:
            form = processes.tell(directory.instruction_set or instruction_set.current())
            forms = instruction_set.taking(form)
        except ValueError as error:
            raise UsageError(
                f"{error} under 'derived' in {workdir / 'config.json'}; restore that file"
            ) from error
        with forms:
            with processes.first_ahead("the data"):
                task = config.task_class.load(config.data, config.recipe, manual_dir)
            check_same_data(directory.path, directory.derived, task)
            check_enough(config, task)
            return fill(config, directory, task, say, on_epoch, stop, debug_nans, sequence)


def report_finished(directory: RunDirectory, config: Config, say: Say) -> Summary | None:
    """The summary of a run that is whole and as long as the config says.

    Figures that are gone or damaged are drawn again. None for any other run, which training mends.
    """
    if directory.stored is None or not (directory.path / "summary.json").exists():
        return None
    try:
        record = reading.read(directory.path)
        summary = record.summary
        most = A_PARAMETER * summary["parameters"] * len(summary["seeds"]) + BESIDE
        _, damaged = checkpoints.newest_whole(directory.checkpoints, silent, most)
    except UsageError as error:
        say(f"{str(error).partition(';')[0]}; mending it")
        return None
    if damaged:
        say(f"{damaged[0]}; mending it")
        return None
    if record.summary["epochs"] != config.num_epochs and not record.summary["stopped"]:
        return None
    from flax_attn.analysis import figures  # matplotlib is not there to train

    directory.clear()
    for name in filter(sums.is_figure, sums.changed(directory.path)):
        (directory.path / name).unlink(missing_ok=True)
    if figures.draw_missing(record):
        directory.end(name for name in sums.read(directory.path) if "/" not in name)
    say("this run is finished; its results:")
    return record.summary


def fill(
    config: Config,
    directory: RunDirectory,
    task: Task,
    say: Say,
    on_epoch: OnEpoch,
    stop: Stop,
    debug_nans: bool,
    sequence: int,
) -> Summary:
    """Trains a run that is not finished, fills its directory and returns the summary."""
    model = build_model(config, task.kept.sizes)
    layers = layer_table(model, task.sample())
    programs = make_programs(config, model, task, sequence=sequence)
    if processes.is_first():
        directory.begin(config.values)
    say(f"device: {describe_device()}")
    if jax.device_count() > 1:
        say(describe_mesh(programs.mesh, config))
    say(layers)
    loop = Loop(config, programs, task, directory, stop, debug_nans)
    at = loop.begin(say)
    if processes.is_first():
        begin_to_write(config, task, directory)
        loop.log.begin(at.rows)
    stop.check("nothing is saved yet" if not at.place.epoch else f"epoch {at.place.epoch} is saved")
    at = loop.train(at, on_epoch)
    summary = finish(config, model, loop, task, directory, at)
    stop.check("the run is finished")
    return summary


def begin_to_write(config: Config, task: Task, directory: RunDirectory) -> None:
    """Writes what the data decided."""
    for name, content in task.kept.files.items():
        directory.write_json(name, content)
    derived = task.kept.derived | {
        "sizes": task.kept.sizes,
        "instruction_set": instruction_set.current(),
    }
    directory.go_on(config.values | {"derived": derived}, task.kept.files)


def finish(
    config: Config,
    model: nn.Module,
    loop: Loop,
    task: Task,
    directory: RunDirectory,
    at: Standing,
) -> Summary:
    """Writes the examples, the summary and the figures, and last the sums of everything.

    Seeds that diverged are named, and left out of all results.
    """
    diverged = loop.diverged(at.states)
    good = [i for i, seed in enumerate(config.seeds) if str(seed) not in diverged]
    metrics = measure(config, loop, at, good)
    states: States = processes.gather(at.states)
    if not processes.is_first():
        return cast(Summary, processes.tell(None, processes.ALONE))
    by_seed = params_by_seed(kept_params(config, states), config)
    examples = task.examples(model, [by_seed[config.seeds[i]] for i in good])
    metrics |= {name: summarize_values(values) for name, values in examples.metrics.items()}
    summary = {
        "config": config.name,
        "task": config.task,
        "model": config.model["name"],
        "parameters": count_parameters(states.params) // config.num_seeds,
        "seeds": [int(seed) for seed in states.seed],
        "diverged": diverged,
        "epochs": at.place.epoch,
        "stopped": bool(states.stopped.all()),
        "steps": int(states.step.max()),
        "train_seconds": round(at.seconds, 1),
        "measured": task.measured,
        "pictures": task.pictures,
        "metrics": metrics,
    } | examples.summary
    arrays: Tree = fitting(examples.arrays)
    if left_out := sorted(examples.arrays.keys() - arrays.keys()):
        summary["left_out"] = left_out
    with replacing(directory.path / "examples.npz") as partial:
        np.savez_compressed(partial, **arrays)
    for name, text in examples.texts.items():
        directory.write_text(name, text)
    directory.write_json("summary.json", summary)
    directory.end((*task.kept.files, *examples.texts))
    from flax_attn.analysis import figures

    figures.draw_run(directory.path)
    directory.end((*task.kept.files, *examples.texts))
    return cast(Summary, processes.tell(summary, processes.ALONE))


def measure(config: Config, loop: Loop, at: Standing, good: list[int]) -> dict[str, Measure]:
    """The metrics of the kept parameters over the good seeds, and of the last ones beside them."""
    kept, carry = kept_params(config, at.states), at.states.carry
    metrics = summarize("", loop.evaluate(kept, carry, loop.batches), good)
    if config.keep_best:
        metrics |= summarize("last/", loop.evaluate(at.states.params, carry, loop.batches), good)
    return metrics


def kept_params(config: Config, states: States) -> Params:
    """The parameters that a run is judged by: of the epoch best on validation, or of the last."""
    return states.best_params if config.keep_best else states.params


def params_by_seed(params: Params, config: Config) -> dict[int, Params]:
    """The parameters of each seed, from those of all."""
    host = jax.device_get(params)  # to index an array on the device compiles a program
    return {
        seed: jax.device_put(jax.tree.map(lambda leaf, i=i: leaf[i], host))
        for i, seed in enumerate(config.seeds)
    }


def describe_device() -> str:
    device = jax.devices()[0]
    count = f"{jax.device_count()} device(s), {device.device_kind}"
    if device.platform == "cpu":
        count = f"{os.cpu_count()} cores"
    return f"{device.platform}, {count} (jax {jax.__version__})"


def describe_mesh(mesh: Mesh, config: Config) -> str:
    """How the seeds and the rows of a batch lie on the devices."""
    groups, size, *sequence = mesh.axis_sizes
    parts = sequence[0] if sequence else 1
    seeds, rows = config.num_seeds // groups, config.batch_size // size
    shape, axes = f"{groups} x {size}", "seed x data"
    if parts > 1:
        shape, axes = f"{shape} x {parts}", f"{axes} x sequence"
    text = f"mesh: {shape} ({axes}); {seeds} of {config.num_seeds} seed(s) and "
    text += f"{rows} of {config.batch_size} rows a device"
    text += f", and 1/{parts} of each sequence" if parts > 1 else ""
    idle = jax.device_count() - mesh.size
    return f"{text}; {idle} device(s) idle, which do not divide the work" if idle else text
