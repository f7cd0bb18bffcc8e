"""Linear attention as a module of `flax.nnx`."""

import dataclasses

from flax import nnx
from jax.typing import DTypeLike

from flax_attn.attention.cache import StateCache
from flax_attn.attention.layers import linear
from flax_attn.attention.layers.shells import Norm, lecun
from flax_attn.attention.nnx.shell import NO_METADATA, Metadata, Shell


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class LinearAttention(linear.LinearAttentionBase, Shell):
    """Causal attention without softmax, in several heads, as in Gated DeltaNet."""

    in_features: int
    norm: Norm = nnx.RMSNorm
    kernel_metadata: Metadata = NO_METADATA
    bias_metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        linear.check_rule(self)
        width, widths = self.in_features, self._widths(self.in_features)
        if "decay" in widths:
            self._add_param("decay_bias", rngs, linear.small_steps, (widths["decay"],))
            self._add_param("decay_rate", rngs, linear.log_uniform, (self.num_heads,))
        if self.conv_size:
            channels = sum(widths[name] for name in linear.CONVOLVED)
            self._add_param("conv", rngs, lecun, (self.conv_size, channels))
        options = {"use_bias": self.use_bias, "precision": self.precision}
        for name, size in widths.items():
            self._add_dense(name, (width, size), rngs, **options)
        out = width if self.out_features is None else self.out_features
        self._add_dense("out", (widths["value"], out), rngs, **options)
        value_width = self._sizes(width).value_width
        self._add_norm("context_norm", self.norm, value_width, rngs, epsilon=self.epsilon)

    def init_cache(
        self,
        leading: tuple[int, ...],
        max_length: int | None = None,
        dtype: DTypeLike | None = None,
        window: object = None,
    ) -> StateCache:
        """Makes an empty cache, as in linen, which asks for the width of the inputs, too."""
        return super().init_cache(self.in_features, leading, max_length, dtype, window)
