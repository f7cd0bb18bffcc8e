"""Training from a config into a run directory."""

import contextlib
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh

from flax_attn import kinds, platforms
from flax_attn.data.contents import NO_TRAINING
from flax_attn.errors import UsageError, one_line, shortened
from flax_attn.experiment import processes
from flax_attn.experiment.config import Config
from flax_attn.experiment.debugging import find_nan
from flax_attn.experiment.programs import (
    NOT_MADE,
    Programs,
    Scores,
    States,
    build_model,
    count_parameters,
    layer_table,
    make_batches,
    make_programs,
    mesh_of,
    shapes_of_params,
)
from flax_attn.files import check_data_folder, expanded, replacing, sha256
from flax_attn.kinds.task import Task, row_lengths
from flax_attn.models.cpu import instruction_set
from flax_attn.models.forward import Inputs, Params
from flax_attn.runs import checkpoints, sums
from flax_attn.runs.checkpoints import Progress
from flax_attn.runs.directory import RunDirectory
from flax_attn.runs.examples import fitting
from flax_attn.runs.metrics_log import MetricsLog
from flax_attn.runs.results import Measure, Summary
from flax_attn.runs.rows import (
    Row,
    check_finite,
    finite_seeds,
    metric_rows,
    repeat_last,
    summarize,
    summarize_values,
)
from flax_attn.stopping import FINISHED, Stop
from flax_attn.training import epoch
from flax_attn.training.mesh import EVERYWHERE, SEEDS, put, zeros_like
from flax_attn.types import JsonObject, Tree

Say = Callable[[str], None]  # takes a line, or several, for the user
OnEpoch = Callable[[list[Row]], None]  # takes the rows of an epoch, one a seed
OnSteps = Callable[["Steps"], None]
OnModel = Callable[["Trained"], None]

# bytes that a checkpoint takes at most for each parameter, and for what a model carries
A_PARAMETER, BESIDE = 64, 2**28

ALWAYS_SMALL = 2**28  # a product of sizes up to which counting, a quarter of a second, is not worth
COPIES = 4  # of the parameters while they train: theirs, the best, and two moments


def silent(_: object) -> None:
    """Takes lines, and shows none."""


class Steps(NamedTuple):
    """How many steps of an epoch are done. The metrics of these steps are means over seeds."""

    epoch: int
    done: int
    of: int
    metrics: dict[str, float]


class Trained(NamedTuple):
    """A model as it stands: the kept parameters of all seeds, and the rows of the last epoch."""

    task: Task
    model: nn.Module
    params: dict[int, Params]
    rows: list[Row]


class Listeners(NamedTuple):
    """Who hears of a training.

    Attributes:
        say: takes lines for the user.
        on_epoch: takes the rows of each epoch as it ends.
        on_steps: takes how far an epoch is, about once a second.
        on_model: takes the model before the first epoch, and after each.
    """

    say: Say = silent
    on_epoch: OnEpoch = silent
    on_steps: OnSteps | None = None
    on_model: OnModel | None = None


def run(
    config: Config,
    workdir: Path,
    *,
    manual_dir: Path | None = None,
    say: Say = silent,
    on_epoch: OnEpoch = silent,
    on_steps: OnSteps | None = None,
    on_model: OnModel | None = None,
    stop: Stop | None = None,
    debug_nans: bool = False,
    sequence: int = 1,
) -> Summary:
    """Trains what the config describes, or resumes it, and returns the summary.

    A finished run is left alone. One whose files are damaged is mended.

    Args:
        config: all that decides the run.
        workdir: the run directory, one that is there or is to be made.
        manual_dir: a folder with one folder a data set; None for downloads.
        say, on_epoch, on_steps, on_model: those of `Listeners`. The last two hear of one process
            alone, not of one of several.
        stop: what hears signals; None for nothing.
        debug_nans: whether the first step that is not finite ends the run, and says where.
        sequence: the number of devices that share each sequence, for a Transformer.

    Raises:
        UsageError: before anything is written, for data that are not there or do not fit the
            config, and for a directory that is not this run's, or in use. Later, for checkpoints
            that are all damaged, a disk that is full, or seeds that all went bad; what was there is
            left as it is.
        Stopped: a signal has come. Where training stands is saved.
        FloatingPointError: with `debug_nans`, where the first NaN arose.
    """
    stop, is_first = stop or Stop(), processes.is_first()
    if jax.process_count() > 1:
        stop.agree = processes.agree
        options = {"workdir": str(workdir), "debug_nans": debug_nans, "sequence": sequence}
        processes.check_same(config.values | options)
        on_steps = on_model = None  # to gather what they take, all processes would have to meet
    listeners = Listeners(say, on_epoch, on_steps, on_model) if is_first else Listeners()
    say = listeners.say
    mesh = mesh_of(config, sequence=sequence)  # the same error in all processes at once
    with RunDirectory.opened(workdir, config.values, say, is_first) as directory:
        processes.check_shared(workdir)
        directory.stored = processes.tell(directory.stored)
        summary = report_finished(directory, config, say) if is_first else None
        summary = processes.tell(summary, processes.ALONE)
        if summary is None:
            with as_begun(directory):
                with processes.first_ahead("the data"):
                    task = load_task(config, manual_dir)
                check_data_folder("manual_dir", manual_dir)
                check_same_data(directory.path, directory.derived, task)
                check_enough(config, task)
                summary = fill(config, directory, task, mesh, listeners, stop, debug_nans)
    stop.check(FINISHED)
    return cast(Summary, summary)


def load_task(config: Config, manual_dir: Path | None) -> Task:
    """The task of a config, with its data.

    Raises:
        UsageError: the data cannot be read; or a data set of the user's own raises an error, or
            does not load what its kind says.
    """
    name = config.values["data"]["name"]
    try:
        return config.kind.load(config.data, config.recipe, manual_dir)
    except Exception as error:  # whatever the user's code may raise
        is_told = isinstance(error, UsageError) or getattr(error, "filename", None)
        if is_told or ":" not in name:
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"expected {shortened(name)} to load what {config.kind.data_class.__name__} says, got "
            f"{type(error).__name__}: {one_line(error)} ({Path(frame.filename).name}, line "
            f"{frame.lineno})"
        ) from error


@contextlib.contextmanager
def as_begun(directory: RunDirectory) -> Iterator[None]:
    """Takes the forms of the instruction set, and the precision, that a run began with.

    A run that begins takes those of this machine, and process 0 decides.

    Raises:
        UsageError: the run directory names others than there are.
    """
    derived = directory.derived or {}
    form = derived.get("instruction_set", instruction_set.current())
    precision = derived.get("matmul_precision", platforms.matmul_precision())
    form, precision = processes.tell([form, precision])
    try:
        forms, products = instruction_set.taking(form), platforms.multiplying(precision)
    except ValueError as error:
        raise UsageError(
            f"{error} under 'derived' in {directory.path / 'config.json'}; restore that file"
        ) from error
    with forms, products:
        yield


def report_finished(directory: RunDirectory, config: Config, say: Say) -> Summary | None:
    """The summary of a run that is whole and as long as the config says.

    Figures that are gone or damaged are drawn again. None for any other run, which training mends.
    """
    if directory.stored is None or not (directory.path / "summary.json").exists():
        return None
    try:
        record = kinds.read(directory.path)
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
    from flax_attn.kinds import figures  # matplotlib is not there to train

    directory.clear()
    for name in filter(sums.is_figure, sums.changes(directory.path)):
        (directory.path / name).unlink(missing_ok=True)
    if figures.draw_missing(record):
        directory.end(name for name in sums.read(directory.path) if "/" not in name)
    for name in changed_files(config, directory.derived):
        say(f"{name} has changed since this run; to train on it, choose another --workdir")
    say("this run is finished; its results:")
    return record.summary


def changed_files(config: Config, derived: JsonObject | None) -> list[str]:
    """The files of the config that are there, with other contents than the run had.

    `derived` is what the run's data decided.
    """
    before = (derived or {}).get("files")
    before = before if isinstance(before, dict) else {}
    names = [config.values["data"].get(key) for key in ("file", "test_file")]
    paths = {name: expanded(name) for name in names if name in before}
    return [name for name in paths if paths[name].is_file() and sha256(paths[name]) != before[name]]


def fill(
    config: Config,
    directory: RunDirectory,
    task: Task,
    mesh: Mesh,
    listeners: Listeners,
    stop: Stop,
    debug_nans: bool,
) -> Summary:
    """Trains a run that is not finished, fills its directory and returns the summary."""
    say = listeners.say
    model = build_model(config, task.kept.sizes)
    layers = layer_table(model, task.sample(), shapes_of_params(model, task))
    programs = make_programs(config, model, task, mesh)
    if processes.is_first():
        directory.begin(config.values)
    say(f"device: {describe_device()}")
    if jax.device_count() > 1:
        say(describe_mesh(programs.mesh, config))
    say(layers)
    if task.rows.draw is None:
        say(f"examples: {describe_splits(task)}")
    say("compiling; the first start of a model takes longest")
    loop = Loop(config, programs, task, directory, stop, debug_nans)
    now = loop.begin(say)
    if processes.is_first():
        begin_to_write(config, task, directory)
        loop.log.begin(now.rows)
    epoch = now.progress.epoch
    stop.check(f"epoch {epoch} is saved" if epoch else "nothing is saved yet")
    now = loop.train(now, model, listeners)
    if now.progress.epoch < config.num_epochs:
        say(f"stopped early: validation has not got better for {config.patience} epochs")
    say("writing the results and the pictures")
    return finish(config, model, loop, task, directory, now)


class Snapshot(NamedTuple):
    """All of a training at one moment, as a checkpoint stores it.

    Attributes:
        progress: epochs, and steps of the next.
        states: of all seeds.
        sums: of the metrics of the steps of the next epoch.
        seconds: of training in all tries.
        rows: metrics, at least those of the last epoch.
    """

    progress: Progress
    states: States
    sums: epoch.Metrics
    seconds: float
    rows: list[Row]


class Loop:
    """Trains a run, from its last checkpoint or from the start."""

    def __init__(
        self,
        config: Config,
        programs: Programs,
        task: Task,
        directory: RunDirectory,
        stop: Stop,
        debug_nans: bool = False,
    ):
        self.config, self.programs, self.task = config, programs, task
        self.directory, self.stop, self.debug_nans = directory, stop, debug_nans
        rows = (task.rows.train, make_batches(config, task))
        self.rows, self.batches = put(programs.mesh, rows, EVERYWHERE)
        self.log = MetricsLog(directory.path)

    def begin(self, say: Say) -> Snapshot:
        """Compiles, and goes to the last whole checkpoint, or to the start, which it measures."""
        states = self.programs.create(self.config.seeds)
        weights = (states.params, states.carry, self.batches)
        evaluation = self.programs.evaluate.lower(*weights)
        with ThreadPoolExecutor(1) as beside:  # XLA compiles a program on one core
            compiling = beside.submit(evaluation.compile)
            self.zeros = self.programs.zero_sums(states, self.rows)
            now = self.restore(states, say)
            now = now._replace(seconds=now.seconds + self.compile_steps(now))
            self.evaluate = compiling.result()
        if now.rows:
            return now
        processes.meet("the first evaluation")
        before = self.evaluate(*weights)
        rows = metric_rows(0, processes.gather(now.states.counts()), before)
        check_finite(rows)
        return now._replace(rows=rows)

    def restore(self, states: States, say: Say) -> Snapshot:
        """The last whole checkpoint, or the start. What stands after it is removed."""
        start = Snapshot(Progress(0), states, self.zeros, 0.0, [])
        first = start._replace(states=zeros_like(states), sums=zeros_like(self.zeros))
        if processes.is_first():
            first = self.read_checkpoint(first, say)
            checkpoints.discard_after(self.directory.checkpoints, first.progress)
            checkpoints.prune(self.directory.checkpoints, first.progress)
        progress, seconds, rows = processes.tell([first.progress, first.seconds, first.rows])
        if not any(progress):
            return start
        arrays = processes.tell_arrays((first.states, first.sums))
        states, sums = put(self.programs.mesh, arrays, SEEDS)
        return Snapshot(Progress(*progress), states, sums, seconds, rows)

    def read_checkpoint(self, template: Snapshot, say: Say) -> Snapshot:
        """Reads the last whole checkpoint. Without one it returns the template."""
        states, sums = template.states, template.sums
        checkpoint = checkpoints.restore(self.directory.checkpoints, states, say, metric_sums=sums)
        if checkpoint is None:
            return template
        rows = checkpoint.rows()
        say(f"resuming after {describe(checkpoint.progress)}")
        seconds = checkpoint.metadata["train_seconds"]
        sums = checkpoint.metric_sums or sums
        return Snapshot(checkpoint.progress, checkpoint.state, sums, seconds, rows)

    def compile_steps(self, now: Snapshot) -> float:
        """Compiles the training steps, unless none is left. Returns the seconds that it took."""
        began = time.perf_counter()
        if now.progress.epoch < self.config.num_epochs:
            steps = (np.int32(0),) * 3
            traced = self.programs.train_steps.trace(now.states, now.sums, *steps, self.rows)
            self.size = epoch.steps_a_segment(traced.jaxpr)
            self.train_steps = traced.lower().compile()
        return time.perf_counter() - began

    def train(self, now: Snapshot, model: nn.Module, listeners: Listeners) -> Snapshot:
        """Trains to `num_epochs`, or until all seeds have stopped."""

        def show(now: Snapshot) -> None:
            if listeners.on_model is not None:
                listeners.on_model(Trained(self.task, model, self.kept_params(now), now.rows))

        show(now)
        while now.progress.epoch < self.config.num_epochs:
            stopped = processes.gather(now.states.stopped)
            if stopped.all():
                break
            self.stop.saves = True
            now = self.run_epoch(now, stopped, listeners.on_steps)
            self.save(now)
            self.stop.check(f"epoch {now.progress.epoch} is saved")
            self.stop.saves = self.stop.agree is not None  # several processes stop together
            listeners.on_epoch(now.rows)
            show(now)
        self.stop.saves = False
        return now

    def kept_params(self, now: Snapshot) -> dict[int, Params]:
        """The parameters by seed that the run would be judged by if it ended here."""
        states = processes.gather(now.states)
        kept = kept_params(self.config, states) if now.progress.epoch else states.params
        return params_by_seed(kept, self.config)

    def run_epoch(self, now: Snapshot, stopped: np.ndarray, on_steps: OnSteps | None) -> Snapshot:
        """The rest of an epoch in segments, and its metrics. Some seeds have `stopped` before."""
        began = now.seconds - time.perf_counter()
        number = now.progress.epoch + 1
        while now.progress.step < self.programs.steps_an_epoch:
            now = self.run_segment(now)._replace(seconds=began + time.perf_counter())
            if on_steps is not None:
                on_steps(self.steps_of(now))
            if self.stop.heard():
                self.save_and_stop(now)
        scores = self.evaluate(now.states.params, now.states.carry, self.batches)
        if not self.stop.wait(jax.tree.leaves(scores)):
            self.save_and_stop(now)
        train_scores = epoch.compute(jax.device_put(processes.gather(now.sums)))
        now = self.judge(now, {"train": train_scores} | scores, stopped)
        states = now.states
        if self.config.by_validation:
            states = self.programs.after_epoch(
                states, scores["valid"][self.task.score], np.int32(number)
            )
        if processes.is_first():
            self.log.append(now.rows)
        return Snapshot(Progress(number), states, self.zeros, began + time.perf_counter(), now.rows)

    def steps_of(self, now: Snapshot) -> Steps:
        """How far an epoch is."""
        scores = jax.device_get(epoch.compute(now.sums))
        means = {name: float(np.mean(values)) for name, values in scores.items()}
        return Steps(now.progress.epoch + 1, now.progress.step, self.programs.steps_an_epoch, means)

    def run_segment(self, now: Snapshot) -> Snapshot:
        """Some steps. Seeds in which they are not all finite take them again, guarded."""
        number, first = now.progress.epoch + 1, now.progress.step
        last = min(first + self.size, self.programs.steps_an_epoch)
        steps = (np.int32(number), np.int32(first), np.int32(last), self.rows)
        processes.meet(f"the steps of epoch {number}")  # the steps wait for all without a limit
        states, sums, finite = self.train_steps(now.states, now.sums, *steps)
        if not np.asarray(finite).all():
            if self.debug_nans:
                find_nan(self.programs, now.states, now.sums, steps, self.task.rows.train)
            guarded = self.programs.guarded_steps(now.states, now.sums, *steps)[:2]
            states, sums = self.programs.choose(finite, (states, sums), guarded)
        return now._replace(progress=Progress(now.progress.epoch, last), states=states, sums=sums)

    def judge(self, now: Snapshot, scores: dict[str, Scores], stopped: np.ndarray) -> Snapshot:
        """Makes the rows of an epoch, and stops the seeds whose steps or metrics are not finite.

        Raises:
            UsageError: no seed is left.
        """
        counts = processes.gather(now.states.counts())
        rows = metric_rows(now.progress.epoch + 1, counts, scores)
        bad = counts["bad_in_a_row"] >= self.config.max_bad_steps
        diverged = ~stopped & (bad | ~finite_seeds(rows))
        if diverged.any() and (diverged | (stopped & bad)).all():
            if not bad.all():
                check_finite(rows)
            raise UsageError(
                f"expected finite numbers, but {self.config.max_bad_steps} steps in a row were not "
                f"in epoch {now.progress.epoch + 1}; start another run with a lower learning_rate, "
                f"or see where they arise with --debug_nans"
            )
        states = now.states
        if diverged.any():
            limit = np.where(diverged, np.int32(self.config.max_bad_steps), counts["bad_in_a_row"])
            changes = {"stopped": counts["stopped"] | diverged, "bad_in_a_row": limit}
            states = states.with_changes(**put(self.programs.mesh, changes, SEEDS))
        return now._replace(states=states, rows=repeat_last(rows, stopped | diverged, now.rows))

    def diverged(self, states: States) -> JsonObject:
        """The seeds that steps or metrics that are not finite have stopped, and after what."""
        counts = processes.gather(states.counts())
        bad = counts["stopped"] & (counts["bad_in_a_row"] >= self.config.max_bad_steps)
        by_seed = zip(self.config.seeds, bad, counts["step"], counts["bad_steps"])
        return {
            str(seed): {"step": int(step), "bad_steps": int(number)}
            for seed, is_bad, step, number in by_seed
            if is_bad
        }

    def save(self, now: Snapshot) -> None:
        """Writes a checkpoint of where training stands."""
        metadata = {"train_seconds": now.seconds, "config": self.directory.written}
        states, sums = processes.gather((now.states, now.sums if now.progress.step else None))
        if processes.is_first():
            folder, log = self.directory.checkpoints, self.log.content
            checkpoints.save(folder, now.progress, states, metadata, log, sums)

    def save_and_stop(self, now: Snapshot) -> None:
        """Saves where training stands, and raises `Stopped`."""
        self.save(now)
        (epoch, step), steps = now.progress, self.programs.steps_an_epoch
        self.stop.check(f"{step} of {steps} steps of epoch {epoch + 1} are saved")


def describe(progress: Progress) -> str:
    """How far training has come, in words."""
    epoch, step = progress
    return f"epoch {epoch} and {step} steps of epoch {epoch + 1}" if step else f"epoch {epoch}"


def begin_to_write(config: Config, task: Task, directory: RunDirectory) -> None:
    """Writes what the data decided."""
    for name, content in task.kept.files.items():
        directory.write_json(name, content)
    directory.go_on(config.values | {"derived": derived_of(task)}, task.kept.files)


def derived_of(task: Task) -> JsonObject:
    """What the data and the machine decided, as the config of a run has it."""
    return task.kept.derived | {
        "sizes": task.kept.sizes,
        "instruction_set": instruction_set.current(),
        "platform": platforms.current(),
        "matmul_precision": platforms.matmul_precision(),
    }


def finish(
    config: Config,
    model: nn.Module,
    loop: Loop,
    task: Task,
    directory: RunDirectory,
    now: Snapshot,
) -> Summary:
    """Writes the examples, the summary and the figures, and last the sums of everything.

    Seeds that diverged are named, and left out of all results.
    """
    diverged = loop.diverged(now.states)
    good = [i for i, seed in enumerate(config.seeds) if str(seed) not in diverged]
    metrics = measure(config, loop, now, good)
    states: States = processes.gather(now.states)
    if not processes.is_first():
        return cast(Summary, processes.tell(None, processes.ALONE))
    by_seed = params_by_seed(kept_params(config, states), config)
    examples = task.examples(model, [by_seed[config.seeds[i]] for i in good])
    metrics |= {name: summarize_values(values) for name, values in examples.metrics.items()}
    summary = {
        "config": config.name,
        "task": task.problem,
        "model": config.model["name"],
        "parameters": count_parameters(states.params) // config.num_seeds,
        "seeds": [int(seed) for seed in states.seed],
        "diverged": diverged,
        "epochs": now.progress.epoch,
        "stopped": bool(states.stopped.all()),
        "steps": int(states.step.max()),
        "train_seconds": round(now.seconds, 1),
        "measured": task.measured,
        "pictures": task.name,
        "metrics": metrics,
    } | examples.summary
    arrays: Tree = fitting(examples.arrays)
    if left_out := sorted(examples.arrays.keys() - arrays.keys()):
        summary["left_out"] = left_out
    with replacing(directory.path / "examples.npz") as partial:
        np.savez_compressed(partial, **arrays)
    for name, text in examples.texts.items():
        directory.write_text(name, text)
    loop.log.write()  # also where somebody has changed it while the run trained
    directory.write_json("summary.json", summary)
    directory.end((*task.kept.files, *examples.texts))
    from flax_attn.kinds import figures

    figures.draw_run(directory.path)
    directory.end((*task.kept.files, *examples.texts))
    return cast(Summary, processes.tell(summary, processes.ALONE))


def measure(config: Config, loop: Loop, now: Snapshot, good: list[int]) -> dict[str, Measure]:
    """The metrics of the kept parameters over the good seeds, and of the last ones beside them."""
    kept, carry = kept_params(config, now.states), now.states.carry
    metrics = summarize("", loop.evaluate(kept, carry, loop.batches), good)
    if config.keep_best:
        metrics |= summarize("last/", loop.evaluate(now.states.params, carry, loop.batches), good)
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
    products = platforms.products()
    in_precision = "" if products == "float32" else f", float32 multiplied in {products}"
    return f"{device.platform}, {count} (jax {jax.__version__}){in_precision}"


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


def describe_splits(task: Task) -> str:
    """How many rows each split has."""
    splits = {"train": task.rows.train} | task.rows.splits
    return ", ".join(f"{len(jax.tree.leaves(rows)[0]):,} {name}" for name, rows in splits.items())


def check_same_data(workdir: Path, derived: JsonObject | None, task: Task) -> None:
    """Raises a UsageError where a run that goes on began with other files.

    `derived` is what its data decided; None for a run that has not begun.
    """
    before, now = (derived or {}).get("files"), task.kept.derived.get("files")
    if before is not None and now is not None and before != now:
        changed = sorted(
            name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
        )
        raise UsageError(
            f"the run in {workdir} began with other contents of {', '.join(changed)}; restore "
            f"them or choose another --workdir"
        )


def check_enough(config: Config, task: Task) -> None:
    """Raises a UsageError for a split without rows, for too few training examples, or for a model
    that does not fit into the memory.
    """
    rows = task.rows
    needed = ["test", "valid"] if config.by_validation else ["test"]
    for split in dict.fromkeys([*rows.splits, *needed]):
        if split not in rows.splits or not len(jax.tree.leaves(rows.splits[split])[0]):
            raise UsageError(
                f"expected examples in the {split} split, got none; change the sizes under "
                f"config.data"
            )
    num_train = len(jax.tree.leaves(rows.train)[0])
    is_filled_up = rows.draw is not None or row_lengths(rows.train) is not None
    if not num_train:
        raise UsageError(NO_TRAINING)
    if num_train < config.batch_size and not is_filled_up:
        raise UsageError(
            f"expected batch_size at most the {num_train} training examples, got "
            f"{config.batch_size}"
        )
    if math.prod(sizes_of(config)) > ALWAYS_SMALL:
        check_memory(config, build_model(config, task.kept.sizes), task.sample())


def sizes_of(config: Config) -> list[int]:
    """The numbers of the config that multiply the parameters of a model, at least roughly."""
    options = [*config.model.values(), getattr(config.data, "num_ngrams", 0), config.num_seeds]
    return [size for size in options if isinstance(size, int) and size > 0]


def check_memory(config: Config, model: nn.Module, sample: Inputs) -> None:
    """Raises a UsageError for parameters that, with what trains them, take more than the memory.

    Only their shapes are made. What a batch takes beside them is not counted.
    """
    try:
        shapes = jax.eval_shape(model.init, jax.random.key(0), sample)["params"]
    except NOT_MADE as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error
    needed = (
        COPIES
        * config.num_seeds
        * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    )
    if needed > memory():
        raise UsageError(
            f"expected a model whose training fits into {memory() / 1e9:.1f} GB of memory, got "
            f"parameters that take {needed / 1e9:.3g} GB; lower the sizes under config part "
            f"'model', or num_seeds"
        )


def memory() -> int:
    """The bytes of the memory of the first device."""
    of_device = jax.devices()[0].memory_stats() or {}  # a CPU has none of its own
    return of_device.get("bytes_limit") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
