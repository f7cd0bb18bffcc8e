"""The projections of multi-head attention, with rotary encoding and query-key norm."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer, PrecisionLike
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array

from flax_attn.attention.arrays import hide
from flax_attn.attention.cache import KeyValueCache, SlidingCache
from flax_attn.attention.checks import check_rate, check_size
from flax_attn.attention.dot_products import scaled_dot
from flax_attn.attention.how import Across
from flax_attn.attention.layers.attention import as_input, without_padding
from flax_attn.attention.layers.dense import layer_norm, on_one_axis
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.positions import rotary_in_heads
from flax_attn.attention.types import Normalizer, Score
from flax_attn.types import Options


class HeadSizes(NamedTuple):
    """The number of key heads, and the widths of a key and of a value in one head."""

    key_heads: int
    key_width: int
    value_width: int


class HeadProjections(nn.Module):
    """Base of `MultiHeadAttention`: its projections, and all of its attributes.

    `MultiHeadAttention` describes the attributes.
    """

    num_heads: int
    num_key_heads: int | None = None
    key_features: int | None = None
    value_features: int | None = None
    out_features: int | None = None
    score: Score | nn.Module = scaled_dot
    normalizer: Normalizer = masked_softmax
    use_bias: bool = True
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    across: Across | None = None
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros
    rotary: bool = False
    rotary_features: int | None = None
    rotary_max_period: float = 10_000.0
    query_key_norm: bool = False
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = None

    def __post_init__(self):
        check_size("num_heads", self.num_heads)
        sizes = ("num_key_heads", "key_features", "value_features", "out_features")
        for name in (*sizes, "rotary_features"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if self.rotary_features is not None and not self.rotary:
            raise ValueError(f"expected rotary=True with rotary_features={self.rotary_features}")
        check_rate("dropout_rate", self.dropout_rate)
        super().__post_init__()

    def _new(
        self,
        cache: KeyValueCache | SlidingCache,
        key: Array,
        value: Array | None,
        lengths: ArrayLike | None,
    ) -> tuple[Array, Array]:
        """Keys and values of new tokens, which are NaN where a token holds one."""
        key = as_input("key", key, self.dtype)
        value = key if value is None else as_input("value", value, self.dtype)
        key, value = without_padding(key, lengths), without_padding(value, lengths)
        finite = [jnp.isfinite(array).all(axis=-1) for array in (key, value)]
        key, value = (hide(array, is_finite) for array, is_finite in zip((key, value), finite))
        sizes = HeadSizes(cache.key.shape[-3], cache.key.shape[-1], cache.value.shape[-1])
        projected = self._keys_and_values(key, value, sizes, cache.length)
        keys, values = (
            jnp.where(is_finite[..., None, None], array, jnp.nan)
            for array, is_finite in zip(projected, finite)
        )
        return keys, values

    def _keys_and_values(
        self, key: Array, value: Array, sizes: HeadSizes, offset: ArrayLike = 0
    ) -> tuple[Array, Array]:
        """The projections `(..., k, key heads, width)` of keys and of values."""
        keys = self._project("key", (sizes.key_heads, sizes.key_width), key)
        values = self._project("value", (sizes.key_heads, sizes.value_width), value)
        return self._turned(keys, offset), values

    @nn.compact
    def _project(
        self,
        name: str,
        features: int | tuple[int, ...],
        inputs: Array,
        axis: int | tuple[int, ...] = -1,
    ) -> Array:
        dtypes: Options = {"dtype": inputs.dtype, "param_dtype": self.param_dtype}
        outputs = nn.DenseGeneral(
            features,
            axis=axis,
            use_bias=self.use_bias,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            precision=self.precision,
            dot_general=None if self.across else on_one_axis,
            name=name,
            **dtypes,
        )(inputs)
        if self.query_key_norm and name in ("query", "key"):
            outputs = layer_norm(outputs, use_bias=False, name=f"{name}_ln", **dtypes)
        return outputs

    @nn.nowrap
    def _turned(self, vectors: Array, offset: ArrayLike) -> Array:
        """Queries or keys `(..., t, heads, d)` from position `offset` on, turned if `rotary`."""
        if not self.rotary:
            return vectors
        features, max_period = self.rotary_features, self.rotary_max_period
        return rotary_in_heads(vectors, offset, features=features, max_period=max_period)

    @nn.nowrap
    def _sizes(self, features: int) -> HeadSizes:
        """The sizes of keys and values for queries of `features`."""
        heads = self.num_heads
        key_heads = heads if self.num_key_heads is None else self.num_key_heads
        key_features = features if self.key_features is None else self.key_features
        value_features = key_features if self.value_features is None else self.value_features
        if heads < 1 or key_heads < 1 or heads % key_heads:
            raise ValueError(
                "expected num_heads to be a multiple of num_key_heads, both above 0, "
                f"got {heads} and {key_heads}"
            )
        for name, size in (("key_features", key_features), ("value_features", value_features)):
            if size % heads:
                raise ValueError(f"expected {name} to be a multiple of {heads} heads, got {size}")
        return HeadSizes(key_heads, key_features // heads, value_features // heads)
