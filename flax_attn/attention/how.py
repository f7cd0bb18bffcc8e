"""How attention is computed."""

from typing import NamedTuple

from jax.sharding import Mesh

from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.types import Normalizer, Score


class Across(NamedTuple):
    """Cuts the sequence over the devices along an axis of a mesh.

    Each device computes the context of its queries. In both ways the results and gradients are
    those of one device but for rounding, with every mask, bias and dropout. Lengths need not
    divide. Batches may be cut over other axes of the mesh.

    - On a *ring*, keys and values go round from device to device. No device holds them all. The
      normaliser is softmax, and the weights are None. A window ends the ring early. Under
      causality without such a window, each device takes an early and a late piece of the sequence,
      so all have the same work.
    - *Gathered*, each device gets all keys and values, and computes rows of weights. The normaliser
      is any that takes rows.

    Use it under `jax.jit`. Without it, each call compiles again. Inside another `jax.shard_map`, a
    score, mask or bias that is a function may close over no array of JAX, and gradients need its
    `check_vma=False`. An array mask is stored whole on each device. A mask function needs no
    memory. The rows of an array bias are cut.

    Source: Liu et al. 2023 (arXiv:2310.01889) for the ring.

    Attributes:
        mesh: the mesh; None for that of `jax.set_mesh` or of the `jax.shard_map` around. Where
            there is one around, it is the same.
        axis: its name.
        ring: True for a ring, False for gathered keys. None chooses a ring for softmax where no
            weights are wanted.
    """

    mesh: Mesh | None = None
    axis: str = "sequence"
    ring: bool | None = None


class How(NamedTuple):
    """Which score and normaliser, in blocks or not, with weights or without, on which devices.

    `is_cached` says that keys and values lie in memory with heads first, as in a cache.
    """

    score: Score
    normalizer: Normalizer = masked_softmax
    chunk_size: int | None = None
    need_weights: bool = True
    across: Across | None = None
    is_cached: bool = False
