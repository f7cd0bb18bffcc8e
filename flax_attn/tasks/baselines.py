"""What a simple classifier of texts gets right on the test split, beside the model."""

import importlib.util
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence

LARGEST, TF_IDF = "the largest class alone", "TF-IDF with logistic regression"
MOST_TEXTS = 20_000  # to train on

Labelled = tuple[Sequence[str], Sequence[str]]  # texts and their classes


def measure(train: Labelled, test: Labelled) -> dict[str, float]:
    """The share of test texts that each baseline names rightly, by name.

    The largest class of the training split is always there. TF-IDF and logistic regression need
    scikit-learn, with whose defaults they are made, and at most `MOST_TEXTS` to train on.
    """
    (texts, labels), (tested, right) = train, test
    most, _ = Counter(labels).most_common(1)[0]
    shares = {LARGEST: sum(label == most for label in right) / len(right)}
    if len(texts) > MOST_TEXTS or not has_sklearn():
        return shares
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings(action="ignore"):
        try:
            vectorizer = TfidfVectorizer()
            model = LogisticRegression(max_iter=1_000).fit(vectorizer.fit_transform(texts), labels)
        except ValueError:  # texts without a word of two letters
            return shares
        predicted = model.predict(vectorizer.transform(tested))
    return shares | {TF_IDF: sum(map(str.__eq__, map(str, predicted), right)) / len(right)}


def has_sklearn() -> bool:
    return importlib.util.find_spec("sklearn") is not None


def lines(shares: Mapping[str, float], accuracy: float) -> list[str]:
    """Says after training what the model and the baselines get right, and how to get the rest."""
    accuracies = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    told = [f"test accuracy {accuracy:.3f}; beside it: {accuracies}"]
    if TF_IDF not in shares:
        needed = (
            f'pip install "flax-attn[baseline]" before training, and at most {MOST_TEXTS:,} texts'
        )
        told.append(f"({TF_IDF} needs {needed})")
    return told


def clause(shares: Mapping[str, float]) -> str:
    """What the baselines get right, as a part of a sentence."""
    return ", ".join(f"{name} {100 * share:.3g} %" for name, share in shares.items())
