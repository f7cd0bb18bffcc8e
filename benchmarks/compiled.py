"""Compiles programs for an H100 and a TPU v5e with their real compilers, on any machine, and tells
the memory that they plan. Nothing is run.

    pip install --no-deps $(python -m benchmarks.compiled wheels)
    JAX_PLATFORMS=cpu python -m benchmarks.compiled attention|configs|ring [NAME ...]
        [--platforms cuda tpu] [--manual_dir FOLDER]

The compilers are in wheels, which need no device, driver or CUDA.
"""

import argparse
import contextlib
import functools
import importlib.metadata
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from flax_attn import attention, platforms
from flax_attn.attention import Across, dot_product_attention

PLATFORMS = ("cuda", "tpu")
NAMES = {"cuda": "H100", "tpu": "TPU v5e"}
MEMORY = {"cuda": 80e9, "tpu": 16e9}  # bytes
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000
  l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84942979072
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
# XLA cannot lay out some products in Triton without a device to try them on.
OPTIONS = {"cuda": {"xla_gpu_enable_triton_gemm": False}, "tpu": {}}
# With the least effort, the TPU compiler leaves all arrays in the main memory, short ones too.
LEAST_EFFORT = {"cuda": {}, "tpu": {"exec_time_optimization_effort": -1.0}}
LARGE = ("translate_multi30k_transformer",)  # takes four minutes so, and did not end otherwise
INSTALL = "pip install --no-deps $(python -m benchmarks.compiled wheels)"
MIB = 2**20


class Compiled(NamedTuple):
    """A compiled program: bytes of its temporary arrays, arguments and results; its text."""

    temp: int
    arguments: int
    results: int
    text: str
    seconds: float


def wheels(platform: str) -> list[str]:
    """Returns the requirements of a compiler that fits this version of jax."""
    version = importlib.metadata.version("jax")
    if platform == "cuda":
        return [f"jax-cuda13-plugin=={version}", f"jax-cuda13-pjrt=={version}"]
    pins = [pin for pin in importlib.metadata.requires("jax") or [] if pin.startswith("libtpu")]
    return [pins[0].partition(";")[0].strip()]


@functools.cache
def devices(platform: str) -> list[Any]:
    """Returns the devices to compile for, which are not here: one H100, or a v5e of 2 x 2 chips.

    Raises:
        ModuleNotFoundError: the compiler is not installed; it says how to.
    """
    package = {"cuda": "jax-cuda13-plugin", "tpu": "libtpu"}[platform]
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(f"{package} is not here; {INSTALL}") from error
    if platform == "tpu":
        os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
        return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    if version != importlib.metadata.version("jax"):
        raise ModuleNotFoundError(f"{package} {version} does not fit jax; {INSTALL}")
    import jax_plugins.xla_cuda13 as plugin

    with contextlib.suppress(Exception):  # JAX may have it already
        plugin.initialize()
    return topologies.get_topology_desc(
        platform="cuda", target_config=H100, topology="1x1x1"
    ).devices


@contextlib.contextmanager
def without_cudnn() -> Iterator[None]:
    """Lets JAX trace cuDNN's kernel on any machine, as on an H100 with cuDNN 9.10."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    is_hopper = lambda capability: capability == "9.0"
    answers = {"check_cudnn_version": lambda: 91000, "check_compute_capability": is_hopper}
    answers |= {"is_cuda_compute_capability_equal": is_hopper}
    before = {name: getattr(cudnn, name) for name in answers}
    try:
        for name, answer in answers.items():
            setattr(cudnn, name, answer)
        yield
    finally:
        for name, answer in before.items():
            setattr(cudnn, name, answer)


def compile_for(
    platform: str, function: Callable, *shapes: Any, options: dict[str, Any] | None = None
) -> Compiled:
    """Compiles a function of arrays of some shapes for one device of a platform.

    Shapes that say how they are cut over devices keep that. `options` are those of the compiler.
    """
    one = NamedSharding(Mesh(np.array(devices(platform)[:1]), ("x",)), PartitionSpec())

    def place(leaf: Any) -> jax.ShapeDtypeStruct:
        sharding = getattr(leaf, "sharding", None)
        sharding = sharding if isinstance(sharding, NamedSharding) else one
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
        return jax.ShapeDtypeStruct(np.shape(leaf), dtype, sharding=sharding)

    began = time.perf_counter()
    with without_cudnn(), platforms.compiling_for(platform):
        traced = jax.jit(function).trace(*jax.tree.map(place, shapes))
        lowered = traced.lower(lowering_platforms=(platform,))
        compiled = lowered.compile(compiler_options=OPTIONS[platform] | (options or {}))
    memory = compiled.memory_analysis()
    return Compiled(
        temp=memory.temp_size_in_bytes,
        arguments=memory.argument_size_in_bytes,
        results=memory.output_size_in_bytes,
        text=compiled.as_text(),
        seconds=time.perf_counter() - began,
    )


def gradients(attend: Callable) -> Callable:
    """Returns the gradients of the sum of a context by queries, keys and values."""

    def of_sum(*arrays: Any) -> Any:
        loss = lambda *three: attend(*three, *arrays[3:]).astype(jnp.float32).sum()
        return jax.grad(loss, argnums=(0, 1, 2))(*arrays[:3])

    return of_sum


def limits(length: int) -> dict[str, dict[str, Any]]:
    """Returns every limit of `dot_product_attention`, some of them together, by name."""
    rows, ids = np.array([length // 2]), np.arange(length)[None] // 512
    segments = {"query_segments": ids, "key_segments": ids}
    return {
        "none": {},
        "causal": {"causal": True},
        "causal window 256": {"causal": True, "window": (255, 0)},
        "window 256 on both sides": {"window": (255, 255)},
        "key lengths": {"key_lengths": rows},
        "causal, lengths": {"causal": True, "key_lengths": rows, "query_lengths": rows},
        "causal window 256, key lengths": {"causal": True, "window": (255, 0), "key_lengths": rows},
        "segments": segments,
        "causal, segments": {"causal": True, **segments},
        "causal, prefix": {"causal": True, "prefix_lengths": rows},
        "soft-cap": {"causal": True, "softcap": 30.0},
        "mask function": {"mask": attention.masks.causal},
        "bias function": {"bias": lambda queries, keys: 0.01 * (keys - queries)},
    }


def of_attention(
    platform: str, length: int, name: str, options: dict[str, Any] | None = None
) -> Any:
    """Returns the form of one call of attention, and what its context and its gradients need."""
    x = jax.ShapeDtypeStruct((1, length, 8, 64), jnp.bfloat16)
    arguments = {**limits(length)[name], "need_weights": False}
    form = attention.form_of(x, x, x, platform=platform, **arguments).name
    attend = lambda *arrays: dot_product_attention(*arrays, **arguments).context
    compiled = functools.partial(compile_for, platform, options=options)
    return form, *(compiled(function, x, x, x) for function in (attend, gradients(attend)))


def of_ring(arguments: dict[str, Any], length: int = 65_536) -> tuple[Compiled, Compiled]:
    """Returns what gradients need on one chip, and on each of 2 x 2 chips of a v5e."""
    shape = (1, length, 8, 64)
    arguments = arguments | {"need_weights": False}
    one = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    attend = lambda *arrays: dot_product_attention(*arrays, **arguments).context
    mesh = Mesh(np.array(devices("tpu")), ("sequence",), axis_types=(AxisType.Auto,))
    cut = NamedSharding(mesh, PartitionSpec(None, "sequence"))
    shares = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=cut)
    across = functools.partial(dot_product_attention, across=Across(mesh), **arguments)
    on_ring = lambda *arrays: across(*arrays).context
    return (
        compile_for("tpu", gradients(attend), one, one, one),
        compile_for("tpu", gradients(on_ring), shares, shares, shares),
    )


def exchanges(text: str) -> dict[str, int]:
    """How often a compiled program exchanges arrays between devices, by the kind of exchange."""
    kinds = ("collective-permute", "all-gather", "all-reduce", "all-to-all", "reduce-scatter")
    count = lambda kind: len(re.findall(rf" {kind}(?:-start)?\(", text))
    return {kind: count(kind) for kind in kinds if count(kind)}


def of_config(
    platform: str, name: str, manual_dir: Path | None, changes: dict[str, Any] | None = None
) -> tuple[int, Compiled, Compiled]:
    """The seeds of a config, and what its training steps and its evaluation need for all of them.

    Keys of the config are changed. The configs of one's own data get a small file.
    """
    from benchmarks import ours
    from tests.test_configs import OWN, load, write_own

    values = load(name)
    values.update_from_flattened_dict(changes or {})
    options = LEAST_EFFORT[platform] if name in LARGE else None
    with (
        tempfile.TemporaryDirectory() as folder,
        platforms.compiling_for(platform),
        without_cudnn(),
    ):
        if name in OWN:
            values.data.file = str(write_own(name, Path(folder)))
        seeds, programs = ours.programs_of(values, manual_dir)
    both = [compile_for(platform, run, *shapes, options=options) for run, shapes in programs]
    return seeds, both[0], both[1]


def print_attention(platform: str, names: list[str]) -> None:
    for name in names or limits(2048):
        for length in (2048, 16_384, 65_536):
            form, context, gradient = of_attention(platform, length, name)
            memory = " | ".join(f"{one.temp / MIB:,.1f}" for one in (context, gradient))
            print(f"| {NAMES[platform]} | {name} | {length:,} | {form} | {memory} |", flush=True)


def print_configs(platform: str, names: list[str], manual_dir: Path | None) -> None:
    from tests.test_configs import NAMES as CONFIGS

    for name in names or CONFIGS:
        try:
            seeds, *both = of_config(platform, name, manual_dir)
        except Exception as error:
            print(f"| {NAMES[platform]} | {name} | {type(error).__name__}: {error} |", flush=True)
            continue
        cells = [f"{number / MIB:,.1f}" for one in both for number in (one.temp, one.arguments)]
        seconds = sum(one.seconds for one in both)
        row = [NAMES[platform], name, str(seeds), *cells, f"{seconds:.0f}"]
        print(f"| {' | '.join(row)} |", flush=True)


def print_ring() -> None:
    for name in ("causal", "causal window 4096"):
        arguments = {"causal": True} | ({"window": (4095, 0)} if "window" in name else {})
        one, share = of_ring(arguments)
        memory = " | ".join(f"{compiled.temp / MIB:,.1f}" for compiled in (one, share))
        print(f"| {name} | {memory} | {exchanges(share.text)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("attention", "configs", "ring", "wheels"))
    parser.add_argument("names", nargs="*", help="limits or configs; all by default")
    parser.add_argument("--platforms", nargs="+", default=PLATFORMS, choices=PLATFORMS)
    parser.add_argument("--manual_dir", type=Path, help="a folder with one folder a data set")
    args = parser.parse_args()
    if args.what == "ring":
        return print_ring()
    if args.what == "wheels":
        return print(*(name for platform in args.platforms for name in wheels(platform)))
    for platform in args.platforms:
        if args.what == "attention":
            print_attention(platform, args.names)
        else:
            print_configs(platform, args.names, args.manual_dir)
    return None


if __name__ == "__main__":
    main()
