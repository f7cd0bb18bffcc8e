"""A language model from tokens `(b, t)` to logits of each next token `(b, t, vocabulary)`.

    x = E[tokens] + positions
    N times: x = x + attention(norm(x)),   x = x + feed_forward(norm(x))
    logits = norm(x) E^T

Source: Radford et al. 2019 ("Language Models are Unsupervised Multitask Learners", GPT-2); Press &
Wolf 2017 (arXiv:1608.05859) for the embeddings that serve twice; Su et al. 2021 (arXiv:2104.09864)
for rotary positions; Yang et al. 2025 (arXiv:2412.06464), section 3.4, for blocks of two kinds.
"""

import functools
import itertools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from flax_attn.attention import (
    Across,
    DecoderBlock,
    FeedForward,
    KeyValueCache,
    LearnedPositions,
    LinearAttention,
    MultiHeadAttention,
    SlidingCache,
    StateCache,
)
from flax_attn.types import Options, Tree

POSITIONS = ("learned", "rotary")
Caches = tuple[KeyValueCache | SlidingCache | StateCache, ...]  # one for each block


# Source: Hendrycks & Gimpel 2016 (arXiv:1606.08415), `x Phi(x)`.
gelu = functools.partial(nn.gelu, approximate=False)


class GPT(nn.Module):
    """A stack of causal blocks. Each position reads itself and the positions before it.

    Attributes:
        vocabulary_size: decided by the data.
        max_length: the number of tokens that it reads at most, decided by the data.
        features: width of the embeddings and of all blocks.
        num_heads: of every attention.
        num_key_heads: of keys and values, a divisor of `num_heads`; 0 for `num_heads`.
        num_blocks: of the stack.
        attention: the attention of each block, by names that are repeated over the blocks: `full`
            for softmax, or a rule of `LinearAttention`. Three delta blocks and a full one are
            `gated_delta gated_delta gated_delta full`.
        hidden_features: width of the feed-forward networks; 0 for four times `features`.
        positions: `learned`, added to the embeddings, or `rotary`, in every full attention.
        window: the number of tokens that a position reads at most in a full attention, itself
            included; 0 for all.
        dropout_rate: share of the embeddings, of the attention weights and of each part's outputs
            that are dropped in training.
        across: cuts the texts over devices, as in `attend`.

    Raises:
        ValueError: `positions` that are neither, or `rotary` ones with heads of an odd width.
    """

    vocabulary_size: int
    max_length: int
    features: int = 128
    num_heads: int = 4
    num_key_heads: int = 0
    num_blocks: int = 4
    attention: str = "full"
    hidden_features: int = 0
    positions: str = "learned"
    window: int = 0
    dropout_rate: float = 0.0
    across: Across | None = None

    def setup(self):
        if self.positions not in POSITIONS:
            raise ValueError(f"expected positions of {POSITIONS}, got {self.positions!r}")
        if self.positions == "rotary" and self.features // self.num_heads % 2:
            raise ValueError(
                f"expected an even width of each head with positions='rotary', got "
                f"features={self.features} and num_heads={self.num_heads}"
            )
        normal = nn.initializers.normal(0.02)  # as in GPT-2
        self.embedding = nn.Embed(self.vocabulary_size, self.features, embedding_init=normal)
        if self.positions == "learned":
            self.position_table = LearnedPositions(self.max_length, self.features)
        self.blocks = [self._block(name) for name in self.attentions]
        self.norm = nn.LayerNorm()
        self.dropout = nn.Dropout(self.dropout_rate)

    @nn.nowrap
    def _block(self, name: str) -> DecoderBlock:
        key_heads = self.num_key_heads or None
        if name == "full":
            options: Options = {"dropout_rate": self.dropout_rate, "across": self.across}
            options |= {"num_key_heads": key_heads, "rotary": self.positions == "rotary"}
            attention = MultiHeadAttention(self.num_heads, **options)
        else:
            attention = LinearAttention(self.num_heads, key_heads, rule=name)
        width = self.hidden_features or 4 * self.features
        network = FeedForward(width, gelu, across=self.across)
        return DecoderBlock(attention, None, network, dropout_rate=self.dropout_rate)

    def __call__(
        self, tokens: Int[Array, "b t"], *, train: bool = False, need_weights: bool = False
    ) -> tuple[Float[Array, "b t v"], dict[str, Tree]]:
        """Computes logits `(b, t, vocabulary)` of the token after each.

        With `need_weights`, `aux["attention"]` has the weights `(b, heads, t, t)` of each block.
        """
        chex.assert_rank(tokens, 2)
        x, attention = self.begin(tokens, train=train), {}  # (b, t, d)
        for i in range(self.num_blocks):
            x, weights, _ = self.block(i, x, train=train, need_weights=need_weights)
            attention |= {f"block{i}": weights} if need_weights else {}  # (b, heads, t, t)
        return self.end(x), {"attention": attention}  # (b, t, v)

    def start(self, num_texts: int) -> Caches:
        """Makes empty caches for texts of up to `max_length` tokens, in the dtype of parameters."""
        params = jax.tree.leaves(self.variables.get("params", {}))
        dtype = params[0].dtype if params else jnp.float32
        sizes = self.features, (num_texts,), self.max_length, dtype
        return tuple(block.attention.init_cache(*sizes) for block in self.blocks)

    def decode(
        self, tokens: Int[Array, "b t"], caches: Caches, lengths: ArrayLike | None = None
    ) -> tuple[Float[Array, "b t v"], Caches]:
        """Computes the logits of tokens after those in the caches, and the caches with them.

        Args:
            tokens: the next ones of each text.
            caches: from `start`, or from the call before.
            lengths: `(b,)`, the number of real tokens in each row; None for all.
        """
        x, extended = self.begin(tokens, caches[0].length), []  # (b, t, d)
        for i, cache in enumerate(caches):
            x, _, longer = self.block(i, x, cache=cache, lengths=lengths)
            extended.append(longer)
        return self.end(x), tuple(extended)  # (b, t, v)

    # parts, as in `by_block`

    def begin(
        self, tokens: Int[Array, "b t"], offset: ArrayLike = 0, *, train: bool = False
    ) -> Float[Array, "b t d"]:
        """Embeds tokens, and their positions from `offset` on."""
        x = self.embedding(tokens)  # (b, t, d)
        if self.positions == "learned":
            vectors = self.position_table(tokens.shape[1], offset)  # (t, d) or (b, t, d)
            x = x + (vectors if vectors.ndim == 3 else vectors[None])
        return self.dropout(x, deterministic=not train)

    def block(
        self, number: int, x: Float[Array, "b t d"], *, need_weights: bool = False, **options: Tree
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b h t _"] | None, Tree]:
        """Calls a block. Returns the states, the weights if needed, and the longer cache."""
        options |= {"window": self._window(number), "need_weights": need_weights}
        x, weights, _, longer = self.blocks[number](x, **options)  # (b, t, d), (b, heads, t, _)
        return x, weights, longer

    @nn.nowrap
    def alike(self, number: int) -> int:
        """Returns the first block that differs from this one by its parameters alone."""
        return self.attentions.index(self.attentions[number])

    @property
    def attentions(self) -> tuple[str, ...]:
        """Returns the name of each block's attention."""
        names = itertools.cycle(self.attention.split() or ["full"])
        return tuple(itertools.islice(names, self.num_blocks))

    def end(self, x: Float[Array, "*t d"]) -> Float[Array, "*t v"]:
        """Computes the logits from the states after the last block."""
        return self.embedding.attend(self.norm(x))  # by the embeddings (Press & Wolf 2017)

    @nn.nowrap
    def _window(self, number: int) -> tuple[int, int] | None:
        is_full = self.attentions[number] == "full"
        return (self.window - 1, 0) if self.window and is_full else None
