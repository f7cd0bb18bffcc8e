"""An experiment from a config: the only place where config, data, model and training meet.

`run` trains and fills a run directory; `load` reads one back for predictions. A config is an `ml_collections.ConfigDict`,
typed as Any, for its attributes are known when it runs.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

from flax_attn import decoding
from flax_attn.analysis import runs, tables
from flax_attn.config import check_config
from flax_attn.errors import UsageError, one_line
from flax_attn.models import instruction_set
from flax_attn.programs import Programs, build_model, count_parameters, layer_table, make_batches, make_create, make_programs, make_sample
from flax_attn.run_directory import RunDirectory, read_config, replacing
from flax_attn.tasks import Task, row_lengths, task_of
from flax_attn.training import checkpoints, epoch, progress
from flax_attn.training.results import check_finite, metric_rows, repeat_stopped, summarize, summarize_values

PREDICTED_AT_ONCE = 64


def run(config: Any, workdir: Path, console: Console, manual_dir: Path | None = None) -> dict[str, Any]:
    """Trains what the config describes, or resumes it, and returns the summary; a finished run is only reported.

    Raises:
        UsageError: a config that cannot be run, data that is not there, or a directory that is not this run's, before anything
            is written; all checkpoints damaged, or a loss that is not finite, with what was there left as it is.
    """
    check_config(config)
    directory = RunDirectory.open(workdir, config.to_dict())
    finished = read_finished(workdir, config)
    if finished:
        from flax_attn.analysis import figures  # matplotlib is not there to train

        figures.draw_missing(finished)
        console.print("this run is finished; its results:")
        tables.print_results(finished.summary, dict(config.get("reference", {})), console)
        return finished.summary
    try:
        forms = instruction_set.taking(directory.instruction_set() or instruction_set.current())
    except ValueError as error:
        raise UsageError(f"{error} under 'derived' in {workdir / 'config.json'}; restore that file") from error
    with forms:
        return fill(config, directory, console, manual_dir)


def fill(config: Any, directory: RunDirectory, console: Console, manual_dir: Path | None) -> dict[str, Any]:
    """Trains a run that is not finished, fills its directory and returns the summary."""
    workdir = directory.path
    task = task_of(config.data.name).load(config, manual_dir)
    check_same_data(workdir, task)
    check_enough(config, task)
    model = build_model(config.model, task.sizes)
    layers = layer_table(model, make_sample(config))
    programs = make_programs(config, model, task)
    directory.begin(config.to_dict())
    console.print(f"device: {describe_device()}")
    console.print(layers, highlight=False, soft_wrap=True)
    states, seconds = train(config, programs, task, directory, console)
    summary = finish(config, model, programs, states, seconds, task, directory)
    tables.print_results(summary, dict(config.get("reference", {})), console)
    console.print(f"run directory: {workdir}", markup=False, soft_wrap=True)
    return summary


def read_finished(workdir: Path, config: Any) -> runs.Run | None:
    """The run in a directory, if it is whole and as long as the config says; what is damaged is made again by going on."""
    try:
        found = runs.read(workdir)
    except UsageError:
        return None
    return found if found.summary["epochs"] == config.num_epochs or found.summary["stopped"] else None


def check_same_data(workdir: Path, task: Task) -> None:
    """Raises a UsageError where a run that goes on began with other files."""
    if not (workdir / "config.json").exists():
        return
    before, now = read_config(workdir).get("derived", {}).get("files"), task.derived.get("files")
    if before is not None and now is not None and before != now:
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        raise UsageError(
            f"the run in {workdir} began with other contents of {', '.join(changed)}; restore them or choose another --workdir"
        )


def check_enough(config: Any, task: Task) -> None:
    """Raises a UsageError for a split without rows, or fewer training examples than a batch has where none is filled up."""
    for split, rows in task.splits.items():
        if not len(jax.tree.leaves(rows)[0]):
            raise UsageError(f"expected examples in the {split} split, got none; change the sizes under config.data")
    num_train, filled_up = len(jax.tree.leaves(task.train)[0]), task.draw is not None or row_lengths(task.train) is not None
    if not num_train or (num_train < config.batch_size and not filled_up):
        raise UsageError(f"expected batch_size at most the {num_train} training examples, got {config.batch_size}")


def train(config: Any, programs: Programs, task: Task, directory: RunDirectory, console: Console) -> tuple[Any, float]:
    """Trains from the last whole checkpoint, or the start, to `num_epochs`; returns the states and the seconds of all tries.

    A checkpoint holds the rows of all epochs up to its own, so `metrics.jsonl` is written anew from it, whatever became of it.
    """
    rows, batches = jax.device_put(task.train), make_batches(config, task)
    states = programs.create(range(config.seed, config.seed + config.num_seeds))
    restored = checkpoints.restore(directory.checkpoints, states, warn=functools.partial(console.print, markup=False, soft_wrap=True))
    start, seconds, history = 0, 0.0, []
    if restored:
        start, states, metadata = restored
        seconds, history = metadata["train_seconds"], metadata["rows"]
        console.print(f"resuming after epoch {start}")
    checkpoints.discard_after(directory.checkpoints, start)
    before = None if restored else programs.evaluate(states.params, states.carry, batches)
    if start < config.num_epochs:
        began = time.perf_counter()
        train_epoch = programs.train_epoch.lower(states, np.int32(0), rows).compile()  # while that evaluation runs
        seconds += time.perf_counter() - began
    if before is not None:
        history = metric_rows(0, states, before)
        check_finite(history)
    for name, content in task.files.items():
        directory.write_json(name, content)
    derived = task.derived | {"sizes": task.sizes, "instruction_set": instruction_set.current()}
    directory.go_on(config.to_dict() | {"derived": derived}, history)
    score = task_of(config.data.name).SCORE
    by_validation = config.keep_best or config.optimizer.plateau_patience

    def epochs() -> Iterator[list[dict[str, Any]]]:
        nonlocal states, seconds, history
        for number in range(start + 1, config.num_epochs + 1):
            stopped = np.asarray(states.stopped)
            if stopped.all():
                return
            began = time.perf_counter()
            states, train_scores = train_epoch(states, np.int32(number), rows)
            scores = {"train": train_scores} | programs.evaluate(states.params, states.carry, batches)
            if by_validation:
                states = programs.after_epoch(states, scores["valid"][score], jnp.int32(number))
            new = repeat_stopped(metric_rows(number, states, scores), stopped, history)
            check_finite(new)
            seconds += time.perf_counter() - began
            history = history + new
            directory.append_metrics(new)
            checkpoints.save(directory.checkpoints, number, states, {"train_seconds": seconds, "rows": history})
            yield new

    for _ in progress.report_epochs(epochs(), start=start, num_epochs=config.num_epochs, console=console):
        pass
    return states, seconds


def finish(
    config: Any, model: nn.Module, programs: Programs, states: Any, seconds: float, task: Task, directory: RunDirectory
) -> dict[str, Any]:
    """Writes the examples, the summary, and last the figures, which are drawn from what is written."""
    kept, batches = kept_params(config, states), make_batches(config, task)
    metrics = summarize("", programs.evaluate(kept, states.carry, batches))
    if config.keep_best:
        metrics |= summarize("last/", programs.evaluate(states.params, states.carry, batches))
    num_seeds, last_epoch = len(states.seed), directory.last_epoch()
    params = [jax.tree.map(lambda leaf, i=i: leaf[i], kept) for i in range(num_seeds)]

    def predict_all(inputs: Any, **options: Any) -> Any:
        """Outputs of every seed, and the attention of the first on the first examples, by name; or the translations of every seed."""
        if config.task == "translation":
            return [decoding.translate(model, each, inputs, **options) for each in params]
        outputs, attentions = zip(*(predict(model, each, inputs) for each in params))
        return np.stack(outputs), {f"attention/{name}": weights for name, weights in attentions[0].items()}

    examples = task_of(config.data.name).examples(config, task, predict_all)
    summary = {
        "config": config.name,
        "task": config.task,
        "model": config.model.name,
        "parameters": count_parameters(states.params) // num_seeds,
        "seeds": [int(seed) for seed in states.seed],
        "epochs": last_epoch,
        "stopped": bool(np.asarray(states.stopped).all()),
        "steps": int(states.step.max()),
        "train_seconds": round(seconds, 1),
        "metrics": metrics | {name: summarize_values(values) for name, values in examples.metrics.items()},
    } | examples.summary
    with replacing(directory.path / "examples.npz") as partial:
        np.savez_compressed(partial, **examples.arrays)
    for name, text in examples.texts.items():
        directory.write_text(name, text)
    summary["files"] = {name: runs.digest(directory.path / name) for name in (*task.files, *examples.texts)}
    directory.write_json("summary.json", summary)
    from flax_attn.analysis import figures

    figures.draw_run(directory.path)
    return summary


def load(run: Path, warn: Callable[[str], None]) -> tuple[Any, nn.Module, list[Any], dict[str, Any]]:
    """The config, the model, the kept parameters of every seed, and what the data decided; `warn` takes a line on a damaged checkpoint."""
    stored = read_config(run)
    if "derived" not in stored:
        raise UsageError(f"the run in {run} has not begun to train; run train.py with --workdir={run} again")
    derived = stored.pop("derived")
    config: Any = ConfigDict(stored)
    check_config(config)
    kind = task_of(config.data.name)
    try:
        sizes = {key: int(value) for key, value in derived.pop("sizes").items()}
        derived.pop("instruction_set", None)  # it says nothing about the data
        kind.check_derived(derived)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"expected what the data decided under 'derived' in {run / 'config.json'} ({one_line(error)}); restore that file"
        ) from error
    model = build_model(config.model, sizes)
    create = make_create(config, model, num_steps=1)  # only the shapes of its states count
    try:
        template = jax.eval_shape(lambda: epoch.stack_seeds(create, range(config.seed, config.seed + config.num_seeds)))
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"expected the model of a run in {run / 'config.json'} ({one_line(error)}); restore that file") from error
    restored = checkpoints.restore(run / "checkpoints", template, warn)
    if restored is None:
        raise UsageError(f"no whole checkpoint in {run / 'checkpoints'}; run train.py with --workdir={run} again")
    kept = kept_params(config, restored[1])
    return config, model, [jax.tree.map(lambda leaf, i=i: leaf[i], kept) for i in range(config.num_seeds)], derived


def kept_params(config: Any, states: Any) -> Any:
    """The parameters that a run is judged by: of the epoch best on validation, or of the last."""
    return states.best_params if config.keep_best else states.params


def predict(model: nn.Module, params: Any, inputs: Any, num_attended: int = PREDICTED_AT_ONCE) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Outputs `(n, ...)`, and by name the attention on the first inputs, at least `num_attended` where there are as many.

    A model that carries state from one example to the next starts afresh for each, so no prediction depends on the others.
    """
    num_examples = len(jax.tree.leaves(inputs)[0])
    rows = lambda first, last: jax.tree.map(lambda array: jnp.asarray(array[first:last]), inputs)
    carry = jax.eval_shape(model.init, jax.random.key(0), rows(0, 1)).get("carry", {})
    variables = {"params": params, "carry": jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), carry)}
    apply, size = jax.jit(model.apply), 1 if carry else PREDICTED_AT_ONCE
    outputs, attentions = [], []
    for first in range(0, num_examples, size):
        batch, aux = apply(variables, rows(first, first + size))
        outputs.append(np.asarray(batch))
        if first < num_attended:
            attentions.append(jax.device_get(aux.get("attention", {})))
    return np.concatenate(outputs), jax.tree.map(lambda *batches: np.concatenate(batches), *attentions)


def describe_device() -> str:
    device = jax.devices()[0]
    count = f"{os.cpu_count()} cores" if device.platform == "cpu" else f"{jax.device_count()} device(s), {device.device_kind}"
    return f"{device.platform}, {count} (jax {jax.__version__})"
