"""Trains the runs that answer without a training: those of the package, and those of the site.

    python -m docs.ship [NAME ...]

Runs of the package are written into `flax_attn/shipped`, and others into `docs/runs`. A shipped run
is a run directory in one zip file. It is made small: it keeps the last checkpoint alone, and of it
the parameters that are used, without the moments of the optimiser. It keeps a few examples, whose
attention is in half precision, and no figures.
"""

import argparse
import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

import flax_attn
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import shapes_of_states
from flax_attn.runs import checkpoints, directory, reading
from flax_attn.runs.shipped import FOLDER, NAMES
from flax_attn.runs.stored import ATTENTION
from flax_attn.types import JsonObject, Tree

OF_SITE = Path(__file__).parent / "runs"
LARGEST = 450_000  # bytes of a file
# by name the config, its changes, and how many examples stay; None for all
RUNS: dict[str, tuple[str, JsonObject, int | None]] = {
    "dates": ("dates_bahdanau", {"model.features": 64, "model.attention_features": 32}, None),
    "shapes": ("shapes_attention", {}, 4),
    "induction": ("induction", {"num_seeds": 1}, 4),
    "names": ("names", {"num_seeds": 1}, 4),
    "shapes_cnn": ("shapes_cnn", {}, 4),
    "series": ("series_input_attention", {"num_seeds": 1}, 4),
}


def ship(name: str, folder: Path) -> Path:
    """Trains a run below a folder, makes it small, and writes its zip file."""
    config, overrides, num_examples = RUNS[name]
    path = folder / name
    flax_attn.train(config, overrides=overrides, workdir=path)
    shrink(path, num_examples)
    target = place(name)
    target.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path.rglob("*")):
            if file.is_file() and file.name != ".lock":
                # the same bytes whenever it is written
                entry = zipfile.ZipInfo(str(file.relative_to(path)))
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes())
    reading.read(path)  # it is still a run
    assert target.stat().st_size <= LARGEST, f"{target} has {target.stat().st_size:,} bytes"
    return target


def place(name: str) -> Path:
    """Returns the zip file of a run."""
    return (FOLDER if name in NAMES else OF_SITE) / f"{name}.zip"


@contextlib.contextmanager
def unpacked(name: str) -> Iterator[Path]:
    """Yields the directory of a shipped run, which has the name of the run."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(place(name)) as archive:
        archive.extractall(Path(folder) / name)
        yield Path(folder) / name


def shrink(path: Path, num_examples: int | None) -> None:
    """Takes out of a finished run what only its training needs, and all but some examples."""
    shutil.rmtree(path / directory.FIGURES)
    folder, run = path / directory.CHECKPOINTS, flax_attn.load(path)
    shapes = {"states": shapes_of_states(run.config, run.model, run.task.sample())}
    note, trees = checkpoints.restore(folder, shapes, print) or (None, {})
    assert note is not None
    for progress in checkpoints.saved(folder):
        checkpoints.path_of(folder, progress).unlink()
    checkpoints.save(folder, note, {"states": small(trees["states"], run.config)})
    with np.load(path / "examples.npz") as stored:
        count = len(stored["inputs"])  # other arrays, such as those of induction, are of no example
        rows = {
            key: shorter(key, array, num_examples if array.shape[:1] == (count,) else None)
            for key, array in stored.items()
        }
    np.savez_compressed(path / "examples.npz", **rows)


def small(state: Tree, config: Config) -> Tree:
    """Returns a state whose moments and unused parameters are zeros, which take no room."""
    zeros = lambda tree: jax.tree.map(np.zeros_like, tree)
    others = "params" if config.keep_best else "best_params"
    return state.with_changes(opt_state=zeros(state.opt_state), **{others: zeros(state.params)})


def shorter(name: str, array: np.ndarray, num_examples: int | None) -> np.ndarray:
    """Returns the first examples of an array, or all for None; attention in half precision."""
    rows = array[:num_examples] if array.ndim else array
    is_weights = name.startswith((ATTENTION, "induction_weights"))
    return rows.astype(np.float16) if is_weights else rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.ship", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *RUNS], metavar="NAME")
    chosen = parser.parse_args().names or list(RUNS)
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            target = ship(name, Path(folder))
            print(f"wrote {target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
