"""A small GPT beside PyTorch: milliseconds of a training step, and seconds to write 500 characters.

    python -m benchmarks.language [--quick]

Sizes are those of nanoGPT's recipe for a CPU: 4 blocks of width 128, 4 heads, passages of 64
characters, learned positions. Both sides have the same parameters, and their losses must agree to
1e-4. PyTorch writes once as nanoGPT does, without a cache, and once with one.
"""

import argparse
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks import timing, torch_gpt, torch_training
from configs import shakespeare_char
from flax_attn.data.sets.language import Language, LanguageData
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import build_model, make_loss, make_programs
from flax_attn.kinds.language import LanguageModel
from flax_attn.models.generation import Sampling, generate

BATCHES, TEXTS = (12, 64), (1, 32)
STEPS = 20  # of a call
LENGTH, SAMPLING = 500, Sampling(temperature=0.8, top_k=40)


class Letters(LanguageData):
    """Characters at random, 65 kinds of them."""

    def load(self, manual_dir: Any) -> Language:
        del manual_dir
        rng = np.random.default_rng(0)
        text = "".join(chr(48 + i) for i in rng.integers(65, size=20_000))
        return Language(self.split(text), {})


def make(batch_size: int) -> tuple[Config, LanguageModel]:
    config = shakespeare_char.get_config()
    config.model.positions = "learned"
    config.data.name = f"{__name__}:Letters"
    config.batch_size, config.steps_per_epoch, config.optimizer.schedule = (
        batch_size,
        STEPS,
        "constant",
    )
    config.optimizer.warmup_steps = 0
    config = Config.of(config)
    data: Any = config.data
    return config, LanguageModel.load(data, config.recipe, None)


def steps(batch_size: int, repeats: int, compiled: bool = True) -> dict[str, float]:
    """Milliseconds a step by peer, medians of turns. Raises where the losses differ."""
    config, task = make(batch_size)
    model = build_model(config, task.kept.sizes)
    programs = make_programs(config, model, task)
    start, rows = programs.create(range(1)), jax.tree.map(jnp.asarray, task.rows.train)
    params = jax.tree.map(lambda leaf: np.asarray(leaf[0]), start.params)
    assert task.rows.draw is not None
    batch = task.rows.draw(rows, jax.random.key(1))
    own = jax.jit(make_loss(model, task.measure))(params, {}, batch, None)[0]
    peers: dict[str, Callable[[], Any]] = {}
    for name, change in {"PyTorch": lambda m: m, "torch.compile": torch.compile}.items():
        if name == "PyTorch" or compiled:
            peer = change(torch_gpt.gpt(params, model.num_heads))  # pyright: ignore
            step, loss = torch_training.trainer(peer, batch, config)
            assert abs(float(loss()) - float(own)) < 1e-4, f"{name}: {float(loss())}, ours {own}"
            peers[name] = functools.partial(again, step)
    now = [start]

    def ours() -> None:
        now[0] = jax.block_until_ready(programs.train_epoch(now[0], 1, rows))[0]

    seconds = timing.alternate({"ours": ours} | peers, repeats)
    return {name: 1e3 * value / STEPS for name, value in seconds.items()}


def again(step: Callable[[], Any]) -> None:
    for _ in range(STEPS):
        last = step()
    float(last)


def writing(num_texts: int, repeats: int) -> dict[str, float]:
    """Seconds to write texts of `LENGTH` characters, medians of turns."""
    config, task = make(BATCHES[0])
    model: Any = build_model(config, task.kept.sizes)
    params = model.init(jax.random.key(0), jnp.asarray(task.sample()))["params"]
    peer = torch_gpt.gpt(jax.tree.map(np.asarray, params), model.num_heads)
    prompts = [[5]] * num_texts
    tokens = torch.tensor(prompts)
    arguments = LENGTH, SAMPLING.temperature, SAMPLING.top_k
    turns = {
        "ours": lambda: list(generate(model, params, prompts, LENGTH, SAMPLING)),
        "PyTorch, no cache": lambda: peer.generate(tokens, *arguments),
        "PyTorch, cache": lambda: peer.generate_cached(tokens, *arguments),
    }
    return timing.alternate(turns, repeats)


def rows(quick: bool) -> Iterator[timing.Row]:
    repeats = 1 if quick else 9
    for batch_size in BATCHES[: 1 if quick else None]:
        times = steps(batch_size, repeats, compiled=not quick)
        yield timing.Row("language", f"step, batch {batch_size}", "ms", times.pop("ours"), times)
    for number in TEXTS[: 1 if quick else None]:
        times = writing(number, repeats)
        yield timing.Row(
            "language", f"500 characters, {number} at once", "s", times.pop("ours"), times
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one turn each")
    print(timing.machine())
    for row in rows(parser.parse_args().quick):
        ratios = ", ".join(f"{name} / ours {ratio:.2f}" for name, ratio in row.ratios().items())
        print(f"{row.case:30s} ours {row.ours:8.3f} {row.unit}; {ratios}")


if __name__ == "__main__":
    main()
