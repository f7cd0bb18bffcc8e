"""The models that are published: decoders of text, encoders of text or images, and both in one.

Blocks, norms, networks and attention are those of the library. The differences between families
are attributes.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import FrozenDict
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from flax_attn.attention import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    LearnedPositions,
    LinearAttention,
    MultiHeadAttention,
    RelativeBias,
    dot,
    scaled_dot,
)
from flax_attn.models.by_block import lengths_of, named
from flax_attn.models.forward import TokenInputs
from flax_attn.models.gpt import GPT, gelu
from flax_attn.models.images import cut_patches
from flax_attn.models.translation_transformer import TranslationTransformer
from flax_attn.types import Options, Tree

Outputs = tuple[Array, dict[str, Tree]]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": nn.gelu,  # with tanh
    "gelu_fast": nn.gelu,
    "gelu_pytorch_tanh": nn.gelu,
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "relu": nn.relu,
    "silu": nn.silu,
}


class Decoder(GPT):
    """`GPT` as GPT-2, Llama, Mistral, Qwen, Gemma, OLMo, Pythia and Phi have it.

        x = scale E[tokens] + positions
        N times: x = x + attention(norm(x)),   x = x + feed_forward(norm(x))
        logits = cap(norm(x) U)

    Attributes:
        head_features: width of a head; 0 for `features / num_heads`.
        rms: whether norms divide by the root mean square alone, without a mean or a bias.
        norm_parameters: whether norms have scales, and biases where they subtract the mean.
        epsilon: number that the norms add to the variance.
        pre_norm, output_norm, parallel: as in `DecoderBlock`.
        activation: a name of `ACTIVATIONS`.
        gated: whether the feed-forward networks have a gate.
        query_bias, out_bias, hidden_bias: whether there are biases in the projections of queries,
            keys and values, in that of the context, and in the feed-forward networks.
        query_key_norm: `head` for a norm of queries and keys in each head, `all` for one over all
            heads; empty for none.
        scale, softcap: of the scores; None for `1 / sqrt(d)` and for no cap.
        rotary_features: the number of features of a head that are turned; 0 for all.
        frequencies: of rotary positions, for each block.
        windows: the number of tokens that a position reads in each block, 0 for all.
        output_gate: as in `MultiHeadAttention`.
        linear: arguments of `LinearAttention`, for blocks whose `attention` is not `full`.
        embedding_scale: factor of the embeddings.
        tied: whether the logits are products with the embeddings.
        unembedding_bias: whether the logits have biases, where they are not tied.
        logit_softcap: of the logits, as that of the scores.
    """

    head_features: int = 0
    rms: bool = False
    norm_parameters: bool = True
    epsilon: float = 1e-5
    pre_norm: bool = True
    output_norm: bool = False
    parallel: bool = False
    activation: str = "gelu_new"
    gated: bool = False
    query_bias: bool = True
    out_bias: bool = True
    hidden_bias: bool = True
    query_key_norm: str = ""
    scale: float | None = None
    softcap: float | None = None
    rotary_features: int = 0
    frequencies: tuple[tuple[float, ...], ...] = ()
    windows: tuple[int, ...] = ()
    output_gate: bool = False
    linear: Mapping[str, Any] = FrozenDict()
    embedding_scale: float = 1.0
    tied: bool = True
    unembedding_bias: bool = False
    logit_softcap: float | None = None
    num_unwritten: ClassVar[int] = 0  # every token may be written

    def setup(self):
        self.embedding = nn.Embed(self.vocabulary_size, self.features)
        if self.positions == "learned":
            self.position_table = LearnedPositions(self.max_length, self.features)
        self.blocks = [self._block_at(i) for i in range(self.num_blocks)]
        self.norm = self._norm_class(epsilon=self.epsilon)
        self.dropout = nn.Dropout(self.dropout_rate)
        if not self.tied:
            self.unembedding = nn.Dense(self.vocabulary_size, use_bias=self.unembedding_bias)

    @property
    def _norm_class(self) -> Callable[..., nn.Module]:
        if self.norm_parameters:
            return nn.RMSNorm if self.rms else nn.LayerNorm
        return functools.partial(nn.LayerNorm, use_scale=False, use_bias=False)

    @nn.nowrap
    def _block_at(self, i: int) -> DecoderBlock:
        rule, options = self.attentions[i], {"epsilon": self.epsilon, **self.linear}
        attention = self._full(i) if rule == "full" else LinearAttention(rule=rule, **options)
        network = FeedForward(
            self.hidden_features,
            ACTIVATIONS[self.activation],
            gated=self.gated,
            use_bias=self.hidden_bias,
            across=self.across,
        )
        return DecoderBlock(
            attention,
            None,
            network,
            pre_norm=self.pre_norm,
            output_norm=self.output_norm,
            parallel=self.parallel,
            norm=self._norm_class,
            epsilon=self.epsilon,
        )

    @nn.nowrap
    def _full(self, i: int) -> MultiHeadAttention:
        axes = (-2, -1) if self.query_key_norm == "all" else -1
        options = {"epsilon": self.epsilon, "reduction_axes": axes, "feature_axes": axes}
        query_key_norm = functools.partial(nn.RMSNorm, **options) if self.query_key_norm else False
        return MultiHeadAttention(
            self.num_heads,
            num_key_heads=self.num_key_heads or None,
            key_features=(self.head_features or self.features // self.num_heads) * self.num_heads,
            score=functools.partial(scaled_dot, scale=self.scale, softcap=self.softcap),
            use_bias=self.query_bias,
            out_bias=self.out_bias,
            rotary=self.positions == "rotary",
            rotary_features=self.rotary_features or None,
            rotary_frequencies=self.frequencies[i] if self.frequencies else None,
            query_key_norm=query_key_norm,
            output_gate=self.output_gate,
            across=self.across,
        )

    @nn.nowrap
    def _window(self, number: int) -> tuple[int, int] | None:
        window = self.windows[number] if self.windows else 0
        return (window - 1, 0) if window else None

    @nn.nowrap
    def alike(self, number: int) -> int:
        others = (kind for kind in (self.windows, self.frequencies) if kind)
        kinds = list(zip(self.attentions, *others))
        return kinds.index(kinds[number])

    def begin(
        self, tokens: Int[Array, "b t"], offset: ArrayLike = 0, *, train: bool = False
    ) -> Float[Array, "b t d"]:
        x = super().begin(tokens, offset, train=train)
        return x if self.embedding_scale == 1 else x * self.embedding_scale

    def end(self, x: Float[Array, "*t d"]) -> Float[Array, "*t v"]:
        logits = super().end(x) if self.tied else self.unembedding(self.norm(x))
        cap = self.logit_softcap
        return logits if cap is None else cap * jnp.tanh(logits / cap)


class Stack(nn.Module):
    """Blocks over a whole input, from the states of `begin` to the outputs of `end`."""

    if TYPE_CHECKING:
        num_blocks: int

        def begin(self, *inputs: Tree, **options: Tree) -> Tree: ...
        def end(self, x: Tree) -> Array: ...

    def __call__(self, inputs: Tree, *, train: bool = False, need_weights: bool = True) -> Outputs:
        """Computes outputs, and the weights of each block if needed.

        Texts have `lengths` `(b,)` among their inputs.
        """
        lengths = lengths_of(inputs)
        x, attention = self.begin(inputs), {}
        for i in range(self.num_blocks):
            options = {"lengths": lengths, "train": train, "need_weights": need_weights}
            x, weights, _ = self.block(i, x, **options)
            attention |= named(self, i, weights) if need_weights else {}
        return self.end(x), {"attention": attention}

    def block(self, number: int, x: Tree, **options: Tree) -> tuple[Tree, Tree, None]:
        """Calls a block. Returns the states, and the weights if needed."""
        options.pop("cache", None)
        x, weights = self.blocks[number](x, **options)
        return x, weights, None

    @nn.nowrap
    def alike(self, number: int) -> int:
        """Returns the first block that differs from this one by its parameters alone."""
        del number
        return 0


class Encoder(Stack):
    """BERT, RoBERTa, ELECTRA and DistilBERT: post-norm blocks over whole texts, and a head.

        x = norm(E[tokens] + positions + types) [W]
        N times: x = norm(x + attention(x)),   x = norm(x + feed_forward(x))

    Source: Devlin et al. 2019 (arXiv:1810.04805).

    Attributes:
        vocabulary_size, max_length, num_types: of the three tables; no types where it is 0.
        features, num_heads, num_blocks, hidden_features: of the blocks.
        activation: a name of `ACTIVATIONS`.
        epsilon: number that the norms add to the variance.
        head: `states` for the states `(b, t, features)`, `classes` for logits `(b, classes)` of the
            first token, `tokens` for logits `(b, t, classes)` of each token, `words` for logits
            `(b, t, vocabulary)` of each word.
        pooling: `tanh`, `relu` or `gelu`, the activation of the layer before the classes.
        num_classes: of `classes` and `tokens`; 1 for a number.
        embedding_features: width of the three tables, if `W` makes others of it.
    """

    vocabulary_size: int
    max_length: int
    features: int
    num_heads: int
    num_blocks: int
    hidden_features: int
    num_types: int = 0
    activation: str = "gelu"
    epsilon: float = 1e-12
    head: str = "states"
    pooling: str = "tanh"
    num_classes: int = 0
    embedding_features: int = 0

    def setup(self):
        norm = functools.partial(nn.LayerNorm, epsilon=self.epsilon)
        width = self.embedding_features or self.features
        self.embedding = nn.Embed(self.vocabulary_size, width)
        self.positions = LearnedPositions(self.max_length, width)
        if self.num_types:
            self.types = nn.Embed(self.num_types, width)
        if width != self.features:
            self.embedding_projection = nn.Dense(self.features)
        self.embedding_norm = norm()
        self.blocks = encoder_blocks(self, pre_norm=False)
        if self.head == "classes":
            self.pooler, self.classes = nn.Dense(self.features), nn.Dense(self.num_classes)
        elif self.head == "tokens":
            self.classes = nn.Dense(self.num_classes)
        elif self.head == "words":
            self.word, self.word_norm = nn.Dense(width), norm()
            self.word_bias = self.param("word_bias", nn.initializers.zeros, (self.vocabulary_size,))

    def begin(self, inputs: dict[str, Int[Array, "..."]]) -> Float[Array, "b t d"]:
        """Embeds `tokens` `(b, t)`. `types` `(b, t)` are 0 where they are not given."""
        tokens = inputs["tokens"]
        x = self.embedding(tokens) + self.positions(tokens.shape[1])[None]
        if self.num_types:
            x += self.types(inputs.get("types", jnp.zeros_like(tokens)))
        x = self.embedding_norm(x)
        is_wide = self.embedding_features in (0, self.features)
        return x if is_wide else self.embedding_projection(x)

    def end(self, x: Float[Array, "b t d"]) -> Float[Array, "b ..."]:
        if self.head == "classes":
            squash = jnp.tanh if self.pooling == "tanh" else ACTIVATIONS[self.pooling]
            x = self.classes(squash(self.pooler(x[:, 0])))
        elif self.head == "tokens":
            x = self.classes(x)
        elif self.head == "words":
            x = self.word_norm(ACTIVATIONS[self.activation](self.word(x)))
            x = self.embedding.attend(x) + self.word_bias[None, None]
        return x


class VisionTransformer(Stack):
    """ViT and DeiT: pre-norm blocks over the patches of an image, and classes of its first token.

        x = [class token, patches W + b] + positions
        N times: x = x + attention(norm(x)),   x = x + feed_forward(norm(x))
        logits = norm(x)_0 U

    Source: Dosovitskiy et al. 2021 (arXiv:2010.11929); Touvron et al. 2021 (arXiv:2012.12877), for
    a second token, trained on the classes of a teacher.

    Attributes:
        num_classes: 0 for the states `(b, tokens, features)`.
        image_size, patch_size, channels: of the images, in pixels.
        features, num_heads, num_blocks, hidden_features: of the blocks.
        activation: a name of `ACTIVATIONS`.
        epsilon: number that the norms add to the variance.
        query_bias: whether queries, keys and values have biases.
        has_teacher_token: whether there is a second token.
        has_teacher_classes: whether the logits are the mean of the classes of both tokens.
    """

    num_classes: int
    image_size: int
    patch_size: int
    channels: int
    features: int
    num_heads: int
    num_blocks: int
    hidden_features: int
    activation: str = "gelu"
    epsilon: float = 1e-12
    query_bias: bool = True
    has_teacher_token: bool = False
    has_teacher_classes: bool = False

    def setup(self):
        names = ["class_token", "teacher_token"] if self.has_teacher_token else ["class_token"]
        token = lambda name: self.param(name, nn.initializers.zeros, (1, 1, self.features))
        self.first = [token(name) for name in names]
        self.patches = nn.Dense(self.features)
        length = (self.image_size // self.patch_size) ** 2 + len(self.first)
        self.positions = LearnedPositions(length, self.features)
        self.blocks = encoder_blocks(self, query_bias=self.query_bias)
        self.norm = nn.LayerNorm(epsilon=self.epsilon)
        if self.num_classes:
            self.classes = nn.Dense(self.num_classes)
        if self.has_teacher_classes:
            self.teacher_classes = nn.Dense(self.num_classes)

    def begin(self, inputs: Float[Array, "b height width c"]) -> Float[Array, "b t d"]:
        x = self.patches(cut_patches(inputs, self.patch_size))
        x = jnp.concatenate(
            [*(jnp.tile(token, (x.shape[0], 1, 1)) for token in self.first), x], axis=1
        )
        return x + self.positions(x.shape[1])[None]

    def end(self, x: Float[Array, "b t d"]) -> Float[Array, "b ..."]:
        x = self.norm(x)
        if self.has_teacher_classes:
            x = (self.classes(x[:, 0]) + self.teacher_classes(x[:, 1])) / 2
        elif self.num_classes:
            x = self.classes(x[:, 0])
        return x


class EncoderDecoder(Stack):
    """T5: an encoder of a source, and a decoder that attends to it and writes a target.

        source   x = E[tokens]
                 N times: x = x + attention(norm(x)),   x = x + feed_forward(norm(x))
        target   the same, causal, with attention to norm(source) between the two
        logits = norm(target) U

    Scores are dot products without a factor. Those of self-attention get a bias by distance, which
    all blocks of a stack share. Inputs and the methods of a search are those of `Seq2Seq`. States
    are those of `source` and `target`. Blocks of the encoder come first.

    Source: Raffel et al. 2020 (arXiv:1910.10683).

    Attributes:
        vocabulary_size: of source and target.
        max_length: the number of tokens of a source that is read.
        features, num_heads, head_features, hidden_features: of the blocks.
        num_encoder_blocks, num_blocks: of the encoder, and of both.
        start_token: the token that stands before a target.
        activation: a name of `ACTIVATIONS`.
        gated: whether the feed-forward networks have a gate.
        epsilon: number that the norms add to the mean square.
        num_buckets, max_distance: of `RelativeBias`.
        tied: whether the logits are products with the embeddings.
    """

    vocabulary_size: int
    max_length: int
    features: int
    num_heads: int
    head_features: int
    hidden_features: int
    num_encoder_blocks: int
    num_blocks: int
    start_token: int = 0
    activation: str = "relu"
    gated: bool = False
    epsilon: float = 1e-6
    num_buckets: int = 32
    max_distance: int = 128
    tied: bool = True
    num_unwritten: ClassVar[int] = 0  # every token may be written
    sequences_at_once: ClassVar[int] = 64
    positions: ClassVar[str] = "relative"
    scale: ClassVar[float] = 1.0

    def setup(self):
        self.embedding = self.target_embedding = nn.Embed(self.vocabulary_size, self.features)
        sizes = self.num_heads, self.num_buckets, self.max_distance
        self.encoder_bias = RelativeBias(*sizes)
        self.decoder_bias = RelativeBias(*sizes, bidirectional=False)
        width = self.num_heads * self.head_features
        attention = lambda: MultiHeadAttention(
            self.num_heads, key_features=width, score=dot, use_bias=False
        )
        activation = ACTIVATIONS[self.activation]
        network = lambda: FeedForward(
            self.hidden_features, activation, gated=self.gated, use_bias=False
        )
        options: Options = {"norm": nn.RMSNorm, "epsilon": self.epsilon}
        encoder = lambda: EncoderBlock(attention(), network(), **options)
        decoder = lambda: DecoderBlock(attention(), attention(), network(), **options)
        number = self.num_encoder_blocks
        self.blocks = [(encoder if i < number else decoder)() for i in range(self.num_blocks)]
        self.decoder = self.blocks[number:]
        self.encoder_norm = nn.RMSNorm(epsilon=self.epsilon)
        self.decoder_norm = nn.RMSNorm(epsilon=self.epsilon)
        if not self.tied:
            self.unembedding = nn.Dense(self.vocabulary_size, use_bias=False)

    def begin(self, inputs: TokenInputs) -> dict[str, Array]:
        """Embeds `source` `(b, s)` and `target` `(b, t)`."""
        return {name: self.embedding(inputs[name]) for name in ("source", "target")}

    def block(
        self, number: int, x: dict[str, Array], *, lengths: Array, **options: Tree
    ) -> tuple[dict[str, Array], tuple[Array | None, ...], None]:
        """Calls a block. Returns states and weights. `lengths` are those of the source."""
        options.pop("cache", None)
        block: Tree = self.blocks[number]
        if number < self.num_encoder_blocks:
            options |= {"bias": self.encoder_bias(), "lengths": lengths}
            source, weights = block(x["source"], **options)
            return x | {"source": source}, (weights,), None
        options |= {"bias": self.decoder_bias(), "memory_lengths": lengths}
        target, own, cross, _ = block(x["target"], self.encoder_norm(x["source"]), **options)
        return x | {"target": target}, (own, cross), None

    def end(self, x: dict[str, Array]) -> Float[Array, "*t v"]:
        """Computes the logits from the states of the target after the last block."""
        return self._logits(x["target"])

    @nn.nowrap
    def names(self, number: int) -> tuple[str, ...]:
        """Returns the names of the weights of a block."""
        i = number - self.num_encoder_blocks
        return (f"encoder{number}",) if i < 0 else (f"decoder{i}", f"cross{i}")

    @nn.nowrap
    def alike(self, number: int) -> int:
        return 0 if number < self.num_encoder_blocks else self.num_encoder_blocks

    # a search, and the methods that it calls

    encode = TranslationTransformer.encode
    start = TranslationTransformer.start
    decode_step = TranslationTransformer.decode_step

    def _encode(self, inputs: TokenInputs, train: bool) -> Float[Array, "b s d"]:
        x, options = {"source": self.embedding(inputs["source"])}, {"need_weights": False}
        for i in range(self.num_encoder_blocks):
            x, _, _ = self.block(i, x, lengths=inputs["source_lengths"], train=train, **options)
        return self.encoder_norm(x["source"])

    def _embed(
        self, layer: nn.Embed, tokens: Int[Array, "*b t"], train: bool, offset: ArrayLike
    ) -> Float[Array, "*b t d"]:
        return layer(tokens)

    def _decoder_bias(self) -> Callable[[Array, Array], Array]:
        return self.decoder_bias()

    def _logits(self, x: Float[Array, "*t d"]) -> Float[Array, "*t v"]:
        x = self.decoder_norm(x)
        return self.embedding.attend(x) if self.tied else self.unembedding(x)


AnyModel = Decoder | Encoder | VisionTransformer | EncoderDecoder


def encoder_blocks(
    model: Encoder | VisionTransformer, pre_norm: bool = True, query_bias: bool = True
) -> list[EncoderBlock]:
    """Returns the blocks of an encoder of texts or images."""
    activation = ACTIVATIONS[model.activation]
    return [
        EncoderBlock(
            MultiHeadAttention(model.num_heads, use_bias=query_bias, out_bias=True),
            FeedForward(model.hidden_features, activation),
            pre_norm=pre_norm,
            epsilon=model.epsilon,
        )
        for _ in range(model.num_blocks)
    ]
