"""The recipes that experiments share: what differs from the defaults of the schema.

Each returns a config that a file changes further. Its parts are `optimizer`, `data`, `model`,
`decoding` and `reference`.
"""

from ml_collections import ConfigDict

from flax_attn.errors import UsageError
from flax_attn.types import ConfigValues, JsonObject


def check_variant(name: str, variant: str, *others: str) -> None:
    """Raises a UsageError for a variant of a config that is not none, `quick` or of `others`."""
    known = ("quick", *others)
    if variant and variant not in known:
        *first, last = [name, *(f"{name}:{other}" for other in known)]
        raise UsageError(f"expected {', '.join(first)} or {last}, got {f'{name}:{variant}'!r}")


def common(name: str, variant: str, data: JsonObject, model: JsonObject) -> ConfigValues:
    """Returns the config of a data set and a model, with everything else at its default."""
    parts = {"data": data, "model": model, "optimizer": {}, "reference": {}}
    return ConfigDict({"name": f"{name}:{variant}" if variant else name, **parts})


def shapes(name: str, variant: str, model: JsonObject, *others: str) -> ConfigValues:
    """Returns the tutorial's recipe: 50 epochs of Adam at a flat rate on 20,000 sequences."""
    check_variant(name, variant, *others)
    is_quick = variant == "quick"
    config = common(name, variant, {"name": "shapes"}, model)
    config.num_epochs = 5 if is_quick else 50
    config.batch_size = 128  # the last partial batch is dropped
    # fastai's Adam: its defaults differ from everyone else's in b2, eps and the decay
    config.optimizer.update({"b2": 0.99, "eps": 1e-5, "weight_decay": 0.01})
    if is_quick:
        config.data.num_train = 16_000
    return config


def new_shapes(name: str, variant: str, model: JsonObject) -> ConfigValues:
    """Returns a recipe for shapes in seconds: small batches of new sequences, a rate that falls.

    A step on 4 sequences teaches a model nearly as much as one on 128, in a small part of the time.
    Gradients of so few sequences are rough: those that are clipped, and a slow warm-up, bear a high
    rate. The variant `tutorial` is the recipe of `shapes`.
    """
    config = shapes(name, variant, model, "tutorial")
    if variant == "tutorial":
        return config
    config.batch_size = 4
    config.num_epochs = 5 if variant else 10
    config.steps_per_epoch = 800
    config.learning_rate = 5e-3
    config.optimizer.update({"schedule": "cosine", "warmup_steps": 1_000, "clip_norm": 0.3})
    # the stored examples are to normalise by, and to validate on
    config.data.update({"fresh": True, "num_train": 5_000})
    return config


def images(name: str, variant: str, model: JsonObject) -> ConfigValues:
    """Returns MNIST by the tutorial's recipe: 5 epochs of Adam at 3e-3, without validation."""
    check_variant(name, variant)
    config = common(name, variant, {"name": "mnist"}, model)
    config.num_epochs = 1 if variant else 5
    config.learning_rate = 3e-3
    config.keep_best = False
    config.evaluate = ("test",)
    if variant:
        config.data.num_train = 10_000
    return config


def patch_transformer(name: str, variant: str) -> ConfigValues:
    """Returns a small Transformer over patches: AdamW at 2e-3 that falls along a cosine."""
    config = images(name, variant, {"name": "patch_transformer", "max_shift": 2})
    config.learning_rate = 2e-3
    config.evaluate = ("valid", "test")
    config.optimizer.update({"weight_decay": 0.05, "clip_norm": 1.0, "schedule": "cosine"})
    return config


def own_images(name: str, variant: str) -> ConfigValues:
    """Returns a recipe for the user's own images, by the Transformer of `patch_transformer`."""
    config = patch_transformer(name, variant)
    config.data = {"name": "image_files", "size": 32}  # a multiple of the patch_size
    config.num_epochs = 5 if variant else 50
    config.steps_per_epoch = 60 if variant else 0  # enough to learn, however few the images
    config.batch_size = 32  # small folders have enough for a batch
    config.keep_best = True
    config.optimizer.warmup_steps = 100
    return config


def own_signals(
    name: str, variant: str, target: str, model: JsonObject | None = None
) -> ConfigValues:
    """Returns a recipe for the user's own signals, by default by `residual_attention`."""
    # what a point means may depend on where it stands
    config = shapes(
        name, variant, model or {"name": "residual_attention", "binary_positions": True}
    )
    config.data = {"name": "signals_npz", "target": target}
    config.batch_size = 32  # small files have enough for a batch
    config.steps_per_epoch = 100 if variant else 0  # enough to learn, however few the signals
    # as shapes_best: the clipping and the residual connections bear a high rate
    config.learning_rate = 3e-3
    config.optimizer.update(
        {"schedule": "cosine", "warmup_steps": 100, "clip_norm": 1.0, "eps": 1e-8}
    )
    return config


def texts(name: str, variant: str, data: JsonObject, model: JsonObject) -> ConfigValues:
    """Returns a recipe for texts: up to 50 epochs; the parameters best on validation are kept."""
    check_variant(name, variant)
    config = common(name, variant, data, model)
    config.num_epochs = 2 if variant else 50
    config.patience = 10
    return config


def language(name: str, variant: str, data: JsonObject, model: JsonObject) -> ConfigValues:
    """Returns a small GPT on characters: AdamW along a cosine, an evaluation every 250 steps."""
    check_variant(name, variant)
    config = common(name, variant, data, {"name": "gpt", "positions": "rotary"} | model)
    config.steps_per_epoch = 250
    config.batch_size = 12
    config.optimizer.update({"b2": 0.99, "weight_decay": 0.1, "clip_norm": 1.0})
    config.optimizer.update({"schedule": "cosine", "warmup_steps": 100})
    return config


def shakespeare(name: str, variant: str, model: JsonObject) -> ConfigValues:
    """Returns nanoGPT's recipe for a CPU, on tiny Shakespeare: 2,000 steps, without validation."""
    config = language(name, variant, {"name": "tinyshakespeare"}, model)
    config.num_epochs = 2 if variant else 8
    if variant:
        config.steps_per_epoch = 125
    config.keep_best = False
    config.evaluate = ("test",)
    config.learning_rate = 2e-3
    return config


def translation(name: str, variant: str, data: JsonObject, model: JsonObject) -> ConfigValues:
    """Returns a recipe for texts to texts, in batches of 64 pairs of like length."""
    check_variant(name, variant)
    config = common(name, variant, data, {"name": "seq2seq"} | model)
    config.decoding = ConfigDict()
    config.optimizer.clip_norm = 1.0
    return config
