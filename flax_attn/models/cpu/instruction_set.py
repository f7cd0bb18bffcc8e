"""The instruction set of the CPU, which a run records: another may round differently."""

import functools
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


@functools.cache
def current() -> str:
    """Reads the instruction set of this machine: `avx512`, `avx2` or `other`."""
    try:
        return of_flags(CPUINFO.read_text())
    except OSError:  # not Linux
        return "avx2" if platform.machine().lower() in ("x86_64", "amd64") else "other"


def of_flags(cpuinfo: str) -> str:
    """Returns the instruction set in the text of `/proc/cpuinfo`, which lists flags by core."""
    lines = [line for line in cpuinfo.splitlines() if line.startswith("flags")]
    flags = set(lines[0].split()) if lines else set()
    if {"avx512f", "avx512vl"} <= flags:
        return "avx512"
    return "avx2" if "avx2" in flags else "other"
