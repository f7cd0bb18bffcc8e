"""What people wait for: published models, predictions, and commands until their first result.

Processes of their own have a compilation cache in a temporary folder: first an empty one, then the
same with what the first process compiled. CPU seconds are those of all threads. Other work on the
machine changes them less than the time on the clock.
"""

import functools
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import flax_attn
from benchmarks import ours, steps, timing
from benchmarks.timing import Row
from configs import ag_news_best
from flax_attn.explore.published import FIRST_PROMPT, PublishedAnswers
from flax_attn.explore.server import TOKEN
from flax_attn.models import by_block

ROOT = Path(__file__).parent.parent
LENGTH = 16  # tokens that are written
COMPILED = "/jax/core/compile/backend_compile_duration"
CASES = ("nothing compiled", "a second time")
TRANSFORMERS = f"""
import sys, torch, transformers
model = transformers.GPT2LMHeadModel.from_pretrained(sys.argv[1])
model.generate(torch.tensor([[*range(38)]]), max_new_tokens={LENGTH}, do_sample=False)
"""


class Process(NamedTuple):
    """Seconds of a process: on the CPU, on the clock, and until it printed a certain line."""

    cpu: float
    wall: float
    until: float


def process(*arguments: str | Path, cache: str, line: str = "") -> Process:
    """Runs Python with a compilation cache, until the end."""
    cpu, began, until = cpu_of_children(), time.perf_counter(), float("nan")
    with started(*arguments, cache=cache) as running:
        for printed in running.stdout or ():
            if line and line in printed:
                until = time.perf_counter() - began
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, running.args)
    return Process(cpu_of_children() - cpu, time.perf_counter() - began, until)


def started(*arguments: str | Path, cache: str) -> subprocess.Popen[str]:
    variables = ["env", f"JAX_COMPILATION_CACHE_DIR={cache}", "PYTHONUNBUFFERED=1"]
    variables.append(f"TMPDIR={Path(cache).parent}")  # what a demo unpacks is removed with it
    command = [*variables, sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds(function: Callable[[], Any]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def write_gpt2(folder: Path, **sizes: Any) -> None:
    """Writes a GPT-2 with random parameters, whose texts are bytes, as transformers does."""
    import tokenizers
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    tokens = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens += [f"<{i}>" for i in range(len(tokens), config.vocab_size)]
    model = tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, [])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def published(quick: bool) -> Iterator[Row]:
    """Measures a published model of the size of GPT-2."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "gpt2")
        write_gpt2(model)
        command = "-m", "flax_attn", "generate", model, FIRST_PROMPT, f"--length={LENGTH}"
        peer = process("-c", TRANSFORMERS, model, cache=folder).cpu
        for case in CASES:
            seconds = process(*command, cache=f"{folder}/cache").cpu
            case = f"first {LENGTH} tokens, {case}"
            yield Row("published model", case, "CPU s", seconds, {"transformers": peer})
        yield from beside_transformers(model, 3 if quick else 9)
        yield from explorer(model)
    for number in (12, 24) if quick else (12, 24, 48):
        case = f"tracing and compiling, {number} blocks"
        yield Row("published model", case, "CPU s", compiling(number), {})


def beside_transformers(folder: Path, repeats: int) -> Iterator[Row]:
    """Writes tokens in turns. Both sides must write the same ones."""
    import torch
    import transformers

    run = flax_attn.load(folder)
    peer: Any = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    reader: Any = run.task.inputs
    options = {"max_new_tokens": LENGTH, "do_sample": False, "pad_token_id": 0}
    long = (FIRST_PROMPT * 20)[:512]
    for case, prompt in {
        "16 more tokens": FIRST_PROMPT,
        "512 tokens read, 16 written": long,
    }.items():
        inputs = torch.tensor([list(reader.encoded(prompt))])
        write = functools.partial(run.generate, prompt, length=LENGTH, temperature=0)
        other = functools.partial(peer.generate, inputs, **options)
        written = reader.decoded(other().tolist())
        assert write().texts == written, f"unequal work: {write().texts} and {written}"
        seconds = timing.alternate({"ours": write, "transformers": other}, repeats)
        yield Row("published model", case, "s", seconds.pop("ours"), seconds)


def explorer(folder: Path) -> Iterator[Row]:
    """Asks about one text, and then about others of the same length."""
    jax.clear_caches()
    answers = PublishedAnswers(flax_attn.load(folder))
    texts = (FIRST_PROMPT[i:] + FIRST_PROMPT[:i] for i in range(1, 7))
    asked = [functools.partial(answers, {"inputs": {"text": text}}) for text in texts]
    first, *later = map(cpu_seconds, asked)
    yield Row("explorer, published model", "first answer", "CPU s", first, {})
    yield Row("explorer, published model", "later answers", "CPU s", float(np.median(later)), {})


def compiling(num_blocks: int) -> float:
    """Returns by how much longer the first tokens take than the next, with smaller blocks."""
    width = 448
    assert 12 * width**2 > by_block.LARGE
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"n_embd": width, "n_head": 7, "n_layer": num_blocks, "vocab_size": 1_000}
        write_gpt2(Path(folder), **sizes)
        run = flax_attn.load(folder)
        jax.clear_caches()
        first, then = (cpu_seconds(lambda: run.generate(FIRST_PROMPT, length=LENGTH)) for _ in "12")
    return first - then


def predictions(quick: bool) -> Iterator[Row]:
    """Predicts batches of 1 to 64 texts of 40 lengths, and counts the programs."""
    rng, number, programs = np.random.default_rng(0), 60 if quick else 300, []
    values = ag_news_best.get_config()
    run = ours.untrained(values, steps.texts(values, 5_000, 4, 4, 40))
    jax.clear_caches()

    def count(event: str, duration_secs: float, **others: str | int) -> None:
        programs.extend([duration_secs] if event == COMPILED else [])

    jax.monitoring.register_event_duration_secs_listener(count)
    lengths, sizes = rng.integers(1, 41, number), rng.integers(1, 65, number)
    batches = [steps.draw(rng, size, 5_000, n, n) for size, n in zip(sizes, lengths)]
    seconds = [cpu_seconds(lambda texts=texts: run.predict(texts)) for texts in batches]
    late, name = np.percentile(seconds[number // 2 :], 95), f"predict, {number} batches of texts"
    yield Row(name, "programs", "", len(programs), {})
    yield Row(name, "95th percentile of the later half", "CPU s", float(late), {})


def commands(quick: bool) -> Iterator[Row]:
    """Measures commands with an empty compilation cache, and again with a full one.

    A training of one step has all that a training of an epoch has but its other steps.
    """
    del quick
    with tempfile.TemporaryDirectory() as folder:
        cache = f"{folder}/cache"
        for i, case in enumerate(CASES):
            train = "train.py", "--config=configs/shapes_attention.py", "--num_epochs=1"
            train += "--steps_per_epoch=1", f"--workdir={folder}/{i}"
            cpu, wall, until = process(*train, cache=cache, line="epoch 1/1")
            name, whole = "train shapes_attention", f"all but the other steps, {case}"
            yield Row(name, f"first step, {case}", "s", until, {})
            yield Row(name, whole, "s", wall, {})
            yield Row(name, whole, "CPU s", cpu, {})
        for case in CASES:
            yield Row("demo", f"first answer, {case}", "s", demo(f"{folder}/demo"), {})
            predict = "-m", "flax_attn", "predict", "dates", "3 May 2020"
            seconds = process(*predict, cache=f"{folder}/predict").cpu
            yield Row("predict of one text", case, "CPU s", seconds, {})
        seconds = process("train.py", "--help", cache=cache).cpu
        yield Row("train.py --help", "", "CPU s", seconds, {})


def demo(cache: str) -> float:
    """Returns the seconds until the demo has answered the page's first question."""
    began = time.perf_counter()
    with started("-m", "flax_attn", "demo", "--no-open", cache=cache) as running:
        try:
            assert running.stdout is not None
            (url,) = re.findall(r"http\S+", running.stdout.readline())
            with urllib.request.urlopen(url) as page:
                token = page.read().decode().partition('token" content="')[2].partition('"')[0]
            body = json.dumps({"run": 0, "inputs": {"text": "3 May 2020"}}).encode()
            request = urllib.request.Request(f"{url}ask", body, {TOKEN: token})
            with urllib.request.urlopen(request) as reply:
                assert json.load(reply)["error"] is None
            return time.perf_counter() - began
        finally:
            running.terminate()  # an interrupt is ignored where a shell runs this in the background
