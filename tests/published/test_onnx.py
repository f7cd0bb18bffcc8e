"""The reference cases of two operators of ONNX: linear attention, and the convolution before it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx.backend.test.case.node import causal_conv_with_state, linear_attention  # noqa: E402

import flax_attn.attention as fa  # noqa: E402


def cases(module, operator):
    """The cases of an operator: attributes, inputs by name, and outputs."""
    collected = []

    def expect(node, inputs, outputs, name, **_):
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        by_name = dict(zip(filter(None, node.input), inputs, strict=True))
        collected.append(pytest.param(attributes, by_name, outputs, id=name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "expect", expect)
        np.random.seed(0)  # noqa: NPY002 - the cases draw from it
        for name in vars(operator):
            if name.startswith("export"):
                getattr(operator, name)()
    return collected


def check_close(got, expected):
    assert got.dtype == expected.dtype
    wide = lambda array: np.asarray(array, np.float32)
    tolerance = 1e-3 if expected.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(wide(got), wide(expected), rtol=tolerance, atol=tolerance)


LINEAR = cases(linear_attention, linear_attention.LinearAttention)
CONVOLUTION = cases(causal_conv_with_state, causal_conv_with_state.CausalConvWithState)


def test_all_cases_are_there():
    assert (len(LINEAR), len(CONVOLUTION)) == (14, 13)


@pytest.mark.parametrize("chunk_size", [None, 3, 1])
@pytest.mark.parametrize(("attributes", "inputs", "outputs"), LINEAR)
def test_linear_attention(attributes, inputs, outputs, chunk_size):
    heads, key_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
    state = inputs.get("past_state")
    in_heads = {
        name: array.reshape(*array.shape[:2], heads if name == "query" else key_heads, -1)
        for name, array in inputs.items()
        if name not in ("past_state", "beta")
    }  # (b, t, heads, d)
    (context, weights), end = jax.jit(fa.linear_attention, static_argnames="chunk_size")(
        *(in_heads[name] for name in ("query", "key", "value")),
        log_decay=in_heads.get("decay"),
        write_strength=inputs.get("beta"),
        scale=attributes.get("scale"),
        state=state,
        chunk_size=chunk_size,
    )
    check_close(context.reshape(*context.shape[:2], -1), outputs[0])
    check_close(end.astype(outputs[1].dtype), outputs[1])
    if weights is not None and state is None:
        value = jnp.repeat(in_heads["value"], heads // key_heads, axis=-2)
        check_close(jnp.einsum("bhij,bjhe->bihe", weights, value), np.asarray(context))


@pytest.mark.parametrize(("attributes", "inputs", "outputs"), CONVOLUTION)
def test_causal_convolution(attributes, inputs, outputs):
    tokens_first = lambda array: None if array is None else array.swapaxes(-1, -2)  # (b, t, c)
    output, past = jax.jit(fa.causal_convolution)(
        tokens_first(inputs["input"]),
        inputs["weight"][:, 0].T,
        inputs.get("bias"),
        past=tokens_first(inputs.get("past_state")),
    )
    if attributes.get("activation", b"none") != b"none":
        output = jax.nn.silu(output.astype(jnp.float32)).astype(output.dtype)
    check_close(tokens_first(output), outputs[0])
    check_close(tokens_first(past), outputs[1])
