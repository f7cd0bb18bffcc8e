"""A published layer of linear attention with random weights, beside `LinearAttention`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
tr = pytest.importorskip("transformers")

from transformers.models.qwen3_next import modeling_qwen3_next as published  # noqa: E402

from flax_attn.attention import LinearAttention  # noqa: E402

KEY_HEADS, HEADS, KEY, VALUE, FEATURES, LENGTH = 2, 6, 8, 10, 16, 70
CONFIG = {"hidden_size": FEATURES, "linear_num_key_heads": KEY_HEADS, "num_hidden_layers": 1}
CONFIG |= {"linear_num_value_heads": HEADS, "linear_key_head_dim": KEY}
CONFIG |= {"linear_value_head_dim": VALUE, "layer_types": ["linear_attention"]}


def converted(theirs):
    """The parameters of a `Qwen3NextGatedDeltaNet`, whose projections go by heads of keys."""
    arrays = {name: array.detach().numpy() for name, array in theirs.named_parameters()}
    values = HEADS // KEY_HEADS * VALUE

    def parts(name, sizes):
        groups = arrays[name].T.reshape(FEATURES, KEY_HEADS, sum(sizes))
        return [x.reshape(FEATURES, -1) for x in np.split(groups, np.cumsum(sizes)[:-1], axis=-1)]

    strength, decay = parts("in_proj_ba.weight", [HEADS // KEY_HEADS] * 2)
    kernels = {"strength": strength, "decay": decay, "out": arrays["out_proj.weight"].T}
    names, sizes = ("query", "key", "value", "gate"), [KEY, KEY, values, values]
    kernels |= zip(names, parts("in_proj_qkvz.weight", sizes))
    return {name: {"kernel": kernel} for name, kernel in kernels.items()} | {
        "conv": arrays["conv1d.weight"][:, 0].T,
        "decay_bias": arrays["dt_bias"],
        "decay_rate": arrays["A_log"],
        "context_norm": {"scale": arrays["norm.weight"]},
    }


@pytest.mark.filterwarnings("ignore")  # of transformers
def test_gated_delta_net_of_qwen():
    config = tr.Qwen3NextConfig(**CONFIG)
    torch.manual_seed(0)
    theirs = published.Qwen3NextGatedDeltaNet(config, 0).eval()
    with torch.no_grad():
        theirs.norm.weight.normal_()
    x = np.random.default_rng(0).normal(size=(2, LENGTH, FEATURES)).astype(np.float32)
    layer = LinearAttention(
        HEADS, KEY_HEADS, key_features=HEADS * KEY, value_features=HEADS * VALUE
    )
    params = jax.tree.map(jnp.asarray, converted(theirs))
    apply = jax.jit(lambda x: layer.apply({"params": params}, x))
    with torch.no_grad():
        expected = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(apply(x).context, expected, atol=1e-4)

    decode = jax.jit(lambda x, cache: layer.apply({"params": params}, x, cache, method="decode"))
    cache, their_cache = layer.init_cache(FEATURES, (2,)), tr.DynamicCache(config=config)
    first = LENGTH - 4
    for begin, end in ((0, first), *((i, i + 1) for i in range(first, LENGTH))):
        (context, _), cache = decode(x[:, begin:end], cache)
        with torch.no_grad():
            of_step = theirs(torch.tensor(x[:, begin:end]), cache=their_cache).numpy()
        np.testing.assert_allclose(context, of_step, atol=1e-4)
        np.testing.assert_allclose(context, expected[:, begin:end], atol=1e-4)
