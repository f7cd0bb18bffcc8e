"""The pictures that are drawn from numbers: of tables in the pages, or of `docs/numbers`."""

import csv
from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from docs.panels import DOCS, Matrix, matrices
from flax_attn.analysis import language

XEON = "Intel Xeon with AVX-512 and AMX, 2 cores, jax 0.10.2, torch 2.13.0"


def read(name: str) -> list[dict[str, str]]:
    """The rows of a file in `docs/numbers`, after the line that says where they come from."""
    _, *lines = (DOCS / "numbers" / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines))


def table(page: str, header: str) -> list[list[str]]:
    """The rows of the table in a page whose header begins with these words."""
    lines = (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(header))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip(" *") for cell in line.strip("|").split("|")])
    return rows


def benchmarks() -> Figure:
    """The time of a training step of each peer, divided by ours."""
    from benchmarks import ratios

    peers = "PyTorch", "torch.compile", "flax.linen", "Keras 3"
    of_model = {}
    for name, ours, *others in table("performance", "| model | ours | PyTorch eager"):
        shown = zip(peers, others)
        of_model[name] = {peer: float(ms) / float(ours) for peer, ms in shown if ms != "-"}
    return ratios.draw(of_model)


def additive() -> Figure:
    """Time and memory of additive attention over length."""
    from benchmarks import additive as measured

    disturbed = measured.TORCH, 512  # by other work on the machine, as the page says
    figures: dict[str, dict[int, tuple[float, float]]] = {form: {} for form in measured.FORMS}
    for length, *cells in table("performance", "| length | PyTorch, s | GiB"):
        number = int(length.replace(",", ""))
        for i, form in enumerate(figures):
            seconds, memory = cells[2 * i : 2 * i + 2]
            if seconds != "-" and (form, number) != disturbed:
                figures[form][number] = float(seconds), float(memory)
    note = "PyTorch at length 512 is left out: other work disturbed it"
    return measured.draw(figures, note)


def attention_time() -> Figure:
    """The time of attention over length, in a window and without."""
    from benchmarks import attention_figure
    from benchmarks.attention_rows import PASSES, Row

    backward = next(name for name, has_backward in PASSES.items() if has_backward)
    rows = []
    for row in read("attention_time"):
        figures = {form: float(row[form]) for form in ("ours", "SDPA") if row[form]}
        rows.append(Row(row["keys"], int(row["length"]), passes=backward, figures=figures))
    return attention_figure.draw(rows, XEON)


def scale() -> Figure:
    """What many devices send, and what each holds."""
    from benchmarks import scale as planned

    sent = [{name: int(value) for name, value in row.items()} for row in read("scale_bytes")]
    header = "| length | one device, in blocks |"
    names = "one device, in blocks", "8 devices, keys gathered", "8 devices, a ring"
    names += ("8 devices, a ring, window of 1,024",)
    held = []
    for length, *cells in table("scale-out", header):
        mebibytes = [float(cell.removesuffix(" MiB").replace(",", "")) for cell in cells]
        held.append({"length": int(length.replace(",", ""))} | dict(zip(names, mebibytes)))
    return planned.draw({"bytes": sent, "memory": held})


def translation_alignment() -> Figure:
    """The weights of one translated sentence."""
    rows = read("translation_alignment")
    source = list(rows[0])[1:]
    weights = np.array([[float(row[word]) for word in source] for row in rows])
    written = [row["word"] for row in rows]
    shown = [Matrix(weights, "", written, source, None, "translation", "source")]
    title = "Each English word is read from the German word that it stands for, or near it"
    return matrices(title, shown)


def looks() -> Figure:
    """What the last letter of a text looks at."""
    rows = read("looks")
    codes = list(rows[0])[2:]
    weights = np.array([[float(row[code]) for code in codes] for row in rows])
    tokens = [chr(int(code.split("_")[0][1:], 16)) for code in codes]
    blocks = sorted({row["block"] for row in rows})
    of_block = {
        f"block{block}": weights[[row["block"] == block for row in rows]] for block in blocks
    }
    return language.looks(tokens, of_block, "shakespeare_char")


def induction() -> Figure:
    """The induction scores of all heads, and the weights of the best one."""
    rows = read("induction")
    weights = np.array([[float(row[str(i)]) for i in range(len(rows))] for row in rows])
    scores = np.array([[0.0, 0.01, 0.0, 0.03], [0.04, 0.81, 0.94, 0.87]])
    return language.induction(scores, weights, [row["letter"] for row in rows], "induction")


def loss_by_position() -> Figure:
    """The loss of a language model against the number of letters that it knows."""
    losses = np.array([[float(row["loss"]) for row in read("loss_by_position")]])
    return language.loss_by_position(losses, "shakespeare_char")


PICTURES: dict[str, Callable[[], Figure]] = {
    function.__name__: function
    for function in (
        benchmarks,
        additive,
        attention_time,
        scale,
        translation_alignment,
        looks,
        induction,
        loss_by_position,
    )
}
