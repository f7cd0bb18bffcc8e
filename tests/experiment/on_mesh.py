"""What trains on a mesh of eight virtual devices, printed as JSON.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.experiment.on_mesh NAME [ARG]

Each function trains the same on two meshes, and measures how far they come apart.
"""

import collections
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.compiled import exchanges
from configs import reverse_bahdanau, shapes_attention, shapes_cnn
from flax_attn.experiment import processes
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import build_model, make_batches, make_programs
from flax_attn.training.mesh import SEEDS, make_mesh, put
from tests import test_configs

SIZES = {"batch_size": 16, "steps_per_epoch": 20, "data.num_train": 200, "data.num_test": 16}
TRANSFORMER = {"name": "translation_transformer", "features": 8, "num_heads": 2, "num_blocks": 1}
TRANSFORMER |= {"hidden_features": 8, "attention_dropout_rate": 0.1}
TUTORIALS = shapes_attention, shapes_cnn  # their own recipes draw each batch anew
ATTENTION = {"model.features": 8, "model.key_features": 8}


def start(module, num_devices, **changes):
    """The programs of a config on some devices, its states and rows.

    Where JAX has 64 bits, states and rows have them.
    """
    values = module.get_config("tutorial" if module in TUTORIALS else "")
    values.update_from_flattened_dict(SIZES | changes)
    config = Config.of(values)
    with jax.enable_x64(False):
        task = config.task.load(config.data, config.recipe, None)
    model = build_model(config, task.kept.sizes)
    programs = make_programs(
        config, model, task, make_mesh(config.num_seeds, config.batch_size, num_devices)
    )
    states = put(programs.mesh, widest(programs.create(config.seeds)), SEEDS)
    return programs, states, widest(task.rows.train)


def widest(tree):
    """The same tree with floats as wide as JAX has them."""
    wide = lambda leaf: leaf.astype(float) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
    return jax.tree.map(lambda leaf: wide(jnp.asarray(leaf)), tree)


def train(module, num_devices, num_epochs=1, **changes):
    """The parameters, the metrics after each epoch, and the programs."""
    programs, states, rows = start(module, num_devices, **changes)
    scores = []
    for number in range(1, num_epochs + 1):
        states, metrics = programs.train_epoch(states, number, rows)
        scores.append(processes.gather(metrics))
    return processes.gather(states.params), scores, programs


def difference(one, other):
    """The largest difference of two trees, over the largest entry of each leaf."""
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(a - b)) / max(np.max(np.abs(a)), 1e-30)) for a, b in leaves)


def collectives(programs, states, rows):
    """How often the compiled steps have each collective, and their temporary bytes."""
    order = programs.order(states, np.int32(1))
    zeros = programs.zero_sums(states, order, rows)
    places = (np.int32(1), np.int32(0), np.int32(1))
    compiled = programs.train_steps.lower(states, zeros, order, *places, rows).compile()
    counts = collections.Counter(exchanges(compiled.as_text()))
    return counts, compiled.memory_analysis().temp_size_in_bytes


def seeds():
    """Eight seeds on eight devices beside one: bit-identical."""
    options = {"num_seeds": 8, **ATTENTION}
    on_one, scores, _ = train(shapes_attention, 1, 2, **options)
    on_all, scores_of_all, programs = train(shapes_attention, 8, 2, **options)
    return {
        "mesh": dict(programs.mesh.shape),
        "params": difference(on_one, on_all),
        "scores": difference(scores, scores_of_all),
        "traces": programs.train_steps._cache_size(),
    }


def rows(**options):
    """One seed with its batch cut over eight devices."""
    options = ATTENTION | options
    on_one, scores, _ = train(shapes_attention, 1, **options)
    on_all, scores_of_all, programs = train(shapes_attention, 8, **options)
    return {
        "mesh": dict(programs.mesh.shape),
        "params": difference(on_one, on_all),
        "scores": difference(scores, scores_of_all),
    }


def few_rows():
    """The same over four steps, after which rounding has not grown yet."""
    return rows(steps_per_epoch=4)


def sent(num_seeds):
    """The collectives of the compiled steps, by name."""
    start_of = start(shapes_attention, 8, num_seeds=int(num_seeds), batch_size=128)
    return collectives(*start_of)[0]


def both():
    """Four seeds, each on two devices."""
    return rows(num_seeds=4)


def memory():
    """The temporary bytes of a device, of one and of eight."""
    sizes = {"batch_size": 128, "steps_per_epoch": 2}
    return [collectives(*start(shapes_cnn, n, **sizes))[1] for n in (1, 8)]


def configs(manual_dir, folder):
    """Prints a line for each name of a config that it reads: a process for all starts once."""
    for name in map(str.strip, sys.stdin):
        own = Path(folder, name)
        own.mkdir()
        print(json.dumps(one_config(name, manual_dir, own)), flush=True)
        jax.clear_caches()


def one_config(name, manual_dir, folder):
    """Two steps of a shipped config, two seeds on two devices each, beside one device.

    In double precision, where the model has it. What is compared are metrics: the bias of a key
    has no gradient but rounding, which Adam makes as large as any other.
    """
    config = test_configs.cut_down(name, folder)
    config.num_seeds = 2
    config = Config.of(config)
    with jax.enable_x64(False):
        task = config.task.load(config.data, config.recipe, Path(manual_dir))
    model = build_model(config, task.kept.sizes)
    for is_double in (True, False):
        with jax.enable_x64(is_double):
            try:
                scores = [scores_on(n, 1, config, model, task) for n in (1, 4)]
                break
            except TypeError as error:
                if "dtypes do not match" not in str(error):
                    raise
    return {"is_double": is_double, "scores": difference(*scores)}


def sequences(sequence):
    """A Transformer whose devices share sequences, batches and seeds, beside one device."""
    config = reverse_bahdanau.get_config()
    config.update_from_flattened_dict(SIZES | {"num_seeds": 2, "steps_per_epoch": 3})
    config.data.num_buckets = 1
    config.model = TRANSFORMER
    config = Config.of(config)
    with jax.enable_x64(False):
        task = config.task.load(config.data, config.recipe, None)
    model = build_model(config, task.kept.sizes)
    return difference(*(scores_on(*on, config, model, task) for on in ((1, 1), (8, int(sequence)))))


def scores_on(num_devices, sequence, config, model, task):
    """The metrics of two steps, and of the first batches of an evaluation after them."""
    programs = make_programs(
        config, model, task, make_mesh(config.num_seeds, config.batch_size, num_devices, sequence)
    )
    assert programs.mesh.size == num_devices
    states = put(programs.mesh, widest(programs.create(config.seeds)), SEEDS)
    states, metrics = programs.train_epoch(states, 1, widest(task.rows.train))
    batches = widest(jax.tree.map(lambda stack: stack[:1], make_batches(config, task)))
    return processes.gather((metrics, programs.evaluate(states.params, states.carry, batches)))


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
