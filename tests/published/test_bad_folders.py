"""Folders that are no published model are one line, and nothing of them runs."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest

import flax_attn
from flax_attn.errors import UsageError
from tests.published.tiny import write, write_bert, write_gpt2, write_vit

safetensors = pytest.importorskip("safetensors.numpy")
CONFIG, ARRAYS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
INDEX = "model.safetensors.index.json"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def option(name, value):
    def change(folder):
        content = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps(content | {name: value}))

    return change


def text(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def arrays(**changes):
    """Changes arrays, or removes those that are None. `__` stands for a dot."""

    def changed(folder):
        own = safetensors.load_file(folder / ARRAYS)
        own |= {name.replace("__", "."): array for name, array in changes.items()}
        own = {name: array for name, array in own.items() if array is not None}
        safetensors.save_file(own, folder / ARRAYS)

    return changed


def cut(folder):
    content = (folder / ARRAYS).read_bytes()
    (folder / ARRAYS).write_bytes(content[: len(content) // 2])


def pickled(name):
    def change(folder):
        (folder / ARRAYS).unlink()
        (folder / name).write_bytes(pickle.dumps(Runs(folder / "ran")))

    return change


def index(content):
    return text(INDEX, json.dumps(content).encode())


def fewer_tokens(folder):
    option("vocab_size", 200)(folder)
    own = safetensors.load_file(folder / ARRAYS)["wte.weight"]
    arrays(wte__weight=own[:200])(folder)


BAD = {
    "no folder": (lambda folder: [path.unlink() for path in folder.iterdir()], "config.json"),
    "no JSON": (text(CONFIG, b'{"model_type": "gpt2"'), "config.json"),
    "an unknown family": (option("model_type", "mamba"), "model_type"),
    "code of its own": (option("auto_map", {"AutoModel": "x.py"}), "auto_map"),
    "quantised": (option("quantization_config", {"bits": 4}), "quantization_config"),
    "an unknown option": (option("attention_of_another_kind", True), "attention_of_another_kind"),
    "another value": (option("scale_attn_weights", False), "scale_attn_weights"),
    "an unknown activation": (option("activation_function", "swish9"), "activation_function"),
    "a size of another type": (option("n_embd", "16"), "config.json"),
    "heads that do not divide": (option("n_head", 3), "c_attn"),
    "a size that is missing": (option("n_layer", None), "n_layer"),
    "more blocks than the arrays": (option("n_layer", 3), "h.2."),
    "fewer blocks than the arrays": (option("n_layer", 1), "h.1."),
    "another width": (option("n_embd", 32), r"h.0.attn.c_attn.bias"),
    "another head": (option("architectures", ["GPT2ForTokenClassification"]), "architectures"),
    "two heads": (option("architectures", ["GPT2Model", "GPT2LMHeadModel"]), "architectures"),
    "no arrays": (lambda folder: (folder / ARRAYS).unlink(), ARRAYS),
    "a pickle": (pickled("pytorch_model.bin"), "pytorch_model.bin is a pickle"),
    "a pickle by another name": (pickled(ARRAYS), ARRAYS),
    "cut arrays": (cut, ARRAYS),
    "a pointer for arrays": (text(ARRAYS, LFS), f"{ARRAYS}.* git lfs pull"),
    "a pointer for a tokenizer": (text(TOKENIZER, LFS), f"{TOKENIZER}.* git lfs pull"),
    "an array that is missing": (arrays(ln_f__bias=None), "ln_f.bias"),
    "an array too many": (arrays(spy=np.zeros(3, np.float32)), "spy"),
    "another shape": (arrays(ln_f__bias=np.zeros(15, np.float32)), r"ln_f.bias .*\(15,\)"),
    "a kernel turned over": (
        arrays(h__0__mlp__c_fc__weight=np.zeros((64, 16), np.float32)),
        r"h.0.mlp.c_fc.weight",
    ),
    "whole numbers": (arrays(ln_f__bias=np.zeros(16, np.int8)), "ln_f.bias, got I8"),
    "an index to what is not there": (index({"weight_map": {"a": "no.safetensors"}}), "no.safe"),
    "an index that is none": (index({"weight_map": ["a"]}), INDEX),
    "no tokenizer": (lambda folder: (folder / TOKENIZER).unlink(), "save_pretrained"),
    "a damaged tokenizer": (text(TOKENIZER, b"{}"), TOKENIZER),
    "fewer tokens than the tokenizer": (fewer_tokens, "200"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_gpt2(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize(
    "own",
    [
        ("architectures", None),
        ("architectures", []),
        ("_model_name_or_path", "gpt2"),
    ],
)
def test_an_option_of_no_effect_is_read_over(own, good, tmp_path):
    shutil.copytree(good, tmp_path / "model")
    option(*own)(tmp_path / "model")
    assert flax_attn.load(tmp_path / "model").params.keys() == {0}


def test_an_end_that_is_no_token_is_warned_of(good, tmp_path):
    shutil.copytree(good, tmp_path / "model")
    said = []
    for end in (3, [3, 10**6]):
        option("eos_token_id", end)(tmp_path / "model")
        flax_attn.load(tmp_path / "model", said.append)
    assert len(said) == 1
    assert "1000000" in said[0]


def test_a_folder_of_links_opens_as_in_the_cache_of_hugging_face(good, tmp_path):
    blobs = shutil.copytree(good, tmp_path / "blobs")
    folder = tmp_path / "snapshots" / "0123"
    folder.mkdir(parents=True)
    for number, path in enumerate(sorted(blobs.iterdir())):
        (folder / path.name).symlink_to(f"../../blobs/{number}")
        path.rename(blobs / str(number))
    assert flax_attn.load(folder).params.keys() == {0}
    assert flax_attn.load(folder).generate("the cat", length=2).texts[0].startswith("the cat")


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_folder_is_one_line_and_runs_nothing(kind, good, tmp_path):
    change, named = BAD[kind]
    folder = shutil.copytree(good, tmp_path / "model")
    change(folder)
    with pytest.raises(UsageError, match=named) as told:
        flax_attn.load(folder)
    assert "\n" not in str(told.value)
    assert not (folder / "ran").exists()


BERT_OR_VIT = pytest.mark.parametrize(
    "write_one", [lambda folder: write_bert(folder, "classes"), write_vit]
)


@BERT_OR_VIT
def test_what_has_no_probabilities_of_classes_is_refused(write_one, tmp_path):
    folder = write_one(tmp_path)
    option("problem_type", "multi_label_classification")(folder)
    with pytest.raises(UsageError, match="problem_type"):
        flax_attn.load(folder)


def test_patches_that_do_not_fill_an_image_are_refused(tmp_path):
    folder = write_vit(tmp_path)
    option("patch_size", 5)(folder)
    with pytest.raises(UsageError, match=r"config.json"):
        flax_attn.load(folder)


def test_odd_heads_cannot_have_rotary_positions(tmp_path):
    llama = {"model_type": "llama", "vocab_size": 4, "hidden_size": 16, "num_attention_heads": 4}
    llama |= {"num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 8}
    folder = write(
        tmp_path, llama | {"head_dim": 5}, {"model.embed_tokens.weight": (4, 16)}, None, 0
    )
    with pytest.raises(UsageError, match=r"config.json"):
        flax_attn.load(folder)


def test_pixels_are_scaled_as_a_folder_has_it(tmp_path):
    folder, image = write_vit(tmp_path), np.full((8, 8), 0.3)
    scaled = flax_attn.load(folder).predict(image).outputs
    (folder / "preprocessor_config.json").write_text('{"do_normalize": false}')
    as_it_is = flax_attn.load(folder).predict(image).outputs
    assert np.abs(as_it_is - scaled).max() > 1e-3
    (folder / "preprocessor_config.json").write_text('{"image_mean": [0], "image_std": [1]}')
    np.testing.assert_allclose(flax_attn.load(folder).predict(image).outputs, as_it_is)
    (folder / "preprocessor_config.json").write_text('{"do_rescale": false}')
    with pytest.raises(UsageError, match=r"do_rescale .*preprocessor_config"):
        flax_attn.load(folder)


@pytest.mark.parametrize("factor", [1e30, np.nan])
def test_weights_whose_outputs_are_no_numbers_are_refused(factor, good, tmp_path):
    folder = shutil.copytree(good, tmp_path / "model")
    own = safetensors.load_file(folder / ARRAYS)
    safetensors.save_file({name: own[name] * np.float32(factor) for name in own}, folder / ARRAYS)
    model = flax_attn.load(folder)
    for ask in (lambda: model.predict("the cat"), lambda: model.generate("the cat", length=2)):
        with pytest.raises(UsageError, match="finite"):
            ask()


def test_classes_of_one_name_are_told_apart(tmp_path):
    folder = write_bert(tmp_path, "classes")
    option("id2label", {"0": "x", "1": "y", "2": "x"})(folder)
    assert flax_attn.load(folder).predict("the cat").names == ["x (0)", "y", "x (2)"]
