"""Exports a run as files for programs that have neither Flax nor `flax_attn`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jax.export import Exported

from flax_attn import schema
from flax_attn.data.text import RULES, RULES_OF_PAIRS
from flax_attn.data.tokenizers import described
from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.loading import Model, Run, load
from flax_attn.files import expanded, replacing
from flax_attn.models.forward import Inputs, Params
from flax_attn.platforms import PORTABLE, compiling_for, matmul_precision
from flax_attn.schema import require
from flax_attn.types import JsonObject, Tree

PLATFORMS = ("cpu", "cuda", "tpu")  # of the program for any
Platform = Literal["cpu", "cuda", "rocm", "tpu"]
KERNELS = ("__cudnn$fmhaSoftmax",)  # what a program for one platform may call, besides JAX's own
NOT_TRACED = (AttributeError, RuntimeError, TypeError, ValueError)
NOT_TRACED += (jax.errors.InconclusiveDimensionOperation,)
TOKENIZERS = ("tokenizer.json", "target_tokenizer.json", "pairs.json")
TEXTS = ("preprocessing", "max_length")  # what decides the tokens of a text, beside the tokenizer


def export(
    run: Model | Path | str, folder: Path | str, platforms: Sequence[str] = (), rows: int = 1
) -> Path:
    """Writes a run's prediction and parameters for programs without Flax and `flax_attn`.

        prediction.jax       the prediction, the bytes of a `jax.export.Exported`
        prediction.tpu.jax   the same for one of the `platforms`, with its kernels
        params.safetensors   the parameters, by names such as `params.conv1.kernel`
        export.json          names, shapes and dtypes of inputs and outputs, and the rules by which
                             a program in any language makes tokens of texts
        labels.json          the classes, in the order of the probabilities
        tokenizer.json       the tokens of texts, and further files of the run that texts need

    The prediction holds the parameters, and runs on CPU, NVIDIA GPU and TPU. It takes arrays in any
    number of rows, and gives what `run.predict` gives for them. Signals always have their channels:
    `(b, t, 1)`, where `run.predict` also takes `(b, t)`. Of several seeds, probabilities are
    the mean, and all else is of the first. The parameters of each further seed are in
    `params-SEED.safetensors`.

    | task | inputs | outputs |
    |---|---|---|
    | signals, series | `(b, t, channels)`, in the user's units | `outputs` `(b, t, channels)` |
    | images | `(b, height, width)`, in [0, 1] | `outputs` `(b, classes)` |
    | texts | `tokens` `(b, t)`, `lengths` `(b,)`, perhaps `pairs`, `ngrams` | the same |
    | numbers | as texts, or as signals | `outputs` `(b,)`, in the user's units |
    | language | tokens `(b, max_length)` | `outputs` `(b, max_length, vocabulary)`, of the next |
    | pairs of texts | `source` `(b, s)`, `source_lengths` `(b,)` | `tokens`, `lengths`, `scores` |

    Outputs are a dict, and `attention` in it holds the weights by name. Translations are greedy, as
    by `beam=1`; their tokens `(b, n)` have zeros after the last, and `n` is twice the longest
    target in training. Texts become inputs by `run.task.inputs.encode`.

    Texts, their pairs and series may have any length. Signals may where the model's parameters have
    the same shapes at twice the length: with `cnn`, `cnn_attention`, `residual_attention` and
    `bilstm`, but for `binary_positions=True`. Others, such as `lstm`, have the length of the run.

    The sizes of `prediction.jax` are not known, so it computes all scores of an attention at once.
    The program for one platform has known sizes, `rows` rows of the sample's length. Its attention
    takes the forms that `form_of` tells for them, in memory that is linear in the length where the
    model wants no weights.

    Args:
        run: one that is loaded, or its directory.
        folder: where the files go. What has their names there is replaced.
        platforms: those of `cpu`, `cuda`, `rocm` and `tpu` that get a program of their own, such as
            `["tpu"]`. For `cuda`, cuDNN must be here if the model is of half precision.
        rows: how many rows such a program takes.

    Returns:
        The folder.

    Raises:
        UsageError: no run, a missing package, a folder that cannot be written or is that of a run,
            an unknown platform, or a model of the user's own whose program is not the same for
            every batch size and length.
    """
    folder = expanded(folder, "folder")
    schema.convert("platforms", platforms, tuple[Platform, ...])
    schema.convert("rows", rows, schema.PositiveInt)
    require(platforms or rows == 1, "rows beside a platform; prediction.jax takes any number")
    require(not (folder / "config.json").exists(), f"a folder without config.json, got {folder}")
    run = run if isinstance(run, Model) else load(run)
    if not isinstance(run, Run):
        raise UsageError(f"expected a run to export, got the published model in {run.path}")
    params = {seed: jax.tree.map(np.asarray, tree) for seed, tree in run.params.items()}
    names = {seed: f"params-{seed}.safetensors" for seed in params}
    names[next(iter(names))] = "params.safetensors"
    programs = {"prediction.jax": PORTABLE} | {f"prediction.{name}.jax": name for name in platforms}
    of_seeds = list(params.values())
    exported = {file: trace(run, of_seeds, name, rows) for file, name in programs.items()}
    contents = {name: as_safetensors(params[seed]) for seed, name in names.items()}
    contents |= {file: bytes(program.serialize()) for file, program in exported.items()}
    contents |= {name: as_json(content) for name, content in run.task.kept.files.items()}
    contents["export.json"] = as_json(describe(run, exported, names))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            with replacing(folder / name) as partial:
                partial.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"cannot write to folder {folder} ({error.strerror}); choose another"
        ) from error
    return folder


def trace(run: Run, params: list[Params], platform: str, rows: int) -> Exported:
    """Traces the prediction: for all platforms and any sizes, or for one platform and some rows."""

    def compute(inputs: Inputs) -> dict[str, Tree]:
        return run.task.compute(run.model, jax.tree.map(jnp.asarray, params), inputs)

    names, arguments = (platform,), of_rows(run, rows)
    if platform == PORTABLE:
        names, arguments = PLATFORMS, of_any_size(run)
    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in KERNELS]
    try:
        with compiling_for(platform):
            program = jax.export.export(jax.jit(compute), platforms=names, disabled_checks=checks)
            return program(arguments)
    except NOT_TRACED as error:
        wanted, advice = f"a program for {platform}", "export it on a machine with that platform"
        if platform == PORTABLE:
            wanted = "one program for every batch size and length"
            advice = "write array.shape[0] for len(array), and compare no sizes"
        raise UsageError(
            f"expected a model with {wanted}, got '{run.config.model['name']}' "
            f"({type(error).__name__}: {one_line(error)[:200]}); {advice}"
        ) from error


def of_any_size(run: Run) -> Tree:
    """Makes the shapes of inputs with any number of rows, and perhaps of any length."""
    shapes, sample = run.task.inputs.shapes(), inputs_of(run)
    if isinstance(shapes, str) and "t" in shapes and not takes_any_length(run.model, sample):
        shapes = shapes.replace("t", str(sample.shape[1]))
    return jax.export.symbolic_args_specs(sample, shapes)


def of_rows(run: Run, rows: int) -> Tree:
    """Makes the shapes of inputs with some rows of the sample's length."""
    shape = lambda array: jax.ShapeDtypeStruct((rows, *array.shape[1:]), array.dtype)
    return jax.tree.map(shape, inputs_of(run))


def inputs_of(run: Run) -> Inputs:
    """Returns the inputs of the sample that predictions take."""
    shapes, sample = run.task.inputs.shapes(), run.task.sample()
    return {name: sample[name] for name in shapes} if isinstance(shapes, dict) else sample


def takes_any_length(model: nn.Module, sample: np.ndarray) -> bool:
    """Returns whether parameters have the same shapes for rows `(b, t, ...)` twice as long."""
    shapes = lambda array: jax.eval_shape(model.init, jax.random.key(0), array)["params"]
    try:
        return shapes(np.repeat(sample, 2, axis=1)) == shapes(sample)
    except (TypeError, ValueError, AssertionError):  # it takes the sample, so it refuses the length
        return False


def describe(run: Run, exported: dict[str, Exported], params: dict[int, str]) -> JsonObject:
    """Describes how to use the files."""
    programs = {file: shapes_of(program) for file, program in exported.items()}
    data = run.config.values["data"]
    return {
        "config": run.config.name,
        "task": run.task.name,
        "jax": jax.__version__,
        "matmul_precision": matmul_precision(),
        **programs.pop("prediction.jax"),
        "programs": programs,
        "params": {str(seed): name for seed, name in params.items()},
        "files": sorted(run.task.kept.files),
        "texts": {key: data[key] for key in TEXTS if key in data} | of_texts(run),
    }


def of_texts(run: Run) -> JsonObject:
    """Describes the rules and tokenizers of texts, for a program without `flax_attn`."""
    files = run.task.kept.files
    preprocessing = run.config.values["data"].get("preprocessing")
    rules = {"rules": RULES[preprocessing]} if preprocessing else {}
    tokenizers = {name: described(files[name]) for name in TOKENIZERS if name in files}
    if "pairs.json" in tokenizers:
        tokenizers["pairs.json"] |= {"rules": RULES_OF_PAIRS}
    return rules | {"tokenizers": tokenizers} if tokenizers else {}


def shapes_of(program: Exported) -> JsonObject:
    """Describes the platforms of a program, and shapes and dtypes of its inputs and outputs."""
    (inputs,), _ = jax.tree.unflatten(program.in_tree, program.in_avals)
    outputs = jax.tree.unflatten(program.out_tree, program.out_avals)
    size = lambda size: size if isinstance(size, int) else str(size)
    array = lambda aval: {"shape": [size(n) for n in aval.shape], "dtype": aval.dtype.name}
    return {
        "platforms": list(program.platforms),
        "inputs": jax.tree.map(array, inputs),
        "outputs": jax.tree.map(array, outputs),
    }


def as_safetensors(params: Params) -> bytes:
    """Returns parameters by name as the bytes of a safetensors file."""
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise UsageError(f'{error}, which exports need; pip install "flax-attn[export]"') from error
    # safetensors writes the memory as it lies, so a transposed array would be another
    named = flatten_dict({"params": params}, sep=".")
    return save({name: np.asarray(array, order="C") for name, array in named.items()})


def as_json(content: Tree) -> bytes:
    try:
        return json.dumps(content, indent=2, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a character, which an escape of JSON can be
        return json.dumps(content, indent=2).encode()
