"""Checks attention and trainings on the GPU or TPU of this machine, in some ten minutes.

    python -m benchmarks.accelerator [--output accelerator.json] [--only forms numbers ...]
        [--configs NAME ...] [--manual_dir FOLDER]

- forms: which form a call takes, and why no faster one.
- numbers: every form beside the formula in float32 at the highest precision, values and gradients,
  with rows that see nothing and NaN where nothing reaches.
- memory: what gradients plan at 4,096 and at 8,192 tokens.
- times: the form that is taken beside the formula, `jax.nn`, and, where PyTorch has a GPU, its
  flash attention and its compiled flex attention.
- sizes: the formula beside blocks of several sizes.
- losses: 20 steps of some configs, and their time, beside the same steps on the CPU.

It prints tables and a verdict, and writes them as JSON. It runs on a CPU as well. JAX takes most of
a GPU's memory for itself: set `XLA_PYTHON_CLIENT_PREALLOCATE=false` for the times beside PyTorch.
"""

import argparse
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import attention_cases as cases
from benchmarks import ours, timing
from flax_attn import platforms
from flax_attn.attention import dot_product_attention, form_of

LENGTHS = (64, 127, 192, 704, 2048)  # kernels have had faults at odd ones, and at 64 over 128
CONFIGS = ("shapes_attention:quick", "induction:quick")
KERNELS = {"cuda": "cudnn", "tpu": "splash"}
STEPS = 20
LARGEST_RATIO = 2.2  # of the memory at twice the length
TOLERANCES = {"bfloat16": 0.02, "float32": 1e-5}
LARGEST_LOSS = 0.02  # share by which a loss may differ from the CPU's
LINE = "| {:<32} | {} |"
Row = dict[str, Any]


def calls(length: int) -> dict[str, dict[str, Any]]:
    """Arguments of attention by name, for two rows of a batch."""
    some, ids = np.array([length // 2, 0]), np.arange(length)[None] // 100 * np.ones((2, 1), int)
    segments = {"query_segments": ids, "key_segments": ids}
    return {
        "all keys": {},
        "causal": {"causal": True},
        "causal window": {"causal": True, "window": (31, 0)},
        "window on both sides": {"window": (31, 31)},
        "key lengths": {"key_lengths": some},
        "both lengths, causal": {"causal": True, "key_lengths": some, "query_lengths": some + 9},
        "lengths, causal window": {"causal": True, "window": (31, 0), "key_lengths": some},
        "scale": {"causal": True, "scale": 0.3},
        "soft-cap": {"causal": True, "softcap": 30.0},
        "segments": segments,
        "segments, causal": {"causal": True, **segments},
        "offset": {"causal": True, "query_offset": 5},
    }


def draw(length: int, dtype: str, arguments: dict[str, Any]) -> list[jax.Array]:
    """Queries, keys and values with 4 heads over 2 key heads, and NaN where nothing reaches."""
    rng = np.random.default_rng(0)
    shapes = [(2, length, heads, 64) for heads in (4, 2, 2)]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    ones = [np.ones_like(array[..., :1]) for array in arrays]
    no_scores = {key: value for key, value in arguments.items() if key not in ("scale", "softcap")}
    weights = np.asarray(dot_product_attention(*ones, **no_scores).weights)[:, 0]
    arrays[0][~weights.any(-1)] = np.nan
    arrays[1][~weights.any(-2)] = arrays[2][~weights.any(-2)] = np.nan
    return [jnp.asarray(array, dtype) for array in arrays]


def outcome(attend: Callable, arrays: list[jax.Array]) -> list[np.ndarray]:
    """Returns the context and its gradients by queries, keys and values, in float32."""

    def loss(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        context = attend(*arrays)
        return jnp.sum(jnp.sin(context.astype(jnp.float32))), context

    gradients, context = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(*arrays)
    return [np.asarray(array.astype(jnp.float32)) for array in (context, *gradients)]


def forms(lengths: tuple[int, ...] = (2048, 16_384)) -> Iterator[Row]:
    """Says which form a call in half precision takes, and why the kernel does not fit."""
    for length in lengths:
        x = jax.ShapeDtypeStruct((2, length, 8, 64), jnp.bfloat16)
        for name, arguments in calls(length).items():
            form = form_of(x, x, x, need_weights=False, **arguments)
            kernel = KERNELS.get(platforms.current(), "cudnn")
            reason = form.why_not.get(kernel, "")
            yield {"call": f"{length:,} {name}", "form": form.name, f"not {kernel}": reason}


def numbers(lengths: tuple[int, ...] = LENGTHS, names: list[str] | None = None) -> Iterator[Row]:
    """Compares the form that is taken, and blocks, with the formula.

    A length gets every third call, and the next length others, unless names are given. Many copies
    are told of, so that kernels are taken for short lengths too.
    """
    for dtype, tolerance in TOLERANCES.items():
        for number, length in enumerate(lengths):
            of_length = calls(length)
            for name in names or list(of_length)[number % 3 :: 3]:
                yield compare(length, dtype, name, of_length[name], tolerance)


def compare(length: int, dtype: str, name: str, arguments: dict, tolerance: float) -> Row:
    """Returns the largest differences of a call's forms, as shares of the largest number there."""
    arrays = draw(length, dtype, arguments)
    attend = lambda *arrays, **options: (
        dot_product_attention(*arrays, **arguments, **options).context
    )
    with jax.default_matmul_precision("highest"):
        expected = outcome(attend, [array.astype(jnp.float32) for array in arrays])
    row = {"call": f"{length:,} {dtype} {name}"}
    fastest = functools.partial(attend, need_weights=False)
    # splash attention is in the default precision alone
    precision = "highest" if dtype == "float32" else "default"
    with jax.default_matmul_precision(precision), platforms.copies(2**30 // length):
        shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
        taken = form_of(*shapes, need_weights=False, **arguments).name
        ours = {taken: outcome(fastest, arrays)}
        ours["blocks of 128"] = outcome(functools.partial(attend, chunk_size=128), arrays)
    share = lambda a, b: float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6))
    for form, results in ours.items():
        row[form] = max(map(share, results, expected))  # NaN, if there is one
    row["passed"] = all(row[form] < tolerance for form in ours)
    return row


def memory(lengths: tuple[int, int] = (4096, 8192)) -> Iterator[Row]:
    """Tells the temporary memory of gradients at a length and at twice the length."""
    for name in calls(8):
        planned = []
        for length in lengths:
            x = jax.ShapeDtypeStruct((2, length, 8, 64), jnp.bfloat16)
            arguments = calls(length)[name]
            loss = lambda *arrays, arguments=arguments: (
                dot_product_attention(*arrays, **arguments, need_weights=False)
                .context.astype(jnp.float32)
                .sum()
            )
            with platforms.copies(64):  # else the formula is taken for short lengths
                program = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, x, x).compile()
            planned.append(program.memory_analysis().temp_size_in_bytes / 2**20)
        ratio = planned[1] / max(planned[0], 1.0)
        mib = dict(zip((f"MiB at {length:,}" for length in lengths), planned))
        yield {"call": name, **mib, "ratio": ratio, "passed": ratio <= LARGEST_RATIO}


TIMED = (
    cases.causal(128, 8, 64),
    cases.causal(512, 8, 16),
    cases.all_keys(4096, 8, 4),
    cases.causal(4096, 8, 4),
    cases.causal(16_384, 8),
    cases.window(16_384, 8),
    cases.key_lengths(16_384, 8, share=2),
    cases.segments(16_384, 8),
    cases.causal(65_536, 8),
    cases.window(65_536, 8),
)


def times(timed_cases: tuple[cases.Case, ...] = TIMED) -> Iterator[Row]:
    """Times attention with heads of 64, alone and with gradients, in half precision.

    What keeps all weights is timed where they are few. A CPU has no time and no memory for more.
    """
    platform = platforms.current()
    most = 2**24 if platform == platforms.CPU else 2**32  # weights
    kernel: Row = {"implementation": "cudnn"} if platform == platforms.CUDA else {}
    for case in timed_cases:
        are_few = case.batch * case.heads * case.length**2 <= most
        if platform == platforms.CPU and not are_few:
            continue
        limits = case.options | case.arrays
        attends = {"ours": context_of(**limits, need_weights=False)}
        if are_few:
            attends["the formula"] = context_of(**limits)
        if case.name in ("all keys", "causal") and (are_few or kernel):
            attend = functools.partial(jax.nn.dot_product_attention, **kernel)
            attends["jax.nn"] = functools.partial(attend, is_causal=case.name == "causal")
        shape = case.batch, case.length, case.heads, cases.WIDTH
        for backward in (False, True):
            calls = {k: timed(attend, shape, backward) for k, attend in attends.items()}
            calls |= of_torch(case, backward)
            seconds = timing.alternate(calls, repeats=10)
            work = "gradients" if backward else "context"
            milliseconds = {f"{k} (ms)": 1e3 / CALLS * s for k, s in seconds.items()}
            yield {"call": f"{case.batch} x {case.length:,} {case.name}, {work}", **milliseconds}


def context_of(**arguments: Any) -> Callable:
    """Returns a function of queries, keys and values that computes the context alone."""
    return lambda *arrays: dot_product_attention(*arrays, **arguments).context


CALLS = 5  # are sent before one waits, so that the device never does


def timed(
    attend: Callable, shape: tuple[int, ...], backward: bool, dtype: Any = jnp.bfloat16
) -> Callable[[], Any]:
    """Returns a function that computes attention, or its gradients, `CALLS` times, and waits."""
    arrays = [jax.random.normal(jax.random.key(i), shape, dtype) for i in range(4)]

    def gradients(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return jax.vjp(attend, *arrays[:3])[1](arrays[3])

    program = jax.jit(gradients if backward else lambda *arrays: attend(*arrays[:3]))
    return lambda: jax.block_until_ready([program(*arrays) for _ in range(CALLS)])


def of_torch(case: cases.Case, backward: bool) -> dict[str, Callable[[], Any]]:
    """The same by PyTorch's flash attention, where it has the limit, and its flex attention.

    Nothing where PyTorch has no GPU.
    """
    try:
        import torch
        from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    torch._dynamo.reset()  # PyTorch compiles only a few programs for one function
    visible, length = case.visible, case.length
    sizes = case.batch, case.heads, length, cases.WIDTH
    draw = lambda: torch.randn(sizes, device="cuda", dtype=torch.bfloat16, requires_grad=backward)
    inputs, cotangent = [draw() for _ in range(3)], torch.randn(sizes, device="cuda").bfloat16()
    block_mask = None
    if visible is not None:
        pairs = lambda batch, head, query, key: visible(query, key)
        block_mask = flex_attention.create_block_mask(pairs, None, None, length, length, "cuda")
    compiled = torch.compile(flex_attention.flex_attention, dynamic=False, fullgraph=True)

    def flash() -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            is_causal = case.name == "causal"
            return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=is_causal)

    attends = {"PyTorch flex": lambda: compiled(*inputs, block_mask=block_mask)}
    if case.name in ("all keys", "causal"):
        attends["PyTorch flash"] = flash

    def several(attend: Callable[[], Any]) -> None:
        for _ in range(CALLS):
            context = attend()
            if backward:
                torch.autograd.grad(context, inputs, cotangent)
        torch.cuda.synchronize()

    return {k: functools.partial(several, attend) for k, attend in attends.items()}


SIZED = (("bfloat16", 1024), ("bfloat16", 4096), ("bfloat16", 16_384), ("float32", 4096))


def sizes(
    sized: tuple[tuple[str, int], ...] = SIZED, blocks: tuple[int, ...] = (512, 1024, 2048)
) -> Iterator[Row]:
    """Times the gradients of the formula beside blocks of several sizes, with a causal soft-cap."""
    arguments = {"causal": True, "softcap": 30.0}
    for dtype, length in sized:
        attends = {f"blocks of {n}": context_of(**arguments, chunk_size=n) for n in blocks}
        attends["the formula"] = context_of(**arguments)
        shape = 1, length, 8, cases.WIDTH
        calls = {k: timed(attend, shape, True, jnp.dtype(dtype)) for k, attend in attends.items()}
        seconds = timing.alternate(calls)
        milliseconds = {f"{form} (ms)": 1e3 / CALLS * s for form, s in seconds.items()}
        yield {"call": f"{length:,} {dtype}", **milliseconds}


def losses(
    configs: tuple[str, ...] = CONFIGS, steps: int = STEPS, manual_dir: Path | None = None
) -> Iterator[Row]:
    """Compares the mean loss of some steps of a config, and their time, with those on the CPU."""
    cpu = jax.devices("cpu")[0]
    for name in configs:
        here, seconds = some_steps(name, steps, manual_dir)
        with jax.default_device(cpu):
            expected, of_cpu = some_steps(name, steps, manual_dir)
        share = abs(here - expected) / abs(expected)
        row = {"call": name, "loss": here, "on the CPU": expected}
        times = {"step (ms)": 1e3 * seconds, "on the CPU (ms)": 1e3 * of_cpu}
        yield row | times | {"passed": share <= LARGEST_LOSS}


def some_steps(name: str, steps: int, manual_dir: Path | None) -> tuple[float, float]:
    """Trains a config of the package for some steps.

    Returns the mean of its first metric, and the seconds of a step once it is compiled.
    """
    from flax_attn.config_files import read

    run = ours.some_steps(read(name), steps, manual_dir)
    mean = run()
    return mean, timing.timed(run)[0] / steps


CHECKS = {
    "forms": forms,
    "numbers": numbers,
    "memory": memory,
    "times": times,
    "sizes": sizes,
    "losses": losses,
}


def shown(value: Any) -> str:
    """Returns a number with four digits, and all else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def verdict(rows: dict[str, list[Row]]) -> str:
    """Returns one line: how many checks passed, and which did not."""
    checked = [row for of_check in rows.values() for row in of_check if "passed" in row]
    failed = [row["call"] for row in checked if not row["passed"]]
    passed = f"{len(checked) - len(failed)} of {len(checked)} checks passed"
    return f"{passed}; failed: {', '.join(failed)}" if failed else passed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, help="a JSON file for the results")
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--configs", nargs="+", default=CONFIGS, help="for the losses")
    parser.add_argument("--manual_dir", type=Path, help="a folder with one folder a data set")
    args = parser.parse_args()
    checks: dict[str, Callable[[], Iterator[Row]]] = {
        **CHECKS,
        "losses": functools.partial(losses, args.configs, manual_dir=args.manual_dir),
    }
    machine = f"{platforms.current()}: {timing.machine()}"
    print(machine)
    rows: dict[str, list[Row]] = {}
    for check in args.only:
        print(f"\n{check}")
        rows[check] = []
        for row in checks[check]():
            rows[check].append(row)
            cells = (f"{key} {shown(value)}" for key, value in row.items() if key != "call")
            print(LINE.format(row["call"], " | ".join(cells)), flush=True)
        if args.output is not None:
            content = {"machine": machine, "verdict": verdict(rows), **rows}
            args.output.write_text(json.dumps(content, indent=2))
    print(f"\n{verdict(rows)}")


if __name__ == "__main__":
    main()
