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
from flax_attn.data.text import END, PREPROCESSING, START, bracketed
from flax_attn.errors import UsageError
from flax_attn.tasks import texts
from flax_attn.tasks.classification import probabilities
from flax_attn.tasks.tokenizers import MEND
from flax_attn.user_files import PICTURES, check_destination, read_lines


class Seen(NamedTuple):
    """A token that the model sees, whether it knows it, and its weight."""

    token: str
    known: bool
    weight: float


class Classified(NamedTuple):
    """One text or image: its name, the classes with their probabilities in falling order, and its tokens or the weights of its patches."""

    name: str
    classes: dict[str, float]
    tokens: list[Seen]
    patches: list[float]

    def to_json(self) -> dict[str, Any]:
        tokens = {"tokens": [each._asdict() for each in self.tokens]} if self.tokens else {}
        return {"input": self.name, "classes": self.classes} | tokens | ({"patches": self.patches} if self.patches else {})


def classify(run: Path, given: list[str], source: Path | None, figure: Path | None, as_json: bool, console: Console) -> list[Path]:
    """Prints the classes of texts, given as they are or one a line of a file, or of the images in a file; draws them on request.

    Probabilities are the mean over the seeds of the run, attention that of the first. Returns the paths of what was written.

    Raises:
        UsageError: neither or both of texts and a file, a text without a token, an image of another size or a file of another
            kind, or a place that cannot be written.
    """
    if figure is not None:
        check_destination(figure, "--figure", PICTURES, source)
    config, model, params, _ = experiment.load(run, warn=lambda line: print(line, file=sys.stderr))
    classes = read_labels(run, model)
    if config.data.name == "mnist":
        names, inputs = read_images(given, source)
        parts: list[list[tuple[str, bool]]] = [[] for _ in names]
    else:
        names = read_texts(given, source)
        inputs, parts = encode(run, config, model, names)
    outputs, attentions = zip(*(experiment.predict(model, each, inputs, num_attended=len(names)) for each in params))
    shares = np.mean([probabilities(logits) for logits in outputs], axis=0)
    found = [describe(*each, classes, attentions[0], i) for i, each in enumerate(zip(names, shares, parts))]
    if as_json:
        console.print_json(json.dumps([each.to_json() for each in found], ensure_ascii=False))
    else:
        for each in found:
            show(each, console)
    return [] if figure is None else [save(draw(run.name, found, inputs, parts, shares, classes, attentions[0]), figure)]


def read_labels(run: Path, model: Any) -> list[str]:
    """The classes of a run, in the order of the logits. Raises a UsageError where they are lost, damaged or another run's."""
    try:
        classes = json.loads((run / "labels.json").read_text())
        if not all(isinstance(name, str) for name in classes) or len(set(classes)) != model.num_classes:
            raise ValueError(f"expected {model.num_classes} names")
    except (OSError, TypeError, ValueError) as error:
        raise UsageError(f"expected the classes of the run in {run / 'labels.json'} ({error}); {MEND}") from error
    return classes


def read_texts(given: list[str], source: Path | None) -> list[str]:
    """The texts given, or those of a file, one a line."""
    if bool(given) == (source is not None):
        raise UsageError('expected a text, "The final starts next week.", or --input FILE.txt with one a line')
    return given if source is None else [line for line in read_lines(source) if line.strip()]


def encode(run: Path, config: Any, model: Any, given: list[str]) -> tuple[dict[str, np.ndarray], list[list[tuple[str, bool]]]]:
    """Inputs of the model, and the parts of each text that it sees, and whether it knows them."""
    reader = texts.load_reader(run, config.data, vars(model))
    cleaned = [PREPROCESSING[config.data.preprocessing](text) for text in given]
    parts = [reader.parts(text) for text in cleaned]
    for number, (text, rest, seen) in enumerate(zip(given, cleaned, parts), 1):
        which = f", in text {number}" if len(given) > 1 else ""
        if not text.strip() or not seen:
            left = f", of which '{rest}' is left" if text.strip() else ""
            raise UsageError(f"expected a text with words in it, got {text!r}{left}{which}")
        if not config.data.num_ngrams and not any(known and part.strip() and part not in (START, END) for part, known in seen):
            raise UsageError(f"expected a text with at least one word that the run has seen, got none in {text[:60]!r}{which}")
    return reader.inputs(cleaned), parts


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
            pixels = np.asarray(on_ground(picture))
    except (UnidentifiedImageError, SyntaxError) as error:
        raise UsageError(f"expected a PNG in {path}, got another kind of file") from error
    if pixels.min() == pixels.max():
        raise UsageError(f"expected something drawn in {path}, got pixels that are all alike")
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return 255 - pixels if border.mean() > 127 else pixels


def on_ground(picture: Any) -> Any:
    """The picture in grey; where it is transparent its ink is laid on white, or on black where the ink is light."""
    from PIL import Image

    if not picture.has_transparency_data:
        return picture.convert("L")
    inks = picture.convert("LA")
    grey, opaque = (np.asarray(band, np.float32) for band in inks.split())
    light = (grey * opaque).sum() > 127 * opaque.sum()
    ground = Image.new("LA", picture.size, (0 if light else 255, 255))
    return Image.alpha_composite(ground.convert("RGBA"), inks.convert("RGBA")).convert("L")


def describe(
    name: str, shares: np.ndarray, parts: list[tuple[str, bool]], classes: list[str], attention: dict[str, np.ndarray], i: int
) -> Classified:
    order = np.argsort(-shares, kind="stable")
    tokens, patches = [], []
    for kind, weights in list(attention.items())[:1]:
        if parts:
            over = text_figures.over_tokens(kind, weights[i], len(parts))
            tokens = [Seen(part, known, float(weight)) for (part, known), weight in zip(parts, over)]
        else:
            patches = weights[i].reshape(-1, weights.shape[-1]).mean(axis=0).tolist()
    return Classified(name, {classes[k]: float(shares[k]) for k in order}, tokens, patches)


def show(each: Classified, console: Console) -> None:
    """The classes in falling order, and the tokens on the colours of their weights."""
    console.print(Text(each.name, style="bold"), soft_wrap=True)
    width = max(map(len, each.classes))
    for name, share in each.classes.items():
        console.print(Text(f"  {name:<{width}}  {share:6.1%}  {'█' * round(30 * share)}"))
    if each.tokens:
        line = Text("  ")
        top = max(seen.weight for seen in each.tokens)
        for token, known, weight in each.tokens:
            back, front = of_weight(weight, top)
            line.append(f" {token} " if known else f" ({token}) ", style=f"{front} on {back}")
            line.append(f"{weight:.2f} ", style="dim")
        console.print(line, soft_wrap=True)
        if not all(known for _, known, _ in each.tokens):
            console.print(Text("  in brackets: not among the words that the run knows", style="dim"))


def draw(
    name: str,
    found: list[Classified],
    inputs: Any,
    parts: list[list[tuple[str, bool]]],
    shares: np.ndarray,
    classes: list[str],
    attention: dict[str, np.ndarray],
) -> Any:
    """The picture of what was classified, and of the first of the model's attentions."""
    kind, weights = next(iter(attention.items()), ("", None))
    said = [text_figures.verdict(each, classes) for each in shares]
    alone = f"{name}: {said[0][0]}"
    if not isinstance(inputs, dict):
        if len(found) == 1 and weights is not None:
            return image_figures.attention_on_image(inputs[0], weights[0], alone)
        return image_figures.predictions(inputs, shares, None, classes, first_of(name, image_figures.SHOWN, found))
    if weights is None:
        raise UsageError(f"the model of {name} does not attend; leave out --figure")
    words = [bracketed(each) for each in parts]
    if len(found) == 1 and weights.ndim == 3:
        return text_figures.attention_map(words[0], weights[0], text_figures.of_hops(kind), alone)
    shown = slice(None, text_figures.SHOWN)
    over = [[seen.weight for seen in each.tokens] for each in found[shown]]
    return text_figures.attention_on_tokens(words[shown], over, said[shown], first_of(name, text_figures.SHOWN, found))


def first_of(name: str, shown: int, found: list[Classified]) -> str:
    """The title of a picture that has room for so many."""
    return name if len(found) <= shown else f"{name}: the first {shown} of {len(found)}"
