"""Every input with every target, as a page has them: from runs that are written by hand.

Some have no run yet; their data are those of another, with another target.
"""

import json

import numpy as np

from flax_attn.page.data import run_data, safe
from flax_attn.page.report import filled, script_of
from flax_attn.runs.reading import read
from flax_attn.tasks.replies import array
from tests.page.answering import Answering
from tests.written_runs import write_run

KINDS = {  # by name: the kind of a written run, and another target than its own
    "signals": ("signals", None),
    "plain": ("plain", None),
    "series": ("series", None),
    "numbers of signals": ("numbers of signals", None),
    "classes of signals": ("signals", "classes"),
    "classes of series": ("series", "classes"),
    "numbers of series": ("series", "number"),
    "images": ("images", None),
    "numbers of images": ("images", "number"),
    "texts": ("texts", None),
    "hops": ("hops", None),
    "numbers": ("numbers", None),
    "translation": ("translation", None),
    "language": ("language", None),
}
CLASSES = ["one", "two", "three"]


def cell(name, folder):
    """Returns the data of a run, as a page has them."""
    kind, target = KINDS[name]
    path = folder / name.replace(" ", "_")
    data = json.loads(json.dumps(safe(run_data(read(write_run(path, kind))))))
    if target is None:
        return data
    data["target"] = target
    random = np.random.default_rng(0)
    for i, example in enumerate(data["examples"]):
        for key in ("targets", "predictions", "marks"):
            example.pop(key, None)
        if target == "classes":
            example |= {"target": i % 3, "predictions": random.dirichlet(np.ones(3)).tolist()}
        else:
            example |= {"target": float(i), "prediction": i + 0.5}
    if target == "classes":
        data["classes"] = CLASSES
    else:
        numbers = random.uniform(size=40).tolist()
        data["beside"] = {"targets": numbers, "predictions": numbers[::-1]}
    return data


def page_of(data, mode="report"):
    """Returns the page of some data."""
    tasks = [(run["input"], run["target"]) for run in data]
    return filled(data, script_of(tasks, mode != "report"), mode, mode != "report", "title", "")


class Replies(Answering):
    """Replies to a cell, at random: weights of the shapes that its examples have."""

    def __init__(self, data, **options):
        self.data = data
        super().__init__("cell", **options)

    def cell(self, request):
        example = self.data["examples"][0]
        weights = {name: own["shape"] for name, own in example["attention"].items()}
        reply = self.attended(**weights)
        if self.data["target"] == "classes":
            return reply | self.classes()
        length = len(example["inputs"][0]) if "inputs" in example else 1
        count = 1 if self.data["target"] == "number" else length
        return reply | {"outputs": array(self.random.uniform(1, 12, (count, 1)))}
