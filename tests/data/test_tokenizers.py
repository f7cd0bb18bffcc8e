import json
import string

import pytest

from flax_attn.data import tokenizers
from flax_attn.errors import UsageError

TEXTS = ["the cat saw the dog", "a cat", "the end"]


def test_the_most_frequent_words_are_kept_first_met_first():
    vocabulary = tokenizers.fit_tokenizer("word", TEXTS, 5)
    assert vocabulary.entries == ("<PAD>", "<UNK>", "the", "cat", "saw")
    assert vocabulary.encode("the dog saw a cat") == [2, 1, 4, 1, 3]
    assert vocabulary.split("the dog") == ["the", "dog"]


@pytest.mark.parametrize("kind", ["word", "character"])
def test_what_is_known_comes_back_and_so_does_the_tokenizer(kind):
    tokenizer = tokenizers.fit_tokenizer(kind, TEXTS, 100)
    again = tokenizers.tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    for either in (tokenizer, again):
        assert [either.decode(either.encode(line)) for line in TEXTS] == TEXTS
    assert (
        again.size
        == tokenizer.size
        == len(set(" ".join(TEXTS) if kind == "character" else " ".join(TEXTS).split())) + 2
    )


def test_byte_pairs_come_back():
    pytest.importorskip("tokenizers")
    tokenizer = tokenizers.fit_tokenizer("bpe", [*TEXTS, string.ascii_lowercase], 60)
    again = tokenizers.tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert again.decode(again.encode("the dog sat")) == "the dog sat"
    assert tokenizer.encode("the") == again.encode("the")
    assert len(tokenizer.encode("the")) < 3
    assert "".join(tokenizer.split("the dog")) == "thedog"


@pytest.mark.parametrize("kind", ["word", "character", "bpe"])
def test_no_tokenizer_has_more_tokens_than_asked_for(kind):
    pytest.importorskip("tokenizers")
    assert tokenizers.fit_tokenizer(kind, [" ".join(string.ascii_lowercase)], 10).size == 10


@pytest.mark.parametrize("content", [{}, {"kind": "word"}, {"kind": "bpe", "model": {}}])
def test_a_damaged_tokenizer_is_one_line(content):
    with pytest.raises(UsageError, match="tokenizer"):
        tokenizers.tokenizer_from_json(content)


def test_a_word_beyond_the_longest_is_unknown():
    text = f"a {'b' * 1_000} {'c' * 1_001}"
    tokenizer = tokenizers.fit_tokenizer("word", [text], 10)
    assert tokenizer.encode(text) == [2, 3, 1]
    assert tokenizers.tokenizer_from_json(tokenizer.to_json()).encode(text) == [2, 3, 1]


def test_pairs_of_bytes_give_back_every_text():
    pytest.importorskip("tokenizers")
    lines = "To be, or not to be:\n  that is the question.\n" * 20
    tokenizer = tokenizers.fit_tokenizer("bytes", [lines], 300)
    again = tokenizers.tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    for text in (lines, "  ß\t☃\r\n<PAD> <UNK>", "\0"):
        for either in (tokenizer, again):
            assert either.decode(either.encode(text)) == text
            assert min(either.encode(text)) > 1
    assert 258 < tokenizer.size == again.size <= 300
    assert len(tokenizer.encode(lines)) < len(lines) / 2
    assert "".join(tokenizer.split("To be,\n")) == "To be,\n"
