"""An experiment from a config: the only place where config, data, model and training meet.

`run` trains and fills a run directory; `load` and `predict` read one back. A config is an
`ml_collections.ConfigDict`, typed as Any, for its attributes are known when it runs.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict
from rich.console import Console

from flax_attn.analysis import figures, runs, tables
from flax_attn.config import check_config, num_train_examples
from flax_attn.data import shapes
from flax_attn.data.normalization import Normalization
from flax_attn.errors import UsageError, one_line, unknown
from flax_attn.models import MODELS
from flax_attn.run_directory import RunDirectory, read_config, replacing
from flax_attn.training import checkpoints, epoch, progress
from flax_attn.training.metrics import squared_error
from flax_attn.training.results import check_finite, metric_rows, summarize
from flax_attn.training.state import TrainState

NUM_EXAMPLES = 16  # test examples kept for the pictures


class Data(NamedTuple):
    """What a run trains and is measured on, normalised: rows to train on, padded batches by split, test examples as drawn."""

    train: dict[str, Any]
    batches: dict[str, epoch.Batch]
    normalization: Normalization
    test: shapes.Examples


def run(config: Any, workdir: Path, console: Console) -> dict[str, Any]:
    """Trains what the config describes, or resumes it, and returns the summary; a finished run is only reported.

    Raises:
        UsageError: a config that cannot be run, or a directory that is not this run's, before anything is written; all
            checkpoints damaged, or a loss that is not finite, with what was there left as it is.
    """
    check_config(config)
    model = build_model(config.model)
    sample = jnp.zeros((config.batch_size, shapes.LENGTH, 1))
    layers = layer_table(model, sample)
    directory = RunDirectory.open(workdir, config.to_dict())
    finished = read_finished(workdir, config)
    if finished:
        figures.draw_missing(finished)
        console.print("this run is finished; its results:")
        tables.print_results(finished.summary, dict(config.get("reference", {})), console)
        return finished.summary

    directory.begin(config.to_dict())
    console.print(f"device: {describe_device()}")
    console.print(layers, highlight=False, soft_wrap=True)
    data = load_data(config)
    programs = make_programs(config, model, sample, data.normalization)
    states, seconds = train(config, programs, data, directory, console)
    summary = finish(config, model, programs, states, seconds, data, directory)
    tables.print_results(summary, dict(config.get("reference", {})), console)
    console.print(f"run directory: {workdir}", markup=False, soft_wrap=True)
    return summary


def read_finished(workdir: Path, config: Any) -> runs.Run | None:
    """The run in a directory, if it is whole and as long as the config says; what is damaged is made again by going on."""
    try:
        found = runs.read(workdir)
    except UsageError:
        return None
    return found if found.summary["epochs"] == config.num_epochs else None


def build_model(fields: Any) -> nn.Module:
    """The model of a config's `model` part: `name` chooses the class, the rest are its fields."""
    options = dict(fields)
    name = options.pop("name")
    if name not in MODELS:
        raise UsageError(unknown("model.name", name, MODELS))
    known = [field for field in MODELS[name].__dataclass_fields__ if field not in ("name", "parent")]
    for option in options:
        if option not in known:
            raise UsageError(unknown(f"field of model '{name}'", option, known))
    return MODELS[name](**options)


def layer_table(model: nn.Module, sample: jax.Array) -> str:
    """The layers with their output shapes and parameters. A model that cannot be built from its fields is a UsageError."""
    try:
        table = nn.tabulate(model, jax.random.key(0), console_kwargs={"width": 110, "force_terminal": False})(sample)
        params = jax.eval_shape(model.init, jax.random.key(0), sample)["params"]
    except (ValueError, TypeError) as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error
    layers, _, _ = table.rpartition("Total Parameters")  # Flax counts what is carried among the parameters
    return f"{layers.rstrip()}\nparameters: {count_parameters(params):,}"


def count_parameters(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def load_data(config: Any) -> Data:
    """Generates the splits and normalises them by the mean and deviation of inputs and targets of `num_train` examples."""
    options = {key: config.data[key] for key in ("num_train", "num_test", "valid_fraction", "task", "height_rule")}
    splits = shapes.splits(config.data.seed, **options)
    drawn = [array for name in ("train", "valid") for array in splits[name][:2]]
    normalization = Normalization.of(*drawn)
    used = jax.tree.map(lambda array: array[: num_train_examples(config)], splits["train"])
    train_rows = make_batch(used, normalization)
    evaluated = {name: train_rows if name == "train" else make_batch(splits[name], normalization) for name in config.evaluate}
    batches = {name: epoch.pad_batches(rows, config.batch_size) for name, rows in evaluated.items() if len(rows["inputs"])}
    return Data(train_rows, jax.tree.map(jnp.asarray, batches), normalization, splits["test"])


def make_batch(examples: shapes.Examples, normalization: Normalization) -> epoch.Batch:
    """Inputs and targets of the examples, normalised."""
    return {"inputs": normalization.apply(examples.inputs), "targets": normalization.apply(examples.targets)}


def make_loss(model: nn.Module) -> epoch.Loss:
    """`loss(params, carry, batch, key) -> (mean squared error, (carry, metrics))`; without a key, at evaluation."""

    def loss(params: Any, carry: Any, batch: epoch.Batch, key: Any) -> tuple[jax.Array, tuple[Any, dict]]:
        variables, train = {"params": params, "carry": carry}, key is not None
        rngs = {"dropout": key} if train else None
        (outputs, _), updates = model.apply(variables, batch["inputs"], train=train, rngs=rngs, mutable=["carry"])  # pyright: ignore
        error = squared_error(outputs, batch["targets"], batch.get("mask", jnp.ones(len(outputs), bool)))
        return error.compute(), (updates.get("carry", {}), {"mse": error})

    return loss


def make_optimizer(config: Any) -> optax.GradientTransformation:
    """AdamW, whose decay spares the biases and all else with one axis, as fastai's does."""
    decayed = lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params)
    return optax.adamw(config.learning_rate, **config.optimizer, mask=decayed)


class Programs(NamedTuple):
    """The compiled parts of a run, over all seeds at once."""

    create: Any  # seeds -> states
    train_epoch: Any  # (states, epoch, rows) -> (states, metrics)
    evaluate: Any  # (params, carry, batches) -> metrics by split
    keep_best: Any  # (states, scores, epoch) -> states


def make_programs(config: Any, model: nn.Module, sample: jax.Array, normalization: Normalization) -> Programs:
    """Builds the run's programs; one compilation of each serves all epochs."""
    loss, optimizer = make_loss(model), make_optimizer(config)
    over_seeds = epoch.sequential if jax.default_backend() == "cpu" else epoch.vectorized
    num_steps = config.steps_per_epoch or num_train_examples(config) // config.batch_size

    def init(key: jax.Array) -> tuple[Any, Any]:
        variables = model.init(key, sample)
        return variables["params"], variables.get("carry", {})

    def draw(_: Any, key: jax.Array) -> epoch.Batch:
        drawn = shapes.generate(key, config.batch_size, task=config.data.task, height_rule=config.data.height_rule)
        return make_batch(drawn, normalization)

    if config.data.fresh:
        plan, fetch = functools.partial(jax.random.split, num=num_steps), draw
    else:
        sizes = {"num_examples": num_train_examples(config), "batch_size": config.batch_size, "num_steps": num_steps}
        plan, fetch = functools.partial(epoch.shuffled_rows, **sizes), epoch.gather
    step = functools.partial(epoch.train_step, loss=loss, optimizer=optimizer)
    train_epoch = functools.partial(epoch.train_epoch, step=step, plan=plan, fetch=fetch)

    def evaluate(weights: tuple[Any, Any], batches: dict[str, epoch.Batch]) -> dict[str, Any]:
        return {name: epoch.evaluate(*weights, split, loss=loss) for name, split in batches.items()}

    create = jax.jit(functools.partial(TrainState.create, init=init, optimizer=optimizer))
    return Programs(
        create=functools.partial(epoch.stack_seeds, create),
        train_epoch=jax.jit(over_seeds(train_epoch), donate_argnums=0),
        evaluate=jax.jit(lambda params, carry, batches: over_seeds(evaluate)((params, carry), batches)),
        keep_best=jax.jit(jax.vmap(TrainState.keep_best, in_axes=(0, 0, None))),
    )


def train(config: Any, programs: Programs, data: Data, directory: RunDirectory, console: Console) -> tuple[Any, float]:
    """Trains from the last whole checkpoint, or the start, to `num_epochs`; returns the states and the seconds of all tries.

    A checkpoint holds the rows of all epochs up to its own, so `metrics.jsonl` is written anew from it, whatever became of it.
    """
    states = programs.create(range(config.seed, config.seed + config.num_seeds))
    restored = checkpoints.restore(directory.checkpoints, states, warn=functools.partial(console.print, markup=False, soft_wrap=True))
    start, seconds, history = 0, 0.0, []
    if restored:
        start, states, metadata = restored
        seconds, history = metadata["train_seconds"], metadata["rows"]
        console.print(f"resuming after epoch {start}")
    checkpoints.discard_after(directory.checkpoints, start)
    if not restored:
        history = metric_rows(0, states, programs.evaluate(states.params, states.carry, data.batches))
        check_finite(history)
    directory.go_on(config.to_dict() | {"derived": data.normalization._asdict()}, history)

    def epochs() -> Iterator[list[dict[str, Any]]]:
        nonlocal states, seconds, history
        for number in range(start + 1, config.num_epochs + 1):
            began = time.perf_counter()
            states, train_scores = programs.train_epoch(states, jnp.int32(number), data.train)
            scores = {"train": train_scores} | programs.evaluate(states.params, states.carry, data.batches)
            if config.keep_best:
                states = programs.keep_best(states, scores["valid"]["mse"], jnp.int32(number))
            rows = metric_rows(number, states, scores)
            check_finite(rows)
            seconds += time.perf_counter() - began
            history = history + rows
            directory.append_metrics(rows)
            checkpoints.save(directory.checkpoints, number, states, {"train_seconds": seconds, "rows": history})
            yield rows

    for _ in progress.report_epochs(epochs(), start=start, num_epochs=config.num_epochs, console=console):
        pass
    return states, seconds


def finish(
    config: Any, model: nn.Module, programs: Programs, states: Any, seconds: float, data: Data, directory: RunDirectory
) -> dict[str, Any]:
    """Writes the examples, the summary, and last the figures, which are drawn from what is written."""
    kept = kept_params(config, states)
    metrics = summarize("", programs.evaluate(kept, states.carry, data.batches))
    if config.keep_best:
        metrics |= summarize("last/", programs.evaluate(states.params, states.carry, data.batches))
    summary = {
        "config": config.name,
        "task": config.task,
        "model": config.model.name,
        "parameters": count_parameters(states.params) // len(states.seed),
        "seeds": [int(seed) for seed in states.seed],
        "epochs": config.num_epochs,
        "steps": int(states.step[0]),
        "train_seconds": round(seconds, 1),
        "metrics": metrics,
    }
    first = first_seed(kept)
    inputs, targets, marks = jax.tree.map(lambda array: np.asarray(array[:NUM_EXAMPLES]), data.test)
    outputs, attention = predict(model, first, data.normalization, inputs)
    arrays = {"inputs": inputs, "targets": targets, "predictions": outputs} | marks._asdict()
    arrays |= {f"attention/{name}": weights for name, weights in attention.items()}
    with replacing(directory.path / "examples.npz") as partial:
        np.savez_compressed(partial, **arrays)
    directory.write_json("summary.json", summary)
    figures.draw_run(directory.path)
    return summary


def load(run: Path, warn: Callable[[str], None]) -> tuple[nn.Module, Any, Normalization]:
    """The model, the kept parameters of the first seed, and the normalisation of a run; `warn` takes a line on a damaged checkpoint."""
    stored = read_config(run)
    if "derived" not in stored:
        raise UsageError(f"the run in {run} has not begun to train; run train.py with --workdir={run} again")
    try:
        normalization = Normalization(**{key: float(value) for key, value in stored.pop("derived").items()})
        sound = np.isfinite(normalization).all() and normalization.std > 0
    except (AttributeError, TypeError, ValueError):
        sound = False
    if not sound:
        raise UsageError(f"expected numbers mean and std under 'derived' in {run / 'config.json'}; restore that file")
    config: Any = ConfigDict(stored)
    check_config(config)
    model = build_model(config.model)
    programs = make_programs(config, model, jnp.zeros((1, shapes.LENGTH, 1)), normalization)
    template = programs.create(range(config.seed, config.seed + config.num_seeds))
    restored = checkpoints.restore(run / "checkpoints", template, warn)
    if restored is None:
        raise UsageError(f"no whole checkpoint in {run / 'checkpoints'}; run train.py with --workdir={run} again")
    return model, first_seed(kept_params(config, restored[1])), normalization


def kept_params(config: Any, states: Any) -> Any:
    """The parameters that a run is judged by: of the epoch best on validation, or of the last."""
    return states.best_params if config.keep_best else states.params


def first_seed(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], params)


def predict(model: nn.Module, params: Any, normalization: Normalization, inputs: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Outputs in the units of the inputs `(n, t, 1)`, and the attention on the first `NUM_EXAMPLES` of them by name.

    A model that carries state from one example to the next starts afresh for each, so no prediction depends on the others.
    """
    carry = jax.eval_shape(model.init, jax.random.key(0), inputs[:1]).get("carry", {})
    variables = {"params": params, "carry": jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), carry)}
    apply, size = jax.jit(model.apply), 1 if carry else NUM_EXAMPLES
    outputs, attention = [], {}
    for first in range(0, len(inputs), size):
        batch, aux = apply(variables, normalization.apply(jnp.asarray(inputs[first : first + size])))
        outputs.append(normalization.undo(np.asarray(batch)))
        if first == 0:
            attention = {name: np.asarray(weights) for name, weights in aux.get("attention", {}).items()}
    return np.concatenate(outputs), attention


def describe_device() -> str:
    device = jax.devices()[0]
    count = f"{os.cpu_count()} cores" if device.platform == "cpu" else f"{jax.device_count()} device(s), {device.device_kind}"
    return f"{device.platform}, {count} (jax {jax.__version__})"
