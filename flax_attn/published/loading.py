"""A published model from a folder."""

from pathlib import Path
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from flax_attn.errors import UsageError, shortened
from flax_attn.models.forward import Params
from flax_attn.published.families import FAMILIES, fill
from flax_attn.published.folder import Config, open_arrays
from flax_attn.published.modules import AnyModel, Encoder, VisionTransformer
from flax_attn.runs import untrusted
from flax_attn.types import Tree

MOST_READ = 1_024  # tokens, unless more are asked for


class Published(NamedTuple):
    """A model with its parameters, and the options it was published with."""

    config: Config
    model: AnyModel
    params: Params


def read(folder: Path, max_length: int = MOST_READ) -> Published:
    """Reads the model of a folder, in float32.

    Args:
        folder: with `config.json`, and `model.safetensors` or its index.
        max_length: the number of tokens that the model reads at most, where it can read as many.

    Raises:
        UsageError: a family, an option or a dtype that is not covered; arrays that are missing,
            damaged, left over, or of another shape.
    """
    name = "config.json"
    content = untrusted.read_json(folder, name)
    kind = content.get("model_type") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UsageError(
            f"expected a model_type of {', '.join(FAMILIES)} in {folder / name}, got "
            f"{shortened(repr(kind))}"
        )
    family, config = FAMILIES[kind], Config(content, folder / name)
    for scheme in ("quantization_config", "auto_map"):
        if config.get(scheme, None) is not None:
            raise UsageError(f"expected a model without {scheme} in {folder / name}, got one")
    made_of = config.get("architectures", [])
    if (
        not isinstance(made_of, list)
        or len(made_of) > 1
        or not all(isinstance(name, str) and name.endswith(family.classes) for name in made_of)
    ):  # other heads, which have arrays of the same names
        expected = f"one name that ends in {', '.join(family.classes)}"
        raise config.wrong("architectures", expected, made_of)
    arrays = open_arrays(folder, family.prefixes)
    try:
        model, layout = family.build(config, arrays)
        config.check_all_known()
        if model.num_blocks > len(arrays):  # to make so many takes minutes
            raise ValueError(f"{model.num_blocks} blocks, and {len(arrays)} arrays")
        if not isinstance(model, VisionTransformer):
            model = model.clone(max_length=min(model.max_length, max_length))
        shapes = jax.eval_shape(model.init, jax.random.key(0), sample(model))["params"]
    except UsageError:
        raise
    except (OverflowError, TypeError, ValueError) as error:
        message = shortened(str(error))
        raise UsageError(f"expected sizes that fit in {folder / name} ({message})") from error
    params = fill(shapes, arrays, layout)
    arrays.check_all_read(family.ignored)
    return Published(config, model, jax.tree.map(jnp.asarray, params))


def sample(model: nn.Module) -> Tree:
    """Inputs of the shapes and dtypes that a model takes."""
    if isinstance(model, VisionTransformer):
        size = model.image_size
        return jax.ShapeDtypeStruct((1, size, size, model.channels), jnp.float32)
    tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    if isinstance(model, Encoder):
        return {"tokens": tokens, "lengths": jax.ShapeDtypeStruct((1,), jnp.int32)}
    return tokens
