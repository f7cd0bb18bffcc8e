"""Why a head attends where it does: a score as a sum over pairs of parts of the residual stream.

    x_q = sum_i a_i,   x_k = sum_j b_j
    score_qk = sum_ij  (W_q norm(a_i)) R_q . (W_k norm(b_j)) R_k  scale

The parts of a state are the embedding, what each earlier head and each earlier feed-forward network
added to it, and the biases. Norms hold their deviation, so that they are linear. `R` are rotary
positions.

Source: Elhage et al. 2021 (transformer-circuits.pub, the QK circuit); Kamath et al. 2025
(transformer-circuits.pub, "Tracing Attention Computation Through Feature Interactions").
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flax_attn.attention.lens import Lens, current
from flax_attn.attention.scores import as_dot_product
from flax_attn.models import by_block
from flax_attn.models.by_block import InBlocks
from flax_attn.models.calls import along_residuals, intercepted
from flax_attn.models.forward import Inputs, Params
from flax_attn.types import Tree


class ScoreParts(NamedTuple):
    """A score as a sum.

    Attributes:
        names: of the parts: `embedding`, with learned positions; the paths of layers, such as
            `blocks_0/attention[2]` for a head and `blocks_0/feed_forward`; and `bias` for the rest.
        pairs: what each part of the query's state (rows) and of the key's state (columns) add to
            the score. They sum to it, before soft-cap and bias.
    """

    names: tuple[str, ...]
    pairs: Float[Array, "b n n"]

    def largest(self, count: int = 3, row: int = 0) -> list[tuple[str, str, float]]:
        """Returns the pairs of the largest sizes, `(part of the query, part of the key, value)`."""
        pairs = np.asarray(self.pairs[row])  # (n, n)
        order = np.argsort(-np.abs(pairs), axis=None)[:count]  # (count,)
        places = zip(*np.unravel_index(order, pairs.shape))
        return [(self.names[i], self.names[j], float(pairs[i, j])) for i, j in places]


def score_parts(
    model: InBlocks,
    params: Params,
    inputs: Inputs,
    layer: str,
    head: int,
    *,
    query: int | Int[Array, ""],
    key: int | Int[Array, ""],
) -> ScoreParts:
    """Splits the score of a head into pairs of parts of the query's and the key's state.

    A large pair names the earlier layer that wrote what the head looks for, and the one that wrote
    what it finds. It is exact for these weights: norms hold the deviation of the input.

    Args:
        model: in blocks, such as `GPT` or a published one.
        layer: the path of the attention, such as `blocks_1/attention`.
        query, key: positions; negative ones count from the end.

    Raises:
        ValueError: a layer that is no attention of the model, a head or a position that does not
            exist, scores that are no dot products, and a lens with `change`.
    """
    lens = current()
    if lens is not None and lens.change:  # made for all tokens, and blocks get two here
        raise ValueError("expected a lens without change around score_parts")
    states, contexts = by_block.with_contexts(model, params, inputs)
    if layer not in contexts:
        raise ValueError(f"expected a layer of {list(contexts)}, got {layer!r}")
    if isinstance(states[0], dict):
        raise ValueError("expected one stack of blocks, got an encoder and a decoder")
    length, heads = states[0].shape[1], contexts[layer].shape[-2]
    _check_within("head", head, range(heads))
    _check_within("query", query, range(-length, length))
    _check_within("key", key, range(-length, length))
    tokens = jnp.array([query, key]) % length  # rotary positions are counted from the first
    return of_states(model, params, states, contexts, layer, head, tokens)


def _check_within(name: str, number: int | Array, numbers: range) -> None:
    if isinstance(number, jax.core.Tracer):  # pyright: ignore
        return
    if number not in numbers:
        raise ValueError(f"expected {name} from {numbers[0]} to {numbers[-1]}, got {number}")


def of_states(
    model: InBlocks,
    params: Params,
    states: list[Float[Array, "b t d"]],
    contexts: dict[str, Float[Array, "b t heads e"]],
    layer: str,
    head: int | Int[Array, ""],
    tokens: Int[Array | np.ndarray, "2"],
) -> ScoreParts:
    """Splits a score, from the states before each block and the contexts of each layer."""
    layers, heads = list(contexts), [own.shape[-2] for own in contexts.values()]
    last, (rows, _, width) = layers.index(layer), states[0].shape
    # room for the parts of all blocks, so that blocks of a kind share one program
    shape = 2 + sum(heads) + len(layers), rows, 2, width
    parts = jnp.zeros(shape, states[0].dtype)  # (parts, b, 2, d)
    parts = parts.at[1].set(states[0][:, tokens])  # (parts, b, 2, d)
    names = ["bias", "embedding"]
    for i, name in enumerate(layers[:last]):
        block, _, within = name.partition("/")
        arrays = states[i][:, tokens], contexts[name][:, tokens], parts, len(names)
        parts = _through_block(model, *by_block.of_block(model, params, i), within, *arrays)
        names += [*(f"{name}[{head}]" for head in range(heads[i])), f"{block}/feed_forward"]
    block = by_block.of_block(model, params, last)
    arrays = states[last][:, tokens], parts, head, tokens
    pairs = _pairs(model, *block, layer.partition("/")[2], heads[last], *arrays)  # (b, n, n)
    return ScoreParts(tuple(names), pairs[:, : len(names), : len(names)])


@functools.partial(jax.jit, static_argnames=("model", "number", "within"))
def _through_block(
    model: InBlocks,
    number: int,
    params: Params,
    within: str,
    x: Float[Array, "b 2 d"],
    context: Float[Array, "b 2 heads e"],
    parts: Float[Array, "n b 2 d"],
    first: int | Int[Array, ""],
) -> Float[Array, "n b 2 d"]:
    """Moves the parts of states before a block behind it, and adds those of its heads and network.

    The block gets two tokens alone: the outputs of its heads come from the whole input.
    """
    layer = f"blocks_{number}/{within}"

    def after(x: Array, shares: Float[Array, " n"]) -> Float[Array, "b 2 d"]:
        def change(site: str, array: Array) -> Array:
            if site == f"{layer}/context":
                return context * shares[None, None, :-1, None]  # (b, 2, heads, e)
            return array if site == f"{layer}/output" else array * shares[-1]  # of the network

        with Lens(change={"*/context": change, "*/output": change}):  # no mask of other shapes
            return _call_block(model, number, params, x)  # (b, 2, d)

    ones = jnp.ones(context.shape[-2] + 1, x.dtype)  # heads, and the network
    _, move = jax.linearize(after, x, ones)
    moved = jax.vmap(lambda part: move(part, jnp.zeros_like(ones)))(parts)  # (n, b, 2, d)
    shares = jnp.eye(len(ones), dtype=x.dtype)
    added = jax.vmap(lambda share: move(jnp.zeros_like(x), share))(shares)
    return jax.lax.dynamic_update_slice_in_dim(moved, added, first, axis=0)  # (n, b, 2, d)


def _call_block(
    model: InBlocks, number: int, params: Params, x: Array, through: str = ""
) -> Float[Array, "b t d"]:
    options: Tree = {"cache": None, "lengths": None, "need_weights": False, "method": "block"}
    with intercepted(along_residuals(through)):
        x, *_ = model.apply({"params": params}, number, x, **options)
    return x


@functools.partial(jax.jit, static_argnames=("model", "number", "within", "heads"))
def _pairs(
    model: InBlocks,
    number: int,
    params: Params,
    within: str,
    heads: int,
    x: Float[Array, "b 2 d"],
    parts: Float[Array, "n b 2 d"],
    head: int | Int[Array, ""],
    tokens: Int[Array | np.ndarray, "2"],
) -> Float[Array, "b n n"]:
    """Computes the scores between all parts of both states. The first part is the rest of each."""
    layer = f"blocks_{number}/{within}"

    def vectors(x: Array) -> tuple[Array, Array]:
        found: dict[str, Array] = {}
        keep = found.setdefault  # returns the array as it is
        with Lens(change={f"{layer}/query": keep, f"{layer}/key": keep}):
            _call_block(model, number, params, x, layer)
        query, key = found[f"{layer}/query"], found[f"{layer}/key"]  # (b, 2, heads, width)
        of_key = head // (heads // key.shape[-2])  # several heads share a key
        return query[:, 0, head], key[:, 1, of_key]  # (b, width)

    own, move = jax.linearize(vectors, x)  # (b, width) each
    moved = jax.vmap(move)(parts)  # (n, b, width) each
    with_rest = [of.at[0].set(whole - of.sum(axis=0)) for whole, of in zip(own, moved)]
    queries, keys = (jnp.moveaxis(of, 0, 1)[:, :, None, None] for of in with_rest)

    def scores(model: Tree) -> Array:
        attention = functools.reduce(getattr, within.split("/"), model.blocks[number])
        score = as_dot_product(attention.score)
        if score is None:
            raise ValueError(f"expected scores that are dot products, got {attention.score}")
        turned = (attention.turned(of, at)[:, :, 0, 0] for of, at in zip((queries, keys), tokens))
        return score._replace(softcap=None)(*turned)  # (b, n, n)

    return model.apply({"params": params}, method=scores)
