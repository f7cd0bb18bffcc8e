"""Data made in code, whose answers are known."""

import numpy as np

from flax_attn.data.pairs import Pair

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS = ("aou", "eiy")  # all of a name are of one kind
BEGINNINGS = "b d f g h k kr l m n p r s st t tr v".split()  # noqa: SIM905
ENDINGS = ("", "l", "m", "n", "r", "s")


def reversed_letters(
    seed: int, num_examples: int, *, min_length: int = 3, max_length: int = 12
) -> list[Pair]:
    """Draws letters with spaces between, and the same in reverse: `d a f` becomes `f a d`."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(min_length, max_length + 1, size=num_examples)
    letters = lambda length: (LETTERS[i] for i in rng.integers(len(LETTERS), size=length))
    sources = [" ".join(letters(length)) for length in lengths]
    return [Pair(source, source[::-1]) for source in sources]


def names(seed: int, number: int) -> list[str]:
    """Draws names of two to four syllables: `Kalodun`, `Sevirin`. Vowels of one are of one kind."""
    rng = np.random.default_rng(seed)
    pick = lambda choices: choices[rng.integers(len(choices))]

    def name() -> str:
        vowels, length = pick(VOWELS), int(rng.integers(2, 5))
        syllables = [pick(BEGINNINGS) + pick(vowels) for _ in range(length)]
        return ("".join(syllables) + pick(ENDINGS)).capitalize()

    return [name() for _ in range(number)]


def in_harmony(name: str) -> bool:
    """Returns whether all vowels of a name are of one kind, and there is one."""
    kinds = {kind for kind in VOWELS for letter in name.lower() if letter in kind}
    return len(kinds) == 1


def repeated_letters(
    seed: int, number: int, *, min_length: int = 5, max_length: int = 24
) -> list[str]:
    """Draws different letters in any order, and the same again: `dafdaf`."""
    rng = np.random.default_rng(seed)
    orders = (rng.permutation(list(LETTERS)) for _ in range(number))
    lengths = rng.integers(min_length, max_length + 1, size=number)
    return ["".join(order[:length]) * 2 for order, length in zip(orders, lengths)]
