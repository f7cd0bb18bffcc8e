"""Milliseconds of a training step of every model of the tutorials, beside PyTorch, `flax.linen` and
Keras.

Ours runs as it trains: a scan over the steps of an epoch, with the order of the rows and the
metrics. The others call a step on one batch again and again. All start with the same parameters,
and their losses on one batch agree.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import (
    keras_models,
    linen_models,
    linen_training,
    ours,
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
from flax_attn.config_files import read
from flax_attn.experiment.config import Config

PRECISION_STEPS = 20


class Case(NamedTuple):
    """A config, data like those it trains on, and the same model in other libraries."""

    config: Any
    data: Callable[[Any], Any]  # changes the config, and returns data from Python, or None
    torch: Callable[..., torch.nn.Module]
    linen: Callable[..., linen_models.Built]
    steps: int  # of an epoch that takes about a second
    keras: Callable[..., Any] | None = None  # where it has the layers
    variant: str = ""  # of the config


def shapes(config: Any) -> None:
    config.data.num_train = 5_000


def images(config: Any) -> dict[str, Any]:
    del config
    rng = np.random.default_rng(0)
    pixels = rng.random((4_096, 28, 28), np.float32)
    return splits(pixels, rng.integers(0, 10, 4_096))


def splits(inputs: Any, targets: Any) -> dict[str, Any]:
    few = slice(0, 64)
    return {"train": (inputs, targets), "test": (inputs[few], targets[few])}


def texts(config: Any, vocabulary_size: int, classes: int, shortest: int, longest: int) -> Any:
    config.class_weights, config.data.vocabulary_size = False, vocabulary_size
    rng = np.random.default_rng(0)
    labels = [f"class {i % classes}" for i in range(4_096)]
    return splits(draw(rng, 4_096, vocabulary_size, shortest, longest), labels)


def draw(
    rng: np.random.Generator, num_rows: int, vocabulary_size: int, shortest: int, longest: int
) -> list[str]:
    """Returns texts of random words, every fourth of them of the greatest length."""
    lengths = rng.integers(shortest, longest + 1, num_rows)
    lengths[::4] = longest
    words = (rng.integers(0, vocabulary_size, length) for length in lengths)
    return [" ".join(f"w{number}" for number in row) for row in words]


def translations(config: Any) -> dict[str, Any]:
    """Returns pairs of 7 to 15 words, as most of Multi30k have."""
    config.data.tokenizer, config.data.shared_vocabulary = "word", False
    rng = np.random.default_rng(0)
    return splits(*(draw(rng, 2_048, config.data.vocabulary_size, 7, 15) for _ in range(2)))


def seq2seq(build: Callable) -> Callable:
    return functools.partial(build, dropout_rate=translate_multi30k.get_config().model.dropout_rate)


news = functools.partial(texts, vocabulary_size=5_000, classes=4, shortest=4, longest=14)
reviews = functools.partial(texts, vocabulary_size=16_581, classes=3, shortest=10, longest=30)
t, n, k = torch_models, linen_models, keras_models
CASES = {
    "CNN": Case(shapes_cnn, shapes, t.cnn, n.cnn, 20, k.cnn, "tutorial"),
    "CNN + attention": Case(
        shapes_attention, shapes, t.cnn_attention, n.cnn_attention, 16, k.cnn_attention, "tutorial"
    ),
    "LSTM": Case(shapes_lstm, shapes, t.lstm, n.lstm, 200),
    "MLP": Case(mnist_mlp, images, t.mlp, n.mlp, 200, k.mlp),
    "patch attention": Case(mnist_attention, images, t.patch_attention, n.patch_attention, 400),
    "RNN + attention": Case(ag_news_rnn_attention, news, t.rnn_attention, n.rnn_attention, 200),
    "GRU + attention": Case(sst_gru_attention, reviews, t.gru_attention, n.gru_attention, 100),
    "seq2seq": Case(
        translate_multi30k,
        translations,
        seq2seq(torch_translation.seq2seq),
        seq2seq(linen_models.seq2seq),
        4,
    ),
}


def measure(name: str, repeats: int, compiled: bool = False) -> dict[str, float]:
    """Returns the milliseconds of a step by peer, medians of turns.

    With `compiled`, PyTorch's model is measured compiled, too.
    """
    case = CASES[name]
    values = case.config.get_config(case.variant)
    values.steps_per_epoch = case.steps
    data = case.data(values)
    if hasattr(Config.of(values).data, "num_buckets"):
        values.data.num_buckets = 1
    own = ours.prepare(values, data)
    params, sizes, common = own.params, dict(own.sizes), (own.batch, own.config)
    peers = {
        "PyTorch": torch_training.trainer(case.torch(params, sizes), *common),
        "flax.linen": linen_training.trainer(*case.linen(params, sizes), *common),
    }
    if case.keras:
        peers["Keras 3"] = keras_models.trainer(case.keras(params, sizes), *common)
    if compiled:
        model: Any = torch.compile(case.torch(params, sizes))
        peers["torch.compile"] = torch_training.trainer(model, *common)
    ours.check({peer: float(loss()) for peer, (_, loss) in peers.items()}, own.loss)
    turns = {"ours": own.train}
    turns |= {p: functools.partial(again, step, case.steps) for p, (step, _) in peers.items()}
    seconds = timing.alternate(turns, repeats)
    return {peer: 1e3 * value / case.steps for peer, value in seconds.items()}


def again(step: Callable[[], Any], number: int) -> None:
    """Calls a step that returns its loss, and waits for the last one."""
    for _ in range(number):
        last = step()
    float(last)


def rows(quick: bool, name: str) -> Iterator[timing.Row]:
    times = measure(name, 1 if quick else 9, compiled=not quick)
    yield timing.Row("training step", name, "ms", times.pop("ours"), times)


def precision(quick: bool) -> Iterator[timing.Row]:
    """Trains some steps in bfloat16, and from the same parameters in float32."""
    names = ("shapes_attention:quick", "induction:quick", "dates_bahdanau:quick")
    for name in names[: 1 if quick else None]:
        losses, turns = {}, {}
        for dtype in ("bfloat16", "float32"):
            values = read(name)
            values.precision = dtype
            turns[dtype] = ours.some_steps(values, PRECISION_STEPS, None)
            losses[dtype] = turns[dtype]()
        seconds = timing.alternate(turns, 1 if quick else 5)
        ms = {dtype: 1e3 * value / PRECISION_STEPS for dtype, value in seconds.items()}
        for case, unit, both in (("loss", "", losses), ("step", "ms", ms)):
            yield timing.Row(f"bfloat16, {case}", name, unit, both.pop("bfloat16"), both)
