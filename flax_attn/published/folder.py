"""A folder of a published model: `config.json`, arrays in safetensors, and `tokenizer.json`.

What stands in it is data and may come from anyone. No file is executed: safetensors holds arrays
alone, and the tokenizer is rules. Only regular files right in the folder are opened.
"""

import contextlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from flax_attn.data.tokenizers import LONGEST_TOKEN
from flax_attn.errors import UsageError, one_line, shortened
from flax_attn.runs import untrusted
from flax_attn.schema import SMALLEST_FLOAT
from flax_attn.types import Json, JsonObject, Options, UserInput

INSTALL = 'pip install "flax-attn[pretrained]" installs it'
LARGEST_FILE = 2**38  # bytes of arrays
LARGEST_TOKENIZER = 2**27
MOST_FILES = 1_000
MOST_SPECIAL = 1_000  # tokens
MOST_GROWTH = 1_000  # times, of a text by the rules of a tokenizer
# rules as bytes that only the package tokenizers can read; no family that is read has them
PRECOMPILED = re.compile(rb'"type"\s*:\s*"Precompiled"')
# how the file begins that git-lfs puts in the place of a large one
LFS = b"version https://git-lfs"
POINTER = "(it is a pointer of git-lfs); git lfs pull fetches the file"
FLOATS = ("F64", "F32", "F16", "BF16")  # the dtypes that arrays may have
REQUIRED = object()
# what no result depends on
OF_TRAINING = """
architectures bos_token_id dtype eos_token_id initializer_range model_type pad_token_id
torch_dtype transformers_version use_cache cache_implementation gradient_checkpointing id2label
label2id problem_type finetuning_task _name_or_path name_or_path task_specific_params
attn_implementation _attn_implementation output_attentions output_hidden_states return_dict
unk_token_id sep_token_id cls_token_id mask_token_id is_encoder_decoder torchscript
chunk_size_feed_forward output_past pretraining_tp transformers.js_config use_bfloat16
num_labels tokenizer_class _model_name_or_path
"""
DROPPED = ("drop", "pdrop")  # rates of training


class Config:
    """The options in `config.json`. Each is checked when it is read, and all must be read.

    So an option that this library does not know is an error, and not a wrong result.
    """

    def __init__(self, content: JsonObject, path: Path) -> None:
        self.content, self.path = content, path
        self.known: set[str] = set(OF_TRAINING.split())

    def get(self, name: str, default: Json = REQUIRED) -> Json:
        """An option as it stands; a default also stands in for null."""
        self.known.add(name)
        value = self.content.get(name)
        if value is None and default is REQUIRED:
            raise UsageError(f"expected {name} in {self.path}, got none")
        return default if value is None else value

    def whole(
        self, name: str, default: int | None = None, least: int = 1, most: int = 2**20
    ) -> int:
        value = self.get(name, REQUIRED if default is None else default)
        if type(value) is int and (value == default or least <= value <= most):
            return value
        raise self.wrong(name, f"a whole number from {least} to {most:,}", value)

    def divisor(self, name: str, of: str) -> int:
        """A whole number that divides another option, such as heads the features."""
        value, whole = self.whole(name), self.whole(of)
        if whole % value:
            raise self.wrong(name, f"a number that divides {of}={whole}", value)
        return value

    def number(self, name: str, default: float | None = None, most: float = 1e9) -> float:
        value = self.get(name, REQUIRED if default is None else default)
        if type(value) in (int, float) and SMALLEST_FLOAT <= value <= most:
            return float(value)
        raise self.wrong(name, f"a number above 0 in float32 and at most {most:g}", value)

    def optional(self, name: str) -> float | None:
        """A number above 0. None stands for an option that is missing."""
        return None if self.get(name, None) is None else self.number(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        if type(value) is bool:
            return value
        raise self.wrong(name, "true or false", value)

    def choice(self, name: str, options: Collection[str], default: str) -> str:
        value = self.get(name, default)
        if type(value) is str and value in options:
            return value
        raise self.wrong(name, f"one of {', '.join(options)}", value)

    def tokens(self, name: str) -> frozenset[int]:
        """An option that is one token, several in a list, or none."""
        value = self.get(name, [])
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) > MOST_SPECIAL or not all(type(number) is int for number in numbers):
            raise self.wrong(name, f"a whole number, or at most {MOST_SPECIAL} of them", value)
        return frozenset(numbers)

    def only(self, **values: Json) -> None:
        """Raises a UsageError for an option with another value than the one that is covered."""
        for name, value in values.items():
            if self.get(name, value) != value:
                raise self.wrong(name, repr(value), self.content[name])

    def part(self, name: str) -> "Config":
        """The options of an object in the options; none where it is missing."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        return Config(value, self.path)

    def unused(self, names: str) -> None:
        """Names options that no result depends on, or that the arrays say as well."""
        self.known |= set(names.split())

    def check_all_known(self) -> None:
        """Raises a UsageError for an option that was not read."""
        unknown = [
            name
            for name, value in self.content.items()
            if name not in self.known and value is not None and not any(d in name for d in DROPPED)
        ]
        if unknown:
            raise self.wrong(unknown[0], "only known options", self.content[unknown[0]])

    def wrong(self, name: str, expected: str, got: Json) -> UsageError:
        got = shortened(repr(got))
        return UsageError(f"expected {expected} for {name[:60]} in {self.path}, got {got}")


class Arrays:
    """The arrays of a folder by name, each read when it is asked for.

    Prefixes that checkpoints of a family may have are left out: `transformer.wte.weight` is
    `wte.weight`. What was read is known, so that no array is forgotten.
    """

    def __init__(self, files: Options, prefixes: tuple[str, ...]) -> None:
        self.files: dict[str, tuple[UserInput, str]] = {}  # and the whole name in the file
        self.read: set[str] = set()
        for name, file in files.items():
            short = name
            for prefix in prefixes:
                short = short.removeprefix(prefix)
            self.files[short] = (file, name)

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def num_classes(self, name: str) -> int:
        """The number of rows of a kernel `(classes, features)`. Raises a UsageError below two.

        A single row is of a regression, which has no classes.
        """
        file, key = self.files[name]
        shape = tuple(file.get_slice(key).get_shape())
        if len(shape) != 2 or shape[0] < 2:
            raise UsageError(
                f"expected {name} of shape (classes, features) with two classes or more, got "
                f"{shape}"
            )
        return shape[0]

    def __getitem__(self, name: str) -> np.ndarray:
        """An array in float32. Raises a UsageError for other dtypes, and for a NaN or infinity."""
        if name not in self.files:
            raise UsageError(f"expected the array {name} in the folder, got none of that name")
        file, key = self.files[name]
        if (dtype := file.get_slice(key).get_dtype()) not in FLOATS:
            raise UsageError(
                f"expected floats of {', '.join(FLOATS)} in {key[:80]}, got {dtype}; no model that "
                "is quantised is read"
            )
        self.read.add(name)
        array = np.asarray(file.get_tensor(key).astype(jnp.float32))
        if not np.isfinite(array).all():
            raise UsageError(
                f"expected finite numbers in {key[:80]}, got some that are not; copy the file again"
            )
        return array

    def check_all_read(self, ignored: tuple[str, ...]) -> None:
        """Raises a UsageError for arrays that the model has no place for.

        Those whose names end with one of `ignored` hold no parameter.
        """
        left = sorted(name for name in self.files.keys() - self.read if not name.endswith(ignored))
        if left:
            raise UsageError(
                f"expected the arrays of the model alone, got {len(left)} more, such as "
                f"{left[0][:80]}"
            )


def open_arrays(folder: Path, prefixes: tuple[str, ...]) -> Arrays:
    """The arrays of `model.safetensors`, or of the files that its index names.

    Raises:
        UsageError: no such file, a damaged one, or a name that leads elsewhere.
    """
    try:
        import safetensors
    except ImportError as error:
        raise missing("safetensors") from error
    index, names = "model.safetensors.index.json", ["model.safetensors"]
    if (folder / index).exists():
        places = untrusted.read_json(folder, index)
        places = places.get("weight_map") if isinstance(places, dict) else None
        if not isinstance(places, dict) or not all(type(own) is str for own in places.values()):
            raise UsageError(f"expected weight_map, from arrays to files, in {folder / index}")
        names = sorted(set(places.values()))
    if len(names) > MOST_FILES:
        raise UsageError(
            f"expected at most {MOST_FILES:,} files in {folder / index}, got {len(names):,}"
        )
    if outside := [name for name in names if "/" in name]:
        raise UsageError(
            f"expected names of files right in {folder} in its {index}, got "
            f"{shortened(repr(outside[0]))}; copy the folder again"
        )
    files: Options = {}
    for name in names:
        try:
            with untrusted.open_file(folder, name, LARGEST_FILE) as opened:
                is_pointer = opened.read(len(LFS)) == LFS
        except FileNotFoundError as error:
            pickles = sorted(path.name for path in folder.glob("*.bin"))
            advice = (
                f"{pickles[0][:60]} is a pickle, which is never read" if pickles else "copy it, too"
            )
            raise UsageError(f"expected arrays in {folder / name}, got none; {advice}") from error
        if is_pointer:
            raise UsageError(f"expected arrays in {folder / name} {POINTER}")
        with told(f"arrays in {folder / name}", "copy the file again"):
            file = safetensors.safe_open(str(folder / name), framework="flax", device="cpu")
            in_file = dict.fromkeys(file.keys(), file)
        if twice := sorted(in_file.keys() & files.keys()):
            raise UsageError(f"expected the array {twice[0][:80]} in one file of {folder}, got two")
        files |= in_file
    return Arrays(files, prefixes)


class HubTokenizer:
    """The tokenizer of a `tokenizer.json`, with the methods of the tokenizers of runs."""

    def __init__(self, model: UserInput, first: int | None) -> None:
        model.no_padding()
        model.no_truncation()
        self.model, self.first = model, first
        vocabulary = model.get_vocab()
        self.size = 1 + max(vocabulary.values(), default=-1)  # numbers may have gaps
        added = model.get_added_tokens_decoder()
        self.special = {i for i, token in added.items() if token.special}
        around = set(model.encode("").ids)
        if max(around, default=-1) >= self.size:
            raise ValueError(f"a token around texts that is none of its {self.size:,}")
        if max(map(len, vocabulary), default=0) > LONGEST_TOKEN:
            raise ValueError(f"a token of more than {LONGEST_TOKEN:,} letters")
        self.around = self.special & around  # of every text

    def split(self, text: str) -> list[str]:
        return [self.written(token) for token in self.encode(text)]

    def to_json(self) -> Json:
        raise UsageError("expected a run, got a published model, whose tokens need Python")

    def encode(self, text: str) -> list[int]:
        """With the tokens that the model expects around a text, such as [CLS] and [SEP].

        Raises a UsageError for a text that the tokenizer has no tokens for.
        """
        expected = f"a text that the tokenizer has tokens for, got {text[:60]!r}"
        with told(expected, "choose other words"):
            tokens = self.model.encode(text).ids
        return tokens or [0 if self.first is None else self.first]

    def decode(self, tokens: Iterable[int]) -> str:
        return self._decoded(list(tokens), skip_special_tokens=True)

    def written(self, token: int) -> str:
        """A token as text: a space before a word stays, and a part of a character is a number."""
        entry = self.model.id_to_token(token)
        if entry is None:
            return f"<{token}>"
        if token in self.special or entry.startswith("##"):
            return entry
        if "\u2581" in entry:  # its decoder takes the space from the first word
            return entry.replace("\u2581", " ")
        text = self._decoded([token], skip_special_tokens=False)
        return f"<{token}>" if "\ufffd" in text else text

    def _decoded(self, tokens: list[int], skip_special_tokens: bool) -> str:
        with told("tokens that the tokenizer has a text for", "copy its file again"):
            return self.model.decode(tokens, skip_special_tokens=skip_special_tokens)


def read_tokenizer(folder: Path, first: int | None) -> HubTokenizer:
    """The tokenizer of a folder. `first` begins a text where no other token does.

    Raises:
        UsageError: there is none, or a damaged one.
    """
    name = "tokenizer.json"
    try:
        import tokenizers
    except ImportError as error:
        raise missing("tokenizers") from error
    try:
        content = untrusted.read_bytes(folder, name, LARGEST_TOKENIZER)
    except FileNotFoundError as error:
        raise UsageError(
            f"expected a tokenizer in {folder / name}, got none; transformers writes it with "
            f"AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        ) from error
    if content.startswith(LFS):
        raise UsageError(f"expected a tokenizer in {folder / name} {POINTER}")
    with told(f"a tokenizer in {folder / name}", "copy the file again"):
        if PRECOMPILED.search(content):
            raise ValueError("rules of the type Precompiled, which are not read")
        model = tokenizers.Tokenizer.from_buffer(content)
        parts = (model.normalizer, model.pre_tokenizer, model.decoder)
        rules = [json.loads(part.__getstate__()) for part in parts if part is not None]
        if growth(rules) > MOST_GROWTH:
            raise ValueError(f"rules that may make a text {MOST_GROWTH:,} times as long, and more")
        tokenizer = HubTokenizer(model, first)
    if not tokenizer.size:
        raise UsageError(f"expected tokens in {folder / name}, got none; copy the file again")
    return tokenizer


@contextlib.contextmanager
def told(expected: str, advice: str) -> Iterator[None]:
    """Raises a UsageError for what safetensors and tokenizers raise: an error, or a panic of Rust.

    A panic is no Exception, and its class has no public name.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UsageError(f"expected {expected} ({one_line(error)}); {advice}") from error


def growth(rules: Json) -> int:
    """How many times as long rules that replace and prepend may make a text, at most."""
    if isinstance(rules, list):
        return math.prod(map(growth, rules))
    if not isinstance(rules, dict):
        return 1
    pattern = rules.get("pattern", {})
    replaced = len(pattern.get("String", "")) if isinstance(pattern, dict) else 0
    written = len(rules.get("content", "")) + len(rules.get("prepend", ""))
    times = -(-written // replaced) if replaced else 1 + written
    return max(times, 1) * growth(list(rules.values()))


def missing(name: str) -> UsageError:
    """Makes the error for a package that published models need."""
    return UsageError(f"expected the package {name} for a published model; {INSTALL}")
