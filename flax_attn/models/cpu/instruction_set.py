"""The instruction set of the CPU. It decides which form of a product a model computes.

The choice is a fixed rule of sizes and instruction set, without a measurement, so every process of
a run makes the same one. A run directory records the instruction set. A resumed run takes the one
that is recorded, also on another machine: all forms run on every machine, at different speeds.
"""

import functools
import platform
from contextlib import AbstractContextManager
from pathlib import Path

import jax

AVX512, AVX2, OTHER = "avx512", "avx2", "other"
NAMES = (AVX512, AVX2, OTHER)
CPUINFO = Path("/proc/cpuinfo")

_taken = jax.make_user_context(None)  # a part of the key of JAX's caches of traced functions


def current() -> str:
    """The instruction set that models choose by: that of `taking`, else this machine's."""
    return _taken.value or of_machine()


def taking(name: str) -> AbstractContextManager:
    """A context manager in which `current` is `name`.

    Raises:
        ValueError: no such instruction set.
    """
    if name not in NAMES:
        raise ValueError(f"expected an instruction set of {', '.join(NAMES)}, got {name!r}")
    return _taken(name)


@functools.cache
def of_machine() -> str:
    """The instruction set of this machine, read once."""
    try:
        return of_flags(CPUINFO.read_text())
    except OSError:  # not Linux
        return AVX2 if platform.machine().lower() in ("x86_64", "amd64") else OTHER


def of_flags(cpuinfo: str) -> str:
    """The instruction set in the text of `/proc/cpuinfo`, which has a line of flags a core."""
    lines = [line for line in cpuinfo.splitlines() if line.startswith("flags")]
    flags = set(lines[0].split()) if lines else set()
    if {"avx512f", "avx512vl"} <= flags:
        return AVX512
    return AVX2 if "avx2" in flags else OTHER
