"""How attention is computed."""

from typing import NamedTuple

from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.types import Normalizer, Score


class How(NamedTuple):
    """Which score and normaliser, in blocks or not, with weights or without."""

    score: Score
    normalizer: Normalizer = masked_softmax
    chunk_size: int | None = None
    need_weights: bool = True
