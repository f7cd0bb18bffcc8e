"""Timing pairs of functions that do the same work."""

import os
import time
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a function took, and what it returned."""
    began = time.perf_counter()
    found = function()
    return time.perf_counter() - began, found


def alternate(functions: dict[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each function over `repeats` rounds in which they take turns, after one warm-up each."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
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
        """How many times as much each peer takes."""
        return {name: value / self.ours for name, value in self.peers.items()}


def machine() -> str:
    """One line on what the figures were measured on."""
    import jax

    versions = [f"{name} {metadata.version(name)}" for name in ("jax", "flax", "torch", "keras") if find_spec(name)]
    return f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, {', '.join(versions)}"
