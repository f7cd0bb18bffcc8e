"""Tasks: the grid of inputs and targets.

A new cell of the grid is a class of two lines here. A new input or target is a file in `inputs` or
`targets`. Translations and language models have methods of their own.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from flax_attn.data.sets import DataSet, PairData
from flax_attn.errors import UsageError
from flax_attn.runs import reading
from flax_attn.runs.reading import Record
from flax_attn.tasks.inputs.images import Images
from flax_attn.tasks.inputs.signals import Signals
from flax_attn.tasks.inputs.texts import Texts
from flax_attn.tasks.language import LanguageModel
from flax_attn.tasks.targets.classes import Classes
from flax_attn.tasks.targets.numbers import Number
from flax_attn.tasks.targets.signals import Signal
from flax_attn.tasks.task import Task
from flax_attn.tasks.translation import TextsOfTexts


class SignalsToSignals(Task):
    input_class, target_class = Signals, Signal


class ClassesOfSignals(Task):
    input_class, target_class = Signals, Classes


class NumbersOfSignals(Task):
    input_class, target_class = Signals, Number


class ClassesOfImages(Task):
    input_class, target_class = Images, Classes


class NumbersOfImages(Task):
    input_class, target_class = Images, Number


class ClassesOfTexts(Task):
    input_class, target_class = Texts, Classes


class NumbersOfTexts(Task):
    input_class, target_class = Texts, Number


ALL: tuple[type[Task], ...] = (
    SignalsToSignals,
    ClassesOfSignals,
    NumbersOfSignals,
    ClassesOfImages,
    NumbersOfImages,
    ClassesOfTexts,
    NumbersOfTexts,
    TextsOfTexts,
    LanguageModel,
)
TASKS = {task.name: task for task in ALL}


def task_of(data: DataSet) -> type[Task]:
    """Returns the class of the task of a data set, by its `input` and `target`.

    Raises:
        UsageError: a combination that is no cell of the grid.
    """
    # pairs may have the name of a language as their `target`
    name = "text-text" if isinstance(data, PairData) else f"{data.input}-{data.target}"
    if name not in TASKS:
        raise UsageError(f"expected a data set with a task of {', '.join(TASKS)}, got {name}")
    return TASKS[name]


def read_runs(paths: Iterable[Path]) -> list[Record]:
    """Reads the directories of finished runs. One that is named twice is read once."""
    once: dict[str, Path] = {}
    for path in paths:
        once.setdefault(os.path.realpath(path), path)
    return [reading.read(path) for path in once.values()]
