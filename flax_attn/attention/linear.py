"""Linear attention: a state that each token writes to and each query reads, without softmax.

    S_t = exp(g_t) S_{t-1}                         forget, (d, e)
    S_t = S_t + k_t v_t^T                          write: linear, gated
    S_t = S_t + b_t k_t (v_t - S_t^T k_t)^T        write what the key does not yet return: delta
    context_t = scale S_t^T q_t                    read

Unrolled, the context is a sum of values, `context = W value`, with a lower triangular `W` whose
rows do not sum to 1 and whose entries may be negative. With `G = cumsum(g)`:

    D_ij = exp(G_i - G_j) for j <= i, else 0
    R    = D * (q k^T)                             what a query reads of each write
    W    = scale R                                 linear, gated
    A    = strictly_lower(b_i D * (k k^T))         what a write finds of earlier ones
    W    = scale R (I + A)^-1 diag(b)              delta, gated delta

Within a chunk of tokens these products are computed at once, and the state connects the chunks.
One chunk of all tokens has the weights; chunks of one token are the recurrence.

Letters: `t` tokens, `c` tokens of a chunk, `h` key heads, `g` heads that share one, `d` features of
a query or key, `e` features of a value.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn import platforms
from flax_attn.attention import lens
from flax_attn.attention.arrays import as_dtype_of, merge, split, wide, with_rank
from flax_attn.attention.checks import (
    HeadVectors,
    as_floats,
    as_integers,
    as_number,
    broadcasts,
    known_bound,
    weights_shape_in_heads,
)
from flax_attn.attention.core import Attended, before_length, heads_last
from flax_attn.attention.visibility import hide, real_tokens

CHUNK_SIZE = 64  # tokens; products of it fill the units of a GPU or TPU
GROUP_SIZE = 16  # chunks at once on a GPU or TPU, which would wait for the short steps of one
LEAST = -1000.0  # as a log decay it forgets all, as -inf does, whose differences are NaN


class _Tokens(NamedTuple):
    """Tokens of a sequence or chunk.

    Attributes:
        query, key, value: `(..., h, g, t, d)`, `(..., h, 1, t, d)`, `(..., h, 1, t, e)`.
        decay: log decays `(..., h, 1, t, d or 1)`, or None for none.
        strength: `(..., h, 1, t, 1)`, or None where tokens are written as they are.
    """

    query: Array
    key: Array
    value: Array
    decay: Array | None
    strength: Array | None


def linear_attention(
    query: HeadVectors,
    key: HeadVectors,
    value: HeadVectors,
    *,
    log_decay: ArrayLike | None = None,
    write_strength: ArrayLike | None = None,
    scale: float | Array | None = None,
    feature_map: Callable[[Array], Array] | None = None,
    lengths: ArrayLike | None = None,
    segments: ArrayLike | None = None,
    state: Float[Array, "*b h d e"] | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
    name: str = "",
) -> tuple[Attended, Float[Array, "*b h d e"]]:
    """Attends causally without softmax, by a state of fixed size.

    The rule follows from the arguments:

    | `log_decay` | `write_strength` | rule |
    |---|---|---|
    | None | None | linear (Katharopoulos et al. 2020) |
    | given | None | gated (RetNet, Mamba-2; per feature: GLA) |
    | None | given | delta (DeltaNet) |
    | given | given | gated delta (Gated DeltaNet; per feature: KDA) |

    Source: Katharopoulos et al. 2020 (arXiv:2006.16236) for the state; Yang et al. 2024
    (arXiv:2312.06635) for decays of each feature; Schlag et al. 2021 (arXiv:2102.11174) for the
    delta rule, Yang et al. 2024 (arXiv:2406.06484) for its chunks, and 2025 (arXiv:2412.06464) for
    decays beside it.

    Args:
        query, key, value: `(..., t, heads, d)`, `(..., t, key_heads, d)`, `(..., t, key_heads, e)`.
            Consecutive heads share a key head.
        log_decay: logarithm of the factor of the state before each write, 0 or below;
            `(..., t, key_heads)`, or `(..., t, key_heads, d)` for each feature of the keys. Axes of
            size 1 broadcast, and a missing first one does.
        write_strength: `(..., t, key_heads)`, in [0, 1]; 1 replaces what the state returns for the
            key. The delta rules expect keys of length 1: see `l2_normalized`.
        scale: factor of the queries; None for `1 / sqrt(d)`.
        feature_map: applied to queries and keys, such as `elu_plus_one` or `l2_normalized`.
        lengths: `(...)`, the number of real tokens in each batch row. Padding is neither read nor
            written, and its context is 0.
        segments: `(..., t)`, the ids of the sequences that are packed into each batch row. The
            state starts at zero where the id changes.
        state: what earlier tokens wrote, `(..., key_heads, d, e)`; None for zeros.
        chunk_size: tokens that are computed at once, without weights. None for all of them with
            `need_weights`, and for 64 without. Memory is linear in `t`.
        need_weights: whether the implied weights are returned.
        name: by which a lens knows this attention.

    A mask of pairs, a window and a bias have no place here: a state does not know which query will
    read it.

    Returns:
        `Attended` with the context `(..., t, heads, e)` in the query's dtype and the implied
        weights `(..., heads, t, t)` or None; and the state after the last real token, in float32 or
        better. The context is `weights value`, and what the queries read of the given state.

    Raises:
        ValueError: shapes that do not fit; a log decay above 0; a chunk size below 1.
    """
    arrays = as_floats("query", query), as_floats("key", key), as_floats("value", value)
    *rows, heads, length, _ = weights_shape_in_heads(*arrays)
    if arrays[0].shape[-3] != arrays[1].shape[-3]:
        raise ValueError(f"expected as many queries as keys, got {[a.shape for a in arrays]}")
    is_symbolic = jax.export.is_symbolic_dim(length)
    if chunk_size is not None and (is_symbolic or chunk_size < 1):
        raise ValueError(
            "expected a chunk_size of 1 or above, and None in a program for any length, got "
            f"{chunk_size}"
        )
    is_real = real_tokens(lengths, tuple(rows), length)
    begins = _begins(segments, is_real, tuple(rows), length)
    tokens = _tokens(arrays, log_decay, write_strength, feature_map, is_real, begins)
    factor = as_number(arrays[0].shape[-1] ** -0.5 if scale is None else scale)
    tokens = tokens._replace(query=tokens.query * as_dtype_of(tokens.query, factor))
    sizes = *rows, arrays[1].shape[-2], arrays[1].shape[-1], arrays[2].shape[-1]
    start = jnp.broadcast_to(jnp.zeros(()) if state is None else state, sizes)[..., None, :, :]
    start = start.astype(tokens.query.dtype)  # (..., h, 1, d, e)

    change = lens.change_of_linear(name, (*rows, heads, length, length), state is not None)
    need_weights = need_weights and chunk_size is None
    size = CHUNK_SIZE if chunk_size is None else chunk_size
    weights = None
    if need_weights or change is not None or is_symbolic or length <= size:
        context, weights, end = _at_once(tokens, start, change)
    else:
        context, end = _in_chunks(tokens, start, size)
    attended = Attended(context, weights if need_weights else None)
    context, weights = heads_last(attended, (*rows, heads, length, length))  # (..., t, heads, e)
    if is_real is not None:
        context = jnp.where(is_real[..., None, None], context, 0)  # (..., t, heads, e)
    dtype = arrays[0].dtype
    weights = None if weights is None else weights.astype(dtype)
    return Attended(context.astype(dtype), weights), end[..., 0, :, :]  # state (..., h, d, e)


def elu_plus_one(x: Array) -> Array:
    """Maps features to positive ones, `elu(x) + 1`.

    With ones as a further feature of the values, `context[..., :-1] / context[..., -1:]` is the
    normalised attention of Katharopoulos et al. 2020 (arXiv:2006.16236), eq. 4 and 7.
    """
    return jax.nn.elu(x) + 1


def l2_normalized(x: Array) -> Array:
    """Divides vectors by their length, `x / sqrt(|x|^2 + 1e-6)`, as published delta layers do."""
    return x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def causal_convolution(
    inputs: Float[Array, "*b t c"],
    kernel: Float[Array, "n c"],
    bias: Float[Array, " c"] | None = None,
    *,
    lengths: ArrayLike | None = None,
    segments: ArrayLike | None = None,
    past: Float[Array, "*b m c"] | None = None,
) -> tuple[Float[Array, "*b t c"], Float[Array, "*b m c"]]:
    """Convolves each channel with the `n` last tokens, `y_t = sum_i kernel_i x_{t - n + 1 + i}`.

    Args:
        inputs: `(..., t, c)`.
        kernel, bias: `(n, c)` and `(c,)`.
        lengths, segments: as in `linear_attention`. Taps do not reach into another sequence.
        past: the `n - 1` inputs before the first, from an earlier call; None for zeros.

    Returns:
        The outputs, 0 in padding, and the last `n - 1` real inputs.
    """
    *rows, length, channels = inputs.shape
    num_past = len(kernel) - 1
    is_real = real_tokens(lengths, tuple(rows), length)
    if is_real is not None:
        inputs = hide(inputs, is_real)
    past = jnp.zeros((*rows, num_past, channels), inputs.dtype) if past is None else past
    longer = jnp.concatenate([past.astype(inputs.dtype), inputs], axis=-2)  # (..., m + t, c)
    begins = _begins(segments, is_real, tuple(rows), length)
    ids = None
    if begins is not None:  # what is past belongs to the first sequence
        ids = jnp.cumsum(begins, axis=-1, dtype=jnp.int32)  # (..., t)
        ids = jnp.pad(ids, [(0, 0)] * len(rows) + [(num_past, 0)])  # (..., m + t)
    outputs = jnp.zeros(inputs.shape, dtype := wide(inputs.dtype))  # taps are summed in float32
    if bias is not None:
        outputs += with_rank(bias.astype(dtype), outputs.ndim)
    for i in range(len(kernel)):
        tap = longer[..., i : i + length, :]  # (..., t, c)
        if ids is not None:
            is_own = ids[..., i : i + length] == ids[..., num_past:]  # (..., t)
            tap = hide(tap, is_own)
        outputs += tap.astype(dtype) * with_rank(kernel[i].astype(dtype), tap.ndim)
    outputs = outputs.astype(inputs.dtype)
    if is_real is not None:
        outputs = hide(outputs, is_real)
    if ids is not None:
        longer = hide(longer, ids == ids[..., -1:])  # of the last sequence
    ends = jnp.full(rows, length) if is_real is None else is_real.sum(-1)  # (...)
    index = ends[..., None] + with_rank(jnp.arange(num_past), len(rows) + 1)  # (..., m)
    return outputs, jnp.take_along_axis(longer, index[..., None], axis=-2)  # (..., m, c)


def _begins(
    segments: ArrayLike | None, is_real: Array | None, rows: tuple[int, ...], length: int
) -> Array | None:
    """Returns at which tokens `(..., t)` another sequence begins. Padding continues the last."""
    if segments is None:
        return None
    ids = jnp.broadcast_to(as_integers("segments", segments), (*rows, length))
    begins = ids != jnp.concatenate([ids[..., :1], ids[..., :-1]], axis=-1)[..., :length]
    return begins if is_real is None else begins & is_real


def _tokens(
    arrays: tuple[Array, Array, Array],
    log_decay: ArrayLike | None,
    write_strength: ArrayLike | None,
    feature_map: Callable[[Array], Array] | None,
    is_real: Array | None,
    begins: Array | None,
) -> _Tokens:
    """Puts heads before the length, in float32 or better, with zeros for padding."""
    query, key, value = arrays
    dtype, key_heads = wide(query.dtype), key.shape[-2]
    real = None if is_real is None else is_real[..., None, None]  # (..., t, 1, 1)
    shown = lambda x: x if real is None else jnp.where(real, x, 0)

    def with_heads_first(array: Array) -> Array:
        return before_length(shown(array), key_heads).astype(dtype)  # (..., h, g or 1, t, _)

    def per_token(name: str, array: ArrayLike, is_of_features: bool = False) -> Array:
        array = jnp.asarray(array)
        has_features = is_of_features and array.ndim == key.ndim
        array = with_rank(array if has_features else array[..., None], key.ndim)
        if not broadcasts(array.shape, key.shape):
            raise ValueError(f"expected {name} that broadcasts to {key.shape}, got {array.shape}")
        return jnp.broadcast_to(array, (*key.shape[:-1], array.shape[-1]))  # (..., t, h, d or 1)

    if feature_map is not None:
        query, key = feature_map(shown(query)), feature_map(shown(key))  # no NaN of padding gets in
    decay = strength = None
    if log_decay is not None:
        decay = per_token("log_decay", log_decay, is_of_features=True)
        if (most := known_bound(jnp.max, shown(decay))) > 0:
            raise ValueError(
                f"expected a log_decay of 0 or below, got {most}; a factor is jnp.log(factor)"
            )
        decay = jnp.maximum(with_heads_first(decay), LEAST)  # (..., h, 1, t, d or 1)
    if begins is not None:
        resets = jnp.where(begins, LEAST, 0.0).astype(dtype)[..., None, None, :, None]
        decay = resets if decay is None else jnp.minimum(decay, resets)  # (..., h, 1, t, d or 1)
    if write_strength is not None:
        strength = with_heads_first(per_token("write_strength", write_strength))
    vectors = with_heads_first(query), with_heads_first(key), with_heads_first(value)
    return _Tokens(*vectors, decay, strength)


class _Chunk(NamedTuple):
    """What a chunk of tokens does with a state.

        writes  = values - erased state        (..., c, e)
        context = read state + reads writes    (..., c, e)
        state   = kept state + kept_keys^T writes

    Attributes:
        read: queries, decayed since the chunk began, `(..., c, d)`.
        reads: what each query reads of each write, `(..., c, c)`.
        values: what is written to an empty state, `(..., c, e)`.
        erased: `(..., c, d)`, or None without the delta rule.
        kept: factors of the state, `(..., d or 1, 1)`, or None for 1.
        kept_keys: keys, decayed until the chunk ends, `(..., c, d)`.
    """

    read: Array
    reads: Array
    values: Array
    erased: Array | None
    kept: Array | None
    kept_keys: Array


def _chunk(tokens: _Tokens) -> tuple[_Chunk, Array | None]:
    """Computes the products of a chunk, and what each write has of each value, `(..., c, c)`."""
    query, key, value, decay, strength = tokens
    read, from_state, kept_keys, kept = query, key, key, None
    if decay is not None:
        since = jnp.exp(jnp.cumsum(decay, axis=-2))  # (..., c, d or 1)
        read, from_state = query * since, key * since  # (..., c, d)
        kept_keys = key * jnp.exp(_until_end(decay))  # (..., c, d)
        kept = jnp.exp(decay.sum(axis=-2, keepdims=True)).swapaxes(-1, -2)  # (..., d or 1, 1)
    reads = jnp.tril(_decayed_products(query, key, decay))  # (..., c, c)
    if strength is None:
        return _Chunk(read, reads, value, None, kept, kept_keys), None
    found = strength * jnp.tril(_decayed_products(key, key, decay), -1)  # (..., c, c)
    written = _inverse(found) * strength.swapaxes(-1, -2)  # (..., c, c)
    return _Chunk(read, reads, written @ value, written @ from_state, kept, kept_keys), written


def _step(state: Array, chunk: _Chunk) -> tuple[Array, Array]:
    """Reads and writes a state `(..., d, e)`. Returns the next one, and the context."""
    writes = chunk.values if chunk.erased is None else chunk.values - chunk.erased @ state
    context = chunk.read @ state + chunk.reads @ writes  # (..., c, e)
    kept = state if chunk.kept is None else chunk.kept * state  # (..., d, e)
    return kept + chunk.kept_keys.swapaxes(-1, -2) @ writes, context  # (..., d, e), (..., c, e)


def _at_once(
    tokens: _Tokens, state: Array, change: Callable[[Array], Array] | None
) -> tuple[Array, Array, Array]:
    """Computes the context, the implied weights of all pairs, and the state at the end.

    A lens may change the weights. The state is that without a change.
    """
    chunk, written = _chunk(tokens)
    end, context = _step(state, chunk)
    weights = chunk.reads if written is None else chunk.reads @ written  # (..., h, g, t, t)
    if change is not None:
        changed = change(weights)  # (..., h, g, t, t)
        context = context + (changed - weights) @ tokens.value  # (..., h, g, t, e)
        weights = changed
    return context, weights, end


def _in_chunks(tokens: _Tokens, state: Array, size: int) -> tuple[Array, Array]:
    """Computes the context chunk by chunk, and the state at the end.

    The products of a group of chunks are computed at once, and again for their gradients. A CPU is
    faster with one chunk at a time, which stays in its cache.
    """
    length = tokens.key.shape[-2]
    most = size * (1 if platforms.current() == platforms.CPU else GROUP_SIZE)
    num_groups = -(-length // most)
    group_size = size * -(-length // (size * num_groups))  # tokens, as many in each group
    blocks = lambda tokens, size: jax.tree.map(lambda array: _blocks(array, size), tokens)

    def of_group(state: Array, group: _Tokens) -> tuple[Array, Array]:
        chunks, _ = _chunk(blocks(group, size))  # n chunks stand in front
        state, contexts = jax.lax.scan(_step, state, chunks)  # (n, ..., h, g, c, e)
        return state, merge(contexts, group_size)  # context (..., group_size, e)

    step = of_group if num_groups == 1 else jax.checkpoint(of_group)
    end, contexts = jax.lax.scan(step, state, blocks(tokens, group_size))  # (groups, ..., size, e)
    return merge(contexts, length), end


def _blocks(array: Array, size: int) -> Array:
    """Splits tokens `(..., t, _)` into blocks `(n, ..., size, _)`.

    What is added to the last one is neither read nor written, and does not decay.
    """
    padding = [(0, 0)] * array.ndim
    padding[-2] = 0, -array.shape[-2] % size
    return split(jnp.pad(array, padding), size)


@jax.custom_jvp
def _inverse(found: Array) -> Array:
    """Computes `(I + A)^-1` for a strictly lower triangular `A`.

    The inverse of two blocks follows from that of each: with `L` below the diagonal blocks `D^-1`,
    `(D^-1 + L)^-1 = D - D L D`. So blocks of 1, 2, 4 ... tokens are inverted by products, which
    accelerators like. A series in powers of `A` would not do: they grow like binomials where keys
    repeat. LAPACK's solve, in jaxlib 0.10.2, blocks a thread of XLA until others have done its
    parts. Two of them on two cores wait for each other for ever.
    """
    size = found.shape[-1]
    inverse = jnp.broadcast_to(jnp.eye(size, dtype=found.dtype), found.shape)  # (..., c, c)
    if jax.export.is_symbolic_dim(size):
        solve = jax.lax.linalg.triangular_solve
        return solve(found, inverse, left_side=True, lower=True, unit_diagonal=True)
    row, column = jnp.arange(size)[:, None], jnp.arange(size)[None]
    block = 1
    while block < size:
        is_below = (row // block % 2 == 1) & (column // block == row // block - 1)  # (c, c)
        below = jnp.where(with_rank(is_below, found.ndim), found, 0)  # (..., c, c)
        inverse -= inverse @ below @ inverse  # (D^-1 + L)^-1 of each pair of blocks
        block *= 2
    return inverse


@_inverse.defjvp
def _derivative_of_inverse(found: tuple[Array], tangent: tuple[Array]) -> tuple[Array, Array]:
    """Takes two products. That of each doubling of the blocks would keep all their arrays."""
    inverse = _inverse(*found)
    return inverse, -inverse @ tangent[0] @ inverse  # d(M^-1) = -M^-1 dM M^-1


def _until_end(decay: Array) -> Array:
    """Sums the log decays `(..., c, _)` of all later tokens."""
    later = jnp.concatenate([decay[..., 1:, :], jnp.zeros_like(decay[..., :1, :])], axis=-2)
    return jax.lax.cumsum(later, axis=later.ndim - 2, reverse=True)


def _decayed_products(x: Array, y: Array, decay: Array | None) -> Array:
    """Computes `sum_d x_id y_jd exp(G_id - G_jd)` for pairs `(..., c, c)` with `j <= i`."""
    if decay is None:
        return x @ y.swapaxes(-1, -2)  # (..., c, c)
    if decay.shape[-1] == 1:
        return x @ y.swapaxes(-1, -2) * jnp.exp(_between(decay)[..., 0])  # (..., c, c)
    if jax.export.is_symbolic_dim(x.shape[-2]):
        pairs = x[..., :, None, :] * y[..., None, :, :]  # (..., c, c, d)
        return (pairs * jnp.exp(_between(decay))).sum(axis=-1)  # (..., c, c)
    products, _, _ = _by_halves(x, y, decay)
    return products


def _by_halves(x: Array, y: Array, decay: Array) -> tuple[Array, Array, Array]:
    """Computes the products of `_decayed_products` with a decay for each feature.

    Across the middle, the decay is that from `j` to the middle and from there to `i`, each at most
    1. So these pairs are a product of matrices, and those within the halves are computed likewise.

    Returns:
        The products `(..., c, c)`, and the sums of the log decays up to each token and after it.
    """
    length = x.shape[-2]
    if length <= 1:
        return x @ y.swapaxes(-1, -2), decay, jnp.zeros_like(decay)
    half = -(-length // 2)
    halves = [_blocks(array, half) for array in (x, y, decay)]  # (2, ..., c / 2, d)
    # along the first axis: XLA for a CPU aborts at products of many axes
    both = _by_halves(*(array.reshape(-1, *array.shape[2:]) for array in halves))
    (first, last), since, until = (array.reshape(2, -1, *array.shape[1:]) for array in both)
    left = halves[0][1] * jnp.exp(since[1])  # (..., c / 2, d)
    right = halves[1][0] * jnp.exp(until[0])  # (..., c / 2, d)
    across = left @ right.swapaxes(-1, -2)  # (..., c / 2, c / 2)
    upper = jnp.concatenate([first, jnp.zeros_like(across)], axis=-1)  # (..., c / 2, c)
    lower = jnp.concatenate([across, last], axis=-1)  # (..., c / 2, c)
    products = jnp.concatenate([upper, lower], axis=-2)  # (..., c, c)
    until = jnp.concatenate([until[0] + since[1][..., -1:, :], until[1]], axis=-2)  # (..., c, d)
    since = jnp.concatenate([since[0], since[0][..., -1:, :] + since[1]], axis=-2)  # (..., c, d)
    return products[..., :length, :length], since[..., :length, :], until[..., :length, :]


def _between(decay: Array) -> Array:
    """Sums the log decays after token `j` up to `i`, `(..., c, c, d or 1)`, for `j <= i`.

    These are differences of cumulative sums. What these lose to rounding is added: after a strong
    decay it would be more than what follows.
    """
    total = jnp.cumsum(decay, axis=-2)  # (..., c, d or 1)
    before = jnp.concatenate([jnp.zeros_like(total[..., :1, :]), total[..., :-1, :]], axis=-2)
    lost = jnp.cumsum(jax.lax.stop_gradient(decay - (total - before)), axis=-2)  # (..., c, d or 1)
    apart = lambda sums: sums[..., :, None, :] - sums[..., None, :, :]  # (..., c, c, d or 1)
    size = decay.shape[-2]
    is_earlier = with_rank(jnp.tri(size, dtype=bool)[..., None], decay.ndim + 1)  # (..., c, c, 1)
    return jnp.where(is_earlier, apart(total) + apart(lost), 0)  # later ones might overflow
