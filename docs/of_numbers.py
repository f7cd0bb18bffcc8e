"""The pictures that are drawn from numbers: of tables in the pages, or of `docs/numbers`."""

import calendar
import csv
import re
from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from docs.panels import DOCS, Curves, Matrix, curves, matrices
from flax_attn.analysis import language

FROM_SCALE = {"devices": "", "bytes_step": "planned by XLA", "formula": "gradients, by the formula"}


def lines_of(name: str) -> tuple[str, list[str]]:
    """What the first line of a file in `docs/numbers` says of the others, and the others."""
    said, *lines = (DOCS / "numbers" / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return said.removeprefix("# "), lines


def read(name: str) -> list[dict[str, str]]:
    """Returns the rows of a file in `docs/numbers`."""
    return list(csv.DictReader(lines_of(name)[1]))


def table_of(name: str) -> tuple[list[str], list[str], np.ndarray]:
    """Returns the names of the rows and columns of a file in `docs/numbers`, and the numbers."""
    (_, *columns), *rows = csv.reader(lines_of(name)[1])
    return [row[0] for row in rows], columns, np.array([row[1:] for row in rows], float)


def table(page: str, header: str) -> list[list[str]]:
    """Returns the rows of the table in a page whose header begins with these words."""
    lines = (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(header))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip(" *") for cell in line.strip("|").split("|")])
    return rows


def benchmarks() -> Figure:
    """Draws the time of a training step of each peer, divided by ours."""
    from benchmarks import ratios

    peers = "PyTorch", "torch.compile", "flax.linen", "Keras 3"
    of_model = {}
    for name, ours, *others in table("performance", "| model | ours | PyTorch eager"):
        shown = zip(peers, others)
        of_model[name] = {peer: float(ms) / float(ours) for peer, ms in shown if ms != "-"}
    return ratios.draw(of_model)


def number(cell: str) -> float:
    """Returns the number in a cell of a table, NaN if there is none."""
    written = cell.removesuffix(" MiB").replace(",", "")
    return float(written) if written != "-" else float("nan")


def additive() -> Figure:
    """Draws time and memory of additive attention over length."""
    rows = [[number(cell) for cell in row] for row in table("performance", "| length | PyTorch, s")]
    lengths, *cells = np.array(rows).T
    cells[0][list(lengths).index(512)] = np.nan  # disturbed by other work, as the page says
    names, lengths = ("PyTorch", "dense", "in blocks of 128"), lengths.astype(int).tolist()
    panel = lambda name, i: Curves(name, lengths, dict(zip(names, cells[i::2])), "length", "xy")
    shown = [panel("seconds", 0), panel("GiB at the peak", 1)]
    title = f"In blocks, the memory of additive attention stays flat: {cells[-1][-1]:.2f} GiB "
    return curves(f"{title}at length {lengths[-1]:,}", shown, columns=2)


def scale() -> Figure:
    """Draws what many devices send, and what each holds."""
    sent = {name: [int(row[name]) for row in read("scale_bytes")] for name in FROM_SCALE}
    added = {name: np.array(sent[column]) / 1e3 for column, name in FROM_SCALE.items() if name}
    header = "| length | one device, in blocks |"
    rows = [[number(cell) for cell in row] for row in table("scale-out", header)]
    lengths, *held = np.array(rows).T
    names = "one device", "8, keys gathered", "8, a ring", "8, a ring, window of 1,024"
    memory, lengths = dict(zip(names, np.array(held) / 1024)), lengths.astype(int).tolist()
    shown = [
        Curves("kB added up in a step", sent["devices"], added, "devices", "x"),
        Curves("GiB on a device", lengths, memory, "length", "xy"),
    ]
    return curves("Beyond 8 devices, a step sends no more; a ring shares a sequence", shown, 2)


def dates_alignment() -> Figure:
    """Draws the weights of one translated date."""
    written, source, weights = table_of("dates_alignment")
    name = re.search("|".join(calendar.month_name[1:]).lower(), "".join(source))
    month = [i for i, mark in enumerate(written) if mark == "-"]
    digits = weights[month[0] + 1 : month[1]]
    assert name is not None
    share = digits[:, slice(*name.span())].sum(axis=1).mean()
    shown = [Matrix(weights, "", written, source, None, "translation", "source")]
    title = f"The digits of the month put {share:.0%} of their weight on its name, {name[0]}"
    return matrices(title, shown)


def looks() -> Figure:
    """Draws what the last letter of a text looks at."""
    blocks, tokens, weights = table_of("looks")
    of_block = {block: weights[[row == block for row in blocks]] for block in dict.fromkeys(blocks)}
    return language.looks(tokens, of_block, "shakespeare_char")


def induction() -> Figure:
    """Draws the induction scores of all heads, and the weights of the best one."""
    _, _, scores = table_of("induction_scores")
    letters, _, weights = table_of("induction")
    return language.induction(scores, weights, letters, "induction")


def recall() -> Figure:
    """Draws how many pairs each rule recalls, and what its queries weigh."""
    rows, accuracy = read("recall"), {}
    for row in rows:
        seeds = [float(value) for name, value in row.items() if name.startswith("seed")]
        accuracy.setdefault(row["rule"], []).append(np.median(seeds))
    pairs = sorted({int(row["pairs"]) for row in rows})
    rules, ages, shares = table_of("recall_weights")
    weight = dict(zip(rules, shares))
    panels = [
        Curves("accuracy, median of three seeds", pairs, accuracy, "pairs"),
        Curves(
            "weight on a value, newest = 1", range(len(ages)), weight, "newer values of the key"
        ),
    ]
    title = "Delta rules overwrite; without them, a memory adds up or forgets all that is old"
    figure = curves(title, panels, 2)
    for ax, panel in zip(figure.axes, panels):
        ax.set(ylim=(0, 1.08), xticks=panel.x)
    legends = [ax.get_legend() for ax in figure.axes]
    legends[0].set_loc("lower left")
    legends[1].remove()
    return figure


def loss_by_position() -> Figure:
    """Draws the loss of a language model against the number of letters that it knows."""
    return language.loss_by_position(table_of("loss_by_position")[2].T, "shakespeare_char")


DRAWN = (benchmarks, additive, scale)
DRAWN += (dates_alignment, looks, induction, recall, loss_by_position)
PICTURES: dict[str, Callable[[], Figure]] = {draw.__name__: draw for draw in DRAWN}
