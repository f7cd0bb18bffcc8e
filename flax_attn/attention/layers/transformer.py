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

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import PrecisionLike
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention import lens
from flax_attn.attention.cache import BlockCache, KeyValueCache
from flax_attn.attention.checks import PerPair, Window
from flax_attn.attention.core import Across, Attended
from flax_attn.attention.layers.linear import LinearAttentionBase
from flax_attn.attention.layers.multi_head import MultiHeadBase, on_one_axis
from flax_attn.attention.layers.shells import (
    LayerBase,
    LinenShell,
    Norm,
    Returned,
    as_attended,
    as_input,
    without_padding,
)
from flax_attn.attention.visibility import (
    Limits,
    SelfLimits,
    hide,
    make_visibility,
    of_self,
    with_limits,
)
from flax_attn.types import Options, Tree


@dataclasses.dataclass(eq=False, repr=False)
class FeedForwardBase(LayerBase):
    """The arguments and the computation of `FeedForward`."""

    features: int
    activation: Callable[[Array], Array] = nn.relu
    gated: bool = False
    use_bias: bool = True
    dropout_rate: float = 0.0
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = None
    across: Across | None = None

    def __call__(
        self, inputs: Float[Array, "*b t d"], *, train: bool | None = None
    ) -> Float[Array, "*b t d"]:
        inputs = as_input("inputs", inputs, self.dtype)
        dense = functools.partial(
            self._dense,
            use_bias=self.use_bias,
            precision=self.precision,
            dot_general=None if self.across else on_one_axis,  # an axis that is cut stays one
        )
        hidden = dense("hidden", self.features, inputs)  # (..., t, features)
        if self.gated:
            hidden *= self.activation(dense("gate", self.features, inputs))
        else:
            hidden = self.activation(hidden)
        hidden = self._drop(hidden, train)
        return dense("out", inputs.shape[-1], hidden)  # (..., t, d)


class FeedForward(FeedForwardBase, LinenShell, nn.Module):
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

    __call__ = nn.compact(FeedForwardBase.__call__)


@dataclasses.dataclass(eq=False, repr=False)
class EncoderBlockBase(LayerBase):
    """The arguments and the computation of `EncoderBlock`."""

    attention: MultiHeadBase | LinearAttentionBase
    feed_forward: Callable[..., Array]
    pre_norm: bool = True
    output_norm: bool = False
    parallel: bool = False
    dropout_rate: float = 0.0
    norm: Norm = nn.LayerNorm
    epsilon: float = 1e-6
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    return_weights: bool = True

    @with_limits
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[SelfLimits],
    ) -> Returned:
        """Encodes `(..., t, d)`. Returns outputs of this shape as context, and attention weights.

        Args:
            train, need_weights, limits: as in `MultiHeadAttention`. `lengths` `(...)` is the number
                of real positions in each batch row, `segments` `(..., t)` the id of the sequence
                that each position belongs to.
        """
        x = without_padding(as_input("inputs", inputs, self.dtype), limits.get("lengths"))
        x = lens.at(self._path(), "before", x)  # (..., t, d)
        own = of_self(**limits)
        x = _without_hidden(x, self.attention, own)
        need_weights = need_weights and self.return_weights
        options: Options = self._of_training(train) | {"need_weights": need_weights, **own}
        attend = lambda x: as_attended(self.attention(x, **options))
        feed = lambda x: (fed(self, x, train), None)
        attended, weights = add_part(self, "attention", attend, x, train=train)
        attended = lens.at(self._path(), "middle", attended)
        read = x if self.parallel else None  # the input of the block, not the sum
        x, _ = add_part(self, "feed_forward", feed, attended, read, train)  # (..., t, d)
        x = lens.at(self._path(), "after", x)
        return Attended(x, weights) if self.return_weights else cast(Attended, x)


class EncoderBlock(EncoderBlockBase, LinenShell, nn.Module):
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
        return_weights: as in `Attention`.
    """

    def __post_init__(self):
        check_parallel(self)
        super().__post_init__()

    __call__ = nn.compact(EncoderBlockBase.__call__)


class DecodedBlock(NamedTuple):
    """The result of a decoder block.

    The context is the outputs `(..., t, d)`. `weights` are on the target tokens, `cross_weights` on
    the memory; they are None without a memory. `cache` is None if the call had none.
    """

    context: Float[Array, "*b t d"]
    weights: Float[Array, "..."] | None
    cross_weights: Float[Array, "..."] | None
    cache: BlockCache | None


if TYPE_CHECKING:
    ReturnedBlock = DecodedBlock  # by default
else:
    ReturnedBlock = DecodedBlock | Array  # the context alone with `return_weights=False`


@dataclasses.dataclass(eq=False, repr=False)
class DecoderBlockBase(LayerBase):
    """The arguments and the computation of `DecoderBlock`."""

    attention: MultiHeadBase | LinearAttentionBase
    cross_attention: MultiHeadBase | None
    feed_forward: Callable[..., Array]
    pre_norm: bool = True
    output_norm: bool = False
    parallel: bool = False
    dropout_rate: float = 0.0
    norm: Norm = nn.LayerNorm
    epsilon: float = 1e-6
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    return_weights: bool = True

    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        memory: Float[Array, "*b s _"] | KeyValueCache | None = None,
        *,
        lengths: ArrayLike | None = None,
        memory_lengths: ArrayLike | None = None,
        memory_mask: PerPair | None = None,
        cache: BlockCache | None = None,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        window: Window | None = None,
        prefix_lengths: ArrayLike | None = None,
        segments: ArrayLike | None = None,
        memory_segments: ArrayLike | None = None,
        train: bool | None = None,
        need_weights: bool = True,
    ) -> ReturnedBlock:
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
        x = without_padding(as_input("inputs", inputs, self.dtype), lengths)  # (..., t, d)
        x = lens.at(self._path(), "before", x)
        limits = Limits(mask=mask, bias=bias, window=window, prefix_lengths=prefix_lengths)
        rows: Options = {"query_lengths": lengths, "query_segments": segments}
        if cache is None:
            x = _without_hidden(x, self.attention, cast(Limits, limits | rows | {"causal": True}))
        need_weights = need_weights and self.return_weights
        calls: Options = self._of_training(train) | {"need_weights": need_weights}
        attend = lambda x: self._attend(x, cache, lengths, segments, limits | calls)
        crossing = {"mask": memory_mask, "query_lengths": lengths, "key_lengths": memory_lengths}
        if memory_segments is not None:
            crossing |= {"query_segments": segments, "key_segments": memory_segments}
        attend_to_memory = self._of_memory(memory, cache, crossing | calls)
        cross_weights = None
        attended, (weights, cache) = add_part(self, "attention", attend, x, train=train)
        if attend_to_memory is not None:
            attended, cross_weights = add_part(
                self, "cross_attention", attend_to_memory, attended, train=train
            )
        feed = lambda x: (fed(self, x, train), None)
        attended = lens.at(self._path(), "middle", attended)
        read = x if self.parallel else None
        x, _ = add_part(self, "feed_forward", feed, attended, read, train)  # (..., t, d)
        x = lens.at(self._path(), "after", x)
        if cache is None and not self.return_weights:
            return cast(DecodedBlock, x)
        return DecodedBlock(x, weights, cross_weights, cache)

    def _attend(
        self,
        x: Array,
        cache: BlockCache | None,
        lengths: ArrayLike | None,
        segments: ArrayLike | None,
        options: Options,
    ) -> tuple[Array, tuple[Array | None, BlockCache | None]]:
        """Attends causally. Returns context, weights, and the cache with the new tokens."""
        if cache is None:
            options = options | {"query_lengths": lengths, "query_segments": segments}
            context, weights = as_attended(self.attention(x, causal=True, **options))
            return context, (weights, None)
        if segments is not None:
            raise ValueError("expected no segments beside a cache, which holds one sequence a row")
        attention: Tree = self.attention  # a cache is that of the attention
        attended, longer = attention.decode(x, cache, lengths=lengths, **options)
        context, weights = as_attended(attended)
        return context, (weights, longer)

    def _of_memory(
        self,
        memory: Array | KeyValueCache | None,
        cache: BlockCache | None,
        options: Options,
    ) -> Callable[[Array], Attended] | None:
        """Makes the attention to the memory, or to the cache of its keys and values, if any."""
        attention = self.cross_attention
        if (memory is None) != (attention is None):
            raise ValueError("expected a memory in a block with cross_attention, and only there")
        if memory is None or attention is None:
            return None
        options = options | {"query_offset": 0 if cache is None else cache.length}
        if isinstance(memory, KeyValueCache):
            return lambda x: as_attended(attention(x, cache=memory, **options))
        return lambda x: as_attended(attention(x, memory, **options))


class DecoderBlock(DecoderBlockBase, LinenShell, nn.Module):
    """Causal self-attention, cross-attention to a memory, and a feed-forward network.

    Attributes:
        attention: the self-attention.
        cross_attention: the attention to the memory; None for a language model, which has none.
        feed_forward: the network.
        pre_norm, output_norm, parallel, dropout_rate, norm, epsilon, dtype, param_dtype: as in
            `EncoderBlock`. A parallel block has no `cross_attention`.
        return_weights: as in `Attention`. With a cache, a call returns `DecodedBlock` in any case.
    """

    def __post_init__(self):
        check_parallel(self, self.cross_attention)
        super().__post_init__()

    __call__ = nn.compact(DecoderBlockBase.__call__)


class BlockStack(nn.Module):
    """A stack of blocks of one shape, each with its own parameters.

        x, weights = BlockStack(EncoderBlock(...), 12, scan=True).apply(variables, inputs)

    Attributes:
        block: a block, of which every one of the stack is a copy.
        num_blocks: number of blocks.
        scan: whether one program of a block runs in a loop, so that the time of compilation does
            not grow with the blocks. The parameters in `block` then have a first axis of them, and
            all blocks have one path. Else they are in `blocks_0`, `blocks_1` and so on.
        remat: whether the gradient computes the activations within a block again, instead of
            storing them.
    """

    block: nn.Module
    num_blocks: int
    scan: bool = False
    remat: bool = False

    @nn.compact
    def __call__(self, inputs: Float[Array, "*b t d"], **options: Tree) -> Attended:
        """Calls all blocks with the same options.

        Returns:
            `Attended` with the outputs of the last block, and the weights of all blocks, which are
            the first axis, or None.
        """
        call: Tree = lambda block, x, _=None: tuple(as_attended(block(x, **options)))
        # In a loop XLA cannot merge the two computations, so nothing need prevent it.
        call = nn.remat(call, prevent_cse=not self.scan) if self.remat else call
        if self.scan:
            step = nn.scan(
                call,
                variable_axes={"params": 0, "intermediates": 0},  # blocks are the first axis
                split_rngs={"params": True, "dropout": True},  # each block draws its own
                length=self.num_blocks,
                metadata_params={nn.PARTITION_NAME: None},  # the axis of blocks stays whole
            )
            return Attended(*step(self.block, inputs, None))  # weights (blocks, ..., heads, t, t)
        x, weights = inputs, []
        for i in range(self.num_blocks):
            x, of_block = call(self.block.copy(name=f"blocks_{i}"), x)
            weights.append(of_block)  # (..., heads, t, t), or None
        return Attended(x, None if weights[0] is None else jnp.stack(weights))


def add_part(
    block: EncoderBlockBase | DecoderBlockBase,
    name: str,
    part: Callable[[Array], tuple[Array, Tree]],
    x: Array,
    read: Array | None = None,
    train: bool | None = None,
) -> tuple[Array, Tree]:
    """Adds a part of a block to `x`, with the norms of the block around it.

    The part reads `read`; None for `x`. Returns the sum, and what else the part returns.
    """
    read = x if read is None else read
    context, others = part(block._normed(f"{name}_norm", read) if block.pre_norm else read)
    if context.shape != x.shape:
        raise ValueError(f"expected {name} to return the shape {x.shape}, got {context.shape}")
    if block.output_norm:
        context = block._normed(f"{name}_output_norm", context)  # (..., t, d)
    x = x + block._drop(context, train)  # (..., t, d)
    if block.pre_norm or block.output_norm:
        return x, others
    return block._normed(f"{name}_norm", x), others


def fed(block: EncoderBlockBase | DecoderBlockBase, x: Array, train: bool | None) -> Array:
    """Applies the feed-forward network of a block."""
    output = block.feed_forward(x, **block._of_training(train))  # (..., t, d)
    return lens.at(lens.site(block._path(), "feed_forward"), "output", output)


def _without_hidden(
    x: Array, attention: MultiHeadBase | LinearAttentionBase, limits: Limits
) -> Array:
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
    has_key, has_query = visible.reachable_in_any_head(attention.chunk_size)  # (..., t)
    return hide(x, has_key | has_query | jnp.isfinite(x).all(axis=-1))  # finite vectors stay


def check_parallel(
    block: EncoderBlockBase | DecoderBlockBase, cross_attention: object = None
) -> None:
    """Raises a ValueError for a parallel block whose parts cannot read one input."""
    if block.parallel and (not block.pre_norm or cross_attention is not None):
        raise ValueError("expected pre_norm=True and no cross_attention in a parallel block")
