import json
import os
import pty
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


@pytest.mark.parametrize("kind", tokenizers.KINDS)
def test_no_tokenizer_has_more_tokens_than_asked_for(kind):
    pytest.importorskip("tokenizers")
    assert tokenizers.fit_tokenizer(kind, [" ".join(string.ascii_lowercase)], 10).size == 10


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_pairs_are_fitted_in_silence_on_a_terminal_too(kind):
    pytest.importorskip("tokenizers")
    terminal, end = pty.openpty()
    before = os.dup(2)
    try:
        os.dup2(end, 2)
        tokenizers.fit_tokenizer(kind, TEXTS, 300)
    finally:
        os.dup2(before, 2)
    os.set_blocking(terminal, False)
    with pytest.raises(BlockingIOError):  # nothing waits there
        os.read(terminal, 1)
    for place in (terminal, end, before):
        os.close(place)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"kind": "word", "entries": ["a"]},
        {"kind": "bpe", "model": {}},
        {"kind": "other", "entries": []},
    ],
)
def test_a_damaged_tokenizer_is_told(content):
    with pytest.raises(UsageError, match=r"tokenizer as training wrote it|package tokenizers"):
        tokenizers.tokenizer_from_json(content)


def stored_pairs(kind):
    """The JSON of a tokenizer of pairs, and the part that holds its tokens."""
    pytest.importorskip("tokenizers")
    content = tokenizers.fit_tokenizer(kind, TEXTS, 300).to_json()
    return content, content["model"]["model"]


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_rules_in_a_file_are_not_taken(kind):
    content, _ = stored_pairs(kind)
    right = tokenizers.tokenizer_from_json(content)
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1_000}
    panics = {"type": "Precompiled", "precompiled_charsmap": "/////w=="}
    for rules in ({"normalizer": longer}, {"decoder": longer}, {"normalizer": panics}):
        changed = content | {"model": content["model"] | rules}
        again = tokenizers.tokenizer_from_json(changed)
        assert again.encode("a cat") == right.encode("a cat")
        assert again.decode(again.encode("a cat")) == "a cat"
        assert again.to_json() == content


BAD_TOKENS = {
    "a gap": lambda tokens: tokens.update(zz=len(tokens) + 1),
    "one number twice": lambda tokens: tokens.update(zz=5),
    "a number beyond 32 bits": lambda tokens: tokens.update(zz=2**40),
    "a long one": lambda tokens: tokens.update({"z" * 1_001: len(tokens)}),
    "another padding": lambda tokens: tokens.update({"<PAD>": 1, "<UNK>": 0}),
    "no unknown": lambda tokens: tokens.update(zz=tokens.pop("<UNK>")),
}


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
@pytest.mark.parametrize("bad", BAD_TOKENS)
def test_bad_tokens_of_pairs_are_told(bad, kind):
    content, model = stored_pairs(kind)
    BAD_TOKENS[bad](model["vocab"])
    with pytest.raises(UsageError, match=r"tokenizer as training wrote it.*; restore it"):
        tokenizers.tokenizer_from_json(content)


def test_a_byte_without_a_token_is_told():
    content, model = stored_pairs("bytes")
    kept = [token for token in model["vocab"] if token != "Ċ"]  # a line end
    model["vocab"] = {token: i for i, token in enumerate(sorted(kept, key=model["vocab"].get))}
    with pytest.raises(UsageError, match="no token for 'Ċ'"):
        tokenizers.tokenizer_from_json(content)


def test_a_word_beyond_the_longest_is_unknown_and_none_is_read():
    text = f"a {'b' * 1_000} {'c' * 1_001}"
    tokenizer = tokenizers.fit_tokenizer("word", [text], 10)
    assert tokenizer.encode(text) == [2, 3, 1]
    assert tokenizers.tokenizer_from_json(tokenizer.to_json()).encode(text) == [2, 3, 1]
    for kind, entry in (("word", "c" * 1_001), ("character", "ab"), ("word", 7)):
        content = {"kind": kind, "entries": ["<PAD>", "<UNK>", entry]}
        with pytest.raises(UsageError, match="tokens that are no text of at most"):
            tokenizers.tokenizer_from_json(content)


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
