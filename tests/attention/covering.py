"""Few combinations of values in which all that should meet do."""

import itertools

import numpy as np


def covering(strength, *axes, apart=()):
    """Combinations in which every `strength` values of different axes meet, the greedy choice among
    many at random.

    The axes whose numbers are in `apart` need not meet.
    """
    rng = np.random.default_rng(0)
    of = lambda row: set(itertools.combinations(enumerate(row), strength))
    wanted = {
        met
        for some in itertools.combinations(enumerate(axes), strength)
        if tuple(i for i, _ in some) != apart
        for met in itertools.product(*([(i, x) for x in xs] for i, xs in some))
    }
    rows = []
    while wanted:
        tries = [tuple(list(axis)[rng.integers(len(axis))] for axis in axes) for _ in range(200)]
        best = max(tries, key=lambda row: len(of(row) & wanted))
        if of(best) & wanted:
            rows.append(best)
            wanted -= of(best)
    return rows
