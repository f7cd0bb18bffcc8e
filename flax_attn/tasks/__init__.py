"""What an experiment is about: one module a kind of data, all with the same functions, which `task_of` finds by `data.name`.

    KIND, SCORE                     the config's `task`, and the metric that validation is judged by, lower is better
    keys(name)                      the config keys under `data` and their types
    check(config)                   raises a UsageError for values that make no sense
    load(config, manual_dir)        -> Task: arrays to train and measure on, and what the data decides
    check_derived(derived)          raises a ValueError for what `load` did not derive
    sample(config)                  -> inputs to initialise a model with
    make_measure(config, derived)   -> measure(outputs, aux, batch, train) -> (loss, metrics by name)
    examples(config, task, predict) -> Examples: what the pictures are drawn from, and further figures of the test

Data, loss and pictures of a task meet here, and neither model nor training.
"""

import importlib
from typing import Any

from flax_attn.tasks.task import Task as Task
from flax_attn.tasks.task import row_lengths as row_lengths

TASKS = {
    "shapes": "signals",
    "mnist": "images",
    "ag_news": "texts",
    "sst": "texts",
    "text_csv": "texts",
    "input_series": "series",
    "reverse": "translation",
    "dates": "translation",
    "multi30k": "translation",
    "pairs": "translation",
}


def task_of(name: str) -> Any:
    """The module of a `data.name`, imported when it is first asked for: what reads files takes as long to import as jax."""
    return importlib.import_module(f"flax_attn.tasks.{TASKS[name]}")
