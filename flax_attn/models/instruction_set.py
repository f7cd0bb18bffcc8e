"""The instruction set of the CPU, by which models choose between forms of the same product.

The choice is a fixed rule of sizes and instruction set, never of a measurement, so every process of a
run makes the same. A run directory records the instruction set, and a run that goes on takes the one
recorded, also on another machine: all forms run on every machine, only at another speed.
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
    """The instruction set that models choose their forms by: the one in force, else this machine's."""
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
    """The instruction set by the text of `/proc/cpuinfo`, which has a line of flags for each core."""
    lines = [line for line in cpuinfo.splitlines() if line.startswith("flags")]
    flags = set(lines[0].split()) if lines else set()
    if {"avx512f", "avx512vl"} <= flags:
        return AVX512
    return AVX2 if "avx2" in flags else OTHER
