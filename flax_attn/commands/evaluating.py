"""What `flax-attn evaluate` does: measures a run on a labelled file."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from flax_attn import schema
from flax_attn.analysis.tables import wide_console
from flax_attn.data.raw import Columns, Raw
from flax_attn.data.sets import ImageFiles, NumberCSV, OwnData, PairsTSV, SignalFiles, TextCSV
from flax_attn.errors import escaped
from flax_attn.experiment import loading
from flax_attn.files import sha256
from flax_attn.schema import require
from flax_attn.tasks import comparison
from flax_attn.tasks.requests import print_json, warn
from flax_attn.tasks.targets.classes import recalls
from flax_attn.tasks.task import Task

# what reads a file for a run on other data, by the name of the task
READERS = {
    "text-classes": TextCSV,
    "text-number": NumberCSV,
    "text-text": PairsTSV,
    "signal-classes": SignalFiles,
    "signal-number": SignalFiles,
    "signal-signal": SignalFiles,
    "image-classes": ImageFiles,
    "image-number": ImageFiles,
}


def evaluate(args: argparse.Namespace) -> list[Path]:
    """Prints the figures of a run on all rows of a file, with intervals, and recall by class.

    Raises a UsageError for a file that is not of the task, or with classes that the run has not.
    """
    run = loading.load(args.run, warn, allow=tuple(args.allow))
    rows = read_rows(run.task, args.file, args.rest)
    tested = dataclasses.replace(
        run.task, raw=Raw({"test": rows}), tested=run.task.target.batch(rows)
    )
    found = tested.examples(run.model, list(run.params.values()))
    figures = comparison.compare(found.scores, {})
    console = wide_console()
    if args.as_json:
        classes = found.summary.get("classes", {})
        print_json({"examples": len(rows.inputs), "figures": figures, "classes": classes}, console)
        return []
    if Path(args.file).is_file() and sha256(Path(args.file)) in run.task.files.values():
        warn("warning: the run was trained on this file; it may have memorised it")
    lines = comparison.lines(figures)
    if not figures:
        lines += [f"test {name} {one[0]:.4g}, of one example" for name, one in found.scores.items()]
    if "confusion" in found.arrays:
        names = run.task.target.class_names()
        lines += recalls(np.asarray(found.arrays["confusion"]), names or [], len(run.params))
    for line in lines:
        console.print(Text(escaped(line)), soft_wrap=True)
    return []


def read_rows(task: Task, name: str, flags: Sequence[str]) -> Columns:
    """Reads all rows of a file as the data of a run are read; flags change how."""
    is_own = isinstance(task.data, OwnData | PairsTSV)
    kind: Any = type(task.data) if is_own else READERS.get(task.name)
    require(kind, f"a run on texts, images or signals, got the task {task.name}")
    known = schema.keys_of(kind, "data.")
    names = [key.removeprefix("data.") for key in known]
    values = {key: getattr(task.data, key) for key in names if hasattr(task.data, key)}
    given = schema.nested(schema.parse(known, flags)).get("data", {})
    rows = kind(**values | {"file": name} | given).rows_in(name)
    if classes := task.target.class_names():
        strange = sorted(set(rows.targets) - set(classes))
        got = f"({', '.join(classes)}), got '{strange[0]}'" if strange else ""
        require(not strange, f"classes in {name} that the run knows {got}")
    if task.input_class.name == "text":
        return rows
    return rows._replace(inputs=np.asarray(task.inputs.read(rows.inputs).arrays))
