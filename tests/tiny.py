"""Trainings as small as they can be: to compile a model is what a test of a run costs.

Tests that train the same tiny model on data of the same sizes share its programs too.
"""

import contextlib
from collections.abc import Iterator

import pytest

STEPS = {"batch_size": 16, "steps_per_epoch": 2}
CNN = STEPS | {"model.features": 8, "model.num_layers": 2}
ATTENTION = STEPS | {"model.features": 8, "model.key_features": 8}
SHAPES = {"data.num_train": 200, "data.num_test": 20}  # to be made in code
TEXTS = STEPS | {"data.num_buckets": 1, "model.cell": "rnn", "model.bidirectional": False}
TEXTS |= {"model.embedding_features": 8, "model.features": 8, "model.hidden_features": 8}
PAIRS = STEPS | {"data.num_buckets": 1, "model.cell": "rnn"}
PAIRS |= {"model.embedding_features": 8, "model.features": 8, "model.attention_features": 8}
PAIRS |= {"decoding.beam": 1}


@contextlib.contextmanager
def no_pictures() -> Iterator[None]:
    """Within it, runs draw none."""
    from flax_attn.analysis import figures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_run", lambda path: [])
        yield
