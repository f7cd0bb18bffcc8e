"""Target tokens a second in training the recurrent encoder-decoder of `translate_multi30k`, ours and PyTorch eager's.

    python -m benchmarks.translation [--steps 10] [--repeats 5]

Both begin with the same parameters, their losses on one batch are checked to agree, and dropout, clipping and Adam are part of the
step. Tokens are drawn at random, in lengths like those of Multi30k.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import timing, torch_translation
from configs import translate_multi30k
from flax_attn.programs import build_model, make_loss, make_programs
from flax_attn.tasks import Task, translation
from flax_attn.training import epoch


def draw(num_rows: int, vocabulary_size: int) -> dict:
    """Rows of 8 to 16 tokens on both sides, and the first as long as there is room."""
    rng, length = np.random.default_rng(0), 16
    tokens = rng.integers(2, vocabulary_size, (2, num_rows, length)).astype(np.int32)
    lengths = rng.integers(8, length + 1, (2, num_rows)).astype(np.int32)
    lengths[:, 0] = length
    source, target = (np.where(np.arange(length) < n[:, None], t, 0) for t, n in zip(tokens, lengths))
    before = np.concatenate([np.full((num_rows, 1), vocabulary_size, np.int32), target[:, :-1]], axis=1)
    inputs = {"source": source, "source_lengths": lengths[0], "target": before, "target_lengths": lengths[1]}
    return {"inputs": inputs, "targets": target}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    config = translate_multi30k.get_config()
    config.steps_per_epoch, config.data.num_buckets, config.optimizer.warmup_steps, config.optimizer.decay_steps = args.steps, 1, 0, 0
    size = config.data.vocabulary_size
    rows = draw(args.steps * config.batch_size, size)
    task = Task(rows, {}, {"files": {}}, {"source_vocabulary_size": size, "target_vocabulary_size": size + 1}, {}, None, None)
    model = build_model(config.model, task.sizes)
    programs = make_programs(config, model, task)
    start, data = programs.create(range(1)), jax.tree.map(jnp.asarray, rows)
    first = jax.tree.map(lambda leaf: leaf[0], start)
    batch = epoch.gather(data, jnp.arange(config.batch_size))

    built = torch_translation.build(model, first.params)
    torch_step = torch_translation.trainer(built, batch, config.learning_rate, config.optimizer.clip_norm, config.label_smoothing)
    measure = translation.make_measure(config, {})
    loss = make_loss(model, measure)
    outputs, aux = jax.jit(model.apply)({"params": first.params}, batch["inputs"])
    smoothed = float(measure(outputs, aux, batch, train=True)[0]), float(torch_step(train=False, smoothing=config.label_smoothing))
    plain = float(jax.jit(loss)(first.params, {}, batch, None)[0]), float(torch_step(train=False))
    for ours, theirs in (plain, smoothed):
        assert abs(ours - theirs) < 1e-4 * theirs, f"unequal work: loss {ours} against {theirs}"

    def scan():
        jax.block_until_ready(programs.train_epoch(jax.tree.map(jnp.copy, start), jnp.int32(1), data))

    def torch():
        for _ in range(args.steps):
            torch_step()

    seconds = timing.alternate({"ours": scan, "torch": torch}, args.repeats)
    tokens = (rows["targets"] > 0).sum()
    table = Table("target tokens a second", "ours", "PyTorch eager", "ours / PyTorch", title=timing.machine())
    speed = {name: tokens / value for name, value in seconds.items()}
    table.add_row("translate_multi30k", f"{speed['ours']:,.0f}", f"{speed['torch']:,.0f}", f"{speed['ours'] / speed['torch']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
