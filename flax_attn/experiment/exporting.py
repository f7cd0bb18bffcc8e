"""A run as files for programs that have neither Flax nor `flax_attn`."""

import importlib.util
import json
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jax.export import Exported

from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.loading import Run, load
from flax_attn.files import check_writable, expanded, make_folder, replacing
from flax_attn.models import instruction_set
from flax_attn.models.forward import Inputs, Params
from flax_attn.runs.directory import check_no_file_of_run
from flax_attn.types import JsonObject, Tree

PLATFORMS = ("cpu", "cuda", "tpu")
PACKAGES = ("safetensors", "flatbuffers")  # jax serializes with the second
TEXTS = ("preprocessing", "max_length")  # what decides the tokens of a text, beside the tokenizer


def export(run: Run | Path | str, folder: Path | str) -> Path:
    """Writes a run's prediction and parameters for programs without Flax and `flax_attn`.

        prediction.jax       the prediction, the bytes of a `jax.export.Exported`
        params.safetensors   the parameters, by names such as `params.conv1.kernel`
        export.json          names, shapes and dtypes of inputs and outputs, and what texts need
        labels.json          the classes, in the order of the probabilities
        tokenizer.json       the tokens of texts, and further files of the run that texts need

    The prediction holds the parameters, and runs on CPU, NVIDIA GPU and TPU. It takes arrays in any
    number of rows, and says what `run.predict` says of them. Of several seeds, probabilities are
    the mean, and all else is of the first. The parameters of each further seed are in
    `params-SEED.safetensors`.

    | task | inputs | outputs |
    |---|---|---|
    | signals, series | `(b, t, channels)`, in the user's units | `outputs` `(b, t, channels)` |
    | images | `(b, height, width)`, in [0, 1] | `outputs` `(b, classes)` |
    | texts | `tokens` `(b, t)`, `lengths` `(b,)`, perhaps `pairs`, `ngrams` | the same |
    | language | tokens `(b, max_length)` | `outputs` `(b, max_length, vocabulary)`, of the next |
    | pairs of texts | `source` `(b, s)`, `source_lengths` `(b,)` | `tokens`, `lengths`, `scores` |

    Outputs are a dict, and `attention` in it holds the weights by name. Translations are greedy, as
    by `beam=1`; their tokens `(b, n)` have zeros after the last, and `n` is twice the longest
    target in training. Tokens are those of `run.task.encoder`.

    Texts, their pairs and series may have any length. Signals may where the model's parameters have
    the same shapes at twice the length: with `cnn`, `cnn_attention`, `residual_attention` and
    `bilstm`, but for `binary_positions=True`. Others, such as `lstm`, have the length of the run.

    Args:
        run: one that is loaded, or its directory.
        folder: where the files go. What has their names there is replaced.

    Returns:
        The folder.

    Raises:
        UsageError: no run, a missing package, a folder that cannot be written, or a model of the
            user's own whose program is not the same for every batch size and length.
    """
    check_packages()
    run, folder = run if isinstance(run, Run) else load(run), expanded(folder, "folder")
    params = {seed: jax.tree.map(np.asarray, tree) for seed, tree in run.params.items()}
    first = next(iter(params))
    names = {
        seed: "params.safetensors" if seed == first else f"params-{seed}.safetensors"
        for seed in params
    }
    files = ("prediction.jax", "export.json", *names.values(), *run.task.kept.files)
    for name in files:
        check_no_file_of_run(folder / name, "folder")
    exported = trace(run, list(params.values()))
    try:
        make_folder(folder)
        for name in files:
            check_writable(folder / name)
        write(folder / "prediction.jax", bytes(exported.serialize()))
        for seed, name in names.items():
            write(folder / name, as_safetensors(params[seed]))
        for name, content in run.task.kept.files.items():
            write(folder / name, as_json(content))
        write(folder / "export.json", as_json(describe(run, exported, names)))
    except OSError as error:
        raise UsageError(
            f"cannot write to folder {folder} ({error.strerror}); choose another"
        ) from error
    return folder


def check_packages() -> None:
    """Raises a UsageError where a package is missing that exports are written with."""
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise UsageError(
                f'expected the package {name}, which exports need; pip install "flax-attn[export]"'
            )


def trace(run: Run, params: list[Params]) -> Exported:
    """The prediction as a program for all platforms, any number of rows, and perhaps any length."""
    shapes, sample = run.task.input_shapes(), run.task.sample()
    if isinstance(shapes, dict):
        sample = {name: sample[name] for name in shapes}
    elif "t" in shapes and not takes_any_length(run.model, sample):
        shapes = shapes.replace("t", str(sample.shape[1]))

    def compute(inputs: Inputs) -> dict[str, Tree]:
        return run.task.compute(run.model, jax.tree.map(jnp.asarray, params), inputs)

    arguments = jax.export.symbolic_args_specs(sample, shapes)
    try:
        with instruction_set.portable():
            return jax.export.export(jax.jit(compute), platforms=PLATFORMS)(arguments)
    except (
        AttributeError,
        NotImplementedError,
        TypeError,
        ValueError,
        jax.errors.InconclusiveDimensionOperation,
    ) as error:
        raise UsageError(
            f"expected a model with one program for every batch size and length, got "
            f"'{run.config.model['name']}' ({type(error).__name__}: {one_line(error)[:200]}); "
            f"write array.shape[0] for len(array), and compare no sizes"
        ) from error


def takes_any_length(model: nn.Module, sample: np.ndarray) -> bool:
    """Whether a model's parameters have the same shapes for rows `(b, t, ...)` twice as long."""
    shapes = lambda array: jax.eval_shape(model.init, jax.random.key(0), array)["params"]
    try:
        return shapes(np.repeat(sample, 2, axis=1)) == shapes(sample)
    except (TypeError, ValueError, AssertionError):  # it takes the sample, so it refuses the length
        return False


def describe(run: Run, exported: Exported, params: dict[int, str]) -> JsonObject:
    """What one needs to know to use the files."""
    (inputs,), _ = jax.tree.unflatten(exported.in_tree, exported.in_avals)
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    size = lambda size: size if isinstance(size, int) else str(size)
    array = lambda aval: {"shape": [size(n) for n in aval.shape], "dtype": aval.dtype.name}
    data = run.config.values["data"]
    return {
        "config": run.config.name,
        "task": run.config.task,
        "jax": jax.__version__,
        "platforms": list(exported.platforms),
        "inputs": jax.tree.map(array, inputs),
        "outputs": jax.tree.map(array, outputs),
        "params": {str(seed): name for seed, name in params.items()},
        "files": sorted(run.task.kept.files),
        "texts": {key: data[key] for key in TEXTS if key in data},
    }


def as_safetensors(params: Params) -> bytes:
    """Parameters as the bytes of a safetensors file, by name."""
    from safetensors.numpy import save

    # safetensors writes the memory as it lies, so a transposed array would be another
    named = flatten_dict({"params": params}, sep=".")
    return save({name: np.asarray(array, order="C") for name, array in named.items()})


def as_json(content: Tree) -> bytes:
    try:
        return json.dumps(content, indent=2, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a character, which an escape of JSON can be
        return json.dumps(content, indent=2).encode()


def write(path: Path, content: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(content)
