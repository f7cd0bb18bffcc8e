"""What a data set holds, and what may be wrong with it, told before training."""

from collections import Counter
from collections.abc import Sequence

import jax
import numpy as np

from flax_attn.data.contents import is_within
from flax_attn.data.raw import Raw, identified
from flax_attn.data.sets import DataSet
from flax_attn.errors import counted, shortened
from flax_attn.tasks.targets.classes import are_numbers
from flax_attn.tasks.task import Task
from flax_attn.types import UserInput

MOST_NAMED = 8  # classes
FEW = 5  # test examples of a class


def lines(task: Task) -> list[str]:
    """Counts the examples of a task; describes and warns of data that were read from files."""
    splits = {"train": task.rows.train} | task.rows.splits
    sizes = [f"{len(jax.tree.leaves(rows)[0]):,} {name}" for name, rows in splits.items()]
    told, raw = [f"examples: {', '.join(sizes)}"], task.raw
    if raw is not None and raw.files:
        told += described(raw, task.data) + warnings(raw, task.data)
    return told


def described(raw: Raw, data: DataSet) -> list[str]:
    """Describes the training split."""
    train, told = raw.splits["train"], list(raw.notes)
    told.append(f"{data.topic}: {inputs_of(train.inputs, data)}{target_of(raw, data)}")
    if data.target == "classes":
        counts = Counter(named(raw, "train")).most_common()
        listed = [f"{shortened(name)} {count:,}" for name, count in counts[:MOST_NAMED]]
        more = [f"and {len(counts) - MOST_NAMED} more"] * (len(counts) > MOST_NAMED)
        told.append(f"classes to train on: {', '.join(listed + more)}")
    return told


def inputs_of(inputs: UserInput, data: DataSet) -> str:
    """Describes the lengths of texts, or the size of images and signals."""
    if isinstance(inputs[0], str):
        by_letter = getattr(data, "tokenizer", "word") == "character"
        lengths = [len(text if by_letter else text.split()) for text in inputs]
        least, middle, most = np.quantile(lengths, (0, 0.5, 1)).astype(int)
        what = "characters" if by_letter else "words"
        return f"{least} to {most} {what}, half of them at most {middle}"
    _, first, second, *channels = inputs.shape
    if data.input == "image":
        return f"{first} x {second} pixels" + " in colour" * bool(channels)
    lengths = is_within(inputs).sum(axis=1)
    least = f"{lengths.min()} to " * bool(lengths.min() < first)
    return f"{least}{first} points" + f" of {second} series" * (second > 1)


def target_of(raw: Raw, data: DataSet) -> str:
    """Returns the range of numbers, or the first text with its target."""
    train = raw.splits["train"]
    if data.target == "number":
        low, high = np.min(train.targets), np.max(train.targets)
        return f"; numbers from {low:.4g} to {high:.4g}"
    if not isinstance(train.inputs[0], str):
        return ""
    first, target = named(raw, "train")[0], shortened(train.inputs[0])
    return f'; the first: "{target}", {shortened(first)}'


def named(raw: Raw, split: str) -> Sequence[str]:
    """Returns the targets of a split; classes by their names."""
    targets = raw.splits[split].targets
    if are_numbers(targets) and raw.classes:
        return [raw.classes[int(i)] for i in targets]
    return targets


def warnings(raw: Raw, data: DataSet) -> list[str]:
    """Warns of test inputs that were trained on, and of classes with few test examples."""
    told, train = [], set(identified(raw.splits["train"].inputs))
    hint = "; --data.split_by=input keeps them apart" * (getattr(data, "split_by", "") == "row")
    for split in raw.splits.keys() - {"train"}:
        keys = identified(raw.splits[split].inputs)
        if shared := sum(key in train for key in keys):
            told.append(f"warning: {shared:,} of {len(keys):,} {split} inputs are trained on{hint}")
    if data.target == "classes" and "test" in raw.splits:
        tested = Counter(named(raw, "test"))
        few = [
            f"{shortened(name)} ({tested[name]})"
            for name in sorted(set(named(raw, "train")))
            if tested[name] < FEW
        ]
        if few:
            listed = ", ".join(few[:MOST_NAMED])
            classes = counted(len(few), "class", "classes")
            told.append(f"warning: {classes} with under {FEW} test examples: {listed}")
    return sorted(told)
