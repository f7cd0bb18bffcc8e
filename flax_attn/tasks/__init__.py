"""The kinds of task. `task_of` gives the class for a data set."""

from flax_attn.data.sets import (
    DataSet,
    ImageData,
    LanguageData,
    PairData,
    SeriesData,
    SignalData,
    TextData,
)
from flax_attn.errors import UsageError
from flax_attn.tasks.images import ImageClasses as ImageClasses
from flax_attn.tasks.language import Generated as Generated
from flax_attn.tasks.language import LanguageModel as LanguageModel
from flax_attn.tasks.series import Series as Series
from flax_attn.tasks.signals import Signals as Signals
from flax_attn.tasks.task import Kept as Kept
from flax_attn.tasks.task import Prediction as Prediction
from flax_attn.tasks.task import Recipe as Recipe
from flax_attn.tasks.task import Rows as Rows
from flax_attn.tasks.task import Task as Task
from flax_attn.tasks.task import row_lengths as row_lengths
from flax_attn.tasks.texts import TextClasses as TextClasses
from flax_attn.tasks.translation import PairsOfTexts as PairsOfTexts

TASKS: dict[type[DataSet], type[Task]] = {
    SignalData: Signals,
    SeriesData: Series,
    ImageData: ImageClasses,
    TextData: TextClasses,
    PairData: PairsOfTexts,
    LanguageData: LanguageModel,
}


def task_of(data: type[DataSet]) -> type[Task]:
    """The kind of task for a class of data sets.

    Raises:
        UsageError: a class of no kind.
    """
    for kind, task in TASKS.items():
        if issubclass(data, kind):
            return task
    kinds = ", ".join(kind.__name__ for kind in TASKS)
    raise UsageError(f"expected data.name to be a subclass of one of {kinds}, got {data.__name__}")
