"""Data sets made of files, as builders of tensorflow-datasets.

They are prepared and read without TensorFlow.

The files come from a folder, `--manual_dir`, or from their public address, whose checksums bind
what is downloaded. A prepared data set is known by the contents of its files, so other files never
pass for it, and is renamed into place once it is whole.
"""

import contextlib
import hashlib
import io
import logging
import os
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.checksums import UrlInfo
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from flax_attn.errors import UsageError, one_line
from flax_attn.files import expanded, sha256

PATIENCE = 0.8  # seconds in which a public address must answer


class File(NamedTuple):
    """Where a file comes from, and what it must be when it is downloaded."""

    url: str
    size: int
    sha256: str


def files(address: str, listing: str) -> dict[str, File]:
    """Reads the files of an address: name, bytes and SHA-256, one file a line."""
    rows = map(str.split, listing.strip().splitlines())
    return {name: File(address + name, int(size), digest) for name, size, digest in rows}


class Info(tfds.core.DatasetInfo):
    def initialize_from_bucket(self) -> None:
        """Does nothing: no bucket has these data sets, and a folder would be left in $TMPDIR."""


class FilesBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A data set that is made of files. A subclass says which, and how to read one.

    `FILES` are what is downloaded; `SPLITS` says which files a split is made of, by the names that
    they have in a folder.
    """

    VERSION = tfds.core.Version("1.0.0")
    FILES: ClassVar[dict[str, File]]
    SPLITS: ClassVar[dict[str, tuple[str, ...]]]
    FEATURES: ClassVar[dict[str, Any]]

    @tfds.core.utils.classproperty  # pyright: ignore
    @classmethod
    def url_infos(cls) -> dict[str, UrlInfo]:
        """Returns what tensorflow-datasets checks downloads against."""
        size = tfds.core.utils.Size  # pyright: ignore
        info = lambda name, file: UrlInfo(size(file.size), file.sha256, name)
        return {file.url: info(name, file) for name, file in cls.FILES.items()}

    def __init__(self, paths: dict[str, Path] | None, digest: str, data_dir: Path):
        self.paths = paths
        config = tfds.core.BuilderConfig(name=digest[:16], description=f"files of SHA-256 {digest}")
        log = logging.getLogger("absl")
        level = log.level
        log.setLevel(logging.ERROR)  # a config that is made here is nothing to warn of
        try:
            super().__init__(data_dir=data_dir, config=config, file_format="array_record")
        finally:
            log.setLevel(level)

    def _info(self) -> tfds.core.DatasetInfo:
        return Info(
            builder=self,
            description=self.__doc__,
            features=tfds.features.FeaturesDict(self.FEATURES),
            disable_shuffling=True,  # rows stay in the order of the files
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        get = lambda file: Path(dl_manager.download(file.url))
        paths = self.paths or {name: get(file) for name, file in self.FILES.items()}
        there = {s: names for s, names in self.SPLITS.items() if set(names) <= paths.keys()}
        read = lambda names: self._generate_examples(*(paths[name] for name in names))
        return {split: read(names) for split, names in there.items()}


@contextlib.contextmanager
def same_handlers() -> Iterator[None]:
    """Takes back the handlers that others add to the root logger.

    tensorflow-datasets and Orbax log through absl. Its first line adds a handler to a root logger
    that has none, and the user's own `logging.basicConfig` then does nothing.
    """
    before = list(logging.root.handlers)
    try:
        yield
    finally:
        for handler in list(logging.root.handlers):
            if handler not in before:
                logging.root.removeHandler(handler)


@same_handlers()
def load(
    cls: type[FilesBuilder], splits: tuple[str, ...], manual_dir: Path | None
) -> tuple[dict[str, list[dict]], dict[str, str]]:
    """Loads the rows of each split in the order of the files, and the SHA-256 of every file.

    `splits` are those wanted of its `SPLITS`. `manual_dir` has a folder for each data set; None to
    download.

    Raises a UsageError for a file that is missing, with both ways to get it, and a damaged one.
    """
    wanted = [name for split in splits for name in cls.SPLITS[split]]
    paths, sums = None, {name: file.sha256 for name, file in cls.FILES.items()}
    if manual_dir is not None:
        paths = _find(cls, wanted, manual_dir)
        sums = {name: sha256(path) for name, path in paths.items()}
    lines = "".join(f"{name} {sums[name]}\n" for name in sorted(sums))
    digest = hashlib.sha256(lines.encode()).hexdigest()
    folder = data_dir() / cls.name / digest[:16] / str(cls.VERSION)
    if not folder.exists():
        if paths is None:
            _check_reachable(cls, wanted)
        _prepare(cls(paths, digest, data_dir()))
    builder = cls(paths, digest, data_dir())
    return {split: _rows(builder, split) for split in splits}, sums


def data_dir() -> Path:
    """Returns where prepared data sets are kept: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`."""
    return expanded(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def _find(cls: type[FilesBuilder], wanted: list[str], manual_dir: Path) -> dict[str, Path]:
    paths = {name: manual_dir / cls.name / name for name in wanted}
    for name, path in paths.items():
        if not path.is_file():
            raise UsageError(
                f"no file {path}; put it there (from {_address(cls, name)}), or leave out "
                f"--manual_dir to download it"
            )
    return paths


def _address(cls: type[FilesBuilder], name: str) -> str:
    return cls.FILES.get(name, next(iter(cls.FILES.values()))).url


def _check_reachable(cls: type[FilesBuilder], wanted: list[str]) -> None:
    """Asks for a connection briefly, as tensorflow-datasets would try for minutes.

    A proxy answers for itself.
    """
    if urllib.request.getproxies():
        return
    url = _address(cls, wanted[0])
    address = urllib.parse.urlparse(url)
    try:
        port = address.port or {"http": 80, "https": 443}[address.scheme]
        socket.create_connection((address.hostname, port), timeout=PATIENCE).close()
    except OSError as error:
        raise UsageError(
            f"cannot download {url} ({error.strerror or one_line(error)}); connect to the network, "
            f"or give the folder with {cls.name}/{wanted[0]} by --manual_dir=DIR"
        ) from error


def _prepare(builder: FilesBuilder) -> None:
    """Prepares a data set, or leaves nothing behind."""
    tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it prepares
            builder.download_and_prepare()
    except Exception as error:  # tensorflow-datasets wraps what the reading of a file raises
        if isinstance(error, FileExistsError) and builder.data_path.exists():
            return  # another process has prepared the same files meanwhile
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, UsageError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise cause from error
        is_other = isinstance(error, NonMatchingChecksumError)
        reason = "a download has a wrong checksum" if is_other else one_line(error)[:200]
        raise UsageError(f"cannot prepare {builder.name} in TFDS_DATA_DIR ({reason})") from error


def _rows(builder: FilesBuilder, split: str) -> list[dict]:
    source = builder.as_data_source(split=split)  # pyright: ignore
    rows = source.__getitems__(range(len(source))) if len(source) else []
    decoded = lambda value: value.decode() if isinstance(value, bytes) else value  # texts are bytes
    return [{key: decoded(value) for key, value in row.items()} for row in rows]
