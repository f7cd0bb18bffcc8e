"""Training from Python."""
# pyright: strict, reportMissingTypeStubs=false

import dataclasses
import signal
from collections.abc import Mapping
from pathlib import Path

from ml_collections import ConfigDict

from flax_attn import config_files
from flax_attn.data.sets import DATA, DataSet, from_python
from flax_attn.data.sets.memory import Content
from flax_attn.errors import UsageError
from flax_attn.experiment.foreign import class_of
from flax_attn.experiment.loading import Run, load
from flax_attn.experiment.loop import OnEpoch, Say
from flax_attn.experiment.running import run, silent
from flax_attn.stopping import Stopped, listening
from flax_attn.types import ConfigValue, ConfigValues, InputsAndTargets


def train(
    config: str | Path | ConfigDict | Mapping[str, object],
    *,
    data: Mapping[str, InputsAndTargets] | None = None,
    workdir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    on_epoch: OnEpoch = silent,
    say: Say = silent,
    debug_nans: bool = False,
    overrides: Mapping[str, ConfigValue] | None = None,
    **changes: ConfigValue,
) -> Run:
    """Trains a config, or resumes it, and returns the run. A finished run is only loaded.

    Args:
        config: the name of a config, such as `shapes_attention:quick`, the path of a config file,
            or a ConfigDict.
        data: the user's own in place of the config's, `(inputs, targets)` by split: `train`,
            `test`, and perhaps `valid`. Signals `(n, t)` and their targets; images and the names of
            their classes; texts and the names of their classes, or the texts that they become. The
            run records their SHA-256. The same call resumes it.
        workdir: the run directory; by default `runs/NAME`, or `runs/NAME-quick`.
        manual_dir: a folder with one folder a data set; by default data sets are downloaded.
        on_epoch: takes the rows of metrics of each epoch as it ends, one a seed.
        say: takes lines on what happens; by default nobody hears them.
        debug_nans: whether the first step that is not finite ends the run with a
            `FloatingPointError` that says where the NaN arose.
        overrides: values by nested key, such as `{"model.features": 32}`.
        changes: values of the config's own keys, such as `num_epochs=3`.

    Raises:
        UsageError: a config that cannot be run, data that are not there, or a directory that is not
            this run's.
        KeyboardInterrupt: an interrupt; where training stands is saved. SIGTERM and SIGHUP save,
            too, and end the process with 143 and 129.
    """
    values: ConfigValues
    if isinstance(config, str | Path):
        values = config_files.read(str(config))
    else:
        values = ConfigDict(config)  # pyright: ignore
    config_files.change(values, {**(overrides or {}), **changes})
    content = None if data is None else take_data(values, data)
    directory = Path(workdir).expanduser() if workdir is not None else default_workdir(values)
    folder = None if manual_dir is None else Path(manual_dir).expanduser()
    try:
        with listening() as stop:
            run(
                values,
                directory,
                manual_dir=folder,
                content=content,
                say=say,
                on_epoch=on_epoch,
                stop=stop,
                debug_nans=debug_nans,
            )
    except Stopped as stopped:
        if stopped.number != signal.SIGINT:
            raise SystemExit(128 + stopped.number) from stopped
        raise
    own = [str(values[part]["name"]).partition(":")[0] for part in ("model", "data")]
    return load(directory, say, allow=own)


def take_data(config: ConfigValues, data: Mapping[str, InputsAndTargets]) -> Content:
    """Puts data from Python in the place of a config's.

    Returns their contents as the data set holds them.
    """
    before = config.data.to_dict()
    kind = class_of("data.name", before["name"], DATA, DataSet, None)
    own_class, fields, content = from_python(kind, data)
    name = next(name for name, known in DATA.items() if known is own_class)
    shared = {field.name for field in dataclasses.fields(own_class)} & before.keys() - fields.keys()
    config.data = ConfigDict({"name": name} | {key: before[key] for key in shared} | fields)
    return content


def default_workdir(config: ConfigValues) -> Path:
    """The run directory of a config for which the user names none."""
    name = config.get("name")
    if not isinstance(name, str):
        raise UsageError(f"expected str for config key 'name', got {name!r}")
    return Path("runs") / name.replace(":", "-")
