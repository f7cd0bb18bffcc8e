"""The attention library: scores, masks, normalisers, `attend`, and Flax layers around them.

The functions need jax, numpy, jaxtyping and chex. A layer is imported, and flax with it, when it is
first used. The layers are those of `flax.linen`; `flax_attn.attention.nnx` has the same for
`flax.nnx`. The rest of the package, with all that it requires, is not imported.
"""

import importlib
from typing import TYPE_CHECKING

from flax_attn.attention import masks
from flax_attn.attention.cache import KeyValueCache, SlidingCache, StateCache
from flax_attn.attention.core import (
    Across,
    Attended,
    Form,
    attend,
    dot_product_attention,
    form_of,
    log_sum_exp,
)
from flax_attn.attention.lens import Lens
from flax_attn.attention.linear import (
    causal_convolution,
    elu_plus_one,
    l2_normalized,
    linear_attention,
)
from flax_attn.attention.normalizers import (
    across_queries,
    entmax15,
    hard,
    masked_softmax,
    monotonic_expectation,
    monotonic_hard,
    sampled_hard,
    sparsemax,
    top_k,
    with_sink,
)
from flax_attn.attention.positions import (
    alibi,
    binary_digits,
    rotary,
    scaled_frequencies,
    sinusoidal,
)
from flax_attn.attention.scores import (
    additive,
    bilinear,
    concat,
    cosine,
    dot,
    location,
    no_score,
    scaled_dot,
    trilinear,
)

if TYPE_CHECKING:
    from flax_attn.attention.layers.attention import (
        Attention,
        HardAttention,
        LocalAttention,
        PredictiveLocalAttention,
        SelfAttention,
    )
    from flax_attn.attention.layers.learned import (
        AdditiveScore,
        BilinearScore,
        ConcatScore,
        LearnedPositions,
        RelativeBias,
        TrilinearScore,
    )
    from flax_attn.attention.layers.linear import LinearAttention
    from flax_attn.attention.layers.multi_head import MultiHeadAttention
    from flax_attn.attention.layers.other_libraries import (
        linen_attention_fn,
        multi_head_params_from_torch,
        nnx_attention_fn,
    )
    from flax_attn.attention.layers.pooling import (
        AttentionPooling,
        InputAttentionCell,
        StructuredSelfAttention,
        diversity_penalty,
    )
    from flax_attn.attention.layers.transformer import (
        BlockStack,
        DecoderBlock,
        EncoderBlock,
        FeedForward,
    )

# of `layers/`
FILES = (
    "attention",
    "learned",
    "linear",
    "multi_head",
    "other_libraries",
    "pooling",
    "transformer",
)

__all__ = [
    "Across",
    "AdditiveScore",
    "Attended",
    "Attention",
    "AttentionPooling",
    "BilinearScore",
    "BlockStack",
    "ConcatScore",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "Form",
    "HardAttention",
    "InputAttentionCell",
    "KeyValueCache",
    "LearnedPositions",
    "Lens",
    "LinearAttention",
    "LocalAttention",
    "MultiHeadAttention",
    "PredictiveLocalAttention",
    "RelativeBias",
    "SelfAttention",
    "SlidingCache",
    "StateCache",
    "StructuredSelfAttention",
    "TrilinearScore",
    "across_queries",
    "additive",
    "alibi",
    "attend",
    "bilinear",
    "binary_digits",
    "causal_convolution",
    "concat",
    "cosine",
    "diversity_penalty",
    "dot",
    "dot_product_attention",
    "elu_plus_one",
    "entmax15",
    "form_of",
    "hard",
    "l2_normalized",
    "linear_attention",
    "linen_attention_fn",
    "location",
    "log_sum_exp",
    "masked_softmax",
    "masks",
    "monotonic_expectation",
    "monotonic_hard",
    "multi_head_params_from_torch",
    "nnx_attention_fn",
    "no_score",
    "rotary",
    "sampled_hard",
    "scaled_dot",
    "scaled_frequencies",
    "sinusoidal",
    "sparsemax",
    "top_k",
    "trilinear",
    "with_sink",
]


if not TYPE_CHECKING:  # a type checker knows the layers above, and refuses other names

    def __getattr__(name: str) -> object:
        for file in FILES if name in __all__ else ():
            module = importlib.import_module(f"{__name__}.layers.{file}")
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
