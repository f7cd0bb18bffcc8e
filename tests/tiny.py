"""Trainings as small as they can be: to compile a model is what a test of a run costs.

Tests that train the same tiny model on data of the same sizes share its programs too.
"""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

STEPS = {"batch_size": 16, "steps_per_epoch": 2}
CNN = STEPS | {"model.features": 8, "model.num_layers": 2}
ATTENTION = STEPS | {"model.features": 8, "model.key_features": 8}
SHAPES = {"data.num_train": 200, "data.num_test": 20}  # to be made in code
TEXTS = STEPS | {"data.num_buckets": 1, "model.cell": "rnn", "model.bidirectional": False}
TEXTS |= {"model.embedding_features": 8, "model.features": 8, "model.hidden_features": 8}
NUMBERS = TEXTS | {"data.num_train": 200, "data.num_test": 20}  # of texts, to be made in code
PAIRS = STEPS | {"data.num_buckets": 1, "model.cell": "rnn"}
PAIRS |= {"model.embedding_features": 8, "model.features": 8, "model.attention_features": 8}
PAIRS |= {"decoding.beam": 1}


@contextlib.contextmanager
def no_pictures() -> Iterator[None]:
    """Within it, runs draw none."""
    from flax_attn.tasks import figures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_run", lambda path, only_missing=False: [])
        yield


@contextlib.contextmanager
def untrained() -> Iterator[None]:
    """Within it, runs draw no pictures and take no step.

    They are whole, and their parameters are those that they began with: for tests of what stands
    in a run, or of what commands say of it. To compile a training step is half of the work.
    """
    import jax  # not above: `conftest.py` imports this file before it has chosen how to compile

    from flax_attn.experiment import running

    def skip(programs, now, *others):
        sums = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), now.sums)
        return now._replace(progress=now.progress._replace(step=programs.steps_an_epoch), sums=sums)

    compiled = running.compiled
    with no_pictures(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "compiled", lambda *arguments: compiled(*arguments[:-1], True))
        patch.setattr(running, "take_chunk", skip)
        yield
