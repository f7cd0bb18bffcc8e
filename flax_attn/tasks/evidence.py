"""Which words mattered: what becomes of the classes of a text if one of its tokens is left out.

    change = p(class | the text without the token) - p(class | the text)

The token is taken out of the text. To hide it from the attention alone would not do: the states of
a recurrent model hold their neighbours, too.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist

import flax.linen as nn
import jax
import numpy as np
from rich.console import Console
from rich.text import Text

from flax_attn.analysis.token_weights import printable
from flax_attn.data import ngrams
from flax_attn.data.text import pad
from flax_attn.errors import counted, escaped
from flax_attn.models.forward import Params, check_finite, forward
from flax_attn.models.sizes import longer, rounded
from flax_attn.tasks.artifacts import Prediction, outputs_of
from flax_attn.tasks.asking import check_length
from flax_attn.tasks.inputs.texts import Texts
from flax_attn.tasks.targets.base import probabilities
from flax_attn.tasks.task import Task
from flax_attn.types import JsonObject, UserInput

CHANCE = "  (not distinguishable from nothing)"
SHOWN = 10  # words of a text, those that mattered most
LEAST = 3  # times that a word comes, to be in a table of words
A_TIME = 100  # texts whose inputs are made at once


@dataclasses.dataclass(frozen=True)
class Mattered:
    """A word, the mean change of the probability of a class without it, and how often it came.

    `distinct` is whether the change is more than as many words drawn at random would have.
    """

    word: str
    change: float
    count: int
    distinct: bool


def changes(
    model: nn.Module, params: Sequence[Params], encoder: Texts, texts: Sequence[str]
) -> list[np.ndarray]:
    """Computes the change of class probabilities `(tokens, classes)` without each token.

    It is NaN for a token that stands around every text, such as [CLS].
    """
    results: dict[int, np.ndarray] = {}
    around = list(getattr(encoder.tokenizer, "around", ()))  # of a published model
    for first in range(0, len(texts), A_TIME):
        batch = range(first, min(first + A_TIME, len(texts)))
        made = {i: leaving_out(encoder, encoder.clean(texts[i])) for i in batch}
        for length in sorted({rows["tokens"].shape[1] for rows in made.values()}):
            alike = {i: rows for i, rows in made.items() if rows["tokens"].shape[1] == length}
            of_texts = list(alike.values())
            joined = jax.tree.map(lambda *rows: np.concatenate(rows), *of_texts)
            shares = shares_of(model, params, joined)  # (rows of all texts, classes)
            ends = np.cumsum([len(rows["tokens"]) for rows in of_texts])
            for i, part in zip(alike, np.split(shares, ends[:-1])):
                change = part[1:] - part[0]  # (tokens, classes); row 0 is the whole text
                is_around = np.isin(made[i]["tokens"][0, : len(change)], around)  # (tokens,)
                results[i] = np.where(is_around[:, None], np.nan, change)  # (tokens, classes)
    return [results[i] for i in range(len(texts))]


def leaving_out(encoder: Texts, text: str) -> dict[str, np.ndarray]:
    """Encodes a preprocessed text, and below it the text without its first token, and so on.

    Pairs of words are made anew where tokens are words.
    """
    inputs = encoder.inputs([text])
    length = int(inputs["lengths"][0])
    check_length(length)
    inputs = longer(inputs, rounded(length))
    rows = {
        name: np.stack([array[0], *(without(array[0], i) for i in range(length))])
        for name, array in inputs.items()
        if array.ndim > 1
    }
    words = encoder.tokenizer.split(text)
    if encoder.pairs is not None and words == text.split():
        fewer = [words, *([*words[:i], *words[i + 1 :]] for i in range(length))]
        numbers = [encoder.pairs.encode(ngrams.pairs(" ".join(row))) for row in fewer]
        rows["pairs"], _ = pad(numbers, rounded(length))  # (1 + length, pairs)
    return rows | {"lengths": np.array([length, *[length - 1] * length], np.int32)}


def without(array: np.ndarray, i: int) -> np.ndarray:
    """Removes the entry of a token from an array. Padding comes to its end."""
    return np.concatenate([np.delete(array, i, axis=0), np.zeros_like(array[:1])])  # (tokens, ...)


def shares_of(
    model: nn.Module, params: Sequence[Params], inputs: dict[str, np.ndarray]
) -> np.ndarray:
    """Computes the probabilities `(n, classes)`, the mean over the seeds."""
    logits = [forward(model, one, inputs) for one in params]  # (n, classes) each
    shares = np.mean([probabilities(one) for one in logits], axis=0)  # (n, classes)
    check_finite(shares)
    return shares


def add(
    rows: Sequence[JsonObject],
    tokens: Sequence[Sequence[str]],
    moved: list[np.ndarray],
    names: Sequence[str],
) -> None:
    """Adds the change of the most probable class by token to the description of each text.

    A change that is NaN is left out.
    """
    for row, words, change in zip(rows, tokens, moved):
        best = names.index(next(iter(row["classes"])))
        entries = row.setdefault("tokens", [{"token": word} for word in words])
        for entry, amount in zip(entries, change[:, best].tolist()):
            entry |= {} if np.isnan(amount) else {"change": amount}


def add_parts(
    rows: Sequence[JsonObject],
    task: Task,
    predict: Callable[[UserInput], Prediction],
    given: UserInput,
) -> None:
    """Adds the change of the most probable class without each part of a signal or an image.

    A part is covered (Zeiler and Fergus, 2014, arXiv:1311.2901), and not hidden from the attention
    alone: convolutions carry what it holds to its neighbours.
    """
    arrays, names = task.inputs.read(given).arrays, task.target.class_names()
    assert names is not None
    for row, array in zip(rows, np.asarray(arrays)):
        best = names.index(next(iter(row["classes"])))
        covered = task.inputs.covered(array)
        shares = outputs_of(predict(np.stack([array, *covered.values()])))[:, best]
        changes = (shares[1:] - shares[0]).tolist()  # (parts,)
        row["parts"] = [{"token": part, "change": one} for part, one in zip(covered, changes)]


def print_why(row: JsonObject, console: Console) -> None:
    """Prints the words, or parts, without which the most probable class of an input moves most."""
    best, what = next(iter(row["classes"])), "part" if "parts" in row else "word"
    tokens = [token for token in row.get("parts") or row["tokens"] if "change" in token]
    tokens.sort(key=lambda token: -abs(token["change"]))
    title = f'  without the {what}, the probability of "{escaped(best)}" changes by (percentage '
    title += "points)"
    console.print(Text(title, style="dim"), soft_wrap=True)
    for token in tokens[:SHOWN]:
        weight = f"   weight {token['weight']:.2f}" if "weight" in token else ""
        line = f"  {points(token['change'])}  {printable(token['token'])}"
        console.print(Text(line).append(weight, style="dim"), soft_wrap=True)
    if rest := tokens[SHOWN:]:
        most = abs(rest[0]["change"])
        further = f"  {counted(len(rest), f'further {what}')}: by at most {100 * most:.2g}"
        console.print(Text(further, style="dim"), soft_wrap=True)


def points(change: float) -> str:
    """Returns a change of a probability in percentage points, with three digits and its sign."""
    return f"{100 * change:>+#8.3g}"


def words_by_class(
    tokens: Iterable[Sequence[str]], moved: Iterable[np.ndarray], names: Sequence[str], most: int
) -> dict[str, list[Mattered]]:
    """Finds the words of each class without which its probability falls most, on average.

    A mean is distinct if it lies below the interval of 95 % for the lowest of all means, were the
    changes of each class spread over the words at random (Bonferroni).
    """
    by_word: dict[str, list[np.ndarray]] = defaultdict(list)
    for words, change in zip(tokens, moved):
        for word, amount in zip(words, change):
            if not np.isnan(amount).any():
                by_word[word].append(amount)
    least = min(LEAST, max(map(len, by_word.values()), default=0))
    means = {
        word: np.mean(amounts, axis=0) for word, amounts in by_word.items() if len(amounts) >= least
    }
    every = np.concatenate([*by_word.values()]) if by_word else np.zeros((1, len(names)))
    deviations = every.std(axis=0)  # (classes,)
    usual = every.mean(axis=0)  # (classes,)
    quantile = NormalDist().inv_cdf(1 - 0.025 / max(len(means) * len(names), 1))
    table: dict[str, list[Mattered]] = {}
    for i, name in enumerate(names):
        order = sorted((word for word in means if means[word][i] < 0), key=lambda w: means[w][i])
        table[name] = []
        for word in order[:most]:
            change, count = float(means[word][i]), len(by_word[word])
            distinct = bool(usual[i] - change > quantile * deviations[i] / np.sqrt(count))
            table[name].append(Mattered(word, change, count, distinct))
    return table


def to_json(table: Mapping[str, list[Mattered]], number: int) -> JsonObject:
    """Returns the words of each class, and the number of texts that they come from."""
    classes = {name: list(map(dataclasses.asdict, rows)) for name, rows in table.items()}
    return {"texts": number, "classes": classes}


def print_words(table: Mapping[str, list[Mattered]], number: int, console: Console) -> None:
    """Prints the words of each class, with their changes and counts."""
    heading = "Each class, with the words without which its probability falls most, in percentage "
    heading += f"points (the mean over their occurrences in {number:,} texts):"
    console.print(Text(heading, style="dim"), soft_wrap=True)
    for name, rows in table.items():
        console.print(Text(escaped(name), style="bold"), soft_wrap=True)
        if not rows:
            console.print(Text("  none", style="dim"))
        for row in rows:
            line = f"  {points(row.change)}  {row.count:>5} times  {printable(row.word)}"
            line += "" if row.distinct else CHANCE
            console.print(Text(line, style="" if row.distinct else "dim"), soft_wrap=True)
