"""The attention library: scores, masks, normalisers, `attend`, and Flax layers around them.

The functions need jax alone. A layer is imported, and flax with it, when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

from flax_attn.attention import masks as masks
from flax_attn.attention.all_queries import across_queries as across_queries
from flax_attn.attention.cache import KeyValueCache as KeyValueCache
from flax_attn.attention.cache import SlidingCache as SlidingCache
from flax_attn.attention.core import Attended as Attended
from flax_attn.attention.core import attend as attend
from flax_attn.attention.core import dot_product_attention as dot_product_attention
from flax_attn.attention.dot_products import dot as dot
from flax_attn.attention.dot_products import scaled_dot as scaled_dot
from flax_attn.attention.how import Across as Across
from flax_attn.attention.lenses import Lens as Lens
from flax_attn.attention.log_sums import log_sum_exp as log_sum_exp
from flax_attn.attention.monotonic import monotonic_expectation as monotonic_expectation
from flax_attn.attention.monotonic import monotonic_hard as monotonic_hard
from flax_attn.attention.normalizers import entmax15 as entmax15
from flax_attn.attention.normalizers import hard as hard
from flax_attn.attention.normalizers import masked_softmax as masked_softmax
from flax_attn.attention.normalizers import sampled_hard as sampled_hard
from flax_attn.attention.normalizers import sparsemax as sparsemax
from flax_attn.attention.normalizers import top_k as top_k
from flax_attn.attention.positions import alibi as alibi
from flax_attn.attention.positions import binary_digits as binary_digits
from flax_attn.attention.positions import rotary as rotary
from flax_attn.attention.positions import sinusoidal as sinusoidal
from flax_attn.attention.scores import additive as additive
from flax_attn.attention.scores import bilinear as bilinear
from flax_attn.attention.scores import concat as concat
from flax_attn.attention.scores import cosine as cosine
from flax_attn.attention.scores import location as location
from flax_attn.attention.scores import no_score as no_score
from flax_attn.attention.scores import trilinear as trilinear

if TYPE_CHECKING:
    from flax_attn.attention.layers.attention import Attention as Attention
    from flax_attn.attention.layers.attention import HardAttention as HardAttention
    from flax_attn.attention.layers.feed_forward import FeedForward as FeedForward
    from flax_attn.attention.layers.input_attention import InputAttentionCell as InputAttentionCell
    from flax_attn.attention.layers.local import LocalAttention as LocalAttention
    from flax_attn.attention.layers.local import (
        PredictiveLocalAttention as PredictiveLocalAttention,
    )
    from flax_attn.attention.layers.multi_head import MultiHeadAttention as MultiHeadAttention
    from flax_attn.attention.layers.other_libraries import (
        linen_attention_fn as linen_attention_fn,
    )
    from flax_attn.attention.layers.other_libraries import (
        multi_head_params_from_torch as multi_head_params_from_torch,
    )
    from flax_attn.attention.layers.pooling import AttentionPooling as AttentionPooling
    from flax_attn.attention.layers.pooling import (
        StructuredSelfAttention as StructuredSelfAttention,
    )
    from flax_attn.attention.layers.pooling import diversity_penalty as diversity_penalty
    from flax_attn.attention.layers.positions import LearnedPositions as LearnedPositions
    from flax_attn.attention.layers.positions import RelativeBias as RelativeBias
    from flax_attn.attention.layers.scores import AdditiveScore as AdditiveScore
    from flax_attn.attention.layers.scores import BilinearScore as BilinearScore
    from flax_attn.attention.layers.scores import ConcatScore as ConcatScore
    from flax_attn.attention.layers.scores import TrilinearScore as TrilinearScore
    from flax_attn.attention.layers.self_attention import SelfAttention as SelfAttention
    from flax_attn.attention.layers.transformer import DecoderBlock as DecoderBlock
    from flax_attn.attention.layers.transformer import EncoderBlock as EncoderBlock

LAYERS = {  # the file of `layers/` that each name is in
    "AdditiveScore": "scores",
    "Attention": "attention",
    "AttentionPooling": "pooling",
    "BilinearScore": "scores",
    "ConcatScore": "scores",
    "DecoderBlock": "transformer",
    "EncoderBlock": "transformer",
    "FeedForward": "feed_forward",
    "HardAttention": "attention",
    "InputAttentionCell": "input_attention",
    "LearnedPositions": "positions",
    "LocalAttention": "local",
    "MultiHeadAttention": "multi_head",
    "PredictiveLocalAttention": "local",
    "RelativeBias": "positions",
    "SelfAttention": "self_attention",
    "StructuredSelfAttention": "pooling",
    "TrilinearScore": "scores",
    "diversity_penalty": "pooling",
    "linen_attention_fn": "other_libraries",
    "multi_head_params_from_torch": "other_libraries",
}

__all__ = [
    "Across",
    "AdditiveScore",
    "Attended",
    "Attention",
    "AttentionPooling",
    "BilinearScore",
    "ConcatScore",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "HardAttention",
    "InputAttentionCell",
    "KeyValueCache",
    "LearnedPositions",
    "Lens",
    "LocalAttention",
    "MultiHeadAttention",
    "PredictiveLocalAttention",
    "RelativeBias",
    "SelfAttention",
    "SlidingCache",
    "StructuredSelfAttention",
    "TrilinearScore",
    "across_queries",
    "additive",
    "alibi",
    "attend",
    "bilinear",
    "binary_digits",
    "concat",
    "cosine",
    "diversity_penalty",
    "dot",
    "dot_product_attention",
    "entmax15",
    "hard",
    "linen_attention_fn",
    "location",
    "log_sum_exp",
    "masked_softmax",
    "masks",
    "monotonic_expectation",
    "monotonic_hard",
    "multi_head_params_from_torch",
    "no_score",
    "rotary",
    "sampled_hard",
    "scaled_dot",
    "sinusoidal",
    "sparsemax",
    "top_k",
    "trilinear",
]


if not TYPE_CHECKING:  # a type checker knows the layers above, and refuses other names

    def __getattr__(name: str) -> object:
        if name not in LAYERS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.layers.{LAYERS[name]}"), name)


def __dir__() -> list[str]:
    return __all__
