"""Attention in Flax: a library of mechanisms, models with them, and a program that trains them.

    run = flax_attn.train("shapes_attention:quick")
    run = flax_attn.load("runs/shapes_attention-quick")
    prediction = run.predict(signals)
    figure = flax_attn.plot.attention(prediction.attention["attention"][0])
    flax_attn.show(run)
    flax_attn.export(run, "exported")

Each name is imported when it is first used.
"""
# pyright: strict

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flax_attn import circuits as circuits
    from flax_attn import heads as heads
    from flax_attn.analysis import plotting as plot
    from flax_attn.experiment.exporting import export as export
    from flax_attn.experiment.face import train as train
    from flax_attn.experiment.loading import Model as Model
    from flax_attn.experiment.loading import Run as Run
    from flax_attn.experiment.loading import load as load
    from flax_attn.explore.showing import show as show
    from flax_attn.tasks.artifacts import Prediction as Prediction
    from flax_attn.tasks.language import Generated as Generated

__version__ = "0.1.0"

FACE = {
    "load": "flax_attn.experiment.loading",
    "train": "flax_attn.experiment.face",
    "show": "flax_attn.explore.showing",
    "export": "flax_attn.experiment.exporting",
    "Model": "flax_attn.experiment.loading",
    "Run": "flax_attn.experiment.loading",
    "Prediction": "flax_attn.tasks.artifacts",
    "Generated": "flax_attn.tasks.language",
}
MODULES = {
    "circuits": "flax_attn.circuits",
    "heads": "flax_attn.heads",
    "plot": "flax_attn.analysis.plotting",
}
__all__ = [
    "Generated",
    "Model",
    "Prediction",
    "Run",
    "circuits",
    "export",
    "heads",
    "load",
    "plot",
    "show",
    "train",
]


if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others

    def __getattr__(name: str) -> object:
        if name in MODULES:
            return importlib.import_module(MODULES[name])
        if name not in FACE:
            raise AttributeError(
                f"module 'flax_attn' has no attribute {name!r}; functions and layers of attention "
                f"are in flax_attn.attention"
            )
        value = getattr(importlib.import_module(FACE[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
