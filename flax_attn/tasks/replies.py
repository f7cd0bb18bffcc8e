"""Arrays, classes and tokens as JSON that a page reads, in replies and in reports."""

import base64
import zlib

import numpy as np

from flax_attn.analysis.token_weights import are_shares, of_hops, printable
from flax_attn.types import Json, JsonObject, Tree

DIGITS = 5  # significant ones

MOST_CLASSES = 12  # that a reply names, the most probable first
MOST_OUTPUTS = 1_000  # probabilities that a reply holds; of more it holds the classes alone

EMPTY: JsonObject = dict.fromkeys(
    ("outputs", "classes", "writes", "tokens", "known", "scores", "text", "note", "error")
) | {"attention": {}}

WITHOUT_WEIGHTS: JsonObject = {"attention": {}, "scores": None}


def attended(looked: dict[str, Tree], padded: int = 0, length: int = 0) -> JsonObject:
    """Returns weights and scores of one input by name, each `(heads, q, k)`, without padding."""
    last = looked.get("last")

    def brought(name: str, matrix: np.ndarray) -> JsonObject:
        rows = by_heads(name, np.asarray(matrix[0]))
        if last is not None:  # of a text that goes on, what its last token looks at
            rows = rows[:, int(last) : int(last) + 1]
        return array(without_padding(name, rows, padded, length))

    weights = {name: brought(name, one) for name, one in looked["attention"].items()}
    scores = {name: brought(name, one) for name, one in looked.get("scores", {}).items()}
    return {"attention": weights, "scores": scores or None}


def without_padding(name: str, weights: np.ndarray, padded: int, length: int) -> np.ndarray:
    """Cuts padding from weights `(n, ..., q, k)`, or `(n, hops, k)` of hops."""
    if weights.shape[-1] == padded:
        weights = weights[..., :length]
    is_padded = weights.ndim > 2 and weights.shape[-2] == padded and not of_hops(name)
    return weights[..., :length, :] if is_padded else weights


def by_heads(name: str, weights: np.ndarray) -> np.ndarray:
    """Returns the weights of one input as `(heads, q, k)`. Hops are heads of one query."""
    if weights.ndim == 1:
        return weights[None, None]  # (1, 1, k)
    if weights.ndim == 2:
        return weights[:, None] if of_hops(name) else weights[None]
    return weights.reshape(-1, *weights.shape[-2:])  # (heads, q, k)


def classified(shares: np.ndarray, names: list[str]) -> JsonObject:
    """Returns the classes with their probabilities, the most probable first."""
    named = [[names[i], float(shares[i])] for i in likeliest(shares)]
    return {"outputs": array(shares) if len(shares) <= MOST_OUTPUTS else None, "classes": named}


def likeliest(shares: np.ndarray) -> list[int]:
    """Returns the classes that a reply names, the most probable first."""
    return np.argsort(-shares, kind="stable")[:MOST_CLASSES].tolist()


def with_tokens(parts: list[tuple[str, bool]]) -> JsonObject:
    return {"tokens": [part for part, _ in parts], "known": [bool(known) for _, known in parts]}


def array(values: np.ndarray) -> JsonObject:
    """Returns an array as JSON: its shape, and its float32 numbers in base64, little-endian.

    A page gets an answer every frame, and numbers as text take longer than the model.
    """
    numbers = np.ascontiguousarray(values, "<f4")
    return {"shape": list(values.shape), "base64": base64.b64encode(numbers.tobytes()).decode()}


def numbers_of(packed: JsonObject) -> np.ndarray:
    """Reads the array that `array` wrote."""
    data = np.frombuffer(base64.b64decode(packed["base64"]), "<f4")
    return data.reshape(packed["shape"])


def pack(weights: np.ndarray) -> JsonObject:
    """Packs numbers in [0, 1] as bytes of their square roots, deflated, in base64.

    `broken` lists what is not a finite number. Weights that are no shares of 1 are divided by
    the largest size, `top`, and a bit for the sign of each follows.
    """
    flat = np.asarray(weights, np.float32).ravel()
    broken = np.flatnonzero(~np.isfinite(flat))
    clean = np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)
    top = None if are_shares(clean) else float(np.abs(clean).max())
    sizes = np.clip(clean, 0, 1) if top is None else np.abs(clean) / top
    content = np.round(255 * np.sqrt(sizes)).astype(np.uint8).tobytes()  # finer for small weights
    content += b"" if top is None else np.packbits(clean < 0).tobytes()
    text = base64.b64encode(zlib.compress(content, 9)).decode()
    packed = {"shape": list(weights.shape), "data": text}
    packed |= {} if top is None else {"top": top}
    return packed | ({"broken": broken.tolist()} if broken.size else {})


def numbers(values: np.ndarray) -> Json:
    """Rounds numbers to as many digits as a picture shows, nested as the array is."""
    if values.ndim > 1:
        return [numbers(row) for row in values]
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]


def written(tokens: np.ndarray) -> list[str]:
    """Returns tokens as a page shows them."""
    return [printable(token) for token in tokens.tolist()]
