"""Named sites: what is read adds up to the model, what is changed reaches what follows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn import heads
from flax_attn.attention import Lens
from tests.test_heads import close, model_of, outputs_of

DECODERS = ["GPT", "rotary, grouped", "hybrid"]
measure = lambda logits: logits[0, -1, 3] - logits[1, 2, 4]


@pytest.mark.parametrize("name", DECODERS)
def test_sites_add_up_to_a_block(name):
    model, params, inputs = model_of(name)
    sites = heads.read(model, params, inputs)
    for i, kind in enumerate(model.attentions):
        block, own = f"blocks_{i}", f"blocks_{i}/attention"
        of_out = params[block]["attention"]["out"]
        context = sites[f"{own}/context"]  # (b, t, heads, e)
        kernel = of_out["kernel"].reshape(*context.shape[-2:], -1)
        output = np.einsum("bthe,hed->btd", context, kernel) + of_out.get("bias", 0)
        close(sites[f"{own}/output"], output)
        close(sites[f"{block}/middle"], sites[f"{block}/before"] + output)
        added = sites[f"{block}/feed_forward/output"]
        close(sites[f"{block}/after"], sites[f"{block}/middle"] + added)
        if kind == "full":
            value, weights = sites[f"{own}/value"], sites[f"{own}/weights"]
            value = np.repeat(value, context.shape[-2] // value.shape[-2], axis=-2)
            close(np.einsum("bhqk,bkhe->bqhe", weights, value), context)
            causal = np.tri(weights.shape[-1], dtype=bool)
            scores = np.where(causal, sites[f"{own}/scores"], -np.inf)
            close(jax.nn.softmax(scores), weights)
        if i:
            np.testing.assert_array_equal(sites[f"{block}/before"], sites["blocks_0/after"])
    assert set(heads.read(model, params, inputs, ("*_1/after", "*/key"))) == {
        "blocks_0/attention/key",
        "blocks_1/attention/key",
        "blocks_1/after",
    }


@pytest.mark.parametrize(
    "patterns",
    [
        ("blocks_0/after",),
        ("blocks_0/before",),
        ("blocks_1/middle", "blocks_1/feed_forward/output"),
        ("blocks_0/before", "blocks_1/attention/context"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", DECODERS)
def test_sites_of_other_inputs_make_their_outputs(name, patterns):
    model, params, inputs = model_of(name)
    others = heads.read(model, params, inputs[::-1], patterns)
    with Lens(change={site: lambda site, own: others[site] for site in patterns}):
        close(outputs_of(model, params, inputs), outputs_of(model, params, inputs[::-1]))


def test_queries_keys_and_scores_decide_the_weights():
    model, params, inputs = model_of("rotary, grouped")
    pattern, weights = "blocks_0/attention/{}", "blocks_0/attention/weights"
    others = heads.read(model, params, inputs[::-1])
    for parts in (("query", "key"), ("scores",)):
        changed = {pattern.format(part): lambda site, own: others[site] for part in parts}
        with Lens(change=changed):
            close(heads.read(model, params, inputs)[weights], others[weights])


@pytest.mark.parametrize("name", [*DECODERS, "post-norm", "images"])
def test_attribution_is_the_derivative_by_the_share_of_a_patch(name):
    model, params, inputs = model_of(name)
    number = lambda outputs: outputs.ravel()[3] - outputs.ravel()[-2]
    contexts = heads.contexts_of(model, params, inputs[::-1])
    shares = {path: jnp.zeros(own.shape[-2]) for path, own in contexts.items()}

    @jax.jit
    @jax.grad
    def slopes(shares):
        with heads.patched(contexts, shares):
            return number(outputs_of(model, params, inputs))

    source = heads.read(model, params, inputs[::-1], ("*",))
    estimates = heads.attributed(model, params, inputs, number, source)
    for path, slope in slopes(shares).items():
        of_heads = estimates[f"{path}/context"]  # (b, t, heads, e)
        close(of_heads.sum(axis=(0, 1, 3)), slope)
    assert estimates.keys() == source.keys()


def test_a_vector_is_added_to_states_of_one_position_under_jit_and_vmap():
    model, params, inputs = model_of("GPT")
    vector = jnp.arange(model.features) / 10

    @jax.jit
    @jax.vmap
    def steered(strength):
        add = lambda site, own: own.at[:, 4].add(strength * vector)
        with Lens(change={"blocks_0/after": add}):
            return model.apply({"params": params}, jnp.asarray(inputs))[0]

    plain, same, other = outputs_of(model, params, inputs), *steered(jnp.array([0.0, 1.0]))
    close(same, plain)
    close(other[:, :4], plain[:, :4])
    assert np.abs(other[:, 4:] - plain[:, 4:]).max() > 1e-3


def test_sites_are_read_behind_all_changes_and_patterns_that_fit_none_are_told():
    model, params, inputs = model_of("GPT")
    halves = {"*/after": lambda site, own: own / 2, "blocks_0/af*": lambda site, own: 0 * own}
    with Lens(change=halves):
        assert not heads.read(model, params, inputs, ("*/after",))["blocks_0/after"].any()
        within = heads.effects(model, params, inputs, measure)["blocks_0/attention"]
    assert not within.any()  # what follows block 0 does not know its heads
    with pytest.raises(ValueError, match="block_0/after"):
        heads.read(model, params, inputs, ("*/after", "block_0/after"))
