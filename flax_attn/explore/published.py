"""Answers a page about a published model: its heads one by one, and the path of a token.

All weights of many heads would be megabytes, so a reply has a small map of each head as bytes, and
of one head the weights of one query. Parameters are those of the folder; nothing is trained.
"""

import functools
import math
import re
from pathlib import Path
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Bool, Float

from flax_attn.attention import Lens
from flax_attn.attention.arrays import with_rank
from flax_attn.attention.lens import Change, layer_of
from flax_attn.errors import counted
from flax_attn.experiment.loading import Model
from flax_attn.explore.under_lens import NORMALIZERS, Traced
from flax_attn.models import by_block
from flax_attn.models.forward import Inputs, Params, check_finite
from flax_attn.models.language import softmax
from flax_attn.models.score_parts import of_states
from flax_attn.page.data import safe
from flax_attn.published.folder import read_json
from flax_attn.published.modules import AnyModel, Decoder, EncoderDecoder, VisionTransformer
from flax_attn.published.tasks import NO_CLASSES, Continued, Prepared, Read, Seen, Translated
from flax_attn.tasks import replies
from flax_attn.tasks.asking import MOST_TOKENS, Asked, Settings, View, read
from flax_attn.types import Json, JsonObject, Options, Tree

SIDE = 64  # cells along the map of one head
SMALL = 16  # the same of all heads
ROOM = 80_000  # cells of all small maps
NEXT = 5  # tokens that are named after each block
PAIRS = 3  # of parts of a score, which are named
MOST_BARS = 4_096  # numbers of a vector
MOST_SIDE = 56  # pixels of an image that a page asks about
AT_ONCE = 4, 16  # settings that one program takes: as many as a block has heads, within these
VECTORS = "query", "key", "value", "context"  # of a token in a head: the parts of sites
IN_CACHE = re.compile(r"/models--([^/]+)/snapshots/[^/]+$")  # of Hugging Face
ARITHMETIC = "scale", "softcap", "positions", "output_gate", "output_norm"
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")


class ShownAttention(NamedTuple):
    """An attention.

    Attributes:
        name: as a page shows it.
        block, path: the number of its block, and where it is in it.
        queries, keys: names of their tokens in a reply. A decoder has `read` tokens, and writes the
            next ones, the `target`.
    """

    name: str
    block: int
    path: str = "attention"
    queries: str = "tokens"
    keys: str = "tokens"


class PublishedAnswers:
    """Answers for one published model.

    Attributes:
        layers: the attentions.
        heads: the number of heads of each attention.
        is_linear: whether each attention is without softmax.
    """

    def __init__(self, run: Model) -> None:
        assert isinstance(run.task, Continued | Read | Seen | Translated)
        self.run, self.task, self.model = run, run.task, cast(AnyModel, run.model)
        self.params: Params = run.params[0]
        self.layers = layers_of(self.model)
        self.is_linear = [False] * len(self.layers)
        self.heads = [self.model.num_heads] * len(self.layers)
        if isinstance(self.model, Decoder):
            self.is_linear = [name != "full" for name in self.model.attentions]
            of_linear = self.model.linear.get("num_heads", self.model.num_heads)
            self.heads = [of_linear if own else self.model.num_heads for own in self.is_linear]
        self.at_once = min(max(*self.heads, AT_ONCE[0]), AT_ONCE[1])
        options: Options = {"static_argnums": 0, "static_argnames": "normalizer"}
        self.block, self.blocks = jax.jit(self._block, **options), jax.jit(self._blocks, **options)
        self.ended = jax.jit(self._ended)
        self.last: tuple[object, dict[str, Tree]] | None = None  # what was looked at last
        if isinstance(self.task, Translated):  # a search takes long
            written = functools.partial(self.task.prepared, self.model, self.params)
            self.written = functools.lru_cache(1)(written)

    def warm(self) -> None:
        """Compiles what a page asks first."""
        if text := first_text(self.task, self.model):
            self({"inputs": {"text": text}})

    def __call__(self, request: Json) -> JsonObject:
        """Returns the reply to a request. Its texts are escaped, as all that a page shows.

        Raises:
            UsageError: a request that is none, or an input that the model does not take.
        """
        asked = read(request)
        if isinstance(self.task, Translated):
            prepared = self.written(asked.words())
        else:
            prepared = self.task.prepared(asked)
        answered = prepared.target or prepared
        token = answered.token if asked.view.token is None else asked.view.token
        token, source = min(token, answered.length - 1), asked.view.source or 0
        source = min(source, prepared.length - 1)
        view = msgspec.structs.replace(asked.view, token=token, source=source)
        if prepared.target:
            prepared = prepared._replace(inputs=prepared.inputs | {"last": np.int32(token)})
        looked = self._looked(asked, prepared)
        check_finite(looked["outputs"])
        reply = replies.EMPTY | self.task.target.reply(looked["outputs"]) | {"outputs": None}
        if asked.changes:
            reply["effects"] = self._effects(asked, prepared, looked["outputs"])
        elif not asked.brief:
            reply |= self._shown(asked, looked, prepared, view)
        return safe(reply)

    def _looked(self, asked: Asked, prepared: Prepared) -> dict[str, Tree]:
        """Computes one pass, unless the last one was the same, for another token or head."""
        leaves = tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(prepared.inputs))
        key = leaves, asked.settings
        last = self.last  # another thread may put its own there
        if last is None or last[0] != key:
            self.last = last = key, self._look(asked.settings, prepared)
        return last[1]

    def _arguments(self, settings: Settings, prepared: Prepared) -> tuple[Traced, np.ndarray]:
        """Returns the settings as a program takes them, and a factor for each head."""
        moved = tuple(key + prepared.first for key in settings.hidden)
        hidden = tuple(key for key in moved if key < MOST_TOKENS)
        factors = np.ones((len(self.layers), max(self.heads)), np.float32)
        for attention, head in settings.cut:
            factors[attention, head] = 0
        return Traced.of(msgspec.structs.replace(settings, hidden=hidden)), factors

    def _effects(self, asked: Asked, prepared: Prepared, outputs: np.ndarray) -> list[float]:
        """Computes the change of the likeliest class under each of the settings, some at once."""
        best = int(outputs.argmax())
        pairs = [self._arguments(settings, prepared) for settings in asked.changes]
        traced, normalizer = pairs[0][0], asked.settings.normalizer
        effects: list[float] = []
        for first in range(0, len(pairs), self.at_once):
            part = pairs[first : first + self.at_once]
            filled = part + part[-1:] * (self.at_once - len(part))
            hidden = np.stack([one.hidden for one, _ in filled])
            factors = np.stack([one for _, one in filled])
            shares = self._shares(
                self.params, prepared.inputs, traced, hidden, factors, best, normalizer=normalizer
            )
            effects += (shares - outputs[best])[: len(part)].tolist()
        return effects

    def _shown(
        self, asked: Asked, looked: dict[str, Tree], prepared: Prepared, view: View
    ) -> JsonObject:
        """Returns the parts of a reply on the heads and on one query."""
        layer, states = self.layers[view.attention], looked["states"]
        is_written = layer.queries == "target"
        token = (view.token if is_written or prepared.target is None else view.source) or 0
        _, block = self._through(layer.block, states[layer.block], asked.settings, prepared, token)
        del block[layer.path]["contexts"]
        of_head = {part: own[view.head] for part, own in jax.device_get(block[layer.path]).items()}
        rows, keys = sides_of(layer, prepared)
        row = lambda part: {layer.name: replies.array(of_head[part][None, None, : keys.length])}
        num_heads = sum(self.heads)
        side = max(n for n in (SMALL, SMALL // 2, 4) if n**2 * num_heads <= ROOM or n == 4)
        small = [
            pooled(trimmed(maps, *sides_of(own, prepared)), side)
            for own, maps in zip(self.layers, looked["maps"])
        ]
        shown: JsonObject = {
            "attention": row("weights"),
            "scores": row("scores") if "scores" in of_head else None,
            "map": replies.pack(trimmed(of_head["maps"][None], rows, keys)),
            "maps": [replies.pack(maps) for maps in small],
            "view": msgspec.structs.asdict(view),
            "tokens": prepared.tokens,
            "known": [True] * len(prepared.tokens),
            "note": prepared.note,
        }
        if prepared.target:
            shown |= {"target": prepared.target.tokens, "read": prepared.target.read}
        of_side = lambda x: x["target" if is_written else "source"] if isinstance(x, dict) else x
        of_token = np.stack([np.asarray(of_side(state))[0, token] for state in states])  # (n, d)
        vectors = {"residual": of_token[layer.block]}
        parts = VECTORS if rows is keys else ("query", "context")  # keys of its own
        vectors |= {part: of_head[part] for part in (*parts, "output")}
        path = {part: replies.array(vector[:MOST_BARS]) for part, vector in vectors.items()}
        shown["path"] = path | {"after": None, "pairs": self._pairs(view, looked, rows.length)}
        if isinstance(self.model, Decoder) or is_written:  # the logit lens
            of_token = of_token[getattr(self.model, "num_encoder_blocks", 0) :]
            shares, tokens = jax.device_get(self.ended(by_block.outside(self.params), of_token))
            names = np.array(self.task.target.class_names(), object)[tokens]
            pairs = np.stack([names, shares.astype(object)], axis=-1)
            shown["path"]["after"] = pairs.tolist()  # (blocks, NEXT, 2)
        return shown

    def _pairs(self, view: View, looked: dict[str, Tree], length: int) -> JsonObject | None:
        """Returns the largest pairs of parts of the score of a key, if one is selected."""
        others = VisionTransformer | EncoderDecoder
        is_split = not (self.is_linear[view.attention] or isinstance(self.model, others))
        if view.token is None or view.key is None or view.key >= length or not is_split:
            return None
        layer, tokens = f"blocks_{view.attention}/attention", np.array([view.token, view.key])
        arrays = looked["states"], looked["contexts"]
        parts = of_states(self.model, self.params, *arrays, layer, view.head, tokens)
        total = float(parts.pairs[0].sum())
        return {"number": len(parts.names) ** 2, "total": total, "largest": parts.largest(PAIRS)}

    def _look(self, settings: Settings, prepared: Prepared) -> dict[str, Tree]:
        """Computes the outputs, the states before each block and after the last, and the maps."""
        (begin, end), outside = self.task.programs, by_block.outside(self.params)
        states, maps, contexts = [begin(self.model, outside, prepared.inputs)], [], {}
        for i in range(self.model.num_blocks):
            x, looked = self._through(i, states[-1], settings, prepared)
            states.append(x)
            maps += [own["maps"] for own in looked.values()]
            contexts |= {f"blocks_{i}/{path}": own["contexts"] for path, own in looked.items()}
        outputs = np.asarray(end(self.model, outside, states[-1], prepared.inputs)[0])
        maps = jax.device_get(maps)
        return {"outputs": outputs, "states": states, "maps": maps, "contexts": contexts}

    def _through(
        self, i: int, x: Tree, settings: Settings, prepared: Prepared, token: int = 0
    ) -> tuple[Tree, dict[str, dict[str, Array]]]:
        """Calls the program of a block."""
        own = by_block.of_block(self.model, self.params, i)
        traced, factors = self._arguments(settings, prepared)
        arrays = by_block.lengths_of(prepared.inputs), traced, self._of_block(factors, i), token
        return self.block(*own, x, *arrays, normalizer=settings.normalizer)

    def _of_block(self, factors: np.ndarray, i: int) -> dict[str, np.ndarray]:
        """Returns the factors `(..., heads)` of the attentions of a block."""
        own = [a for a, layer in enumerate(self.layers) if layer.block == i]
        return {self.layers[a].path: factors[..., a, : self.heads[a]] for a in own}

    def _block(
        self,
        number: int,
        params: Params,
        x: Tree,
        lengths: Array | None,
        traced: Traced,
        factors: dict[str, Float[Array, " heads"]],
        token: Array,
        *,
        normalizer: str,
    ) -> tuple[Tree, dict[str, dict[str, Array]]]:
        """Traces a block: its states, and of each attention its map and what heads do at the token.

        Vectors are those of the sites of `heads.read`: positions turn queries and keys after that.
        """
        sites: dict[str, Array] = {}  # by their names in the block
        keep = lambda site, array: sites.setdefault(site.partition("/")[2], array)
        with self._lens(x, traced, factors, normalizer, {"*attention/*": keep}):
            x = self._apply_block(number, params, x, lengths)
        looked: dict[str, dict[str, Array]] = {}
        row = lambda array: array[0, :, jnp.minimum(token, array.shape[-2] - 1)]
        for path, of_heads in factors.items():
            of = lambda part, path=path: sites[f"{path}/{part}"]
            parts = [part for part in ("weights", "scores") if f"{path}/{part}" in sites]
            made = {part: row(self.task.shown(of(part))) for part in parts}
            made["maps"] = pooled(as_map(self.task.shown(of("weights"))[0]), SIDE)
            for part in VECTORS:  # of heads, of which several share a key where there are fewer
                vectors = of(part)[0, token]  # (heads or key heads, width)
                made[part] = jnp.repeat(vectors, len(of_heads) // len(vectors), axis=0)
            kernel = params[f"blocks_{number}"][path]["out"]["kernel"]  # (heads, e, d) or flat
            kernel = kernel.reshape(*made["context"].shape, -1)
            made["output"] = jnp.einsum("he,hed->hd", made["context"], kernel)
            looked[path] = made | {"contexts": of("context")}
        return x, looked

    def _apply_block(self, number: int, params: Params, x: Tree, lengths: Array | None) -> Tree:
        options: Options = {"lengths": lengths, "need_weights": False, "method": "block"}
        applied: Tree = self.model.apply({"params": params}, number, x, **options)
        return applied[0]

    def _ended(self, params: Params, x: Float[Array, "n d"]) -> tuple[Array, Array]:
        """Traces the probabilities of the likeliest next tokens, and these, from states."""
        states: Tree = {"target": x} if isinstance(self.model, EncoderDecoder) else x
        logits: Tree = self.model.apply({"params": params}, states, method="end")
        shares, tokens = jax.lax.top_k(softmax(logits), NEXT)
        return shares, tokens

    def _shares(
        self,
        params: Params,
        inputs: Inputs,
        traced: Traced,
        hidden: Bool[np.ndarray, "n keys"],
        factors: Float[np.ndarray, "n attentions heads"],
        best: int,
        *,
        normalizer: str,
    ) -> Float[np.ndarray, " n"]:
        """Computes the probability of a class where other keys are hidden, or other heads cut."""
        (begin, end), outside = self.task.programs, by_block.outside(params)
        repeated = lambda x: jnp.asarray(np.broadcast_to(x, (len(hidden), *x.shape)))
        x = jax.tree.map(repeated, begin(self.model, outside, inputs))
        for i in range(self.model.num_blocks):
            own = by_block.of_block(self.model, params, i)
            arrays = x, by_block.lengths_of(inputs), traced, hidden, self._of_block(factors, i)
            x = self.blocks(*own, *arrays, normalizer=normalizer)
        x = jax.tree.map(lambda x: np.asarray(x)[:, 0], x)
        return np.asarray(end(self.model, outside, x, inputs))[:, best]

    def _blocks(
        self,
        number: int,
        params: Params,
        x: Tree,
        lengths: Array | None,
        traced: Traced,
        hidden: Bool[Array, "n keys"],
        factors: dict[str, Float[Array, "n heads"]],
        *,
        normalizer: str,
    ) -> Tree:
        """Traces a block under each of several settings."""

        def of_one(x: Tree, hidden: Array, factors: dict[str, Array]) -> Tree:
            with self._lens(x, traced._replace(hidden=hidden), factors, normalizer):
                return self._apply_block(number, params, x, lengths)

        return jax.vmap(of_one)(x, hidden, factors)

    def _lens(
        self,
        x: Tree,
        traced: Traced,
        factors: dict[str, Float[Array, " heads"]],
        normalizer: str,
        changes: dict[str, Change] | None = None,
    ) -> Lens:
        """Makes a lens with the settings, and further changes after that of the contexts.

        If the states `x` are of a source and a target, keys of the source alone are hidden.
        """
        num_keys = x["source"].shape[1] if isinstance(x, dict) else None

        def change(site: str, context: Array) -> Array:
            of_heads = factors[layer_of(site).partition("/")[2]]
            return context * with_rank(of_heads[:, None], context.ndim)

        return Lens(
            temperature=traced.temperature,
            normalizer=NORMALIZERS[normalizer],
            mask=lambda query, key: traced.visible(query, key, num_keys),
            change={"*/context": change, **(changes or {})},
        )


FIRST_PROMPT = "The cat sat on the mat because the cat"
FIRST_TEXT = "A good film with a slow beginning, and an end that nobody forgets."
FIRST_SOURCE = "translate English to German: The house is wonderful."
FIRST_GAP = "The capital of France is {}, a city on the river."


def first_text(task: Continued | Read | Seen | Translated, model: AnyModel) -> str:
    """Returns the text that a page shows first; none for a model of images."""
    if isinstance(task, Read) and task.mask is not None and model.head == "words":
        return FIRST_GAP.format(task.reader.tokenizer.written(task.mask))
    firsts = {Continued: FIRST_PROMPT, Seen: "", Translated: FIRST_SOURCE}
    return firsts.get(type(task), FIRST_TEXT)


def layers_of(model: AnyModel) -> list[ShownAttention]:
    """Returns the attentions of a model in order."""
    if not isinstance(model, EncoderDecoder):
        return [ShownAttention(f"block {i}", i) for i in range(model.num_blocks)]
    first = model.num_encoder_blocks
    layers = [ShownAttention(f"encoder {i}", i) for i in range(first)]
    for i in range(first, model.num_blocks):
        layers.append(ShownAttention(f"decoder {i - first}", i, "attention", "target", "read"))
        layers.append(ShownAttention(f"cross {i - first}", i, "cross_attention", "target"))
    return layers


def sides_of(layer: ShownAttention, prepared: Prepared) -> tuple[Prepared, Prepared]:
    """Returns what the queries and the keys of an attention are."""
    target = prepared.target or prepared
    of = lambda tokens: prepared if tokens == "tokens" else target
    return of(layer.queries), of(layer.keys)


def name_of(folder: Path, config: JsonObject) -> str:
    """Returns the name of a model: that of its place in the cache of Hugging Face, or its own.

    The cache comes first, since a model that was fine-tuned may still name the one it came from.
    """
    if in_cache := IN_CACHE.search(folder.resolve().as_posix()):
        return in_cache[1].replace("--", "/")
    name = str(config.get("_name_or_path", ""))
    is_name = HUB_NAME.fullmatch(name) and not Path(name).exists()
    return name if is_name else folder.resolve().name


def page_data(run: Model) -> JsonObject:
    """Returns what a page shows of a published model: no training and no test."""
    answers, config = PublishedAnswers(run), read_json(run.path / "config.json")
    task, model = answers.task, answers.model
    count = sum(leaf.size for leaf in jax.tree.leaves(answers.params))
    blocks = counted(model.num_blocks, "block")
    *fewer, most = sorted(set(answers.heads))
    of_heads = " or ".join([*map(str, fewer), counted(most, "head")])
    return {
        "name": name_of(run.path, config),
        "input": "published",
        "sentence": f"{config['model_type']}, {blocks} of {of_heads}, {count:,} parameters",
        "takes": {Continued: "prompt", Seen: "image", Translated: "source"}.get(type(task), "text"),
        "text": first_text(task, model),
        "has_answer": task.target.class_names() not in (None, NO_CLASSES),
        "side": min(model.image_size, MOST_SIDE) if isinstance(model, VisionTransformer) else None,
        "attention": [
            {"heads": count, "of": "head", "signed": is_linear, **layer._asdict()}
            for layer, count, is_linear in zip(answers.layers, answers.heads, answers.is_linear)
        ],
        "at_once": answers.at_once,
        # what the path says of the arithmetic of a head; encoders have none of these
        "head": {name: getattr(model, name, None) for name in ARITHMETIC},
        "examples": [],
        "live": None,
    }


def as_map(weights: Float[Array, "heads q k"]) -> Float[Array, "heads rows columns"]:
    """Returns weights as a picture. Those of one query on patches lie as the patches do."""
    heads, queries, keys = weights.shape
    side = math.isqrt(keys)
    return weights.reshape(heads, side, side) if queries == 1 and side**2 == keys else weights


def pooled(maps: Tree, side: int) -> Tree:
    """Pools maps to at most `side` rows, and columns, by the weight of the largest size."""
    heads, *shape = maps.shape
    factors = [factor_of(length, side) for length in shape]
    if factors == [1, 1]:
        return maps
    (down, across), (rows, columns) = factors, map(factor_of, shape, factors)
    widths = [(0, 0), (0, rows * down - shape[0]), (0, columns * across - shape[1])]
    library = np if isinstance(maps, np.ndarray) else jnp
    padded = library.pad(maps, widths)
    cells = padded.reshape(heads, rows, down, columns, across)
    high, low = cells.max(axis=(2, 4)), cells.min(axis=(2, 4))
    return library.where(-low > high, low, high)


def factor_of(size: int, side: int) -> int:
    """Returns how many rows of a map of this size are one where it has at most `side`."""
    return -(-size // side)


def trimmed(maps: np.ndarray, rows: Prepared, columns: Prepared) -> np.ndarray:
    """Cuts the rows and columns of padding."""
    down, across = (-(-own.length // factor_of(own.width, SIDE)) for own in (rows, columns))
    return maps[:, :down, :across]
