"""Every config trains for two steps and every variant is sound; its lab note says what a reader
needs.
"""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn import schema
from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config, classes_of, keys_of
from flax_attn.experiment.programs import build_model, count_parameters, make_programs

FOLDER = Path(__file__).parent.parent / "configs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


# of the user's own data, each by the key `data.file`
OF_TEXTS = ["text_csv", "text_csv_best", "numbers_csv", "translate_tsv", "letters_tsv", "text_file"]
OWN = [*OF_TEXTS, "signals_npz", "signals_classes", "series_classes"]
OWN += ["images_folder", "images_numbers"]


def load(name, variant=""):
    return importlib.import_module(f"configs.{name}").get_config(variant)


def resolved(name, variant=""):
    values = load(name, variant)
    if name in OWN:
        values.data.file = "own"
    return Config.of(values)


@pytest.mark.parametrize("name", NAMES)
def test_quick_is_the_same_experiment_made_short(name):
    full, quick = resolved(name), resolved(name, "quick")
    assert quick.num_epochs < full.num_epochs
    if full.values["data"]["name"] in ("multi30k", "pairs"):  # a smaller model
        assert quick.model.keys() == full.model.keys()
    else:
        assert quick.model == full.model
    assert type(quick.data) is type(full.data)
    assert getattr(quick.data, "max_words", 8) == 8  # short captions
    assert (full.name, quick.name) == (name, f"{name}:quick")  # each has a run directory


@pytest.mark.parametrize("name", OWN)
def test_quick_trains_on_a_small_file_as_long_as_on_a_large_one(name):
    quick = load(name, "quick")
    assert quick.num_epochs * quick.steps_per_epoch >= 300


def test_all_titles_of_ag_news_are_a_run_of_their_own():
    own, full = (resolved("ag_news_rnn_attention", variant) for variant in ("", "full"))
    assert full.name == "ag_news_rnn_attention:full"
    assert (own.data.file, full.data.file) == ("test.csv", "train.csv")
    assert full.model == own.model


@pytest.mark.parametrize(
    ("name", "count"), [("shapes_best", 95_169), ("shapes_by_location_best", 146_689)]
)
def test_the_best_on_shapes_have_no_more_than_150_000_parameters_and_a_million_examples(
    name, count
):
    config = resolved(name)
    params = jax.eval_shape(
        build_model(config, {}).init, jax.random.key(0), jnp.zeros((1, 100, 1))
    )["params"]
    assert count_parameters(params) == count <= 150_000
    assert config.num_epochs * (20_000 // config.batch_size) * config.batch_size <= 1_000_000


def write_own(name, folder):
    """Writes a small file of the user's for a config that needs one, and returns its path."""
    random, labels = np.random.default_rng(0), np.arange(80) % 2
    path = folder / ("own.npz" if name not in OF_TEXTS else f"own.{name.rpartition('_')[2]}")
    if name.startswith("text_csv"):
        rows = [f"a {word} text,{label}\n" for word, label in (("good", "yes"), ("bad", "no"))]
        path.write_text("text,label\n" + "".join(rows * 20))
    elif name == "numbers_csv":
        rows = [f"a text of {number},{number}.5\n" for number in range(80)]
        path.write_text("text,number\n" + "".join(rows))
    elif name.endswith("_tsv"):
        path.write_text("".join(f"ein hund {i}\ta dog {i}\n" for i in range(40)))
    elif name == "text_file":
        path.write_text("".join(f"line {i} of a text\n" for i in range(100)))
    elif name.startswith("images"):
        images = random.integers(0, 256, (80, 28, 20), np.uint8)
        np.savez(path, images=images, labels=labels if name == "images_folder" else labels + 0.5)
    else:
        shape = (80, 24, 3) if name == "series_classes" else (80, 24)
        signals = random.normal(size=shape).cumsum(axis=1)
        targets = signals[:, ::-1] if name == "signals_npz" else np.array(["no", "yes"])[labels]
        np.savez(path, inputs=signals, targets=targets)
    return path


def cut_down(name, folder):
    """A config that trains for two steps, with a file of the user's in `folder` if it needs one."""
    config = load(name)
    known = keys_of(schema.flatten(config), *classes_of(schema.flatten(config), None))
    config.steps_per_epoch, config.batch_size = 2, min(config.get("batch_size", 64), 32)
    sizes = {"num_train": 400, "num_test": 20, "num_buckets": 1}
    tables = "vocabulary_size", "num_ngrams", "num_pairs"  # large ones train as small ones do
    sizes |= {key: 500 for key in tables if (config.data.get(key) or 0) > 500}
    config.data.update({key: n for key, n in sizes.items() if f"data.{key}" in known})
    if "model.num_blocks" in known:  # all have the same equations
        config.model.num_blocks = 1
    if name in OWN:
        config.data.file = str(write_own(name, folder))
    return config


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_steps(name, request, tmp_path):
    config = cut_down(name, tmp_path)
    files = config.data.name in ("mnist", "ag_news", "sst", "multi30k", "tinyshakespeare")
    config = Config.of(config)
    manual_dir = request.getfixturevalue("manual_dir") if files else None
    task = config.task.load(config.data, config.recipe, manual_dir)
    model = build_model(config, task.kept.sizes)
    programs = make_programs(config, model, task)
    states = programs.create(range(1))
    before = jax.tree.map(np.asarray, states.params)
    states, metrics = programs.train_epoch(
        states, jnp.int32(1), jax.tree.map(jnp.asarray, task.rows.train)
    )
    assert int(states.step[0]) == 2
    assert 0 < float(metrics[task.target.score][0]) < 10
    moved = [
        float(np.abs(a - b).max())
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(states.params))
    ]
    assert all(0 <= distance < 0.05 for distance in moved)
    # the bias of a score never moves, and a warm-up begins at 0
    assert np.mean([distance > 0 for distance in moved]) > 0.7


@pytest.mark.parametrize("name", OWN)
def test_the_key_of_the_users_own_file_is_the_same_everywhere(name):
    with pytest.raises(UsageError, match=r"--data\.file"):
        Config.of(load(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_note_says_task_source_and_command(name):
    note = importlib.import_module(f"configs.{name}").__doc__
    assert f"python train.py --config=configs/{name}.py" in note
    assert all(word in note for word in ("Task ", "Source ", "Expect "))
    assert load(name).name == name
    assert load(name, "quick").name == f"{name}:quick"


def test_unknown_variant():
    with pytest.raises(ValueError, match="got 'shapes_cnn:quik'"):
        load("shapes_cnn", "quik")


def test_published_recipe():
    config = resolved("shapes_attention", "tutorial")
    assert (config.batch_size, config.num_epochs, config.learning_rate) == (128, 50, 1e-3)
    adam = config.optimizer
    assert (adam.b1, adam.b2, adam.eps, adam.weight_decay) == (0.9, 0.99, 1e-5, 0.01)
    data = config.values["data"]
    assert (data["num_train"], data["num_test"], data["valid_fraction"]) == (25_000, 1_000, 0.2)
