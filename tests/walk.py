"""Walks one batch from the command line to its loss, and lists the files that a reader comes to.

    python -m tests.walk

A stay is an unbroken stretch in one file of the project. A return is a stay in a file that was left
before. Only what runs counts. Of each caller and callee the first call counts, and code at the top
level of a module does not.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parent.parent
PARTS = ("flax_attn", "configs")
COMMAND = ["train", "shapes_attention", "--num_epochs=1", "--data.num_train=1280"]


class Arrived(Exception):
    """The walk is at its end."""


class Walk:
    """The stays of a program, while it is the profiler of Python.

    Attributes:
        stays: the files, in the order in which a reader comes to them.
    """

    def __init__(self) -> None:
        self.stays = ["train.py"]
        self.calls: set[tuple[object, object]] = set()
        self.hidden: FrameType | None = None  # a call whose inside is known, or not to be read

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "return":
            self.hidden = None if frame is self.hidden else self.hidden
            if ends_at(frame):
                raise Arrived
        if event != "call" or self.hidden is not None or file_of(frame) is None:
            return
        caller = next(outer(frame), None)
        call = caller and caller.f_code, frame.f_code
        if call in self.calls or frame.f_code.co_name == "<module>":
            self.hidden = frame
            return
        self.calls.add(call)
        # where the caller goes on, its file is read again
        for file in (file_of(caller) if caller else None, file_of(frame)):
            if file is not None and file != self.stays[-1]:
                self.stays.append(file)


def ends_at(frame: FrameType) -> bool:
    """Returns whether a function that returns is the loss of a batch to train on."""
    return frame.f_code.co_name == "loss" and frame.f_locals.get("train") is True


def file_of(frame: FrameType) -> str | None:
    """Returns the file of the project that a frame is of; None for other code."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in PARTS:
        return None
    return path.relative_to(ROOT).as_posix()


def outer(frame: FrameType) -> Iterator[FrameType]:
    """Returns the frames of the project around a frame, the nearest first."""
    around = frame.f_back
    while around is not None:
        if file_of(around) is not None:
            yield around
        around = around.f_back


def walk() -> list[str]:
    """Returns the stays of a batch of `shapes_attention`."""
    from flax_attn.__main__ import main

    stays = Walk()
    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(stays)
        try:
            main([*COMMAND, f"--workdir={folder}/run"])
        except Arrived:
            pass
        finally:
            sys.setprofile(None)
    return stays.stays


def count(stays: list[str]) -> dict[str, int]:
    """Returns how many stays, returns and files there are."""
    files = len(set(stays))
    return {"stays": len(stays), "returns": len(stays) - files, "files": files}


if __name__ == "__main__":
    stays = walk()
    print("\n".join(stays), file=sys.stderr)
    print(json.dumps(count(stays)))
