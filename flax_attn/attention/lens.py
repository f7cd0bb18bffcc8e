"""The lens: other weights from every attention of a model, without a change to the model.

    weights = normalizer(scores / temperature, mask=mask & lens mask)

A lens also reads and changes what models compute at named *sites*, such as
`blocks_0/attention/query`: the path of a layer, and a part of what it computes.

`attend` and all layers look through the lens that is entered. JAX keeps it in the key of every
compiled program. So a function that was compiled before is compiled again within the lens, and
the first program serves again after it.
"""

import fnmatch
import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jax.typing import ArrayLike
from jaxtyping import Array

from flax_attn.attention.arrays import wide
from flax_attn.attention.checks import Normalizer, PerPair, Score, as_mask, as_positive
from flax_attn.attention.normalizers import is_softmax, masked_softmax, needs_all_queries
from flax_attn.attention.visibility import Visibility
from flax_attn.types import UserInput

if TYPE_CHECKING:
    from flax_attn.attention.core import Call

Change = Callable[[str, Array], ArrayLike]  # (site, array) -> array

_context = jax.make_user_context(None)  # a `_Key`, or None without a lens


class Lens:
    """Within it, every attention has weights of another temperature, normaliser or mask.

        weights = normalizer(scores / temperature, mask=mask & lens mask)

        with Lens(temperature=2.0, normalizer=sparsemax, mask=lambda q, k: k != 3) as lens:
            outputs, aux = model.apply(params, inputs)

    It reaches `attend`, `dot_product_attention`, `log_sum_exp` and all layers, under `jit` and
    every other transformation, in blocks and across devices. Without a setting, nothing changes.

    `temperature` and a mask may be traced. One program then serves all of them:

        @jax.jit
        def look(params, inputs, temperature):
            with Lens(temperature=temperature):
                return model.apply(params, inputs)

    Numbers that are not traced are constants of the program, which is compiled once for each. A
    program that was compiled ahead of time (`.compile()`, `jax.export`) stays as it is.

    Of nested lenses only the innermost counts. `Lens()` inside another one gives the layers' own
    weights.

    Args:
        temperature: the scores, after the bias, are divided by it; a number above 0. It makes
            weights flatter above 1, and sharper below. Where it is traced and not above 0, weights
            are NaN.
        normalizer: replaces that of every layer; None leaves each layer's own. In
            `PredictiveLocalAttention` it replaces softmax, and the Gaussian stays.
        mask: boolean, True where a query may attend to a key, beside the masks that there are; an
            array that broadcasts to the weights `(..., q, k)` of every attention, or a function of
            the positions of queries `(q, 1)` and keys `(1, k)`. The queries of a pooling are its
            hops, from position 0 on. `InputAttentionCell` has one query, at position 0.
        keep_scores: whether `scores` has the scores of each attention. All scores of an attention
            then exist at once, on one device.
        change: functions `(site, array) -> array` by patterns of sites, such as `*/context` or
            `blocks_[01]/after`, as in `fnmatch`. Those whose pattern fits a site are called in
            order. All scores and weights of an attention whose scores or weights are changed exist
            at once, on one device. The sites of a model are those of `heads.read`.

    Raises:
        TypeError: a temperature that is no number, or a mask that is not boolean.
        ValueError: a temperature that is not above 0 and finite. Within the lens: a mask that does
            not broadcast to the weights, or beside a sliding cache; a normaliser that needs all
            queries where queries come one at a time; another normaliser than softmax on a ring or
            in `log_sum_exp`; a change that returns another shape; with `keep_scores`, attention in
            a `jit`, loop or derivative that was entered within the lens.
    """

    def __init__(
        self,
        *,
        temperature: ArrayLike | None = None,
        normalizer: Normalizer | None = None,
        mask: PerPair | None = None,
        keep_scores: bool = False,
        change: Mapping[str, Change] | None = None,
    ) -> None:
        is_set = temperature is not None
        self.temperature = as_positive("temperature", temperature) if is_set else None
        self.normalizer = normalizer
        self.mask = _copied(mask)
        self.keep_scores = keep_scores
        self.change = tuple((change or {}).items())
        self._key = _Key.of(self)
        self._within = []  # a context for each time that it was entered
        self._scores, self._trace = [], None

    @property
    def scores(self) -> list[Array]:
        """Returns the scores `(..., q, k)` of each attention in order, before temperature.

        Bias and soft-cap are in them, masks are not. In a traced function they are traced: enter
        the lens inside it, and return them.
        """
        return self._scores

    def __enter__(self) -> "Lens":
        context = _context(self._key)
        context.__enter__()
        self._within.append(context)
        if self.keep_scores:
            self._scores, self._trace = [], get_opaque_trace_state()
        return self

    def __exit__(self, *error: object) -> None:
        self._within.pop().__exit__(*error)


class _Key:
    """What JAX keeps in the keys of programs: equal for lenses that make equal programs.

    It holds neither the lens nor anything traced, since JAX keeps it for as long as the program.
    """

    def __init__(self, lens: Lens) -> None:
        self.lens = weakref.ref(lens)
        mask = _reference(lens.mask) if callable(lens.mask) else _contents(lens.mask)
        numbers = _contents(lens.temperature), mask
        changes = ((pattern, _reference(change)) for pattern, change in lens.change)
        self.settings = *numbers, _reference(lens.normalizer), *changes, lens.keep_scores

    @classmethod
    def of(cls, lens: Lens) -> "_Key | None":
        """Makes the key of a lens; None where nothing is set, as without a lens."""
        settings = lens.temperature, lens.normalizer, lens.mask
        is_set = lens.keep_scores or lens.change or any(own is not None for own in settings)
        return cls(lens) if is_set else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.settings == other.settings

    def __hash__(self) -> int:
        return hash(self.settings)


def current() -> Lens | None:
    """Returns the lens that is entered; None without a lens, or if nothing is set in it."""
    return None if _context.value is None else _context.value.lens()


def also(patterns: Iterable[str], change: Change) -> Lens:
    """Makes a lens with the settings of the one that is entered, and one more change at the end."""
    outer = current() or Lens()
    lens = Lens(temperature=outer.temperature, normalizer=outer.normalizer, mask=outer.mask)
    lens.change = *outer.change, *((own, change) for own in patterns)
    lens._key = _Key.of(lens)
    return lens


def site(layer: str, part: str) -> str:
    """Returns the name of a part of what a layer computes; a layer without a path has the part."""
    return f"{layer}/{part}" if layer else part


def layer_of(site: str) -> str:
    """Returns the path of the layer, or of the block, of a site."""
    return site.rpartition("/")[0]


def fits(name: str, pattern: str) -> bool:
    """Returns whether a pattern fits a site; `*/weights` fits that of a layer without a path."""
    return any(fnmatch.fnmatchcase(own, pattern) for own in (name, f"/{name}"))


def at(layer: str, part: str, array: Array) -> Array:
    """Lets the lens change the array of a site.

    Raises:
        ValueError: a change that returns another shape.
    """
    lens = current()
    for pattern, change in lens.change if lens else ():
        if fits(name := site(layer, part), pattern):
            result = jnp.asarray(change(name, array))
            if result.shape != array.shape:
                raise ValueError(f"expected {array.shape} of {name!r}, got {result.shape}")
            array = result.astype(array.dtype)
    return array


def changes(lens: Lens, layer: str, *parts: str) -> bool:
    """Returns whether a lens changes one of these parts of a layer."""
    names = [site(layer, part) for part in parts]
    return any(fits(name, pattern) for name in names for pattern, _ in lens.change)


def look_through(call: "Call") -> "Call":
    """Applies the lens that is entered to a call of attention.

    Softmax stays softmax, so that it can be computed in blocks: the temperature then divides score
    and bias. Any other normaliser gets the scores divided.
    """
    lens = current()
    if lens is None:
        return call
    normalizer = _normalizer(lens, call.normalizer, call.visible)
    call = call._replace(visible=call.visible.under_lens(lens.mask))
    if lens.keep_scores or changes(lens, call.name, "scores", "weights"):
        on_ring = call.across is not None and call.across.ring
        if lens.keep_scores and 0 in call.visible.shape:  # no normaliser is called
            _keep(lens, jnp.zeros(call.visible.weights_shape))
        return call._replace(
            normalizer=_of_divided(lens, normalizer, call.visible, call.name),
            chunk_size=None,  # the lens gets all weights at once
            need_weights=call.wants_weights and not on_ring,
            across=None,
        )
    if is_softmax(normalizer):
        return _divided(call._replace(normalizer=masked_softmax), lens.temperature)
    return call._replace(normalizer=_of_divided(lens, normalizer, call.visible, call.name))


def look_through_at_softmax(call: "Call") -> "Call":
    """Applies the lens to a call where there is softmax alone, `log_sum_exp`."""
    lens = current()
    if lens is None:
        return call
    if lens.normalizer is not None and not is_softmax(lens.normalizer):
        raise ValueError(f"expected softmax in log_sum_exp, got a lens with {lens.normalizer}")
    call = call._replace(visible=call.visible.under_lens(lens.mask))
    return _divided(call, lens.temperature)


def normalized(normalizer: Normalizer, scores: Array, name: str) -> Array:
    """Weighs the scores `(..., k)` of one query of a layer, through the lens if there is one."""
    lens = current()
    if lens is None:
        return normalizer(scores)
    visible = Visibility((*scores.shape[:-1], 1, scores.shape[-1])).under_lens(lens.mask)
    weigh = _of_divided(lens, _normalizer(lens, normalizer, visible), visible, name)
    mask, _ = visible.block()  # (..., 1, k) or None
    return weigh(scores[..., None, :], mask=mask)[..., 0, :]  # (..., k)


def change_of_linear(
    name: str, shape: tuple[int, ...], has_past: bool
) -> Callable[[Array], Array] | None:
    """Returns what the lens does to the implied weights `shape` of linear attention, if anything.

    Temperature and normaliser have no place there, and a mask zeroes weights.
    """
    lens = current()
    is_changed = lens is not None and changes(lens, name, "weights")
    if lens is None or (lens.mask is None and not is_changed and not lens.keep_scores):
        return None
    if has_past:
        check_no_mask("a state, which has no single tokens")
    mask, _ = Visibility(shape, shape[-3:-2]).under_lens(lens.mask).block()  # (..., q, k) or None

    def change(weights: Array) -> Array:
        whole = weights.reshape(shape)  # (..., heads, t, t)
        if lens.keep_scores:
            _keep(lens, whole)
        whole = whole if mask is None else jnp.where(mask, whole, 0)  # (..., heads, t, t)
        return at(name, "weights", whole).reshape(weights.shape)

    return change


def around(make: Callable[[Normalizer], Normalizer], inner: Normalizer) -> Normalizer:
    """Makes the normaliser `make(inner)`. A lens replaces the inner one alone."""
    normalizer = make(inner)
    normalizer.with_inner = make  # pyright: ignore
    return normalizer


def replaced(normalizer: Normalizer) -> Normalizer:
    """Returns the normaliser of a layer, or the one that a lens puts in its place."""
    lens = current()
    if lens is None or lens.normalizer is None:
        return normalizer
    make = getattr(normalizer, "with_inner", None)
    return lens.normalizer if make is None else make(lens.normalizer)


def check_no_mask(where: str) -> None:
    """Raises a ValueError for a lens with a mask, which does not fit here."""
    lens = current()
    if lens is not None and lens.mask is not None:
        raise ValueError(f"expected no mask of a lens beside {where}")


def _keep(lens: Lens, scores: Array) -> None:
    """Adds the scores of an attention to those of the lens.

    Raises:
        ValueError: they belong to a transformation that they cannot leave.
    """
    if get_opaque_trace_state() != lens._trace:
        raise ValueError(
            "expected Lens(keep_scores=True) to be entered inside jit, loops and derivatives, "
            "which scores cannot leave"
        )
    lens._scores.append(scores)


def _normalizer(lens: Lens, layers: Normalizer, visible: Visibility) -> Normalizer:
    """Returns the lens's normaliser, or else the layer's.

    Raises:
        ValueError: a lens's normaliser that needs all queries, where queries come one at a time.
    """
    shape = visible.weights_shape
    if lens.normalizer is not None and needs_all_queries(lens.normalizer) and shape[-2] == 1:
        raise ValueError(f"expected a normalizer for one query at a time, got {lens.normalizer}")
    return replaced(layers)


def _of_divided(lens: Lens, normalizer: Normalizer, visible: Visibility, name: str) -> Normalizer:
    """Wraps a normaliser: the lens gets the scores, divides them, and gets the weights."""

    def changed(part: str, array: Array) -> Array:
        if not changes(lens, name, part):
            return array
        whole = array.reshape(visible.weights_shape)  # (..., heads, q, k)
        return at(name, part, whole).reshape(array.shape)  # with groups, if there were any

    @functools.wraps(normalizer)
    def weigh(scores: Array, mask: Array | None = None) -> Array:
        if lens.keep_scores:
            _keep(lens, scores.reshape(visible.weights_shape))  # (..., heads, q, k), without groups
        scores = changed("scores", scores)
        return changed("weights", normalizer(_quotient(scores, lens.temperature), mask=mask))

    weigh.across_queries = needs_all_queries(normalizer)  # pyright: ignore
    return weigh


def _divided(call: "Call", temperature: float | Array | None) -> "Call":
    """Divides score and bias by the temperature."""
    if temperature is None:
        return call
    score: Score = lambda query, key: _quotient(call.score(query, key), temperature)
    divide = functools.partial(_quotient, temperature=temperature)
    return call._replace(score=score, visible=call.visible.with_bias(divide))


def _copied(mask: UserInput) -> UserInput:
    """Copies a mask that is an array of NumPy, as the key does. Raises unless it is boolean."""
    if mask is None or callable(mask):
        return mask
    mask = mask if isinstance(mask, jax.Array) else np.array(mask)  # the caller may change it later
    as_mask(mask)
    return mask


def _contents(setting: float | Array | np.ndarray | None) -> object:
    """Makes a key: equal numbers are equal, and a tracer equals nothing."""
    if isinstance(setting, jax.core.Tracer):  # pyright: ignore
        return object()  # a new object equals nothing
    if isinstance(setting, jax.Array | np.ndarray):
        return setting.shape, np.asarray(setting).tobytes()  # by contents: arrays have no hash
    return setting


def _reference(function: Callable | None) -> object:
    """Makes a key: the same function is equal while there is one, and is not kept alive."""
    if function is None:
        return None
    try:
        reference = weakref.ref(function)
        hash(reference)  # an error if the function has no hash
    except TypeError:
        return object()  # equals nothing, so it is traced again
    return reference


def _quotient(scores: Array, temperature: float | Array | None) -> Array:
    """Divides the scores by the temperature, in float32 or better.

    What is not finite stays as it is, and does not reach the gradient of the temperature.
    """
    if temperature is None:
        return scores
    scores = scores.astype(wide(scores.dtype))
    if isinstance(temperature, float):
        return scores / temperature
    temperature = jnp.where(temperature > 0, temperature, jnp.nan).astype(scores.dtype)
    finite = jnp.isfinite(scores)  # (..., q, k)
    return jnp.where(finite, jnp.where(finite, scores, 0) / temperature, scores)  # (..., q, k)
