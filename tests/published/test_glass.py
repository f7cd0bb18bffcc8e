"""A real language model that the package glassllm brings, beside that package's own NumPy code."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import flax_attn
from flax_attn.models.generation import Sampling, generate

glassllm = pytest.importorskip("glassllm")
safetensors = pytest.importorskip("safetensors.numpy")
tokenizers = pytest.importorskip("tokenizers")

TEXT = "Alice was beginning to get very tired of sitting by her sister on the bank, and of having"


def in_halves(kernel, heads):
    """A kernel `(out, in)` for half-split rotary positions, as transformers writes it."""
    out, rest = kernel.shape
    return kernel.reshape(heads, out // heads // 2, 2, rest).swapaxes(1, 2).reshape(out, rest)


def write(folder):
    """The model as a folder of the Llama family. Returns the folder and the package's model."""
    model, own = glassllm.load_pretrained("en")
    arrays = np.load(Path(glassllm.__file__).parent / "weights" / "en.npz")
    config = json.loads(str(arrays["__config__"]))
    heads, key_heads = config["n_heads"], config["n_kv_heads"]
    state = {"model.embed_tokens.weight": arrays["E"], "model.norm.weight": arrays["norm_f.gamma"]}
    for i in range(config["n_layers"]):
        take = lambda name, i=i: arrays[f"blocks.{i}.{name}"].T
        state |= {
            f"model.layers.{i}.{name}.weight": array
            for name, array in {
                "input_layernorm": take("norm1.gamma"),
                "post_attention_layernorm": take("norm2.gamma"),
                "self_attn.q_proj": in_halves(take("attn.W_Q"), heads),
                "self_attn.k_proj": in_halves(take("attn.W_K"), key_heads),
                "self_attn.v_proj": take("attn.W_V"),
                "self_attn.o_proj": take("attn.W_O"),
                "mlp.gate_proj": take("ffn.W1"),
                "mlp.up_proj": take("ffn.W3"),
                "mlp.down_proj": take("ffn.W2"),
            }.items()
        }
    arrays_of_ours = {name: np.ascontiguousarray(array) for name, array in state.items()}
    safetensors.save_file(arrays_of_ours, folder / "model.safetensors")
    options = {
        "model_type": "llama",
        "hidden_size": config["d_model"],
        "intermediate_size": arrays["blocks.0.ffn.W1"].shape[1],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": config["max_len"],
        "rms_norm_eps": config["eps"],
        "rope_theta": config["rope_base"],
        "vocab_size": config["vocab_size"],
    }
    (folder / "config.json").write_text(json.dumps(options))
    vocabulary = {token: i for i, token in enumerate(own.vocab)}
    bpe = tokenizers.models.BPE(vocabulary, [tuple(pair) for pair in own.merges], unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(bpe)
    space = {"prepend_scheme": "never"}
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(**space)
    tokenizer.decoder = tokenizers.decoders.Metaspace(**space)
    special = [token for token in own.vocab if token[0] == "<" and token[-1] == ">"]
    tokenizer.add_special_tokens([tokenizers.AddedToken(own, special=True) for own in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, model, own


def test_a_real_model_gives_the_numbers_of_its_own_code(tmp_path):
    folder, theirs, tokenizer = write(tmp_path)
    published = flax_attn.load(folder)
    model, params = published.model, published.params[0]
    tokens = tokenizer.encode(TEXT)
    assert published.task.inputs.encoded(TEXT) == tokens
    tracer = glassllm.Tracer()
    (expected,) = theirs.forward(tokens, trace=tracer).data
    apply = jax.jit(lambda params, x: model.apply({"params": params}, x, need_weights=True))
    logits, aux = apply(params, np.array([tokens], np.int32))
    np.testing.assert_allclose(logits[0], expected, atol=1e-5 * np.abs(expected).max(), rtol=0)
    for i, weights in enumerate(aux["attention"].values()):
        for head, own in enumerate(weights[0]):
            value = tracer.get("attn.softmax", layer=i, head=head).value
            np.testing.assert_allclose(own, value, atol=2e-6)
    written = np.concatenate(list(generate(model, params, [tokens], 40, Sampling(0.0, 0))), axis=1)
    assert written[0].tolist() == [step.token for step in theirs.generate(tokens, 40, greedy=True)]
    texts = published.generate(TEXT, length=10, temperature=0.0).texts
    assert texts[0].startswith(TEXT)
