"""Flags of XLA that make it compile faster. What it compiles runs slower."""

import importlib.util
import mmap
import os
from pathlib import Path

FLAGS = {
    "xla_cpu_use_fusion_emitters": "false",  # the older ones compile three times as fast
    "xla_cpu_parallel_codegen_split_count": "1",  # small programs are best left in one piece
}


def with_flags() -> str:
    """Returns the flags of the environment, behind those of the above that this XLA has."""
    before = os.environ.get("XLA_FLAGS", "")
    if all(f"--{name}" in before for name in FLAGS):  # of the process that started this one
        return before
    return " ".join([*(f"--{name}={FLAGS[name]}" for name in FLAGS if has(name)), before])


def has(name: str) -> bool:
    """Returns whether XLA has a flag. XLA ends a process that sets one that it does not have."""
    folder = Path(importlib.util.find_spec("jaxlib").origin).parent
    for path in folder.glob("libjax_common.*"):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
            return code.find(b"\0" + name.encode() + b"\0") >= 0  # a string, not part of one
    return False
