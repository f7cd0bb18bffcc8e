"""A folder of a published model: `config.json`, arrays in safetensors, and `tokenizer.json`.

What stands in it is data. No file is executed: safetensors holds arrays alone, and the tokenizer is
rules. Files may be links, as in the cache of Hugging Face.
"""

import contextlib
import functools
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from flax_attn.errors import UsageError, one_line, shortened
from flax_attn.schema import require
from flax_attn.types import Json, JsonObject, Options, UserInput

INSTALL = 'pip install "flax-attn[pretrained]" installs it'
LFS = b"version https://git-lfs"  # begins the file that git-lfs puts in the place of a large one
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


class ModelConfig:
    """The options in `config.json`, all of which must be read.

    So an option that this library does not know is an error, and not a wrong result.
    """

    def __init__(self, content: JsonObject, path: Path) -> None:
        self.content, self.path = content, path
        self.known: set[str] = set(OF_TRAINING.split())

    def get(self, name: str, default: Json = REQUIRED) -> Json:
        """Returns an option as it stands; a default also stands in for null."""
        self.known.add(name)
        value = self.content.get(name)
        require(not (value is None and default is REQUIRED), f"{name} in {self.path}, got none")
        return default if value is None else value

    def number(self, name: str, default: Json = REQUIRED) -> float:
        return float(self.get(name, default))

    def choice(self, name: str, options: Collection[str], default: str) -> str:
        value = self.get(name, default)
        if value not in options:
            raise self.wrong(name, f"one of {', '.join(options)}", value)
        return value

    def only(self, **values: Json) -> None:
        """Raises a UsageError for an option with another value than the one that is covered."""
        for name, value in values.items():
            if self.get(name, value) != value:
                raise self.wrong(name, repr(value), self.content[name])

    def part(self, name: str) -> "ModelConfig":
        """Returns the options of an object in the options; none where it is missing."""
        return ModelConfig(self.get(name, {}), self.path)

    def unused(self, names: str) -> None:
        """Names options that no result depends on, or that the arrays determine as well."""
        self.known |= set(names.split())

    def check_all_known(self) -> None:
        """Raises a UsageError for an option that was not read."""
        for name, value in self.content.items():
            is_rate = any(part in name for part in DROPPED)
            if name not in self.known and value is not None and not is_rate:
                raise self.wrong(name, "only known options", value)

    def wrong(self, name: str, expected: str, got: Json) -> UsageError:
        got = shortened(repr(got))
        return UsageError(f"expected {expected} for {name[:60]} in {self.path}, got {got}")


class StoredWeights:
    """The arrays of a folder by name, each read when it is asked for.

    Prefixes that checkpoints of a family may have are left out: `transformer.wte.weight` is
    `wte.weight`. The names that were read are kept, so that no array is forgotten.
    """

    def __init__(self, files: Options, prefixes: tuple[str, ...]) -> None:
        self.files: dict[str, tuple[UserInput, str]] = {}  # and the whole name in the file
        self.read: set[str] = set()
        for name, file in files.items():
            short = functools.reduce(str.removeprefix, prefixes, name)
            self.files[short] = (file, name)

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def num_rows(self, name: str) -> int:
        """Returns the number of rows of an array, of a kernel `(classes, features)` the classes."""
        file, key = self.files[name]
        return file.get_slice(key).get_shape()[0]

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads an array in float32. Raises a UsageError for one that is missing or quantised."""
        require(name in self.files, f"the array {name} in the folder, got none of that name")
        file, key = self.files[name]
        dtype = file.get_slice(key).get_dtype()
        require(dtype in FLOATS, f"floats of {', '.join(FLOATS)} in {key[:80]}, got {dtype}")
        self.read.add(name)
        return np.asarray(file.get_tensor(key).astype(jnp.float32))

    def check_all_read(self, ignored: tuple[str, ...]) -> None:
        """Raises a UsageError for arrays that the model has no place for.

        Those whose names end with one of `ignored` hold no parameter.
        """
        left = sorted(name for name in self.files.keys() - self.read if not name.endswith(ignored))
        require(not left, f"the arrays of the model alone, got also {', '.join(left)[:80]}")


def read_json(path: Path) -> JsonObject:
    """Reads the object in a JSON file. Raises a UsageError for anything else."""
    with one_line_of(path):
        content = json.loads(path.read_bytes())
        require(isinstance(content, dict), f"an object, got {shortened(repr(content))}")
    return content


def open_arrays(folder: Path, prefixes: tuple[str, ...]) -> StoredWeights:
    """Opens the arrays of `model.safetensors`, or of the files that its index names."""
    try:
        import safetensors
    except ImportError as error:
        raise UsageError(f"expected the package safetensors; {INSTALL}") from error
    index, names = folder / "model.safetensors.index.json", ["model.safetensors"]
    if index.exists():
        places = read_json(index)
        with one_line_of(index):
            names = sorted(set(places["weight_map"].values()))
    files: Options = {}
    for name in names:
        path, pickles = folder / name, [path.name for path in folder.glob("*.bin")]
        if not path.exists() and pickles:
            raise UsageError(f"no file {path}; {pickles[0]} is a pickle, which is never read")
        with one_line_of(path):
            file = safetensors.safe_open(str(path), framework="flax", device="cpu")
            files |= dict.fromkeys(file.keys(), file)
    return StoredWeights(files, prefixes)


class HubTokenizer:
    """The tokenizer of a `tokenizer.json`, with the methods of the tokenizers of runs."""

    def __init__(self, model: UserInput, first: int | None) -> None:
        model.no_padding()
        model.no_truncation()
        self.model, self.first = model, first
        self.size = 1 + max(model.get_vocab().values(), default=-1)  # numbers may have gaps
        added = model.get_added_tokens_decoder()
        self.special = {i for i, token in added.items() if token.special}
        self.around = self.special & set(model.encode("").ids)  # of every text

    def split(self, text: str) -> list[str]:
        return [self.written(token) for token in self.encode(text)]

    def to_json(self) -> Json:
        return json.loads(self.model.to_str())

    def encode(self, text: str) -> list[int]:
        """Encodes with the tokens that the model expects around a text, such as [CLS] and [SEP]."""
        return self.model.encode(text).ids or [0 if self.first is None else self.first]

    def decode(self, tokens: Iterable[int]) -> str:
        return self.model.decode(list(tokens), skip_special_tokens=True)

    def written(self, token: int) -> str:
        """Returns a token as text. A space before it stays; a part of a character is a number."""
        entry = self.model.id_to_token(token)
        if entry is None:
            return f"<{token}>"
        if token in self.special or entry.startswith("##"):
            return entry
        if "\u2581" in entry:  # its decoder takes the space from the first word
            return entry.replace("\u2581", " ")
        text = self.model.decode([token], skip_special_tokens=False)
        return f"<{token}>" if "\ufffd" in text else text


def read_tokenizer(folder: Path, first: int | None) -> HubTokenizer:
    """Reads the tokenizer of a folder. `first` begins a text where no other token does."""
    try:
        import tokenizers
    except ImportError as error:
        raise UsageError(f"expected the package tokenizers; {INSTALL}") from error
    path = folder / "tokenizer.json"
    how = "AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
    require(path.exists(), f"a tokenizer in {path}, as transformers writes it with {how}")
    with one_line_of(path):
        return HubTokenizer(tokenizers.Tokenizer.from_buffer(path.read_bytes()), first)


@contextlib.contextmanager
def one_line_of(path: Path) -> Iterator[None]:
    """Raises a UsageError that names the file for what reading it raises."""
    try:
        yield
    except Exception as error:  # tokenizers raise no class of their own
        reason = one_line(error)
        if path.is_file() and path.stat().st_size < 1_000 and path.read_bytes().startswith(LFS):
            reason = "it is a pointer of git-lfs; git lfs pull fetches the file"
        raise UsageError(f"cannot read {path} ({reason})") from error
