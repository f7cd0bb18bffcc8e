"""The recipes that experiments share; each config changes what it is about."""

from ml_collections import ConfigDict

from flax_attn.errors import UsageError
from flax_attn.types import ConfigValues, JsonObject


def check_variant(name: str, variant: str, *others: str) -> None:
    """Raises a UsageError for a variant of a config that is not none, `quick` or of `others`."""
    known = ("quick", *others)
    if variant and variant not in known:
        *first, last = [name, *(f"{name}:{other}" for other in known)]
        raise UsageError(f"expected {', '.join(first)} or {last}, got {f'{name}:{variant}'!r}")


def common(name: str, variant: str, *others: str) -> ConfigValues:
    """What every experiment has: seeds, epochs, and an optimiser that does nothing but Adam.

    Variants are those of `check_variant`.
    """
    check_variant(name, variant, *others)
    config: ConfigValues = ConfigDict()
    config.name = f"{name}:{variant}" if variant else name
    config.seed = 0
    config.num_seeds = 1
    config.num_epochs = 1
    config.steps_per_epoch = 0  # 0: once through the training examples
    config.batch_size = 64
    config.keep_best = True  # the parameters of the epoch that was best on validation
    config.patience = 0  # epochs without a best one after which a seed stops; 0: never
    config.evaluate = ("valid", "test")
    config.class_weights = False  # weigh each class by one over its training examples
    config.label_smoothing = 0.0

    config.learning_rate = 1e-3
    config.optimizer = ConfigDict({"b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.0})
    config.optimizer.clip_norm = 0.0  # 0: gradients are not clipped
    # in which the rate rises from 0; with a cosine no more than half of all steps
    config.optimizer.warmup_steps = 0
    # "cosine": the rate falls to 0 with the last step of num_epochs
    config.optimizer.schedule = "constant"
    # epochs without a gain on validation before the rate falls; 0: never
    config.optimizer.plateau_patience = 0
    config.optimizer.plateau_factor = 0.1

    config.data = ConfigDict()
    config.data.seed = 42
    config.reference = ConfigDict()  # what the tutorial's recipe gives, metric by metric
    return config


def shapes(name: str, variant: str, model: JsonObject, *others: str) -> ConfigValues:
    """The tutorial's recipe for a model.

    It is 50 epochs of Adam at a flat rate on 20,000 of 25,000 sequences. Variants are those of
    `common`.
    """
    config = common(name, variant, *others)
    is_quick = variant == "quick"
    config.num_epochs = 5 if is_quick else 50
    config.batch_size = 128  # the last partial batch is dropped
    # fastai's Adam: its defaults differ from everyone else's in b2, eps and the decay
    config.optimizer.update({"b2": 0.99, "eps": 1e-5, "weight_decay": 0.01})

    config.data.name = "shapes"
    config.data.task = "by_shape"
    # the published generator's effective rule, so that figures compare
    config.data.height_rule = "triangles"
    config.data.num_train = 16_000 if is_quick else 25_000
    config.data.valid_fraction = 0.2
    config.data.num_test = 1_000
    config.data.subset = 0  # train on the first so many examples only; 0 for all
    config.data.fresh = False  # True: new examples in every step
    config.model = ConfigDict(model)
    return config


def new_shapes(name: str, variant: str, model: JsonObject) -> ConfigValues:
    """Shapes in seconds: small batches, each of new sequences, and a rate that falls to 0.

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
    config.data.fresh = True
    config.data.num_train = 5_000  # to normalise by, and to validate on
    return config


def images(name: str, variant: str, model: JsonObject) -> ConfigValues:
    """MNIST by the tutorial's recipe: 5 epochs of Adam at 3e-3, the last parameters kept."""
    config = common(name, variant)
    config.num_epochs = 1 if variant else 5
    config.learning_rate = 3e-3
    config.keep_best = False
    config.evaluate = ("test",)
    config.data.name = "mnist"
    config.data.valid_fraction = 0.0
    config.data.num_train = 10_000 if variant else 0  # use the first so many images only; 0 for all
    config.data.num_test = 0
    config.model = ConfigDict(model)
    return config


def patch_transformer(name: str, variant: str) -> ConfigValues:
    """Images by a small Transformer over patches: AdamW at 2e-3 that falls along a cosine."""
    model = {
        "name": "patch_transformer",
        "patch_size": 4,
        "features": 64,
        "num_heads": 4,
        "num_blocks": 3,
        "hidden_features": 128,
        "dropout_rate": 0.1,
        "max_shift": 2,
    }
    config = images(name, variant, model)
    config.learning_rate = 2e-3
    config.evaluate = ("valid", "test")
    config.optimizer.weight_decay = 0.05
    config.optimizer.clip_norm = 1.0
    config.optimizer.schedule = "cosine"
    return config


def texts(name: str, variant: str, data: JsonObject, model: JsonObject) -> ConfigValues:
    """Texts as words, padded to the longest.

    Batches of 64 in up to 50 epochs; the parameters best on validation are kept.
    """
    config = common(name, variant)
    config.num_epochs = 2 if variant else 50
    config.patience = 10
    config.data.preprocessing = "words"
    config.data.tokenizer = "word"
    config.data.vocabulary_size = 5_000
    config.data.max_length = 200
    config.data.num_ngrams = 0  # rows of a table for the character n-grams of words; 0: none
    config.data.num_pairs = 0  # so many of the most frequent pairs of neighbouring words; 0: none
    config.data.num_buckets = 1  # lengths of batches; each is compiled
    config.data.shuffle = True
    config.data.update(data)
    config.model = ConfigDict(model)
    return config


def language(name: str, variant: str, data: JsonObject, model: JsonObject) -> ConfigValues:
    """A small GPT on characters: AdamW along a cosine, an evaluation every 250 steps."""
    config = common(name, variant)
    config.steps_per_epoch = 250
    config.batch_size = 12
    config.optimizer.update({"b2": 0.99, "weight_decay": 0.1, "clip_norm": 1.0})
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup_steps = 100
    config.data.tokenizer = "character"
    config.data.vocabulary_size = 512
    config.data.max_length = 64
    config.data.valid_fraction = 0.0
    config.data.test_fraction = 0.1
    config.data.update(data)
    sizes = {"name": "gpt", "features": 128, "num_heads": 4, "num_key_heads": 0, "num_blocks": 4}
    sizes |= {"hidden_features": 0, "positions": "rotary", "window": 0, "dropout_rate": 0.0}
    config.model = ConfigDict(sizes | model)
    return config


def translation(name: str, variant: str, data: JsonObject, model: JsonObject) -> ConfigValues:
    """Texts to texts, in batches of 64 pairs of like length.

    The parameters best on validation are kept.
    """
    config = common(name, variant)
    config.decoding = ConfigDict({"beam": 5, "length_penalty": 1.0})
    config.optimizer.clip_norm = 1.0
    config.data.preprocessing = "lower"
    config.data.tokenizer = "word"
    config.data.vocabulary_size = 5_000
    config.data.shared_vocabulary = False
    config.data.max_length = 100
    config.data.num_buckets = 4
    config.data.shuffle = True
    config.data.update(data)
    recurrent = {
        "cell": "gru",
        "num_layers": 1,
        "decoder": "bahdanau",
        "attention": "additive",
        "reach": 0,
    }
    recurrent |= {"tied_embeddings": False, "shared_embeddings": False, "dropout_rate": 0.0}
    config.model = ConfigDict(
        {"name": "seq2seq"} | (model if "name" in model else recurrent | model)
    )
    return config
