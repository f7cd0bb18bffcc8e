"""Tiny Shakespeare: parts of plays by William Shakespeare as one text of 1,115,394 characters.

Source: A. Karpathy 2015, in the repository char-rnn.
"""

from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from flax_attn.data.builders import FilesBuilder, files
from flax_attn.data.files import read_text
from flax_attn.types import JsonObject

ADDRESS = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
LISTED = "input.txt 1115394 86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


class Tinyshakespeare(FilesBuilder, skip_registration=True):
    """Parts of plays by William Shakespeare, as one text."""

    FILES = files(ADDRESS, LISTED)
    SPLITS = {"text": ("input.txt",)}
    FEATURES = {"text": tfds.features.Text()}

    def _generate_examples(self, path: Path) -> Iterator[tuple[int, JsonObject]]:
        yield 0, {"text": read_text(path)}
