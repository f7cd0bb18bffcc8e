"""Into and out of other people's code: an attention function for `flax.linen`, and weights from PyTorch."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Key

from flax_attn.attention.checks import known_bound
from flax_attn.attention.core import dot_product_attention


def linen_attention_fn(**options: Any) -> Callable[..., Array]:
    """An `attention_fn` for `flax.linen.MultiHeadDotProductAttention` that is `dot_product_attention` with these options.

        nn.MultiHeadDotProductAttention(num_heads=8, attention_fn=linen_attention_fn(window=(16, 0), chunk_size=128))

    Masks may be those of linen's helpers, which are zeros and ones; numbers below 0 or above 1 are a ValueError, and under `jit`,
    where they are not known, those below 0 attend to nothing. Dropout follows linen's
    arguments, and draws for every head and row of its own. With `sow_weights=True` the weights are sown as linen's are,
    in `intermediates/attention_weights`; they need an option `chunk_size` of None.

    With `decode=True` linen's mask alone knows how many tokens are cached: `causal` and `window`, which would count from the first, are
    refused there, unless `query_offset` says where the query stands.

    Raises:
        TypeError: an option that `dot_product_attention` does not have, or that linen itself gives.
    """

    own = {"query", "key", "value", "bias", "mask", "dropout_rng", "dropout_rate", "need_weights"}
    known = inspect.signature(dot_product_attention).parameters.keys() - own
    if not options.keys() <= known:
        raise TypeError(
            f"expected options among {', '.join(sorted(known))}, got {', '.join(sorted(options.keys() - known))}; linen gives the others"
        )

    def attention_fn(
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        dropout_rng: Key[Array, ""] | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        module: nn.Module | None = None,
    ) -> Array:
        query, key, value = (
            array if dtype is None else array.astype(dtype) for array in (query, key, value)
        )
        if (
            query.shape[-3] == 1 < key.shape[-3]
            and "query_offset" not in options
            and (options.get("causal") or options.get("window"))
        ):
            raise ValueError(
                f"expected query_offset with causal or window for 1 query and {key.shape[-3]} keys, which do not say where it stands; "
                "leave both out where linen decodes"
            )
        mask = mask if mask is None or mask.dtype == jnp.bool_ else _as_boolean(mask)
        dropout = (
            {} if deterministic else {"dropout_rate": dropout_rate, "dropout_rng": dropout_rng}
        )
        context, weights = dot_product_attention(
            query,
            key,
            value,
            bias=bias,
            mask=mask,
            need_weights=module is not None,
            **dropout,
            **options,
        )
        if module is not None:
            if weights is None:
                raise ValueError(
                    "expected weights to sow, but chunk_size leaves none; use sow_weights=False or chunk_size=None"
                )
            module.sow("intermediates", "attention_weights", weights)
        return context

    return attention_fn


def _as_boolean(mask: Array) -> Array:
    """A mask of zeros and ones as linen's helpers make it. One that is added, 0 and -inf, means the opposite: it masks all."""
    least, most = known_bound(jnp.min, mask), known_bound(jnp.max, mask)
    if least < 0 or most > 1:
        raise ValueError(
            f"expected a mask of zeros and ones, 1 where a key may be attended, got {least} to {most}; give an additive one as bias"
        )
    return mask > 0


def multi_head_params_from_torch(
    state: Mapping[str, ArrayLike], num_heads: int
) -> dict[str, dict[str, Array]]:
    """The parameters of `MultiHeadAttention` from those of PyTorch's `nn.MultiheadAttention`, as plain arrays.

        state = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
        variables = {"params": multi_head_params_from_torch(state, layer.num_heads)}

    Args:
        state: `in_proj_weight` `(3 d, d)`, or `q_proj_weight`, `k_proj_weight` and `v_proj_weight` of a layer with widths of
            its own; `out_proj.weight`; and, where it has biases, `in_proj_bias` and `out_proj.bias`.
        num_heads: of the layer.

    Raises:
        ValueError: arrays that are missing, that this layer has no place for, or that the heads do not divide.
    """
    names = ("query", "key", "value")
    state = {name: jnp.asarray(array) for name, array in state.items()}
    try:
        if "in_proj_weight" in state:
            stacked = state.pop("in_proj_weight")
            if stacked.ndim != 2 or stacked.shape[0] != 3 * stacked.shape[1]:
                raise ValueError(f"expected in_proj_weight of shape (3 d, d), got {stacked.shape}")
            weights = dict(zip(names, jnp.split(stacked, 3)))
        else:
            weights = {name: state.pop(f"{name[0]}_proj_weight") for name in names}
        out = state.pop("out_proj.weight")
    except KeyError as error:
        raise ValueError(
            f"expected {error} among the weights of a torch.nn.MultiheadAttention, got {sorted(state)}"
        ) from None
    in_bias = state.pop("in_proj_bias", None)
    if in_bias is not None and in_bias.shape != (3 * len(out),):
        raise ValueError(f"expected in_proj_bias of shape {(3 * len(out),)}, got {in_bias.shape}")
    biases = {} if in_bias is None else dict(zip(names, jnp.split(in_bias, 3)))
    out_bias = state.pop("out_proj.bias", None)
    if state:
        raise ValueError(
            f"expected no {' or '.join(sorted(state))}: this layer has no such parameters"
        )
    if num_heads < 1 or len(out) % num_heads:
        raise ValueError(f"expected num_heads to divide the width {len(out)}, got {num_heads}")
    split = lambda array: array.reshape(*array.shape[:-1], num_heads, -1)
    params = {
        name: {"kernel": split(weight.T)} for name, weight in weights.items()
    }  # (d, heads, d / heads)
    params["out"] = {"kernel": out.T.reshape(num_heads, -1, len(out))}
    for name, bias in biases.items():
        params[name]["bias"] = split(bias)
    if out_bias is not None:
        params["out"]["bias"] = out_bias
    return params
