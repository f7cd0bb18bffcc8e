"""Timing pairs of functions that do the same work."""

import os
import platform
import re
import time
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Vector instructions as /proc/cpuinfo has them, widest first, and their names.
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sve": "SVE", "asimd": "NEON"}


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the seconds that a function took, and what it returned."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def alternate(
    functions: dict[str, Callable[[], Any]], repeats: int = 5, least: float = 0.0
) -> dict[str, float]:
    """Median seconds of each function over rounds in which they take turns, after a warm-up.

    There are `repeats` rounds. Where these take less than `least` seconds together, there are
    more, 30 at most.
    """
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    began, rounds = time.perf_counter(), 0
    while rounds < repeats or (rounds < 30 and time.perf_counter() - began < least):
        rounds += 1
        for name, function in functions.items():
            seconds[name].append(timed(function)[0])
    return {name: float(np.median(values)) for name, values in seconds.items()}


class Row(NamedTuple):
    """One comparison: how long, or how much, the same work takes ours and each of its peers."""

    comparison: str
    case: str
    unit: str
    ours: float
    peers: dict[str, float]

    def ratios(self) -> dict[str, float]:
        """Returns how many times as much each peer takes."""
        return {name: value / self.ours for name, value in self.peers.items()}


def machine() -> str:
    """One line on what the figures were measured on: processor, instructions, cores, versions."""
    import jax

    from flax_attn import platforms

    devices = {device.device_kind for device in jax.devices() if device.platform != "cpu"}
    names = ("jax", "flax", "torch", "keras")
    versions = [f"{name} {metadata.version(name)}" for name in names if find_spec(name)]
    machine = [*sorted(devices), processor(), f"{os.cpu_count()} cores", *versions]
    if (products := platforms.products()) != "float32":
        machine += [f"JAX multiplies float32 in {products}"]
    return ", ".join(machine)


def processor() -> str:
    """Returns the processor's model and instruction set, from Linux's /proc/cpuinfo.

    Elsewhere it is the name of the architecture.
    """
    path = Path("/proc/cpuinfo")
    entries = dict(re.findall(r"(.+?)\s*: (.*)", path.read_text())) if path.exists() else {}
    flags = entries.get("flags", entries.get("Features", "")).split()
    vectors = [name for flag, name in VECTORS.items() if flag in flags][:1]
    matrices = ["AMX"] if "amx_tile" in flags else []
    model = entries.get("model name", platform.machine())
    return " with ".join(filter(None, (model, " and ".join(vectors + matrices))))
