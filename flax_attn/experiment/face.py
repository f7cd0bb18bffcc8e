"""Training from Python."""
# pyright: strict, reportMissingTypeStubs=false

import dataclasses
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from ml_collections import ConfigDict

from flax_attn import config_files
from flax_attn.data.sets import DATA, DataSet, from_python
from flax_attn.data.sets.memory import Content
from flax_attn.errors import UsageError, one_line, shortened
from flax_attn.experiment.config import Config, class_of, part_of
from flax_attn.experiment.loading import Run, check_function, load_run
from flax_attn.experiment.running import OnEpoch, Say, run, silent
from flax_attn.fields import check_number, check_truth, plain
from flax_attn.files import expanded
from flax_attn.stopping import Stopped, listening
from flax_attn.types import ConfigValue, ConfigValues, InputsAndTargets, UserInput


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
    overrides: Mapping[str, ConfigValue] | None = None,
    **changes: ConfigValue,
) -> Run:
    """Trains a config and returns the run.

    The same call again resumes a run that was stopped, and only loads a run that is finished.

    Args:
        config: the name of a config, such as `shapes_attention:quick`, the path of a config file,
            or a ConfigDict.
        data: your own data instead of the config's: a dict with `(inputs, targets)` for the splits
            `train` and `test`, and for `valid` if you have it. Inputs are signals `(n, t)` or
            `(n, t, channels)`, images `(n, height, width)`, or a list of texts. Targets are
            signals, the names of classes, texts, or numbers. The run records only the SHA-256 of
            the data. Pass the same data to resume it.
        workdir: the run directory; by default `runs/NAME`, or `runs/NAME-quick`.
        manual_dir: a folder with one folder for each data set; by default data sets are downloaded.
        on_epoch: a function that is called after each epoch with its metrics, one row a seed.
        say: a function that gets lines of text on the progress, such as `print`.
        debug_nans: whether the first step that is not finite ends the run with a
            `FloatingPointError` that says where the NaN arose.
        sequence: the number of devices that share each sequence, for a Transformer.
        overrides: values by nested key, such as `{"model.features": 32}`.
        changes: values of the config's own keys, such as `num_epochs=3`.

    Raises:
        UsageError: a config that cannot run, missing data, or the directory of another run.
        KeyboardInterrupt: Ctrl-C. What was trained is saved. SIGTERM and SIGHUP save, too, and end
            the process with the exit codes 143 and 129.
    """
    check_function("on_epoch", on_epoch)
    check_function("say", say)
    check_number("sequence", sequence)
    check_truth("debug_nans", debug_nans)
    values = read_values(config)
    changed = config_files.change(values, plain(changes_of(overrides) | changes))
    content = None if data is None else take_data(values, data)
    directory = (
        config_files.default_workdir(values) if workdir is None else expanded(workdir, "workdir")
    )
    folder = None if manual_dir is None else expanded(manual_dir, "manual_dir")
    try:
        with listening() as stop:
            checked = Config.of(values, content=content)
            checked.check_changed(changed)
            run(
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
    modules = [str(values[part]["name"]).partition(":")[0] for part in ("model", "data")]
    return load_run(directory, say, modules)


def read_values(config: UserInput) -> ConfigValues:
    """The values of a config, which is a name, the path of a config file, or the values."""
    if isinstance(config, str | Path):
        return config_files.read(str(config))
    if isinstance(config, Mapping | ConfigDict):
        try:
            values: ConfigValues = ConfigDict(plain(config))  # pyright: ignore
        except ValueError as error:  # a key with a dot
            raise UsageError(f"expected a config of nested dicts ({one_line(error)})") from error
        config_files.check_keys(values.to_dict())
        return values
    raise UsageError(
        f"expected the name of a config, the path of a config file, or a ConfigDict, got "
        f"{type(config).__name__}"
    )


def changes_of(overrides: UserInput) -> dict[str, ConfigValue]:
    """A copy of the overrides, none of them for None. Raises a UsageError for what is no dict."""
    if overrides is not None and not isinstance(overrides, Mapping):
        raise UsageError(
            f"expected a dict of values by config key as overrides, such as "
            f"{{'model.features': 32}}, got {shortened(repr(overrides))}"
        )
    return dict(cast(Mapping[str, ConfigValue], overrides or {}))


def take_data(config: ConfigValues, data: Mapping[str, InputsAndTargets]) -> Content:
    """Replaces the data of a config by data from Python.

    Returns them as the data set holds them.
    """
    before = part_of(config.to_dict(), "data")
    kind = class_of("data.name", str(before.get("name")), DATA, DataSet, None)
    own_class, fields, content = from_python(kind, data)
    name = next(name for name, known in DATA.items() if known is own_class)
    shared = {field.name for field in dataclasses.fields(own_class)} & before.keys() - fields.keys()
    config.data = ConfigDict({"name": name} | {key: before[key] for key in shared} | fields)
    return content
