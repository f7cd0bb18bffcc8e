"""Run directories of each kind of task, written by hand: nothing is trained."""

import json

import numpy as np

KINDS = ("signals", "images", "texts", "hops", "series", "translation", "language", "plain")
KINDS += ("numbers", "numbers of signals")
WORDS = ["the", "good", "old", "film", "was", "bad", "and", "long", "a", "plot"]
DATA = {
    "signals": {"name": "shapes", "task": "by_shape"},
    "plain": {"name": "shapes", "task": "by_shape"},
    "images": {"name": "mnist"},
    "texts": {"name": "sst"},
    "hops": {"name": "sst"},
    "series": {"name": "input_series", "relevant": 2},
    "translation": {"name": "reverse"},
    "language": {"name": "names"},
    "numbers": {"name": "largest_count"},
    "numbers of signals": {"name": "box_sums"},
}
MEASURED = dict.fromkeys(("signals", "plain", "series"), "mse") | {"language": "loss"}
MEASURED |= dict.fromkeys(("numbers", "numbers of signals"), "mae")
TASKS = {
    **dict.fromkeys(("signals", "plain", "series"), "signal-signal"),
    "images": "image-classes",
    **dict.fromkeys(("texts", "hops"), "text-classes"),
    "numbers": "text-number",
    "numbers of signals": "signal-number",
    "translation": "text-text",
    "language": "tokens-next",
}


def shares(random, *shape):
    """Returns attention weights: rows that sum to 1."""
    raw = random.uniform(size=shape).astype(np.float32) ** 6
    return raw / raw.sum(axis=-1, keepdims=True)


def signals(random):
    count = 3
    inputs, targets, predictions = random.uniform(0, 20, (3, count, 50, 1)).astype(np.float32)
    arrays = {"inputs": inputs, "targets": targets, "predictions": predictions}
    arrays["centers"] = np.tile(np.array([8.0, 20, 30, 42], np.float32), (count, 1))
    arrays["heights"] = random.uniform(5, 20, (count, 4)).astype(np.float32)
    arrays["widths"] = np.full((count, 4), 7, np.float32)
    return arrays | {"attention/attention": shares(random, count, 50, 50)}


def plain(random):
    return {name: array for name, array in signals(random).items() if "attention" not in name}


def images(random):
    weights = {f"attention/block{i}": shares(random, 3, 4, 16, 16) for i in range(3)}
    arrays = {"inputs": random.uniform(size=(3, 28, 28)).astype(np.float32)}
    arrays |= {"targets": np.array([3, 1, 0]), "predictions": shares(random, 3, 4)}
    return arrays | weights | {"attention/pooling": shares(random, 3, 16)}


def texts(random):
    lengths, words = np.array([10, 7, 4]), np.array([WORDS, WORDS, WORDS])
    arrays = {"inputs": np.full((3, 10), 5), "lengths": lengths, "words": words}
    arrays["inputs"][0, 1] = 1  # the unknown word
    arrays |= {"targets": np.array([0, 1, 1]), "predictions": shares(random, 3, 2)}
    return arrays | {"attention/attention": shares(random, 3, 10, 10)}


def hops(random):
    arrays = {key: array for key, array in texts(random).items() if "attention" not in key}
    return arrays | {"attention/hops": shares(random, 3, 4, 10)}


def series(random):
    inputs = random.normal(size=(3, 12, 5)).astype(np.float32)
    arrays = {"inputs": inputs, "targets": inputs[..., :1], "predictions": inputs[..., 2:3]}
    return arrays | {"attention/input": shares(random, 3, 12, 5)}


def translation(random):
    source = np.array([["l", "a", "m", "p"], ["c", "a", "t", ""]])
    predicted = np.array([["p", "m", "a", "l"], ["t", "a", "a", ""]])
    lengths = np.array([4, 3])
    tokens = np.ones((2, 4), int)
    arrays = {"inputs": tokens, "targets": tokens, "predictions": tokens, "source_words": source}
    arrays |= {"predicted_words": predicted, "references": np.array(["p m a l", "t a c"])}
    arrays |= {"source_lengths": lengths, "prediction_lengths": lengths}
    return arrays | {"attention/alignment": shares(random, 2, 4, 4)}


def language(random):
    mask = np.tri(6, dtype=np.float32)
    blocks = {f"attention/block{i}": shares(random, 2, 6, 6) * mask for i in range(2)}
    tokens = np.ones((2, 6), int)
    arrays = {"inputs": tokens, "targets": tokens, "predictions": tokens}
    arrays |= {"tokens": np.array(["a", "b", " ", "\n", "c", "d"]), "losses": np.ones((2, 6))}
    arrays |= {"string": np.array(["a", "b", "c", "a", "b", "c"])}
    arrays |= {
        "induction": random.uniform(size=(2, 2)),
        "induction_weights": np.stack([*blocks.values()]),
    }
    return arrays | blocks


def numbers(random):
    held = texts(random)
    arrays = {name: held[name] for name in ("lengths", "words", "attention/attention")}
    targets = random.uniform(1, 12, 40)
    arrays |= {"targets": targets, "predictions": targets + random.normal(size=40)}
    return arrays | {"inputs": held["inputs"]}


def numbers_of_signals(random):
    held, targets = signals(random), random.uniform(1, 12, 40)
    arrays = {name: held[name] for name in ("inputs", "attention/attention")}
    arrays |= {"targets": targets, "predictions": targets + random.normal(size=40)}
    return arrays


MAKE = {
    "numbers": numbers,
    "numbers of signals": numbers_of_signals,
    "signals": signals,
    "plain": plain,
    "images": images,
    "texts": texts,
    "hops": hops,
    "series": series,
    "translation": translation,
    "language": language,
}


def rows_of(measured, seeds, epochs):
    """Metrics that fall or rise from epoch to epoch, apart for each seed."""
    rows = []
    for epoch in range(epochs + 1):
        for seed in seeds:
            value = 2.0**-epoch * (1 + 0.1 * seed)
            value = value if measured != "accuracy" else 1 - value / 2
            row = {"epoch": epoch, "seed": seed, "step": 100 * epoch}
            splits = ("valid", "test") if epoch == 0 else ("train", "valid", "test")
            rows.append(row | {f"{split}/{measured}": value for split in splits})
    return rows


def write_run(path, kind="signals", *, seeds=(0, 1), epochs=4, seed=0, config=None, examples=None):
    """Writes the directory of a finished run; `config` and `examples` change what it holds."""
    path.mkdir(parents=True)
    measured = MEASURED.get(kind, "accuracy")
    rows = rows_of(measured, seeds, epochs)
    values = [row[f"test/{measured}"] for row in rows[-len(seeds) :]] if seeds else []
    measure = {"mean": np.mean(values), "std": np.std(values, ddof=1) if len(seeds) > 1 else 0.0}
    metrics = {f"test/{measured}": measure | {"values": values}}
    if kind == "translation":
        metrics["test/exact_match"] = metrics["test/accuracy"]
    classes = {"images": list("0123"), "texts": ["negative", "positive"]}
    own = {"name": "shapes_attention:quick", "num_epochs": epochs, "model": {}, "data": DATA[kind]}
    normalization = {"mean": 6.0, "std": 2.0}
    own["derived"] = {"inputs": normalization, "targets": normalization}
    classes["hops"] = classes["texts"]
    own["derived"] |= {"classes": classes[kind]} if kind in classes else {}
    summary = {"config": own["name"], "task": TASKS[kind], "model": "model", "parameters": 1234}
    summary |= {"seeds": list(seeds), "diverged": {}, "epochs": epochs, "stopped": False}
    summary |= {"steps": 100 * epochs, "train_seconds": 60.0, "measured": measured}
    summary |= {"metrics": metrics}
    if kind == "numbers":
        ends = {"mean": 1.0, "low": 0.5, "high": 1.5}
        beside = [{"name": "the mean alone", "mean": 2.0, "gain": ends}]
        summary["comparisons"] = [{"metric": "mae", "examples": 40, "run": ends, "beside": beside}]
    (path / "config.json").write_text(json.dumps(own | (config or {})))
    (path / "summary.json").write_text(json.dumps(summary))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    confusion = {"confusion": 5 * np.eye(len(classes[kind]), dtype=int)} if kind in classes else {}
    held = MAKE[kind](np.random.default_rng(seed)) | confusion | (examples or {})
    np.savez(path / "examples.npz", **held)
    return path
