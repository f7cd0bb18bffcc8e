"""Exports a trained model as files for programs that have neither Flax nor `flax_attn`."""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array
from jax.export import Exported

from flax_attn import schema
from flax_attn.data.text import RULES, RULES_OF_PAIRS
from flax_attn.data.tokenizers import described
from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.loading import Model, Run, load
from flax_attn.files import expanded, replacing
from flax_attn.models.forward import Inputs, Params
from flax_attn.models.generation import NEVER, GeneratesText, Written, decode, read
from flax_attn.platforms import PORTABLE, compiling_for, matmul_precision
from flax_attn.schema import require
from flax_attn.tasks.language import LanguageModel
from flax_attn.tasks.translation import TextsOfTexts
from flax_attn.types import JsonObject, Options, Tree

PLATFORMS = ("cpu", "cuda", "tpu")  # of the program for any
Platform = Literal["cpu", "cuda", "rocm", "tpu"]
KERNELS = ("__cudnn$fmhaSoftmax",)  # what a program for one platform may call, besides JAX's own
NOT_TRACED = (AttributeError, RuntimeError, TypeError, ValueError)
NOT_TRACED += (jax.errors.InconclusiveDimensionOperation,)
TOKENIZERS = ("tokenizer.json", "target_tokenizer.json", "pairs.json")
TEXTS = ("preprocessing", "max_length")  # what decides the tokens of a text, beside the tokenizer
Named = dict[str, Tree]  # parameters by their names in `params.safetensors`
Program = tuple[Callable[..., Tree], tuple[Tree, ...]]  # and the shapes of its arguments


def export(
    run: Model | Path | str,
    folder: Path | str,
    platforms: Sequence[str] = (),
    rows: int = 1,
    need_weights: bool = False,
) -> Path:
    """Writes a model's prediction and parameters for programs without Flax and `flax_attn`.

        prediction.jax       the prediction, the bytes of a `jax.export.Exported`
        prefill.jax          of a model that continues texts: reads prompts
        step.jax             reads one more token of each text
        prediction.tpu.jax   as `prediction.jax`, for one of the `platforms`, with its kernels
        params.safetensors   the parameters, by names such as `params.conv1.kernel`
        export.json          names, shapes and dtypes of inputs and outputs, and the rules by which
                             a program in any language makes tokens of texts
        labels.json          the classes, in the order of the probabilities
        tokenizer.json       the tokens of texts, and further files of the run that texts need

    The prediction runs on CPU, NVIDIA GPU and TPU. It takes arrays in any number of rows, and gives
    what `run.predict` gives for them. Signals always have their channels: `(b, t, 1)`, where
    `run.predict` also takes `(b, t)`. Of several seeds, probabilities are the mean, and all else is
    of the first. The parameters of each further seed are in `params-SEED.safetensors`.

    The prediction of a run holds the parameters. All other programs take them as their first
    argument, the dict in `params.safetensors`.

    | task | inputs | outputs |
    |---|---|---|
    | signals, series | `(b, t, channels)`, in the user's units | `outputs` `(b, t, channels)` |
    | images | `(b, height, width)`, in [0, 1] | `outputs` `(b, classes)` |
    | texts | `tokens` `(b, t)`, `lengths` `(b,)`, perhaps `pairs`, `ngrams` | the same |
    | numbers | as texts, or as signals | `outputs` `(b,)`, in the user's units |
    | language | tokens `(b, t)` | `outputs` `(b, t, vocabulary)`, of the next token |
    | pairs of texts | `source` `(b, s)`, `source_lengths` `(b,)` | `tokens`, `lengths`, `scores` |

    Outputs are a dict, and `attention` in it holds the weights by name. Translations are greedy, as
    by `beam=1`; their tokens `(b, n)` have zeros after the last, and `n` is twice the longest
    target in training, or 256 for a published model. Texts become inputs by
    `run.task.inputs.encode`. Published encoders also return the `states` after the last block.

    A model that continues texts has two more programs, for texts of up to `max_length` tokens:

        prefill(params, tokens (b, t), lengths (b,)) -> logits (b, vocabulary), caches
        step(params, token (b,), caches) -> logits (b, vocabulary), caches

    The caches are a list of arrays with a row for each text. The logits are of the token after the
    last one, and minus infinity for padding and unknown tokens. `generation` in `export.json` has
    `max_length`, the tokens that `start` an empty text, or every text if `always`, and the `ends`.

    Texts, their pairs and series may have any length. Signals may where the model's parameters have
    the same shapes at half the length: with `cnn`, `cnn_attention`, `residual_attention` and
    `bilstm`, except with `binary_positions`. Others, such as `lstm`, have the length of the run.

    The sizes of `prediction.jax` are not known, so it computes all scores of an attention at once.
    The program for one platform has known sizes, `rows` rows of the sample's length. Its attention
    takes the forms that `form_of` returns for them, in memory linear in the length where the model
    needs no weights.

    Args:
        run: one that is loaded, or its directory.
        folder: where the files go. What has their names there is replaced.
        platforms: those of `cpu`, `cuda`, `rocm` and `tpu` that get a program of their own, such as
            `["tpu"]`. For `cuda`, cuDNN must be here if the model is of half precision.
        rows: how many rows such a program takes.
        need_weights: whether the prediction of a language model or of a published model returns
            attention weights. That of any other run does.

    Returns:
        The folder.

    Raises:
        UsageError: no model, a missing package, a folder that cannot be written or is that of a
            model, an unknown platform, or a model of the user's own whose program is not the same
            for every batch size and length.
    """
    folder = expanded(folder, "folder")
    schema.convert("platforms", platforms, tuple[Platform, ...])
    schema.convert("rows", rows, schema.PositiveInt)
    require(platforms or rows == 1, "rows beside a platform; prediction.jax takes any number")
    require(not (folder / "config.json").exists(), f"a folder without config.json, got {folder}")
    run = run if isinstance(run, Model) else load(run)
    params = {seed: jax.tree.map(np.asarray, tree) for seed, tree in run.params.items()}
    names = {seed: f"params-{seed}.safetensors" for seed in params}
    names[next(iter(names))] = "params.safetensors"  # of the first seed, whatever its number
    exported = trace(run, PORTABLE, rows, need_weights)
    for name in platforms:
        exported |= trace(run, name, rows, need_weights)
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


def trace(run: Model, platform: str, rows: int, need_weights: bool) -> dict[str, Exported]:
    """Traces programs by file: for all platforms and any sizes, or for one and some rows."""
    names, ending = (PLATFORMS, "jax") if platform == PORTABLE else ((platform,), f"{platform}.jax")
    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in KERNELS]
    options: Options = {"platforms": names, "disabled_checks": checks}
    try:
        with compiling_for(platform):
            programs = {"prediction": prediction_of(run, platform, rows, need_weights)}
            if isinstance(run.task, LanguageModel) and isinstance(run.model, GeneratesText):
                programs |= steps_of(run.model, next(iter(run.params.values())), platform, rows)
            return {
                f"{name}.{ending}": jax.export.export(jax.jit(compute), **options)(*arguments)
                for name, (compute, arguments) in programs.items()
            }
    except NOT_TRACED as error:
        wanted, advice = f"a program for {platform}", "export it on a machine with that platform"
        if platform == PORTABLE:
            wanted = "one program for every batch size and length"
            advice = "write array.shape[0] for len(array), and compare no sizes"
        raise UsageError(
            f"expected a model with {wanted}, got {type(run.model).__name__} "
            f"({type(error).__name__}: {one_line(error)[:200]}); {advice}"
        ) from error


def prediction_of(run: Model, platform: str, rows: int, need_weights: bool) -> Program:
    """Makes the prediction. The parameters of a run, which are few, are constants in it."""
    is_pair = isinstance(run.task, TextsOfTexts)  # whose alignment is there in any case
    has_option = isinstance(run.task, LanguageModel) or not (isinstance(run, Run) or is_pair)
    options: Options = {"need_weights": need_weights} if has_option else {}
    compute = functools.partial(run.task.compute, run.model, **options)
    inputs = of_any_size(run) if platform == PORTABLE else of_rows(run, rows)
    params = list(run.params.values())
    if isinstance(run, Run):
        return lambda inputs: compute(jax.tree.map(jnp.asarray, params), inputs), (inputs,)
    of_named = lambda named, inputs: compute([by_layer(named)], inputs)
    return of_named, (shapes_by_name(params[0]), inputs)


def steps_of(model: GeneratesText, params: Params, platform: str, rows: int) -> dict[str, Program]:
    """Makes the programs that read prompts and one more token of each text."""
    texts, prompts = (rows,), (rows, model.max_length)
    if platform == PORTABLE:
        texts, constraint = jax.export.symbolic_shape("b"), f"t <= {model.max_length}"
        prompts = jax.export.symbolic_shape("b, t", constraints=[constraint])
    numbers = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
    begin, token = functools.partial(read, model), numbers(*texts)
    _, caches = jax.eval_shape(begin, params, numbers(*texts, 1), token)
    shapes, structure = jax.tree.flatten(caches)
    named, never = shapes_by_name(params), getattr(model, "num_unwritten", NEVER)

    def as_arrays(state: Written) -> tuple[Array, list[Array]]:
        logits, caches = state
        return logits.at[:, :never].set(-jnp.inf), jax.tree.leaves(caches)  # (b, vocabulary)

    def prefill(named: Named, tokens: Array, lengths: Array) -> tuple[Array, list[Array]]:
        return as_arrays(read(model, by_layer(named), tokens, lengths))

    def step(named: Named, token: Array, arrays: list[Array]) -> tuple[Array, list[Array]]:
        caches, lengths = jax.tree.unflatten(structure, arrays), jnp.ones_like(token)
        return as_arrays(decode(model, by_layer(named), token[:, None], caches, lengths))

    return {
        "prefill": (prefill, (named, numbers(*prompts), numbers(*prompts[:1]))),
        "step": (step, (named, token, shapes)),
    }


def by_layer(named: Named) -> Params:
    """Returns parameters as a model takes them."""
    return unflatten_dict(named, sep=".")["params"]


def shapes_by_name(params: Params) -> Named:
    return jax.eval_shape(lambda: flatten_dict({"params": params}, sep="."))


def of_any_size(run: Model) -> Tree:
    """Makes the shapes of inputs with any number of rows, and perhaps of any length."""
    shapes, sample = run.task.inputs.shapes(), inputs_of(run)
    if isinstance(shapes, str) and "t" in shapes and not takes_any_length(run.model, sample):
        shapes = shapes.replace("t", str(sample.shape[1]))
    most = getattr(run.model, "max_length", None)  # of a table of positions
    has_length = any("t" in shape for shape in jax.tree.leaves(shapes))
    constraints = [f"t <= {most}"] if most and has_length else []
    return jax.export.symbolic_args_specs(sample, shapes, constraints=constraints)


def of_rows(run: Model, rows: int) -> Tree:
    """Makes the shapes of inputs with some rows of the sample's length."""
    shape = lambda array: jax.ShapeDtypeStruct((rows, *array.shape[1:]), array.dtype)
    return jax.tree.map(shape, inputs_of(run))


def inputs_of(run: Model) -> Inputs:
    """Returns the inputs of the sample that predictions take."""
    shapes, sample = run.task.inputs.shapes(), run.task.sample()
    return {name: sample[name] for name in shapes} if isinstance(shapes, dict) else sample


def takes_any_length(model: nn.Module, sample: np.ndarray) -> bool:
    """Returns whether parameters have the same shapes for rows `(b, t, ...)` half as long."""
    shapes = lambda array: jax.eval_shape(model.init, jax.random.key(0), array)["params"]
    try:
        return shapes(sample[:, : (sample.shape[1] + 1) // 2]) == shapes(sample)
    except (TypeError, ValueError, AssertionError):  # it takes the sample, so it refuses the length
        return False


def describe(run: Model, exported: dict[str, Exported], params: dict[int, str]) -> JsonObject:
    """Describes how to use the files."""
    programs = {file: shapes_of(program) for file, program in exported.items()}
    data = run.config.values["data"] if isinstance(run, Run) else vars(run.model)
    return {
        "config": run.config.name if isinstance(run, Run) else run.path.name,
        "task": run.task.name,
        "jax": jax.__version__,
        "matmul_precision": matmul_precision(),
        **programs.pop("prediction.jax"),
        "programs": programs,
        "params": {str(seed): name for seed, name in params.items()},
        "files": sorted(run.task.kept.files),
        "texts": {key: data[key] for key in TEXTS if key in data} | of_texts(run, data),
        "generation": of_generation(run) if "prefill.jax" in exported else {},
    }


def of_generation(run: Model) -> JsonObject:
    """Describes where texts start and end."""
    task = run.task
    assert isinstance(task, LanguageModel)
    start, data = task.inputs.encoded(""), task.inputs.data
    ends = start if data.by_line else sorted(task.ends)
    return {"max_length": data.max_length, "start": start, "always": data.by_line, "ends": ends}


def of_texts(run: Model, data: JsonObject) -> JsonObject:
    """Describes the rules and tokenizers of texts, for a program without `flax_attn`."""
    files, preprocessing = run.task.kept.files, data.get("preprocessing")
    rules = {"rules": RULES[preprocessing]} if preprocessing else {}
    tokenizers = {name: described(files[name]) for name in TOKENIZERS if name in files}
    if "pairs.json" in tokenizers:
        tokenizers["pairs.json"] |= {"rules": RULES_OF_PAIRS}
    return rules | {"tokenizers": tokenizers} if tokenizers else {}


def shapes_of(program: Exported) -> JsonObject:
    """Describes the platforms of a program, and shapes and dtypes of its inputs and outputs."""
    arguments, _ = jax.tree.unflatten(program.in_tree, program.in_avals)
    inputs = arguments[-1] if len(arguments) < 3 else arguments[1:]  # without the parameters
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
        return json.dumps(content, indent=2).encode()  # as an escape again
