"""Blocks of the Transformer, and stacks of them, as modules of `flax.nnx`."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from flax_attn.attention.core import Attended
from flax_attn.attention.layers import transformer
from flax_attn.attention.layers.multi_head import on_one_axis
from flax_attn.attention.layers.shells import Norm, as_attended
from flax_attn.attention.nnx.linear import LinearAttention
from flax_attn.attention.nnx.multi_head import MultiHeadAttention
from flax_attn.attention.nnx.shell import NO_METADATA, Metadata, Shell
from flax_attn.types import Options, Tree


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class FeedForward(transformer.FeedForwardBase, Shell):
    """Two dense layers at each position, `W_2 f(W_1 x + b_1) + b_2`, or with a gate."""

    in_features: int
    kernel_metadata: Metadata = NO_METADATA
    bias_metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        options: Options = {"use_bias": self.use_bias, "precision": self.precision}
        options["dot_general"] = jax.lax.dot_general if self.across else on_one_axis
        for name in ("hidden", "gate") if self.gated else ("hidden",):
            self._add_dense(name, (self.in_features, self.features), rngs, **options)
        self._add_dense("out", (self.features, self.in_features), rngs, **options)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class EncoderBlock(transformer.EncoderBlockBase, Shell):
    """Self-attention and a feed-forward network, each in a residual connection.

    Attributes:
        attention: the self-attention, such as `MultiHeadAttention(8, in_features=64, rngs=rngs)`.
        feed_forward: the network, a module from `(..., t, d)` to the same shape.
        norm: class of the norms, such as `nnx.RMSNorm`, which gets the width, `epsilon`,
            `param_dtype` and `rngs`.
    """

    attention: MultiHeadAttention | LinearAttention = dataclasses.field(kw_only=False)
    norm: Norm = nnx.LayerNorm

    def _make_params(self, rngs: nnx.Rngs) -> None:
        transformer.check_parallel(self)
        _add_norms(self, ("attention", "feed_forward"), rngs)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class DecoderBlock(transformer.DecoderBlockBase, Shell):
    """Causal self-attention, cross-attention to a memory, and a feed-forward network.

    Attributes:
        attention, feed_forward, norm: as in `EncoderBlock`.
        cross_attention: the attention to the memory; None for a language model, which has none.
    """

    attention: MultiHeadAttention | LinearAttention = dataclasses.field(kw_only=False)
    cross_attention: MultiHeadAttention | None = dataclasses.field(kw_only=False)
    norm: Norm = nnx.LayerNorm

    def _make_params(self, rngs: nnx.Rngs) -> None:
        transformer.check_parallel(self, self.cross_attention)
        parts = ("attention", "feed_forward")
        _add_norms(self, (*parts, "cross_attention") if self.cross_attention else parts, rngs)


def _add_norms(block: EncoderBlock | DecoderBlock, parts: tuple[str, ...], rngs: nnx.Rngs) -> None:
    """Adds the norms of a block around its parts."""
    ends = ["_norm"] if block.pre_norm or not block.output_norm else []
    ends += ["_output_norm"] if block.output_norm else []
    width = block.attention.in_features
    for name in (part + end for part in parts for end in ends):
        block._add_norm(name, block.norm, width, rngs, epsilon=block.epsilon)


WHOLE_AXIS = {nnx.PARTITION_NAME: None}  # the axis of blocks stays whole where others are sharded


class BlockStack(nnx.Module):
    """A stack of blocks of one shape, each with its own parameters.

        make = lambda rngs: EncoderBlock(..., rngs=rngs)
        x, weights = BlockStack(make, 12, scan=True, rngs=nnx.Rngs(0))(x, lengths=lengths)

    Args:
        make: a function of `rngs` that makes a block.
        num_blocks: number of blocks.
        scan: whether one program of a block runs in a loop, so that the time of compilation does
            not grow with the blocks. The parameters in `blocks` then have a first axis of them.
        remat: whether the gradient computes the activations within a block again, instead of
            storing them.
        rngs: for all blocks.
    """

    def __init__(
        self,
        make: Callable[[nnx.Rngs], EncoderBlock | DecoderBlock],
        num_blocks: int,
        *,
        scan: bool = False,
        remat: bool = False,
        rngs: nnx.Rngs,
    ):
        self.num_blocks, self.scan, self.remat = num_blocks, scan, remat
        if scan:
            split = nnx.split_rngs(splits=num_blocks)
            self.blocks = split(nnx.vmap(make, transform_metadata=WHOLE_AXIS))(rngs)
        else:
            self.blocks = nnx.List([make(rngs) for _ in range(num_blocks)])

    def __call__(self, inputs: Float[Array, "*b t d"], **options: Tree) -> Attended:
        """Calls all blocks with the same options.

        Returns:
            `Attended` with the outputs of the last block, and the weights of all blocks, which are
            the first axis, or None.
        """
        call: Tree = lambda block, x: tuple(as_attended(block(x, **options)))
        call = nnx.remat(call) if self.remat else call
        if self.scan:
            axes: Options = {"in_axes": (nnx.Carry, 0), "transform_metadata": WHOLE_AXIS}
            step = nnx.scan(lambda x, block: call(block, x), **axes)
            return Attended(*step(inputs, self.blocks))  # weights (blocks, ..., heads, t, t)
        x, weights = inputs, []
        blocks: Tree = self.blocks
        for block in blocks:
            x, of_block = call(block, x)
            weights.append(of_block)
        return Attended(x, None if weights[0] is None else jnp.stack(weights))
