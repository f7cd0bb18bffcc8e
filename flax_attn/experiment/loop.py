"""The training loop: epochs in segments, a checkpoint after each epoch, and another at a stop."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from flax_attn.errors import UsageError
from flax_attn.experiment import processes
from flax_attn.experiment.building import Scores, States, make_batches
from flax_attn.experiment.config import Config
from flax_attn.experiment.debugging import find_nan
from flax_attn.experiment.programs import Programs
from flax_attn.runs import checkpoints
from flax_attn.runs.checkpoints import Place
from flax_attn.runs.directory import RunDirectory
from flax_attn.runs.metrics_log import MetricsLog, read_until
from flax_attn.runs.rows import Row, check_finite, finite_seeds, metric_rows, repeat_last
from flax_attn.stopping import Stop
from flax_attn.tasks import Task
from flax_attn.training import epoch, segments
from flax_attn.training.mesh import EVERYWHERE, SEEDS, put, zeros_like
from flax_attn.types import JsonObject

Say = Callable[[str], None]  # takes a line, or several, for the user
OnEpoch = Callable[[list[Row]], None]  # takes the rows of an epoch, one a seed


class Standing(NamedTuple):
    """Where training stands.

    Attributes:
        place: epochs and steps of the next.
        states: of all seeds.
        sums: of the metrics of the steps of the next epoch.
        seconds: of training in all tries.
        rows: metrics, at least those of the last epoch.
    """

    place: Place
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

    def begin(self, say: Say) -> Standing:
        """Compiles, and goes to the last whole checkpoint, or to the start, which it measures."""
        states = self.programs.create(self.config.seeds)
        weights = (states.params, states.carry, self.batches)
        self.evaluate = self.programs.evaluate.lower(*weights).compile()
        processes.meet("the first evaluation")
        is_new = processes.tell(checkpoints.newest(self.directory.checkpoints) is None)
        before = self.evaluate(*weights) if is_new else None  # it runs while the steps are traced
        self.zeros = self.programs.zero_sums(states, self.rows)
        at = self.restore(states, say)
        if before is None and not at.rows:  # no checkpoint was written to its end
            before = self.evaluate(*weights)
        at = at._replace(seconds=at.seconds + self.compile_steps(at))
        if before is None:
            return at
        rows = metric_rows(0, processes.gather(at.states.counts()), before)
        check_finite(rows)
        return at._replace(rows=rows)

    def restore(self, states: States, say: Say) -> Standing:
        """The last whole checkpoint, or the start. What stands after it is removed."""
        start = Standing(Place(0), states, self.zeros, 0.0, [])
        first = start._replace(states=zeros_like(states), sums=zeros_like(self.zeros))
        if processes.is_first():
            first = self.read_checkpoint(first, say)
            checkpoints.discard_after(self.directory.checkpoints, first.place)
            checkpoints.prune(self.directory.checkpoints, first.place)
        place, seconds, rows = processes.tell([first.place, first.seconds, first.rows])
        if not any(place):
            return start
        arrays = processes.tell_arrays((first.states, first.sums))
        states, sums = put(self.programs.mesh, arrays, SEEDS)
        return Standing(Place(*place), states, sums, seconds, rows)

    def read_checkpoint(self, template: Standing, say: Say) -> Standing:
        """Reads the last whole checkpoint. Without one it returns the template."""
        states, sums = template.states, template.sums
        checkpoint = checkpoints.restore(self.directory.checkpoints, states, say, sums=sums)
        if checkpoint is None:
            return template
        rows = read_until(self.directory.path, checkpoint.metadata["metrics"])
        say(f"resuming after {describe(checkpoint.place)}")
        seconds = checkpoint.metadata["train_seconds"]
        begun = checkpoint.sums or sums
        return Standing(checkpoint.place, checkpoint.state, begun, seconds, rows)

    def compile_steps(self, at: Standing) -> float:
        """Compiles the training steps, unless none is left. Returns the seconds that it took."""
        began = time.perf_counter()
        if at.place.epoch < self.config.num_epochs:
            places = (np.int32(0),) * 3
            traced = self.programs.train_steps.trace(at.states, at.sums, *places, self.rows)
            self.size = segments.steps_a_segment(traced.jaxpr)
            self.train_steps = traced.lower().compile()
        return time.perf_counter() - began

    def train(self, at: Standing, on_epoch: OnEpoch) -> Standing:
        """Trains to `num_epochs`, or until all seeds have stopped."""
        while at.place.epoch < self.config.num_epochs:
            stopped = processes.gather(at.states.stopped)
            if stopped.all():
                break
            self.stop.saves = True
            at = self.run_epoch(at, stopped)
            self.save(at)
            self.stop.check(f"epoch {at.place.epoch} is saved")
            self.stop.saves = self.stop.agree is not None  # several processes stop together
            on_epoch(at.rows)
        self.stop.saves = False
        return at

    def run_epoch(self, at: Standing, stopped: np.ndarray) -> Standing:
        """The rest of an epoch in segments, and its metrics. Some seeds have `stopped` before."""
        began = at.seconds - time.perf_counter()
        number = at.place.epoch + 1
        while at.place.step < self.programs.steps_an_epoch:
            at = self.run_segment(at)._replace(seconds=began + time.perf_counter())
            if self.stop.heard():
                self.save_and_stop(at)
        scores = self.evaluate(at.states.params, at.states.carry, self.batches)
        if not self.stop.wait(jax.tree.leaves(scores)):
            self.save_and_stop(at)
        train_scores = epoch.compute(jax.device_put(processes.gather(at.sums)))
        at = self.judge(at, {"train": train_scores} | scores, stopped)
        states = at.states
        if self.config.by_validation:
            states = self.programs.after_epoch(
                states, scores["valid"][self.task.score], np.int32(number)
            )
        if processes.is_first():
            self.log.append(at.rows)
        return Standing(Place(number), states, self.zeros, began + time.perf_counter(), at.rows)

    def run_segment(self, at: Standing) -> Standing:
        """Some steps. Seeds in which they are not all finite take them again, guarded."""
        number, first = at.place.epoch + 1, at.place.step
        last = min(first + self.size, self.programs.steps_an_epoch)
        places = (np.int32(number), np.int32(first), np.int32(last), self.rows)
        processes.meet(f"the steps of epoch {number}")  # the steps wait for all without a limit
        states, sums, finite = self.train_steps(at.states, at.sums, *places)
        if not np.asarray(finite).all():
            if self.debug_nans:
                find_nan(self.programs, at.states, at.sums, places, self.task.rows.train)
            guarded = self.programs.guarded_steps(at.states, at.sums, *places)[:2]
            states, sums = self.programs.choose(finite, (states, sums), guarded)
        return at._replace(place=Place(at.place.epoch, last), states=states, sums=sums)

    def judge(self, at: Standing, scores: dict[str, Scores], stopped: np.ndarray) -> Standing:
        """Makes the rows of an epoch, and stops the seeds whose steps or metrics are not finite.

        Raises:
            UsageError: no seed is left.
        """
        counts = processes.gather(at.states.counts())
        rows = metric_rows(at.place.epoch + 1, counts, scores)
        bad = counts["bad_in_a_row"] >= self.config.max_bad_steps
        diverged = ~stopped & (bad | ~finite_seeds(rows))
        if diverged.any() and (diverged | (stopped & bad)).all():
            if not bad.all():
                check_finite(rows)
            raise UsageError(
                f"expected finite numbers, but {self.config.max_bad_steps} steps in a row were not "
                f"in epoch {at.place.epoch + 1}; start another run with a lower learning_rate, or "
                f"see where they arise with --debug_nans"
            )
        states = at.states
        if diverged.any():
            limit = np.where(diverged, np.int32(self.config.max_bad_steps), counts["bad_in_a_row"])
            changes = {"stopped": counts["stopped"] | diverged, "bad_in_a_row": limit}
            states = states.with_changes(**put(self.programs.mesh, changes, SEEDS))
        return at._replace(states=states, rows=repeat_last(rows, stopped | diverged, at.rows))

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

    def save(self, at: Standing) -> None:
        """Writes a checkpoint of where training stands."""
        metadata = {
            "train_seconds": at.seconds,
            "metrics": self.log.mark(),
            "config": self.directory.written,
        }
        states, sums = processes.gather((at.states, at.sums if at.place.step else None))
        if processes.is_first():
            checkpoints.save(self.directory.checkpoints, at.place, states, metadata, sums)

    def save_and_stop(self, at: Standing) -> None:
        """Saves where training stands, and raises `Stopped`."""
        self.save(at)
        steps = self.programs.steps_an_epoch
        self.stop.check(f"{at.place.step} of {steps} steps of epoch {at.place.epoch + 1} are saved")


def describe(place: Place) -> str:
    """A place in words."""
    steps = f" and {place.step} steps of epoch {place.epoch + 1}" if place.step else ""
    return f"epoch {place.epoch}{steps}"
