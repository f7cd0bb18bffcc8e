"""Facts of a lesson as JSON, for the parts of its page that answer: `_ext/course.py`."""

import json

import numpy as np


def as_json(facts: object) -> str:
    """Facts as JSON, with arrays as lists. Numbers are as short as they tell them from others."""
    shortest = lambda array: np.asarray(array).astype(str).astype(float).tolist()
    return json.dumps(facts, default=shortest, separators=(",", ":"), allow_nan=False)
