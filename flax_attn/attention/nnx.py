"""Multi-head attention as a module of `flax.nnx`."""

from typing import Unpack

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention.cache import Cache, KeyValueCache, SlidingCache
from flax_attn.attention.checks import PerPair, Window
from flax_attn.attention.core import Attended
from flax_attn.attention.layers.multi_head import MultiHeadAttention as LinenMultiHeadAttention
from flax_attn.attention.visibility import Limits
from flax_attn.types import Options, Tree, UserInput


class MultiHeadAttention(nnx.Module):
    """The layer `MultiHeadAttention` of `flax.linen`, as a module of `flax.nnx`.

        attention = MultiHeadAttention(8, 64, rotary=True, rngs=nnx.Rngs(0))
        context, weights = attention(inputs, causal=True)

    The module holds the parameters, and applies the layer to them. So all results are those of the
    layer, with every option. The paths of the parameters are those of the layer, and of
    `flax.nnx.MultiHeadAttention`, such as `query.kernel` `(in_features, heads, width)`.

    Dropout is on with `train=True`, and after `model.train()` or in `nnx.view(model,
    deterministic=False)`.

    Attributes:
        num_heads: number of query heads.
        in_features: width of the inputs of queries.
        in_key_features: width of those of keys; None for `in_features`.
        in_value_features: width of those of values; None for `in_key_features`.
        rngs: random keys: the stream `params` for the parameters, and `dropout` if dropout is used.
            `nnx.Rngs(0)` has both.
        attributes: the other attributes of the layer of linen.
        linen: the layer, which holds the attributes.
        deterministic: whether there is no dropout where `train` is left out; at first True.

    Raises:
        ValueError: `rngs` has no stream `params`. Other errors are those of the layer.
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        *,
        in_key_features: int | None = None,
        in_value_features: int | None = None,
        rngs: nnx.Rngs,
        **attributes: UserInput,
    ):
        in_key_features = in_features if in_key_features is None else in_key_features
        in_value_features = in_key_features if in_value_features is None else in_value_features
        widths = {"in_features": in_features, "in_key_features": in_key_features}
        widths |= {"in_value_features": in_value_features}
        self.in_features = in_features
        self.in_key_features, self.in_value_features = in_key_features, in_value_features
        self.linen = LinenMultiHeadAttention(num_heads, **attributes, parent=None)
        self.deterministic = True
        params = _stream(rngs, "params")
        if params is None:
            raise ValueError("expected rngs with a stream params, such as nnx.Rngs(0)")
        inputs = (jax.ShapeDtypeStruct((1, width), jnp.float32) for width in widths.values())
        variables = self.linen.lazy_init(params(), *inputs)
        self._names = tuple(variables["params"])
        for name, tree in variables["params"].items():
            setattr(self, name, _as_params(tree))
        dropout = _stream(rngs, "dropout") if self.linen.dropout_rate else None
        self.rngs = None if dropout is None else dropout.fork()

    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"] | None = None,
        value: Float[Array, "*b k _"] | None = None,
        *,
        cache: KeyValueCache | None = None,
        train: bool | None = None,
        need_weights: bool = True,
        rngs: nnx.Rngs | None = None,
        **limits: Unpack[Limits],
    ) -> Attended:
        """Attends from `query` to `key`, as the layer of linen does.

        Args:
            query, key, value: `(..., q, d)` and `(..., k, _)`. Without `key`, the key is the query.
                Without `value`, the value is the key.
            train: whether there is dropout; None for the module's `deterministic`.
            rngs: a stream `dropout` for this call, instead of the module's own.
            cache, need_weights, limits: as in the layer of linen: masks, lengths, `causal` and so
                on.

        Returns:
            `Attended` with the context `(..., q, out_features)` and weights `(..., heads, q, k)`.

        Raises:
            ValueError: dropout without a random key. Other errors are those of the layer.
        """
        options: Options = {"cache": cache, "need_weights": need_weights, **limits}
        return self._apply("__call__", query, key, value, **options, **self._dropout(train, rngs))

    def extend(
        self,
        cache: Cache,
        key: Float[Array, "*b t d"],
        value: Float[Array, "*b t _"] | None = None,
        lengths: ArrayLike | None = None,
    ) -> Cache:
        """Returns the cache with the keys and values of `t` more tokens, `lengths` of them real.

        Errors are those of the layer of linen.
        """
        return self._apply("extend", cache, key, value, lengths)

    def decode(
        self,
        inputs: Float[Array, "*b t d"],
        cache: Cache,
        *,
        lengths: ArrayLike | None = None,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        window: Window | None = None,
        prefix_lengths: ArrayLike | None = None,
        train: bool | None = None,
        need_weights: bool = True,
        rngs: nnx.Rngs | None = None,
    ) -> tuple[Attended, Cache]:
        """Attends causally, from `t` new tokens to themselves and to the cached ones.

        It returns the result and the cache with the new tokens. `train` and `rngs` are those of
        `__call__`. Other arguments and errors are those of the layer of linen.
        """
        options: Options = {"lengths": lengths, "mask": mask, "bias": bias, "window": window}
        options |= {"prefix_lengths": prefix_lengths, "need_weights": need_weights}
        return self._apply("decode", inputs, cache, **options, **self._dropout(train, rngs))

    def init_cache(
        self,
        leading: tuple[int, ...],
        max_length: int | None = None,
        dtype: DTypeLike | None = None,
        window: Window | None = None,
    ) -> KeyValueCache | SlidingCache:
        """Makes an empty cache for inputs `(*leading, t, in_features)`.

        Arguments and errors are those of the layer of linen. It asks for the width of the inputs,
        too, which this module knows.
        """
        return self.linen.init_cache(self.in_features, leading, max_length, dtype, window)

    def set_view(self, deterministic: bool | None = None) -> None:
        """Sets whether there is dropout, for `nnx.view`.

        Args:
            deterministic: whether there is none where `train` is left out.
        """
        if deterministic is not None:
            self.deterministic = deterministic

    def _apply(self, method: str, *inputs: UserInput, **options: UserInput) -> UserInput:
        """Applies the layer to the parameters."""
        params = {name: _as_arrays(getattr(self, name)) for name in self._names}
        return self.linen.apply({"params": params}, *inputs, **options, method=method)

    def _dropout(self, train: bool | None, rngs: nnx.Rngs | None) -> Options:
        """Makes the arguments `train` and `rngs` of the layer, with a new key where it drops."""
        train = not self.deterministic if train is None else train
        if not train or not self.linen.dropout_rate:
            return {"train": train}
        stream = self.rngs if rngs is None else _stream(rngs, "dropout")
        if stream is None:
            raise ValueError(
                "expected a stream dropout with train=True; make the module with "
                "nnx.Rngs(params=0, dropout=1), or pass rngs=nnx.Rngs(dropout=1)"
            )
        return {"train": train, "rngs": {"dropout": stream()}}


def _stream(rngs: nnx.Rngs, name: str) -> nnx.RngStream | None:
    """Returns the stream of a name, or the default one, or None."""
    return rngs[name] if name in rngs or "default" in rngs else None


def _as_params(tree: Tree) -> Tree:
    """Makes parameters of nnx from arrays in the dicts of linen."""
    if isinstance(tree, dict):
        return nnx.Dict({name: _as_params(inner) for name, inner in tree.items()})
    return nnx.Param(tree)


def _as_arrays(tree: Tree) -> Tree:
    """Makes arrays in the dicts of linen from parameters of nnx."""
    if isinstance(tree, nnx.Dict):  # `nnx.tabulate` counts calls of its methods, such as `items`
        parts = {name: inner for name, inner in vars(tree).items() if not name.startswith("_")}
        return {name: _as_arrays(inner) for name, inner in parts.items()}
    return tree[...]
