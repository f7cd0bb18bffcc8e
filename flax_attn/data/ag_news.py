"""AG News: titles and descriptions of news in four classes.

Source: Zhang, Zhao & LeCun 2015 (arXiv:1509.01626).

A row is `"class","title","description"` with classes 1 to 4, or `"class","title and description"`,
joined.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from flax_attn.data.builders import FilesBuilder, files
from flax_attn.data.files import read_rows
from flax_attn.schema import require
from flax_attn.types import JsonObject

CLASSES = ("World", "Sports", "Business", "Sci/Tech")
ADDRESS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
LISTED = """
train.csv 29470338 76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e
test.csv 1857427 521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699
"""


class AGNews(FilesBuilder, skip_registration=True):
    """News in four classes, as titles and descriptions."""

    FILES = files(ADDRESS, LISTED)
    SPLITS = {"train": ("train.csv",), "test": ("test.csv",)}
    FEATURES = {
        "title": tfds.features.Text(),
        "description": tfds.features.Text(),
        "label": tfds.features.Scalar(dtype=np.int32),
    }

    def _generate_examples(self, path: Path) -> Iterator[tuple[int, JsonObject]]:
        yield from enumerate(read_news(path))


def read_news(path: Path) -> Iterator[JsonObject]:
    """Reads the rows of a file. Raises a UsageError with the line of a row that is none."""
    for line, row in read_rows(path):
        is_news = len(row) in (2, 3) and row[0] in ("1", "2", "3", "4")
        require(is_news, f"a class from 1 to 4 and one or two texts in {path}, line {line}")
        description = row[2] if len(row) == 3 else ""  # else both come joined as the title
        yield {"title": row[1], "description": description, "label": int(row[0]) - 1}
