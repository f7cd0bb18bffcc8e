"""The feed-forward network of a Transformer block."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import PrecisionLike
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention.checks import check_rate, check_size
from flax_attn.attention.how import Across
from flax_attn.attention.layers.attention import as_input
from flax_attn.attention.layers.dense import on_one_axis
from flax_attn.types import Options


class FeedForward(nn.Module):
    """Two dense layers at each position, `W_2 f(W_1 x + b_1) + b_2`.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), eq. 2.

    Attributes:
        features: width of the hidden layer.
        activation: `f`.
        dropout_rate: share of the hidden units that are dropped in training.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
        precision: precision of both products, as in `jax.lax.Precision`.
        across: as in `attend`, where it cuts the positions over devices. They then stay an axis of
            their own, and none leaves its device.
    """

    features: int
    activation: Callable[[Array], Array] = nn.relu
    dropout_rate: float = 0.0
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = None
    across: Across | None = None

    def __post_init__(self):
        check_size("features", self.features)
        check_rate("dropout_rate", self.dropout_rate)
        super().__post_init__()

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*b t d"], *, train: bool = False
    ) -> Float[Array, "*b t d"]:
        inputs = as_input("inputs", inputs, self.dtype)
        options: Options = {
            "dtype": inputs.dtype,
            "param_dtype": self.param_dtype,
            "precision": self.precision,
            "dot_general": None if self.across else on_one_axis,
        }
        hidden = self.activation(nn.Dense(self.features, **options, name="hidden")(inputs))
        hidden = nn.Dropout(self.dropout_rate, deterministic=not train)(hidden)
        return nn.Dense(inputs.shape[-1], **options, name="out")(hidden)
