"""Sites of published models, read and changed, beside hooks in PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
tr = pytest.importorskip("transformers")

from flax_attn import circuits, heads  # noqa: E402
from flax_attn.attention import Lens  # noqa: E402
from flax_attn.published.families import read  # noqa: E402
from flax_attn.published.modules import Decoder  # noqa: E402
from tests.published.folders import WRITES, write  # noqa: E402

# By site in a block: the module in PyTorch, which part of its outputs, or its inputs.
FAMILIES = {
    "gpt2": (
        "transformer.h.{}",
        {
            "attention/query": ("attn.c_attn", 0),
            "attention/key": ("attn.c_attn", 1),
            "attention/value": ("attn.c_attn", 2),
            "attention/context": ("attn.c_proj", "inputs"),
            "attention/output": ("attn.c_proj", None),
            "feed_forward/output": ("mlp", None),
        },
    ),
    "llama_untied": (
        "model.layers.{}",
        {
            "attention/query": ("self_attn.q_proj", None),
            "attention/key": ("self_attn.k_proj", None),
            "attention/value": ("self_attn.v_proj", None),
            "attention/context": ("self_attn.o_proj", "inputs"),
            "attention/output": ("self_attn.o_proj", None),
            "feed_forward/output": ("mlp", None),
        },
    ),
    "bert_words": (
        "bert.encoder.layer.{}",
        {
            "attention/query": ("attention.self.query", None),
            "attention/key": ("attention.self.key", None),
            "attention/value": ("attention.self.value", None),
            "attention/context": ("attention.output.dense", "inputs"),
            "attention/output": ("attention.output.dense", None),
            "middle": ("attention", None),
            "feed_forward/output": ("output.dense", None),
        },
    ),
}
FAMILIES["t5"] = (
    "decoder.block.{}",
    {
        f"{ours}/{part}": (f"{its}.{name}", kind)
        for ours, its in (
            ("attention", "layer.0.SelfAttention"),
            ("cross_attention", "layer.1.EncDecAttention"),
        )
        for part, name, kind in (
            *(("query", "q", None), ("key", "k", None), ("value", "v", None)),
            *(("context", "o", "inputs"), ("output", "o", None)),
        )
    },
)
BLOCK = {"before": ("", "inputs"), "after": ("", None)}
TURNED = "attention/query", "attention/key"  # pairs stand together, which are halves there
LENGTH = 7
SPLIT = ["gpt2", "llama_untied", "gemma2", "olmo2", "qwen3", "pythia", "bert"]


def hooked(module, part, change):
    """A hook that changes the inputs of a module, its outputs, or a third of them."""

    def before(module, inputs):
        return (change(inputs[0]), *inputs[1:])

    def after(module, inputs, outputs):
        own = outputs[0] if isinstance(outputs, tuple) else outputs
        thirds = [own] if part is None else list(torch.chunk(own, 3, dim=-1))
        thirds[part or 0] = change(thirds[part or 0])
        own = torch.cat(thirds, dim=-1)
        return (own, *outputs[1:]) if isinstance(outputs, tuple) else own

    if part == "inputs":
        return module.register_forward_pre_hook(before)
    return module.register_forward_hook(after)


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("family", FAMILIES)
def test_every_site_is_that_of_pytorch_read_and_changed(family, tmp_path):
    folder = write(family, tmp_path)
    _, model, params = read(folder)
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    theirs = getattr(tr, WRITES[family][0]).from_pretrained(folder, **options).eval()
    tokens = np.random.default_rng(0).integers(5, model.vocabulary_size, (2, LENGTH))
    is_decoder = isinstance(model, Decoder)
    lengths = np.full(2, LENGTH, np.int32)
    inputs = tokens if is_decoder else {"tokens": tokens, "lengths": lengths}
    of_source, first = {}, 0
    if family == "t5":
        inputs = {"source": tokens, "source_lengths": lengths, "target": tokens[:, ::-1]}
        of_source = {"decoder_input_ids": torch.tensor(tokens[:, ::-1].copy())}
        first = model.num_encoder_blocks
    inputs = jax.tree.map(lambda array: jnp.asarray(array, jnp.int32), inputs)
    sites = heads.read(model, params, inputs)
    ones = dict.fromkeys(sites, jnp.ones(()))

    @jax.jit
    def times(factors):
        with Lens(change={"*": lambda site, array: array * factors[site]}):
            return model.apply({"params": params}, inputs)[0]

    block, parts = FAMILIES[family]
    checked = 0
    for i in range(first, model.num_blocks):
        for name, (path, part) in (parts | BLOCK).items():
            site, kept = f"blocks_{i}/{name}", []
            module = theirs.get_submodule(".".join(filter(None, [block.format(i - first), path])))
            half = lambda array, kept=kept: kept.append(array) or array / 2
            hook = hooked(module, part, half)
            with hook, torch.no_grad():
                expected = theirs(torch.tensor(tokens), **of_source).logits.numpy()
            own = np.asarray(sites[site])
            there = kept[0].numpy().reshape(own.shape)
            if family.startswith("llama") and name in TURNED:
                there = there.reshape(*own.shape[:-1], 2, -1).swapaxes(-1, -2)  # (..., d / 2, 2)
            close(own, there.reshape(own.shape))
            close(times(ones | {site: jnp.array(0.5)}), expected)
            checked += 1
    assert checked == (model.num_blocks - first) * len(parts | BLOCK)


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("family", SPLIT)
def test_parts_of_a_score_add_up_to_it(family, tmp_path):
    _, model, params = read(write(family, tmp_path))
    tokens = np.random.default_rng(0).integers(5, model.vocabulary_size, (2, LENGTH))
    tokens, lengths = jnp.asarray(tokens, jnp.int32), jnp.full(2, LENGTH)
    inputs = tokens if isinstance(model, Decoder) else {"tokens": tokens, "lengths": lengths}
    layer, head, query, key = "blocks_1/attention", model.num_heads - 1, 5, 2
    no_bias = lambda path, leaf: leaf * (path[-1].key != "bias")
    params = jax.tree.map_with_path(no_bias, params)
    scores = heads.read(model, params, inputs, ("*/scores",))[f"{layer}/scores"]
    split = circuits.score_parts(model, params, inputs, layer, head, query=query, key=key)
    total, cap = split.pairs.sum(axis=(1, 2)), getattr(model, "softcap", None)
    close(cap * np.tanh(total / cap) if cap else total, scores[:, head, query, key])
    largest = np.abs(split.pairs).max()
    np.testing.assert_allclose(split.pairs[:, 0], 0, atol=1e-5 * largest)  # nothing is left
    np.testing.assert_allclose(split.pairs[:, :, 0], 0, atol=1e-5 * largest)


def close(own, expected):
    np.testing.assert_allclose(own, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
