"""Simple models, to be put beside the one that was trained."""

import importlib.util
import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

MOST_ROWS = 20_000  # to train on
FEWEST = 100  # rows to train on, where there are more
MOST_NUMBERS = 4_000_000  # of dense features to train on, which take some seconds
REGRESSED = ("classes", "number", "signal")  # targets of which there is a simple model
NEEDED = '(for a simple model beside it: pip install "flax-attn[baseline]")'

Matrix = Any  # rows of features, dense or sparse


class Features(NamedTuple):
    """Numbers that describe each input.

    Attributes:
        of: what they are, as in "logistic regression on pixels".
        train, test: `(n, features)`.
    """

    of: str
    train: Matrix
    test: Matrix


def has_sklearn() -> bool:
    return importlib.util.find_spec("sklearn") is not None


def of_words(train: list[str], test: list[str]) -> Features | None:
    """Computes the TF-IDF of words; None for texts without a word of two letters."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer()
    try:
        return Features("TF-IDF", vectorizer.fit_transform(train), vectorizer.transform(test))
    except ValueError:
        return None  # no word has two letters


def of_pixels(train: np.ndarray, test: np.ndarray) -> Features:
    """Takes the pixels of images as they are."""
    return Features("pixels", train.reshape(len(train), -1), test.reshape(len(test), -1))


def of_signals(train: np.ndarray, test: np.ndarray) -> Features:
    """Takes all values of signals, and for each channel what sums it up, in standard units."""
    columns = [np.hstack([rows.reshape(len(rows), -1), summed_up(rows)]) for rows in (train, test)]
    with warnings.catch_warnings(action="ignore"):  # a point that no signal reaches
        mean, std = np.nanmean(columns[0], axis=0), np.nanstd(columns[0], axis=0)  # (features,)
    scaled = [np.nan_to_num((rows - mean) / np.where(std > 0, std, 1)) for rows in columns]
    return Features("values and their summary", *scaled)


def summed_up(signals: Float[np.ndarray, "n t c"]) -> Float[np.ndarray, "n features"]:
    """Computes the extremes of each channel and their places, its mean, deviation and roughness."""
    steps = np.abs(np.diff(signals, axis=1, append=signals[:, -1:]))  # (n, t, c): |x_{t+1} - x_t|
    with warnings.catch_warnings(action="ignore"):  # of a single point there is no step
        parts = (np.nanmin, np.nanmax, np.nanargmin, np.nanargmax, np.nanmean, np.nanstd)
        columns = [part(signals, axis=1) for part in parts] + [np.nanmean(steps, axis=1)]
    return np.hstack(columns)  # (n, 7 c)


def predicted(
    features: Features | None, targets: np.ndarray, of_classes: bool
) -> dict[str, np.ndarray]:
    """Predicts the test rows by a regression with the defaults of scikit-learn.

    It is logistic for classes `(n,)`, and ridge for numbers `(n,)` or `(n, outputs)`. Returns the
    predictions by the name of the model; none for no features, for a single class, and for features
    of which too few rows can be trained on.
    """
    if features is None:
        return {}
    from sklearn.linear_model import LogisticRegression, Ridge

    model = LogisticRegression(max_iter=1_000) if of_classes else Ridge()
    is_dense = isinstance(features.train, np.ndarray)
    most = MOST_NUMBERS // features.train.shape[1] if is_dense else MOST_ROWS
    rows = np.linspace(0, len(targets) - 1, min(len(targets), most, MOST_ROWS)).astype(int)
    is_few = len(rows) < min(len(targets), FEWEST)
    if is_few or (of_classes and len(np.unique(targets[rows])) < 2):
        return {}
    kind = "logistic" if of_classes else "ridge"
    with warnings.catch_warnings(action="ignore"):
        model.fit(features.train[rows], targets[rows])
    few = f", trained on {len(rows):,}" if len(rows) < len(targets) else ""
    answers = np.asarray(model.predict(features.test))  # (n,) or (n, outputs)
    return {f"{kind} regression on {features.of}{few}": answers}
