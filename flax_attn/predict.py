"""Predictions for a user's own signals, from a run directory alone."""

import contextlib
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np

from flax_attn import experiment
from flax_attn.analysis import drawing, shapes
from flax_attn.data.shapes import LENGTH
from flax_attn.errors import UsageError, one_line
from flax_attn.run_directory import replacing
from flax_attn.tasks import signals as task
from flax_attn.user_files import PICTURES, check_destination

FORMATS = (".npy", ".csv")


def predict_file(run: Path, source: Path, output: Path | None = None, figure: Path | None = None) -> list[Path]:
    """Predicts for the signals in a file, writes the predictions in the same shape and units, and draws them on request.

    Without `output` the predictions go beside the signals, as NAME.predictions.npy or .csv.

    Returns the paths of what was written. Nothing is, where an error is raised before all is ready to take its place.

    Raises:
        UsageError: no such file, another format, signals of another length, values that are not finite numbers, or a
            place that cannot be written.
    """
    signals = read_signals(source)
    output = output or source.with_suffix(".predictions" + source.suffix)
    check_destination(output, "--output", FORMATS, source)
    if figure is not None:
        check_destination(figure, "--figure", PICTURES, source)
    inputs = signals.reshape(-1, LENGTH, 1)
    _, model, params, derived = experiment.load(run, warn=lambda line: print(line, file=sys.stderr))
    normalization = task.normalization_of(derived)
    outputs, attention = experiment.predict(model, params[0], normalization.apply(inputs))
    outputs = normalization.undo(outputs)
    if not np.isfinite(outputs).all():
        raise UsageError(f"expected signals in the range that the model was trained on, 0 to 25; the predictions for {source} overflow")
    written = [output] if figure is None else [output, figure]
    try:
        with contextlib.ExitStack() as stack:
            partial = [stack.enter_context(replacing(path)) for path in written]
            write_signals(partial[0], outputs.reshape(signals.shape))
            if figure is not None:
                weights = next(iter(attention.values()), None)
                drawing.save(shapes.predicted(inputs, outputs, weights, f"{run.name} on {source.name}"), partial[1])
    except OSError as error:
        raise UsageError(f"cannot write {' and '.join(map(str, written))} ({error.strerror}); choose another place") from error
    return written


def read_signals(path: Path) -> np.ndarray:
    """Signals as float32: `(100,)`, `(n, 100)` or `(n, 100, 1)` from .npy, `(n, 100)` from .csv."""
    if path.suffix not in FORMATS:
        raise UsageError(f"expected --input to end in .npy or .csv, got {path}")
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*input contained no data")
            signals = np.load(file) if path.suffix == ".npy" else np.loadtxt(file, delimiter=",", ndmin=2)
    except OSError as error:
        raise UsageError(f"cannot read --input {path} ({error.strerror or error}); give a .npy or .csv file of signals") from error
    except (EOFError, MemoryError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"expected numbers in --input {path}: {one_line(error)}") from error
    if not isinstance(signals, np.ndarray):
        raise UsageError(f"expected one array in --input {path}, got an archive of several; save one with numpy.save")
    one, rows = signals.shape == (LENGTH,), signals.ndim > 1 and signals.shape[1:] in ((LENGTH,), (LENGTH, 1))
    if not (one or rows) or not signals.size:
        raise UsageError(
            f"expected signals of {LENGTH} points, ({LENGTH},), (n, {LENGTH}) or (n, {LENGTH}, 1), got {signals.shape} in {path}"
        )
    if signals.dtype.kind not in "iuf":
        raise UsageError(f"expected real numbers in {path}, got {signals.dtype}")
    with np.errstate(over="ignore"):
        signals = signals.astype(np.float32)
    if not np.isfinite(signals).all():
        raise UsageError(f"expected finite numbers in {path}, got some that are infinite, too large for float32, or not a number")
    return signals


def write_signals(path: Path, signals: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, signals)
    else:
        np.savetxt(path, signals.reshape(-1, LENGTH), delimiter=",", fmt="%.7g")
