"""Tokens of texts with their weights, as JSON and as they are printed."""

from rich.console import Console
from rich.text import Text

from flax_attn.analysis.token_weights import over_tokens
from flax_attn.errors import escaped
from flax_attn.tasks.artifacts import Prediction, first_attention
from flax_attn.types import JsonObject

STRONG = "colour is for more than 1/n, the uniform weight"


def token_weights(prediction: Prediction) -> list[list[float]]:
    """Returns the weight of each token of each text in the first attention, if there is one."""
    name, weights = first_attention(prediction)
    if weights is None:
        return [[] for _ in prediction.tokens]
    return [
        [float(w) for w in over_tokens(name, array, len(tokens))]
        for tokens, array in zip(prediction.tokens, weights)
    ]


def describe_tokens(prediction: Prediction) -> list[list[JsonObject]]:
    """Returns the tokens of each text, whether the model knows them, and their weights."""
    keys = ("token", "known", "weight")
    texts = zip(prediction.tokens, prediction.known, token_weights(prediction))
    return [[dict(zip(keys, token)) for token in zip(*row)] for row in texts]


def print_tokens(tokens: list[JsonObject], console: Console) -> None:
    """Prints the tokens of a text on the colours of their weights."""
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
    """Returns the colours of a token among `count`; none where the console has none."""
    if console.color_system is None:
        return ""
    from flax_attn.analysis import drawing  # and matplotlib, for its colours

    with drawing.on(drawing.DARK):  # on white, a weight of 0 would look like a mark
        back, front = drawing.of_strength(weight, count)
    return f"{front} on {back}"
