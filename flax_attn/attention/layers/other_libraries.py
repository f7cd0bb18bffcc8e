"""Use with other libraries: attention functions for linen and nnx, parameters from PyTorch."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax.typing import PrecisionLike
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Key

from flax_attn.attention import lens
from flax_attn.attention.checks import known_bound
from flax_attn.attention.core import compute, heads_last, make_call
from flax_attn.attention.scores import dot_product
from flax_attn.types import Options, UserInput


def linen_attention_fn(**options: Any) -> Callable[..., Array]:
    """Makes `dot_product_attention` an `attention_fn` of `flax.linen.MultiHeadDotProductAttention`.

        attention_fn = linen_attention_fn(window=(16, 0), chunk_size=128)
        nn.MultiHeadDotProductAttention(num_heads=8, attention_fn=attention_fn)

    `nnx_attention_fn` is its like for nnx. With a `normalizer`, as in `attend`, it stands in the
    place of softmax.

    Masks may be boolean, or zeros and ones as linen's helpers make them. Numbers below 0 or above 1
    raise a ValueError. Under `jit` the numbers cannot be checked: a number above 0 counts as True.

    Dropout takes linen's arguments. `broadcast_dropout` has no effect: each head and each batch row
    drops its own weights. `precision` is that of the layer's projections alone.

    With `sow_weights=True` the weights are sown where linen sows its own, in
    `intermediates/attention_weights`. That needs the option `chunk_size=None`.

    With `decode=True` only linen's mask contains the number of cached tokens. `causal` and `window`
    would count from the first key. They raise a ValueError unless `query_offset` gives the position
    of the query.

    Args:
        options: arguments of `dot_product_attention` other than those that linen passes, and
            `normalizer`.

    Returns:
        A function of queries `(..., q, heads, d)`, keys and values `(..., k, heads, d)` and linen's
        other arguments. It returns the context `(..., q, heads, d)`.
    """
    options["score"] = dot_product(options.pop("scale", None), options.pop("softcap", None))

    def attention_fn(
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        dropout_rng: Key[Array, ""] | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: DTypeLike | None = None,
        module: UserInput = None,  # of linen or nnx
        broadcast_dropout: bool = False,
        precision: PrecisionLike = None,
        is_causal: bool = False,
    ) -> Array:
        query, key, value = (
            array if dtype is None else array.astype(dtype) for array in (query, key, value)
        )
        mask = mask if mask is None or mask.dtype == jnp.bool_ else _as_boolean(mask)
        dropout = (
            {} if deterministic else {"dropout_rate": dropout_rate, "dropout_rng": dropout_rng}
        )
        limits: Options = options | {"causal": True} if is_causal else options
        _check_position_known(query, key, limits)
        call = make_call(
            query,
            key,
            value,
            bias=bias,
            mask=mask,
            need_weights=module is not None,
            in_heads=True,
            **dropout,
            **limits,
        )
        context, weights = heads_last(compute(call), call.visible.weights_shape)
        context = lens.at("", "context", context)  # (..., q, heads, d)
        if module is not None:
            if weights is None:
                raise ValueError("expected chunk_size=None with sow_weights=True")
            # in nnx the name stands for `nnx.Intermediate`
            module.sow("intermediates", "attention_weights", weights)
        return context

    return attention_fn


def nnx_attention_fn(**options: UserInput) -> Callable[..., Array]:
    """Makes `dot_product_attention` an `attention_fn` of `flax.nnx.MultiHeadAttention`.

        attention_fn = nnx_attention_fn(window=(16, 0), normalizer=sparsemax)
        nnx.MultiHeadAttention(8, 64, attention_fn=attention_fn, rngs=nnx.Rngs(0))

    All that `linen_attention_fn` says holds for nnx: options, masks, dropout, and shared key heads.
    The weights are sown where nnx sows its own, `nnx.Intermediate` with the name
    `attention_weights`.

    Where nnx decodes, only its mask contains the number of cached tokens. `is_causal=True`, which
    would count from the first key, is a ValueError there, as `causal` and `window` are. Newer
    versions of nnx leave `is_causal` out there.

    Args:
        options: as in `linen_attention_fn`.

    Returns:
        A function of queries `(..., q, heads, d)`, keys and values `(..., k, key heads, d)` and
        nnx's other arguments. It returns the context `(..., q, heads, d)`.
    """
    return linen_attention_fn(**options)


def _check_position_known(query: Array, key: Array, options: Options) -> None:
    """Raises a ValueError for causality or a window, with one query at an unknown position."""
    is_limited = options.get("causal") or options.get("window")
    if query.shape[-3] == 1 < key.shape[-3] and is_limited and "query_offset" not in options:
        raise ValueError(
            "expected query_offset with causal or window for 1 query, whose position is not known; "
            "leave both out where the layer decodes"
        )


def _as_boolean(mask: Array) -> Array:
    """Converts a mask of zeros and ones, as linen's helpers make them, to a boolean one.

    In an additive mask, of 0 and -inf, a 0 means the opposite. Under `jit`, where the numbers are
    not known, such a mask hides every key.
    """
    least, most = known_bound(jnp.min, mask), known_bound(jnp.max, mask)
    if least < 0 or most > 1:
        raise ValueError(
            "expected a mask of zeros and ones, 1 where a key may be attended, "
            f"got {least} to {most}; give an additive one as bias"
        )
    return mask > 0


def multi_head_params_from_torch(
    state: Mapping[str, ArrayLike], num_heads: int
) -> dict[str, dict[str, Array]]:
    """Makes parameters of `MultiHeadAttention` from those of PyTorch's `nn.MultiheadAttention`.

        state = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
        variables = {"params": multi_head_params_from_torch(state, layer.num_heads)}

    The layer norms of PyTorch add 1e-5 to the variance, and those of our blocks 1e-6. With weights
    from PyTorch, pass `epsilon=1e-5` to `EncoderBlock` or `DecoderBlock`.

    Args:
        state: the arrays of PyTorch's layer by their names. They are `in_proj_weight` `(3 d, d)`,
            or `q_proj_weight`, `k_proj_weight` and `v_proj_weight` where keys or values have
            another width; `out_proj.weight`; and `in_proj_bias` and `out_proj.bias` where the layer
            has biases.
        num_heads: number of heads of PyTorch's layer.

    Returns:
        The dict `{"query", "key", "value", "out"}` of kernels, and of biases where there are some.

    Raises:
        KeyError: a missing array.
        ValueError: an array without a parameter of `MultiHeadAttention`, or a width that is not a
            multiple of `num_heads`.
    """
    names = ("query", "key", "value")
    state = {name: jnp.asarray(array) for name, array in state.items()}
    if "in_proj_weight" in state:
        weights = dict(zip(names, jnp.split(state.pop("in_proj_weight"), 3)))  # (d, d) each
    else:
        weights = {name: state.pop(f"{name[0]}_proj_weight") for name in names}  # (d, inputs) each
    out = state.pop("out_proj.weight")  # (outputs, inputs), as PyTorch has kernels
    in_bias = state.pop("in_proj_bias", None)  # (3 d,)
    biases = {} if in_bias is None else dict(zip(names, jnp.split(in_bias, 3)))  # (d,) each
    out_bias = state.pop("out_proj.bias", None)  # (d,)
    if state:
        raise ValueError(f"expected no arrays without a parameter here, got {sorted(state)}")
    if len(out) % num_heads:
        raise ValueError(f"expected num_heads to divide the width {len(out)}, got {num_heads}")
    # The last axis, `d`, becomes `(heads, d / heads)`.
    in_heads = lambda array: array.reshape(*array.shape[:-1], num_heads, -1)
    params = {name: {"kernel": in_heads(weight.T)} for name, weight in weights.items()}
    params["out"] = {"kernel": out.T.reshape(num_heads, -1, len(out))}  # (heads, d / heads, d)
    for name, bias in biases.items():
        params[name]["bias"] = in_heads(bias)  # (heads, d / heads)
    if out_bias is not None:
        params["out"]["bias"] = out_bias
    return params
