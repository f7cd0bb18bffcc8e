"""Texts that become other texts: translations, the user's own pairs, and two tasks whose answers are known."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.data import dates, multi30k, pairs, toy
from flax_attn.data.pairs import Pair
from flax_attn.data.table import sha256
from flax_attn.data.text import KINDS, PREPROCESSING, Tokenizer, bracketed, fit_tokenizer, join_words, known_parts, pad
from flax_attn.errors import UsageError, unknown
from flax_attn.tasks.task import Batch, Examples, Task, by_length
from flax_attn.tasks.tokenizers import check_sizes, restore
from flax_attn.training.metrics import Metric, largest, token_cross_entropy, weighted_mean

KIND = "translation"
SCORE = "loss"
NUM_EXAMPLES = 16
NATURAL = ("multi30k", "pairs")  # languages, whose translations are measured by BLEU and chrF
Pairs = dict[str, list[Pair]]


def keys(name: str) -> dict[str, type]:
    texts = ("data.preprocessing", "data.tokenizer")
    counts = ("data.seed", "data.vocabulary_size", "data.max_length", "data.num_buckets")
    common = dict.fromkeys(texts, str) | dict.fromkeys(counts, int) | {"data.shuffle": bool, "data.shared_vocabulary": bool}
    common |= {"decoding.beam": int, "decoding.length_penalty": float}
    made = dict.fromkeys(("data.num_train", "data.num_valid", "data.num_test"), int)
    own = {
        "reverse": made | {"data.min_letters": int, "data.max_letters": int},
        "dates": made,
        "multi30k": {"data.source": str, "data.target": str, "data.num_train": int},
        "pairs": {"data.file": str, "data.source_column": int, "data.target_column": int}
        | {"data.valid_fraction": float, "data.test_fraction": float},
    }
    return common | own[name]


def check(config: Any) -> None:
    """Raises a UsageError for choices that there are not, and for packages that are missed."""
    data = config.data
    for key, known in (("preprocessing", PREPROCESSING), ("tokenizer", KINDS)):
        if data[key] not in known:
            raise UsageError(unknown(f"data.{key}", data[key], known))
    for key, value, least in (
        ("data.vocabulary_size", data.vocabulary_size, 3),
        ("data.max_length", data.max_length, 1),
        ("data.num_buckets", data.num_buckets, 1),
        ("decoding.beam", config.decoding.beam, 1),
    ):
        if value < least:
            raise UsageError(f"expected {key} of {least} or above, got {value}")
    if config.class_weights:
        raise UsageError("expected class_weights=False for translation, which has no classes")
    if config.decoding.length_penalty < 0:
        raise UsageError(f"expected decoding.length_penalty of 0 or above, got {config.decoding.length_penalty}")
    if not data.shuffle and data.num_buckets > 1:
        raise UsageError("expected data.num_buckets=1 with data.shuffle=False; rows in buckets are not in their order")
    if data.name == "multi30k":
        for key in ("source", "target"):
            if data[key] not in multi30k.LANGUAGES:
                raise UsageError(unknown(f"data.{key}", data[key], multi30k.LANGUAGES))
        if data.source == data.target:
            raise UsageError(f"expected two languages of {', '.join(multi30k.LANGUAGES)}, got {data.source} for both")
    if config.model.get("shared_embeddings") and not data.shared_vocabulary:
        raise UsageError("expected data.shared_vocabulary=True with model.shared_embeddings=True")
    if data.get("num_train", 0) < 0:
        raise UsageError(f"expected data.num_train of 0 (for all) or above, got {data.num_train}")
    if data.name == "pairs" and (data.source_column == data.target_column or min(data.source_column, data.target_column) < 1):
        raise UsageError(f"expected two columns from 1, got data.source_column={data.source_column}, target_column={data.target_column}")
    if data.name == "pairs" and not data.file:
        raise UsageError("expected --config.data.file=FILE.tsv, with a source and a target in every line, a tab between")
    if data.name == "pairs" and not (data.valid_fraction > 0 < data.test_fraction and data.valid_fraction + data.test_fraction < 1):
        raise UsageError("expected data.valid_fraction and data.test_fraction above 0, together below 1")
    if data.name in ("reverse", "dates") and min(data.num_train, data.num_valid, data.num_test) < 1:
        raise UsageError("expected data.num_train, data.num_valid and data.num_test above 0")
    if data.name == "reverse" and not 1 <= data.min_letters <= data.max_letters:
        raise UsageError(f"expected data.min_letters from 1 to data.max_letters, got {data.min_letters} and {data.max_letters}")


def load(config: Any, manual_dir: Path | None) -> Task:
    """Pairs as tokens, by tokenizers that are fitted on the training split alone."""
    data = config.data
    if data.name in NATURAL and importlib.util.find_spec("sacrebleu") is None:
        raise UsageError('expected the package sacrebleu, which measures translations; pip install "flax-attn[translate]"')
    found, sums = LOADERS[data.name](data, manual_dir)
    reader = fit_reader(data, found["train"])
    rows = {split: reader.rows(some, data.max_length) for split, some in found.items()}
    ordered = {split: by_length(some) if data.num_buckets > 1 else some for split, some in rows.items()}
    return Task(
        train=ordered["train"],
        splits={split: ordered[split] for split in config.evaluate},
        derived={"files": sums, "longest": {side: int(rows["train"]["inputs"][f"{side}_lengths"].max()) for side in ("source", "target")}},
        sizes=reader.sizes(),
        files=reader.files(),
        draw=None,
        test=(rows["test"], found["test"], reader),
    )


def sample(config: Any) -> Any:
    tokens, lengths = np.zeros((config.batch_size, 2), np.int32), np.ones(config.batch_size, np.int32)
    return {"source": tokens, "source_lengths": lengths, "target": tokens, "target_lengths": lengths}


def make_measure(config: Any, derived: dict[str, Any]) -> Any:
    """Cross-entropy a token, with label smoothing in training alone, and the share of tokens that are the most probable ones."""

    def measure(outputs: Any, aux: dict, batch: Batch, train: bool) -> tuple[jax.Array, dict[str, Metric]]:
        labels = batch["targets"]
        mask = (labels > 0) & batch.get("mask", jnp.ones(len(labels), bool))[:, None]
        error = token_cross_entropy(outputs, labels, mask)
        hits = weighted_mean(largest(outputs, labels).astype(outputs.dtype), mask)
        loss = token_cross_entropy(outputs, labels, mask, config.label_smoothing) if train and config.label_smoothing else error
        return loss.compute(), {"loss": error, "accuracy": hits}

    return measure


def check_derived(derived: dict[str, Any]) -> None:
    """Raises a ValueError for what `load` did not derive."""
    longest = [derived["longest"][side] for side in ("source", "target")]
    if not all(isinstance(length, int) and length > 0 for length in longest):
        raise ValueError(f"got longest {derived['longest']}")


def most_tokens(derived: dict[str, Any]) -> int:
    """The tokens that a translation may have: twice those of the longest in training, whatever the source."""
    return 2 * int(derived["longest"]["target"])


def examples(config: Any, task: Task, predict: Callable[..., Any]) -> Examples:
    """All of the test translated by beam and greedily, and some of it with the alignments of the first seed."""
    rows, given, reader = task.test
    inputs, references = rows["inputs"], [pair.target for pair in given]
    options = {"mark": reader.target.size, "max_length": most_tokens(task.derived)}
    by_beam = predict(inputs, beam=config.decoding.beam, length_penalty=config.decoding.length_penalty, **options)
    greedily = by_beam if config.decoding.beam == 1 else predict(inputs, beam=1, **options)  # by seed and source, the best alone
    texts = [[reader.write(best.tokens) for (best,) in found] for found in by_beam]
    metrics, summary = {}, {}
    for prefix, some in (("test/", texts), ("greedy/test/", [[reader.write(best.tokens) for (best,) in found] for found in greedily])):
        scores, signature = zip(*(score(each, references, reader.clean, config.data.name in NATURAL) for each in some))
        metrics |= {prefix + name: [each[name] for each in scores] for name in scores[0]}
        summary |= {"signatures": signature[0]} if signature[0] else {}
    if config.data.name == "reverse":
        metrics["test/anti_diagonal"] = [anti_diagonal([best.alignment for (best,) in found]) for found in by_beam]
    if config.data.name == "dates" and (config.data.tokenizer, config.data.preprocessing) == ("character", "lower"):
        sources = [pair.source for pair in given]
        metrics["test/month_from_name"] = [month_from_name(sources, [best.alignment for (best,) in found]) for found in by_beam]
    lines = [
        "\t".join(("source", "reference", *(f"translation {i}" for i in range(len(texts))))),
        *map("\t".join, zip(*zip(*given), *texts)),
    ]
    return Examples(keep(rows, given, by_beam[0], reader), metrics, summary, {"translations.tsv": "\n".join(lines) + "\n"})


def keep(rows: Batch, given: list[Pair], found: list, reader: "Reader") -> dict[str, np.ndarray]:
    """The arrays of the first examples: tokens as text, and the alignment of each translation."""
    some = range(min(NUM_EXAMPLES, len(given)))
    best = [found[i][0] for i in some]
    predictions, lengths = pad([each.tokens for each in best])
    words = lambda lists: np.array([[*row, *[""] * (max(map(len, lists)) - len(row))] for row in lists], dtype=str)
    alignment = np.zeros((*predictions.shape, max(each.alignment.shape[1] for each in best)), np.float32)
    for i, each in enumerate(best):
        alignment[i, : each.alignment.shape[0], : each.alignment.shape[1]] = each.alignment
    return {
        "inputs": rows["inputs"]["source"][: len(some)],
        "targets": rows["targets"][: len(some)],
        "predictions": predictions,
        "source_lengths": rows["inputs"]["source_lengths"][: len(some)],
        "prediction_lengths": lengths,
        "source_words": words([reader.source_words(given[i].source) for i in some]),
        "predicted_words": words([reader.target_words(each.tokens) for each in best]),
        "references": np.array([given[i].target for i in some], dtype=str),
        "attention/alignment": alignment,
    }


def score(
    texts: Sequence[str], references: Sequence[str], clean: Callable[[str], str], natural: bool
) -> tuple[dict[str, float], list[str]]:
    """Exact match, and of languages BLEU and chrF by sacrebleu, lower-cased, with their signatures."""
    scores = {"exact_match": float(np.mean([clean(text) == clean(reference) for text, reference in zip(texts, references)]))}
    if not natural:
        return scores, []
    from sacrebleu.metrics import BLEU, CHRF  # pyright: ignore

    measures = {"bleu": BLEU(lowercase=True), "chrf": CHRF(lowercase=True)}
    scores |= {name: float(measure.corpus_score(list(texts), [list(references)]).score) for name, measure in measures.items()}
    return scores, [f"{name}: {measure.get_signature()}" for name, measure in measures.items()]


def anti_diagonal(alignments: Sequence[np.ndarray]) -> float:
    """The mean weight of what stands as far from the end as the token does from the start."""
    weights = [each[i, -1 - i] for each in alignments for i in range(min(each.shape))]
    return float(np.mean(weights)) if weights else 0.0


def month_from_name(sources: Sequence[str], alignments: Sequence[np.ndarray]) -> float:
    """The mean weight that the two digits of the month, `mm` of `yyyy-mm-dd`, put on the letters of its name."""
    weights = [each[5:7, dates.place_of_month(text)].sum(axis=1) for text, each in zip(sources, alignments) if len(each) >= 7]
    return float(np.mean(weights)) if weights else 0.0


class Reader(NamedTuple):
    """Texts to tokens of source and target, and tokens of the target back to text.

    The mark of both ends of a target is the number after those of its tokenizer.
    """

    preprocessing: str
    source: Tokenizer
    target: Tokenizer

    def clean(self, text: str) -> str:
        return PREPROCESSING[self.preprocessing](text)

    def sizes(self) -> dict[str, int]:
        return {"source_vocabulary_size": self.source.size, "target_vocabulary_size": self.target.size + 1}

    def files(self) -> dict[str, Any]:
        own = {} if self.target is self.source else {"target_tokenizer.json": self.target.to_json()}
        return {"tokenizer.json": self.source.to_json()} | own

    def sources(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        tokens, lengths = pad([self.source.encode(self.clean(text)) for text in texts])
        return {"source": tokens, "source_lengths": lengths}

    def rows(self, given: Sequence[Pair], max_length: int) -> Batch:
        """The rows of pairs. Raises a UsageError where some are empty or longer than `max_length` tokens."""
        mark, inputs = self.target.size, self.sources([pair.source for pair in given])
        targets = [self.target.encode(self.clean(pair.target)) for pair in given]
        lengths = np.stack([inputs["source_lengths"], [len(target) for target in targets]])
        if others := np.flatnonzero(((lengths < 1) | (lengths > max_length)).any(axis=0)).tolist():
            source, target = lengths[:, others[0]]
            raise UsageError(
                f"expected from 1 to data.max_length={max_length} tokens in source and target, got {source} and {target} for "
                f"'{given[others[0]].source[:40]}', and {len(others)} such pairs in all, the longest with {lengths.max()}; raise it, or "
                "take them out"
            )
        tokens, lengths = pad([[mark, *target] for target in targets])
        labels, _ = pad([[*target, mark] for target in targets])
        return {"inputs": inputs | {"target": tokens, "target_lengths": lengths}, "targets": labels}

    def source_parts(self, text: str) -> list[tuple[str, bool]]:
        """The parts of a source that the model sees, and whether it knows them."""
        return known_parts(self.source, self.clean(text))

    def source_words(self, text: str) -> list[str]:
        """The parts as pictures show them, in brackets those that the model does not know."""
        return bracketed(self.source_parts(text))

    def target_words(self, tokens: Sequence[int]) -> list[str]:
        return [self.target.decode([token]).strip() or " " for token in tokens]

    def write(self, tokens: Sequence[int]) -> str:
        text = self.target.decode(tokens)
        return join_words(text) if self.preprocessing == "words" else text


def fit_reader(data: Any, given: Sequence[Pair]) -> Reader:
    clean = PREPROCESSING[data.preprocessing]
    sources, targets = ([clean(text) for text in texts] for texts in zip(*given))
    if data.shared_vocabulary:
        both = fit_tokenizer(data.tokenizer, [*sources, *targets], data.vocabulary_size)
        return Reader(data.preprocessing, both, both)
    return Reader(data.preprocessing, *(fit_tokenizer(data.tokenizer, texts, data.vocabulary_size) for texts in (sources, targets)))


def load_reader(run: Path, data: Any, sizes: dict[str, Any]) -> Reader:
    """The reader of a run whose model has these sizes. Raises a UsageError where its files are lost, damaged or another run's."""
    source = restore(run, "tokenizer.json")
    reader = Reader(data.preprocessing, source, source if data.shared_vocabulary else restore(run, "target_tokenizer.json"))
    check_sizes(run, reader.sizes(), sizes)
    return reader


def _made(draw: Callable[[int, int], list[Pair]], data: Any) -> Pairs:
    """Splits without a source in common, whatever is drawn."""
    counts = {split: data[f"num_{split}"] for split in ("train", "valid", "test")}
    distinct = list(dict.fromkeys(draw(data.seed, 2 * sum(counts.values()))))
    if len(distinct) < sum(counts.values()):
        raise UsageError(
            f"expected fewer examples than the task has, got {counts} of {len(distinct):,} that were found; lower data.num_train"
        )
    ends = np.cumsum([0, *counts.values()])
    return {split: distinct[first:last] for split, first, last in zip(counts, ends, ends[1:])}


def _reverse(data: Any, manual_dir: Path | None) -> tuple[Pairs, dict[str, str]]:
    lengths = {"min_length": data.min_letters, "max_length": data.max_letters}
    return _made(lambda seed, number: toy.reversed_letters(seed, number, **lengths), data), {}


def _dates(data: Any, manual_dir: Path | None) -> tuple[Pairs, dict[str, str]]:
    return _made(dates.generate, data), {}


def _multi30k(data: Any, manual_dir: Path | None) -> tuple[Pairs, dict[str, str]]:
    found, sums = multi30k.load_multi30k(data.source, data.target, manual_dir)
    return found | {"train": found["train"][: data.num_train or None]}, sums


def _pairs(data: Any, manual_dir: Path | None) -> tuple[Pairs, dict[str, str]]:
    """The user's own file, each pair once, split in three at random with all pairs of a source in one part."""
    by_source: dict[str, dict[Pair, None]] = {}
    for pair in pairs.read_tsv(Path(data.file).expanduser(), data.source_column, data.target_column):
        by_source.setdefault(pair.source, {})[pair] = None
    groups = list(by_source.values())
    num_valid, num_test = (max(1, round(share * len(groups))) for share in (data.valid_fraction, data.test_fraction))
    if num_valid + num_test >= len(groups):
        raise UsageError(f"expected enough sources in {data.file} for training, validation and test, got {len(groups)} that differ")
    parts = np.split(np.random.default_rng(data.seed).permutation(len(groups)), [num_valid, num_valid + num_test])
    split = {name: [pair for i in part for pair in groups[i]] for name, part in zip(("valid", "test", "train"), parts)}
    return split, {data.file: sha256(Path(data.file).expanduser())}


LOADERS = {"reverse": _reverse, "dates": _dates, "multi30k": _multi30k, "pairs": _pairs}
