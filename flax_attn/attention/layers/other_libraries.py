"""Use with other libraries: attention functions for linen and nnx, parameters from PyTorch."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax.typing import PrecisionLike
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Key

from flax_attn.attention.checks import (
    check_mapping,
    check_normalizer,
    check_size,
    known_bound,
)
from flax_attn.attention.core import compute, dot_product_attention, heads_last, make_call
from flax_attn.attention.normalizers import masked_softmax
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

    Raises:
        TypeError: an option that `dot_product_attention` does not have, or that linen passes.
    """
    _check_options(options)
    check_normalizer(options.get("normalizer", masked_softmax))
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
        if module is not None:
            if weights is None:
                raise ValueError(
                    "expected weights to sow, but chunk_size leaves none; "
                    "use sow_weights=False or chunk_size=None"
                )
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

    Raises:
        TypeError: an option that `dot_product_attention` does not have, or that nnx passes.
    """
    return linen_attention_fn(**options)


def _check_options(options: Options) -> None:
    """Raises a TypeError for an option that is unknown, or that the layer passes."""
    of_layer = {"query", "key", "value", "bias", "mask"}
    of_layer |= {"dropout_rng", "dropout_rate", "need_weights"}
    taken = inspect.signature(dot_product_attention).parameters.keys() | {"normalizer"}
    allowed = taken - of_layer
    if not options.keys() <= allowed:
        raise TypeError(
            f"expected options among {', '.join(sorted(allowed))}, "
            f"got {', '.join(sorted(options.keys() - allowed))}; the layer gives the others"
        )


def _check_position_known(query: Array, key: Array, options: Options) -> None:
    """Raises a ValueError for causality or a window, with one query at an unknown position."""
    is_limited = options.get("causal") or options.get("window")
    if query.shape[-3] == 1 < key.shape[-3] and is_limited and "query_offset" not in options:
        raise ValueError(
            "expected query_offset with causal or window for 1 query and "
            f"{key.shape[-3]} keys, which do not tell the position of the query; "
            "leave both out where the layer decodes"
        )


def _as_boolean(mask: Array) -> Array:
    """The boolean mask for zeros and ones, as linen's helpers make them.

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
        TypeError: a state that is no mapping.
        ValueError: a missing array, an array without a parameter of `MultiHeadAttention`, an array
            of another shape, or a width that is not a multiple of `num_heads`.
    """
    check_mapping("the arrays by name as state, such as layer.state_dict()", state)
    check_size("num_heads", num_heads)
    names = ("query", "key", "value")
    state = {name: jnp.asarray(array) for name, array in state.items()}
    came = sorted(state)
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
        inside = [name for name in came if name.endswith(".out_proj.weight")]
        prefix = inside[0].removesuffix("out_proj.weight") if inside else ""
        advice = f"; remove {prefix!r} from the names" if prefix else ""
        raise ValueError(
            f"expected {error} among the weights of a torch.nn.MultiheadAttention, got "
            f"{came}{advice}"
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
    if len(out) % num_heads:
        raise ValueError(f"expected num_heads to divide the width {len(out)}, got {num_heads}")
    # The last axis, `d`, becomes `(heads, d / heads)`.
    in_heads = lambda array: array.reshape(*array.shape[:-1], num_heads, -1)
    params = {name: {"kernel": in_heads(weight.T)} for name, weight in weights.items()}
    params["out"] = {"kernel": out.T.reshape(num_heads, -1, len(out))}
    for name, bias in biases.items():
        params[name]["bias"] = in_heads(bias)
    if out_bias is not None:
        params["out"]["bias"] = out_bias
    return params
