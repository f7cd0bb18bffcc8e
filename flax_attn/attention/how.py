"""How attention is computed."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array

from flax_attn.attention.normalizers import masked_softmax


class How(NamedTuple):
    """Which score and normaliser, in blocks or not, with weights or without."""

    score: Callable[..., Array]
    normalizer: Callable[..., Array] = masked_softmax
    chunk_size: int | None = None
    need_weights: bool = True
