"""Runs of every kind that are explored without a model: written by hand, and answered by chance."""

import numpy as np

from flax_attn.page.data import safe
from flax_attn.runs.reading import read
from flax_attn.tasks.replies import EMPTY, array, classified
from tests.written_runs import shares, write_run

KINDS = ("signals", "images", "texts", "series", "translation", "language", "numbers")
LENGTH = 100  # of a signal with shapes
NAMES = ["one", "two", "three", "four"]


def record_of(folder, kind, **options):
    """A run of a kind as it is read; signals have the length that shapes have."""
    examples = options.pop("examples", {})
    if kind == "signals":
        random = np.random.default_rng(0)
        drawn = random.uniform(0, 20, (3, 3, LENGTH, 1)).astype(np.float32)
        examples = dict(zip(("inputs", "targets", "predictions"), drawn)) | examples
        examples["attention/attention"] = shares(random, 3, LENGTH, LENGTH)
    return read(write_run(folder, kind, examples=examples, **options))


class Answering:
    """Answers of the form that the server's have, with names of one's own in them.

    Attributes:
        error: what is said in place of an answer.
    """

    def __init__(self, kind, names=NAMES, note=None):
        self.kind, self.names, self.note, self.error = kind, names, note, None
        self.random = np.random.default_rng(0)

    def __call__(self, request):
        own = getattr(self, self.kind)(request) | {"note": self.note}
        return safe(EMPTY | ({"error": self.error} if self.error else own))

    def attended(self, **shapes):
        weights = {name: shares(self.random, *shape) for name, shape in shapes.items()}
        arrays = {name: array(own) for name, own in weights.items()}
        scores = {name: array(np.log(np.maximum(own, 1e-6))) for name, own in weights.items()}
        return {"attention": arrays, "scores": scores}

    def classes(self):
        return classified(shares(self.random, len(self.names)), self.names)

    def signals(self, request):
        attention = self.attended(attention=(1, LENGTH, LENGTH))
        outputs = self.random.uniform(0, 20, (LENGTH, 1))
        return attention | {"outputs": array(outputs)}

    def series(self, request):
        outputs = self.random.normal(size=(12, 1))
        return self.attended(input=(1, 12, 5)) | {"outputs": array(outputs)}

    def images(self, request):
        blocks = {f"block{i}": (4, 16, 16) for i in range(3)}
        return self.attended(**blocks, pooling=(1, 1, 16)) | self.classes()

    def texts(self, request):
        n = len(self.names)
        tokens = {"tokens": self.names, "known": [i % 3 > 0 for i in range(n)]}
        return self.attended(attention=(1, n, n)) | self.classes() | tokens

    def numbers(self, request):
        reply = self.texts(request) | {"classes": None}
        return reply | {"outputs": array(self.random.uniform(1, 12, 1))}

    def translation(self, request):
        n, best = len(self.names), []
        for _ in range(3):
            own = {"text": " ".join(self.names), "tokens": self.names, "probability": 0.25}
            best.append(own | self.attended(alignment=(1, n, n)))
        first = {name: best[0][name] for name in ("text", "attention", "scores")}
        return first | {"best": best, "tokens": self.names, "known": [True] * n}

    def language(self, request):
        n = len(self.names)
        writes = {"writes": [[*map(ord, name)] for name, _ in self.classes()["classes"]]}
        tokens = {"tokens": self.names, "known": [True] * n}
        return self.attended(block0=(2, 1, n), block1=(2, 1, n)) | self.classes() | writes | tokens
