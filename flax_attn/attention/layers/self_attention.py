"""Single-head self-attention: queries, keys and values are projections of one sequence."""

import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention.arrays import as_dtype_of, hide, with_rank
from flax_attn.attention.checks import as_scale, check_rate, check_size
from flax_attn.attention.core import Across, Attended, Call, compute
from flax_attn.attention.layers.attention import as_input, dropout
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.scores import dot, project_wide
from flax_attn.attention.types import Normalizer, PerPair, Window
from flax_attn.attention.visibility import Limits, Visibility, make_visibility


class SelfAttention(nn.Module):
    """Single-head dot-product self-attention.

        weights = softmax(scale * (x W_q + b_q) (x W_k + b_k)^T),   context = weights (x W_v + b_v)

    Source: the self-attention of Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, with one
    head and no output projection. `scale=1.0` gives the unscaled form.

    Without biases, and with keys wider than the input, the scores are computed as
    `x (W_q W_k^T) x^T`: the same function of the same parameters with fewer operations.

    Attributes:
        key_features: width of queries and keys.
        value_features: width of values and of the context.
        scale: factor of the dot products; None for `1 / sqrt(key_features)`.
        use_bias: whether the projections have biases.
        normalizer: a function from scores to weights.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
        across: as in `attend`.
        kernel_init: initialiser of the three kernels `(d, key_features)`, `(d, key_features)`,
            `(d, value_features)`.
        bias_init: initialiser of the three biases.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
    """

    key_features: int
    value_features: int
    scale: ArrayLike | None = None
    use_bias: bool = False
    normalizer: Normalizer = masked_softmax
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    across: Across | None = None
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    def __post_init__(self):
        check_size("key_features", self.key_features)
        check_size("value_features", self.value_features)
        check_rate("dropout_rate", self.dropout_rate)
        as_scale(self.scale)
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        causal: bool = False,
        window: Window | None = None,
        prefix_lengths: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends from every position to every position; the context is `(..., t, value_features)`.

        `mask` and `bias` are those of `attend`. `causal`, `window` and `prefix_lengths` are those
        of `dot_product_attention`. `lengths` `(...)` is the number of real positions in each batch
        row. `segments` `(..., t)` is the id of the sequence that each position belongs to.
        """
        inputs = as_input("inputs", inputs, self.dtype)
        limits: Limits = {"mask": mask, "bias": bias, "causal": causal, "window": window}
        limits |= {"prefix_lengths": prefix_lengths, "query_lengths": lengths}
        limits |= {"key_lengths": lengths, "query_segments": segments, "key_segments": segments}
        visible = make_visibility((*inputs.shape[:-1], inputs.shape[-2]), **limits)
        query, key, value = self._project(inputs, visible)
        call = Call(query, key, value, visible, dot, self.normalizer, **dropout(self, train))
        options = {"chunk_size": self.chunk_size, "across": self.across}
        context, weights = compute(call._replace(**options, need_weights=need_weights))
        weights = None if weights is None else weights.astype(inputs.dtype)
        return Attended(context.astype(inputs.dtype), weights)

    def _project(self, inputs: Array, visible: Visibility) -> tuple[Array, Array, Array]:
        """Queries, keys and values. Where the kernels are folded, the keys are the inputs.

        A position that nothing attends to, or that attends to nothing, is zeroed before the
        products. So it reaches no kernel's gradient.
        """
        kernels, biases = self._parameters(inputs)
        is_folded = inputs.shape[-1] < self.key_features and not self.use_bias
        if is_folded:  # x (W_q W_k^T) x^T
            kernels["query"] = kernels["query"] @ kernels.pop("key").T
        if visible.all_visible:
            keys, products = inputs, _project_together(inputs, kernels, biases)
        else:
            queries, keys = (hide(inputs, real) for real in visible.reachable(self.chunk_size))
            others = {name: kernel for name, kernel in kernels.items() if name != "query"}
            products = _project_together(queries, {"query": kernels["query"]}, biases)
            products |= _project_together(keys, others, biases)
        value = products["value"].astype(inputs.dtype)
        if is_folded:  # the query may be beyond the range of half precision
            return products["query"], keys, value
        return products["query"].astype(inputs.dtype), products["key"].astype(inputs.dtype), value

    def _parameters(self, inputs: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Kernels and biases by name; the scale is in those of the query."""
        sizes = {"query": self.key_features, "key": self.key_features, "value": self.value_features}
        kernels, biases, dtype = {}, {}, self.param_dtype
        for name, size in sizes.items():
            shape = inputs.shape[-1], size
            kernels[name] = self.param(f"{name}_kernel", self.kernel_init, shape, dtype)
        for name, size in sizes.items() if self.use_bias else ():
            biases[name] = self.param(f"{name}_bias", self.bias_init, (size,), dtype)
        scale = as_scale(self.scale)
        scale = self.key_features**-0.5 if scale is None else scale
        kernels, biases = jax.tree.map(lambda array: array.astype(inputs.dtype), (kernels, biases))
        for parameters in (kernels, biases):
            if "query" in parameters:
                query = parameters["query"]
                parameters["query"] = as_dtype_of(query, scale) * query
        return kernels, biases


def _project_together(
    inputs: Array, kernels: dict[str, Array], biases: dict[str, Array]
) -> dict[str, Array]:
    """The inputs' products with several kernels, computed as one product: 1.14 times as fast."""
    outputs = project_wide(inputs, jnp.concatenate(list(kernels.values()), axis=-1))
    if biases:
        bias = jnp.concatenate([biases[name] for name in kernels]).astype(outputs.dtype)
        outputs += with_rank(bias, outputs.ndim)
    *ends, _ = itertools.accumulate(kernel.shape[-1] for kernel in kernels.values())
    return dict(zip(kernels, jnp.split(outputs, ends, axis=-1)))
