"""Attention weights of any model as one page that needs nothing else.

Arrays come from any library: nothing is imported of it, and its arrays become NumPy's.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flax_attn.analysis.token_weights import are_shares
from flax_attn.errors import UsageError, counted, one_line, shortened
from flax_attn.files import open_arrays
from flax_attn.page.report import page_without_run
from flax_attn.tasks.replies import pack
from flax_attn.types import JsonObject, UserInput

VIEW = "weights.mjs"
BESIDE = ("rows", "columns", "mask")  # arrays of a file that are no weights
MOST_WEIGHTS = 2**22
MOST_HEADS = 2048  # small pictures that a page draws at once
MOST_TOKENS = 1024  # queries or keys
OFF = 0.02  # error of a sum of weights
NAME = "attention weights"
EXPECTED = "(q, k), (heads, q, k) or, alone, (layers, heads, q, k)"
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
    """Returns the page of attention weights, as HTML. Equal weights give equal pages.

    Arguments are those of `flax_attn.show`.

    Raises:
        UsageError: what are no weights, or tokens or a mask that do not fit them.
    """
    shown = weights_data(weights, rows, columns, mask, title)
    why = "This page draws its pictures with JavaScript, which is off here."
    return page_without_run(shown, [VIEW], "report", why)


def page_of_file(path: Path) -> str:
    """Returns the page of the weights in a .npz file, or in a .npy file of one array.

    Each array is a layer, by its name; one alone may hold several layers. The arrays `rows`,
    `columns` and `mask` are what the arguments of `flax_attn.show` are.

    Raises:
        OSError: no such file.
        UsageError: no such archive, a damaged one, or what are no weights.
    """
    with open_arrays(path) as arrays:
        held = dict(arrays)
    beside = {name: held.pop(name) for name in BESIDE if name in held}
    weights = next(iter(held.values())) if len(held) == 1 else held
    return page_of_weights(weights, **beside, title=path.stem)


def are_weights(value: UserInput) -> bool:
    """Returns whether a value holds arrays or numbers, rather than a run or its path."""
    first = _first(value)
    if isinstance(value, list | tuple) and (first is None or isinstance(first, NUMBERS)):
        return True
    return isinstance(first, Mapping) or hasattr(first, "__array__") or hasattr(first, "get_value")


def weights_data(
    weights: UserInput, rows: UserInput, columns: UserInput, mask: UserInput, title: str
) -> JsonObject:
    """Returns all that a page shows of weights. Errors are those of `page_of_weights`."""
    whole = layers_of(weights)
    layers = with_masks(whole, mask)
    num_rows, num_columns = layers[0].weights.shape[1:]
    own_rows = tokens_of("rows", rows, num_rows)
    if columns is None and num_rows == num_columns:
        own_columns = own_rows
    else:
        own_columns = tokens_of("columns", columns, num_columns)
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
    """Returns the arrays of a layer. `hidden` is None without a mask, `broken` without a NaN."""
    weights, hidden = layer.weights, layer.hidden
    broken = np.isnan(weights)
    return {
        "weights": pack(np.where(broken, 0, weights)),
        "hidden": None if hidden is None else pack(hidden),
        "broken": pack(broken) if broken.any() else None,
    }


# arrays


def layers_of(weights: UserInput) -> list[tuple[str, np.ndarray]]:
    """Returns the layers by name, each `(heads, q, k)`, checked."""
    named = list(_leaves(weights, ()))
    names = _short([name for name, _ in named])
    arrays = [_array(value, name) for name, (_, value) in zip(names, named)]
    if not arrays or sum(array.size for array in arrays) > MOST_WEIGHTS:
        raise UsageError(
            f"expected from 1 to {MOST_WEIGHTS:,} weights, got {counted(len(named), 'array')}; "
            f"choose some, such as weights[..., :500, :500], or {EAGER}"
        )
    is_alone = len(named) == 1 and named[0][0] == ()
    layers = [
        layer for name, array in zip(names, arrays) for layer in _split(name, array, is_alone)
    ]
    sizes = {heads.shape[1:] for _, heads in layers}
    number = sum(len(heads) for _, heads in layers)
    if len(sizes) > 1 or number > MOST_HEADS or max(max(sizes)) > MOST_TOKENS:
        raise UsageError(
            f"expected at most {MOST_HEADS:,} heads and {MOST_TOKENS:,} queries and keys, as many "
            f"in each layer, got {number:,} heads of {sorted(sizes)}; choose some of them"
        )
    for name, heads in layers:
        _check(heads, name)
    return [(name, heads.astype(np.float32)) for name, heads in layers]


def _leaves(value: UserInput, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], UserInput]]:
    """Yields the arrays that mappings and sequences hold, each with the names that lead to it."""
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
    """Returns whether a list holds matrices, and is no matrix of numbers itself."""
    first = _first(value)
    return first is None or isinstance(first, Mapping) or len(getattr(first, "shape", ())) > 1


def _first(value: UserInput) -> UserInput:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return value


def _short(names: list[tuple[str, ...]]) -> list[str]:
    """Returns names without the beginning and the end that all of them share."""
    if len(names) == 1:
        return ["" if names[0] in ((), ("layer 0",)) else names[0][-1]]
    for cut, end in ((slice(1, None), 0), (slice(-1), -1)):
        while all(len(name) > 1 for name in names) and len({name[end] for name in names}) == 1:
            names = [name[cut] for name in names]
    return ["/".join(name) for name in names]


def _array(value: UserInput, name: str) -> np.ndarray:
    """Returns numbers as NumPy has them. PyTorch's may need gradients and be of bfloat16."""
    where = f" in {shortened(name)}" if name else ""
    if value is None:
        raise UsageError(f"expected weights as numbers{where}, got None; {EAGER}")
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            value = value.float() if "float" in str(value.dtype) else value
        array = np.asarray(value)
        if array.dtype.kind == "V" and array.dtype.type is not np.void:  # bfloat16 of JAX
            array = array.astype(np.float32)
        if array.dtype.kind not in "fiu" or not array.size:
            raise TypeError(f"an array of {array.dtype} and shape {array.shape}")
    except (TypeError, ValueError) as error:
        got = shortened(one_line(error)).rstrip(".")
        raise UsageError(f"expected weights as numbers{where}, got {got}") from error
    return array


def _split(name: str, array: np.ndarray, is_alone: bool) -> list[tuple[str, np.ndarray]]:
    """Returns the layers of an array, each `(heads, q, k)`; it is one unless it stands alone."""
    if array.ndim in (2, 3) or (array.ndim == 4 and len(array) == 1):
        return [(name, array.reshape(-1, *array.shape[-2:]))]
    if array.ndim == 4 and is_alone:
        return [(f"layer {i}", weights) for i, weights in enumerate(array)]
    where = f" in {shortened(name)}" if name else ""
    raise UsageError(
        f"expected weights {EXPECTED}{where}, got {array.shape}; choose an example of a batch, "
        f"such as weights[0]"
    )


def _check(weights: np.ndarray, name: str) -> None:
    """Raises a UsageError for an infinite weight. NaN may be among weights."""
    if (wrong := np.isinf(weights)).any():
        head, q, k = np.argwhere(wrong)[0].tolist()
        where = f"{shortened(name)}, head {head}".removeprefix(", ")
        raise UsageError(
            f"expected finite weights, got {weights[head, q, k]:.3g} in {where}, query {q}, "
            f"key {k}; pass weights after the softmax, not masked scores"
        )


# masks and notes


def with_masks(layers: list[tuple[str, np.ndarray]], mask: UserInput) -> list[Layer]:
    """Returns the layers with the mask, or with what looks like one. A masked weight is 0."""
    made = []
    for i, (name, weights) in enumerate(layers):
        if mask is None:
            hidden = masked_cells(weights)
        else:
            hidden = ~_visible(mask, (len(layers), *weights.shape))[i]
        shown = np.where(hidden, 0, weights)
        made.append(Layer(name, shown, hidden if hidden.any() else None))
    return made


def _visible(mask: UserInput, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the mask at the shape of a stack of all layers."""
    try:
        array = np.asarray(mask.detach().cpu() if hasattr(mask, "detach") else mask)
        if array.dtype != bool:  # -inf hides in some libraries, 1 hides in others
            raise TypeError(f"{array.dtype}; compare it, such as mask == 0")
        return np.broadcast_to(array, shape)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"expected a boolean mask that broadcasts to {shape}, True = may be attended, got "
            f"{one_line(error)}"
        ) from error


def masked_cells(weights: np.ndarray) -> np.ndarray:
    """Returns what looks masked in weights `(heads, q, k)`, as `(1, q, k)`.

    These are keys that no query attends to in any head, and all keys behind each query, where the
    weight of all of them is exactly 0 or NaN. A query of nothing but NaN is not masked.
    """
    _, rows, columns = weights.shape
    is_none = np.asarray((~(np.abs(weights) > 0)).all(axis=0))  # (q, k)
    has_numbers = np.asarray((~np.isnan(weights)).any(axis=(0, 2)))  # (q,)
    masked = np.zeros((rows, columns), bool)
    if has_numbers.sum() > 1:  # one query does not attend to every key
        masked[:, is_none[has_numbers].all(axis=0)] = True
        later = np.triu(np.ones((rows, columns), bool), 1 + max(columns - rows, 0))
        known = later & has_numbers[:, None]
        if known.any() and is_none[known].all():
            masked |= later
    return (masked & has_numbers[:, None])[None]


def notes_on_mask(whole: list[tuple[str, np.ndarray]], layers: list[Layer]) -> Iterator[str]:
    """Yields a line where a mask hides weights of queries that may attend to some key."""
    number, largest = 0, 0.0
    for (_, weights), layer in zip(whole, layers):
        if layer.hidden is not None:
            hidden = np.broadcast_to(layer.hidden, weights.shape)
            wrong = hidden & ~hidden.all(axis=-1, keepdims=True) & (np.abs(weights) > OFF)
            number += int(wrong.sum())
            largest = max(largest, float(np.abs(weights[wrong]).max(initial=0)))
    if number:
        yield (
            f"The mask hides {counted(number, 'cell that has', 'cells that have')} weight, up to "
            f"{largest:.2g}. True means that a key may be attended: is the mask inverted?"
        )


def notes(layers: list[Layer]) -> Iterator[str]:
    """Yields a line for each thing that is unusual in the weights."""
    broken = sum(int(np.isnan(layer.weights).sum()) for layer in layers)
    if broken:
        yield f"{counted(broken, 'weight is', 'weights are')} not a number (NaN): orange here."
    if any(not are_shares(layer.weights) for layer in layers):
        yield (
            "Some weights are below 0 or above 1, as of attention without softmax, so they are "
            "shown as numbers, blue above 0 and red below. Scores look like this, too."
        )
    layers = [layer for layer in layers if are_shares(layer.weights)]
    sums = np.concatenate([np.zeros(0), *(layer.weights.sum(axis=-1).ravel() for layer in layers)])
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


def tokens_of(name: str, tokens: UserInput, count: int) -> list[str] | None:
    """Returns one text for each query or key, or None. A text is not split, a set has no order."""
    if tokens is None:
        return None
    has_order = isinstance(tokens, Iterable) and not isinstance(tokens, str | bytes | set | Mapping)
    plain = [_plain(token) for token in tokens] if has_order else []
    if len(plain) != count or not all(isinstance(one, str | int | float) for one in plain):
        got = f"{len(plain)} of them" if has_order else type(tokens).__name__
        raise UsageError(
            f"expected a list of {counted(count, 'token')} as {name}, got {got}; pass texts or "
            f"numbers, one for each of the weights, such as text.split()"
        )
    return [shortened(f"{one:g}" if isinstance(one, float) else str(one)) for one in plain]


def _plain(token: UserInput) -> UserInput:
    """Returns a text or number of Python instead of one of an array."""
    return token.item() if hasattr(token, "item") else token


def sentence(layers: list[Layer]) -> str:
    """Returns how many layers, heads, queries and keys the page shows."""
    heads = [len(layer.weights) for layer in layers]
    _, rows, columns = layers[0].weights.shape
    size = f"{counted(rows, 'query', 'queries')} and {counted(columns, 'key')}"
    if len(layers) == 1:
        return size if heads == [1] else f"{counted(heads[0], 'head')}, {size}"
    same = len(set(heads)) == 1
    of_heads = f"of {counted(heads[0], 'head')}" if same else f"with {counted(sum(heads), 'head')}"
    return f"{counted(len(layers), 'layer')} {of_heads}, {size}"
