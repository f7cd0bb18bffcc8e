"""The public names. The pages of `docs/api` have an entry for each."""

import types

import flax_attn
from flax_attn import attention, circuits, heads, models
from flax_attn.attention import masks, nnx

MODULES = {
    "flax_attn.circuits",
    "flax_attn.heads",
    "flax_attn.plot",
    "masks",
}  # among the names of packages
OTHERS = {
    "circuits.score_parts": "flax_attn.circuits.score_parts",
    "circuits.ScoreParts": "flax_attn.circuits.ScoreParts",
    "plot.attention": "flax_attn.plot.attention",
    "plot.attention_on_text": "flax_attn.plot.attention_on_text",
    "plot.state": "flax_attn.plot.state",
    "shapes.generate": "flax_attn.data.shapes.generate",
    "UsageError": "flax_attn.errors.UsageError",
    "check_attention": "flax_attn.testing.check_attention",
    "Result": "flax_attn.testing.Result",
}


def public_names() -> dict[str, str]:
    """The full name of each public function and class, by the name that docstrings call it."""
    names = {f"flax_attn.{name}": f"flax_attn.{name}" for name in flax_attn.__all__}
    names |= {name: f"flax_attn.attention.{name}" for name in attention.__all__}
    names |= {f"{nnx.__name__}.{name}": f"{nnx.__name__}.{name}" for name in nnx.__all__}
    names |= {f"masks.{name}": f"flax_attn.attention.masks.{name}" for name in functions(masks)}
    names |= {f"heads.{name}": f"flax_attn.heads.{name}" for name in functions(heads)}
    names |= {f"circuits.{name}": f"flax_attn.circuits.{name}" for name in functions(circuits)}
    own = [model.__name__ for model in models.MODELS.values()]
    names |= {name: f"flax_attn.models.{name}" for name in own}
    return {name: full for name, full in (names | OTHERS).items() if name not in MODULES}


def functions(module: types.ModuleType) -> list[str]:
    """Returns the functions that a module defines for others."""
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
