"""Classes for a user's own texts and images, from a run directory alone."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text

from flax_attn import experiment
from flax_attn.analysis import images as image_figures
from flax_attn.analysis import texts as text_figures
from flax_attn.analysis.drawing import of_weight, save
from flax_attn.data import mnist
from flax_attn.data.text import PREPROCESSING
from flax_attn.errors import UsageError
from flax_attn.predict import PICTURES
from flax_attn.tasks import texts
from flax_attn.tasks.classification import probabilities

LINES = (".txt",)


class Classified(NamedTuple):
    """One text or image: its name, the classes with their probabilities in falling order, and its tokens with their weights."""

    name: str
    classes: dict[str, float]
    tokens: list[tuple[str, float]]

    def to_json(self) -> dict[str, Any]:
        tokens = {"tokens": [{"token": token, "weight": weight} for token, weight in self.tokens]} if self.tokens else {}
        return {"input": self.name, "classes": self.classes} | tokens


def classify(run: Path, given: list[str], source: Path | None, figure: Path | None, as_json: bool, console: Console) -> list[Path]:
    """Prints the classes of texts, given as they are or one a line of a file, or of the images in a file; draws them on request.

    Probabilities are the mean over the seeds of the run, attention that of the first. Returns the paths of what was written.

    Raises:
        UsageError: neither or both of texts and a file, a text without a token, an image of another size or a file of another
            kind, or a place that cannot be written.
    """
    if figure is not None and (figure.suffix not in PICTURES or not figure.parent.is_dir()):
        raise UsageError(f"expected --figure to end in {', '.join(PICTURES)}, in a directory that exists, got {figure}")
    config, model, params, derived = experiment.load(run, warn=lambda line: print(line, file=sys.stderr))
    if config.data.name == "mnist":
        names, inputs = read_images(given, source)
        words: list[list[str]] = [[] for _ in names]
    else:
        names = read_texts(given, source)
        inputs, words = encode(run, config, names)
    outputs, attentions = zip(*(experiment.predict(model, each, inputs) for each in params))
    shares = np.mean([probabilities(logits) for logits in outputs], axis=0)
    found = [describe(*each, derived["classes"], attentions[0], i) for i, each in enumerate(zip(names, shares, words))]
    if as_json:
        console.print_json(json.dumps([each.to_json() for each in found], ensure_ascii=False))
    else:
        for each in found:
            show(each, console)
    return [] if figure is None else [save(draw(run.name, found, inputs, words, shares, derived["classes"], attentions[0]), figure)]


def read_texts(given: list[str], source: Path | None) -> list[str]:
    """The texts given, or those of a file, one a line."""
    if bool(given) == (source is not None):
        raise UsageError('expected a text, "The final starts next week.", or --input FILE.txt with one a line')
    if source is None:
        return given
    if source.suffix not in LINES:
        raise UsageError(f"expected --input to end in .txt for a run on texts, got {source}")
    try:
        lines = [line for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"cannot read --input {source} ({error.strerror}); give a text file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"expected text in UTF-8 in --input {source}, got other bytes at {error.start}") from error
    if not lines:
        raise UsageError(f"expected texts in --input {source}, one a line, got none")
    return lines


def encode(run: Path, config: Any, given: list[str]) -> tuple[dict[str, np.ndarray], list[list[str]]]:
    """Inputs of the model, and the tokens that it sees."""
    reader = texts.load_reader(run, config.data)
    cleaned = [PREPROCESSING[config.data.preprocessing](text) for text in given]
    inputs = reader.inputs(cleaned)
    for text, rest, tokens, length in zip(given, cleaned, inputs["tokens"], inputs["lengths"]):
        if not text.strip() or length == 0:
            left = f", of which '{rest}' is left" if text.strip() else ""
            raise UsageError(f"expected a text with words in it, got {text!r}{left}")
        known = tokens[:length][tokens[:length] > 1]
        read = len(known) > (2 if config.data.preprocessing == "marked" else 0) or config.data.num_ngrams
        if not read:
            raise UsageError(f"expected a text with at least one word that the run has seen, got none in {text[:60]!r}")
    return inputs, [reader.words(text) for text in cleaned]


def read_images(given: list[str], source: Path | None) -> tuple[list[str], np.ndarray]:
    """Images `(n, 28, 28)` in [0, 1] from a picture or an IDX file; in a picture with a light ground dark counts as ink."""
    if given or source is None:
        raise UsageError("expected --input FILE with an image of 28 x 28 pixels (PNG), or an IDX file of images")
    try:
        images = read_png(source)[None] if source.suffix.lower() == ".png" else mnist.read_idx(source)
    except OSError as error:
        raise UsageError(f"cannot read --input {source} ({error.strerror or error}); give a PNG or an IDX file") from error
    if images.ndim != 3 or images.shape[1:] != (mnist.SIZE, mnist.SIZE) or not len(images):
        raise UsageError(f"expected images of {mnist.SIZE} x {mnist.SIZE} pixels in {source}, got shape {images.shape}")
    names = [source.name] if len(images) == 1 else [f"{source.name} [{i}]" for i in range(len(images))]
    return names, images.astype(np.float32) / 255


def read_png(path: Path) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("L"))
    except (UnidentifiedImageError, SyntaxError) as error:
        raise UsageError(f"expected a PNG in {path}, got another kind of file") from error
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return 255 - pixels if border.mean() > 127 else pixels


def describe(name: str, shares: np.ndarray, words: list[str], classes: list[str], attention: dict[str, np.ndarray], i: int) -> Classified:
    order = np.argsort(-shares, kind="stable")
    tokens, weights = [], next(iter(attention.values()), ())
    if words and i < len(weights):
        tokens = [(word, float(weight)) for word, weight in zip(words, text_figures.over_tokens(weights[i], len(words)))]
    return Classified(name, {classes[k]: float(shares[k]) for k in order}, tokens)


def show(each: Classified, console: Console) -> None:
    """The classes in falling order, and the tokens on the colours of their weights."""
    console.print(Text(each.name, style="bold"), soft_wrap=True)
    width = max(map(len, each.classes))
    for name, share in each.classes.items():
        console.print(Text(f"  {name:<{width}}  {share:6.1%}  {'█' * round(30 * share)}"))
    if each.tokens:
        line = Text("  ")
        for token, weight in each.tokens:
            back, front = of_weight(weight)
            line.append(f" {token} ", style=f"{front} on {back}")
            line.append(f"{weight:.2f} ", style="dim")
        console.print(line, soft_wrap=True)
        if any(token.startswith("(") and token.endswith(")") for token, _ in each.tokens):
            console.print(Text("  in brackets: not among the words that the run knows", style="dim"))


def draw(
    name: str,
    found: list[Classified],
    inputs: Any,
    words: list[list[str]],
    shares: np.ndarray,
    classes: list[str],
    attention: dict[str, np.ndarray],
) -> Any:
    """The picture of what was classified."""
    if not isinstance(inputs, dict):
        return image_figures.predictions(inputs, shares, None, classes, name)
    weights = next(iter(attention.values()), None)
    if weights is None:
        raise UsageError(f"the model of {name} does not attend; leave out --figure")
    if len(found) == 1 and weights.ndim == 3:
        return text_figures.attention_map(words[0], weights[0], f"{name}: {text_figures.verdict(shares[0], classes)[0]}")
    said = [text_figures.verdict(each, classes) for each in shares]
    shown = slice(None, min(len(weights), text_figures.SHOWN))
    return text_figures.attention_on_tokens(words[shown], list(weights[shown]), said[shown], name)
