"""The layers of `flax_attn.attention`, as modules of `flax.nnx`.

    attention = MultiHeadAttention(8, in_features=64, rotary=True, rngs=nnx.Rngs(0))
    context, weights = attention(inputs, causal=True)

Each module has the name, the arguments and the computation of the layer of `flax.linen`, which
documents them, and its tree of parameters. In nnx a module is made with its parameters, so further
arguments are keywords:

- `in_features`, the width of the inputs, and `in_key_features` where keys have another one;
- `rngs`, with the stream `params`, and `dropout` where there is dropout;
- `kernel_metadata` and `bias_metadata` of the parameters, such as a sharding, as in `nnx.Linear`.
  Initialisers may be those of `nnx.with_partitioning`.

Dropout is on at first and after `model.train()`. It is off in a layer with `deterministic=True`,
after `model.eval()` and in `nnx.view(model, deterministic=True)`. `train=` overrides all of them in
one call. Within `nnx.capture(model, nnx.Intermediate)`, attentions sow `attention_weights`.
`name_layers(model)` gives each layer its path in the model, by which a `Lens` knows it.
"""

from flax_attn.attention.nnx.attention import (
    Attention,
    HardAttention,
    LocalAttention,
    PredictiveLocalAttention,
    SelfAttention,
)
from flax_attn.attention.nnx.learned import (
    AdditiveScore,
    BilinearScore,
    ConcatScore,
    LearnedPositions,
    RelativeBias,
    TrilinearScore,
)
from flax_attn.attention.nnx.linear import LinearAttention
from flax_attn.attention.nnx.multi_head import MultiHeadAttention
from flax_attn.attention.nnx.pooling import (
    AttentionPooling,
    InputAttentionCell,
    StructuredSelfAttention,
)
from flax_attn.attention.nnx.shell import name_layers
from flax_attn.attention.nnx.transformer import BlockStack, DecoderBlock, EncoderBlock, FeedForward

__all__ = [
    "AdditiveScore",
    "Attention",
    "AttentionPooling",
    "BilinearScore",
    "BlockStack",
    "ConcatScore",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "HardAttention",
    "InputAttentionCell",
    "LearnedPositions",
    "LinearAttention",
    "LocalAttention",
    "MultiHeadAttention",
    "PredictiveLocalAttention",
    "RelativeBias",
    "SelfAttention",
    "StructuredSelfAttention",
    "TrilinearScore",
    "name_layers",
]


def __dir__() -> list[str]:
    return __all__
