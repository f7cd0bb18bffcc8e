"""Attention from the arguments to the result: what is visible, the form, and the formula itself.

    scores  = score(query, key) + bias       (..., q, k)
    weights = normalizer(scores, mask=mask)  (..., q, k), rows sum to 1 or less; to 0 if all masked
    context = weights value                  (..., q, e)

`attend` and `dot_product_attention` check their arguments and make a `Call`. `compute` looks
through the lens, if there is one, and chooses a form. `Call.dense` is the formula, which fits every
call. The other forms in `forms/` compute the same faster, in less memory, or on several devices.

Letters: `q` queries, `k` keys, `d` features of a query or key, `e` features of a value.
"""

from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from flax_attn import platforms
from flax_attn.attention import lens
from flax_attn.attention.arrays import add, product, wide
from flax_attn.attention.checks import (
    HeadVectors,
    Normalizer,
    PerPair,
    Score,
    Vectors,
    as_floats,
    check_dropout,
    weights_shape,
    weights_shape_in_heads,
)
from flax_attn.attention.forms import blockwise, devices, few_queries, kernels
from flax_attn.attention.normalizers import drop, masked_softmax
from flax_attn.attention.scores import dot_product, scaled_dot
from flax_attn.attention.visibility import (
    Indices,
    Limits,
    Visibility,
    make_visibility,
    with_limits,
)
from flax_attn.types import UserInput

Shaped = ArrayLike | jax.ShapeDtypeStruct

# By name: why a form does not fit a call, and the form. The first that fits computes a call whose
# weights are not returned.
FORMS = {
    "cudnn": (kernels.why_not_cudnn, kernels.attend_by_cudnn),  # no array of all pairs exists
    "splash": (kernels.why_not_splash, kernels.attend_by_splash),  # skips blocks outside the mask
    "few_queries": (few_queries.why_not, few_queries.attend),  # few queries to a cache, on CPU
    "blockwise": (blockwise.why_not, blockwise.attend),  # memory is linear in the length
    "query_blocks": (blockwise.why_not_in_rows, blockwise.attend_in_rows),
}


class Attended(NamedTuple):
    """The result of attention: context `(..., q, e)`, and weights `(..., q, k)` before dropout."""

    context: Float[Array, "..."]
    weights: Float[Array, "..."] | None


class Across(NamedTuple):
    """Cuts the sequence over the devices along an axis of a mesh.

    Each device computes the context of its queries. In both ways the results and gradients are
    those of one device up to rounding, with every mask, bias and dropout. Lengths need not
    divide. Batches may be cut over other axes of the mesh.

    - On a *ring*, keys and values go round from device to device. No device holds them all. The
      normaliser is softmax, and the weights are None. A window ends the ring early. Under
      causality without such a window, each device takes an early and a late piece of the sequence,
      so all have the same work.
    - *Gathered*, each device gets all keys and values, and computes rows of weights. The normaliser
      is any that takes rows.

    Use it under `jax.jit`. Without it, each call compiles again. Inside another `jax.shard_map`, a
    score, mask or bias that is a function may close over no array of JAX, and gradients need its
    `check_vma=False`. An array mask is stored whole on each device. A mask function needs no
    memory. The rows of an array bias are cut.

    Source: Liu et al. 2023 (arXiv:2310.01889) for the ring.

    Attributes:
        mesh: the mesh; None for that of `jax.set_mesh` or of the `jax.shard_map` around. Where
            there is one around, it is the same.
        axis: its name.
        ring: True for a ring, False for gathered keys. None chooses a ring for softmax where no
            weights are wanted.
    """

    mesh: Mesh | None = None
    axis: str = "sequence"
    ring: bool | None = None


class Call(NamedTuple):
    """One call of attention. Its arguments are checked, and heads stand before the length.

    Attributes:
        query, key, value: `(..., q, d)`, `(..., k, d')`, `(..., k, e)`.
        visible: what each query sees.
        score, normalizer, dropout_rate, dropout_rng, chunk_size, need_weights, across: as in
            `attend`.
        is_cached: whether keys and values come from a cache.
        indices: which queries and keys the arrays hold; None for all.
        name: of the layer, its path in the model. A lens tells attentions apart by it.
    """

    query: Array
    key: Array
    value: Array
    visible: Visibility
    score: Score = scaled_dot
    normalizer: Normalizer = masked_softmax
    dropout_rate: float = 0.0
    dropout_rng: Array | None = None
    chunk_size: int | None = None
    need_weights: bool = True
    across: Across | None = None
    is_cached: bool = False
    indices: Indices | None = None
    name: str = ""

    @property
    def wants_weights(self) -> bool:
        """Returns whether all pairs' weights are computed, which the formula alone does."""
        return self.need_weights and self.chunk_size is None

    def dense(self) -> tuple[Array, Array]:
        """Computes context and weights by the formula, of all pairs at once."""
        arrays = self.query, self.key, self.value
        query, key, value, mask, bias = self.visible.shown(*arrays, self.indices)
        scores = self.scores(query, key)  # (..., q, k)
        scores = scores if bias is None else add(scores, bias)  # (..., q, k)
        weights = self.normalizer(scores, mask=mask)  # (..., q, k)
        _check_result("weights", weights, scores.shape)
        context = product("...qk,...ke->...qe", self.dropped(weights), value, wide(value.dtype))
        return context, weights

    def scores(self, query: Array, key: Array) -> Array:
        """Computes the scores of some queries and keys, and checks their shape."""
        scores = self.score(query, key)
        shape = (*self.visible.shape[:-2], query.shape[-2], key.shape[-2])  # (..., q, k)
        _check_result("a score", scores, shape)
        return scores

    def dropped(self, weights: Array) -> Array:
        """Drops weights, those of the queries and keys that the arrays hold."""
        if not self.dropout_rate:
            return weights
        indices = self.visible.all_indices() if self.indices is None else self.indices
        return drop(weights, self.dropout_rate, self.dropout_rng, indices.queries, indices.keys)

    def on_one_device(self) -> Attended:
        """Computes the call by the first form that fits it, or by the formula."""
        name = chosen(self).name
        if name in FORMS:
            _, attend = FORMS[name]
            return Attended(attend(self).astype(self.query.dtype), None)  # (..., q, e)
        context, weights = self.dense()  # (..., q, e), (..., q, k)
        weights = weights.astype(self.query.dtype) if self.wants_weights else None  # (..., q, k)
        return Attended(context.astype(self.query.dtype), weights)  # sums were in float32 or wider


@with_limits
def attend(
    query: Vectors,
    key: Vectors,
    value: Vectors,
    *,
    score: Score = scaled_dot,
    normalizer: Normalizer = masked_softmax,
    dropout_rate: float = 0.0,
    dropout_rng: Key[Array, ""] | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
    across: Across | None = None,
    **limits: Unpack[Limits],
) -> Attended:
    """Attends: `context = normalizer(score(query, key) + bias, mask=mask) value`.

    Source: Bahdanau et al. 2015 (arXiv:1409.0473) section 3.1 for the form, Vaswani et al. 2017
    (arXiv:1706.03762) section 3.2 for the names of its parts.

    Args:
        query, key, value: `(..., q, d)`, `(..., k, d')`, `(..., k, e)`; leading axes are equal, or
            1 on one side.
        score: `(query, key) -> (..., q, k)`. It gets vectors, not positions. Bind parameters by a
            closure or `functools.partial`. Make them before the call: JAX may trace a score twice.
            Padding becomes zero vectors, so the gradient of the score must be finite there.
        normalizer: `(scores, mask=mask) -> weights` over the last axis.
        mask: boolean, True where a query may attend to a key; broadcasts to the weights. So a mask
            of the keys of each batch row is `(b, 1, k)`: one of two axes is `(q, k)`. Or a function
            of the positions of queries `(q, 1)` and keys `(1, k)` that returns such an array, such
            as `masks.causal`. A query that may attend to no key gets context 0 and weights 0.
            Neither it nor a key that no query may attend to changes any other result or gradient,
            even if it holds NaN.
        bias: is added to the scores; an array or a function, like the mask; `-inf` masks.
        causal, window, query_offset, prefix_lengths, query_lengths, key_lengths, query_segments,
            key_segments: as in `dot_product_attention`.
        dropout_rate: share of the weights that are dropped. The others are scaled by
            `1 / (1 - rate)`. It needs `dropout_rng`.
        chunk_size: None computes all scores at once. With a number, queries and keys are processed
            in blocks of that size. Context and gradients are the same, memory is linear in the
            lengths, and the weights are None. A block is skipped if none of its queries may attend
            to any of its keys. Normalisers other than softmax get blocks of queries with all keys.
            Those marked by `across_queries` get all scores at once.
        need_weights: with False the weights are None. A fixed rule then chooses a block size if
            blocks are faster.
        across: cuts queries and keys over the devices of a mesh, as `Across` describes.

    Softmax in blocks has no forward-mode derivative and no second derivative: JAX raises a
    TypeError. Without `chunk_size` and with `need_weights=True`, there are both.

    Returns:
        `Attended(context, weights)` in the query's dtype; the weights are those before dropout.

    Raises:
        TypeError: a query, key, value or bias that is not of floats, a mask that is not boolean (an
            additive one belongs in `bias`), or a normaliser that does not take `mask=`.
        ValueError: shapes that do not fit, a mask or bias that does not broadcast to the weights, a
            rate outside [0, 1), dropout without a random key, or a chunk size below 1. With
            `across`: no mesh, one without the axis, or a normaliser that needs all queries.
    """
    options = dropout_rate, dropout_rng, chunk_size, need_weights, across
    return compute(make_call(query, key, value, score, normalizer, *options, **limits))


@with_limits
def dot_product_attention(
    query: HeadVectors,
    key: HeadVectors,
    value: HeadVectors,
    *,
    scale: ArrayLike | None = None,
    softcap: ArrayLike | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: Key[Array, ""] | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
    across: Across | None = None,
    **limits: Unpack[Limits],
) -> Attended:
    """Attends in several heads, by dot products: `softmax(scale q k^T + bias) v` in each.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), eq. 1; Ainslie et al. 2023 (arXiv:2305.13245)
    for grouped heads; Gemma Team 2024 (arXiv:2408.00118), section 2, for the soft-cap.

    Args:
        query, key, value: `(..., q, heads, d)`, `(..., k, key_heads, d)`, `(..., k, key_heads, e)`.
            The number of heads is a multiple of the number of key heads; consecutive heads share a
            key head.
        mask: boolean, True where a query may attend to a key; broadcasts to `(..., heads, q, k)`.
            Beside batch rows an array of three axes must be `(1, q, k)`: write `mask[:, None]` for
            one a batch row, `mask[None]` for one a head. Or a function of the positions of queries
            `(q, 1)` and keys `(1, k)`. Query positions start at `query_offset`; they are
            `(..., q, 1)` if each batch row has its own. A key is visible only if the mask and the
            arguments from `causal` to `key_segments` all allow it.
        bias: is added to the scores; an array or a function, like the mask; `-inf` masks.
        scale: factor of the dot products, a number, which may be traced; None for `1 / sqrt(d)`.
        causal: a query attends to no key after its own position.
        window: `(left, right)`, the number of keys before and after the query's position that it
            attends to; None for no bound.
        query_offset: query `i` is at the position of key `query_offset + i`; an integer, or one for
            each leading index, `(...)`. 0 in training, the number of cached keys in decoding.
        prefix_lengths: `(...)`, the number of first keys in each batch row that every query sees,
            whatever `causal` and `window` say of them (prefix-LM). Masks, lengths and segments hide
            them as others.
        query_lengths, key_lengths: `(...)`, the number of real queries and keys in each batch row.
        query_segments, key_segments: `(..., q)` and `(..., k)`, the ids of the sequences that are
            packed into each batch row. A query attends to the keys with its id. Ids are integers of
            32 bits, or of 64 with `jax_enable_x64`.
        softcap: a number above 0. A score `e` becomes `softcap tanh(e / softcap)`, before the bias,
            so it lies between `-softcap` and `softcap`. None for no limit.
        dropout_rate, dropout_rng, chunk_size: as in `attend`.
        need_weights: with False the weights are None. A fixed rule then chooses the fastest form:
            blocks for long sequences, or a kernel of the platform: cuDNN's on an NVIDIA GPU in half
            precision, splash attention on a TPU. `form_of` tells which form it is and why, and
            `attend` which derivatives it has.
        across: as in `attend`.

    Returns:
        `Attended` with the context `(..., q, heads, e)` and the weights `(..., heads, q, k)`,
        before dropout.

    Raises:
        TypeError, ValueError: as `attend`; heads that do not divide; lengths that are negative or
            not integers; `prefix_lengths` without `causal` and `window`; a scale or soft-cap that
            is no number, such as an array of several; a soft-cap that is not above 0.
    """
    score = dot_product(scale, softcap)
    options = dropout_rate, dropout_rng, chunk_size, need_weights, across
    call = make_call(query, key, value, score, masked_softmax, *options, in_heads=True, **limits)
    context, weights = heads_last(compute(call), call.visible.weights_shape)  # (..., q, heads, e)
    return Attended(lens.at("", "context", context), weights)


class Form(NamedTuple):
    """The form that a call takes, and why faster ones do not fit.

    Attributes:
        name: of the form.
        why_not: a reason for each faster form, by its name.
    """

    name: str
    why_not: dict[str, str]


def form_of(
    query: Shaped,
    key: Shaped,
    value: Shaped,
    *,
    platform: str | None = None,
    **arguments: UserInput,
) -> Form:
    """Tells which form of attention a call takes, and computes nothing.

        form_of(q, k, v, causal=True, need_weights=False)
        Form(name='blockwise', why_not={'cudnn': 'the program is not for a GPU of NVIDIA', ...})

    Args:
        query, key, value: arrays `(..., t, heads, d)`, or `(..., t, d)` for `attend`; or their
            `jax.ShapeDtypeStruct`.
        platform: `cpu`, `cuda`, `rocm`, `tpu` or `portable`, as `platforms.compiling_for` says;
            None for that of this machine.
        arguments: those of `dot_product_attention`, or of `attend` where `score` or `normalizer` is
            among them.

    Returns:
        The name, `dense`, `query_blocks`, `blockwise`, `cudnn`, `splash`, `ring` or `gathered`, and
        a reason for each faster form that does not fit on one device. Layers that read a cache may
        also take `few_queries`.

    Raises:
        TypeError, ValueError: as the function that takes these arguments.
    """
    if not {"score", "normalizer"} & arguments.keys():
        score = dot_product(arguments.pop("scale", None), arguments.pop("softcap", None))
        arguments |= {"in_heads": True, "score": score}
    form = Form("", {})

    def choose(query: Array, key: Array, value: Array) -> Array:
        nonlocal form
        call = make_call(query, key, value, **arguments)
        form = chosen(lens.look_through(checked(call)))
        return query

    with platforms.compiling_for(platform or platforms.current()):
        jax.eval_shape(choose, query, key, value)
    return form


def chosen(call: Call) -> Form:
    """Names the form that a call takes."""
    if call.across is not None:
        return Form("ring" if devices.is_ring(call) else "gathered", {})
    if call.wants_weights:
        return Form("dense", dict.fromkeys(FORMS, "weights are wanted"))
    reasons = {}
    for name, (why_not, _) in FORMS.items():
        if not (reason := why_not(call)):
            return Form(name, reasons)
        reasons[name] = reason
    return Form("dense", reasons)


def compute(call: Call) -> Attended:
    """Computes a call, through the lens if there is one, by the form that fits it."""
    call = lens.look_through(checked(call))
    shape = call.visible.shape
    if 0 in shape:  # so no form or score meets an empty axis
        context = jnp.zeros((*shape[:-1], call.value.shape[-1]), call.query.dtype)  # (..., q, e)
        on_ring = call.across is not None and call.across.ring
        has_weights = call.wants_weights and not on_ring
        weights = jnp.zeros(shape, call.query.dtype) if has_weights else None  # (..., q, k)
    elif call.across is None:
        context, weights = call.on_one_device()
    else:
        context, weights = devices.attend(call)
    return Attended(context, weights)


def checked(call: Call) -> Call:
    """Returns the call. Raises a ValueError for a block size that does not cut its lengths."""
    if call.chunk_size is None:
        return call
    if platforms.has_explicit_axes(call.query):
        raise ValueError("expected no chunk_size with explicit axes; use jax.sharding.auto_axes")
    if call.chunk_size < 1 or any(map(jax.export.is_symbolic_dim, call.visible.shape[-2:])):
        raise ValueError(
            "expected a chunk_size of 1 or above, and None in a program for any length, got "
            f"{call.chunk_size}"
        )
    return call


def make_call(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    score: Score = scaled_dot,
    normalizer: Normalizer = masked_softmax,
    dropout_rate: float = 0.0,
    dropout_rng: Array | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
    across: Across | None = None,
    *,
    in_heads: bool = False,
    name: str = "",
    **limits: Unpack[Limits],
) -> Call:
    """Checks arguments, and makes a call of them; `in_heads` for arrays `(..., t, heads, d)`."""
    query, key, value = as_floats("query", query), as_floats("key", key), as_floats("value", value)
    shape = (weights_shape_in_heads if in_heads else weights_shape)(query, key, value)
    visible = make_visibility(shape, shape[-3:-2] if in_heads else (), **limits)
    check_dropout(dropout_rate, dropout_rng)
    options = score, normalizer, float(dropout_rate), dropout_rng, chunk_size, need_weights, across
    call = Call(query, key, value, visible, *options, name=name)
    return heads_first(call) if in_heads else call


def heads_first(call: Call) -> Call:
    """Puts the heads of arrays `(..., t, heads, d)` before the length; groups share key heads."""
    heads, key_heads = call.query.shape[-2], call.key.shape[-2]
    groups = None if heads == key_heads else key_heads
    visible = call.visible if groups is None else call.visible.in_groups(heads // key_heads)
    query, key, value = (before_length(array, groups) for array in call[:3])
    return call._replace(query=query, key=key, value=value, visible=visible)


def before_length(array: Array, groups: int | None) -> Array:
    """Puts the heads of `(..., t, heads, d)` before the length, in groups if there are any."""
    array = jnp.swapaxes(array, -3, -2)  # (..., heads, t, d)
    if groups is None:
        return array
    in_groups = groups, array.shape[-3] // groups  # (key heads, group); keys have a group of 1
    return array.reshape(*array.shape[:-3], *in_groups, *array.shape[-2:])


def heads_last(attended: Attended, shape: tuple[int, ...]) -> Attended:
    """Puts the heads of the context after the length, for weights of a shape without groups."""
    context, weights = attended
    context = context.reshape(*shape[:-1], context.shape[-1])  # (..., heads, q, e)
    weights = None if weights is None else weights.reshape(shape)  # (..., heads, q, k)
    return Attended(jnp.swapaxes(context, -3, -2), weights)  # context (..., q, heads, e)


def log_sum_exp(
    query: Vectors,
    key: Vectors,
    *,
    score: Score = scaled_dot,
    mask: PerPair | None = None,
    bias: PerPair | None = None,
    chunk_size: int | None = None,
) -> Float[Array, "... q"]:
    """Computes the logarithm of the sum in softmax, `l_q = log sum_k exp(e_qk)` over visible keys.

    It combines attention to parts of the keys: the context is the sum of the parts' contexts,
    weighted by the softmax of their `l`.

    Source: Dao et al. 2022 (arXiv:2205.14135), section 3.1.

    Args:
        query, key: `(..., q, d)`, `(..., k, d')`.
        score, mask, bias, chunk_size: as in `attend`.

    Returns:
        `(..., q)` in float32 or better; `-inf` for a query with nothing to attend.
    """
    nothing = as_floats("key", key)[..., :0]  # no context is wanted
    call = make_call(query, key, nothing, score=score, chunk_size=chunk_size, mask=mask, bias=bias)
    call = lens.look_through_at_softmax(checked(call))
    if chunk_size is not None and 0 not in call.visible.shape:
        _, logs = blockwise.context_and_logs(call)  # (..., q)
        return jnp.where(logs == jnp.inf, -jnp.inf, logs)  # blocks mark a row without keys by inf
    masked = lambda scores, mask: scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    _, scores = call._replace(normalizer=masked).dense()  # (..., q, k), -inf where hidden
    scores = scores.astype(wide(scores.dtype))  # half precision would round the sum
    # `initial` is finite: in a row of -inf alone, -inf - -inf would be NaN.
    largest = jax.lax.stop_gradient(jnp.max(scores, axis=-1, initial=jnp.finfo(scores.dtype).min))
    total = jnp.sum(jnp.exp(scores - largest[..., None]), axis=-1)  # (..., q)
    has_key = total != 0  # (..., q); the gradient of log(0) is not finite
    return jnp.where(has_key, largest + jnp.log(jnp.where(has_key, total, 1)), -jnp.inf)


def _check_result(what: str, array: Array, shape: tuple[int, ...]) -> None:
    """Raises a ValueError for the result of a score or normaliser of another shape."""
    if jnp.shape(array) != shape:
        raise ValueError(f"expected {what} of shape {shape}, got {jnp.shape(array)}")
