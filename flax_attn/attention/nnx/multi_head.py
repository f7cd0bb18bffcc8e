"""Multi-head attention as a module of `flax.nnx`."""

import dataclasses
import functools

from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array

from flax_attn.attention.cache import KeyValueCache, SlidingCache
from flax_attn.attention.checks import Window
from flax_attn.attention.layers.multi_head import MultiHeadBase, check_rotary, on_one_axis
from flax_attn.attention.nnx.shell import NO_METADATA, Metadata, Shell, as_inputs_are
from flax_attn.types import Options


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class MultiHeadAttention(MultiHeadBase, Shell):
    """Attention in several heads. Each head has its own projections of queries, keys and values.

    The projections `query`, `key`, `value`, `out` and `gate` are `nnx.LinearGeneral`, and their
    parameters those of `nnx.MultiHeadAttention`.

    Attributes:
        in_features: width of the inputs of queries.
        in_key_features: width of those of keys; None for `in_features`.
        in_value_features: width of those of values; None for `in_key_features`.
        query_key_norm: True for a layer norm with scales and without biases; or a class such as
            `nnx.RMSNorm`, which gets the width of a head, `param_dtype` and `rngs`.
        kernel_metadata, bias_metadata: of all projections.
        out_kernel_metadata, out_bias_metadata: of `out`, if they differ, as in Megatron's cut over
            heads.
    """

    in_features: int
    in_key_features: int | None = None
    in_value_features: int | None = None
    kernel_metadata: Metadata = NO_METADATA
    bias_metadata: Metadata = NO_METADATA
    out_kernel_metadata: Metadata | None = None
    out_bias_metadata: Metadata | None = None

    def _make_params(self, rngs: nnx.Rngs) -> None:
        check_rotary(self)
        project = functools.partial(
            nnx.LinearGeneral,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            param_dtype=self.param_dtype,
            precision=self.precision,
            promote_dtype=as_inputs_are,
            dot_general=None if self.across else on_one_axis,  # an axis that is cut stays one
            kernel_metadata=self.kernel_metadata,
            bias_metadata=self.bias_metadata,
            rngs=rngs,
        )
        width, keys, values = self.in_features, self.in_key_features, self.in_value_features
        keys = width if keys is None else keys
        values = keys if values is None else values
        key_heads, key_width, value_width = self._sizes(width)
        use_bias, heads = self.use_bias, (self.num_heads, value_width)
        self.query = project(width, (self.num_heads, key_width), use_bias=use_bias)
        self.key = project(keys, (key_heads, key_width), use_bias=use_bias)
        self.value = project(values, (key_heads, value_width), use_bias=use_bias)
        if self.output_gate:
            self.gate = project(width, heads, use_bias=use_bias)
        out_width = width if self.out_features is None else self.out_features
        out_bias = use_bias if self.out_bias is None else self.out_bias
        options: Options = {"kernel_metadata": self.out_kernel_metadata or self.kernel_metadata}
        options["bias_metadata"] = self.out_bias_metadata or self.bias_metadata
        self.out = project(heads, out_width, axis=(-2, -1), use_bias=out_bias, **options)
        if norm := self.query_key_norm:
            norm = functools.partial(nnx.LayerNorm, use_bias=False) if norm is True else norm
            self._add_norm("query_ln", norm, key_width, rngs)
            self._add_norm("key_ln", norm, key_width, rngs)
        if self.sinks:
            self._add_param("sinks", rngs, nnx.initializers.zeros, (self.num_heads,))

    def init_cache(
        self,
        leading: tuple[int, ...],
        max_length: int | None = None,
        dtype: DTypeLike | None = None,
        window: Window | None = None,
    ) -> KeyValueCache | SlidingCache:
        """Makes an empty cache for inputs `(*leading, t, in_features)`.

        Arguments and errors are those of linen, which asks for the width of the inputs, too.
        """
        return super().init_cache(self.in_features, leading, max_length, dtype, window)

    def _project(
        self,
        name: str,
        features: int | tuple[int, ...],
        inputs: Array,
        axis: int | tuple[int, ...] = -1,
    ) -> Array:
        del features, axis  # the projection was made with both
        outputs, norm = getattr(self, name)(inputs), f"{name}_ln"  # (..., *features)
        return self._normed(norm, outputs) if hasattr(self, norm) else outputs
