"""The platform that a program is traced for. Every rule that chooses a form by it asks here.

JAX traces a program before it knows where the program will run. So a rule that looks at the devices
of this machine is wrong where a program is compiled for others. `current` looks, in this order, at
`compiling_for`, at the devices of the mesh around (`jax.set_mesh`, `jax.shard_map`), which need not
be on this machine, at `jax.default_device`, and at the backend of this process.

What contexts say is part of the keys of JAX's caches: a jitted function has one trace a platform.
"""

import functools
import os
import platform
import re
from contextlib import AbstractContextManager
from pathlib import Path

import jax

CPU, CUDA, ROCM, TPU = NAMES = ("cpu", "cuda", "rocm", "tpu")
PORTABLE = "portable"  # of no platform: one program for several
VARIABLE = "FLAX_ATTN_KERNELS"
HOPPER = (9, 0)  # its capability
# what a platform multiplies float32 in, by the level of `jax_default_matmul_precision`
PRODUCTS = {
    "default": {CPU: "float32", CUDA: "tensorfloat32", ROCM: "float32", TPU: "bfloat16"},
    "high": {
        CPU: "float32",
        CUDA: "tensorfloat32",
        ROCM: "float32",
        TPU: "bfloat16 in three passes",
    },
    "highest": dict.fromkeys((CPU, CUDA, ROCM, TPU), "float32"),
}
# JAX's other names of the levels
LEVELS = {"bfloat16": "default", "tensorfloat32": "high", "float32": "highest"}

_compiling_for = jax.make_user_context(None)
_kernels = jax.make_user_context(None)
_copies = jax.make_user_context(1)  # how many are mapped at once


def current() -> str:
    """Names the platform whose forms are taken: one of `NAMES`, or `portable`."""
    return (
        _compiling_for.value or _of_mesh() or _of_default_device() or _name(jax.default_backend())
    )


def of(array: jax.Array) -> str:
    """Names the platform that an array lies on; that of the program for a traced one."""
    if isinstance(array, jax.core.Tracer):  # pyright: ignore
        return current()
    return _name(next(iter(array.devices())).platform)


def compiling_for(platform: str) -> AbstractContextManager:
    """Makes a context manager in which programs are traced, lowered and exported for a platform.

        with compiling_for("tpu"):
            exported = jax.export.export(jax.jit(f), platforms=["tpu"])(x)

    Args:
        platform: `cpu`, `cuda`, `rocm`, `tpu`; or `portable` for a program that runs on all of
            them, as an export for several platforms must.

    Raises:
        ValueError: no such platform.
    """
    if platform not in (*NAMES, PORTABLE):
        expected = ", ".join((*NAMES, PORTABLE))
        hint = "; a GPU of NVIDIA is cuda, one of AMD rocm" if platform == "gpu" else ""
        raise ValueError(f"expected a platform of {expected}, got {platform!r}{hint}")
    return _compiling_for(platform)


def kernels(are_used: bool) -> AbstractContextManager:
    """Makes a context manager with or without the kernels of GPUs and TPUs.

    Without it they are used, unless the environment variable `FLAX_ATTN_KERNELS` is 0.
    """
    return _kernels(are_used)


def uses_kernels() -> bool:
    """Tells whether kernels are used where they fit."""
    return os.environ.get(VARIABLE) != "0" if _kernels.value is None else _kernels.value


def copies(number: int) -> AbstractContextManager:
    """Makes a context manager for tracing one of several copies that run at once.

    `jax.vmap` over seeds multiplies the memory, which a function inside it cannot know.
    """
    return _copies(number)


def num_copies() -> int:
    """Counts the copies that `copies` tells of."""
    return _copies.value


def capability() -> tuple[int, int]:
    """Reads the compute capability of the GPU. Without a GPU it is that of Hopper."""
    for device in jax.local_devices():
        if _name(device.platform) == CUDA:
            major, minor = device.compute_capability.split(".")
            return int(major), int(minor)
    return HOPPER


def facts() -> dict[str, str]:
    """Returns what a run records of the machine: another may round differently."""
    return {
        "instruction_set": instruction_set(),
        "platform": current(),
        "matmul_precision": matmul_precision(),
    }


@functools.cache
def instruction_set() -> str:
    """Reads the instruction set of the CPU: `avx512`, `avx2` or `other`."""
    try:
        flags = re.search(r"^flags\b.*", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        known = set(flags[0].split()) if flags else set()
    except OSError:  # not Linux
        known = {"avx2"} if platform.machine().lower() in ("x86_64", "amd64") else set()
    if {"avx512f", "avx512vl"} <= known:
        return "avx512"
    return "avx2" if "avx2" in known else "other"


def matmul_precision() -> str:
    """Reads `jax_default_matmul_precision`; None there is `default`."""
    return jax.config.jax_default_matmul_precision or "default"  # pyright: ignore


def products(platform: str | None = None, precision: str | None = None) -> str:
    """Says in what precision a platform multiplies arrays of float32.

    Source: JAX's documentation of `jax.lax.Precision`.

    Args:
        platform: None for the current one.
        precision: a value of `jax_default_matmul_precision`; None for the one that is set. One that
            names an algorithm is returned as it is.
    """
    platform = current() if platform is None else platform
    precision = matmul_precision() if precision is None else precision
    by_platform = PRODUCTS.get(LEVELS.get(precision, precision))
    return precision if by_platform is None else by_platform.get(platform, "the platform's default")


def may_cut_arrays(*arrays: jax.Array) -> bool:
    """Tells whether XLA may cut arrays over devices by itself.

    It may by the mesh around, and by those that the arrays lie on, which need not be around.
    """
    around = jax.sharding.get_abstract_mesh()
    manual = jax.sharding.AxisType.Manual
    return any(
        size > 1 and kind != manual
        for mesh in (around, *(jax.typeof(array).sharding.mesh for array in arrays))
        for size, kind in zip(mesh.axis_sizes, mesh.axis_types)
    )


def has_explicit_axes(array: jax.Array) -> bool:
    """Tells whether the type of an array says how it is cut over some axis of a mesh."""
    return jax.sharding.AxisType.Explicit in jax.typeof(array).sharding.mesh.axis_types


def is_shard_map_checked() -> bool:
    """Tells whether the `jax.shard_map` around checks over which axes arrays vary."""
    axes = jax.sharding.get_abstract_mesh().manual_axes
    if not axes:
        return False
    one = jax.lax.pcast(jax.numpy.zeros(()), axes, to="varying")
    return bool(jax.typeof(one).mat.varying)


def _of_mesh() -> str | None:
    """Names the platform of the mesh around."""
    mesh = jax.sharding.get_abstract_mesh()
    device = None if mesh.empty else mesh.abstract_device
    return None if device is None else _name(device.platform)


def _of_default_device() -> str | None:
    """Names the platform of `jax.default_device`."""
    device = jax.config.jax_default_device  # pyright: ignore
    if device is None:
        return None
    return _name(device if isinstance(device, str) else device.platform)


def _name(platform: str) -> str:
    """Names a platform as programs are lowered for it: a backend `gpu` is `cuda` or `rocm`."""
    if platform != "gpu":
        return platform
    version = jax.devices("gpu")[0].client.platform_version
    return ROCM if "rocm" in version else CUDA
