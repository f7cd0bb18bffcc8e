"""What is done to texts and labels around a tokenizer: preprocessing, padding, class numbers."""

import functools
import html
import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int32

from flax_attn.errors import UsageError

START, END = "<S>", "</S>"

WORDS = r"n't\b|'(?:s|re|ve|ll|d|m)\b|\w+(?=n't\b)|\w+(?:-\w+)*|[^\w\s]"
# those of the Natural Language Toolkit, as in its corpus of 2018
STOP_WORDS = """
i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves
he him his himself she she's her hers herself it it's its itself they them their theirs themselves
what which who whom this that that'll these those am is are was were be been being have has had
having do does did doing a an the and but if or because as until while of at by for with about
against between into through during before after above below to from up down in out on off over
under again further then once here there when where why how all any both each few more most other
some such no nor not only own same so than too very s t can will just don don't should should've
now d ll m o re ve y ain aren aren't couldn couldn't didn didn't doesn doesn't hadn hadn't hasn
hasn't haven haven't isn isn't ma mightn mightn't mustn mustn't needn needn't shan shan't shouldn
shouldn't wasn wasn't weren weren't won won't wouldn wouldn't
"""
_WORDS = re.compile(WORDS)
_LONGEST_FIRST = sorted(STOP_WORDS.split(), key=len, reverse=True)
_STOP_WORDS = re.compile(rf"\b({'|'.join(map(re.escape, _LONGEST_FIRST))})\b\s*")


def clean_news(text: str) -> str:
    """Cleans as the AG News tutorial: `Great week for the NYSE!` becomes `great week nyse`.

    Lower case; without stop words, and what stands in brackets; runs of all but letters and digits
    become one space.
    """
    text = _STOP_WORDS.sub("", text.lower())
    text = _without(text, "(", ")")
    text = re.sub(r"([-;.,!?<=>])", r" \1 ", text)
    return re.sub(r"[^a-z0-9]+", " ", text).strip()


def split_words(text: str) -> str:
    """Separates words, clitics and punctuation: `It's a hit.` becomes `it 's a hit .`."""
    return " ".join(filter(None, map(_split_word, text.lower().split())))


@functools.lru_cache(1 << 16)  # a table repeats its words: a quarter of the time
def _split_word(word: str) -> str:
    return " ".join(_WORDS.findall(word))


def join_words(text: str) -> str:
    """Joins what `split_words` split, as English is written: `it 's a hit .` becomes `it's a hit.`

    Numbers (`3.5`), other apostrophes and quotation marks stay apart, for what stood there is not
    known; byte pairs lose nothing.
    """
    text = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text)
    return re.sub(r"([(\[]) ", r"\1", re.sub(r" ([.,;:!?%)\]])", r"\1", text))


def lower(text: str) -> str:
    """Lowers letters, and puts one space between words."""
    return " ".join(text.lower().split())


def keep_case(text: str) -> str:
    """Puts one space between words."""
    return " ".join(text.split())


def mark_ends(text: str) -> str:
    """Lowers letters and splits at spaces, between marks of the start and the end."""
    return " ".join([START, *re.findall("[^ ]+", text.lower()), END])


def split_news(text: str) -> str:
    """Separates words, numbers, marks: `U.S. stocks&lt;b&gt; up 12%` becomes `us stocks up 00 %`.

    Entities are restored, also those that lost their `&`; digits become zeros, except in years.
    """
    text = re.sub(r"(?<!&)(#\d+|\b(?:quot|amp|lt|gt|nbsp));", r"&\1;", text.replace("\\", " "))
    text = _without(_unescape(_unescape(text)), "<", ">", " ").lower()
    text = re.sub(r"\b([a-z])\.(?=[a-z]\.)", r"\1", text)
    words = re.findall(r"[a-z]+|\d+|[$%?!()\-:]", text.replace("'s ", " ").replace("'", ""))
    is_number = lambda word: word.isdigit() and len(word) != 4
    return " ".join("0" * min(len(word), 5) if is_number(word) else word for word in words)


def _without(text: str, first: str, last: str, instead: str = "") -> str:
    """Puts `instead` for what is from each `first` to the next `last`."""
    head, end, tail = text.rpartition(last)
    return re.sub(f"[{first}][^{last}]*[{last}]", instead, head + end) + tail


def _unescape(text: str) -> str:
    """Unescapes as `html`. A number with too many digits for Python becomes U+FFFD."""
    return html.unescape(re.sub(r"&#\d{600,};?", "\ufffd", text))


PREPROCESSING: dict[str, Callable[[str], str]] = {
    "news": clean_news,
    "news words": split_news,
    "words": split_words,
    "lower": lower,
    "cased": keep_case,
    "marked": mark_ends,
}


@functools.lru_cache(256)
def cleaned(preprocessing: str, text: str) -> str:
    """Preprocesses a text, once for its tokens and for all that is said of them."""
    return PREPROCESSING[preprocessing](text)


Rule = dict[str, str]  # one step of a preprocessing, for programs in any language


def replace(pattern: str, text: str) -> Rule:
    return {"rule": "replace", "pattern": pattern, "with": text}


def find(pattern: str) -> Rule:
    return {"rule": "find", "pattern": pattern}


# The preprocessing as rules, one after another. `lower` is lower case. `unescape` restores the
# entities of HTML. `replace` replaces each match. `find` keeps the matches, with a space between.
LOWER, UNESCAPE = {"rule": "lower"}, {"rule": "unescape"}
RULES: dict[str, list[Rule]] = {
    "news": [
        LOWER,
        replace(_STOP_WORDS.pattern, ""),
        replace(r"\([^)]*\)", ""),
        replace(r"[^a-z0-9]+", " "),
        replace(r"\A | \Z", ""),
    ],
    "news words": [
        replace(r"\\", " "),
        replace(r"(?<!&)(#\d+|\b(?:quot|amp|lt|gt|nbsp));", r"&\1;"),
        UNESCAPE,
        UNESCAPE,
        replace("<[^>]*>", " "),
        LOWER,
        replace(r"\b([a-z])\.(?=[a-z]\.)", r"\1"),
        replace("'s ", " "),
        replace("'", ""),
        find(r"[a-z]+|\d+|[$%?!()\-:]"),
        *(replace(rf"(?<!\S)\d{{{n}}}(?!\S)", "0" * n) for n in (1, 2, 3)),
        replace(r"(?<!\S)\d{5,}(?!\S)", "00000"),
    ],
    "words": [LOWER, find(WORDS)],
    "lower": [LOWER, find(r"\S+")],
    "cased": [find(r"\S+")],
    "marked": [LOWER, find("[^ ]+"), replace(r"\A", f"{START} "), replace(r"\Z", f" {END}")],
}
# from a preprocessed text to `ngrams.pairs`
RULES_OF_PAIRS = [replace(r"(\S+)\s+(?=(\S+))", r"\1_\2 "), replace(r"\s?\S+\Z", "")]


# from the words of `split_words` to `join_words`
RULES_OF_JOINS = [
    replace(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1"),
    replace(r" ([.,;:!?%)\]])", r"\1"),
    replace(r"([(\[]) ", r"\1"),
]
# what a class of Python is for JavaScript, whose own are of ASCII; within brackets, and outside
CLASSES = {
    r"\w": (r"\p{L}\p{N}_", r"[\p{L}\p{N}_]"),
    r"\d": (r"\p{Nd}", r"\p{Nd}"),
    r"\s": (r"\s\x1c-\x1f\x85", r"[\s\x1c-\x1f\x85]"),
    r"\S": (r"", r"[^\s\x1c-\x1f\x85]"),
    r"\A": ("", "^"),
    r"\Z": ("", "$"),
    r"\b": ("", r"(?:(?<=[\p{L}\p{N}_])(?![\p{L}\p{N}_])|(?<![\p{L}\p{N}_])(?=[\p{L}\p{N}_]))"),
}


def pattern_of_javascript(pattern: str) -> str:
    """Translates a regular expression for the flag `u` of JavaScript."""
    is_within, parts = False, []
    for part in re.findall(r"\\.|[^\\]", pattern):
        is_within = part != "]" if is_within else part == "["
        parts.append(CLASSES[part][not is_within] if part in CLASSES else part)
    return "".join(parts)


def rules_of_javascript(rules: Sequence[Rule]) -> list[Rule]:
    """Translates rules for the page."""
    written = []
    for rule in map(dict, rules):
        if "pattern" in rule:
            rule["pattern"] = pattern_of_javascript(rule["pattern"])
        if "with" in rule:
            rule["with"] = re.sub(r"\\(\d)", r"$\1", rule["with"].replace("$", "$$"))
        written.append(rule)
    return written


def pad(
    rows: Sequence[Sequence[int]], length: int | None = None
) -> tuple[Int32[np.ndarray, "n t"], Int32[np.ndarray, " n"]]:
    """Returns rows of tokens, padded to a length or else the longest, and their lengths."""
    lengths = np.array([len(row) for row in rows], np.int32)  # (n,)
    length = max(int(lengths.max(initial=0)), 1) if length is None else length
    lengths = np.minimum(lengths, length)
    tokens = np.zeros((len(rows), length), np.int32)  # (n, t)
    flat = itertools.chain.from_iterable(row[:length] for row in rows)
    tokens[np.arange(length) < lengths[:, None]] = np.fromiter(flat, np.int32, lengths.sum())
    return tokens, lengths


def encode_labels(labels: Sequence[str], classes: Sequence[str]) -> Int32[np.ndarray, " n"]:
    """Returns the place of each label among the classes. Another label is a UsageError."""
    index = {label: i for i, label in enumerate(classes)}
    if strange := [label for label in labels if label not in index]:
        known = f"{', '.join(classes[:10])}{', ...' if len(classes) > 10 else ''}"
        raise UsageError(f"expected a label of the training split, {known}, got '{strange[0]}'")
    return np.array([index[label] for label in labels], np.int32)  # (n,)
