"""A trained model applied to any number of inputs."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flax_attn.attention import Across, Lens
from flax_attn.errors import UsageError
from flax_attn.models.sizes import in_batches
from flax_attn.types import Tree

Own = TypeVar("Own")  # what is kept of each layer
CompiledFunction = TypeVar("CompiledFunction", bound=Callable[..., Tree])
Inputs = Tree  # an array `(n, ...)`, or a dict of them
TokenInputs = dict[str, Int[Array, "..."]]  # tokens, lengths and others by name
SignalOutputs = tuple[Float[Array, "b t c"], dict]
Params = Mapping[str, Tree]  # by the name of the layer


def forward(model: nn.Module, params: Params, inputs: Inputs) -> np.ndarray:
    """Computes the outputs `(n, ...)` of any number of inputs."""
    return in_batches(lambda batch: apply_together(model, params, batch)[0], inputs)


def check_finite(outputs: Tree) -> None:
    """Raises a UsageError for outputs of a model that are infinite, or not a number."""
    if not np.isfinite(outputs).all():
        raise UsageError(
            "expected outputs that are finite numbers, got some that are not; numbers of the model "
            "or of the input are too large or are not finite themselves"
        )


def in_order(attention: Mapping[str, Own]) -> dict[str, Own]:
    """Sorts attention by name, `block2` before `block10`: JAX sorts names as texts."""

    def key(name: str) -> list[str | int]:
        return [int(part) if i % 2 else part for i, part in enumerate(re.split("([0-9]+)", name))]

    return {name: attention[name] for name in sorted(attention, key=key)}


def as_constant(model: Tree) -> Tree:
    """Returns a module of linen, or the graph of one of nnx, without dropout, with named layers."""
    if isinstance(model, nn.Module):
        return model
    from flax import nnx  # to import it takes as long as linen

    from flax_attn.attention.nnx import name_layers

    if not isinstance(model, nnx.Module):
        return model  # a graph already
    name_layers(model)
    return nnx.graphdef(nnx.view(model, deterministic=True, raise_if_not_found=False))


def compiled(function: CompiledFunction) -> CompiledFunction:
    """Compiles a function of a model, its parameters and inputs. Arrays by layer come in order.

    A model, a function `measure`, `patterns` of sites, `steps` and `exact` are constants of its
    programs.
    """
    signature = inspect.signature(function)
    constants = ("model", "measure", "patterns", "steps", "exact")
    static = [name for name in constants if name in signature.parameters]
    jitted = jax.jit(function, static_argnames=static)

    @functools.wraps(function)
    def call(model: Tree, params: Params, *args: Tree, **options: Tree) -> Tree:
        model = as_constant(model)
        if "params" in params:
            raise ValueError("expected parameters by layer, got variables; pass their 'params'")
        made = jitted(model, params, *args, **options)
        return in_order(made) if isinstance(made, dict) else made

    return call  # pyright: ignore


def sharing_sequences(model: nn.Module) -> nn.Module:
    """Makes the devices along the axis `sequence` share each sequence of a Transformer."""
    if not hasattr(model, "across"):
        raise UsageError("expected a Transformer to share its sequences; leave --sequence out")
    return model.clone(across=Across())


def apply(
    model: nn.Module, params: Params, inputs: Inputs
) -> tuple[Float[Array, "n ..."], dict[str, Array]]:
    """Computes outputs `(n, ...)` and the attention by name: a pure function, all at once.

    A model that carries state from one example to the next starts afresh for each, so no prediction
    depends on the others.
    """
    one = jax.tree.map(lambda array: array[:1], inputs)
    with Lens():  # only shapes are wanted, and scores of a lens around this could not leave
        carry = jax.eval_shape(model.init, jax.random.key(0), one).get("carry", {})
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), carry)

    def together(inputs: Inputs) -> tuple[Array, dict[str, Array]]:
        applied: Tree = model.apply({"params": params, "carry": zeros}, inputs)
        outputs, aux = applied
        return outputs, aux.get("attention", {})

    def alone(row: Inputs) -> tuple[Array, dict[str, Array]]:
        outputs = together(jax.tree.map(lambda array: array[None], row))  # (1, ...)
        return jax.tree.map(lambda array: array[0], outputs)

    return jax.vmap(alone)(inputs) if carry else together(inputs)


apply_together = jax.jit(apply, static_argnames="model")
