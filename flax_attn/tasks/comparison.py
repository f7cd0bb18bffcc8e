"""How sure a figure of the test is, and whether a run is better than simple models.

A score is a number for each test example, its mean over the seeds. Intervals are of 95 %, over the
draw of the test examples: they say nothing of other seeds or other training data.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from flax_attn.runs.results import Beside, Comparison, Interval

SHARES = ("accuracy", "exact match", "chrF")  # scores in [0, 1]; of all others, less is better
NORMAL = 1.959964  # quantile of 97.5 %
UNDECIDED = "not distinguishable from"

ExampleScores = Mapping[str, Float[np.ndarray, " n"]]  # by metric


def compare(scores: ExampleScores, beside: Mapping[str, ExampleScores]) -> list[Comparison]:
    """Compares the scores of a run with those of other models on the same examples."""
    return [
        {
            "metric": metric,
            "examples": len(own),
            "run": wilson(own) if metric in SHARES else student(own),
            "beside": [against(metric, name, own, of[metric]) for name, of in beside.items()],
        }
        for metric, own in scores.items()
        if len(own) > 1
    ]


def wilson(shares: Float[np.ndarray, " n"]) -> Interval:
    """Computes the mean of shares and its interval (Wilson, 1927)."""
    number, mean = len(shares), float(shares.mean())
    square = NORMAL**2 / number
    room = NORMAL * np.sqrt((mean * (1 - mean) + square / 4) / number) / (1 + square)
    middle = (mean + square / 2) / (1 + square)
    return {"mean": mean, "low": float(middle - room), "high": float(middle + room)}


def student(scores: Float[np.ndarray, " n"]) -> Interval:
    """Computes the mean of scores and its interval by Student's t."""
    number, mean, z = len(scores), float(scores.mean()), NORMAL
    # the quantile of t by its expansion in the degrees of freedom
    quantile = z + (z**3 + z) / 4 / (number - 1)
    quantile += (5 * z**5 + 16 * z**3 + 3 * z) / 96 / (number - 1) ** 2
    room = float(quantile * scores.std(ddof=1) / np.sqrt(number))
    return {"mean": mean, "low": mean - room, "high": mean + room}


def against(metric: str, name: str, own: np.ndarray, other: np.ndarray) -> Beside:
    """Compares paired scores. The gain is how much better the run is.

    For shares, its interval has two examples more, one that the run wins and one that it loses
    (Bonett and Price, 2012), so that it holds for few examples.
    """
    is_share = metric in SHARES
    gains = own - other if is_share else other - own
    gain = student(np.append(gains, [1, -1]) if is_share else gains)
    gain["mean"] = float(gains.mean())
    return {"name": name, "mean": float(other.mean()), "gain": gain}


def verdict(beside: Beside) -> str:
    """Returns what the interval of the gain allows to say."""
    gain = beside["gain"]
    return "better than" if gain["low"] > 0 else "worse than" if gain["high"] < 0 else UNDECIDED


def sentence(comparison: Comparison) -> str:
    """Returns what the numbers allow to say: of the best other model, and then of the rest.

    It is empty where there is no other model.
    """
    if not comparison["beside"]:
        return ""
    best, *rest = sorted(comparison["beside"], key=lambda one: one["gain"]["mean"])
    gain, metric = best["gain"], comparison["metric"]
    sign = 1 if metric in SHARES else -1
    low, high = sorted(sign * gain[end] + 0.0 for end in ("low", "high"))  # 0 has no sign
    amount = f"{metric} {sign * gain['mean'] + 0.0:+.2g}, 95 % interval {low:+.2g} to {high:+.2g}"
    said = {verdict(best): [f"{best['name']} ({amount})"]}
    for one in rest:
        said.setdefault(verdict(one), []).append(one["name"])
    return "; ".join(f"{how} {', '.join(names)}" for how, names in said.items())


def lines(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns each figure with its interval, the other models beside it, and the verdict."""
    told = []
    for one in comparisons:
        run, number = one["run"], f"{one['examples']:,} examples"
        interval = f"95 % interval {run['low']:.4g} to {run['high']:.4g}, {number}"
        told.append(f"test {one['metric']} {run['mean']:.4g} ({interval})")
        if one["beside"]:
            beside = ", ".join(f"{other['name']} {other['mean']:.4g}" for other in one["beside"])
            told += [f"  beside it: {beside}", f"  verdict: {sentence(one)}"]
    return told
