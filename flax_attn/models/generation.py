"""Text from a language model, one token after another, with a cache of keys and values.

    p(token) = softmax(logits / temperature)   over the `top_k` most probable tokens

A model reads at most `max_length` tokens. Tokens are written in parts of `PART` or of a quarter of
`max_length`, whichever is less. When a text has no room for its next part, the model reads its last
`max_length / 2` tokens anew, as if it began there. So every step gives what the model gives without
a cache, and the cost of a token does not grow with the text.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from msgspec import Meta

from flax_attn.models import by_block
from flax_attn.models.by_block import InBlocks
from flax_attn.models.cpu import largest
from flax_attn.models.forward import Params, check_finite
from flax_attn.schema import NonNegativeInt, Seed, convert
from flax_attn.types import Tree

MOST_WRITTEN = 1_000_000  # tokens
PART = 16  # tokens
SHORTEST = 64  # tokens that a prompt is padded to, at least, and to powers of 2 above
HOTTEST = 1_000_000  # all tokens are as probable; far above, numbers of float32 are infinite
# Tokens 0 and 1, for padding and for what is unknown, are never written, unless a model has
# another number of such tokens as `num_unwritten`.
NEVER = 2

Written = tuple[Float[Array, "b v"], Tree]  # the logits of the next tokens, and the caches


@runtime_checkable
class GeneratesText(Protocol):
    """A model that continues texts. Its methods `start` and `decode` are those of `GPT`.

    Every array of the caches has a row for each text.
    """

    max_length: int

    def apply(self, variables: Tree, *args: Tree, **options: Tree) -> Tree: ...

    def start(self, num_texts: int) -> Tree: ...

    def decode(self, tokens: Tree, caches: Tree, lengths: Tree = None) -> Tree: ...


class Sampling(NamedTuple):
    """How the next token is chosen.

    Attributes:
        temperature: 1 for the probabilities of the model, less for safer texts, 0 for the most
            probable token.
        top_k: the number of most probable tokens to choose among; 0 for all.
    """

    temperature: float = 0.8
    top_k: int = 0


def check_numbers(length: int, temperature: float, top_k: int, seed: int) -> None:
    """Raises a UsageError for numbers that no text can be written with."""
    convert("length", length, Annotated[int, Meta(ge=1, le=MOST_WRITTEN)])
    convert("temperature", temperature, Annotated[float, Meta(ge=0, le=HOTTEST)])
    convert("top_k", top_k, NonNegativeInt)
    convert("seed", seed, Seed)


def generate(
    model: GeneratesText,
    params: Params,
    prompts: Sequence[Sequence[int]],
    length: int,
    sampling: Sampling,
    seed: int = 0,
) -> Iterator[Int[np.ndarray, "b n"]]:
    """Continues texts by `length` tokens, and yields them in parts as they are written.

    A text depends on its prompt, the seed, and the index of the prompt in `prompts`. It does not
    depend on the other prompts: each text is read anew when it has no room itself.

    Args:
        prompts: the tokens that each text begins with, at least one.
    """
    texts = [list(prompt) for prompt in prompts]
    half, num_steps = model.max_length // 2, min(max(model.max_length // 4, 1), PART)
    most = model.max_length - num_steps  # of a long prompt
    key = jax.random.key(seed)
    is_apart = by_block.is_large(model, params)
    one_by_one = functools.partial(_write, scan=_one_by_one)
    begin, write = (read, one_by_one) if is_apart else (_read_together, _write_together)
    numbers = jnp.float32(sampling.temperature), sampling.top_k
    state: Written | None = None
    room = np.zeros(len(texts), int)  # for more tokens of each text
    for first in range(0, length, num_steps):
        is_full = room < num_steps
        if is_full.any():
            longest = max(map(len, texts))
            num_read = most if state is None and longest > half else half
            ends = [text[-num_read:] for text in texts]
            lengths = np.array([len(end) for end in ends], np.int32)
            width = min(num_read, max(SHORTEST, 1 << (int(lengths.max()) - 1).bit_length()))
            filled = np.array([end + [0] * (width - len(end)) for end in ends], np.int32)
            now = begin(model, params, filled, lengths)  # (b, v) and caches
            check_finite(now[0])
            state = now if state is None or is_full.all() else _choose(is_full, now, state)
            room = np.where(is_full, model.max_length - lengths, room)
        assert state is not None
        steps = min(num_steps, length - first) if is_apart else num_steps  # else one more program
        state, tokens = write(model, params, state, key, first, *numbers, steps)  # tokens (b, n)
        written, room = np.asarray(tokens)[:, : length - first], room - num_steps
        for text, part in zip(texts, written.tolist()):
            text.extend(part)
        yield written


def read(
    model: GeneratesText,
    params: Params,
    tokens: Int[Array | np.ndarray, "b t"],
    lengths: Int[Array | np.ndarray, " b"],
) -> Written:
    """Reads the first `lengths` tokens of each text into empty caches. Returns as `decode`."""
    return decode(model, params, tokens, _start(model, params, tokens.shape[0]), lengths)


def decode(
    model: GeneratesText,
    params: Params,
    tokens: Int[Array | np.ndarray, "b t"],
    caches: Tree,
    lengths: Int[Array | np.ndarray, " b"],
) -> Written:
    """Computes the logits after the last token of each text, and the caches with all of them."""
    if isinstance(model, InBlocks):
        x = by_block.begin(model, params, tokens, caches[0].length)
        x, _, caches = by_block.through(model, params, x, caches=caches, lengths=lengths)
        return by_block.end(model, params, x, lengths - 1), caches  # (b, v)
    logits, caches = model.apply({"params": params}, tokens, caches, lengths, method="decode")
    return by_block.at(logits, lengths - 1), caches  # (b, v)


@functools.partial(jax.jit, static_argnames=("model", "num_texts"))
def _start(model: GeneratesText, params: Params, num_texts: int) -> Tree:
    return model.apply({"params": params}, num_texts, method="start")


@jax.jit
def _choose(chosen: Bool[Array, " b"], these: Tree, others: Tree) -> Tree:
    """Chooses the state of some texts from `these`, and that of the rest from `others`."""
    where = lambda one, other: jnp.where(chosen.reshape(-1, *[1] * (one.ndim - 1)), one, other)
    return jax.tree.map(where, these, others)


def _write(
    model: GeneratesText,
    params: Params,
    state: Written,
    key: Key[Array, ""],
    first: Int[Array, ""] | int,
    temperature: Float[Array, ""],
    top_k: int,
    num_steps: int,
    scan: Callable[..., tuple[Written, Array]] = jax.lax.scan,
) -> tuple[Written, Int[Array, "b n"]]:
    """Writes `num_steps` more tokens of each text, from `first` on. Returns the state and them.

    The state that is passed cannot be used again: the caches are extended in place.
    """
    step = lambda state, number: _step(model, params, state, key, number, temperature, top_k)
    state, tokens = scan(step, state, first + np.arange(num_steps))  # tokens (n, b)
    return state, tokens.T  # (b, n)


def _one_by_one(
    step: Callable[..., tuple[Written, Array]], state: Written, numbers: np.ndarray
) -> tuple[Written, Array]:
    """Does what `jax.lax.scan` does, by a call for each number."""
    tokens = []
    for number in numbers.tolist():
        state, token = step(state, number)
        tokens.append(token)
    return state, jnp.stack(tokens)  # (n, b)


def _step(
    model: GeneratesText,
    params: Params,
    state: Written,
    key: Key[Array, ""],
    number: Int[Array, ""] | int,
    temperature: Float[Array, ""],
    top_k: int,
) -> tuple[Written, Int[Array, " b"]]:
    """Writes one more token of each text."""
    logits, caches = state
    never = getattr(model, "num_unwritten", NEVER)
    token = _draw(logits, key, number, temperature, top_k=top_k, never=never)  # (b,)
    return decode(model, params, token[:, None], caches, np.ones(len(token), np.int32)), token


@functools.partial(jax.jit, static_argnames=("top_k", "never"))
def _draw(
    logits: Float[Array, "b v"],
    key: Key[Array, ""],
    number: Int[Array, ""] | int,
    temperature: Float[Array, ""],
    *,
    top_k: int,
    never: int,
) -> Int[Array, " b"]:
    noise = draw_noise(key, number, *logits.shape)  # (b, v)
    return sample(logits, noise, temperature=temperature, top_k=top_k, never=never)


_read_together = jax.jit(read, static_argnames="model")
_write_together = jax.jit(  # donated caches are extended in place: 1.11 times as fast
    _write, static_argnames=("model", "top_k", "num_steps"), donate_argnames="state"
)


def draw_noise(
    key: Key[Array, ""], step: Int[Array, ""] | int, num_texts: int, num_tokens: int
) -> Float[Array, "b v"]:
    """Draws noise with a Gumbel distribution, for `sample` at a step.

    The noise of a text does not depend on the number of texts.
    """
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_texts))  # (b,)
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, step)  # each text and step has its key
    return jax.vmap(lambda key: jax.random.gumbel(key, (num_tokens,)))(keys)  # (b, v)


def sample(
    logits: Float[Array, "b v"],
    noise: Float[Array, "b v"],
    *,
    temperature: Float[Array, ""] | float,
    top_k: int,
    never: int = NEVER,
) -> Int[Array, " b"]:
    """Draws a token for each row, by the probabilities `softmax(logits / temperature)`.

    It is the largest of `logits + temperature * noise` where the noise has a Gumbel distribution.
    So a temperature of 0 gives the most probable token.

    Args:
        noise: from `draw_noise`.
        never: the number of first tokens that are never written.
    """
    allowed = logits.at[:, :never].set(-jnp.inf) if never else logits  # (b, v)
    if top_k:
        allowed = jnp.where(largest.is_among(allowed, top_k), allowed, -jnp.inf)  # (b, v)
    return jnp.argmax(allowed + temperature * noise, axis=-1)  # (b,)
