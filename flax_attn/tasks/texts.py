"""Texts in classes: AG News, SST, and a user's own CSV files."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flax_attn.data import ag_news, ngrams, sst, table
from flax_attn.data.splits import stratified
from flax_attn.data.text import KINDS, PREPROCESSING, Tokenizer, bracketed, encode_labels, fit_tokenizer, known_parts, pad
from flax_attn.errors import UsageError, unknown
from flax_attn.tasks import classification
from flax_attn.tasks.task import Examples, Task, by_length
from flax_attn.tasks.tokenizers import check_sizes, restore

KIND, SCORE = classification.KIND, classification.SCORE
make_measure, check_derived = classification.make_measure, classification.check_derived
NUM_EXAMPLES = 16
FIELDS = ("title", "title and description")
FILES = ("test.csv", "train.csv", "official")

Texts = tuple[Sequence[str], Sequence[str]]  # texts and their labels


def keys(name: str) -> dict[str, type]:
    texts = ("data.preprocessing", "data.tokenizer")
    counts = ("data.seed", "data.vocabulary_size", "data.max_length", "data.num_buckets", "data.num_ngrams", "data.num_pairs")
    common = dict.fromkeys(texts, str) | dict.fromkeys(counts, int) | {"data.shuffle": bool}
    fractions = dict.fromkeys(("data.valid_fraction", "data.test_fraction"), float)
    own = {
        "ag_news": fractions | {"data.file": str, "data.fields": str},
        "sst": {"data.num_classes": int, "data.phrases": bool},
        "text_csv": fractions | dict.fromkeys(("data.train_file", "data.test_file", "data.text_column", "data.label_column"), str),
    }
    return common | own[name]


def check(config: Any) -> None:
    """Raises a UsageError for choices that there are not."""
    data = config.data
    choices = {"preprocessing": PREPROCESSING, "tokenizer": KINDS}
    if data.name == "ag_news":
        choices |= {"file": FILES, "fields": FIELDS}
    for key, known in choices.items():
        if data[key] not in known:
            raise UsageError(unknown(f"data.{key}", data[key], known))
    if data.vocabulary_size < 3 or data.max_length < 1 or data.num_buckets < 1:
        raise UsageError("expected data.vocabulary_size above 2, and data.max_length and data.num_buckets above 0")
    if min(data.num_ngrams, data.num_pairs) < 0 or data.num_ngrams == 1:
        raise UsageError("expected data.num_ngrams and data.num_pairs of 0 (for none) or above 1")
    if (data.num_ngrams or data.num_pairs) and data.tokenizer != "word":
        raise UsageError(f"expected data.tokenizer=word with data.num_ngrams or data.num_pairs, got {data.tokenizer}")
    if data.name == "sst" and data.num_classes not in sst.CLASSES:
        raise UsageError(f"expected data.num_classes of 3 or 5, got {data.num_classes}")
    if data.name != "sst":
        valid, test = data.valid_fraction, data.test_fraction
        if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
            raise UsageError(f"expected data.valid_fraction and data.test_fraction of 0 or above, together below 1, got {valid} and {test}")
        if ("valid" in config.evaluate) != (valid > 0):
            raise UsageError("expected 'valid' in config key 'evaluate' where data.valid_fraction is above 0, and only there")
    if data.name == "text_csv" and not data.train_file:
        raise UsageError("expected --config.data.train_file=FILE.csv, a table of texts and labels")
    if not data.shuffle and data.num_buckets > 1:
        raise UsageError("expected data.num_buckets=1 with data.shuffle=False; rows in buckets are not in their order")


def load(config: Any, manual_dir: Path | None) -> Task:
    """Texts as tokens, by a tokenizer that is fitted on the training split alone."""
    data = config.data
    texts, classes, sums = {"ag_news": _ag_news, "sst": _sst, "text_csv": _text_csv}[data.name](data, manual_dir)
    clean = PREPROCESSING[data.preprocessing]
    cleaned = {split: [clean(text) for text in found] for split, (found, _) in texts.items()}
    reader = fit_reader(data, cleaned["train"])
    check_contents(cleaned, {split: labels for split, (_, labels) in texts.items()})
    labels = {split: encode_labels(found, classes) for split, (_, found) in texts.items()}
    rows = {split: {"inputs": reader.inputs(cleaned[split]), "targets": labels[split]} for split in texts}
    ordered = {split: by_length(found) if data.num_buckets > 1 else found for split, found in rows.items()}
    return Task(
        train=ordered["train"],
        splits={split: ordered[split] for split in config.evaluate},
        derived={
            "classes": list(classes),
            "class_weights": classification.class_weights(labels["train"], len(classes)),
            "files": sums,
        },
        sizes=reader.sizes() | {"num_classes": len(classes)},
        files=reader.files() | {"labels.json": list(classes)},
        draw=None,
        test=(rows["test"], [reader.words(text) for text in cleaned["test"][:NUM_EXAMPLES]], classes),
    )


def check_contents(cleaned: dict[str, list[str]], labels: dict[str, Sequence[str]]) -> None:
    """Raises a UsageError for texts of which nothing is left, and for labels that cannot be learned."""
    if not any(cleaned["train"]):
        raise UsageError("expected texts to train on, but preprocessing leaves nothing of any; choose another data.preprocessing")
    known = set(labels["train"])
    if len(known) < 2:
        raise UsageError(f"expected at least two classes to train on, got {', '.join(known) or 'none'}")
    for split, found in labels.items():
        if strange := sorted(set(found) - known):
            raise UsageError(f"expected classes in the {split} split that the training split has, got '{strange[0]}'")


def sample(config: Any) -> Any:
    places = (config.batch_size, 2)
    return (
        {"tokens": np.zeros(places, np.int32), "lengths": np.ones(config.batch_size, np.int32)}
        | ({"pairs": np.zeros(places, np.int32)} if config.data.num_pairs else {})
        | ({"ngrams": np.zeros((*places, ngrams.A_WORD), np.uint16)} if config.data.num_ngrams else {})
    )


def examples(config: Any, task: Task, predict: Any) -> Examples:
    """The first test texts with the probabilities of the first seed; the confusion matrix of all."""
    rows, words, classes = task.test
    logits, attention = predict(rows["inputs"])
    matrix, metrics, figures = classification.results(logits, rows["targets"], classes)
    inputs = {key: array[:NUM_EXAMPLES] for key, array in rows["inputs"].items()}
    kept = {
        "inputs": inputs["tokens"],
        "lengths": inputs["lengths"],
        "words": np.array([[*row, *[""] * (inputs["tokens"].shape[1] - len(row))] for row in words], dtype=str),
        "targets": rows["targets"][:NUM_EXAMPLES],
        "predictions": classification.probabilities(logits[0, :NUM_EXAMPLES]),
        "confusion": matrix,
    }
    return Examples(kept | {name: weights[:NUM_EXAMPLES] for name, weights in attention.items()}, metrics, figures)


class Reader(NamedTuple):
    """Preprocessed texts to inputs of a model: their tokens and lengths, and what the config asks for beside."""

    max_length: int
    tokenizer: Tokenizer
    pairs: Tokenizer | None
    num_ngrams: int

    def sizes(self) -> dict[str, int]:
        sizes = {"vocabulary_size": self.tokenizer.size}
        sizes |= {"num_pairs": self.pairs.size} if self.pairs else {}
        return sizes | ({"num_ngrams": self.num_ngrams} if self.num_ngrams else {})

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.tokenizer.to_json()} | ({"pairs.json": self.pairs.to_json()} if self.pairs else {})

    def inputs(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        tokens, lengths = pad([self.tokenizer.encode(text)[: self.max_length] for text in texts])
        found = {"tokens": tokens, "lengths": lengths}
        if self.pairs:
            found["pairs"], _ = pad([self.pairs.encode(ngrams.pairs(text)) for text in texts], tokens.shape[1])
        if self.num_ngrams:
            found["ngrams"] = np.zeros((*tokens.shape, ngrams.A_WORD), np.min_scalar_type(self.num_ngrams - 1))
            for row, text, length in zip(found["ngrams"], texts, lengths):
                row[:length] = ngrams.character_ngrams(self.tokenizer.split(text)[:length], self.num_ngrams)
        return found

    def parts(self, text: str) -> list[tuple[str, bool]]:
        """The parts of a text that the model sees, as they were written, and whether it knows them."""
        return known_parts(self.tokenizer, text)[: self.max_length]

    def words(self, text: str) -> list[str]:
        """The parts as pictures show them, in brackets those that the model does not know."""
        return bracketed(self.parts(text))


def fit_reader(data: Any, texts: Sequence[str]) -> Reader:
    tokenizer = fit_tokenizer(data.tokenizer, texts, data.vocabulary_size)
    pairs = fit_tokenizer("word", map(ngrams.pairs, texts), data.num_pairs) if data.num_pairs else None
    return Reader(data.max_length, tokenizer, pairs, data.num_ngrams)


def load_reader(run: Path, data: Any, sizes: dict[str, Any]) -> Reader:
    """The reader of a run whose model has these sizes. Raises a UsageError where its files are lost, damaged or another run's."""

    pairs = restore(run, "pairs.json") if data.num_pairs else None
    reader = Reader(data.max_length, restore(run, "tokenizer.json"), pairs, data.num_ngrams)
    check_sizes(run, reader.sizes(), sizes)
    return reader


def _split(data: Any, texts: Sequence[str], labels: Sequence[str], test: Texts | None = None) -> dict[str, Texts]:
    """Texts split alike in every class: in three by the config's fractions, or in two where there are others for the test."""
    test_fraction = data.test_fraction if test is None else 0.0
    shares = {"train": 1 - data.valid_fraction - test_fraction}
    shares |= {"valid": data.valid_fraction} if data.valid_fraction else {}
    shares |= {"test": test_fraction} if test is None else {}
    for label, count in Counter(labels).items():
        if count < len(shares):
            raise UsageError(f"expected at least {len(shares)} rows of every class, one for each split, got {count} of '{label}'")
    parts = stratified(encode_labels(labels, sorted(set(labels))), list(shares.values()), data.seed)
    split: dict[str, Texts] = {name: ([str(texts[i]) for i in rows], [str(labels[i]) for i in rows]) for name, rows in zip(shares, parts)}
    return split if test is None else split | {"test": test}


def _ag_news(data: Any, manual_dir: Path | None) -> tuple[dict[str, Texts], Sequence[str], dict[str, str]]:
    """One file split in three, or the training file split in two and the official test."""
    official = data.file == "official"
    found, sums = ag_news.load_ag_news(("train", "test") if official else (data.file.removesuffix(".csv"),), manual_dir)

    def texts(split: str) -> Texts:
        if data.fields == "title" and not any(news.description for news in found[split]):
            raise UsageError(
                f"expected titles and descriptions in columns of their own in ag_news/{split}.csv, got them joined; get the file with "
                "three columns, or set --config.data.fields='title and description'"
            )
        join = lambda news: " ".join(filter(None, (news.title, news.description))) if data.fields == "title and description" else news.title
        return [join(news) for news in found[split]], [ag_news.CLASSES[news.label] for news in found[split]]

    split = _split(data, *texts("train"), texts("test")) if official else _split(data, *texts(data.file.removesuffix(".csv")))
    return split, sorted(ag_news.CLASSES), sums


def _sst(data: Any, manual_dir: Path | None) -> tuple[dict[str, Texts], Sequence[str], dict[str, str]]:
    """Sentences, or for training all phrases."""
    found, sums = sst.load_sst(manual_dir)
    classes = sst.CLASSES[data.num_classes]

    def texts(split: str) -> Texts:
        sentences = found[split]
        used = [sentence[0] for sentence in sentences]
        if split == "train" and data.phrases:
            used = _distinct([phrase for sentence in sentences for phrase in sentence])
        return [" ".join(p.words) for p in used], [classes[sst.in_classes(p.label, data.num_classes)] for p in used]

    return {split: texts(split) for split in found}, classes, sums


def _distinct(found: list[sst.Phrase]) -> list[sst.Phrase]:
    """Every phrase once, whatever its case, with the mean of its labels, rounded."""
    labels: dict[tuple[str, ...], list[int]] = {}
    for phrase in found:
        labels.setdefault(tuple(word.lower() for word in phrase.words), []).append(phrase.label)
    return [sst.Phrase(words, round(sum(some) / len(some))) for words, some in labels.items()]


def _text_csv(data: Any, manual_dir: Path | None) -> tuple[dict[str, Texts], Sequence[str], dict[str, str]]:
    """The user's own table, split in three; or in two, where there is a table for the test."""
    read = lambda file: table.read(Path(file).expanduser(), data.text_column, data.label_column)
    (texts, labels), test = read(data.train_file), read(data.test_file) if data.test_file else None
    split = _split(data, texts, labels, test)
    if not all(found for found, _ in split.values()):
        raise UsageError(f"expected enough rows in {data.train_file} for training, validation and test, got {len(texts)}")
    files = [path for path in (data.train_file, data.test_file) if path]
    return split, sorted(set(split["train"][1])), {path: table.sha256(Path(path).expanduser()) for path in files}
