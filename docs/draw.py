"""Draws the pictures of the pages, each on a light and on a dark ground.

    python -m docs.draw [NAME ...]

The pictures of the pages in `docs/attention` are drawn from the examples that stand in them, and
the others from tables of the pages, from `docs/numbers`, where `python -m docs.record` puts the
numbers of runs, and from shipped runs. `spikes` trains a run, and is drawn only if it is named.
`python -m docs.screenshots` makes the pictures of the explorer and of reports.
"""

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from docs import of_devices, of_numbers, of_runs, panels
from docs.panels import DOCS, Curves, Matrix, bars, curves, matrices
from flax_attn.analysis.drawing import BLUE, frame, theme

PAGES = sorted(path.stem for path in (DOCS / "attention").glob("*.md"))
Names = dict[str, Any]


def run_example(text: str) -> Names:
    """Runs the Python blocks of a page one after another, as a reader would, and returns the names
    they define.
    """
    names: Names = {}
    for block in blocks_of(text):
        exec(block, names)
    return names


def first_example(page: str) -> Names:
    """Returns the names of the first example of a page, from which its picture is drawn."""
    return run_example(before_picture(page))


def before_picture(page: str) -> str:
    """Returns the text of a page up to its picture."""
    text = (DOCS / "attention" / f"{page}.md").read_text()
    return text[: text.index("](../images/")]


def blocks_of(text: str) -> list[str]:
    """Returns the Python blocks of a text."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def attend(names: Names) -> Figure:
    words, weights = names["words"], names["weights"]
    titles = "five words", "three words and padding"
    shown = [
        Matrix(weights[i], titles[i], words, words, names["mask"][i]) for i in range(len(titles))
    ]
    return matrices("A word takes most from words like it, and nothing from padding", shown)


def masks(names: Names) -> Figure:
    hidden = [np.asarray(weights) > 0 for weights in names["weights"].values()]
    pairs = zip(names["weights"].items(), hidden)
    shown = [Matrix(weights, name, mask=mask) for (name, weights), mask in pairs]
    title = "The keys that a mask leaves share the weight; here all keys are alike"
    return matrices(title, shown)


def scores(names: Names) -> Figure:
    title = "The dot product prefers long keys, the cosine looks at the direction alone"
    return bars(title, names["scores"], list(names["keys"]), "score")


def normalizers(names: Names) -> Figure:
    written = [f"score {score:.1f}" for score in names["scores"].tolist()]
    counts = {name: int((w > 0).sum()) for name, w in names["weights"].items()}
    title = f"Of the same scores, softmax gives all {counts['softmax']} keys a weight, "
    title += f"sparsemax {counts['sparsemax']} and hard {counts['hard']}"
    return bars(title, names["weights"], written, "weight")


def tokens_of(names: Names) -> list[str]:
    """Returns kind and number of the tokens that two pages share, such as `a 3`."""
    kinds, numbers = names["kinds"].tolist(), names["numbers"].tolist()
    return [f"{'abc'[kind]} {number:.0f}" for kind, number in zip(kinds, numbers)]


def self_attention(names: Names) -> Figure:
    tokens = tokens_of(names)
    shown = [
        Matrix(names["weights"], "all keys are visible", tokens, tokens),
        Matrix(
            names["alone"].weights, "each sees itself alone", tokens, tokens, np.eye(8, dtype=bool)
        ),
    ]
    title = "Every token attends to the tokens of its kind; under a mask, to itself alone"
    return matrices(title, shown)


def multi_head(names: Names) -> Figure:
    tokens, weights = tokens_of(names), names["weights"][0]
    titles = "head 0: the token before", "head 1: earlier tokens of its kind"
    causal = np.tri(len(tokens), dtype=bool)
    shown = [Matrix(weights[i], titles[i], tokens, tokens, causal) for i in range(len(titles))]
    return matrices("Each head of a layer attends in its own way", shown)


def transformer(names: Names) -> Figure:
    letters = lambda tokens: ["-abcdefghijklmnopqrstuvwxyz"[token] for token in tokens.tolist()]
    source, written = letters(names["source"][0]), letters(names["target"][0])
    decoded, causal = names["decoded"], np.tri(len(written), dtype=bool)
    own, cross = decoded.weights[0, 0], decoded.cross_weights[0, 0]
    own_title = "self-attention: to what is written"
    keys = "key: letter of the source"
    shown = [
        Matrix(own, own_title, written, written, causal, "query: last letter"),
        Matrix(cross, "attention to the memory", written, source, None, "query", keys),
    ]
    title = "A decoder block sees what it has written, and reads the source from its end"
    return matrices(title, shown)


def local(names: Names) -> Figure:
    near, predicted = names["near"].weights, names["predicted"].weights
    shown = [
        Matrix(near, "local-m, D = 2: around the query", mask=np.asarray(near) > 0),
        Matrix(predicted, "local-p, D = 3: around a learned place", mask=np.asarray(predicted) > 0),
    ]
    title = "Local attention sees the keys around a position: its own, or a learned one"
    return matrices(title, shown)


def other_libraries(names: Names) -> Figure:
    weights = {
        "linen's own function": names["of_linen"],
        "linen_attention_fn(window=(3, 0))": names["of_window"],
    }
    shown = [Matrix(w, name, mask=np.asarray(w) > 0) for name, w in weights.items()]
    return matrices("A layer of linen gets a window from a function of this library", shown)


def encoder_decoder(names: Names) -> Figure:
    letters = lambda tokens: ["abcdefghij"[token - 2] for token in tokens]
    source = letters(names["inputs"]["source"][0].tolist())
    written = letters([token for token in names["best"].tokens if token < names["END"]])
    weights = np.asarray(names["alignment"])[: len(written), : len(source)]
    shown = [Matrix(weights, "", written, source, None, "translation", "source")]
    title = "To reverse letters, the decoder reads the source from its end to its start"
    return matrices(title, shown)


def pooling(names: Names) -> Figure:
    words, mask = names["text"], np.arange(8)[None] < 6
    weights = np.concatenate([names["pooled"].weights, names["hops"].weights[0]])
    rows = ["pooling", "hop 0", "hop 1"]
    shown = [Matrix(weights, "", rows, words, mask, "")]
    best = [words[i] for i in weights.argmax(axis=1)]
    title = f"Pooling looks at '{best[0]}'; two hops look at '{best[1]}' and at '{best[2]}'"
    return matrices(title, shown)


def positions(names: Names) -> Figure:
    shown = [Matrix(weights, name) for name, weights in names["weights"].items()]
    title = "Without positions all keys are alike; with them, near keys weigh more than far ones"
    return matrices(title, shown)


def rotary(names: Names) -> Figure:
    near = np.tri(12, dtype=bool) & ~np.tri(12, k=-4, dtype=bool)
    hidden = np.tri(12, dtype=bool), np.tri(12, dtype=bool), near
    pairs = zip(names["weights"].items(), hidden)
    shown = [Matrix(weights, name, mask=mask) for (name, weights), mask in pairs]
    title = "With rotary positions, the score of two equal tokens depends on their distance alone"
    return matrices(title, shown)


def monotonic(names: Names) -> Figure:
    shown = [
        Matrix(names["expected"].weights, "expectation, for training"),
        Matrix(names["hard"].weights, "hard, for predictions"),
    ]
    return matrices("Each query starts at the key where the query before it stopped", shown)


def input_attention(names: Names) -> Figure:
    axes = {"queries": "step", "keys": "feature"}
    shown = [
        Matrix(names["mild"].weights[0], "alpha = 1", **axes),
        Matrix(names["sharp"].weights[0], "alpha = 5", **axes),
    ]
    return matrices("With a larger alpha, the weights of the features differ more", shown)


def lens(names: Names) -> Figure:
    words, hidden = names["words"], np.arange(5)[None] != 2
    pairs = names["weights"].items()
    masks = [hidden if name == "without fish" else None for name in names["weights"]]
    shown = [Matrix(w, name, words, words, mask) for (name, w), mask in zip(pairs, masks)]
    return matrices("A lens changes the weights, and the model stays as it is", shown)


def linear(names: Names) -> Figure:
    """Draws the weights of each rule, and below them what each key returns in the end."""
    notes = [f"{drink} {price:.0f}" for drink, price in zip(names["written"], names["prices"])]
    asked = [f"{drink}?" for drink in names["asked"]]
    drinks, newest = list(names["keys"]), dict(zip(names["written"], names["prices"].tolist()))
    ground, (left, cell, start, below) = theme(), (1.1, 0.265, 0.6, 2.95)
    colours, scale = ground.signed, Normalize(-1, 1)
    figure = panels.new(4.4)
    panels.head(figure, "A new price of tea: the delta rules take the old one out of the state")
    for i, (rule, weights) in enumerate(names["weights"].items()):
        at = left + i * (5 * cell + panels.GAP)
        ax = panels.place(figure, at, start, 5 * cell, 5 * cell)
        ax.imshow(np.asarray(weights), norm=scale, cmap=colours, aspect="auto")
        frame(ax)
        ax.set_title(rule, fontsize=9.5, loc="left", pad=4)
        panels.label(ax.xaxis, notes, 5, cell, True)
        panels.label(ax.yaxis, asked, 5, cell, False)
        ax.set_xlabel("written" if i == 0 else "", fontsize=9, loc="left")
        ax.set_ylabel("asked for" if i == 0 else "", fontsize=9, loc="top")
        ax.tick_params(labelleft=i == 0)
        returned = [names["returned"][rule][drink] for drink in drinks]
        ax = panels.place(figure, at, below, 5 * cell, 4 * cell)
        ax.barh(range(4), returned, color=BLUE, height=0.7)
        ax.scatter(
            [newest[drink] for drink in drinks], range(4), s=60, marker="|", color=ground.ink
        )
        for j, price in enumerate(returned):
            ax.text(max(price, newest[drinks[j]]) + 0.5, j, f"{price:.1f}", va="center", fontsize=9)
        ax.set(xlim=(0, 15), ylim=(3.5, -0.5), xticks=[])
        ax.set_yticks(range(4), drinks if i == 0 else [""] * 4, fontsize=9)
        if i == 0:
            ax.set_xlabel("price that the state returns; | is the newest", fontsize=9, loc="left")
        ax.spines["bottom"].set_visible(False)
        ax.tick_params(length=0)
    cax = panels.place(figure, left + 4 * (5 * cell + panels.GAP) + 0.05, start, 0.13, 5 * cell)
    bar = figure.colorbar(ScalarMappable(scale, colours), cax=cax, ticks=[-1, -0.5, 0, 0.5, 1])
    bar.set_label("implied weight", size=9)
    bar.ax.tick_params(labelsize=9)
    return figure


def todays_models(names: Names) -> Figure:
    title = "Each option changes one part of the block: what it does to a number"
    return curves(
        title,
        [
            Curves("a gate", names["x"], names["gate"], "W_g x"),
            Curves("RMS norm beside layer norm", np.arange(8), names["norm"], "feature"),
            Curves("scaled frequencies", np.arange(32), names["frequencies"], "pair of features"),
            Curves("a soft-cap", names["dots"][:, 0], names["capped"], "q · k / sqrt(d)"),
            Curves("a sink", np.arange(5), names["sinks"], "key"),
            Curves("a gate on the output", names["x"], names["switch"], "x W_g"),
        ],
    )


OF_PAGE: dict[str, Callable[[Names], Figure]] = {
    function.__name__: function
    for function in (
        attend,
        encoder_decoder,
        input_attention,
        lens,
        linear,
        local,
        masks,
        monotonic,
        multi_head,
        normalizers,
        other_libraries,
        pooling,
        positions,
        rotary,
        scores,
        self_attention,
        todays_models,
        transformer,
    )
}


def draw(page: str) -> list[Path]:
    """Draws the picture of a page in `docs/attention`, and returns the paths of both files."""
    names = first_example(page)
    return panels.save(page, lambda: OF_PAGE[page](names))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m docs.draw",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    others = of_devices.PICTURES | of_numbers.PICTURES
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=", ".join([*PAGES, *others, *of_runs.PICTURES])
    )
    args = parser.parse_args(arguments)
    for name in args.names or [*PAGES, *others, "shapes"]:
        for path in drawn(name, others):
            print(f"wrote {path}")


def drawn(name: str, others: dict[str, Callable[[], Figure]]) -> Iterable[Path]:
    if name in of_runs.PICTURES:
        return of_runs.PICTURES[name]()
    return panels.save(name, others[name]) if name in others else draw(name)


if __name__ == "__main__":
    main()
