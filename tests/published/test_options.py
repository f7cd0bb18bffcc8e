"""What stands for the options that a published folder leaves out, and what its tokens are."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn
from flax_attn.__main__ import main
from flax_attn.errors import UsageError
from flax_attn.models.images import cut_patches
from flax_attn.published import families, tasks
from flax_attn.published.families import FAMILIES
from flax_attn.published.folder import ModelConfig, StoredWeights
from flax_attn.published.modules import ACTIVATIONS
from tests.published import tiny

SIZES = {"vocab_size": 50, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2}
SIZES |= {"intermediate_size": 40, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 50, "n_positions": 64, "n_embd": 24, "n_head": 4, "n_layer": 2}
HEADS = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 3}
HEADS |= {"linear_key_head_dim": 5, "linear_value_head_dim": 7}
DISTILBERT = {"vocab_size": 50, "dim": 24, "n_heads": 4, "n_layers": 2, "hidden_dim": 40}
IMAGES = {"image_size": 8, "patch_size": 2, "num_channels": 1}


class File:
    """A file whose arrays are all of one shape."""

    def get_slice(self, name):
        return self

    def get_shape(self):
        return [50, 24]

    def get_dtype(self):
        return "F32"

    def get_tensor(self, name):
        return np.zeros(self.get_shape(), np.float32)


def build(kind, *names, **options):
    """The model and the layout of a family, of the sizes above and arrays of these names."""
    sizes = {"gpt2": GPT2, "distilbert": DISTILBERT | {"max_position_embeddings": 64}}
    content = sizes.get(kind, SIZES) | (IMAGES if kind in ("vit", "deit") else {})
    content |= HEADS if kind in families.HYBRIDS else {}
    config = ModelConfig(content | {"model_type": kind} | options, Path("config.json"))
    return FAMILIES[kind].build(config, StoredWeights(dict.fromkeys(names, File()), ()))


# of transformers' own classes of options
LLAMA = {"rms": True, "epsilon": 1e-6, "activation": "silu", "gated": True, "pre_norm": True}
LLAMA |= {"output_norm": False, "scale": 6**-0.5, "embedding_scale": 1.0, "num_key_heads": 4}
LLAMA |= {"windows": (0, 0), "query_bias": False, "out_bias": False, "hidden_bias": False}
GEMMA = LLAMA | {"activation": "gelu_pytorch_tanh", "embedding_scale": 24**0.5}
DEFAULTS = {
    "gpt2": {"hidden_features": 96, "activation": "gelu_new", "epsilon": 1e-5, "tied": True},
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "gemma": GEMMA,
    "gemma2": GEMMA | {"output_norm": True},
    "gemma3_text": GEMMA | {"output_norm": True},
    "olmo2": LLAMA | {"epsilon": 1e-5, "pre_norm": False, "output_norm": True},
    "phi3": LLAMA | {"epsilon": 1e-5, "rotary_features": 6},
    "olmo": LLAMA | {"rms": False, "norm_parameters": False, "epsilon": 1e-5},
    "granite": LLAMA | {"scale": 1.0},
    "smollm3": LLAMA,
    "starcoder2": {"activation": "gelu_pytorch_tanh", "hidden_bias": True, "windows": (0, 0)},
    "qwen3_5_text": LLAMA
    | {"output_gate": True, "rotary_features": 1, "attention": "gated_delta gated_delta"},
    "gpt_neox": {"epsilon": 1e-5, "activation": "gelu", "parallel": True, "rotary_features": 1},
    "phi": {"epsilon": 1e-5, "activation": "gelu_new", "parallel": True, "rotary_features": 3},
    "bert": {"epsilon": 1e-12, "activation": "gelu", "num_types": 2, "max_length": 64},
    "roberta": {"epsilon": 1e-12, "num_types": 2, "max_length": 62},
    "distilbert": {"epsilon": 1e-12, "activation": "gelu", "pooling": "relu", "num_types": 0},
    "vit": {"epsilon": 1e-12, "activation": "gelu", "query_bias": True, "num_classes": 0},
    "deit": {"has_teacher_token": True, "has_teacher_classes": False},
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_an_option_that_is_left_out_has_the_value_of_its_family(kind, monkeypatch):
    monkeypatch.setattr(families, "frequencies_of", lambda config, types, width: ((), ()))
    model, _ = build(kind)
    assert {name: getattr(model, name) for name in DEFAULTS[kind]} == DEFAULTS[kind]


def test_arrays_say_what_options_do_not():
    model, layout = build("qwen2", "layers.0.self_attn.q_proj.bias", "lm_head.weight")
    assert (model.query_bias, model.out_bias, model.tied) == (True, False, False)
    assert (layout.turned, layout.shift) == (6, 0.0)
    assert build("llama")[0].tied
    assert build("qwen3", "layers.0.self_attn.q_norm.weight")[0].query_key_norm == "head"
    assert build("olmo2", "layers.0.self_attn.q_norm.weight")[0].query_key_norm == "all"
    assert build("gemma")[1].shift == 1.0
    phi, layout = build("phi", "lm_head.weight", hidden_size=32)
    assert (phi.tied, phi.unembedding_bias, layout.turned) == (False, True, 4)
    assert build("roberta")[1].first_position == 2
    assert build("roberta", pad_token_id=4)[0].max_length == 59
    assert build("distilbert", "vocab_projector.bias")[0].head == "words"
    assert build("bert")[0].head == "states"


def test_a_window_is_of_the_blocks_that_slide():
    slides = {"sliding_window": 5}
    assert build("mistral", **slides)[0].windows == (5, 5)
    assert build("qwen2", **slides, use_sliding_window=False)[0].windows == (0, 0)
    types = ["sliding_attention", "full_attention"]
    assert build("gemma2", **slides, layer_types=types)[0].windows == (5, 0)
    assert build("olmo3", **slides, num_hidden_layers=5)[0].windows == (5, 5, 5, 0, 5)
    with pytest.raises(UsageError, match="layer_types"):
        build("gemma2", **slides, layer_types=types[:1])


def test_blocks_of_a_hybrid_are_of_two_kinds(monkeypatch):
    monkeypatch.setattr(families, "frequencies_of", lambda config, types, width: ((), ()))
    model, layout = build("qwen3_next", full_attention_interval=2)
    assert model.attentions == ("gated_delta", "full")
    assert (model.linear["key_features"], model.linear["value_features"]) == (20, 28)
    assert layout.names["blocks_0/attention/gate"] == "layers.0.linear_attn.in_proj_qkvz 3"
    assert layout.names["blocks_1/attention/gate"] == "layers.1.self_attn.q_proj 1"
    with pytest.raises(UsageError, match="dense networks"):
        build("qwen3_next", "layers.0.mlp.experts.gate_up_proj", num_experts=8)
    with pytest.raises(UsageError, match="layer_types"):
        build("llama", layer_types=["linear_attention"] * 2)


def test_frequencies_of_rotary_positions_are_those_of_the_options():
    expected = lambda theta: tuple(theta ** (-i / 3) for i in range(3))
    of = lambda **options: build("llama", **options)[0].frequencies[0]
    np.testing.assert_allclose(of(), expected(10_000.0), rtol=1e-6)
    np.testing.assert_allclose(of(rope_theta=500.0), expected(500.0), rtol=1e-6)
    linear = {"type": "linear", "factor": 4.0}
    halved = of(rope_theta=500.0, rope_scaling=linear)
    np.testing.assert_allclose(halved, np.array(expected(500.0)) / 4, rtol=1e-6)
    nope = build("smollm3", no_rope_layer_interval=2)[0].frequencies
    np.testing.assert_allclose(nope, [expected(2e6), (0.0,) * 3], rtol=1e-6)
    neox = build("gpt_neox", hidden_size=64, rotary_emb_base=100, rotary_pct=0.5)
    assert neox[1].turned == neox[0].rotary_features == 8
    np.testing.assert_allclose(neox[0].frequencies[0], 100.0 ** (-np.arange(4) / 4), rtol=1e-6)


def test_activations_are_the_functions_of_their_names():
    x = np.linspace(-3, 3, 31)
    tanh = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    exact = x * np.array([jax.scipy.stats.norm.cdf(own) for own in x])
    expected = dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), tanh)
    expected |= {"gelu": exact, "relu": np.maximum(x, 0), "silu": x / (1 + np.exp(-x))}
    expected["quick_gelu"] = x / (1 + np.exp(-1.702 * x))
    assert ACTIVATIONS.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(ACTIVATIONS[name](jnp.array(x)), values, atol=2e-6)


def test_patches_lie_row_by_row_with_their_channels_last():
    images = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)
    patches = np.asarray(cut_patches(jnp.array(images), 2))
    assert patches.shape == (2, 6, 12)
    np.testing.assert_array_equal(patches[1, 4], images[1, 2:4, 2:4].ravel())


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    return {
        "gpt2": tiny.write_gpt2(folder / "gpt2", num_blocks=1),
        "classes": tiny.write_bert(folder / "classes", "classes"),
        "words": tiny.write_bert(folder / "words", "words"),
        "states": tiny.write_bert(folder / "states", "states"),
        "number": tiny.write_bert(folder / "number", "number"),
        "tokens": tiny.write_bert(folder / "tokens", "tokens"),
        "patches": tiny.write_vit(folder / "patches", classes=False),
        "vit": tiny.write_vit(folder / "vit"),
        "colour": tiny.write_vit(folder / "colour", channels=3),
    }


def test_a_model_reads_as_many_tokens_as_it_can_and_is_asked_for(folders):
    read = lambda most: tasks.load(folders["gpt2"], most)[0].data.max_length
    assert (read(10), read(1_000)) == (10, tiny.TOKENS)
    task, _, _ = tasks.load(folders["classes"], 4)
    encoded = task.inputs.inputs(["the cat sat on the mat", "a dog"])
    np.testing.assert_array_equal(encoded["lengths"], [4, 4])
    assert encoded["tokens"].tolist() == [[1, 5, 6, 7], [1, 10, 11, 2]]


def test_a_text_that_is_cut_is_warned_of_and_empty_ones_are_refused(folders, capsys):
    encoder = tasks.load(folders["classes"], 4)[0].inputs
    encoder.warn_of_length(["a dog", "the cat sat on the mat"])
    assert "text 2 has 8 tokens" in capsys.readouterr().err
    assert encoder.can_read("a")
    assert not encoder.can_read(" ")
    with pytest.raises(UsageError, match="expected a text, got an empty one"):
        encoder.inputs(["a dog", " "])


def test_tokens_are_written_with_their_blanks_and_parts_as_numbers(folders):
    tokenizer = tasks.load(folders["gpt2"])[0].inputs.tokenizer
    first, second = tokenizer.encode("é")
    assert tokenizer.written(first) == f"<{first}>"
    assert tokenizer.split(" a") == [" ", "a"]
    assert tokenizer.decode([first, second]) == "é"
    assert tokenizer.written(10**6) == "<1000000>"
    words = tasks.load(folders["words"])[0].inputs.tokenizer
    assert words.split("the cat") == ["[CLS]", "the", "cat", "[SEP]"]
    assert words.decode(words.encode("the cat")) == "the cat"


def test_the_word_in_place_of_the_mask_is_named(folders):
    model = flax_attn.load(folders["words"])
    text = "the [MASK] sat on"
    tokens = jax.tree.map(jnp.asarray, model.task.inputs.inputs([text]))
    outputs, _ = jax.jit(model.model.apply)({"params": model.params[0]}, tokens)
    shares = jax.nn.softmax(outputs[0, 2])
    prediction = model.predict([text])
    np.testing.assert_allclose(prediction.outputs[0], shares, atol=1e-6)
    assert prediction.classes == [tiny.WORDS[int(np.argmax(shares))]]
    for other, count in (("the cat", 0), ("the [MASK] [MASK]", 2)):
        with pytest.raises(UsageError, match=rf"one \[MASK\] .*{count}\]$"):
            model.predict([text, other])


def test_an_encoder_without_a_head_gives_its_states(folders):
    model = flax_attn.load(folders["states"])
    texts = ["the cat sat", "a dog"]
    prediction = model.predict(texts)
    encoded = jax.tree.map(jnp.asarray, model.task.inputs.inputs(texts))
    states, _ = jax.jit(model.model.apply)({"params": model.params[0]}, encoded)
    assert states.shape == (2, 5, tiny.FEATURES)
    np.testing.assert_allclose(prediction.outputs, states, atol=1e-6)
    assert prediction.names == prediction.classes == []
    assert prediction.tokens[1] == ["[CLS]", "a", "dog", "[SEP]"]


def write_rule(folder, rule, *modules, most=64):
    names = {"Transformer": "", "Pooling": "1_Pooling"} | dict.fromkeys(modules, "2_Last")
    listed = [{"type": f"models.{name}", "path": path} for name, path in names.items()]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": most}))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(rule))


def test_a_vector_of_a_text_is_pooled_as_its_folder_says(folders, tmp_path):
    folder = tiny.write_bert(tmp_path / "states", "states")
    texts = ["the cat sat on the mat", "a dog"]
    model = flax_attn.load(folder)
    states = model.predict(texts).outputs
    means = np.stack([states[0].mean(axis=0), states[1, :4].mean(axis=0)])
    np.testing.assert_allclose(model.embed(texts), means, atol=1e-6)
    write_rule(folder, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    np.testing.assert_allclose(model.embed(texts), states[:, 0], atol=1e-6)
    write_rule(folder, {"pooling_mode_mean_tokens": True}, "Normalize", most=5)
    cut = model.predict("the cat sat").outputs.mean(axis=1)  # with [CLS] and [SEP] five tokens
    units = [row / np.linalg.norm(row) for row in (cut[0], means[1])]
    np.testing.assert_allclose(model.embed(texts), units, atol=1e-6)
    write_rule(folder, {"pooling_mode_max_tokens": True})
    with pytest.raises(UsageError, match="pooling_mode_max_tokens"):
        model.embed(texts)
    write_rule(folder, {}, "Dense")
    with pytest.raises(UsageError, match="Dense"):
        model.embed(texts)
    with pytest.raises(UsageError, match="encoder of texts"):
        flax_attn.load(folders["gpt2"]).embed(texts)


def test_an_encoder_gives_a_number_or_classes_of_tokens(folders, capsys):
    texts = ["the cat sat", "a dog"]
    for name in ("number", "tokens"):
        model = flax_attn.load(folders[name])
        prediction = model.predict(texts)
        encoded = jax.tree.map(jnp.asarray, model.task.inputs.inputs(texts))
        outputs, _ = jax.jit(model.model.apply)({"params": model.params[0]}, encoded)
        expected = outputs[:, 0] if name == "number" else jax.nn.softmax(outputs)
        np.testing.assert_allclose(prediction.outputs, expected, atol=1e-6)
        assert prediction.names == ([] if name == "number" else tiny.CLASSES)
        assert prediction.classes == []
    assert main(["predict", str(folders["number"]), "a dog"]) == 0
    number = flax_attn.load(folders["number"]).predict("a dog").outputs[0]
    assert f"{number:.4g}" in capsys.readouterr().out
    assert main(["predict", str(folders["tokens"]), "a dog"]) == 2


def test_images_without_classes_have_states(folders):
    model = flax_attn.load(folders["patches"])
    images = np.random.default_rng(0).random((2, 8, 8)).astype(np.float32)
    states, _ = model.model.apply({"params": model.params[0]}, jnp.array(2 * images[..., None] - 1))
    prediction = model.predict(images)
    assert states.shape == (2, 17, tiny.FEATURES)
    np.testing.assert_allclose(prediction.outputs, states, atol=1e-5)
    assert prediction.attention["block0"].shape == (2, tiny.HEADS, 1, 16)


@pytest.mark.parametrize("name", ["gpt2", "classes", "words", "vit"])
def test_in_half_precision_probabilities_are_of_float32(folders, name):
    single = flax_attn.load(folders[name])
    half = flax_attn.load(folders[name], dtype=jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(half.params)} == {np.dtype(jnp.bfloat16)}
    inputs = {"vit": np.ones((1, 5, 5), np.float32), "words": "the cat [MASK]"}.get(name, "the cat")
    outputs = half.predict(inputs).outputs
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(outputs.sum(axis=-1), 1, atol=1e-5)  # a sum in half is off by more
    np.testing.assert_allclose(outputs, single.predict(inputs).outputs, rtol=0.1, atol=2e-3)
    with pytest.raises(UsageError, match="floats"):
        flax_attn.load(folders[name], dtype=np.int32)


def write_ends(folder, ends):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": ends}))


def test_a_text_ends_at_an_end_token_that_is_written_and_not_at_one_of_its_prompt(tmp_path):
    folder = tiny.write_gpt2(tmp_path, num_blocks=1)
    prompts = ["the cat sat on a mat", "a dog"]
    options = {"length": 40, "temperature": 0.0}
    whole = [flax_attn.load(folder).generate(own, **options).texts[0] for own in prompts]
    tokens = [flax_attn.load(folder).task.inputs.encoded(own) for own in whole]
    written = [own[len(prompt) :] for own, prompt in zip(tokens, prompts)]
    end = written[0][-1]
    at = [own.index(end) if end in own else len(own) for own in written]
    assert at[0] < 40
    for ends in (end, [end, 10**9]):
        write_ends(folder, ends)
        model, heard = flax_attn.load(folder), []
        told = model.generate(prompts, **options, on_texts=heard.append)
        own = [text[: len(text) - (40 - n)] for text, n in zip(whole, at)]
        assert told.texts == heard[-1] == own
        assert len(heard) == -(-(max(at) + 1) // 16) if max(at) < 40 else 3
    write_ends(folder, model.task.inputs.encoded("t")[0])
    assert flax_attn.load(folder).generate(prompts[0], **options).texts[0].startswith(prompts[0])


def test_a_tokenizer_of_another_model_is_warned_of_and_one_without_a_mask_told(tmp_path):
    folder, said = tiny.write_gpt2(tmp_path / "gpt2", num_blocks=1), []
    whole = tasks.load(folder, warn=said.append)[0].inputs.tokenizer.size
    assert not said
    words = tiny.write_bert(tmp_path / "bert")
    (folder / "tokenizer.json").write_bytes((words / "tokenizer.json").read_bytes())
    tasks.load(folder, warn=said.append)
    assert f"{whole:,}" in said[0]
    path = words / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "[MUSK]"))
    with pytest.raises(UsageError, match=r"\[MASK\]"):
        flax_attn.load(words).predict(["the [MASK]"])


def test_an_image_is_scaled_as_the_model_was_trained(folders):
    model = flax_attn.load(folders["vit"])
    images = np.random.default_rng(0).random((2, 8, 8)).astype(np.float32)
    outputs, aux = model.model.apply(
        {"params": model.params[0]}, jnp.array(2 * images[..., None] - 1)
    )
    prediction = model.predict(images)
    np.testing.assert_allclose(prediction.outputs, jax.nn.softmax(outputs), atol=1e-5)
    weights = aux["attention"]["block0"][:, :, :1, 1:]
    np.testing.assert_allclose(prediction.attention["block0"], weights, atol=1e-5)
    single = model.predict(np.round(255 * images[0]).astype(np.uint8))
    np.testing.assert_allclose(single.outputs, prediction.outputs[:1], atol=0.02)
    large = np.kron(images, np.ones((4, 4), np.float32))  # of any size
    np.testing.assert_allclose(model.predict(large).outputs, prediction.outputs, atol=0.1)
    assert model.task.target.class_names() == tiny.CLASSES
    with pytest.raises(UsageError, match="1 channels"):
        model.predict(np.zeros((1, 8, 8, 3)))


def test_three_axes_are_one_image_in_colour_where_the_last_is_of_channels(folders):
    model = flax_attn.load(folders["colour"])
    image = np.random.default_rng(0).random((8, 8, 3)).astype(np.float32)
    expected = model.predict(image[None]).outputs
    np.testing.assert_array_equal(model.predict(image).outputs, expected)
    grey = np.moveaxis(image, -1, 0)  # (n, height, width)
    in_channels = np.repeat(grey[..., None], 3, axis=-1)
    np.testing.assert_array_equal(model.predict(grey).outputs, model.predict(in_channels).outputs)
    assert flax_attn.load(folders["vit"]).predict(np.ones((4, 8, 1))).outputs.shape == (4, 3)


def test_classes_without_names_have_numbers():
    config = ModelConfig({"id2label": {"0": "a", "2": "c"}}, Path("config.json"))
    assert tasks.class_names(config, 3) == ["a", "class 1", "c"]
    assert tasks.class_names(ModelConfig({}, Path("x")), 1) == ["class 0"]
