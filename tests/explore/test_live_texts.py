"""Texts in classes, and texts that become texts, are answered in the page as by the server."""

import json

import numpy as np
import pytest

from flax_attn.data.text import PREPROCESSING, RULES, UNESCAPE
from flax_attn.data.tokenizers import Vocabulary
from flax_attn.errors import UsageError
from flax_attn.explore.answers import Answers
from flax_attn.explore.live import live
from flax_attn.page.data import safe
from flax_attn.tasks.artifacts import Kept
from flax_attn.tasks.inputs.texts import reading
from flax_attn.tasks.replies import numbers_of
from tests.explore import living

pytestmark = living.needs_node

TEXT = "the a film is not n't 's dull fine great , . ! ( ) ÿber naïve 5 12 price news fell"
TEXTS = [
    "The film is fine.",
    "It's NOT a dull film, isn't it?! (great)",
    "naïve Ÿber\tfilm\u00a0news   12.5 fell",
    "unknown words only",
    "",
    "a b c d",
    "24th of december 1999",
    "film " * 300,
    "\u0130stanbul Stra\u00dfe \u03a3\u0391\u03a3 film fine",
]
OPTIONS = [{}, {"temperature": 0.5}, {"hidden": [0, 2]}, {"temperature": 3.0, "hidden": [1]}]
CLASSES = {"classes": ["bad", "good"], "class_weights": [1.0, 1.0]}


def words():
    return {"kind": "word", "entries": ["<PAD>", "<UNK>", *TEXT.split()]}


def characters(more=""):
    own = " abcdefghijklmnopqrstuvwxyz0123456789-" + more
    return {"kind": "character", "entries": ["<PAD>", "<UNK>", *own]}


def of_classes():
    sizes = {"num_classes": 2, "vocabulary_size": len(words()["entries"])}
    return Kept(CLASSES, sizes, {"labels.json": ["bad", "good"], "tokenizer.json": words()})


def of_pairs(source, target):
    sizes = len(source["entries"]), len(target["entries"]) + 1
    names = "source_vocabulary_size", "target_vocabulary_size"
    files = {"tokenizer.json": source, "target_tokenizer.json": target}
    return Kept({"longest": {"source": 16, "target": 6}}, dict(zip(names, sizes)), files)


SMALL = {"embedding_features": 8, "features": 8}
RUNS = {
    "ag_news_rnn_attention": (of_classes(), SMALL),
    "sst_gru_attention": (of_classes(), SMALL | {"num_layers": 1}),
    "sst_structured": (of_classes(), SMALL),
    "dates_bahdanau": (of_pairs(characters(), characters()), SMALL | {"attention_features": 8}),
    "letters_tsv": (of_pairs(characters("ABÉ"), words()), SMALL | {"attention_features": 8}),
    "reverse_bahdanau": (of_pairs(words(), words()), SMALL | {"attention_features": 8}),
}


@pytest.mark.parametrize("name", RUNS)
def test_answers_are_those_of_the_server(name, tmp_path):
    kept, changes = RUNS[name]
    run = living.run_of(name, kept, **changes)
    content = live(run)
    names = content["normalizers"][:3]
    settings = [{"normalizer": normalizer} | own for normalizer in names for own in OPTIONS]
    pairs = [(text, settings[0]) for text in TEXTS] + [(TEXTS[1], own) for own in settings]
    requests = [{"inputs": {"text": text}, "settings": own} for text, own in pairs]
    asked = {"live": safe(content), "graphs": [], "requests": requests}
    replies = living.in_node(tmp_path, json.loads(json.dumps(asked)))["replies"]
    answers, answered = Answers(run), 0
    for request, reply in zip(requests, replies):
        try:
            expected = answers(request)
        except UsageError:
            assert reply["error"], request
            continue
        if reply["error"]:  # a translation of a long text
            assert "expected at most" in reply["error"]
            continue
        answered += 1
        for key in ("tokens", "known", "note", "error", "text"):
            assert safe(reply[key]) == safe(expected[key]), key
        if expected["outputs"] is not None:
            check(reply["outputs"], expected["outputs"])
            assert [one for one, _ in reply["classes"]] == [one for one, _ in expected["classes"]]
        every = [[one, *(one.get("best") or [])] for one in (reply, expected)]
        for own, right in zip(*every, strict=True):
            for kind in ("attention", "scores"):
                assert (own[kind] is None) == (right[kind] is None)
                for layer, array in (own[kind] or {}).items():
                    check(array, right[kind][layer])
            assert own.get("text") == safe(right.get("text"))
            assert own.get("probability") == pytest.approx(right.get("probability"), abs=1e-4)
    assert answered >= 4


def check(own, expected):
    expected = numbers_of(expected)
    assert own["shape"] == list(expected.shape)
    np.testing.assert_allclose(np.ravel(own["data"]), expected.ravel(), atol=1e-5)


MIXED = "aZ09 _-'\"#&;.,!?$%()<>[]\\/éßΣİÿ中²‿s n't it's U.S. (x) the was"
MIXED += "\u00a0\u2028\t\n\u0301\uff11\U0001d538"


@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if UNESCAPE not in rules])
def test_preprocessing_is_that_of_python(name, tmp_path):
    random = np.random.default_rng(0)
    pieces = [*MIXED, *MIXED.split(), " "]
    texts = ["".join(random.choice(pieces, size=12)) for _ in range(200)]
    run = living.run_of("ag_news_rnn_attention", of_classes(), **SMALL)
    clean = [PREPROCESSING[name](text) for text in texts]
    tokenizer = Vocabulary.fit("word", clean, 5_000)
    rule = reading(tokenizer, RULES[name]) | {"most": 200, "cut": True, "ends": []}
    result = living.in_node(tmp_path, {"graphs": [], "constants": "", "texts": [rule, texts]})
    expected = [tokenizer.encode(text) for text in clean]
    assert [row or [] for row in result["read"]] == expected
    assert run.task.inputs.tokenization()["rules"]


def test_what_python_alone_can_read_is_told():
    kept = of_classes()
    size = kept.sizes | {"num_ngrams": 64}
    run = living.run_of("ag_news_rnn_attention", kept, **SMALL)
    object.__setattr__(run.task.inputs.data, "num_ngrams", size["num_ngrams"])
    with pytest.raises(UsageError, match="parts of words"):
        live(run)
