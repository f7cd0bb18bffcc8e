"""The recipe that the shapes experiments share; each config changes what it is about."""

from typing import Any

from ml_collections import ConfigDict


def shapes(name: str, variant: str, model: dict[str, Any]) -> Any:
    """The tutorial's recipe for a model: 50 epochs of Adam at a flat rate on 20,000 of 25,000 sequences."""
    config: Any = ConfigDict()
    config.name = f"{name}:{variant}" if variant else name
    config.task = "regression"
    config.seed = 0
    config.num_seeds = 1
    config.num_epochs = 50
    config.steps_per_epoch = 0  # 0: once through the training examples, the last partial batch dropped
    config.batch_size = 128
    config.keep_best = True  # at a flat rate the loss jumps about; validation chooses the epoch
    config.evaluate = ("valid", "test")

    config.learning_rate = 1e-3
    # fastai's Adam: its defaults differ from everyone else's in b2, eps and the decay
    config.optimizer = ConfigDict({"b1": 0.9, "b2": 0.99, "eps": 1e-5, "weight_decay": 0.01})

    config.data = ConfigDict()
    config.data.name = "shapes"
    config.data.task = "by_shape"
    config.data.height_rule = "triangles"  # the published generator's effective rule, so that figures compare
    config.data.seed = 42
    config.data.num_train = 25_000
    config.data.valid_fraction = 0.2
    config.data.num_test = 1_000
    config.data.subset = 0  # train on the first so many examples only; 0 for all
    config.data.fresh = False  # True: new examples in every step

    config.model = ConfigDict(model)
    config.reference = ConfigDict()  # what the tutorial's recipe gives, metric by metric

    if variant == "quick":
        config.num_epochs = 5
        config.data.num_train = 16_000
    elif variant:
        raise ValueError(f"unknown variant '{variant}' of config '{name}'; expected none or 'quick'")
    return config
