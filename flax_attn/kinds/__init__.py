"""The kinds of task, one file each. All that depends on a kind asks its class.

A new kind is a file here with a subclass of `Task`, a view of the same name in `page/views`, and a
line in `ALL`. Data sets that stand in the file of a kind are its `data_sets`. They join those of
`data`, which cannot know them, so that `DATA` names all data sets.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from flax_attn.data.sets import DATA, DataSet
from flax_attn.errors import UsageError
from flax_attn.kinds.images import ImageClasses
from flax_attn.kinds.language import LanguageModel
from flax_attn.kinds.numbers import Numbers
from flax_attn.kinds.series import Series
from flax_attn.kinds.signals import Signals
from flax_attn.kinds.task import Task
from flax_attn.kinds.texts import TextClasses
from flax_attn.kinds.translation import PairsOfTexts
from flax_attn.runs import reading
from flax_attn.runs.examples import Form
from flax_attn.runs.reading import Record

ALL: tuple[type[Task], ...] = (
    Signals,
    Series,
    ImageClasses,
    TextClasses,
    PairsOfTexts,
    LanguageModel,
    Numbers,
)
KINDS = {kind.name: kind for kind in ALL}
DATA.update(own for kind in ALL for own in kind.data_sets.items())


def kind_of(data: type[DataSet]) -> type[Task]:
    """Returns the kind of task of a class of data sets.

    Raises:
        UsageError: a class of no kind.
    """
    for kind in ALL:
        if issubclass(data, kind.data_class):
            return kind
    names = ", ".join(kind.data_class.__name__ for kind in ALL)
    raise UsageError(f"expected data.name to be a subclass of one of {names}, got {data.__name__}")


def form_of(name: str) -> Form:
    """Returns the form of the examples of a kind. Raises a ValueError for an unknown name."""
    if name not in KINDS:
        raise ValueError(f"unknown pictures {name[:60]!r}")
    return KINDS[name].form


def read(path: Path) -> Record:
    """Reads the directory of a finished run. Errors are those of `runs.reading.read`."""
    return reading.read(path, form_of)


def read_runs(paths: Iterable[Path]) -> list[Record]:
    """Reads the directories of finished runs. One that is named twice is read once."""
    once: dict[str, Path] = {}
    for path in paths:
        once.setdefault(os.path.realpath(path), path)
    return [read(path) for path in once.values()]
