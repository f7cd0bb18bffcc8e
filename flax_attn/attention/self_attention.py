"""Single-head self-attention: queries, keys and values are projections of one sequence."""

import functools

import flax.linen as nn
from flax.typing import Initializer
from jaxtyping import Array, Bool, Float

from flax_attn.attention.core import Attended, attend
from flax_attn.attention.energies import hide_padding
from flax_attn.attention.masks import as_mask
from flax_attn.attention.projection import project
from flax_attn.attention.scores import bilinear, dot


class SelfAttention(nn.Module):
    """Single-head dot-product self-attention.

        weights = softmax(scale * (x W_q) (x W_k)^T),   context = weights (x W_v)

    Source: the self-attention of Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, with one head and no output
    projection. `scale=1.0` gives the unscaled form.

    Where the keys are wider than the input, the scores are computed as `x (W_q W_k^T) x^T`: the same function of the
    same parameters with fewer operations.

    Attributes:
        key_features: width of queries and keys.
        value_features: width of values, and so of the context.
        scale: factor on the dot products; None for `1 / sqrt(key_features)`.
        kernel_init: initialiser of the three kernels `(d, key_features)`, `(d, key_features)`, `(d, value_features)`.
    """

    key_features: int
    value_features: int
    scale: float | None = None
    kernel_init: Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, inputs: Float[Array, "*b t d"], *, mask: Bool[Array, "..."] | None = None) -> Attended:
        """Attends from every position to every position; `mask` is as in `attend`, context is `(..., t, value_features)`."""
        features = inputs.shape[-1]
        query_kernel = self.param("query_kernel", self.kernel_init, (features, self.key_features))
        key_kernel = self.param("key_kernel", self.kernel_init, (features, self.key_features))
        value_kernel = self.param("value_kernel", self.kernel_init, (features, self.value_features))
        queries = keys = inputs
        if mask is not None:  # before the products, lest a NaN in padding reaches the gradients of their kernels
            queries, keys, _ = hide_padding(inputs, inputs, inputs, as_mask(mask))
        scale = self.key_features**-0.5 if self.scale is None else self.scale
        value = project(keys, value_kernel)
        if features < self.key_features:
            score = functools.partial(bilinear, kernel=scale * query_kernel @ key_kernel.T)
            return attend(queries, keys, value, score=score, mask=mask)
        query = project(queries, scale * query_kernel)
        key = project(keys, key_kernel)
        return attend(query, key, value, score=dot, mask=mask)
