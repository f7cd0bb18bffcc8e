"""Blocks of the Transformer: attention and a feed-forward network, each in a residual connection.

    pre_norm  output_norm
    True      False         x + f(norm(x))           (trains without warm-up; GPT-2, Llama)
    False     False         norm(x + f(x))           (the first paper, BERT; needs a warm-up)
    False     True          x + norm(f(x))           (OLMo 2)
    True      True          x + norm'(f(norm(x)))    (Gemma 2)

Add a norm after the last block, except where the block is `norm(x + f(x))`.

Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.1; Xiong et al. 2020 (arXiv:2002.04745)
for `pre_norm`; OLMo Team 2024 (arXiv:2501.00656), section 3.2, and Gemma Team 2024
(arXiv:2408.00118), section 2, for `output_norm`; Wang & Komatsuzaki 2021 (GPT-J) for `parallel`.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import PrecisionLike
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention.cache import KeyValueCache, SlidingCache
from flax_attn.attention.checks import PerPair, Window
from flax_attn.attention.core import Across, Attended
from flax_attn.attention.layers.attention import as_input, without_padding
from flax_attn.attention.layers.multi_head import MultiHeadAttention, Norm, apply_norm, on_one_axis
from flax_attn.attention.visibility import Limits, hide, make_visibility
from flax_attn.types import Options, Tree


class FeedForward(nn.Module):
    """Two dense layers at each position, `W_2 f(W_1 x + b_1) + b_2`.

    With a gate, `W_2 (f(W_g x + b_g) * (W_1 x + b_1)) + b_2`. With `nn.silu` it is SwiGLU.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), eq. 2; Shazeer 2020 (arXiv:2002.05202), eq. 6,
    for the gate.

    Attributes:
        features: width of the hidden layer.
        activation: `f`.
        gated: whether there is a gate, whose parameters are `gate`.
        use_bias: whether the dense layers have biases.
        dropout_rate: share of the hidden units that are dropped in training.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
        precision: precision of both products, as in `jax.lax.Precision`.
        across: as in `attend`, where it cuts the positions over devices. They then stay an axis of
            their own, and none leaves its device.
    """

    features: int
    activation: Callable[[Array], Array] = nn.relu
    gated: bool = False
    use_bias: bool = True
    dropout_rate: float = 0.0
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = None
    across: Across | None = None

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*b t d"], *, train: bool = False
    ) -> Float[Array, "*b t d"]:
        inputs = as_input("inputs", inputs, self.dtype)
        options: Options = {
            "use_bias": self.use_bias,
            "dtype": inputs.dtype,
            "param_dtype": self.param_dtype,
            "precision": self.precision,
            "dot_general": None if self.across else on_one_axis,
        }
        hidden = nn.Dense(self.features, **options, name="hidden")(inputs)
        if self.gated:
            hidden *= self.activation(nn.Dense(self.features, **options, name="gate")(inputs))
        else:
            hidden = self.activation(hidden)
        hidden = nn.Dropout(self.dropout_rate, deterministic=not train)(hidden)
        return nn.Dense(inputs.shape[-1], **options, name="out")(hidden)


class EncoderBlock(nn.Module):
    """Self-attention and a feed-forward network.

    Attributes:
        attention: the self-attention, such as `MultiHeadAttention(8)`.
        feed_forward: the network, such as `FeedForward(2048)`.
        pre_norm: whether a norm stands before each part. If not, one follows each residual
            connection, or each part with `output_norm`.
        output_norm: whether a norm follows each part, before the residual connection. Its
            parameters are `attention_output_norm` and `feed_forward_output_norm`.
        parallel: whether both parts read the input of the block, `x + f(norm(x)) + g(norm'(x))`,
            as in GPT-J and Pythia. It needs `pre_norm`.
        dropout_rate: share of the outputs of each part that are dropped in training.
        norm: class of the norms, such as `nn.RMSNorm` (Zhang & Sennrich 2019, arXiv:1910.07467),
            `x / sqrt(mean(x^2) + epsilon) * scale`; or a function of its attributes `epsilon`,
            `dtype`, `param_dtype` and `name`.
        epsilon: number that the norms add to the variance; in PyTorch it is 1e-5.
        dtype: dtype of the norms and of the result; None for that of the inputs. The parts have
            dtypes of their own.
        param_dtype: dtype of the norms' parameters.
    """

    attention: MultiHeadAttention
    feed_forward: nn.Module
    pre_norm: bool = True
    output_norm: bool = False
    parallel: bool = False
    dropout_rate: float = 0.0
    norm: Norm = nn.LayerNorm
    epsilon: float = 1e-6
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    def __post_init__(self):
        _check_parallel(self)
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        lengths: ArrayLike | None = None,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        causal: bool = False,
        window: Window | None = None,
        prefix_lengths: ArrayLike | None = None,
        segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Encodes `(..., t, d)`. Returns outputs of this shape as context, and attention weights.

        Args:
            lengths: `(...)`, the number of real positions in each batch row.
            segments: `(..., t)`, the id of the sequence that each position belongs to.
            mask, bias, causal, window, prefix_lengths, train, need_weights: as in
                `MultiHeadAttention`.
        """
        x = without_padding(as_input("inputs", inputs, self.dtype), lengths)
        limits: Limits = {"mask": mask, "bias": bias, "causal": causal, "window": window}
        limits |= {"prefix_lengths": prefix_lengths, "query_lengths": lengths}
        limits |= {"query_segments": segments}
        x = _without_hidden(x, self.attention, limits)
        attend = functools.partial(self.attention, **limits, train=train, need_weights=need_weights)
        feed = lambda x: (self.feed_forward(x, train=train), None)
        add = functools.partial(_add, self, x.dtype, train)
        attended, weights = add("attention", attend, x)
        x, _ = add("feed_forward", feed, attended, x if self.parallel else None)
        return Attended(x, weights)


class DecodedBlock(NamedTuple):
    """The result of a decoder block.

    The context is the outputs `(..., t, d)`. `weights` are on the target tokens, `cross_weights` on
    the memory; they are None without a memory. `cache` is None if the call had none.
    """

    context: Float[Array, "*b t d"]
    weights: Float[Array, "..."] | None
    cross_weights: Float[Array, "..."] | None
    cache: KeyValueCache | SlidingCache | None


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to a memory, and a feed-forward network.

    Attributes:
        attention: the self-attention.
        cross_attention: the attention to the memory; None for a language model, which has none.
        feed_forward: the network.
        pre_norm, output_norm, parallel, dropout_rate, norm, epsilon, dtype, param_dtype: as in
            `EncoderBlock`. A parallel block has no `cross_attention`.
    """

    attention: MultiHeadAttention
    cross_attention: MultiHeadAttention | None
    feed_forward: nn.Module
    pre_norm: bool = True
    output_norm: bool = False
    parallel: bool = False
    dropout_rate: float = 0.0
    norm: Norm = nn.LayerNorm
    epsilon: float = 1e-6
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    def __post_init__(self):
        _check_parallel(self, self.cross_attention)
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        memory: Float[Array, "*b s _"] | KeyValueCache | None = None,
        *,
        lengths: ArrayLike | None = None,
        memory_lengths: ArrayLike | None = None,
        memory_mask: PerPair | None = None,
        cache: KeyValueCache | SlidingCache | None = None,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        window: Window | None = None,
        prefix_lengths: ArrayLike | None = None,
        segments: ArrayLike | None = None,
        memory_segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> DecodedBlock:
        """Decodes `t` tokens: a whole target, or with `cache` the tokens after those in the cache.

        Args:
            memory: the encoder's outputs, or a cache of their keys and values from
                `cross_attention.extend`. With the cache, they are not projected at every step.
                None in a block without `cross_attention`.
            lengths, memory_lengths: `(...)`, the number of real tokens in each batch row. A cached
                memory has its own lengths: pass no `memory_lengths`.
            memory_mask: the mask of the cross-attention.
            cache: from `attention.init_cache`, or from the step before. With it, a NaN that a mask
                hides does not reach outputs, but it reaches gradients: pass zeros there.
            mask, bias, window, prefix_lengths: of the self-attention.
            segments, memory_segments: `(..., t)` and `(..., s)`, the id of the sequence that each
                token belongs to. With both, a target token attends to the memory of its sequence.
            train, need_weights: of both attentions.

        Raises:
            ValueError: segments beside a cache; lengths beside a cached memory; a memory without
                `cross_attention`, or `cross_attention` without a memory.
        """
        x = without_padding(as_input("inputs", inputs, self.dtype), lengths)
        limits = Limits(mask=mask, bias=bias, window=window, prefix_lengths=prefix_lengths)
        rows: Options = {"query_lengths": lengths, "query_segments": segments}
        if cache is None:
            x = _without_hidden(x, self.attention, cast(Limits, limits | rows | {"causal": True}))
        calls: Options = {"train": train, "need_weights": need_weights}
        attend = lambda x: self._attend(x, cache, lengths, segments, limits | calls)
        crossing = {"mask": memory_mask, "query_lengths": lengths, "key_lengths": memory_lengths}
        if memory_segments is not None:
            crossing |= {"query_segments": segments, "key_segments": memory_segments}
        look = self._look(memory, cache, crossing | calls)
        add, cross_weights = functools.partial(_add, self, x.dtype, train), None
        attended, (weights, cache) = add("attention", attend, x)
        if look is not None:
            attended, cross_weights = add("cross_attention", look, attended)
        feed = lambda x: (self.feed_forward(x, train=train), None)
        x, _ = add("feed_forward", feed, attended, x if self.parallel else None)
        return DecodedBlock(x, weights, cross_weights, cache)

    def _attend(
        self,
        x: Array,
        cache: KeyValueCache | SlidingCache | None,
        lengths: ArrayLike | None,
        segments: ArrayLike | None,
        options: Options,
    ) -> tuple[Array, tuple[Array | None, KeyValueCache | SlidingCache | None]]:
        """Attends causally. Returns context, weights, and the cache with the new tokens."""
        if cache is None:
            options = options | {"query_lengths": lengths, "query_segments": segments}
            context, weights = self.attention(x, causal=True, **options)
            return context, (weights, None)
        if segments is not None:
            raise ValueError("expected no segments beside a cache, which holds one sequence a row")
        (context, weights), longer = self.attention.decode(x, cache, lengths=lengths, **options)
        return context, (weights, longer)

    def _look(
        self,
        memory: Array | KeyValueCache | None,
        cache: KeyValueCache | SlidingCache | None,
        options: Options,
    ) -> Callable[[Array], Attended] | None:
        """Makes the attention to the memory, or to the cache of its keys and values."""
        attention = self.cross_attention
        if (memory is None) != (attention is None):
            raise ValueError("expected a memory in a block with cross_attention, and only there")
        if memory is None or attention is None:
            return None
        options = options | {"query_offset": 0 if cache is None else cache.length}
        if isinstance(memory, KeyValueCache):
            return lambda x: attention(x, cache=memory, **options)
        return lambda x: attention(x, memory, **options)


def _add(
    block: EncoderBlock | DecoderBlock,
    dtype: DTypeLike,
    train: bool,
    name: str,
    part: Callable[[Array], tuple[Array, Tree]],
    x: Array,
    read: Array | None = None,
) -> tuple[Array, Tree]:
    """Adds a part of a block to `x`, with the norms of the block around it.

    The part reads `read`; None for `x`. Returns the sum, and what else the part returns.
    """
    options: Options = {"dtype": dtype, "param_dtype": block.param_dtype, "epsilon": block.epsilon}
    norm = lambda x, end: apply_norm(block.norm, x, name=f"{name}{end}", **options)
    read = x if read is None else read
    context, others = part(norm(read, "_norm") if block.pre_norm else read)
    if context.shape != x.shape:
        raise ValueError(f"expected {name} to return the shape {x.shape}, got {context.shape}")
    if block.output_norm:
        context = norm(context, "_output_norm")
    x = x + nn.Dropout(block.dropout_rate, deterministic=not train)(context)
    return x if block.pre_norm or block.output_norm else norm(x, "_norm"), others


def _without_hidden(x: Array, attention: MultiHeadAttention, limits: Limits) -> Array:
    """Zeros positions of `(..., t, d)` that a mask or bias hides, where they hold a NaN.

    Such a position attends to nothing and nothing attends to it. It would reach the parameters of
    the norms and of the feed-forward network, which compute every position.
    """
    if limits.get("mask") is None and limits.get("bias") is None:
        return x
    heads, length = attention.num_heads, x.shape[-2]
    lengths, segments = limits.get("query_lengths"), limits.get("query_segments")
    limits = limits | {"key_lengths": lengths, "key_segments": segments}
    visible = make_visibility((*x.shape[:-2], heads, length, length), (heads,), **limits)
    has_key, has_query = visible.reachable_in_any_head(attention.chunk_size)
    return hide(x, has_key | has_query | jnp.isfinite(x).all(axis=-1))


def _check_parallel(block: EncoderBlock | DecoderBlock, cross_attention: object = None) -> None:
    """Raises a ValueError for a parallel block whose parts cannot read one input."""
    if block.parallel and (not block.pre_norm or cross_attention is not None):
        raise ValueError("expected pre_norm=True and no cross_attention in a parallel block")
