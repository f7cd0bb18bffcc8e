"""What computations of layers ask of the library that holds their parameters.

A layer is a computation in a shell. The computation, such as `MultiHeadBase`, has the arguments of
the layer and its formula. The shell holds the parameters and the random keys: `LinenShell` is that
of `flax.linen`, and `flax_attn.attention.nnx.Shell` that of `flax.nnx`. So both have one
implementation, and computations ask for nothing but the methods of `LayerBase`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array

from flax_attn.attention.checks import Score, as_floats, check_dropout
from flax_attn.attention.core import Attended, compute, make_call
from flax_attn.attention.visibility import hide, real_tokens
from flax_attn.types import Options, Tree

if TYPE_CHECKING:
    Returned = Attended  # by default
else:
    Returned = Attended | Array  # the context alone with `return_weights=False`

glorot, lecun = nn.initializers.glorot_uniform(), nn.initializers.lecun_normal()
Norm = Callable[..., Any]  # a class such as `nn.LayerNorm`, or a function of its attributes


class LayerBase:
    """The methods of a shell, and what follows from them.

    Attributes:
        return_weights: whether a call returns `Attended`; with False it returns the context alone,
            and the weights are computed only where they are captured.
    """

    return_weights: bool
    dropout_rate: float
    param_dtype: DTypeLike

    def _path(self) -> str:
        """Returns the path of the layer in its model, such as `blocks_1/attention`, or nothing."""
        raise NotImplementedError

    def _param(self, name: str, init: Initializer, shape: tuple[int, ...]) -> Array:
        """Returns a parameter of the layer's `param_dtype`."""
        raise NotImplementedError

    def _dense(self, name: str, features: int, inputs: Array, **options: Tree) -> Array:
        """Applies the dense layer of a name, in the dtype of the inputs."""
        raise NotImplementedError

    def _normed(self, name: str, inputs: Array) -> Array:
        """Applies the norm of a name, in the dtype of the inputs."""
        raise NotImplementedError

    def _drop(self, inputs: Array, train: bool | None) -> Array:
        """Drops some of the inputs in training."""
        raise NotImplementedError

    def _is_training(self, train: bool | None) -> bool:
        raise NotImplementedError

    def _of_training(self, train: bool | None) -> Options:
        """Returns the arguments that tell the parts of a block whether to drop."""
        raise NotImplementedError

    def _key(self, stream: str) -> Array:
        """Returns a new random key."""
        raise NotImplementedError

    def _score(self, score: Tree, query: Array, key: Array) -> Score:
        """Returns a score function with its parameters; a `BilinearScore` for None."""
        raise NotImplementedError

    def _captures(self) -> bool:
        """Returns whether the user asked for what layers sow."""
        raise NotImplementedError

    def _sow(self, weights: Array) -> None:
        raise NotImplementedError

    def _dropout(self, train: bool | None) -> Options:
        """Makes the arguments of dropout: in training, the rate and a key of `dropout`."""
        rate = getattr(self, "dropout_rate", 0.0) if self._is_training(train) else 0.0
        if not rate:
            return {}
        check_dropout(rate, rng := self._key("dropout"))
        return {"dropout_rate": rate, "dropout_rng": rng}

    def _wants(self, need_weights: bool) -> bool:
        """Returns whether weights are computed: where they are returned or captured."""
        return (need_weights and self.return_weights) or self._captures()

    def _returned(self, attended: Attended, need_weights: bool = True) -> Returned:
        """Sows the weights where they are captured, and returns what the caller asked for."""
        context, weights = attended
        if weights is not None and self._captures():
            self._sow(weights)
        if not self.return_weights:
            return cast(Attended, context)
        return Attended(context, weights if need_weights else None)

    def _attended(
        self,
        inputs: tuple[Array, Array, Array],
        score: Tree,
        need_weights: bool,
        train: bool | None = None,
        **options: Any,
    ) -> Returned:
        """Attends from queries to keys and values, with other options of `make_call`."""
        query, key, _ = inputs  # (..., q, d), (..., k, d')
        call = make_call(
            *inputs,
            score=self._score(score, query, key),
            need_weights=self._wants(need_weights),
            name=self._path(),
            **self._dropout(train),
            **options,
        )
        return self._returned(compute(call), need_weights)


class LinenShell(LayerBase):
    """The shell of a module of `flax.linen`, whose methods linen does not wrap."""

    def _path(self: Any) -> str:
        return "" if self.scope is None else "/".join(self.path)

    def _param(self: Any, name: str, init: Initializer, shape: tuple[int, ...]) -> Array:
        return jnp.asarray(self.param(name, init, shape, self.param_dtype))  # may be of NumPy

    def _dense(self: Any, name: str, features: int, inputs: Array, **options: Tree) -> Array:
        dtypes: Options = {"dtype": inputs.dtype, "param_dtype": self.param_dtype}
        return nn.Dense(features, name=name, **dtypes, **options)(inputs)

    def _normed(self: Any, name: str, inputs: Array) -> Array:
        return apply_norm(
            self.norm,
            inputs,
            name=name,
            dtype=inputs.dtype,
            param_dtype=self.param_dtype,
            epsilon=self.epsilon,
        )

    def _drop(self: Any, inputs: Array, train: bool | None) -> Array:
        return nn.Dropout(self.dropout_rate, deterministic=not train)(inputs)

    def _is_training(self: Any, train: bool | None) -> bool:
        return bool(train)

    def _of_training(self: Any, train: bool | None) -> Options:
        return {"train": bool(train)}

    def _key(self: Any, stream: str) -> Array:
        return self.make_rng(stream)

    def _score(self: Any, score: Tree, query: Array, key: Array) -> Score:
        return score(query.shape[-1], key.shape[-1]) if isinstance(score, nn.Module) else score

    def _captures(self: Any) -> bool:
        return self.scope is not None and self.is_mutable_collection("intermediates")

    def _sow(self: Any, weights: Array) -> None:
        self.sow("intermediates", "attention_weights", weights)


def apply_norm(norm: Norm, inputs: Array, **options: Any) -> Array:
    """Applies a norm of linen in a compact method, also where the user asked for strict promotion.

    In half precision it computes the mean in float32, and mixes both.
    """
    with jax.numpy_dtype_promotion("standard"):
        return norm(**options)(inputs)


def as_attended(result: tuple | Array) -> Attended:
    """Returns context and weights of a layer, also of one with `return_weights=False`."""
    return Attended(*result[:2]) if isinstance(result, tuple) else Attended(result, None)


def as_input(name: str, array: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """Converts an input of a layer to an array of floats, in the given dtype or in its own."""
    array = as_floats(name, array)
    return array if dtype is None else array.astype(dtype)


def as_inputs(
    query: ArrayLike, key: ArrayLike, value: ArrayLike | None, dtype: DTypeLike | None = None
) -> tuple[Array, Array, Array]:
    """Converts query, key and value by `as_input`; without values they are the keys."""
    query, key = as_input("query", query, dtype), as_input("key", key, dtype)
    return query, key, key if value is None else as_input("value", value, dtype)


def without_padding(inputs: Array, lengths: ArrayLike | None) -> Array:
    """Zeros the inputs `(..., t, d)` from `lengths` `(...)` on."""
    real = real_tokens(lengths, inputs.shape[:-2], inputs.shape[-2])  # (..., t)
    return inputs if real is None else hide(inputs, real)
