"""What a page asks of a run: one input, and settings of the attention."""

from typing import Annotated, Literal, get_args

import msgspec
import numpy as np
from msgspec import Meta, Struct

from flax_attn.errors import UsageError
from flax_attn.types import Json

AS_TRAINED = "as trained"
NormalizerName = Literal["as trained", "softmax", "entmax15", "sparsemax", "top_k", "hard"]
NORMALIZERS: tuple[str, ...] = get_args(NormalizerName)
MOST_TOKENS = 1_000
MOST_CHANGES = 64  # settings that are taken in turn
FAR = 1 << 20  # a reach that covers every input

Position = Annotated[int, Meta(ge=0, lt=MOST_TOKENS)]
HeadNumber = Annotated[int, Meta(ge=0, lt=10_000)]  # of an attention or a head
Finite = Annotated[float, Meta(ge=-1e30, le=1e30)]
AxisSize = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the attention of a trained model is changed.

    Attributes:
        normalizer: one of `NORMALIZERS`.
        temperature: scores are divided by it.
        reach: the largest distance of a key from its query; None for no bound.
        causal: whether a query attends to no later key.
        hidden: positions of keys that no query may attend to.
        cut: heads whose output is zero, as pairs of the number of the attention and of the head.
    """

    normalizer: NormalizerName = AS_TRAINED
    temperature: Annotated[float, Meta(ge=1e-3, le=1e3)] = 1.0
    reach: Annotated[int, Meta(ge=0)] | None = None
    causal: bool = False
    hidden: Annotated[tuple[Position, ...], Meta(max_length=MOST_TOKENS)] = ()
    cut: tuple[tuple[HeadNumber, HeadNumber], ...] = ()


class View(Struct, frozen=True, forbid_unknown_fields=True):
    """What a page shows of a model with many heads: one of them, and the weights of one query.

    A token of None is the one that the answer is read from. With a key, its score is split. Where a
    model writes a text for a source, the token is one that is written, and `source` one of it.
    """

    attention: HeadNumber = 0
    head: HeadNumber = 0
    token: HeadNumber | None = None
    source: HeadNumber | None = None
    key: HeadNumber | None = None


class Numbers(Struct, frozen=True):
    """An array as its shape and its numbers."""

    shape: Annotated[list[AxisSize], Meta(max_length=4)]
    data: list[Finite]


class Asked(Struct, frozen=True):
    """One input, as numbers or as a text, with settings; a brief reply has no weights.

    Attributes:
        view: what is shown, where a reply does not hold all weights.
        changes: settings to take in turn, whose effect on the answer is returned.
    """

    inputs: Annotated[dict[str, str | Numbers], Meta(min_length=1, max_length=1)]
    settings: Settings = Settings()
    brief: bool = False
    view: View = View()
    changes: Annotated[tuple[Settings, ...], Meta(max_length=MOST_CHANGES)] = ()

    def numbers(self) -> np.ndarray:
        """Returns the input as an array. Raises a UsageError for a text."""
        (array,) = self.inputs.values()
        if isinstance(array, str):
            raise UsageError("expected numbers, got a text")
        try:
            return np.array(array.data, np.float32).reshape(array.shape)
        except ValueError as error:  # another number of them
            raise UsageError(f"expected numbers for the shape of the input; {error}") from error

    def text(self) -> str:
        """Returns the input as a text. Raises a UsageError for numbers."""
        (text,) = self.inputs.values()
        if not isinstance(text, str):
            raise UsageError("expected a text, got numbers")
        return text

    def words(self) -> str:
        """Returns the input as a text. Raises a UsageError for numbers, and for an empty text."""
        if not (text := self.text()).strip():
            raise UsageError("expected a text, got an empty one; type something")
        return text


def read(request: Json) -> Asked:
    """Reads a request. Its changes come on top of its settings.

    Raises:
        UsageError: a part of it has another type, or is out of its range.
    """
    try:
        asked = msgspec.convert(request, Asked)
    except msgspec.ValidationError as error:
        raise UsageError(f"expected a request with inputs, as JSON; {error}") from error
    return msgspec.structs.replace(
        asked, changes=tuple(further(asked.settings, change) for change in asked.changes)
    )


def further(settings: Settings, change: Settings) -> Settings:
    """Returns settings with further keys hidden and further heads cut."""
    hidden, cut = settings.hidden + change.hidden, settings.cut + change.cut
    return msgspec.structs.replace(settings, hidden=hidden, cut=cut)


def check_length(length: int) -> None:
    """Raises a UsageError for a text that is too long to show what attends to what."""
    if length > MOST_TOKENS:
        raise UsageError(f"expected at most {MOST_TOKENS:,} tokens, got {length:,}; shorten it")
