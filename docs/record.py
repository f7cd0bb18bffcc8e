"""Writes the numbers of pictures of runs into `docs/numbers`.

    python -m docs.record [NAME ...] [--runs runs]

`python -m docs.draw` draws these pictures from the numbers, so it needs no run. The runs are those
of these commands:

    flax-attn train shakespeare_char --manual_dir=DIR
    flax-attn train induction
    flax-attn train dates_bahdanau
    flax-attn train recall --num_seeds=3 --model.attention=RULE --workdir=runs/recall-RULE
"""

import argparse
import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import jax
import numpy as np

from docs.panels import DOCS
from flax_attn.analysis.language import SHOWN
from flax_attn.analysis.token_lines import printable
from flax_attn.analysis.translation import words_of
from flax_attn.data.recall import QUESTION, lines
from flax_attn.data.sets import Recall
from flax_attn.experiment.loading import load_run
from flax_attn.models.language import apply
from flax_attn.runs.reading import Record, read
from flax_attn.tasks.language import LanguageModel

EXAMPLE = 0  # of the test split, whose translation is shown
RULES = "linear", "gated", "delta", "gated_delta", "delta full"  # of `recall`
NUM_LINES, NEW = 100, 10_000  # lines of each number of keys, and a seed that trained none


def write(name: str, said: str, head: Sequence[object], rows: Iterable[Sequence[object]]) -> Path:
    """Writes a file of `docs/numbers`: what it is, the names of the columns, and the rows."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    path = DOCS / "numbers" / f"{name}.csv"
    path.write_text(f"# {said}\n{text.getvalue()}", encoding="utf-8")
    return path


def tabulate(
    name: str, said: str, rows: Sequence[str], columns: Sequence[str], numbers: np.ndarray
) -> Path:
    """Writes numbers `(rows, columns)` with six figures."""
    written = ([row, *(f"{x:.6g}" for x in values)] for row, values in zip(rows, numbers))
    return write(name, said, ["", *columns], written)


def of_run(what: str, run: Record) -> str:
    """Returns what numbers are, and which run they are of."""
    seeds = ", ".join(map(str, run.summary["seeds"]))
    word = "seed" if len(run.summary["seeds"]) == 1 else "seeds"
    return f"{what}; {run.summary['config']}, {word} {seeds}, {run.summary['steps']:,} steps"


def loss_by_position(runs: Path) -> list[Path]:
    run = read(runs / "shakespeare_char")
    losses = run.examples["losses"]  # (seeds, positions)
    known = [str(i + 1) for i in range(losses.shape[1])]
    seeds = [f"seed {seed}" for seed in run.summary["seeds"]]
    said = of_run("cross-entropy on the test text by the number of known characters", run)
    return [tabulate("loss_by_position", said, known, seeds, losses.T)]


def looks(runs: Path) -> list[Path]:
    run = read(runs / "shakespeare_char")
    tokens = [printable(token) for token in run.examples["tokens"][-SHOWN:].tolist()]
    last = {block: weights[:, -1, -SHOWN:] for block, weights in run.attention.items()}
    blocks = [block for block, of_heads in last.items() for _ in of_heads]
    said = of_run("attention weights of the last letter, a row for each head of a block", run)
    return [tabulate("looks", said, blocks, tokens, np.concatenate([*last.values()]))]


def induction(runs: Path) -> list[Path]:
    run = read(runs / "induction")
    scores = run.examples["induction"]
    string = [printable(token) for token in run.examples["string"].tolist()]
    blocks = [f"block{i + 1}" for i in range(scores.shape[0])]
    heads = [f"head {i}" for i in range(scores.shape[1])]
    what = "mean weight on the token that followed last time, by block (rows) and head"
    best = "attention weights of the best head on a string that comes twice"
    weights = run.examples["induction_weights"][np.unravel_index(scores.argmax(), scores.shape)]
    return [
        tabulate("induction_scores", of_run(what, run), blocks, heads, scores),
        tabulate("induction", of_run(best, run), string, string, weights),
    ]


def recall(runs: Path) -> list[Path]:
    accuracies, looks = [], {}
    for rule in RULES:
        run = load_run(runs / f"recall-{rule.replace(' ', '-')}")
        task, data = run.task, run.task.data
        assert isinstance(task, LanguageModel)
        assert isinstance(data, Recall)
        for num_keys in range(1, data.max_keys + 1):
            text = lines(NEW, NUM_LINES, num_keys, data.writes)
            rows, hits, means = task.inputs.rows("\n".join(text)), [], []
            for params in run.params.values():
                applied = apply(run.model, params, rows["inputs"], need_weights=True)
                logits, attention = jax.device_get(applied)
                hits.append((logits.argmax(-1) == rows["targets"])[rows["targets"] > 0].mean())
                if num_keys == data.max_keys:
                    of_lines = [on_values(*row, attention) for row in enumerate(text)]
                    means.extend(np.mean(of_lines, axis=0))
            accuracies.append((rule, num_keys * data.writes, *(f"{hit:.4f}" for hit in hits)))
        best = max(means, key=lambda of_head: of_head[0] / of_head[-1])  # (writes + 1,)
        looks |= {rule: best[:-1] / best[0]} if "full" not in rule else {}
    seeds = [f"seed {seed}" for seed in run.params]
    said = "accuracy of recall on new lines, by the number of pairs"
    ages = ["newest", *(f"{age} later" for age in range(1, data.writes))]
    of_best = "mean weight of a query on the values of its key, as shares of that on the newest"
    shares = np.array(list(looks.values()))
    return [
        write("recall", said, ("rule", "pairs", *seeds), accuracies),
        tabulate(
            "recall_weights", f"{of_best}; the best head of all seeds", [*looks], ages, shares
        ),
    ]


def on_values(row: int, line: str, attention: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the mean weights of the queries of a line on values, `(heads of all blocks, w + 1)`.

    They are those on the `w` values of the query's key from the newest on, and the mean size of
    those on values of other keys.
    """
    weights = np.concatenate([of_block[row] for of_block in attention.values()])  # (heads, t, t)
    question, means = line.index(QUESTION), []
    for i in range(question + 1, len(line), 2):
        values = weights[:, i + 1, 2 : question + 1 : 2]  # a line end stands before the line
        is_own = np.array([key == line[i] for key in line[:question:2]])
        other = np.abs(values[:, ~is_own]).mean(axis=1, keepdims=True)
        means.append(np.concatenate([values[:, is_own][:, ::-1], other], axis=1))
    return np.mean(means, axis=0)


def dates_alignment(runs: Path) -> list[Path]:
    run = read(runs / "dates_bahdanau")
    sources, written = words_of(run, EXAMPLE)
    (weights,) = run.attention.values()
    weights = weights[EXAMPLE, : len(written), : len(sources)]
    said = of_run(f"attention weights of the translation of test example {EXAMPLE}", run)
    return [tabulate("dates_alignment", said, written, sources, weights)]


FROM_RUNS = (loss_by_position, looks, induction, recall, dates_alignment)
OF_RUNS: dict[str, Callable[[Path], list[Path]]] = {of.__name__: of for of in FROM_RUNS}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m docs.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, names = parser.add_argument, list(OF_RUNS)
    add("names", nargs="*", metavar="NAME", default=names, help=", ".join(names))
    add("--runs", type=Path, default=Path("runs"), help="the folder of the runs")
    args = parser.parse_args()
    for name in args.names:
        for path in OF_RUNS[name](args.runs):
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
