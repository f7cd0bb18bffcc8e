"""The run directory as it is written.

It is what a run leaves behind, and all that pictures and predictions read.

config.json      the resolved config, and under "derived" what the data decided, with the
                 instruction set of the machine that began the run
metrics.jsonl    one line per epoch and seed, epoch 0 before training
tokenizer.json   for texts, and labels.json for classes
examples.npz     some test inputs, targets and predictions, with attention and what marks the
                 pictures
summary.json     the results, written when all of the above is there and removed before a run grows
sums.json        the size and the SHA-256 of each of these
checkpoints/     the newest two epochs, and where a stopped run stood; a folder each, with
                 `metrics.jsonl` until then and `sums.json`
figures/         pictures, drawn from the rest
"""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from flax_attn.errors import UsageError
from flax_attn.files import PARTIAL, remove_partial, replacing
from flax_attn.runs import checkpoints, lock, sums, untrusted
from flax_attn.runs.lock import LOCK, check_no_file, is_run
from flax_attn.runs.results import StoredConfig
from flax_attn.runs.untrusted import LARGEST_JSON, MEND
from flax_attn.schema import flatten
from flax_attn.types import Json, JsonObject

GROWABLE = "num_epochs"
FREE = "reference."  # what results are shown beside; it decides nothing
FOLDERS = ("checkpoints", "figures")
NAMES = ("config.json", "metrics.jsonl", "summary.json", "examples.npz", sums.SUMS, LOCK)
ENDINGS = (".json", ".jsonl", ".npz", ".tsv", ".txt")  # of the files of a run


class RunDirectory:
    """A run directory open for writing.

    Every file is replaced whole or appended to by whole lines.

    Attributes:
        path, checkpoints: the folders.
        stored: the config of the run that is there, with what its data decided; None for a new one.
        written: the same as this process has written it.
    """

    def __init__(self, path: Path, stored: JsonObject | None):
        self.path, self.stored, self.written = path, stored, stored
        self.checkpoints = path / "checkpoints"

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, path: Path, config: JsonObject, say: Callable[[str], None], is_first: bool = True
    ) -> Iterator["RunDirectory"]:
        """Opens the directory of a run of this config, one that exists or is to be made.

        The first of several processes holds its lock meanwhile, and reads what is stored. All check
        it before anything is made. Errors are those of `open` and `lock.held`.
        """
        directory = cls.open(path, config, lambda line: None)
        if not is_first:
            yield directory
            return
        with lock.held(path):
            yield cls.open(path, config, say)  # another process may have written meanwhile

    @classmethod
    def open(
        cls, path: Path, config: JsonObject, say: Callable[[str], None] = print
    ) -> "RunDirectory":
        """Reads the directory of a run of this config, one that exists or is to be made.

        Nothing is written yet. Where config.json is damaged, the newest checkpoint has the config,
        too.

        Raises:
            UsageError: the directory holds something else, or a run of another config.
        """
        check_no_file(path)
        try:
            others = [entry.name for entry in path.iterdir()] if path.is_dir() else []
            if all(PARTIAL in name or name == LOCK for name in others):
                return cls(path, None)
            stored = _read_or_mend(path, say)
            _check_entries(path)
        except OSError as error:
            raise UsageError(
                f"cannot read run directory {path} ({error.strerror}); choose another --workdir"
            ) from error
        if stored is not None:
            _check_same(path, stored, config)
        return cls(path, stored)

    def clear(self) -> None:
        """Removes what killed processes left of files that they were writing."""
        for folder in (self.path, self.path / "figures"):
            remove_partial(folder)

    def begin(self, config: JsonObject) -> None:
        """Begins a new directory, and leaves one that is there.

        A run stopped at any later point is then known as this one. What killed processes left is
        removed.

        Raises:
            UsageError: it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.clear()
            with replacing(self.path / "config.json", keep=True) as partial:
                partial.write_text(_as_text(config))
        except OSError as error:
            raise UsageError(
                f"cannot write to run directory {self.path} ({error.strerror}); "
                f"choose another --workdir"
            ) from error

    def go_on(self, config: JsonObject, names: Iterable[str]) -> None:
        """Sets the directory back to where training goes on.

        It then has no summary, the config, and the sums of it and of the files with these `names`.
        """
        (self.path / sums.SUMS).unlink(missing_ok=True)
        (self.path / "summary.json").unlink(missing_ok=True)
        self.write_json("config.json", config)
        sums.write(self.path, ["config.json", *names])
        self.written = config

    def end(self, names: Iterable[str]) -> None:
        """Lists the sums of everything that a finished run has, `names` among it."""
        newest, _ = checkpoints.newest_whole(self.checkpoints, lambda line: None, 2**63)
        names = ["config.json", "metrics.jsonl", "summary.json", "examples.npz", *names]
        figures = (self.path / "figures").glob("*.*")
        names += [f"figures/{path.name}" for path in figures if _is_listed(path)]
        if newest is not None:
            names.append(f"checkpoints/{newest.name}/{sums.SUMS}")
        sums.write(self.path, names)

    def write_json(self, name: str, content: Json) -> None:
        """Writes a JSON file. Raises a UsageError for one that is too large to be read again."""
        text = _as_text(content)
        if len(text) > LARGEST_JSON:
            raise UsageError(
                f"expected at most {LARGEST_JSON:,} bytes for {self.path / name}, got "
                f"{len(text):,}; lower the size of the vocabulary, or the number of seeds"
            )
        self.write_text(name, text)

    def write_text(self, name: str, content: str) -> None:
        with replacing(self.path / name) as partial:
            partial.write_text(content, encoding="utf-8")

    @property
    def derived(self) -> JsonObject | None:
        """What the data decided; None for a run that has not begun to train."""
        return None if self.stored is None else self.stored.get("derived")


def _is_listed(path: Path) -> bool:
    """Whether a figure is a file of its own, with a name that the list may have."""
    return path.is_file() and not path.is_symlink() and untrusted.is_plain(path.name)


def _check_entries(path: Path) -> None:
    """Raises a UsageError for what training could not replace, or would write through."""
    for name in FOLDERS:
        untrusted.check_folder(path / name)
    for name in os.listdir(path):
        mode = os.lstat(path / name).st_mode
        is_in_the_way = stat.S_ISDIR(mode) and name.endswith(ENDINGS)
        if is_in_the_way or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise UsageError(
                f"expected a file in {path / name}, got {untrusted.kind_of(mode)}; remove "
                f"it, or choose another --workdir"
            )


def check_no_file_of_run(path: Path, flag: str) -> None:
    """Raises a UsageError for an output in the place of a file of a run, or in its checkpoints.

    Pictures and reports of the user's own may stand in the directory of a run.
    """
    real = Path(os.path.realpath(path))
    for run in filter(is_run, real.parents):
        name = real.relative_to(run).as_posix()
        if name.startswith("checkpoints/"):
            raise UsageError(
                f"expected {flag} outside the checkpoints of a run, got {path}; choose another file"
            )
        if name in NAMES or name in sums.read(run):
            raise UsageError(
                f"expected {flag} to be none of the files that training wrote, got {path}; choose "
                f"another file"
            )


def _read_or_mend(path: Path, say: Callable[[str], None]) -> JsonObject | None:
    """The config of a run directory, by config.json or by the newest checkpoint."""
    try:
        if "config.json" not in sums.changes(path):
            return read_config(path)
        reason = f"{path / 'config.json'} has changed since training wrote it"
    except UsageError as error:
        if not is_run(path):
            raise
        reason = str(error).partition(";")[0]
    metadata = checkpoints.stored_metadata(path / "checkpoints")
    say(f"{reason}; it is written again")
    return None if metadata is None else _checked(path, metadata["config"])


def read_whole(path: Path) -> JsonObject:
    """The config of a run whose listed files are as they were written, but for figures.

    Errors are those of `read_config` and `sums.check`.
    """
    check_is_directory(path)
    sums.check(path)
    return read_config(path)


def check_is_directory(path: Path) -> None:
    """Raises a UsageError where there is no directory, or one that cannot be read."""
    try:
        os.listdir(path)
    except FileNotFoundError:
        weights = f"{path}.npz"
        advice = (
            f"flax-attn report {weights} shows weights"
            if os.path.isfile(weights)
            else "give one that train.py has made; predict, generate and explore also take the "
            "folder of a published model"
        )
        raise UsageError(f"no run directory {path}; {advice}") from None
    except OSError as error:
        is_weights = path.suffix == ".npz"
        advice = f"flax-attn report {path} shows weights" if is_weights else "choose another"
        raise UsageError(
            f"expected a run directory, but {path} cannot be read ({error.strerror}); {advice}"
        ) from None


def read_config(path: Path) -> JsonObject:
    """The config of a run directory.

    Raises:
        UsageError: there is no such directory, or it is not one of ours.
    """
    check_is_directory(path)
    try:
        return _checked(path, untrusted.read_json(path, "config.json"))
    except FileNotFoundError:
        raise UsageError(
            f"expected a run directory, but {path} has no config.json, as a published model "
            f"has, too; nothing was touched, {_advice(path)}"
        ) from None


def _advice(path: Path) -> str:
    """Says what to give in place of a folder: a run in it, or the model of a .gguf file in it."""
    for entry in sorted(path.iterdir()):
        if is_run(entry):
            return f"choose another directory, such as {entry}"
        if entry.suffix == ".gguf":
            read = f"AutoModelForCausalLM.from_pretrained({str(path)!r}, gguf_file={entry.name!r})"
            return (
                f"transformers writes {entry.name} as safetensors: {read}.save_pretrained(folder)"
            )
    return "choose another directory"


def is_published(config: Json) -> bool:
    """Whether the content of a `config.json` is that of a published model, and not of a run."""
    return isinstance(config, dict) and "model_type" in config and "seed" not in config


def _checked(path: Path, config: Json) -> JsonObject:
    """The config in a run directory, whose numbers are within the limits.

    Raises a UsageError for anything else.
    """
    if is_published(config):
        raise UsageError(
            f"expected a run, got the published model in {path}, which flax_attn did not train; "
            f"flax-attn predict, generate and explore take it"
        )
    try:
        untrusted.check(config, StoredConfig)
    except ValueError as error:
        raise UsageError(
            f"expected the config of a run in {path / 'config.json'} ({error}), or of a published "
            f"model with its model_type; choose another directory, or for a run, {MEND}"
        ) from None
    return config


def _as_text(content: Json) -> str:
    return json.dumps(content, indent=2) + "\n"


def _check_same(path: Path, stored: JsonObject, config: JsonObject) -> None:
    before = flatten({key: value for key, value in stored.items() if key != "derived"})
    now = flatten(json.loads(json.dumps(config)))
    falls = before.get("optimizer.schedule") == "cosine"
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if (
            old == new
            or key.startswith(FREE)
            or (key == GROWABLE and not falls and old is not None and new is not None and old < new)
        ):
            continue
        only = (
            (" (the rate of that run falls to 0 by then)" if falls else " (it may only grow)")
            if key == GROWABLE
            else ""
        )
        raise UsageError(
            f"config key '{key}' was {old!r} when {path} was started and is now {new!r}{only}; "
            f"undo it or choose another --workdir"
        )
