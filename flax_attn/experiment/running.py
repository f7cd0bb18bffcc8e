"""Trains a config into a run directory. The program is read from top to bottom.

`run` opens the directory and loads the data, `train` trains and saves, `finish` writes the results.
"""

import functools
import gc
import os
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.stages import Lowered

from flax_attn import platforms
from flax_attn.errors import UsageError, one_line, shortened
from flax_attn.experiment import processes
from flax_attn.experiment.config import Config
from flax_attn.experiment.debugging import find_nan
from flax_attn.experiment.programs import (
    MetricValues,
    Programs,
    States,
    build,
    count_parameters,
    make_batches,
    make_programs,
    shapes_of_states,
)
from flax_attn.files import expanded, sha256
from flax_attn.models.forward import Params
from flax_attn.runs import checkpoints, directory, reading, stored
from flax_attn.runs.checkpoints import Note, Progress
from flax_attn.runs.directory import CHECKPOINTS
from flax_attn.runs.results import (
    Measure,
    Row,
    Summary,
    check_finite,
    finite_seeds,
    metric_rows,
    repeat_last,
    summarize,
    summarize_values,
)
from flax_attn.runs.stored import read_json
from flax_attn.stopping import FINISHED, Stop
from flax_attn.tasks import facts
from flax_attn.tasks.task import Task, row_lengths
from flax_attn.training import epoch
from flax_attn.training.mesh import EVERYWHERE, SEEDS, make_mesh, put
from flax_attn.types import JsonObject, Tree

Say = Callable[[str], None]  # takes a line, or several, for the user
OnEpoch = Callable[[list[Row]], None]  # takes the rows of an epoch, one a seed
OnSteps = Callable[["Steps"], None]
OnModel = Callable[["Trained"], None]

# Steps between two looks at signals. A call without steps takes 0.6 ms with `shapes_cnn` on 2 CPU
# cores, and a step 1.7 ms, so chunks of 20 steps cost 2 %; up to 50 ms a step they take a second.
CHUNK = 20
PROGRESS = 0.5  # seconds between two calls of `on_steps`


def silent(_: object) -> None:
    """Ignores its argument."""


class Steps(NamedTuple):
    """The number of steps of an epoch that are done, and their metrics as means over seeds."""

    epoch: int
    done: int
    of: int
    metrics: dict[str, float]


class Trained(NamedTuple):
    """A model in training: the parameters to judge by seed, and the rows since the last call."""

    task: Task
    model: nn.Module
    params: dict[int, Params]
    rows: list[Row]


class Listeners(NamedTuple):
    """Functions that follow a training.

    Attributes:
        say: takes lines for the user.
        on_epoch: takes the rows of each epoch as it ends.
        on_steps: takes the progress within an epoch, about twice a second, and at its end.
        on_model: takes the model before the first epoch, and after each.
        on_summary: takes the results, before pictures are drawn.
    """

    say: Say = silent
    on_epoch: OnEpoch = silent
    on_steps: OnSteps | None = None
    on_model: OnModel | None = None
    on_summary: Callable[[Summary], object] = silent


class Snapshot(NamedTuple):
    """All of a training at one moment, as a checkpoint stores it.

    Attributes:
        progress: whole epochs, and steps of the next.
        states: of all seeds.
        sums: of the metrics of the steps of the next epoch.
        seconds: of training in all tries.
        rows: the metrics of all epochs.
    """

    progress: Progress
    states: States
    sums: epoch.Metrics
    seconds: float
    rows: list[Row]


def run(
    config: Config,
    workdir: Path,
    *,
    manual_dir: Path | None = None,
    say: Say = silent,
    on_epoch: OnEpoch = silent,
    on_steps: OnSteps | None = None,
    on_model: OnModel | None = None,
    on_summary: Callable[[Summary], object] = silent,
    stop: Stop | None = None,
    debug_nans: bool = False,
    sequence: int = 1,
) -> Summary:
    """Trains a config, or resumes it, and returns the summary.

    A finished run is left alone. One whose files are damaged is repaired.

    Args:
        config: all that decides the run.
        workdir: the run directory, which exists or will be made.
        manual_dir: a folder with one folder a data set; None for downloads.
        say, on_epoch, on_steps, on_model, on_summary: those of `Listeners`. Several processes call
            `on_steps` and `on_model` in none of them.
        stop: the signals; None for nothing.
        debug_nans: whether the first step that is not finite ends the run, and names the operation.
        sequence: the number of devices that share each sequence, for a Transformer.

    Raises:
        UsageError: before anything is written, for data that are missing or do not fit the config,
            and for a directory that is not this run's, or in use. Later, for checkpoints that are
            all damaged, a full disk, or seeds that all diverged; the files stay as they are.
        Stopped: a signal has come, and the training is saved.
        FloatingPointError: with `debug_nans`, where the first NaN arose.
    """
    stop, several, is_first = stop or Stop(), jax.process_count() > 1, jax.process_index() == 0
    if several:
        stop.agree = processes.agree
        options = {"workdir": str(workdir), "debug_nans": debug_nans, "sequence": sequence}
        processes.check_same(config.values | options)
        on_steps = on_model = None  # to gather their arguments, all processes would have to meet
    listeners = Listeners(say, on_epoch, on_steps, on_model, on_summary)
    listeners = listeners if is_first else Listeners()  # the first process alone speaks
    say = listeners.say
    # the same error in all processes at once
    mesh = make_mesh(config.num_seeds, config.batch_size, sequence=sequence)
    with directory.opened(workdir, config.values, say, is_first) as begun:
        if several:
            processes.check_shared(workdir)
        derived = with_machine((begun or {}).get("derived") or {}, say)
        summary = read_finished(workdir, config, derived, say) if is_first and begun else None
        if several:
            derived, summary = processes.broadcast((derived, summary), processes.ALONE)
        is_new = summary is None
        if is_new:
            with jax.default_matmul_precision(derived["matmul_precision"]):
                if several and not is_first:
                    processes.meet("the data", processes.ALONE)
                task = load_task(config, manual_dir)
                if several and is_first:
                    processes.meet("the data", processes.ALONE)  # the others find its files
                check_same_data(workdir, derived, task)
                check_enough(config, task)
                derived |= derived_of(task)
                summary = train(config, workdir, task, derived, mesh, listeners, stop, debug_nans)
        summary = cast(Summary, summary)
        listeners.on_summary(summary)
        if is_new and is_first:
            from flax_attn.tasks import figures  # training needs no matplotlib

            figures.draw_run(workdir)
        if is_new:
            processes.meet("the pictures", processes.ALONE)  # they are drawn by the first alone
    stop.check(FINISHED)
    return summary


def read_finished(path: Path, config: Config, derived: JsonObject, say: Say) -> Summary | None:
    """Returns the summary of a run that is complete and as long as the config.

    Missing figures are drawn again. Returns None for any other run, which training completes.
    """
    if not (path / "summary.json").exists():
        return None
    try:
        record = reading.read(path)
        summary = record.summary
        if summary["epochs"] != config.num_epochs and not summary["stopped"]:
            return None
        for name in config.task.file_names(config.data):
            read_json(path / name)  # raises for a damaged one
        note = checkpoints.newest(path / CHECKPOINTS)
        if note is None or note.progress != (summary["epochs"], 0):
            raise UsageError(f"the run in {path} has lost its last checkpoint")
    except (FileNotFoundError, UsageError) as error:
        say(f"{str(error).partition(';')[0]}; repairing it")
        return None
    from flax_attn.tasks import figures  # training needs no matplotlib

    directory.clear(path)
    figures.draw_run(path, only_missing=True)
    before = derived.get("files") or {}
    for name in (config.values["data"].get(key) for key in ("file", "test_file")):
        if name in before and (file := expanded(name)).is_file() and sha256(file) != before[name]:
            say(f"{name} has changed since this run; to train on it, choose another --workdir")
    say("this run is finished; its results:")
    return summary


def with_machine(derived: JsonObject, say: Say) -> JsonObject:
    """Adds the facts of the machine, unless a run began with some; reports another CPU."""
    facts = platforms.facts()
    begun, now = facts | derived, facts["instruction_set"]
    if (cpu := begun["instruction_set"]) != now:
        say(f"this run began on a CPU with {cpu}, and goes on with {now}: rounding may differ")
    return begun


def load_task(config: Config, manual_dir: Path | None) -> Task:
    """Loads the data of a config and makes its task."""
    name = config.values["data"]["name"]
    had_gc = gc.isenabled()
    gc.disable()  # rows of texts hold no cycles, and to look through them takes a third of the time
    try:
        return config.task.load(config.data, config.recipe, manual_dir)
    except Exception as error:  # whatever the user's code may raise
        is_clear = isinstance(error, UsageError) or getattr(error, "filename", None)
        if is_clear or ":" not in name:
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"expected {shortened(name)} to load what the data set class says, got "
            f"{type(error).__name__}: {one_line(error)} ({Path(frame.filename).name}, line "
            f"{frame.lineno})"
        ) from error
    finally:
        if had_gc:
            gc.enable()


def train(
    config: Config,
    path: Path,
    task: Task,
    derived: JsonObject,
    mesh: Mesh,
    listeners: Listeners,
    stop: Stop,
    debug_nans: bool,
) -> Summary:
    """Trains a run from its last checkpoint or from the start, and fills its directory.

    `derived` are the facts about the data, and about the machine that the run began on.
    """
    say, on_epoch, on_steps, on_model, _ = listeners
    model, layers = build(config, task)
    programs = make_programs(config, model, task, mesh)
    say(f"device: {describe_device()}")
    if jax.device_count() > 1:
        say(describe_mesh(mesh, config))
    say(layers)
    if task.rows.draw is None:
        say("\n".join(facts.lines(task)))
    say("compiling; the first start of a model takes longest")

    # arrays and programs
    rows, batches = put(mesh, (task.rows.train, make_batches(config, task)), EVERYWHERE)
    began, shapes = time.perf_counter(), shapes_of_states(config, model, task.sample())
    newest = checkpoints.newest(path / CHECKPOINTS)
    is_done = newest is not None and newest.progress == (config.num_epochs, 0)
    programs, states, zeros = compiled(programs, shapes, config.seeds, rows, batches, is_done)
    start = Snapshot(Progress(0), states, zeros, 0.0, [])
    now = restore(path / CHECKPOINTS, start, mesh, say)
    began, evaluate = began - now.seconds, programs.evaluate  # compiling counts as training
    # pictures and simple models need large packages
    threading.Thread(target=task.import_for_results, daemon=True).start()

    # the first evaluation, and the files that a run begins with
    if not now.rows:
        processes.meet("the first evaluation")
        scores = evaluate(states.params, states.carry, batches)
        now = now._replace(rows=metric_rows(0, processes.gather(states.counts()), scores))
        check_finite(now.rows)
    values = config.values | {"derived": derived}
    if processes.is_first():
        directory.begin(path, values, task.kept.files)
        stored.write_rows(path, now.rows)
    is_new = now.progress == (0, 0)
    stop.check("nothing is saved yet" if is_new else f"{describe(now.progress)} is saved")

    def show(rows: list[Row]) -> None:
        """Passes the parameters by which the run would be judged if it ended now."""
        if on_model is not None:
            kept = kept_params(config, now.states, now.progress.epoch)
            on_model(Trained(task, model, params_by_seed(kept, config), rows))

    show(now.rows)

    # the loop
    stop.saves = True
    while now.progress.epoch < config.num_epochs:
        stopped = processes.gather(now.states.stopped)  # (seeds,)
        if stopped.all():
            say(f"stopped early: validation has not improved for {config.patience} epochs")
            break
        number, shown = now.progress.epoch + 1, time.perf_counter()
        order = programs.order(now.states, np.int32(number))
        while now.progress.step < programs.steps_an_epoch:
            now = take_chunk(programs, now, order, rows, debug_nans)
            now = now._replace(seconds=time.perf_counter() - began)
            is_last = now.progress.step == programs.steps_an_epoch
            if on_steps is not None and (is_last or time.perf_counter() - shown > PROGRESS):
                shown = time.perf_counter()
                on_steps(steps_of(now, programs.steps_an_epoch))
            if stop.heard():
                save_and_stop(path, now, values, stop, programs.steps_an_epoch)
        scores = evaluate(now.states.params, now.states.carry, batches)
        if not stop.wait(jax.tree.leaves(scores)):
            save_and_stop(path, now, values, stop, programs.steps_an_epoch)
        states, rows_of_epoch = end_epoch(config, task, programs, now, scores, stopped, say)
        now = Snapshot(
            Progress(number), states, zeros, time.perf_counter() - began, now.rows + rows_of_epoch
        )
        if processes.is_first():
            stored.append_rows(path, rows_of_epoch)
        save(path, now, values)
        stop.check(f"epoch {number} is saved")
        on_epoch(rows_of_epoch)
        show(rows_of_epoch)
    stop.saves = False
    stop.check(f"epoch {now.progress.epoch} is saved")

    say("writing the results")
    measure = lambda params: evaluate(params, now.states.carry, batches)
    return finish(config, path, task, model, now, measure)


def restore(folder: Path, start: Snapshot, mesh: Mesh, say: Say) -> Snapshot:
    """Reads the newest valid checkpoint; returns `start` without any. Later ones are removed."""
    templates = {"states": start.states, "sums": start.sums}
    restored = checkpoints.restore(folder, templates, say) if processes.is_first() else None
    progress = processes.broadcast(None if restored is None else restored[0].progress)
    if progress is None:  # process 0 found no checkpoint
        return start
    if restored is None:  # in a further process
        restored = checkpoints.restore_one(folder, Progress(*progress), templates)
    note, trees = restored
    if processes.is_first():
        checkpoints.prune(folder, note.progress)
    say(f"resuming after {describe(note.progress)}")
    states, sums = put(mesh, (trees["states"], trees["sums"]), SEEDS)
    return Snapshot(note.progress, states, sums, note.seconds, note.rows)


def compiled(
    programs: Programs, shapes: Tree, seeds: range, rows: Tree, batches: Tree, is_done: bool
) -> tuple[Programs, States, epoch.Metrics]:
    """Compiles the programs of an epoch in threads, and creates the states meanwhile.

    Where no step is left, the steps and what follows them are not compiled.
    """
    first, everywhere = np.int32(1), NamedSharding(programs.mesh, EVERYWHERE)
    by_seed = NamedSharding(programs.mesh, SEEDS)
    states = placed(shapes, by_seed)
    lower: Callable[..., Lowered] = lambda name, *args: getattr(programs, name).lower(*args)
    with ThreadPoolExecutor(3) as beside:  # XLA releases Python's lock while it compiles
        order = lower("order", states, first)
        of_order = placed(order.out_info, by_seed)
        zeros = programs.zero_sums(states, of_order, rows)
        compiling = {}
        if not is_done:  # the one that takes longest comes first
            steps = lower("train_steps", states, zeros, of_order, first, first, first, rows)
            compiling["train_steps"] = beside.submit(steps.compile)
        evaluate = lower("evaluate", states.params, states.carry, batches)
        compiling["evaluate"] = beside.submit(evaluate.compile)
        if not is_done:
            compiling["order"] = beside.submit(order.compile)
            score = placed(jax.ShapeDtypeStruct((len(seeds),), np.float32), everywhere)
            after = lower("after_epoch", states, score, first)
            compiling["after_epoch"] = beside.submit(after.compile)
        created = programs.create(seeds)  # settings of JAX hold for this thread alone
        done = {name: program.result() for name, program in compiling.items()}
        return programs._replace(**done), created, zeros


def placed(shapes: Tree, sharding: NamedSharding) -> Tree:
    """Returns shapes of arrays that lie so on the devices."""
    make = functools.partial(jax.ShapeDtypeStruct, sharding=sharding)
    return jax.tree.map(lambda leaf: make(leaf.shape, leaf.dtype), shapes)


def take_chunk(
    programs: Programs, now: Snapshot, order: Tree, rows: Tree, debug_nans: bool
) -> Snapshot:
    """Takes the next steps of an epoch."""
    number, first = now.progress.epoch + 1, now.progress.step
    last = min(first + CHUNK, programs.steps_an_epoch)
    bounds = (np.int32(number), np.int32(first), np.int32(last))
    processes.meet(f"the steps of epoch {number}")  # the steps wait for all without a limit
    states, sums, finite = programs.train_steps(now.states, now.sums, order, *bounds, rows)
    if not np.asarray(finite).all() and debug_nans:
        find_nan(programs, now.states, now.sums, order, bounds, rows)
    return now._replace(progress=Progress(now.progress.epoch, last), states=states, sums=sums)


def end_epoch(
    config: Config,
    task: Task,
    programs: Programs,
    now: Snapshot,
    scores: dict[str, MetricValues],
    stopped: np.ndarray,
    say: Say,
) -> tuple[States, list[Row]]:
    """Makes the rows of an epoch, stops seeds that are not finite, and looks at validation.

    `stopped` are the seeds that had stopped before. A stopped seed has its last row again.
    """
    number, states = now.progress.epoch + 1, now.states
    counts = processes.gather(states.counts())  # (seeds,) each
    train_scores = epoch.compute(jax.device_put(processes.gather(now.sums)))
    rows = metric_rows(number, counts, {"train": train_scores} | scores)
    diverged = ~stopped & ((counts["diverged"] > 0) | ~finite_seeds(rows))  # (seeds,)
    if diverged.any():
        in_epoch = np.where(diverged, np.int32(number), counts["diverged"])  # (seeds,)
        names = ", ".join(str(seed) for seed, bad in zip(config.seeds, diverged) if bad)
        said = f"numbers of seed {names} became infinite or NaN in epoch {number}"
        if in_epoch.all():
            raise UsageError(
                f"{said}, and no seed is left; start another run with a lower learning_rate, or "
                f"find the operation with --debug_nans"
            )
        say(f"{said}; it stops")
        changes = {"stopped": counts["stopped"] | diverged, "diverged": in_epoch}
        states = states.with_changes(**put(programs.mesh, changes, SEEDS))
    rows = repeat_last(rows, stopped | diverged, now.rows)
    if "valid" in config.decisive:
        states = programs.after_epoch(states, scores["valid"][task.target.score], np.int32(number))
    return states, rows


def save(path: Path, now: Snapshot, values: JsonObject) -> None:
    states, sums = processes.gather((now.states, now.sums))
    if processes.is_first():
        note = Note(*now.progress, now.seconds, now.rows, values)
        checkpoints.save(path / CHECKPOINTS, note, {"states": states, "sums": sums})


def save_and_stop(path: Path, now: Snapshot, values: JsonObject, stop: Stop, steps: int) -> None:
    """Writes a checkpoint and raises `Stopped`."""
    save(path, now, values)
    stop.check(f"{now.progress.step} of {steps} steps of epoch {now.progress.epoch + 1} are saved")


def steps_of(now: Snapshot, steps_an_epoch: int) -> Steps:
    """Returns the progress within an epoch."""
    scores = jax.device_get(epoch.compute(now.sums))
    means = {name: float(np.mean(values)) for name, values in scores.items()}  # means over seeds
    return Steps(now.progress.epoch + 1, now.progress.step, steps_an_epoch, means)


def describe(progress: Progress) -> str:
    """Describes how far training has come."""
    number, step = progress
    return f"epoch {number} and {step} steps of epoch {number + 1}" if step else f"epoch {number}"


def derived_of(task: Task) -> JsonObject:
    """Returns the facts about the data, as the config of a run has them."""
    return task.kept.derived | {"sizes": task.kept.sizes}


def finish(
    config: Config,
    path: Path,
    task: Task,
    model: nn.Module,
    now: Snapshot,
    evaluate: Callable[[Params], dict[str, MetricValues]],
) -> Summary:
    """Writes the examples and the summary.

    Seeds that diverged are named, and left out of all results.
    """
    kept = kept_params(config, now.states, now.progress.epoch)
    scores = {"": evaluate(kept)}
    if config.keep_best:
        scores["last/"] = evaluate(now.states.params)
    states: States = processes.gather(now.states)
    if not processes.is_first():
        return cast(Summary, processes.broadcast(None, processes.ALONE))  # the first one's summary
    good = np.flatnonzero(states.diverged == 0).tolist()  # indices of seeds that did not diverge
    metrics: dict[str, Measure] = {}
    for prefix, of_params in scores.items():
        metrics |= summarize(prefix, of_params, good)
    by_seed = params_by_seed(kept_params(config, states, now.progress.epoch), config)
    examples = task.examples(model, [by_seed[config.seeds[i]] for i in good])
    metrics |= {name: summarize_values(values) for name, values in examples.metrics.items()}
    summary = {
        "config": config.name,
        "task": task.name,
        "model": config.model["name"],
        "parameters": count_parameters(states.params) // config.num_seeds,  # of one seed
        "seeds": [int(seed) for seed in states.seed],
        "diverged": {
            str(seed): {"epoch": int(number)}
            for seed, number in zip(config.seeds, states.diverged)
            if number
        },
        "epochs": now.progress.epoch,
        "stopped": bool(states.stopped.all()),
        "steps": int(states.step.max()),
        "train_seconds": round(now.seconds, 1),
        "measured": task.target.measured,
        "metrics": metrics,
        "comparisons": task.compare(examples.scores),
    } | examples.summary
    scores = {f"{stored.SCORES}{name}": values for name, values in examples.scores.items()}
    if left_out := stored.write_examples(path, examples.arrays | scores):
        summary["left_out"] = left_out
    for name, text in examples.texts.items():
        stored.write_text(path / name, text)
    stored.write_json(path / "summary.json", summary)
    return cast(Summary, processes.broadcast(summary, processes.ALONE))


def kept_params(config: Config, states: States, num_epochs: int) -> Params:
    """Returns the parameters of the epoch best on validation, or of the last.

    Before the first epoch has ended, none is the best, and the parameters are those of now.
    """
    return states.best_params if config.keep_best and num_epochs else states.params


def params_by_seed(params: Params, config: Config) -> dict[int, Params]:
    """Returns the parameters of each seed, from those of all."""
    host = jax.device_get(params)  # to index an array on the device compiles a program
    return {
        seed: jax.device_put(jax.tree.map(lambda leaf, i=i: leaf[i], host))
        for i, seed in enumerate(config.seeds)
    }


def describe_device() -> str:
    """Describes the devices and the precision of their products."""
    device, products = jax.devices()[0], platforms.products()
    count = f"{jax.device_count()} device(s), {device.device_kind}, {os.cpu_count()} CPU cores"
    in_precision = "" if products == "float32" else f", float32 multiplied in {products}"
    return f"{device.platform}, {count} (jax {jax.__version__}){in_precision}"


def describe_mesh(mesh: Mesh, config: Config) -> str:
    """Describes how the seeds and the rows of a batch lie on the devices."""
    shape, axes = (" x ".join(map(str, part)) for part in (mesh.axis_sizes, mesh.axis_names))
    seeds, rows = config.num_seeds // mesh.shape["seed"], config.batch_size // mesh.shape["data"]
    return (
        f"mesh: {shape} ({axes}); {seeds} of {config.num_seeds} seed(s) and {rows} of "
        f"{config.batch_size} rows a device; {jax.device_count() - mesh.size} device(s) idle"
    )


def check_same_data(workdir: Path, derived: JsonObject, task: Task) -> None:
    """Raises a UsageError where a run that goes on began with other files."""
    now = task.kept.derived.get("files", {})
    before = derived.get("files", now)
    if changed := [name for name in sorted(before | now) if before.get(name) != now.get(name)]:
        raise UsageError(
            f"the run in {workdir} began with other contents of {', '.join(changed)}; restore "
            f"them or choose another --workdir"
        )


def check_enough(config: Config, task: Task) -> None:
    """Raises a UsageError for a split without rows, or for too few training examples."""
    rows, count = task.rows, lambda rows: len(jax.tree.leaves(rows)[0])
    for split in sorted(config.decisive | rows.splits.keys()):
        if split not in rows.splits or not count(rows.splits[split]):
            raise UsageError(
                f"expected examples in the {split} split, got none; change the sizes under "
                f"config.data"
            )
    is_drawn = rows.draw is not None and not config.data.fresh
    is_filled_up = is_drawn or row_lengths(rows.train) is not None  # a bucket fills its last batch
    least, num_train = 1 if is_filled_up else config.batch_size, count(rows.train)
    if num_train < least:
        raise UsageError(
            f"expected batch_size at most the {num_train} training examples, got {least}"
        )
