"""A trained run as JSON that lives in a page: what it predicts, and its weights, as equations.

    inputs        name, shape and dtype of what the user gives, one example; none for a text
    settings      the names of the further inputs: how the attention is changed
    normalizers   the names of the programs
    programs      of each normaliser the outputs by name, `[number of the value, shape]`
    graph         the equations of all programs, as `graph.as_json` writes them
    constants     the bytes of all constants in base64: the parameters, and what they alone decide
    classes       the names of the classes, or null
    text          how a text becomes tokens, or null
    note          what the user should know, or null

`page/engine/interpreter.mjs` reads it.
"""

import base64
import functools
import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from flax_attn import platforms
from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.loading import Run
from flax_attn.explore.graph import Graph, Pool, as_json
from flax_attn.explore.under_lens import Compute, Traced, under_lens
from flax_attn.models.forward import Params
from flax_attn.tasks.asking import AS_TRAINED, NORMALIZERS, Settings
from flax_attn.tasks.inputs.base import SERVED
from flax_attn.tasks.replies import by_heads
from flax_attn.types import JsonObject, Tree

MOST_BYTES = 1_300_000  # of the JSON
UNCHANGED = Traced.of(Settings())


class PagePrograms(NamedTuple):
    """The programs of a run, one for each normaliser, in one graph.

    Attributes:
        graph: its inputs are those of the user and then those of `Traced`.
        inputs: the user's inputs by name, with their shapes and dtypes.
        outputs: of each normaliser the values of the outputs by name.
    """

    graph: Graph
    inputs: dict[str, jax.ShapeDtypeStruct]
    outputs: dict[str, dict[str, int]]


def live(run: Run) -> JsonObject:
    """Returns a run's first seed as JSON for a page, whose interpreter answers without Python.

    Raises:
        UsageError: a task that needs Python, a primitive that the interpreter does not know, or
            too many bytes; the text says why a model does not answer in a page.
    """
    content = written(run, programs_of(run))
    size = len(json.dumps(content, separators=(",", ":"), allow_nan=False))
    if size > MOST_BYTES:
        raise UsageError(
            f"it takes {size / 1e6:.1f} MB, and a page holds {MOST_BYTES / 1e6:g} MB; {SERVED}"
        )
    return content


def written(run: Run, programs: PagePrograms) -> JsonObject:
    """Returns the JSON of `live`, of any size."""
    pool = Pool()
    names = [(program, name) for program, arrays in programs.outputs.items() for name in arrays]
    values = [programs.outputs[program][name] for program, name in names]
    try:
        graph, numbers = as_json(programs.graph, values, pool)
    except UsageError as error:
        raise UsageError(
            f"a page does not know {error} of the model '{run.config.model['name']}'; {SERVED}"
        ) from error
    outputs: dict[str, JsonObject] = {program: {} for program in programs.outputs}
    for (program, name), value, number in zip(names, values, numbers):
        shape = programs.graph.avals[value].shape
        outputs[program][name] = [number, shape_of(name, shape)]
    return {
        "inputs": [
            {"name": name, "shape": list(arrays.shape[1:]), "dtype": str(arrays.dtype)}
            for name, arrays in programs.inputs.items()
            if name == "inputs"
        ],
        "settings": list(Traced._fields),
        "normalizers": list(outputs),
        "programs": {program: {"outputs": arrays} for program, arrays in outputs.items()},
        "graph": graph,
        "constants": base64.b64encode(pool.content).decode(),
        "classes": run.task.target.class_names(),
        "text": run.task.inputs.tokenization(),
        "note": of_seeds(run),
    }


def programs_of(run: Run) -> PagePrograms:
    """Traces the programs of a run's first seed. Errors are those of `live`, without the size."""
    inputs, compute = run.task.inputs.live_shapes(), computation(run)
    settings = [jax.ShapeDtypeStruct(np.shape(array), array.dtype) for array in UNCHANGED]
    graph = Graph([*inputs.values(), *settings])
    outputs: dict[str, dict[str, int]] = {}
    refused: Exception | None = None
    for normalizer in NORMALIZERS:
        try:
            program, names = trace(compute, next(iter(run.params.values())), inputs, normalizer)
        except (TypeError, ValueError) as error:  # a layer that another normaliser does not fit
            refused = error
            continue
        outputs[normalizer] = dict(zip(names, graph.add(program, graph.inputs)))
        if not any(name.startswith("attention/") for name in names):
            break  # all normalisers give the same
    if AS_TRAINED not in outputs:
        assert refused is not None
        raise UsageError(
            f"the attention of '{run.config.model['name']}' cannot be changed "
            f"({one_line(refused)[:200]}); {SERVED}"
        ) from refused
    return PagePrograms(graph, inputs, outputs)


def computation(run: Run) -> Compute:
    """Returns what the server computes, too, from parameters of NumPy or JAX."""
    compute = functools.partial(run.task.look, run.model)
    return lambda params, inputs: compute(jax.tree.map(jnp.asarray, params), inputs)


def trace(
    compute: Compute, params: Params, inputs: dict[str, jax.ShapeDtypeStruct], normalizer: str
) -> tuple[ClosedJaxpr, list[str]]:
    """Traces the program of a normaliser; returns it with the names of its outputs.

    Scores are among them where a model has its attention outside loops, which no score can leave.
    """

    def look(keep_scores: bool) -> tuple[ClosedJaxpr, list[str]]:
        program, names = under_lens(compute, keep_scores), []

        def run(arrays: list[Tree], settings: Traced) -> list[Tree]:
            named = dict(zip(inputs, arrays))  # JAX would take a dict in the order of its names
            asked = named.get("inputs", named)
            keys = inputs["source"].shape[1] if "source" in inputs else None
            looked = program([params], asked, settings, normalizer, keys)
            named = {name: array for name, array in looked.items() if not isinstance(array, dict)}
            for kind in ("attention", "scores"):
                named |= {f"{kind}/{name}": array for name, array in looked.get(kind, {}).items()}
            names.extend(named)
            return list(named.values())

        return jax.make_jaxpr(run)(list(inputs.values()), UNCHANGED), names

    with platforms.compiling_for(platforms.PORTABLE):
        try:
            return look(keep_scores=True)
        except ValueError:
            return look(keep_scores=False)


def shape_of(name: str, shape: tuple[int, ...]) -> list[int]:
    """Returns the shape of an output without its batch; of weights and scores `(heads, q, k)`."""
    _, _, attention = name.partition("/")
    if not attention:
        return list(shape[1:])
    nothing = np.broadcast_to(np.float32(0), shape[1:])  # takes no memory
    return list(by_heads(attention, nothing).shape)


def of_seeds(run: Run) -> str | None:
    """Returns a line where the page has one seed of several."""
    count, first = len(run.params), next(iter(run.params))
    return f"The page has the model of seed {first}, the first of {count}." if count > 1 else None
