"""Inputs that numbers and classes are of, by the name that a run has for them."""

from flax_attn.tasks.inputs.base import Input
from flax_attn.tasks.inputs.images import Images
from flax_attn.tasks.inputs.signals import Signals
from flax_attn.tasks.inputs.texts import Texts

INPUTS: dict[str, type[Input]] = {one.name: one for one in (Signals, Images, Texts)}
