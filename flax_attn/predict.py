"""Predictions for a user's own signals, from a run directory alone."""

import os
import sys
from pathlib import Path

import numpy as np

from flax_attn import experiment
from flax_attn.analysis import figures
from flax_attn.data.shapes import LENGTH
from flax_attn.errors import UsageError

FORMATS = (".npy", ".csv")


def predict_file(run: Path, source: Path, output: Path, figure: Path | None) -> list[Path]:
    """Predicts for the signals in a file, writes the predictions in the same shape and units, and draws them on request.

    Returns the paths of what was written.

    Raises:
        UsageError: no such file, another format, signals of another length, values that are not finite numbers, or a
            place that cannot be written; nothing is written then.
    """
    if output.suffix not in FORMATS:
        raise UsageError(f"expected --output to end in .npy or .csv, got {output}")
    for path in (output, figure):
        if path is not None and not os.access(path.parent, os.W_OK):
            raise UsageError(f"cannot write {path}; choose a directory that exists and can be written")
    if figure is not None and figure.suffix not in (".png", ".pdf", ".svg"):
        raise UsageError(f"expected --figure to end in .png, .pdf or .svg, got {figure}")
    signals = read_signals(source)
    inputs = signals.reshape(-1, LENGTH, 1)
    model, params, normalization = experiment.load(run, warn=lambda line: print(line, file=sys.stderr))
    outputs, attention = experiment.predict(model, params, normalization, inputs)
    write_signals(output, outputs.reshape(signals.shape))
    if figure is None:
        return [output]
    weights = next(iter(attention.values()), None)
    return [output, figures.save(figures.predicted(inputs, outputs, weights, f"{run.name} on {source.name}"), figure)]


def read_signals(path: Path) -> np.ndarray:
    """Signals as float32: `(100,)`, `(n, 100)` or `(n, 100, 1)` from .npy, `(n, 100)` from .csv."""
    if path.suffix not in FORMATS:
        raise UsageError(f"expected --input to end in .npy or .csv, got {path}")
    try:
        signals = np.load(path) if path.suffix == ".npy" else np.loadtxt(path, delimiter=",", ndmin=2)
    except OSError as error:
        raise UsageError(f"cannot read --input {path} ({error.strerror or error}); give a .npy or .csv file of signals") from error
    except ValueError as error:
        raise UsageError(f"expected numbers in --input {path}: {str(error).splitlines()[0]}") from error
    length = signals.shape[-1] if signals.ndim < 3 else signals.shape[1]
    if signals.ndim not in (1, 2, 3) or length != LENGTH or (signals.ndim == 3 and signals.shape[2] != 1) or not signals.size:
        raise UsageError(
            f"expected signals of {LENGTH} points, ({LENGTH},), (n, {LENGTH}) or (n, {LENGTH}, 1), got {signals.shape} in {path}"
        )
    if not np.issubdtype(signals.dtype, np.number) or np.iscomplexobj(signals) or not np.isfinite(signals).all():
        raise UsageError(f"expected finite real numbers in {path}, got {signals.dtype} with values that are not")
    return signals.astype(np.float32)


def write_signals(path: Path, signals: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, signals)
    else:
        np.savetxt(path, signals.reshape(-1, LENGTH), delimiter=",", fmt="%.7g")
