"""Checkpoints that earlier versions wrote with Orbax."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp

from flax_attn.logs import same_handlers
from flax_attn.runs.arrays import by_path, check_layout, layout
from flax_attn.types import Tree

STATE, SUMS = "default", "sums"  # folders in that of a checkpoint
LATER = ("bad_steps", "bad_in_a_row")  # fields of a state that came later


def read_state(folder: Path, template: Tree, stored: dict[str, str]) -> Tree:
    """A state like the template. Fields that came later are zeros.

    Args:
        folder: of the checkpoint.
        template: its values do not matter.
        stored: dtype and shape of every array, from the checkpoint's metadata. Orbax casts without
            a word.
    """
    later = {name for name in LATER if hasattr(template, name) and f".{name}" not in stored}
    expected = layout(by_path(template))
    for name in later:
        expected.pop(f".{name}")
    check_layout(folder, stored, expected)
    if not later:
        return read(folder / STATE, template)
    fields = {field.name: getattr(template, field.name) for field in dataclasses.fields(template)}
    known = {name: value for name, value in fields.items() if name not in later}
    zeros = {name: jnp.zeros(fields[name].shape, fields[name].dtype) for name in later}
    return template.replace(**read(folder / STATE, known), **zeros)


@same_handlers()
def read(item: Path, template: Tree) -> Tree:
    """What Orbax wrote into one folder."""
    import orbax.checkpoint as ocp  # a fifth of a second, for earlier versions alone

    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(item.absolute(), template)
