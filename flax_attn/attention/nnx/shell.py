"""The shell of a module of `flax.nnx`: its parameters, random keys and name."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import InitVar
from typing import Any, ClassVar

import jax
from flax import nnx
from flax.core import FrozenDict
from flax.typing import Initializer
from jaxtyping import Array

from flax_attn.attention.checks import Score
from flax_attn.attention.layers.shells import LayerBase, Norm
from flax_attn.types import Options, Tree

Metadata = Mapping[str, Any]  # of the variables of parameters, as in `nnx.Linear`
NO_METADATA: Metadata = FrozenDict()


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Shell(LayerBase, nnx.Module):
    """The shell of a module of `flax.nnx`. A layer makes its parameters in `_make_params`.

    Attributes:
        rngs: the random streams of the parameters and of dropout.
        deterministic: whether dropout is off in calls without `train`.
        path: path of the layer in its model, set by `name_layers`.
        drawn: the stream that the layer draws from in training.
    """

    rngs: InitVar[nnx.Rngs]
    deterministic: bool = False
    path: str = dataclasses.field(default="", init=False)
    drawn: ClassVar[str] = "dropout"

    def __post_init__(self, rngs: nnx.Rngs | None) -> None:
        draws = self.drawn != "dropout" or getattr(self, "dropout_rate", 0.0)
        self.stream = nnx.data(rngs[self.drawn].fork() if draws and rngs is not None else None)
        if rngs is not None:
            self._make_params(rngs)
        # the variables hold metadata; an initialiser is a closure, which is not pickled, and makes
        # programs of equal layers differ
        for name in [name for name in vars(self) if name.endswith(("metadata", "_init"))]:
            vars(self).pop(name)

    def _make_params(self, rngs: nnx.Rngs) -> None:
        """Makes the parameters under the names by which the computation asks for them."""

    def _add_param(
        self,
        name: str,
        rngs: nnx.Rngs,
        init: Initializer,
        shape: tuple[int, ...],
        metadata: Metadata = NO_METADATA,
    ) -> None:
        value = init(rngs.params(), shape, self.param_dtype)
        setattr(self, name, nnx.data(nnx.Param(value, **metadata)))

    def _add_dense(
        self, name: str, widths: tuple[int, int], rngs: nnx.Rngs, **options: Any
    ) -> None:
        for setting in ("kernel_init", "kernel_metadata", "bias_metadata"):
            options |= {setting: getattr(self, setting)} if hasattr(self, setting) else {}
        options |= {"param_dtype": self.param_dtype, "promote_dtype": as_inputs_are}
        setattr(self, name, nnx.Linear(*widths, rngs=rngs, **options))

    def _add_norm(self, name: str, norm: Norm, width: int, rngs: nnx.Rngs, **options: Any) -> None:
        setattr(self, name, norm(width, param_dtype=self.param_dtype, rngs=rngs, **options))

    def _path(self) -> str:
        return self.path

    def _param(self, name: str, init: Initializer, shape: tuple[int, ...]) -> Array:
        del init, shape  # the parameter was made with both
        return getattr(self, name)[...]

    def _dense(self, name: str, features: int, inputs: Array, **options: Tree) -> Array:
        del features, options  # the dense layer was made with both
        return getattr(self, name)(inputs)

    def _normed(self, name: str, inputs: Array) -> Array:
        with jax.numpy_dtype_promotion("standard"):  # the mean is in float32
            return getattr(self, name)(inputs).astype(inputs.dtype)

    def _drop(self, inputs: Array, train: bool | None) -> Array:
        if not self.dropout_rate or not self._is_training(train):
            return inputs
        dropout = nnx.Dropout(self.dropout_rate)
        return dropout(inputs, deterministic=False, rngs=self._key("dropout"))

    def _is_training(self, train: bool | None) -> bool:
        return not self.deterministic if train is None else train

    def _of_training(self, train: bool | None) -> Options:
        return {} if train is None else {"train": train}  # parts of a block know their own state

    def _key(self, stream: str) -> Array:
        if self.stream is None:
            raise ValueError(
                f"expected a stream {stream} in training; make the layer with rngs=nnx.Rngs(0), or "
                "call model.eval()"
            )
        return self.stream()

    def _score(self, score: Tree, query: Array, key: Array) -> Score:
        del query, key  # the score was made with their widths
        bound = getattr(score, "bound", None)  # of a `LearnedScore`
        return score if bound is None else bound()

    def _captures(self) -> bool:
        captures: Sequence[nnx.Variable] = getattr(self, "__captures__", ())
        return any(type(variable) is nnx.Intermediate for variable in captures)

    def _sow(self, weights: Array) -> None:
        self.sow(nnx.Intermediate, "attention_weights", weights)

    def set_view(self, deterministic: bool | None = None) -> None:
        """Turns dropout off or on, for `nnx.view`.

        Args:
          deterministic: whether dropout is off in calls without `train`; None for no change.
        """  # `nnx.view_info` reads two spaces
        if deterministic is not None:
            self.deterministic = deterministic


def as_inputs_are(arrays: Any, /, **_: Any) -> Any:
    """Converts parameters to the dtype of the inputs, for `promote_dtype=`."""
    inputs = arrays[0]
    return tuple(None if array is None else array.astype(inputs.dtype) for array in arrays)


def name_layers(model: nnx.Module) -> None:
    """Gives each layer of this package its path in a model, such as `blocks/1/attention`.

    A `Lens` tells attentions apart by it. A layer that is shared has one of its paths.
    """
    for path, module in nnx.iter_modules(model):
        if isinstance(module, Shell):
            module.path = "/".join(map(str, path))
