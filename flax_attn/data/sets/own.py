"""Data from a file of the user's own."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flax_attn.data import contents
from flax_attn.data.raw import ALL, Columns, Raw, SplitBy, complete, joined
from flax_attn.data.sets.kinds import DataSet
from flax_attn.schema import FilePath, Fraction, require


class Given(NamedTuple):
    """The content of a file: splits, or rows under `all` that are yet to be split.

    `notes` say what happened to the data on the way.
    """

    splits: Mapping[str, Columns]
    sha256: str
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class OwnData(DataSet):
    """Data from a file, which holds splits or is split in three.

    Attributes:
        file: the file, or of pictures the folder.
        test_file: another one, all of which is for the test, in place of one in the file; '' for
            none.
        valid_fraction: the share that validates: of the training rows where the file has splits
            but none for validation, else of all.
        test_fraction: the share of all that tests, where the file has no splits.
        split_by: `input` keeps rows with equal inputs in one split.
    """

    file: FilePath
    test_file: str = ""
    valid_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1
    split_by: SplitBy = "row"

    @abc.abstractmethod
    def given(self, name: str) -> Given:
        """Reads a file. Raises a UsageError for one that does not make a data set."""

    def load(self, manual_dir: Path | None) -> Raw:
        own = self.given(self.file)
        splits, files, notes = own.splits, {self.file: own.sha256}, [*own.notes]
        if self.test_file:
            tested = self.given(self.test_file)
            files[self.test_file] = tested.sha256
            notes += tested.notes
            renamed = {"train" if name == ALL else name: rows for name, rows in splits.items()}
            splits = renamed | {"test": joined(tested.splits)}
            if self.input == "signal":
                splits = contents.of_one_length(splits)
            if self.input != "text":
                contents.check_one_shape(splits)
        shares = self.valid_fraction, self.test_fraction
        splits = complete(splits, self.target, *shares, self.seed, self.split_by)
        expected = f"enough rows in {self.file} for training and test, or a data.test_file"
        require({"train", "test"} <= splits.keys(), expected)
        return Raw(splits, files, notes=notes)

    def rows_in(self, name: str) -> Columns:
        """Reads all rows of a file, of whatever split."""
        return joined(self.given(name).splits)
