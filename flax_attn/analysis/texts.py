"""Pictures of texts: tokens with their weights."""

import re

import numpy as np
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import styled, top_of
from flax_attn.analysis.plotting import attention
from flax_attn.analysis.token_lines import draw_texts
from flax_attn.analysis.token_weights import of_hops, over_tokens
from flax_attn.runs.reading import Record

SHOWN = 8


def draw_attention(
    run: Record, name: str, weights: np.ndarray, verdicts: list[tuple[str, str]]
) -> dict[str, Figure]:
    """Draws an attention on the first test texts, and its matrix on the first of them."""
    rows = zip(run.examples["words"][:SHOWN], run.examples["lengths"])
    words = [row[:length].tolist() for row, length in rows]
    matrices = zip(weights, words)
    over = [over_tokens(name, matrix, len(tokens)).tolist() for matrix, tokens in matrices]
    title = f"{run.name}, {named(name)}test examples: "
    title += "colour is for more than 1/n, the uniform weight"
    if run.config["data"]["name"] == "ag_news":
        title += "\n(the model gets no stop words, such as 'the')"
    drawn = {name: attention_on_tokens(words, over, verdicts[:SHOWN], title)}
    if weights.ndim == 3 and words[0]:
        reader = "hop" if of_hops(name) else "token"
        title = f"{run.name}, {named(name)}test example 0: which tokens each {reader} reads"
        title += f"\nfor the prediction {verdicts[0][0]}"
        drawn[f"{name}_map"] = attention_map(words[0], weights[0], of_hops(name), title)
    return drawn


def named(name: str) -> str:
    """Returns the part of a name that distinguishes several attentions of a model."""
    _, _, part = name.partition("_")
    return f"{part}, " if part else ""


@styled
def attention_on_tokens(
    words: list[list[str]], weights: list[list[float]], verdicts: list[tuple[str, str]], title: str
) -> Figure:
    """Draws texts under their verdicts, each token on the colour of its weight."""
    if any(re.fullmatch(r"\(.+\)", word) for text in words for word in text):
        title += "\n(in brackets: words that the model does not know)"
    return draw_texts(words, weights, verdicts, title)


@styled
def attention_map(words: list[str], weights: np.ndarray, hops: bool, title: str) -> Figure:
    """Draws the weights `(q, k)` of one text, or of its hops `(hops, k)`, without padding."""
    weights = weights[: None if hops else len(words), : len(words)]
    names = None if hops else words
    figure = attention(weights, names, words, title=title, top=top_of(weights))
    if hops:
        figure.axes[0].set_ylabel("hop")
    return figure
