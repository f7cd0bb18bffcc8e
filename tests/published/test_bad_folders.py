"""Folders that are no published model: one clear line for each, and nothing of them runs."""

import json
import os
import pickle
import shutil
import struct

import numpy as np
import pytest

import flax_attn
from flax_attn.errors import UsageError
from tests.published.tiny import FEATURES, write, write_bert, write_gpt2, write_vit

safetensors = pytest.importorskip("safetensors.numpy")
CONFIG, ARRAYS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
INDEX = "model.safetensors.index.json"


class Runs:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def option(name, value):
    def change(folder):
        content = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps(content | {name: value}))

    return change


def without_option(name):
    def change(folder):
        content = json.loads((folder / CONFIG).read_text())
        del content[name]
        (folder / CONFIG).write_text(json.dumps(content))

    return change


def text(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def arrays(change):
    def changed(folder):
        own = safetensors.load_file(folder / ARRAYS)
        change(own)
        safetensors.save_file(own, folder / ARRAYS)

    return changed


def cut(folder):
    content = (folder / ARRAYS).read_bytes()
    (folder / ARRAYS).write_bytes(content[: len(content) // 2])


def tokenizer(change):
    def apply(folder):
        content = json.loads((folder / TOKENIZER).read_text())
        change(content)
        (folder / TOKENIZER).write_text(json.dumps(content))

    return apply


def numbered(token, number):
    return tokenizer(lambda content: content["model"]["vocab"].update({token: number}))


def tokens(**changes):
    return tokenizer(lambda content: content["model"].update(changes))


def rules(**changes):
    """Changes what stands beside the tokens of a tokenizer."""
    return tokenizer(lambda content: content.update(changes))


def replaces(pattern, content):
    """A rule that replaces a text, or what a regular expression matches."""
    kind = "Regex" if pattern.startswith("(") else "String"
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def in_pickle(folder):
    (folder / ARRAYS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Runs(folder / "ran")))


def pickle_by_another_name(folder):
    (folder / ARRAYS).write_bytes(pickle.dumps(Runs(folder / "ran")))


def index(content):
    return text(INDEX, json.dumps(content).encode())


def twice(folder):
    own = safetensors.load_file(folder / ARRAYS)
    first = dict(list(own.items())[:3])
    safetensors.save_file(first, folder / "other.safetensors")
    index({"weight_map": {"a": ARRAYS, "b": "other.safetensors"}})(folder)


def huge_header(folder):
    (folder / ARRAYS).write_bytes(struct.pack("<Q", 2**62) + b"{}")


BAD = {
    "no folder": (lambda folder: [path.unlink() for path in folder.iterdir()], "config.json"),
    "no JSON": (text(CONFIG, b'{"model_type": "gpt2"'), "JSON"),
    "an unknown family": (option("model_type", "mamba"), "expected a model_type of gpt2, "),
    "no family": (option("model_type", 3), "expected a model_type of gpt2, "),
    "code of its own": (option("auto_map", {"AutoModel": "x.py"}), "without auto_map"),
    "quantised": (option("quantization_config", {"bits": 4}), "without quantization_config"),
    "an unknown option": (option("attention_of_another_kind", True), "only known options"),
    "an end that is no token": (option("eos_token_id", 10**6), "expected a token from 0 to"),
    "another value": (option("scale_attn_weights", False), "expected True for scale_attn"),
    "an unknown activation": (option("activation_function", "swish9"), "one of gelu, "),
    "a size of the wrong type": (option("n_embd", "16"), "a whole number from 1 to"),
    "a size below 1": (option("n_layer", 0), "a whole number from 1 to"),
    "a huge size": (option("n_layer", 10**9), "a whole number from 1 to"),
    "a huge table": (option("vocab_size", 10**12), "a whole number from 1 to"),
    "an infinite number": (option("n_embd", float("inf")), "a whole number from 1 to"),
    "a number that is not above 0": (option("layer_norm_epsilon", 0), "a number above 0"),
    "heads that do not divide": (
        option("n_head", 3),
        "a number that divides n_embd=16 for n_head in .*config.json, got 3",
    ),
    "a size that is missing": (without_option("n_layer"), "expected n_layer in"),
    "another size than the arrays": (option("n_layer", 3), "the array h.2."),
    "fewer blocks than the arrays": (option("n_layer", 1), "more, such as h.1."),
    "another width": (option("n_embd", 32), "h.0.attn.c_attn.bias for a bias of"),
    "no arrays": (lambda folder: (folder / ARRAYS).unlink(), "model.safetensors, got none"),
    "a pickle": (in_pickle, "pytorch_model.bin is a pickle, which is never read"),
    "a pickle by another name": (pickle_by_another_name, "expected arrays in"),
    "cut arrays": (cut, "copy the file again"),
    "a pointer of git-lfs": (
        text(ARRAYS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        "is a pointer of git-lfs.; git lfs pull fetches the file",
    ),
    "a pointer for a tokenizer": (
        text(TOKENIZER, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        "tokenizer.json .it is a pointer of git-lfs.; git lfs pull fetches the file",
    ),
    "a huge header": (huge_header, "copy the file again"),
    "an array that is missing": (arrays(lambda own: own.pop("ln_f.bias")), "the array ln_f.bias"),
    "an array too many": (
        arrays(lambda own: own.update(spy=np.zeros(3, np.float32))),
        "1 more, such as spy",
    ),
    "an array of another shape": (
        arrays(lambda own: own.update({"ln_f.bias": np.zeros(15, np.float32)})),
        r"ln_f.bias for a bias of \(16,\), got \(15,\)",
    ),
    "a kernel turned over": (
        arrays(lambda own: own.update({"h.0.mlp.c_fc.weight": np.zeros((64, 16), np.float32)})),
        r"h.0.mlp.c_fc.weight for a kernel of \(16, 64\), got \(64, 16\)",
    ),
    "an array of whole numbers": (
        arrays(lambda own: own.update({"ln_f.bias": np.zeros(16, np.int8)})),
        "expected floats of .* in ln_f.bias, got I8",
    ),
    "an array with a NaN": (
        arrays(lambda own: own.update({"ln_f.bias": np.full(16, np.nan, np.float32)})),
        "expected finite numbers in ln_f.bias, got some that are not",
    ),
    "an index that leads outside": (
        index({"weight_map": {"a": "../secret"}}),
        "names of files right in .* got '../secret'; copy",
    ),
    "an index to too many files": (
        index({"weight_map": {f"a{i}": f"{i}.safetensors" for i in range(1_001)}}),
        "expected at most 1,000 files in .*index.json, got 1,001",
    ),
    "an index to what is not there": (index({"weight_map": {"a": "no.safetensors"}}), "got none"),
    "an index that is none": (index({"weight_map": ["a"]}), "expected weight_map, from arrays"),
    "an array in two files": (twice, "in one file of"),
    "no tokenizer": (lambda folder: (folder / TOKENIZER).unlink(), "save_pretrained"),
    "a damaged tokenizer": (text(TOKENIZER, b"{}"), "expected a tokenizer in"),
    "fewer tokens than the tokenizer": (
        lambda folder: [
            option("vocab_size", 200)(folder),
            arrays(lambda own: own.update({"wte.weight": own["wte.weight"][:200]}))(folder),
        ],
        "expected at most 200 tokens",
    ),
    "many more blocks than arrays": (
        option("n_layer", 1_000),
        r"sizes that fit in .*config.json \(1000 blocks, and 28 arrays\)",
    ),
    "a tokenizer without a token": (
        tokens(vocab={}, merges=[]),
        "expected tokens in .*tokenizer.json, got none; copy",
    ),
    "a number of no size in float32": (
        option("layer_norm_epsilon", 1e-300),
        "a number above 0 in float32 and at most 1e.09 for layer_norm_epsilon",
    ),
    "another head": (
        option("architectures", ["GPT2ForTokenClassification"]),
        "ForCausalLM, LMHeadModel, Model for architectures in .*'GPT2ForTokenClassification'",
    ),
    "two heads": (option("architectures", ["GPT2Model", "GPT2LMHeadModel"]), "one name that ends"),
    "a head that is no name": (option("architectures", [7]), "one name that ends"),
    "a token beyond those of the model": (numbered("a", 900), "expected at most 256 tokens"),
    "a token of a thousand letters and one": (
        numbered("a" * 1_001, 256),
        "a token of more than 1,000 letters.; copy the file again",
    ),
    "rules that panic": (
        rules(normalizer={"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
        "a tokenizer in .*rules of the type Precompiled",
    ),
    "rules that lengthen a text": (
        rules(normalizer=replaces("a", "a" * 1_001)),
        "a tokenizer in .*rules that may make a text 1,000 times as long, and more",
    ),
    "rules that lengthen a text together": (
        rules(
            normalizer={"type": "Sequence", "normalizers": [replaces("(a?)", "b" * 30)] * 2},
            decoder={"type": "Sequence", "decoders": [replaces("e", "e" * 30)]},
        ),
        "rules that may make a text 1,000 times as long, and more",
    ),
    "a token around texts that is none": (
        rules(
            post_processor={
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [{"Sequence": {"id": own, "type_id": 0}} for own in "AB"],
                "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2**32 - 1], "tokens": ["x"]}},
            }
        ),
        "a token around texts that is none of its 256",
    ),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_gpt2(tmp_path_factory.mktemp("good"))


def test_the_good_one_loads(good):
    assert flax_attn.load(good).params.keys() == {0}


def test_a_snapshot_of_the_hugging_face_cache_opens(good, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "607a30d7"
    shutil.copytree(good, blobs)
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(f"../../blobs/{blob.name}")
    linked, plain = flax_attn.load(snapshot), flax_attn.load(good)
    np.testing.assert_array_equal(linked.predict("a").outputs, plain.predict("a").outputs)


@pytest.mark.parametrize(
    "own", [("architectures", None), ("architectures", []), ("_model_name_or_path", "gpt2")]
)
def test_an_option_of_no_effect_is_read_over(own, good, tmp_path):
    shutil.copytree(good, tmp_path / "model")
    option(*own)(tmp_path / "model")
    assert flax_attn.load(tmp_path / "model").params.keys() == {0}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_folder_gets_one_line_and_runs_nothing(kind, good, tmp_path):
    change, message = BAD[kind]
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    change(folder)
    with pytest.raises(UsageError, match=message) as told:
        flax_attn.load(folder)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400
    assert not (folder / "ran").exists()


def test_patches_that_do_not_fill_an_image_are_told(tmp_path):
    folder = write_vit(tmp_path)
    option("patch_size", 5)(folder)
    said = "a number that divides image_size=8 for patch_size in .*config.json, got 5"
    with pytest.raises(UsageError, match=said):
        flax_attn.load(folder)


@pytest.mark.parametrize("shape", [(), (FEATURES,), (0, FEATURES), (1, FEATURES)])
@pytest.mark.parametrize("write_one", [lambda folder: write_bert(folder, "classes"), write_vit])
def test_a_head_of_no_classes_is_told(write_one, shape, tmp_path):
    folder = write_one(tmp_path)
    arrays(lambda own: own.update({"classifier.weight": np.zeros(shape, np.float32)}))(folder)
    said = (
        r"expected classifier.weight of shape \(classes, features\) with two classes or more, got"
    )
    with pytest.raises(UsageError, match=said):
        flax_attn.load(folder)


@pytest.mark.parametrize("write_one", [lambda folder: write_bert(folder, "classes"), write_vit])
def test_classes_of_which_several_may_be_right_are_refused(write_one, tmp_path):
    folder = write_one(tmp_path)
    option("problem_type", "multi_label_classification")(folder)
    with pytest.raises(UsageError, match="'single_label_classification' for problem_type in"):
        flax_attn.load(folder)


LLAMA = {"model_type": "llama", "vocab_size": 4, "hidden_size": 16, "num_attention_heads": 4}
LLAMA |= {"num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 8}
THREE = {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 8}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"head_dim": 5}, "sizes that fit in .* an even number of features, got 5"),
        (
            {"rope_scaling": THREE | {"low_freq_factor": 2.0, "high_freq_factor": 2.0}},
            "a number above low_freq_factor=2 for high_freq_factor in .*, got 2.0",
        ),
        ({"rope_theta": 1e-300}, "a number above 0 in float32 .* for rope_theta"),
    ],
)
def test_positions_that_cannot_be_are_told(options, said, tmp_path):
    folder = write(tmp_path, LLAMA | options, {"model.embed_tokens.weight": (4, 16)}, None, 0)
    with pytest.raises(UsageError, match=said):
        flax_attn.load(folder)


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        ({"image_std": [0]}, r"1 numbers from 1e-06 to 1,000 for image_std in .*processor_config"),
        ({"image_mean": [0.5] * 3}, r"1 numbers from 0 to 1,000 for image_mean in .*processor_con"),
        ({"do_rescale": False}, "expected True for do_rescale in .*preprocessor_config.json"),
        ({"do_normalize": 1}, "expected true or false for do_normalize"),
    ],
)
def test_a_scaling_of_pixels_that_is_not_covered_is_told(scaling, said, tmp_path):
    folder = write_vit(tmp_path)
    (folder / "preprocessor_config.json").write_text(json.dumps(scaling))
    with pytest.raises(UsageError, match=said):
        flax_attn.load(folder)


def test_pixels_are_not_scaled_where_a_folder_says_so(tmp_path):
    folder, image = write_vit(tmp_path), np.full((8, 8), 0.3)
    scaled = flax_attn.load(folder).predict(image).outputs
    (folder / "preprocessor_config.json").write_text('{"do_normalize": false}')
    as_it_is = flax_attn.load(folder).predict(image).outputs
    assert np.abs(as_it_is - scaled).max() > 1e-3
    (folder / "preprocessor_config.json").write_text('{"image_mean": [0], "image_std": [1]}')
    np.testing.assert_allclose(flax_attn.load(folder).predict(image).outputs, as_it_is)


def large(folder):
    arrays(lambda own: own.update({name: own[name] * 1e30 for name in own}))(folder)
    return folder


def test_weights_so_large_that_outputs_are_no_numbers_are_told(tmp_path):
    said = "expected outputs that are finite numbers, got some that are not"
    model, image = flax_attn.load(large(write_gpt2(tmp_path / "gpt2"))), np.full((8, 8), 0.3)
    for ask in (
        lambda: model.predict("the cat"),
        lambda: model.generate("the cat", length=2),
        lambda: flax_attn.load(large(write_vit(tmp_path / "vit"))).predict(image),
    ):
        with pytest.raises(UsageError, match=said):
            ask()


def test_a_text_without_tokens_is_told(tmp_path):
    folder = write_bert(tmp_path, "classes")
    tokens(unk_token="nothing")(folder)
    with pytest.raises(UsageError, match="a text that the tokenizer has tokens for, got 'zzz'"):
        flax_attn.load(folder).predict("zzz")


def test_rules_that_panic_at_a_text_are_told(good, tmp_path):
    folder = shutil.copytree(good, tmp_path / "model")
    rules(normalizer=replaces("(a|a|aa)+$", "b"))(folder)
    with pytest.raises(UsageError, match="a text that the tokenizer has tokens for, got 'aaaa"):
        flax_attn.load(folder).generate("a" * 28 + "!", length=1)
    beyond = {"type": "Strip", "content": "a", "start": 2**62, "stop": 2**62}
    rules(normalizer=None, decoder=beyond)(folder)
    with pytest.raises(UsageError, match="tokens that the tokenizer has a text for"):
        flax_attn.load(folder).generate("a", length=1)


@pytest.mark.parametrize(
    "usual",
    [
        [replaces(" ", "▁"), {"type": "Prepend", "prepend": "▁"}],
        [replaces("``", '"'), replaces("( {2,})", " ")] * 2,
        [replaces("_", "-")] * 12,
    ],
)
def test_the_rules_of_known_models_are_taken(usual, good, tmp_path):
    folder = shutil.copytree(good, tmp_path / "model")
    rules(normalizer={"type": "Sequence", "normalizers": usual})(folder)
    assert flax_attn.load(folder).generate("a cat", length=1).texts


def test_classes_of_one_name_are_told_apart(tmp_path):
    folder = write_bert(tmp_path, "classes")
    option("id2label", {"0": "x", "1": "y", "2": "x"})(folder)
    assert flax_attn.load(folder).predict("the cat").names == ["x (0)", "y", "x (2)"]
