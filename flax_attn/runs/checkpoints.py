"""Checkpoints that are whole or not there.

Orbax writes them, and a list of SHA-256 sums vouches for them.

Orbax restores a flipped bit without a word, takes an empty directory for the latest step, and
leaves a half-written step behind when it is killed. So a checkpoint counts only once its list of
sums is in place, and is verified against it before anything is restored.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jax

from flax_attn.errors import UsageError
from flax_attn.files import replacing, sha256
from flax_attn.types import JsonObject, Tree

SUMS = "sha256.json"
METADATA = "metadata.json"
KEEP = 2
ITEM = "default"  # the name that the manager gives to the one thing it saves


def save(directory: Path, epoch: int, state: Tree, metadata: JsonObject) -> None:
    """Writes the checkpoint of an epoch and removes all but the newest two."""
    import orbax.checkpoint as ocp  # a fifth of a second, which no first epoch waits for

    options = ocp.CheckpointManagerOptions(
        max_to_keep=KEEP, cleanup_tmp_directories=True, enable_async_checkpointing=False
    )
    with ocp.CheckpointManager(directory.absolute(), options=options) as manager:
        manager.save(epoch, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
    folder = directory / str(epoch)
    (folder / METADATA).write_text(json.dumps(metadata | {"layout": _layout(state)}))
    sums = _sums(folder)
    with replacing(folder / SUMS) as partial:
        partial.write_text(json.dumps(sums))


def restore(
    directory: Path, template: Tree, warn: Callable[[str], None]
) -> tuple[int, Tree, JsonObject] | None:
    """Restores the newest whole checkpoint: `(epoch, state, metadata)`.

    None where none was ever written to its end.

    Damaged ones are passed over, each with a line to `warn`.

    Args:
        directory: where the checkpoints of the run are.
        template: a state of the same structure, shapes and dtypes; its values do not matter.
        warn: takes a line of text.

    Raises:
        UsageError: all are damaged, or the newest whole one is of another state than the template.
    """
    damaged = []
    for epoch in sorted(_epochs(directory), reverse=True):
        folder = directory / str(epoch)
        if not (folder / SUMS).exists():
            warn(f"checkpoint {folder} was not written to its end; passing it over")
            continue
        damage = find_damage(folder)
        if damage:
            damaged.append(f"checkpoint {folder} is damaged ({damage})")
            continue
        for line in damaged:
            warn(f"{line}; using that of epoch {epoch}")
        metadata = json.loads((folder / METADATA).read_text())
        _check_layout(folder, metadata.pop("layout"), _layout(template))
        import orbax.checkpoint as ocp

        # which only reads, where a manager would tidy up
        with ocp.StandardCheckpointer() as checkpointer:
            return epoch, checkpointer.restore(folder.absolute() / ITEM, template), metadata
    if damaged:
        raise UsageError(
            f"{damaged[0]} and none before it is whole; remove {directory} to train from the start"
        )
    return None


def discard_after(directory: Path, epoch: int) -> None:
    """Removes what stands after an epoch, so that the run can go on from there."""
    for other in _epochs(directory):
        if other > epoch:
            shutil.rmtree(directory / str(other))


def find_damage(folder: Path) -> str:
    """What is wrong with a checkpoint, or an empty string.

    Every file must be there with the sum it was written with.
    """
    try:
        expected = json.loads((folder / SUMS).read_text())
    except (OSError, ValueError):
        return f"{SUMS} is not readable"
    if not isinstance(expected, dict) or METADATA not in expected:
        return f"{SUMS} is not a list of sums"
    present = _sums(folder)
    for name, digest in expected.items():
        if name not in present:
            return f"{name} is missing"
        if present[name] != digest:
            return f"{name} has changed"
    return ""


def _sums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below the folder but the list of sums itself."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != SUMS]
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def _epochs(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    names = [path.name for path in directory.iterdir() if path.is_dir()]
    return [int(name) for name in names if name.isdecimal() and str(int(name)) == name]


def _layout(state: Tree) -> dict[str, str]:
    """Dtype and shape of every array by its path. Orbax would cast without a word."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def _check_layout(folder: Path, found: dict[str, str], expected: dict[str, str]) -> None:
    for name in expected | found:
        if expected.get(name) != found.get(name):
            raise UsageError(
                f"checkpoint {folder} is not of the config beside it: expected {name} "
                f"{expected.get(name)}, got {found.get(name)}; "
                "restore that config.json, or train in another directory"
            )
