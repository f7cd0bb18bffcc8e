"""Multi30k: descriptions of photographs in English, German and French.

Source: Elliott et al. 2016 (arXiv:1605.00459).

A file is one language of one split, one sentence a line, compressed by gzip; line `i` of each
language says the same.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from flax_attn.data.builders import FilesBuilder, files
from flax_attn.data.files import decode, split_lines
from flax_attn.data.pairs import LANGUAGES
from flax_attn.errors import UsageError
from flax_attn.files import read_bytes
from flax_attn.schema import require
from flax_attn.types import JsonObject

ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
LISTED = """
train.en.gz 568929 d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f
train.de.gz 637044 726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6
train.fr.gz 604242 622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c
val.en.gz 21650 14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28
val.de.gz 24681 f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a
val.fr.gz 23001 ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9
test_2016_flickr.en.gz 21077 611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9
test_2016_flickr.de.gz 22890 9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8
test_2016_flickr.fr.gz 22310 6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90
"""
NAMES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}


class Multi30k(FilesBuilder, skip_registration=True):
    """Sentences of one language and split, as `train_de`."""

    FILES = files(ADDRESS, LISTED)
    SPLITS = {
        f"{split}_{language}": (f"{name}.{language}.gz",)
        for split, name in NAMES.items()
        for language in LANGUAGES
    }
    FEATURES = {"text": tfds.features.Text()}

    def _generate_examples(self, path: Path) -> Iterator[tuple[int, JsonObject]]:
        for number, line in enumerate(read_lines(path)):
            yield number, {"text": line}


def read_lines(path: Path) -> list[str]:
    """Reads the sentences of a file. Raises a UsageError for another kind of file."""
    try:
        content = gzip.decompress(read_bytes(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"expected text under gzip in {path} ({error}); get it again") from error
    lines = [" ".join(line.split()) for line in split_lines(decode(path, content))]
    require("" not in lines, f"a sentence in every line of {path}")
    return lines
