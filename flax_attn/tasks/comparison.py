"""How sure a figure of the test is, and whether a run is better than simple models.

A score is a number for each test example, its mean over the seeds. Intervals are of 95 %, over the
draw of the test examples: they say nothing of other seeds or other training data.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from flax_attn.errors import counted
from flax_attn.runs.results import Beside, Comparison, Interval

HITS = ("accuracy", "exact match")  # scores that are shares of right answers
RISING = (*HITS, "chrF")  # scores of which more is better; of all others, less
NORMAL = 1.959964  # quantile of 97.5 %
UNDECIDED = "not distinguishable from"

ExampleScores = Mapping[str, Float[np.ndarray, " n"]]  # by metric


def compare(scores: ExampleScores, beside: Mapping[str, ExampleScores]) -> list[Comparison]:
    """Compares the scores of a run with those of other models on the same examples."""
    return [
        {
            "metric": metric,
            "examples": len(own),
            "run": wilson(own) if metric in HITS else student(own),
            "beside": [against(metric, name, own, of[metric]) for name, of in beside.items()],
        }
        for metric, own in scores.items()
        if len(own) > 1
    ]


def wilson(shares: Float[np.ndarray, " n"]) -> Interval:
    """Computes the mean of shares and its interval (Wilson, 1927)."""
    number, mean = len(shares), float(shares.mean())
    square = NORMAL**2 / number
    half = NORMAL * np.sqrt((mean * (1 - mean) + square / 4) / number) / (1 + square)
    center = (mean + square / 2) / (1 + square)
    return {"mean": mean, "low": float(center - half), "high": float(center + half)}


def student(scores: Float[np.ndarray, " n"]) -> Interval:
    """Computes the mean of scores and its interval by Student's t."""
    number, mean, z = len(scores), float(scores.mean()), NORMAL
    # the quantile of t by its expansion in the degrees of freedom
    quantile = z + (z**3 + z) / 4 / (number - 1)  # (Abramowitz and Stegun, 26.7.5)
    quantile += (5 * z**5 + 16 * z**3 + 3 * z) / 96 / (number - 1) ** 2
    half = float(quantile * scores.std(ddof=1) / np.sqrt(number))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def against(metric: str, name: str, own: np.ndarray, other: np.ndarray) -> Beside:
    """Compares paired scores. The gain is how much better the run is.

    For hits, its interval has two examples more, one that the run wins and one that it loses
    (Bonett and Price, 2012), so that it holds for few examples.
    """
    gains = own - other if metric in RISING else other - own
    gain = student(np.append(gains, [1, -1]) if metric in HITS else gains)
    gain["mean"] = float(gains.mean())  # of the real examples, without the two
    return {"name": name, "mean": float(other.mean()), "gain": gain}


def verdict(beside: Beside) -> str:
    """Returns what the interval of the gain allows to say."""
    gain = beside["gain"]
    return "better than" if gain["low"] > 0 else "worse than" if gain["high"] < 0 else UNDECIDED


def difference(metric: str, beside: Beside) -> Interval:
    """Returns the metric of the run less that of the other model, with its interval."""
    gain = beside["gain"]
    sign = 1 if metric in RISING else -1
    low, high = sorted(sign * gain[end] + 0.0 for end in ("low", "high"))  # 0 has no sign
    return {"mean": sign * gain["mean"] + 0.0, "low": low, "high": high}


def sentence(comparison: Comparison) -> str:
    """Returns what the numbers allow to say: of the best other model first.

    It is empty where there is no other model.
    """
    said: dict[str, list[str]] = {}
    for one in sorted(comparison["beside"], key=lambda one: one["gain"]["mean"]):
        said.setdefault(verdict(one), []).append(one["name"])
    return "; ".join(f"{how} {', '.join(names)}" for how, names in said.items())


def lines(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns each figure with its interval, the other models with the differences, a verdict."""
    told = []
    for one in comparisons:
        run, metric = one["run"], one["metric"]
        number = counted(one["examples"], "example")
        interval = f"95 % interval {run['low']:.4g} to {run['high']:.4g}, {number}"
        told.append(f"test {metric} {run['mean']:.4g} ({interval})")
        for other in one["beside"]:
            gap = difference(metric, other)
            ends = f"{gap['mean']:+.2g}, 95 % interval {gap['low']:+.2g} to {gap['high']:+.2g}"
            told.append(f"  {other['name']}: {other['mean']:.4g} (difference {ends})")
        if one["beside"]:
            told.append(f"  so the run is {sentence(one)}")
    return told
