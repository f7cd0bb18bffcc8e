"""Single-head self-attention: queries, keys and values are projections of one sequence."""

import itertools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn.attention.core import Attended, attend
from flax_attn.attention.general import dropout_options
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.projection import project_wide
from flax_attn.attention.scores import dot
from flax_attn.attention.visibility import seen


class SelfAttention(nn.Module):
    """Single-head dot-product self-attention.

        weights = softmax(scale * (x W_q + b_q) (x W_k + b_k)^T),   context = weights (x W_v + b_v)

    Source: the self-attention of Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, with one head and no output
    projection. `scale=1.0` gives the unscaled form.

    Where there are no biases and the keys are wider than the input, the scores are computed as `x (W_q W_k^T) x^T`: the
    same function of the same parameters with fewer operations.

    Attributes:
        key_features: width of queries and keys.
        value_features: width of values, and so of the context.
        scale: factor on the dot products; None for `1 / sqrt(key_features)`.
        use_bias: whether the projections have biases.
        normalizer: from energies to weights.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
        kernel_init: initialiser of the three kernels `(d, key_features)`, `(d, key_features)`, `(d, value_features)`.
        bias_init: initialiser of the three biases.
    """

    key_features: int
    value_features: int
    scale: float | None = None
    use_bias: bool = False
    normalizer: Callable[..., Array] = masked_softmax
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        mask: ArrayLike | Callable[..., Array] | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends from every position to every position; `mask` is as in `attend`, context is `(..., t, value_features)`."""
        features = inputs.shape[-1]
        sizes = {"query": self.key_features, "key": self.key_features, "value": self.value_features}
        param = lambda name, init, shape: self.param(name, init, shape).astype(inputs.dtype)
        kernels = {name: param(f"{name}_kernel", self.kernel_init, (features, size)) for name, size in sizes.items()}
        biases = {name: param(f"{name}_bias", self.bias_init, (size,)) for name, size in sizes.items() if self.use_bias}
        scale = self.key_features**-0.5 if self.scale is None else self.scale
        kernels["query"] = scale * kernels["query"]
        if self.use_bias:
            biases["query"] = scale * biases["query"]
        folded = features < self.key_features and not self.use_bias
        if folded:  # x (W_q W_k^T) x^T, where the inputs are the keys
            kernels["query"] = kernels["query"] @ kernels.pop("key").T

        def projected(inputs: Array, *names: str) -> dict[str, Array]:
            """The products with several kernels, as one with all of them side by side."""
            outputs = project_wide(inputs, jnp.concatenate([kernels[name] for name in names], axis=-1))
            if self.use_bias:
                bias = jnp.concatenate([biases[name] for name in names]).astype(outputs.dtype)
                outputs += bias.reshape((1,) * (outputs.ndim - 1) + (-1,))
            *ends, _ = itertools.accumulate(kernels[name].shape[-1] for name in names)
            return dict(zip(names, jnp.split(outputs, ends, axis=-1)))

        if mask is None:
            keys, products = inputs, projected(inputs, *kernels)
        else:  # what nobody sees is zeroed before the products, lest a NaN in padding reaches the gradients of their kernels
            found = seen(mask, None, (*inputs.shape[:-1], inputs.shape[-2]), self.chunk_size)
            queries, keys = (jnp.where(real[..., None], inputs, 0) for real in found)
            products = projected(queries, "query") | projected(keys, *(name for name in kernels if name != "query"))
        attended = attend(
            products["query"] if folded else products["query"].astype(inputs.dtype),  # folded, it may be beyond half precision
            keys if folded else products["key"].astype(inputs.dtype),
            products["value"].astype(inputs.dtype),
            score=dot,
            normalizer=self.normalizer,
            mask=mask,
            **dropout_options(self, self.dropout_rate, train),
            chunk_size=self.chunk_size,
            need_weights=need_weights,
        )
        return jax.tree.map(lambda array: array.astype(inputs.dtype), attended)
