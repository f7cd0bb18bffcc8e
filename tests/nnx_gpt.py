"""`models.GPT` as a module of `flax.nnx`, from the layers of `flax_attn.attention.nnx`."""

import functools

import jax
from flax import nnx

from flax_attn.attention.nnx import (
    DecoderBlock,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    name_layers,
)

gelu = functools.partial(nnx.gelu, approximate=False)


class Nnx(nnx.Module):
    """A GPT with learned positions, and a method `decode` with caches.

    Options are those of attentions and feed-forward networks.
    """

    def __init__(self, vocabulary_size, max_length, features, num_heads, num_blocks, **options):
        rngs, widths = options["rngs"], {"in_features": features} | options
        self.embedding = nnx.Embed(vocabulary_size, features, rngs=rngs)
        self.position_table = LearnedPositions(max_length, features, rngs=rngs)
        make = lambda: DecoderBlock(
            MultiHeadAttention(num_heads, **widths),
            None,
            FeedForward(4 * features, gelu, **widths),
            rngs=rngs,
        )
        self.blocks = nnx.List([make() for _ in range(num_blocks)])
        self.norm = nnx.LayerNorm(features, rngs=rngs)
        self.max_length = max_length
        name_layers(self)

    def __call__(self, tokens):
        x = self.embedding(tokens) + self.position_table(tokens.shape[1])[None]
        for block in self.blocks:
            x = block(x, need_weights=False).context
        return self.embedding.attend(self.norm(x))

    def start(self, num_texts):
        return [block.attention.init_cache((num_texts,), self.max_length) for block in self.blocks]

    def decode(self, tokens, caches):
        vectors = self.position_table(tokens.shape[1], caches[0].length)
        x, longer = self.embedding(tokens) + vectors, []
        for block, cache in zip(self.blocks, caches):
            x, _, _, cache = block(x, cache=cache, need_weights=False)
            longer.append(cache)
        return self.embedding.attend(self.norm(x)), longer


def of_linen(model, params):
    """Makes the module with the parameters of a `models.GPT`."""
    sizes = model.vocabulary_size, model.max_length, model.features, model.num_heads
    module = Nnx(*sizes, model.num_blocks, rngs=nnx.Rngs(0))
    tree = {name: layer for name, layer in params.items() if not name.startswith("blocks_")}
    tree["blocks"] = {i: params[f"blocks_{i}"] for i in range(model.num_blocks)}
    state = nnx.state(module, nnx.Param)
    nnx.replace_by_pure_dict(state, jax.tree.map(lambda leaf: leaf, tree))
    nnx.update(module, state)
    return module
