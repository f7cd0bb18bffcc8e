"""Attention weights of any model as one page that needs nothing else.

Arrays come from any library: nothing is imported of it, and its arrays become NumPy's.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flax_attn.bounded import read_npz
from flax_attn.errors import UsageError, counted, one_line, shortened
from flax_attn.kinds.replies import pack
from flax_attn.page.report import page_without_run
from flax_attn.types import JsonObject, UserInput

VIEW = "weights.mjs"
BESIDE = ("rows", "columns", "mask")  # arrays of a file that are no weights
LARGEST_FILE = 2**26  # bytes of all arrays of a file
MOST_WEIGHTS = 2**22
MOST_HEADS = 2048  # small pictures that a page draws at once
DEEPEST = 8  # mappings and sequences within one another
MOST_TOKENS = 1024  # queries or keys
ROUNDING = 0.01  # by which a weight of bfloat16 may be off
OFF = 0.02  # by which a sum of weights may be off 1
NAME = "attention weights"
ALONE = "(q, k), (heads, q, k) or (layers, heads, q, k)"
OF_A_LAYER = "(q, k), (heads, q, k) or (1, heads, q, k)"
NUMBERS = (int, float, list, tuple)  # in a list, and lists that are empty
EAGER = "load a model of transformers with attn_implementation='eager'"


class Layer(NamedTuple):
    """The weights of one layer: its name, `(heads, q, k)`, and a mask that broadcasts to them."""

    name: str
    weights: np.ndarray
    hidden: np.ndarray | None  # True where a key is masked


def page_of_weights(
    weights: UserInput,
    rows: UserInput = None,
    columns: UserInput = None,
    mask: UserInput = None,
    title: str = "",
) -> str:
    """The page of attention weights, as HTML. Equal weights give equal pages.

    Arguments are those of `flax_attn.show`.

    Raises:
        UsageError: what are no weights, or tokens or a mask that do not fit them.
    """
    shown = weights_data(weights, rows, columns, mask, title)
    why = "This page draws its pictures with JavaScript, which is off here."
    return page_without_run(shown, [VIEW], "report", why)


def page_of_file(path: Path) -> str:
    """The page of the weights in a .npz file.

    Each array is a layer, by its name; one alone may hold several layers. The arrays `rows`,
    `columns` and `mask` are what the arguments of `flax_attn.show` are.

    Raises:
        OSError: no such file.
        UsageError: no such archive, a damaged one, or what are no weights.
    """
    held = read_npz(path, most=LARGEST_FILE)
    beside = {name: held.pop(name) for name in BESIDE if name in held}
    weights = next(iter(held.values())) if len(held) == 1 else held
    return page_of_weights(weights, **beside, title=path.stem)


def are_weights(value: UserInput) -> bool:
    """Whether a value holds arrays or numbers, rather than a run or its path."""
    first = _first(value)
    if isinstance(value, list | tuple) and (first is None or isinstance(first, NUMBERS)):
        return True
    return isinstance(first, Mapping) or hasattr(first, "__array__") or hasattr(first, "get_value")


def weights_data(
    weights: UserInput, rows: UserInput, columns: UserInput, mask: UserInput, title: str
) -> JsonObject:
    """All that a page shows of weights. Arguments and errors are those of `page_of_weights`."""
    if not isinstance(title, str):
        raise UsageError(f"expected a text as title, got {_said(title)}; pass a name")
    whole = layers_of(weights)
    layers = with_masks(whole, mask)
    num_rows, num_columns = layers[0].weights.shape[1:]
    own_rows = tokens_of("rows", rows, num_rows, "query")
    if columns is None and num_rows == num_columns:
        own_columns = own_rows
    else:
        own_columns = tokens_of("columns", columns, num_columns, "key")
    of_mask = () if mask is None else notes_on_mask(whole, layers)
    return {
        "name": shortened(title) or NAME,
        "sentence": sentence(layers),
        "rows": own_rows,
        "columns": own_columns,
        "notes": [*of_mask, *notes(layers)],
        "is_guessed": mask is None,
        "attention": [
            {"name": shortened(layer.name), "heads": len(layer.weights)} | packed(layer)
            for layer in layers
        ],
    }


def packed(layer: Layer) -> JsonObject:
    """The arrays of a layer. `hidden` is None without a mask, and `broken` without a NaN."""
    weights, hidden = layer.weights, layer.hidden
    broken = np.isnan(weights)
    return {
        "weights": pack(np.where(broken, 0, weights)),
        "hidden": None if hidden is None else pack(hidden),
        "broken": pack(broken) if broken.any() else None,
    }


# arrays


def layers_of(weights: UserInput) -> list[tuple[str, np.ndarray]]:
    """The layers by name, each `(heads, q, k)`, checked."""
    named = list(_leaves(weights, ()))
    if not named:
        raise UsageError(f"expected weights {ALONE}, got no array; pass one, or {EAGER}")
    names = _short([name for name, _ in named])
    is_alone = named[0][0] == () and len(named) == 1
    layers, total = [], 0
    for name, (_, value) in zip(names, named):
        where = f" in {shortened(name)}" if name else ""
        array = _array(value, where)
        total += array.size
        if total > MOST_WEIGHTS:
            raise UsageError(
                f"expected at most {MOST_WEIGHTS:,} weights, got more: "
                f"{counted(len(named), 'array')} such as {array.shape}; choose fewer "
                f"layers or heads, or queries and keys, such as weights[..., :500, :500]"
            )
        layers += _split(name, array, is_alone, where)
    sizes = {heads.shape[1:]: name for name, heads in layers}
    if len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        raise UsageError(
            f"expected the same numbers of queries and keys in all layers, got {one} in {first} "
            f"and {other} in {second}; show them one by one"
        )
    num_heads = sum(len(heads) for _, heads in layers)
    if num_heads > MOST_HEADS:
        raise UsageError(
            f"expected at most {MOST_HEADS:,} heads, got {num_heads:,}; choose some of them"
        )
    (size,) = sizes
    if max(size) > MOST_TOKENS:
        raise UsageError(
            f"expected at most {MOST_TOKENS:,} queries and keys, got {size}; cut them, such as "
            f"weights[..., :512, :512]"
        )
    for name, heads in layers:
        _check(heads, name)
    return [(name, heads.astype(np.float32)) for name, heads in layers]


def _leaves(value: UserInput, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], UserInput]]:
    """The arrays that mappings and sequences hold, each with the names that lead to it."""
    if len(name) > DEEPEST:
        raise UsageError(
            f"expected arrays in at most {DEEPEST} mappings and sequences within one another, got "
            "more; choose the inner one"
        )
    if hasattr(value, "get_value"):  # a variable of nnx
        value = value.get_value()
    if isinstance(value, Mapping):
        for key, leaf in value.items():
            yield from _leaves(leaf, (*name, str(key)))
    elif isinstance(value, list | tuple) and (_has_arrays(value) or not value):
        for i, leaf in enumerate(value):
            number = str(i) if name else f"layer {i}"
            yield from _leaves(leaf, (*name, number) if len(value) > 1 else name or (number,))
    else:
        yield name, value


def _has_arrays(value: UserInput) -> bool:
    """Whether a list holds matrices, and is no matrix of numbers itself. None is a missing one."""
    first = _first(value)
    return first is None or isinstance(first, Mapping) or len(getattr(first, "shape", ())) > 1


def _first(value: UserInput) -> UserInput:
    for _ in range(2 * DEEPEST):
        if not isinstance(value, list | tuple) or not value:
            break
        value = value[0]
    return value


def _short(names: list[tuple[str, ...]]) -> list[str]:
    """Names without the beginning and the end that all of them share."""
    if len(names) == 1:
        return ["" if names[0] in ((), ("layer 0",)) else names[0][-1]]
    while all(len(name) > 1 for name in names) and len({name[0] for name in names}) == 1:
        names = [name[1:] for name in names]
    while all(len(name) > 1 for name in names) and len({name[-1] for name in names}) == 1:
        names = [name[:-1] for name in names]
    return ["/".join(name) for name in names]


def _array(value: UserInput, where: str) -> np.ndarray:
    """Numbers as NumPy has them. PyTorch's may need gradients, and NumPy lacks its bfloat16."""
    if value is None:
        raise UsageError(f"expected weights as numbers{where}, got None; {EAGER}")
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(
            f"expected weights and a mask apart{where}, got a masked array; pass value.filled(0) "
            "and mask=~value.mask"
        )
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            is_small = value.numel() <= MOST_WEIGHTS
            value = value.float() if is_small and "float" in str(value.dtype) else value
        array = np.asarray(value)
        if array.dtype.type is np.void:  # so NumPy stores bfloat16
            raise TypeError(f"an array of {array.dtype}, as NumPy stores bfloat16")
        if array.dtype.kind not in "fiuV":  # V: bfloat16 of JAX
            raise TypeError(f"an array of {array.dtype}")
        is_small = array.size <= MOST_WEIGHTS
        return array.astype(np.float32) if array.dtype.kind == "V" and is_small else array
    except Exception as error:  # whatever another library makes of its arrays
        got = shortened(one_line(error)).rstrip(".")
        advice = "pass an array of float32"
        raise UsageError(f"expected weights as numbers{where}, got {got}; {advice}") from error


def _split(
    name: str, array: np.ndarray, is_alone: bool, where: str
) -> list[tuple[str, np.ndarray]]:
    """The layers of an array, each `(heads, q, k)`. In a mapping or sequence it is one layer."""
    is_layer = array.ndim in (2, 3) or (array.ndim == 4 and len(array) == 1)
    if not array.size or not (is_layer or (is_alone and array.ndim == 4)):
        advice = "pass such an array"
        if array.size and array.ndim > 3:
            advice = f"choose an example of the batch: {'weights' if is_alone else 'array'}[0]"
            advice += "" if is_alone else " of every layer"
        expected = ALONE if is_alone else OF_A_LAYER
        raise UsageError(f"expected weights {expected}{where}, got {array.shape}; {advice}")
    if is_layer:
        return [(name, array.reshape(-1, *array.shape[-2:]))]
    return [(f"layer {i}", weights) for i, weights in enumerate(array)]


def _check(weights: np.ndarray, name: str) -> None:
    """Raises a UsageError for what is not from 0 to 1. NaN may be among weights."""
    for wrong, advice in (
        (weights < -ROUNDING, "pass weights after the softmax, not scores"),
        (weights > 1 + ROUNDING, "pass weights after the softmax and without dropout"),
    ):
        if wrong.any():
            head, q, k = np.argwhere(wrong)[0].tolist()
            where = f"{shortened(name)}, head {head}".removeprefix(", ")
            raise UsageError(
                f"expected weights from 0 to 1, got {weights[head, q, k]:.3g} in {where}, query "
                f"{q}, key {k}; {advice}"
            )


# masks and notes


def with_masks(layers: list[tuple[str, np.ndarray]], mask: UserInput) -> list[Layer]:
    """The layers with the mask, or with what looks like one. A masked weight is 0."""
    visible = None if mask is None else _booleans(mask)
    made = []
    for i, (name, weights) in enumerate(layers):
        if visible is None:
            hidden = masked_cells(weights)
        else:
            hidden = ~_broadcast(visible, (len(layers), *weights.shape))[i]
        shown = np.where(hidden, 0, weights)
        made.append(Layer(name, shown, hidden if hidden.any() else None))
    return made


def _booleans(mask: UserInput) -> np.ndarray:
    """A mask as NumPy has it."""
    try:
        array = np.asarray(mask.detach().cpu() if hasattr(mask, "detach") else mask)
    except Exception as error:  # whatever another library makes of its arrays
        raise UsageError(
            f"expected a boolean mask, got {one_line(error)}; pass an array"
        ) from error
    if array.dtype != bool:
        raise UsageError(
            f"expected a boolean mask, True = may be attended, got {array.dtype}; compare it, such "
            f"as mask == 0 where -inf hides, or mask == 1"
        )
    return array


def _broadcast(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The mask at the shape of a stack of all layers."""
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise UsageError(
            f"expected a mask that broadcasts to the weights {shape}, got shape {mask.shape}; each "
            f"axis is as long as that of the weights, or 1"
        ) from None


def masked_cells(weights: np.ndarray) -> np.ndarray:
    """What looks masked in weights `(heads, q, k)`, as `(1, q, k)`.

    These are keys that no query attends to in any head, and all keys behind each query, where the
    weight of all of them is exactly 0 or NaN. A query that has nothing but NaN says nothing.
    """
    _, rows, columns = weights.shape
    is_none = np.asarray((~(weights > 0)).all(axis=0))
    has_numbers = np.asarray((~np.isnan(weights)).any(axis=(0, 2)))
    masked = np.zeros((rows, columns), bool)
    if has_numbers.sum() > 1:  # one query does not look at every key
        masked[:, is_none[has_numbers].all(axis=0)] = True
        later = np.triu(np.ones((rows, columns), bool), 1 + max(columns - rows, 0))
        known = later & has_numbers[:, None]
        if known.any() and is_none[known].all():
            masked |= later
    return (masked & has_numbers[:, None])[None]


def notes_on_mask(whole: list[tuple[str, np.ndarray]], layers: list[Layer]) -> Iterator[str]:
    """A line where a mask hides weights of queries that may attend to some key."""
    number, largest = 0, 0.0
    for (_, weights), layer in zip(whole, layers):
        if layer.hidden is not None:
            hidden = np.broadcast_to(layer.hidden, weights.shape)
            wrong = hidden & ~hidden.all(axis=-1, keepdims=True) & (weights > OFF)
            number += int(wrong.sum())
            largest = max(largest, float(weights[wrong].max(initial=0)))
    if number:
        yield (
            f"The mask hides {counted(number, 'cell that has', 'cells that have')} weight, up to "
            f"{largest:.2g}. True means that a key may be attended: is the mask turned round?"
        )


def notes(layers: list[Layer]) -> Iterator[str]:
    """What is unusual in the weights, a line for each thing."""
    broken = sum(int(np.isnan(layer.weights).sum()) for layer in layers)
    if broken:
        yield f"{counted(broken, 'weight is', 'weights are')} not a number (NaN): orange here."
    sums = np.concatenate([layer.weights.sum(axis=-1).ravel() for layer in layers])
    sums = sums[np.isfinite(sums) & (sums > 0)]  # a query that may attend to nothing has 0
    off = sums[np.abs(sums - 1) > OFF]
    if not off.size:
        return
    least, most = f"{off.min():.2g}", f"{off.max():.2g}"
    sums_are = f"is {least}" if least == most else f"goes from {least} to {most}"
    yield (
        f"Of {counted(sums.size, 'row')} of weights, {off.size:,} do not sum to 1: the sum "
        f"{sums_are}. A sink, dropout or keys that were cut off do this."
    )
    if all((np.abs(layer.weights.sum(axis=-2) - 1) < OFF).all() for layer in layers):
        yield (
            "The weights of each key sum to 1 instead. If queries run across in your array, pass "
            "weights.swapaxes(-1, -2)."
        )


# words


def tokens_of(name: str, tokens: UserInput, count: int, of_what: str) -> list[str] | None:
    """One text for each query or key, or None."""
    if tokens is None:
        return None
    try:
        plain = [_plain(token) for token in itertools.islice(_listed(tokens), count + 1)]
        for token in plain:
            if isinstance(token, bool) or not isinstance(token, str | int | float):
                got = _said(token)
                raise UsageError(f"expected tokens as {name}, got {got}; pass texts or numbers")
        texts = [f"{one:g}" if isinstance(one, float) else str(one) for one in plain]
    except UsageError:
        raise
    except Exception as error:  # whatever a user's own tokens do
        raise UsageError(
            f"expected a list of {count} tokens as {name}, got {one_line(error)}; pass texts"
        ) from error
    if len(plain) != count:
        got = len(tokens) if hasattr(tokens, "__len__") else "more" if plain[count:] else len(plain)
        raise UsageError(
            f"expected {counted(count, 'token')} as {name}, one for each {of_what}, got "
            f"{got}; cut the weights or the tokens"
        )
    return [shortened(text) for text in texts]


def _listed(tokens: UserInput) -> Iterator[UserInput]:
    """The tokens one by one. A set has no order, and a text is not split."""
    unordered = isinstance(tokens, str | bytes | set | frozenset | Mapping)
    if unordered or not isinstance(tokens, Iterable):
        such = "text.split()" if isinstance(tokens, str) else "list('abc')"
        raise TypeError(f"{_said(tokens)}, which is no list, such as {such}")
    yield from tokens


def _plain(token: UserInput) -> UserInput:
    """A text or number of Python instead of one of an array."""
    try:
        return token.item()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return token


def _said(value: UserInput) -> str:
    """What a value is, shortly."""
    try:
        return shortened(repr(value))
    except Exception:  # of a `__repr__` of the user's own
        return type(value).__name__


def sentence(layers: list[Layer]) -> str:
    """What the page shows: how many layers, heads, queries and keys."""
    heads = [len(layer.weights) for layer in layers]
    _, rows, columns = layers[0].weights.shape
    size = f"{counted(rows, 'query', 'queries')} and {counted(columns, 'key')}"
    if len(layers) == 1:
        return size if heads == [1] else f"{counted(heads[0], 'head')}, {size}"
    same = len(set(heads)) == 1
    of_heads = f"of {counted(heads[0], 'head')}" if same else f"with {counted(sum(heads), 'head')}"
    return f"{counted(len(layers), 'layer')} {of_heads}, {size}"
