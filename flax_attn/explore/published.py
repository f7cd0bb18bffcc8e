"""Answers a page about a published model: its heads one by one, and the path of a token.

All weights of many heads would be megabytes, so a reply has a small map of each head as bytes, and
of one head the weights of one query. Parameters are those of the folder; nothing is trained.
"""

import math
import re
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Bool, Float

from flax_attn.attention import Lens
from flax_attn.attention.arrays import with_rank
from flax_attn.attention.lens import Change
from flax_attn.errors import counted
from flax_attn.experiment.loading import Model
from flax_attn.explore.under_lens import NORMALIZERS, Traced
from flax_attn.models import by_block
from flax_attn.models.forward import Inputs, Params, check_finite
from flax_attn.models.language import softmax
from flax_attn.models.score_parts import of_states
from flax_attn.page.data import safe
from flax_attn.published.folder import read_json
from flax_attn.published.modules import AnyModel, Decoder, VisionTransformer
from flax_attn.published.tasks import NO_CLASSES, Continued, Prepared, Read, Seen
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


class PublishedAnswers:
    """Answers for one published model.

    Attributes:
        names: of the attentions, as a page shows them.
        heads: the number of heads of each attention.
        is_linear: whether each attention is without softmax.
    """

    def __init__(self, run: Model) -> None:
        assert isinstance(run.task, Continued | Read | Seen)
        self.run, self.task, self.model = run, run.task, cast(AnyModel, run.model)
        self.params: Params = run.params[0]
        self.names = [f"block {i}" for i in range(self.model.num_blocks)]
        self.is_linear = [False] * self.model.num_blocks
        self.heads = [self.model.num_heads] * self.model.num_blocks
        if isinstance(self.model, Decoder):
            self.is_linear = [name != "full" for name in self.model.attentions]
            of_linear = self.model.linear.get("num_heads", self.model.num_heads)
            self.heads = [of_linear if own else self.model.num_heads for own in self.is_linear]
        self.at_once = min(max(*self.heads, AT_ONCE[0]), AT_ONCE[1])
        options: Options = {"static_argnums": 0, "static_argnames": "normalizer"}
        self.block, self.blocks = jax.jit(self._block, **options), jax.jit(self._blocks, **options)
        self.ended = jax.jit(self._ended)
        self.last: tuple[object, dict[str, Tree]] | None = None  # what was looked at last

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
        prepared = self.task.prepared(asked)
        token = prepared.token if asked.view.token is None else asked.view.token
        view = msgspec.structs.replace(asked.view, token=min(token, prepared.length - 1))
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
        factors = np.ones((self.model.num_blocks, max(self.heads)), np.float32)
        for block, head in settings.cut:
            factors[block, head] = 0
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
        """Returns the parts of a reply on the heads and on one token."""
        name, token, states = self.names[view.attention], view.token or 0, looked["states"]
        _, block = self._through(
            view.attention, states[view.attention], asked.settings, prepared, token
        )
        del block["contexts"]
        of_head = {part: array[view.head] for part, array in jax.device_get(block).items()}
        length = prepared.length
        row = lambda part: {name: replies.array(of_head[part][None, None, :length])}
        whole = trimmed(of_head["maps"][None], prepared)
        num_heads = sum(self.heads)
        side = max(n for n in (SMALL, SMALL // 2, 4) if n**2 * num_heads <= ROOM or n == 4)
        small = [pooled(trimmed(maps, prepared), side) for maps in looked["maps"]]
        shown: JsonObject = {
            "attention": row("weights"),
            "scores": row("scores") if "scores" in of_head else None,
            "map": replies.pack(whole),
            "maps": [replies.pack(maps) for maps in small],
            "view": msgspec.structs.asdict(view),
            "tokens": prepared.tokens,
            "known": [True] * len(prepared.tokens),
            "note": prepared.note,
        }
        of_token = np.stack([np.asarray(state)[0, token] for state in states])  # (n, d)
        vectors = {"residual": of_token[view.attention]}
        vectors |= {part: of_head[part] for part in (*VECTORS, "output")}
        path = {part: replies.array(vector[:MOST_BARS]) for part, vector in vectors.items()}
        shown["path"] = path | {"after": None, "pairs": self._pairs(view, looked, length)}
        if isinstance(self.task, Continued):  # the logit lens
            shares, tokens = jax.device_get(self.ended(by_block.outside(self.params), of_token))
            names = np.array(self.task.target.class_names(), object)[tokens]
            pairs = np.stack([names, shares.astype(object)], axis=-1)
            shown["path"]["after"] = pairs.tolist()  # (blocks, NEXT, 2)
        return shown

    def _pairs(self, view: View, looked: dict[str, Tree], length: int) -> JsonObject | None:
        """Returns the largest pairs of parts of the score of a key, if one is selected."""
        is_split = not (self.is_linear[view.attention] or isinstance(self.model, VisionTransformer))
        if view.token is None or view.key is None or view.key >= length or not is_split:
            return None
        contexts = {f"blocks_{i}/attention": own for i, own in enumerate(looked["contexts"])}
        layer, tokens = f"blocks_{view.attention}/attention", np.array([view.token, view.key])
        states = looked["states"]
        parts = of_states(self.model, self.params, states, contexts, layer, view.head, tokens)
        total = float(parts.pairs[0].sum())
        return {"number": len(parts.names) ** 2, "total": total, "largest": parts.largest(PAIRS)}

    def _look(self, settings: Settings, prepared: Prepared) -> dict[str, Tree]:
        """Computes the outputs, the states before each block and after the last, and the maps."""
        (begin, end), outside = self.task.programs, by_block.outside(self.params)
        states, blocks = [begin(self.model, outside, prepared.inputs)], []
        for i in range(self.model.num_blocks):
            x, looked = self._through(i, states[-1], settings, prepared)
            states.append(x)
            blocks.append(looked)
        outputs = np.asarray(end(self.model, outside, states[-1], prepared.inputs)[0])
        maps = jax.device_get([looked["maps"] for looked in blocks])
        contexts = [looked["contexts"] for looked in blocks]  # (1, t, heads, e)
        return {"outputs": outputs, "states": states, "maps": maps, "contexts": contexts}

    def _through(
        self, i: int, x: Array, settings: Settings, prepared: Prepared, token: int = 0
    ) -> tuple[Float[Array, "1 t d"], dict[str, Array]]:
        """Calls the program of a block."""
        own = by_block.of_block(self.model, self.params, i)
        traced, factors = self._arguments(settings, prepared)
        arrays = by_block.lengths_of(prepared.inputs), traced, factors[i, : self.heads[i]], token
        return self.block(*own, x, *arrays, normalizer=settings.normalizer)

    def _block(
        self,
        number: int,
        params: Params,
        x: Float[Array, "1 t d"],
        lengths: Array | None,
        traced: Traced,
        factors: Float[Array, " heads"],
        token: Array,
        *,
        normalizer: str,
    ) -> tuple[Float[Array, "1 t d"], dict[str, Array]]:
        """Traces a block: its states, its map, and what the token does in each head.

        Vectors are those of the sites of `heads.read`: positions turn queries and keys after that.
        """
        sites: dict[str, Array] = {}  # by the part of the attention
        keep = lambda site, array: sites.setdefault(site.rpartition("/")[2], array)
        with self._lens(traced, factors, normalizer, {"*/attention/*": keep}):
            x = self._apply_block(number, params, x, lengths)
        shown = {
            name: self.task.shown(sites[name]) for name in ("weights", "scores") & sites.keys()
        }
        row = lambda array: array[0, :, jnp.minimum(token, array.shape[-2] - 1)]
        made = {name: row(array) for name, array in shown.items()}
        made["maps"] = pooled(as_map(shown["weights"][0]), SIDE)
        for name in VECTORS:  # of heads, of which several share a key where there are fewer keys
            vectors = sites[name][0, token]  # (heads or key heads, width)
            made[name] = jnp.repeat(vectors, len(factors) // len(vectors), axis=0)
        kernel = params[f"blocks_{number}"]["attention"]["out"]["kernel"]  # (heads, e, d) or flat
        kernel = kernel.reshape(*made["context"].shape, -1)
        made["output"] = jnp.einsum("he,hed->hd", made["context"], kernel)
        return x, made | {"contexts": sites["context"]}

    def _apply_block(self, number: int, params: Params, x: Array, lengths: Array | None) -> Array:
        options: Options = {"lengths": lengths, "need_weights": False, "method": "block"}
        applied: Tree = self.model.apply({"params": params}, number, x, **options)
        return applied[0]

    def _ended(self, params: Params, x: Float[Array, "n d"]) -> tuple[Array, Array]:
        """Traces the probabilities of the likeliest next tokens, and these, from states."""
        logits: Tree = self.model.apply({"params": params}, x, method="end")
        shares, tokens = jax.lax.top_k(softmax(logits), NEXT)
        return shares, tokens

    def _shares(
        self,
        params: Params,
        inputs: Inputs,
        traced: Traced,
        hidden: Bool[np.ndarray, "n keys"],
        factors: Float[np.ndarray, "n blocks heads"],
        best: int,
        *,
        normalizer: str,
    ) -> Float[np.ndarray, " n"]:
        """Computes the probability of a class where other keys are hidden, or other heads cut."""
        (begin, end), outside = self.task.programs, by_block.outside(params)
        x = begin(self.model, outside, inputs)
        x = jnp.asarray(np.broadcast_to(x, (len(hidden), *x.shape)))
        for i in range(self.model.num_blocks):
            own = by_block.of_block(self.model, params, i)
            of_heads = factors[:, i, : self.heads[i]]
            arrays = x, by_block.lengths_of(inputs), traced, hidden, of_heads
            x = self.blocks(*own, *arrays, normalizer=normalizer)
        return np.asarray(end(self.model, outside, np.asarray(x)[:, 0], inputs))[:, best]

    def _blocks(
        self,
        number: int,
        params: Params,
        x: Float[Array, "n 1 t d"],
        lengths: Array | None,
        traced: Traced,
        hidden: Bool[Array, "n keys"],
        factors: Float[Array, "n heads"],
        *,
        normalizer: str,
    ) -> Float[Array, "n 1 t d"]:
        """Traces a block under each of several settings."""

        def of_one(x: Array, hidden: Array, factors: Array) -> Array:
            with self._lens(traced._replace(hidden=hidden), factors, normalizer):
                return self._apply_block(number, params, x, lengths)

        return jax.vmap(of_one)(x, hidden, factors)

    def _lens(
        self,
        traced: Traced,
        factors: Float[Array, " heads"],
        normalizer: str,
        changes: dict[str, Change] | None = None,
    ) -> Lens:
        """Makes a lens with the settings, and further changes after that of the contexts."""
        change: Change = lambda _, context: context * with_rank(factors[:, None], context.ndim)
        return Lens(
            temperature=traced.temperature,
            normalizer=NORMALIZERS[normalizer],
            mask=lambda query, key: traced.visible(query, key, None),
            change={"*/context": change, **(changes or {})},
        )


FIRST_PROMPT = "The cat sat on the mat because the cat"
FIRST_TEXT = "A good film with a slow beginning, and an end that nobody forgets."
FIRST_GAP = "The capital of France is {}, a city on the river."


def first_text(task: Continued | Read | Seen, model: AnyModel) -> str:
    """Returns the text that a page shows first; none for a model of images."""
    if isinstance(task, Read) and task.mask is not None and model.head == "words":
        return FIRST_GAP.format(task.reader.tokenizer.written(task.mask))
    return {Continued: FIRST_PROMPT, Seen: ""}.get(type(task), FIRST_TEXT)


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
        "takes": {Continued: "prompt", Seen: "image"}.get(type(task), "text"),
        "text": first_text(task, model),
        "has_answer": task.target.class_names() not in (None, NO_CLASSES),
        "side": min(model.image_size, MOST_SIDE) if isinstance(model, VisionTransformer) else None,
        "attention": [
            {"name": name, "heads": count, "of": "head", "signed": is_linear}
            for name, count, is_linear in zip(answers.names, answers.heads, answers.is_linear)
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
    """Pools maps to at most `side` rows and columns, by the weight of the largest size."""
    heads, *shape = maps.shape
    factor = factor_of(max(shape), side)
    if factor == 1:
        return maps
    rows, columns = (-(-length // factor) for length in shape)
    widths = [(0, 0), (0, rows * factor - shape[0]), (0, columns * factor - shape[1])]
    library = np if isinstance(maps, np.ndarray) else jnp
    padded = library.pad(maps, widths)
    cells = padded.reshape(heads, rows, factor, columns, factor)
    high, low = cells.max(axis=(2, 4)), cells.min(axis=(2, 4))
    return library.where(-low > high, low, high)


def factor_of(size: int, side: int) -> int:
    """Returns how many rows of a map of this size are one where it has at most `side`."""
    return -(-size // side)


def trimmed(maps: np.ndarray, prepared: Prepared) -> np.ndarray:
    """Cuts the rows and columns of padding."""
    if prepared.width == prepared.length:
        return maps
    cells = -(-prepared.length // factor_of(prepared.width, SIDE))
    return maps[:, :cells, :cells]
