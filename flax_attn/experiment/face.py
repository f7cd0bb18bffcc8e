"""Training from Python."""
# pyright: strict, reportMissingTypeStubs=false

import signal
from collections.abc import Mapping
from pathlib import Path

from ml_collections import ConfigDict

from flax_attn import config_files, schema
from flax_attn.data.sets import DATA, PairData, from_python
from flax_attn.data.sets.memory import Content
from flax_attn.experiment.config import Config, classes_of
from flax_attn.experiment.loading import Run, load_run
from flax_attn.experiment.running import OnEpoch, Say, run, silent
from flax_attn.experiment.twins import run_with_twins
from flax_attn.files import expanded
from flax_attn.stopping import Stopped, listening
from flax_attn.types import ConfigValue, ConfigValues, InputsAndTargets, JsonObject


def train(
    config: str | Path | ConfigDict | Mapping[str, object],
    *,
    data: Mapping[str, InputsAndTargets] | None = None,
    workdir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    on_epoch: OnEpoch = silent,
    say: Say = silent,
    debug_nans: bool = False,
    sequence: int = 1,
    twin: bool = False,
    overrides: Mapping[str, ConfigValue] | None = None,
    **changes: ConfigValue,
) -> Run:
    """Trains a config and returns the run.

    The same call again resumes a run that was stopped, and only loads a run that is finished.

    Args:
        config: the name of a config, such as `shapes_attention:quick`, the path of a config file,
            or its values: a ConfigDict, or a dict.
        data: your own data instead of the config's: a dict with `(inputs, targets)` for the splits
            `train` and `test`, and for `valid` if you have it. Inputs are signals `(n, t)` or
            `(n, t, channels)`, images `(n, height, width)` or `(n, height, width, 3)`, or a list of
            texts. Targets are signals, the names of classes, texts, or numbers. The run records
            only the SHA-256 of the data. Pass the same data to resume it.
        workdir: the run directory; by default `runs/NAME`, or `runs/NAME-quick`.
        manual_dir: a folder with one folder for each data set; by default data sets are downloaded.
        on_epoch: a function that is called after each epoch with its metrics, one row a seed.
        say: a function that gets lines of text on the progress, such as `print`.
        debug_nans: whether the first step that is not finite ends the run with a
            `FloatingPointError` that says where the NaN arose.
        sequence: the number of devices that share each sequence, for a Transformer.
        twin: whether the same model without learned weights is trained beside it, and compared in
            `run.summary["comparisons"]`.
        overrides: values by key, such as `{"model.features": 32}`.
        changes: values of keys that are in no part, such as `num_epochs=3`.

    Raises:
        UsageError: a config that cannot run, missing data, or the directory of another run.
        KeyboardInterrupt: Ctrl-C. What was trained is saved. SIGTERM and SIGHUP save, too, and end
            the process with the exit codes 143 and 129.
    """
    sequence = schema.convert("sequence", sequence, schema.PositiveInt)
    values: ConfigValues = config
    if isinstance(config, str | Path):
        values = config_files.read(str(config))
    flat = schema.flatten(values) | schema.flatten(overrides or {}) | schema.flatten(changes)
    content = None
    if data is not None:
        flat, content = take_data(flat, data)
    checked = Config.of(flat, content=content)
    workdir = config_files.default_workdir(checked.name) if workdir is None else workdir
    directory = expanded(workdir, "workdir")
    folder = None if manual_dir is None else expanded(manual_dir, "manual_dir")
    try:
        with listening() as stop:
            (run_with_twins if twin else run)(
                checked,
                directory,
                manual_dir=folder,
                say=say,
                on_epoch=on_epoch,
                stop=stop,
                debug_nans=debug_nans,
                sequence=sequence,
            )
    except Stopped as stopped:
        if stopped.number != signal.SIGINT:
            raise SystemExit(128 + stopped.number) from stopped
        raise
    modules = [str(flat[f"{part}.name"]).partition(":")[0] for part in ("model", "data")]
    return load_run(directory, say, modules)


def take_data(
    config: JsonObject, data: Mapping[str, InputsAndTargets]
) -> tuple[JsonObject, Content]:
    """Replaces the data of a config by data from Python.

    Returns the config, by dotted key, and the data as the data set holds them. Settings that both
    data sets have are kept.
    """
    data_class, _ = classes_of(config, None)
    is_pairs = issubclass(data_class, PairData)  # their `target` may be the name of a language
    target = "text" if is_pairs else str(config.get("data.target", data_class.target))
    own_class, fields, content = from_python(data_class, target, data)
    name = next(name for name, known in DATA.items() if known is own_class)
    before = {
        key: config.get(key, setting.default)
        for key, setting in schema.keys_of(data_class, "data.").items()
    }
    shared = before.keys() & schema.keys_of(own_class, "data.").keys()
    rest = {key: value for key, value in config.items() if not key.startswith("data.")}
    own = {"data.name": name} | {f"data.{key}": value for key, value in fields.items()}
    return rest | {key: before[key] for key in shared} | own, content
