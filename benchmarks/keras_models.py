"""The same models in Keras 3 on JAX, where it has the layers, and their training with
`train_on_batch`.
"""

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import layers

from benchmarks.ours import is_regression


def cnn(params: Any, sizes: dict[str, int]) -> keras.Model:
    convolutions = [layers.Conv1D(64, 5, padding="same", activation="relu") for _ in range(4)]
    model = keras.Sequential(
        [keras.Input((100, 1)), *convolutions, layers.Conv1D(1, 5, padding="same")]
    )
    model.set_weights(
        [params[f"conv{i}"][part] for i in range(1, 6) for part in ("kernel", "bias")]
    )
    return model


def cnn_attention(params: Any, sizes: dict[str, int]) -> keras.Model:
    def convolve(x: Any, name: str, features: int = 64, activation: str | None = "relu") -> Any:
        return layers.Conv1D(features, 5, padding="same", activation=activation, name=name)(x)

    inputs = keras.Input((100, 1))
    x = convolve(convolve(inputs, "conv1"), "conv2")
    query, value, key = (
        layers.Dense(width, use_bias=False, name=name)(x)
        for name, width in (("query", 96), ("value", 64), ("key", 96))
    )
    x = layers.ReLU()(layers.Attention()([query, value, key]))
    model = keras.Model(inputs, convolve(convolve(x, "conv3"), "conv4", 1, None))
    for name in ("conv1", "conv2", "conv3", "conv4"):
        model.get_layer(name).set_weights([params[name]["kernel"], params[name]["bias"]])
    for name in ("query", "value", "key"):
        model.get_layer(name).set_weights([params["attention"][f"{name}_kernel"]])
    return model


def mlp(params: Any, sizes: dict[str, int]) -> keras.Model:
    flat = [keras.Input((28, 28)), layers.Flatten()]
    model = keras.Sequential(
        [*flat, layers.Dense(784, activation="relu"), layers.Dense(sizes["num_classes"])]
    )
    model.set_weights(
        [params[name][part] for name in ("hidden", "logits") for part in ("kernel", "bias")]
    )
    return model


def trainer(
    model: keras.Model, batch: Any, config: Any
) -> tuple[Callable[[], float], Callable[[], float]]:
    """A step of training as Keras's users call it, which takes NumPy and returns a number, and the
    loss alone.
    """
    options = config.optimizer
    optimizer = keras.optimizers.AdamW(
        config.learning_rate, options.weight_decay, options.b1, options.b2, options.eps
    )
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    loss = (
        keras.losses.MeanSquaredError()
        if is_regression(batch)
        else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.compile(optimizer, loss)
    inputs, targets = np.asarray(batch["inputs"]), np.asarray(batch["targets"])
    return lambda: model.train_on_batch(inputs, targets), lambda: model.test_on_batch(
        inputs, targets
    )  # pyright: ignore
