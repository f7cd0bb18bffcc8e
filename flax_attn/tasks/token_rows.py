"""Tokens of texts with their weights, as JSON and as they are printed."""

from rich.console import Console
from rich.text import Text

from flax_attn.analysis.token_weights import over_tokens
from flax_attn.errors import escaped
from flax_attn.tasks.artifacts import Prediction, first_attention
from flax_attn.types import JsonObject

STRONG = "colour is for more than 1/n, the uniform weight"


def token_weights(prediction: Prediction) -> list[list[float]]:
    """The weight of each token of each text in the first attention.

    There are none for a model that does not attend.
    """
    name, weights = first_attention(prediction)
    if weights is None:
        return [[] for _ in prediction.tokens]
    return [
        [float(w) for w in over_tokens(name, array, len(tokens))]
        for tokens, array in zip(prediction.tokens, weights)
    ]


def describe_tokens(prediction: Prediction) -> list[list[JsonObject]]:
    """Of each text its tokens, whether the model knows them, and their weights."""
    return [
        [
            {"token": token, "known": is_known, "weight": weight}
            for token, is_known, weight in zip(*row)
        ]
        for row in zip(prediction.tokens, prediction.known, token_weights(prediction))
    ]


def print_tokens(tokens: list[JsonObject], console: Console) -> None:
    """The tokens of a text on the colours of their weights."""
    line = Text("  ")
    for token in tokens:
        written = escaped(token["token"])
        text = f" {written} " if token["known"] else f" ({written}) "
        line.append(text, style=style_of(token["weight"], len(tokens), console))
        line.append(f"{token['weight']:.2f} ", style="dim")
    console.print(line, soft_wrap=True)
    if not all(token["known"] for token in tokens):
        console.print(Text("  in brackets: not among the words that the run knows", style="dim"))


def style_of(weight: float, count: int, console: Console) -> str:
    """The colours of a token among `count`; none where the console has none, as in a file."""
    if console.color_system is None:
        return ""
    from flax_attn.analysis import drawing  # and matplotlib, for its colours

    with drawing.on(drawing.DARK):  # on white, a weight of 0 would look like a mark
        back, front = drawing.of_strength(weight, count)
    return f"{front} on {back}"
