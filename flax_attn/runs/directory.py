"""Writes and reads the run directory, which is all that pictures and predictions need.

config.json      the resolved config, and under "derived" facts about the data and the machine
metrics.jsonl    one line per epoch and seed, epoch 0 before training
tokenizer.json   for texts, and labels.json for classes
examples.npz     some test inputs, targets and predictions, with attention and what marks the
                 pictures
summary.json     the results, written when all of the above is there and removed before a run grows
checkpoints/     the newest two epochs, and where a stopped run stood; a file each
figures/         pictures, drawn from the rest
"""

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from flax_attn.errors import UsageError
from flax_attn.files import PARTIAL, remove_empty, remove_partial
from flax_attn.runs import checkpoints
from flax_attn.runs.results import StoredConfig
from flax_attn.runs.stored import MEND, METRICS, read_json, write_json
from flax_attn.schema import flatten
from flax_attn.types import Json, JsonObject

try:
    import fcntl
except ImportError:  # Windows has no such lock
    fcntl = None

GROWABLE = "num_epochs"
FREE = "reference."  # numbers that results are shown beside; they decide nothing
FOLDERS = CHECKPOINTS, FIGURES = "checkpoints", "figures"
OURS = (".json", ".jsonl", ".npz")  # endings of the files of a run
OF_OLDER: JsonObject = {"precision": "float32"}  # of runs that began before there were these keys
LOCK = ".lock"
COMMON = ("config.json", CHECKPOINTS)  # which other projects have, too


@contextlib.contextmanager
def opened(
    path: Path, config: JsonObject, say: Callable[[str], None], is_first: bool = True
) -> Iterator[JsonObject | None]:
    """Opens the directory of a run of this config, one that exists or will be made.

    Yields the stored config with the facts about its data; None for a new run. The first of several
    processes holds the lock meanwhile. All check the directory before anything is made.

    Raises:
        UsageError: the directory holds something else or a run of another config, or is in use.
    """
    stored = read_stored(path, config, lambda line: None)
    if not is_first:
        yield stored
        return
    with held(path):
        yield read_stored(path, config, say)  # another process may have written meanwhile


def read_stored(path: Path, config: JsonObject, say: Callable[[str], None]) -> JsonObject | None:
    """Reads the stored config of a run that will go on with `config`; None for a new run.

    If config.json is damaged, the config in the newest checkpoint is taken. Errors are those of
    `opened`.
    """
    others = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    if all(PARTIAL in name or name == LOCK for name in others):
        return None
    try:
        stored = read_config(path)
    except UsageError as error:
        if not is_run(path):
            raise
        say(f"{str(error).partition(';')[0]}; it is written again")
        note = checkpoints.newest(path / CHECKPOINTS)
        stored = None if note is None else note.config
    for name in FOLDERS:
        if (path / name).is_symlink():  # training would write and remove files through it
            raise UsageError(f"expected a directory in {path / name}, got a link; remove it")
    if stored is not None:
        check_same(path, {key: OF_OLDER[key] for key in OF_OLDER if key in config} | stored, config)
    return stored


def clear(path: Path) -> None:
    """Removes files that killed processes were writing."""
    for folder in (path, *(path / name for name in FOLDERS)):
        remove_partial(folder)


def begin(path: Path, config: JsonObject, files: dict[str, Json]) -> None:
    """Writes the config and the further files of a run that begins or goes on.

    The run has no summary then, until it ends.
    """
    path.mkdir(parents=True, exist_ok=True)
    clear(path)
    (path / "summary.json").unlink(missing_ok=True)  # a run without one is not finished
    write_json(path / "config.json", config)  # first: by it the directory is known as a run
    for name, content in files.items():
        write_json(path / name, content)


def check_no_file_of_run(path: Path, flag: str) -> None:
    """Raises a UsageError for an output that would replace a file of a run.

    Pictures and reports of the user's own may stand in the directory of a run.
    """
    real = Path(os.path.realpath(path))
    for run in filter(is_run, real.parents):
        name = real.relative_to(run)
        if name.parts[0] == CHECKPOINTS or (len(name.parts) == 1 and real.suffix in OURS):
            raise UsageError(
                f"expected {flag} to be none of the files that training wrote, got {path}; choose "
                f"another file"
            )


def read_config(path: Path) -> JsonObject:
    """Reads the config of a run directory.

    Raises:
        UsageError: there is no such directory, or it is not one of ours.
    """
    if not path.is_dir():
        raise UsageError(
            f"no run directory {path}; give one that train.py has made; predict, generate and "
            f"explore also take the folder of a published model"
        )
    try:
        config = read_json(path / "config.json")
    except FileNotFoundError:
        raise UsageError(
            f"expected a run directory, but {path} has no config.json, as a published model "
            f"has, too; nothing was touched, {_advice(path)}"
        ) from None
    if is_published(config):
        raise UsageError(
            f"expected a run, got the published model in {path}, which flax_attn did not train; "
            f"flax-attn predict, generate and explore take it"
        )
    try:
        msgspec.convert(config, StoredConfig)
    except ValueError as error:
        raise UsageError(
            f"expected the config of a run in {path / 'config.json'} ({error}), or of a published "
            f"model with its model_type; choose another directory, or for a run, {MEND}"
        ) from None
    return config


def _advice(path: Path) -> str:
    """Suggests a run in a folder, or how to convert a .gguf file in it."""
    for entry in sorted(path.iterdir()):
        if is_run(entry):
            return f"choose another directory, such as {entry}"
        if entry.suffix == ".gguf":
            read = f"AutoModelForCausalLM.from_pretrained({str(path)!r}, gguf_file={entry.name!r})"
            return f"save {entry.name} as safetensors: {read}.save_pretrained(folder)"
    return "choose another directory"


def is_published(config: Json) -> bool:
    """Returns whether the content of a `config.json` is that of a published model."""
    return isinstance(config, dict) and "model_type" in config and "seed" not in config


def check_same(path: Path, stored: JsonObject, config: JsonObject) -> None:
    """Raises a UsageError that names the key where a run began with another config.

    `num_epochs` may grow, unless a schedule ends with it.
    """
    before = flatten({key: value for key, value in stored.items() if key != "derived"})
    now = flatten(json.loads(json.dumps(config)))  # as JSON has it: lists for tuples
    falls = before.get("optimizer.schedule") == "cosine"
    grows = not falls and before.get(GROWABLE, 0) <= now[GROWABLE]
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) == now.get(key) or key.startswith(FREE) or (key == GROWABLE and grows):
            continue
        only = "the rate of that run falls to 0 by then" if falls else "it may only grow"
        raise UsageError(
            f"config key '{key}' was {before.get(key)!r} when {path} was started and is now "
            f"{now.get(key)!r}{f' ({only})' if key == GROWABLE else ''}; undo it or choose another "
            f"--workdir"
        )


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds the lock of a run directory, so that no two processes train into it, and makes it.

    The operating system releases it when the process ends, also after a `kill -9`. The file names
    the process. A directory that holds nothing afterwards is removed, as are those made for it.

    Raises:
        UsageError: another process holds it, the directory is inside another run, or it cannot be
            written.
    """
    check_place(path)
    made = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    file = path / LOCK
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(file)
    except OSError as error:
        remove_empty(made)
        raise UsageError(
            f"cannot write to run directory {path} ({error.strerror}); choose another --workdir"
        ) from error
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # removed while it is still locked
        os.close(descriptor)
        remove_empty(made)


def check_place(path: Path) -> None:
    """Raises a UsageError for a run directory inside another run."""
    for folder in filter(is_run, Path(os.path.realpath(path)).parents):
        raise UsageError(
            f"expected --workdir outside of other runs, but {path} is inside the run {folder}; "
            f"choose another"
        )


def is_run(path: Path) -> bool:
    """Returns whether a folder is a run directory that has begun to train, also a damaged one."""
    return os.path.exists(path / METRICS) and any(os.path.exists(path / name) for name in COMMON)


def _lock(file: Path) -> int:
    """Opens the file that holds the lock."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(file, flags, 0o644)  # through no link that somebody has put there
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1_000).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise UsageError(
                f"{file.parent} is in use by {holder}; wait for it or choose another --workdir"
            ) from None
        except OSError:  # a file system without locks
            pass
        try:
            if os.path.samestat(os.stat(file), os.fstat(descriptor)):
                break
        except FileNotFoundError:
            pass
        os.close(descriptor)  # the holder has removed it meanwhile
    os.ftruncate(descriptor, 0)  # what the last holder wrote
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    os.write(descriptor, f"process {os.getpid()} on {platform.node()} since {now}".encode())
    return descriptor
