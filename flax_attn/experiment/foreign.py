"""Models and data sets of the user's own, named in a config as `package.module:Class`."""

import importlib
import inspect
import sys
from collections.abc import Collection
from typing import TypeVar

from flax_attn.errors import UsageError, one_line, shortened, unknown

Kind = TypeVar("Kind")
Allowed = Collection[str] | None  # modules that may be imported; None for all


def class_of(
    key: str, name: str, known: dict[str, type[Kind]], base: type[Kind], allowed: Allowed
) -> type[Kind]:
    """The class of a name.

    It is one of those known, or `package.module:Class` from the user's own Python path.

    A module that is imported already is always taken.

    Raises:
        UsageError: an unknown name, a module that may not or cannot be imported, or a class of
            another kind.
    """
    if ":" not in name:
        if name not in known:
            raise UsageError(unknown(key, name, known))
        return known[name]
    module, _, attribute = name.partition(":")
    if (
        module not in sys.modules
        and allowed is not None
        and not {module, module.split(".")[0]} & set(allowed)
    ):
        raise UsageError(
            f"the run names a {key} of one's own, '{name}'; allow its module if you trust it: "
            f"load(run, allow=['{module}']), or --allow {module}"
        )
    try:
        own = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module may raise
        raise UsageError(
            f"cannot import {key} '{shortened(name)}' ({type(error).__name__}: {one_line(error)})"
        ) from error
    expected = f"expected {key} '{shortened(name)}' to be a subclass of"
    expected = f"{expected} {base.__module__}.{base.__name__}, got"
    if not isinstance(own, type):
        raise UsageError(f"{expected} {type(own).__name__} {shortened(attribute)}")
    if not issubclass(own, base) or own is base:
        raise UsageError(f"{expected} class {shortened(attribute)}")
    if inspect.isabstract(own):
        raise UsageError(f"{expected} the abstract class {shortened(attribute)}")
    return own
