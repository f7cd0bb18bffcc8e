"""What a page asks of a run: one input, and settings of the attention. Everything is checked."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flax_attn.errors import UsageError, unknown
from flax_attn.types import Json

AS_TRAINED = "as trained"
NORMALIZERS = (AS_TRAINED, "softmax", "entmax15", "sparsemax", "top_k", "hard")
MOST_TOKENS = 1_000
MOST_HEADS = 10_000
MOST_CHANGES = 64  # settings that are taken in turn
LEAST_LENGTH = 8  # tokens that a text is padded to, at least
FAR = 1 << 20  # a reach that covers every input
TEMPERATURES = 1e-3, 1e3


class Settings(NamedTuple):
    """How the attention of a trained model is changed.

    Attributes:
        normalizer: one of `NORMALIZERS`.
        temperature: scores are divided by it.
        reach: the largest distance of a key from its query; None for no bound.
        causal: whether a query attends to no later key.
        hidden: positions of keys that no query may attend to.
        cut: heads that say 0, as pairs of the number of the attention and of the head.
    """

    normalizer: str = AS_TRAINED
    temperature: float = 1.0
    reach: int | None = None
    causal: bool = False
    hidden: tuple[int, ...] = ()
    cut: tuple[tuple[int, int], ...] = ()


class View(NamedTuple):
    """What a page shows of a model with many heads: one of them, and what one token looks at.

    A token of None is the one that the answer is read from.
    """

    attention: int = 0
    head: int = 0
    token: int | None = None


class Asked(NamedTuple):
    """One input, as numbers or as a text, with settings; a brief reply has no weights.

    Attributes:
        view: what is shown, where a reply does not hold all weights.
        changes: settings to take in turn, of which only the effect on the answer is told.
    """

    array: np.ndarray | None
    text: str | None
    settings: Settings
    brief: bool = False
    view: View = View()
    changes: tuple[Settings, ...] = ()

    def numbers(self) -> np.ndarray:
        """The input as an array. Raises a UsageError for a text."""
        if self.array is None:
            raise UsageError("expected numbers, got a text")
        return self.array

    def words(self) -> str:
        """The input as a text. Raises a UsageError for numbers, and for an empty text."""
        if self.text is None:
            raise UsageError("expected a text, got numbers")
        if not self.text.strip():
            raise UsageError("expected a text, got an empty one; type something")
        return self.text


def read(request: Json) -> Asked:
    """What a request asks.

    Raises:
        UsageError: it is none, its numbers are none or do not fit their shape, or a setting is out
            of its range.
    """
    if not isinstance(request, dict) or not isinstance(request.get("inputs"), dict):
        raise UsageError("expected a request with inputs, as JSON")
    settings = read_settings(request.get("settings") or {})
    inputs, brief = request["inputs"], request.get("brief", False)
    if type(brief) is not bool:
        raise UsageError(f"expected true or false for brief, got {str(brief)[:40]}")
    further = (
        read_view(request.get("view") or {}),
        read_changes(request.get("changes") or [], settings),
    )
    if "text" in inputs:
        if not isinstance(inputs["text"], str):
            raise UsageError(f"expected a text, got {str(inputs['text'])[:60]!r}")
        return Asked(None, inputs["text"], settings, brief, *further)
    if len(inputs) != 1:
        raise UsageError(f"expected one input, got {len(inputs)}")
    (array,) = inputs.values()
    return Asked(read_array(array), None, settings, brief, *further)


def read_view(value: Json) -> View:
    """What is shown, from JSON; what is left out is the first head, and the last token."""
    if not isinstance(value, dict):
        raise UsageError("expected the parts of a view by name")
    if strange := value.keys() - set(View._fields):
        raise UsageError(unknown("part of a view", sorted(strange)[0], View._fields))
    numbers = [value.get("attention", 0), value.get("head", 0), value.get("token") or 0]
    if not all(type(number) is int and 0 <= number < MOST_HEADS for number in numbers):
        raise UsageError("expected a view of numbers from 0 on")
    return View(**value)


def read_changes(value: Json, settings: Settings) -> tuple[Settings, ...]:
    """Settings that are taken in turn: each hides further keys, or cuts further heads."""
    if not isinstance(value, list) or len(value) > MOST_CHANGES:
        raise UsageError(f"expected a list of at most {MOST_CHANGES} changes")
    read = [read_settings(change) for change in value]
    return tuple(
        settings._replace(
            hidden=(*settings.hidden, *change.hidden), cut=(*settings.cut, *change.cut)
        )
        for change in read
    )


def read_array(value: Json) -> np.ndarray:
    """An array from its shape and its numbers."""
    if not isinstance(value, dict) or not isinstance(value.get("shape"), list):
        raise UsageError("expected an input with its shape and data")
    shape, data = value["shape"], value.get("data")
    if not all(type(size) is int and size > 0 for size in shape) or len(shape) > 4:
        raise UsageError(f"expected a shape of whole numbers above 0, got {str(shape)[:60]}")
    if not isinstance(data, list) or len(data) != math.prod(shape):
        count = len(data) if isinstance(data, list) else "none"
        raise UsageError(
            f"expected {math.prod(shape):,} numbers for the shape {str(shape)[:60]}, got {count}"
        )
    if not all(type(number) in (int, float) and abs(number) < 1e30 for number in data):
        raise UsageError("expected finite numbers in the input, got some that are not")
    return np.array(data, np.float32).reshape(shape)


def read_settings(value: Json) -> Settings:
    """Settings from JSON; those that are left out have no effect."""
    if not isinstance(value, dict):
        raise UsageError("expected settings by name")
    if strange := value.keys() - set(Settings._fields):
        raise UsageError(unknown("setting", sorted(strange)[0], Settings._fields))
    settings = Settings(**value)
    if settings.normalizer not in NORMALIZERS:
        raise UsageError(unknown("normaliser", str(settings.normalizer), NORMALIZERS))
    least, most = TEMPERATURES
    is_number = type(settings.temperature) in (int, float)
    if not is_number or not least <= settings.temperature <= most:
        temperature = str(settings.temperature)[:40]
        raise UsageError(f"expected a temperature from {least:g} to {most:g}, got {temperature}")
    if settings.reach is not None and (type(settings.reach) is not int or settings.reach < 0):
        raise UsageError(f"expected a reach of 0 or more positions, got {str(settings.reach)[:40]}")
    if type(settings.causal) is not bool:
        raise UsageError(f"expected true or false for causal, got {str(settings.causal)[:40]}")
    return settings._replace(hidden=read_hidden(settings.hidden), cut=read_cut(settings.cut))


def read_hidden(hidden: Json) -> tuple[int, ...]:
    """The positions of hidden keys."""
    are_positions = isinstance(hidden, list | tuple) and len(hidden) <= MOST_TOKENS
    if not are_positions or not all(type(i) is int and 0 <= i < MOST_TOKENS for i in hidden):
        raise UsageError(f"expected positions from 0 to {MOST_TOKENS - 1} to hide")
    return tuple(hidden)


def read_cut(cut: Json) -> tuple[tuple[int, int], ...]:
    """The heads that are cut."""
    are_heads = isinstance(cut, list | tuple) and len(cut) <= MOST_HEADS
    if not are_heads or not all(isinstance(one, list | tuple) and len(one) == 2 for one in cut):
        raise UsageError("expected heads to cut as pairs of an attention and a head")
    if not all(type(i) is int and 0 <= i < MOST_HEADS for one in cut for i in one):
        raise UsageError("expected heads to cut by numbers from 0 on")
    return tuple((first, second) for first, second in cut)


def check_length(length: int) -> None:
    """Raises a UsageError for a text that is too long to show what attends to what."""
    if length > MOST_TOKENS:
        raise UsageError(f"expected at most {MOST_TOKENS:,} tokens, got {length:,}; shorten it")


def rounded(length: int) -> int:
    """The length that a text is padded to, so that few programs are compiled."""
    return max(LEAST_LENGTH, 1 << (length - 1).bit_length())


def longer(inputs: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
    """Inputs of one text, with zeros up to a length where they have one number a token."""

    def pad_one(array: np.ndarray) -> np.ndarray:
        widths = [(0, 0), (0, length - array.shape[1]), *[(0, 0)] * (array.ndim - 2)]
        return np.pad(array, widths)

    return {name: one if one.ndim < 2 else pad_one(one) for name, one in inputs.items()}
