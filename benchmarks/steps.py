"""Milliseconds a training step of every model of the tutorials, ours beside PyTorch's and
`flax.linen`'s.

    python -m benchmarks.steps [--only NAME ...] [--repeats 5] [--calls] [--compile]

Ours runs as it trains: a scan over the steps of an epoch, the order of the rows and the metrics
with it. The others call a step on one batch, again and again. All begin with the same parameters,
and their losses on one batch are checked to agree. `products alone` is the time that the
multiplications of a step would take at the rate of one large product: over ours, the share of that
limit which is reached.
"""

import argparse
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import (
    keras_models,
    linen_models,
    linen_training,
    timing,
    torch_models,
    torch_training,
    torch_translation,
)
from configs import (
    ag_news_rnn_attention,
    mnist_attention,
    mnist_mlp,
    shapes_attention,
    shapes_cnn,
    shapes_lstm,
    sst_gru_attention,
    translate_multi30k,
)
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import build_model, make_loss, make_programs
from flax_attn.kinds.encoders import TextEncoder
from flax_attn.kinds.images import ImageClasses
from flax_attn.kinds.signals import Signals
from flax_attn.kinds.task import Kept, Rows, Task
from flax_attn.kinds.texts import TextClasses
from flax_attn.kinds.translation import PairsOfTexts
from flax_attn.training import epoch
from flax_attn.training.epoch import TrainState

Batch = dict[str, Any]


class Case(NamedTuple):
    """A model by its config, rows like those of its data, and what it is with its peers."""

    config: Any
    # rows, sizes of the model, what the data derived
    rows: Callable[[Any], tuple[Batch, dict[str, int], dict[str, Any]]]
    torch: Callable[..., torch.nn.Module]
    linen: Callable[..., linen_models.Built]
    steps: int  # of an epoch that takes about a second
    keras: Callable[..., Any] | None = None  # where it has the layers
    variant: str = ""  # of the config


def shapes(config: Any) -> tuple[Batch, dict[str, int], dict[str, Any]]:
    config.data.num_train = 5_000
    task = load_shapes(Config.of(config))
    return task.rows.train, {}, {}


def load_shapes(config: Config) -> Signals:
    return Signals.load(config.data, config.recipe, None)  # pyright: ignore


def images(config: Any) -> tuple[Batch, dict[str, int], dict[str, Any]]:
    rng = np.random.default_rng(0)
    pixels = rng.random((4_096, 28, 28), np.float32)
    return {"inputs": pixels, "targets": rng.integers(0, 10, 4_096).astype(np.int32)}, *classes(10)


def classes(number: int) -> tuple[dict[str, int], dict[str, Any]]:
    return {"num_classes": number}, {"class_weights": [1.0] * number}


def texts(
    config: Any, vocabulary_size: int, num_classes: int, shortest: int, longest: int
) -> tuple[Batch, dict[str, int], dict[str, Any]]:
    """Rows of tokens drawn at random, the first of every batch as long as there is room."""
    config.class_weights = False
    rng = np.random.default_rng(0)
    tokens, lengths = draw(rng, 4_096, vocabulary_size, shortest, longest)
    sizes, derived = classes(num_classes)
    rows = {
        "inputs": {"tokens": tokens, "lengths": lengths},
        "targets": rng.integers(0, num_classes, 4_096).astype(np.int32),
    }
    return rows, {"vocabulary_size": vocabulary_size} | sizes, derived


def draw(
    rng: np.random.Generator, num_rows: int, vocabulary_size: int, shortest: int, longest: int
) -> tuple[np.ndarray, np.ndarray]:
    tokens = rng.integers(2, vocabulary_size, (num_rows, longest)).astype(np.int32)
    lengths = rng.integers(shortest, longest + 1, num_rows).astype(np.int32)
    lengths[::4] = longest
    return np.where(np.arange(longest) < lengths[:, None], tokens, 0), lengths


def translations(config: Any) -> tuple[Batch, dict[str, int], dict[str, Any]]:
    """Pairs of 8 to 16 tokens, as most of Multi30k are."""
    size, rng = config.data.vocabulary_size, np.random.default_rng(0)
    (source, source_lengths), (target, target_lengths) = (
        draw(rng, 2_048, size, 8, 16) for _ in range(2)
    )
    before = np.concatenate([np.full((len(target), 1), size, np.int32), target[:, :-1]], axis=1)
    inputs = {
        "source": source,
        "source_lengths": source_lengths,
        "target": before,
        "target_lengths": target_lengths,
    }
    return (
        {"inputs": inputs, "targets": target},
        {"source_vocabulary_size": size, "target_vocabulary_size": size + 1},
        {},
    )


def seq2seq(build: Callable) -> Callable:
    return functools.partial(build, dropout_rate=translate_multi30k.get_config().model.dropout_rate)


CASES = {
    "CNN": Case(
        shapes_cnn, shapes, torch_models.cnn, linen_models.cnn, 20, keras_models.cnn, "tutorial"
    ),
    "CNN + attention": Case(
        shapes_attention,
        shapes,
        torch_models.cnn_attention,
        linen_models.cnn_attention,
        16,
        keras_models.cnn_attention,
        "tutorial",
    ),
    "LSTM": Case(shapes_lstm, shapes, torch_models.lstm, linen_models.lstm, 200),
    "MLP": Case(mnist_mlp, images, torch_models.mlp, linen_models.mlp, 200, keras_models.mlp),
    "patch attention": Case(
        mnist_attention, images, torch_models.patch_attention, linen_models.patch_attention, 400
    ),
    "RNN + attention": Case(
        ag_news_rnn_attention,
        functools.partial(texts, vocabulary_size=5_000, num_classes=4, shortest=4, longest=14),
        torch_models.rnn_attention,
        linen_models.rnn_attention,
        200,
    ),
    "GRU + attention": Case(
        sst_gru_attention,
        functools.partial(texts, vocabulary_size=16_581, num_classes=3, shortest=10, longest=30),
        torch_models.gru_attention,
        linen_models.gru_attention,
        100,
    ),
    "seq2seq": Case(
        translate_multi30k,
        translations,
        seq2seq(torch_translation.seq2seq),
        seq2seq(linen_models.seq2seq),
        4,
    ),
}

# and the first two are much like the models that attend beside them
SLOW_TO_COMPILE = ("CNN", "RNN + attention", "seq2seq")


def measure(
    name: str, repeats: int, calls: bool = False, compiled: bool = False
) -> dict[str, float]:
    """Milliseconds a step by peer, medians of turns.

    Raises an AssertionError where the losses on one batch differ by more than 1e-4.

    Args:
        calls: whether our own step is measured as the others' are, too: called alone, again and
            again.
        compiled: whether PyTorch's model is measured compiled, too.
    """
    case = CASES[name]
    config = case.config.get_config(case.variant)
    rows, sizes, derived = case.rows(config)
    config.steps_per_epoch = case.steps
    config.optimizer.warmup_steps, config.optimizer.schedule = 0, "constant"
    if hasattr(Config.of(config).data, "num_buckets"):
        config.data.num_buckets = 1
    config = Config.of(config)
    task, model = task_of(config, rows, sizes, derived), build_model(config, sizes)
    programs = make_programs(config, model, task)
    start, data = programs.create(range(1)), jax.tree.map(jnp.asarray, rows)
    first = jax.tree.map(lambda leaf: leaf[0], start)
    batch = epoch.gather(data, jnp.arange(config.batch_size))
    params = jax.tree.map(np.asarray, first.params)

    loss = make_loss(model, task.measure)
    steps, losses = {}, {"ours": jax.jit(loss)(first.params, first.carry, batch, None)[0]}
    steps["PyTorch"], losses["PyTorch"] = torch_training.trainer(
        case.torch(params, sizes), batch, config
    )
    steps["flax.linen"], losses["flax.linen"], products = linen_training.trainer(
        *case.linen(params, sizes), batch, config
    )
    if case.keras:
        steps["Keras 3"], losses["Keras 3"] = keras_models.trainer(
            case.keras(params, sizes), batch, config
        )
    if compiled:
        steps["torch.compile"], losses["torch.compile"] = torch_training.trainer(
            torch.compile(case.torch(params, sizes)), batch, config
        )  # pyright: ignore
    if calls:
        steps["ours, calls"] = caller(
            first,
            batch,
            jax.jit(
                functools.partial(
                    epoch.train_step,
                    loss=loss,
                    optimizer=config.optimizer.build(config.learning_rate, 0),
                )
            ),
        )
    numbers = {peer: float(loss() if callable(loss) else loss) for peer, loss in losses.items()}
    assert all(
        abs(loss - numbers["ours"]) < 1e-4 * abs(numbers["ours"]) for loss in numbers.values()
    ), f"unequal work on {name}: losses {numbers}"

    now = [start]  # given away to an epoch, which returns the next

    def ours() -> None:
        now[0] = jax.block_until_ready(programs.train_epoch(now[0], 1, data))[0]

    def again(step: Callable[[], Any]) -> None:
        for _ in range(case.steps):
            last = step()
        float(last)

    turns = {"ours": ours} | {peer: functools.partial(again, step) for peer, step in steps.items()}
    return {
        peer: 1e3 * seconds / case.steps
        for peer, seconds in timing.alternate(turns, repeats).items()
    } | {"products alone": products}


def task_of(config: Config, rows: Batch, sizes: dict[str, int], derived: dict[str, Any]) -> Task:
    """The task of a config on these rows."""
    data: Any = config.data
    if config.kind is Signals:
        return load_shapes(config)
    kept, stored = Kept({"files": {}} | derived, sizes, {}), Rows(rows, {})
    if config.kind is ImageClasses:
        return ImageClasses(data, config.recipe, kept, stored, {})
    tokenizer: Any = None  # nothing is encoded
    if config.kind is PairsOfTexts:
        return PairsOfTexts(data, config.recipe, kept, tokenizer, stored, {}, [])
    encoder = TextEncoder(data, tokenizer, None)
    return TextClasses(data, config.recipe, kept, encoder, stored, {}, [], {})


def caller(state: TrainState, batch: Batch, train_step: Callable) -> Callable[[], Any]:
    """A step that goes on from the one before, and returns one of its metrics."""
    now, key = [state], jax.random.key(0)

    def step() -> Any:
        now[0], metrics = train_step(now[0], batch, key)
        return metrics["loss" if "loss" in metrics else "mse"].total

    return step


def rows(quick: bool, name: str) -> Iterator[timing.Row]:
    if quick and name in SLOW_TO_COMPILE:
        return
    times = measure(name, 1 if quick else 9, compiled=not quick)
    yield timing.Row("training step", name, "ms", times.pop("ours"), times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", action="store_true", help="our own step called alone, too")
    parser.add_argument("--compile", action="store_true", help="PyTorch compiled, too")
    args = parser.parse_args()
    times = {name: measure(name, args.repeats, args.calls, args.compile) for name in args.only}
    peers = list(dict.fromkeys(peer for ms in times.values() for peer in ms if peer != "ours"))
    table = Table(
        "model",
        "ours, ms",
        *(f"{peer}, ms" for peer in peers),
        *(f"{peer} / ours" for peer in peers),
        title=timing.machine(),
    )
    for name, ms in times.items():
        ratios = (f"{ms[peer] / ms['ours']:.2f}" if peer in ms else "-" for peer in peers)
        table.add_row(
            name, *(f"{ms[peer]:.2f}" if peer in ms else "-" for peer in ("ours", *peers)), *ratios
        )
    Console(width=120).print(table)
    for peer in peers:
        ratios = [ms[peer] / ms["ours"] for ms in times.values() if peer in ms]
        print(f"{peer} / ours: least {min(ratios):.2f}, median {np.median(ratios):.2f}")


if __name__ == "__main__":
    main()
