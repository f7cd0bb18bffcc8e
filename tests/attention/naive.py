"""Attention as loops over scalars in NumPy, in double precision: slow, and plain enough to be
believed. It has every score and normaliser; `flax_attn.testing` has softmax alone, with gradients.
"""

import numpy as np


def tanh_score(q, k, p):
    return p["vector"] @ np.tanh(q @ p["query_kernel"] + k @ p["key_kernel"])


def cosine_score(q, k, p):
    length = np.sqrt(q @ q) * np.sqrt(k @ k)
    return q @ k / length if length > 0 else 0.0


SCORES = {
    "dot": lambda q, k, p: q @ k,
    "scaled_dot": lambda q, k, p: q @ k / np.sqrt(len(q)),
    "cosine": cosine_score,
    "bilinear": lambda q, k, p: np.tanh(q @ p["kernel"] @ k + p["bias"]),
    "additive": tanh_score,
    "concat": lambda q, k, p: p["vector"] @ np.tanh(np.concatenate([q, k]) @ p["kernel"]),
    "trilinear": lambda q, k, p: (
        np.concatenate([p["query_vector"], p["key_vector"], p["product_vector"]])
        @ np.concatenate([q, k, q * k])
    ),
    "no_score": lambda q, k, p: 0.0,
}


def softmax(e):
    shares = np.exp(e - e.max())
    return shares / shares.sum()


def by_bisection(weight):
    """Weights `weight(e - tau)` with the threshold `tau` at which they sum to 1."""

    def normalize(e):
        low, high = e.min() - 2, e.max()
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if weight(e - middle).sum() > 1 else (low, middle)
        return weight(e - low)

    return normalize


def hard(e):
    return np.eye(len(e))[np.argmax(e)]


def top(count):
    def normalize(e):
        kept = sorted(range(len(e)), key=lambda i: (-e[i], i))[:count]
        weights = np.zeros(len(e))
        weights[kept] = softmax(e[kept])
        return weights

    return normalize


ROWS = {
    "masked_softmax": softmax,
    "sparsemax": by_bisection(lambda e: np.maximum(e, 0)),
    "entmax15": lambda e: by_bisection(lambda e: np.maximum(e, 0) ** 2)(e / 2),
    "hard": hard,
    "top_k": top(3),
}


def monotonic(scores, allowed, is_hard):
    """The expectation of where each query stops, one key after another; `is_hard` rounds its
    probabilities.
    """
    weights, previous = np.zeros(scores.shape), np.eye(scores.shape[1])[0]
    for i, row in enumerate(allowed):
        arrives = 0.0
        for j in range(len(row)):
            stop = 1 / (1 + np.exp(-scores[i, j])) if row[j] else 0.0
            stop = float(stop > 0.5) if is_hard else stop
            arrives += previous[j]
            weights[i, j], arrives = stop * arrives, (1 - stop) * arrives
        previous = weights[i] if row.any() else previous
    return weights


def attend(
    query,
    key,
    value,
    *,
    score="scaled_dot",
    params=None,
    normalizer="masked_softmax",
    mask=None,
    bias=None,
):
    """Context and weights for `(b, q, d)`, `(b, k, d)`, `(b, k, e)`, by names in `SCORES` and
    `ROWS`, or monotonic.
    """
    query, key, value = (np.asarray(array, np.float64) for array in (query, key, value))
    params = {name: np.asarray(array, np.float64) for name, array in (params or {}).items()}
    (batch, num_queries, _), num_keys = query.shape, key.shape[1]
    allowed = (
        np.ones((batch, num_queries, num_keys), bool)
        if mask is None
        else np.broadcast_to(mask, (batch, num_queries, num_keys))
    )
    bias = (
        np.zeros(allowed.shape)
        if bias is None
        else np.broadcast_to(np.asarray(bias, np.float64), allowed.shape)
    )
    allowed = allowed & (bias > -np.inf)
    weights = np.zeros(allowed.shape)
    for b in range(batch):
        scores = np.zeros(allowed.shape[1:])
        for q in range(num_queries):
            for k in range(num_keys):
                scores[q, k] = (
                    SCORES[score](query[b, q], key[b, k], params) + bias[b, q, k]
                    if allowed[b, q, k]
                    else 0.0
                )
        if normalizer in ROWS:
            for q in range(num_queries):
                if allowed[b, q].any():
                    weights[b, q, allowed[b, q]] = ROWS[normalizer](scores[q, allowed[b, q]])
        else:
            weights[b] = monotonic(scores, allowed[b], is_hard=normalizer == "monotonic_hard")
    context = np.zeros((batch, num_queries, value.shape[2]))
    for b, q, k in np.argwhere(weights != 0):
        context[b, q] += weights[b, q, k] * value[b, k]
    return context, weights
