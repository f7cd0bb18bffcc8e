"""Types of what Python's own types cannot describe, with the reason beside each `Any`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

Json = Any  # what JSON can hold: the type would be recursive
JsonObject = dict[str, Any]  # the same, with names
Tree = Any  # a tree of arrays: dicts, lists and dataclasses of them, as JAX maps over
Batch = dict[str, Any]  # a tree of arrays with the entries `inputs` and `targets`
Hint = Any  # a type as annotations hold it: a class, a union, a generic alias
UserInput = Any  # what a user passes; checked as the program runs
ConfigValues = Any  # a ConfigDict, whose attributes are known when it runs, or a dict of the same
Options = dict[Any, Any]  # keyword arguments of another library, which types each of them

# What the public functions expect. A type checker sees it. As the program runs anything may come,
# and what does not fit raises a one-line error.
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import ArrayLike

    Weights = ArrayLike | Mapping[str, object]  # one array, or layers by name
    Tokens = Iterable[object]
    Mask = ArrayLike

    ArraysOrTexts = ArrayLike  # arrays, a text, or a list of texts
    InputsAndTargets = tuple[ArrayLike, ArrayLike]
    ConfigValue = bool | int | float | str | Sequence[bool | int | float | str] | None
else:
    ArraysOrTexts = InputsAndTargets = ConfigValue = Weights = Tokens = Mask = Any
