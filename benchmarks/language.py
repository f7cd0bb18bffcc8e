"""A small GPT beside PyTorch: milliseconds of a training step, and seconds to write 500 characters.

Sizes are those of nanoGPT's recipe for a CPU: 4 blocks of width 128, 4 heads, passages of 64
characters, learned positions. Both sides have the same parameters, and their losses must agree to
1e-4. PyTorch writes once as nanoGPT does, without a cache, and once with one.
"""

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from benchmarks import ours, timing, torch_gpt, torch_training
from benchmarks.steps import again
from configs import shakespeare_char, text_file
from flax_attn.models.generation import Sampling, generate

BATCHES, TEXTS = (12, 64), (1, 32)
STEPS = 20  # of a call
LENGTH, SAMPLING = 500, Sampling(temperature=0.8, top_k=40)


def prepare(batch_size: int) -> ours.Ours:
    """Prepares `shakespeare_char` on random characters of 65 kinds."""
    values = shakespeare_char.get_config()
    values.model.positions = "learned"
    values.batch_size, values.steps_per_epoch = batch_size, STEPS
    values.data = text_file.get_config().data
    values.data.valid_fraction = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "letters.txt")
        numbers = np.random.default_rng(0).integers(65, size=25_000)
        path.write_text("".join(chr(48 + number) for number in numbers))
        values.data.file = str(path)
        return ours.prepare(values)


def steps(batch_size: int, repeats: int, compiled: bool = True) -> dict[str, float]:
    """Returns the milliseconds of a training step by peer, medians of turns."""
    own: Any = prepare(batch_size)
    peers: dict[str, Callable[[], Any]] = {}
    for name, change in {"PyTorch": lambda m: m, "torch.compile": torch.compile}.items():
        if name == "PyTorch" or compiled:
            peer: Any = change(torch_gpt.gpt(own.params, own.model.num_heads))
            step, loss = torch_training.trainer(peer, own.batch, own.config)
            ours.check({name: float(loss())}, own.loss)
            peers[name] = functools.partial(again, step, STEPS)
    seconds = timing.alternate({"ours": own.train} | peers, repeats)
    return {name: 1e3 * value / STEPS for name, value in seconds.items()}


def writing(num_texts: int, repeats: int) -> dict[str, float]:
    """Returns the seconds to write texts of `LENGTH` characters, medians of turns."""
    own: Any = prepare(BATCHES[0])
    peer = torch_gpt.gpt(own.params, own.model.num_heads)
    params, prompts = jax.device_put(own.params), [[5]] * num_texts
    tokens, arguments = torch.tensor(prompts), (LENGTH, SAMPLING.temperature, SAMPLING.top_k)
    turns = {
        "ours": lambda: list(generate(own.model, params, prompts, LENGTH, SAMPLING)),
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
