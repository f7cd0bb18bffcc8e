"""The module of nnx is the layer of linen: the same parameters, results and gradients, to the last
bit.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import flax_attn.attention as fa
from flax_attn.attention.nnx import MultiHeadAttention
from tests.attention.compiled import normal

B, T, D, H = 2, 7, 12, 2
SHAPES = (B, T, D), (B, 5, 10), (B, 5, 6)
X, MEMORY, NUMBERS = (jnp.asarray(normal(seed, *shape)) for seed, shape in enumerate(SHAPES))
LENGTHS = np.array([7, 4])
FREQUENCIES = fa.scaled_frequencies(4, 2.0)
OPTIONS = {
    "plain": {},
    "out_bias": {"use_bias": False, "out_bias": True, "out_features": 5},
    "rotary": {"rotary": True, "rotary_features": 4, "rotary_frequencies": FREQUENCIES},
    "grouped": {"num_heads": 4, "num_key_heads": 2, "rotary": True, "key_features": 16},
    "norms": {"query_key_norm": True},
    "sinks": {"num_heads": 4, "num_key_heads": 2, "sinks": True, "key_features": 16},
    "gate": {"output_gate": True, "value_features": 8},
    "score": {"score": fa.AdditiveScore(4)},
}
every_option = pytest.mark.parametrize(
    "options", [pytest.param(options, id=name) for name, options in OPTIONS.items()]
)


def pair(options, in_features=D, **widths):
    """The module with parameters normal at random, biases too, and the layer with the same ones."""
    options = {"num_heads": H} | options
    module = MultiHeadAttention(**options, in_features=in_features, **widths, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(2)
    state = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.4, leaf.shape), leaf.dtype),
        nnx.state(module, nnx.Param),
    )
    nnx.update(module, state)
    return module, fa.MultiHeadAttention(**options), {"params": nnx.to_pure_dict(state)}


def squares(attended):
    return jnp.sum(jnp.square(attended.context.astype(jnp.float32)))


@pytest.mark.parametrize("name", ["plain", "grouped", "norms", "sinks", "gate", "score"])
def test_its_parameters_are_those_that_linen_makes_of_the_same_key(name):
    options = {"num_heads": H} | OPTIONS[name]
    module = MultiHeadAttention(**options, in_features=D, rngs=nnx.Rngs(params=3))
    layer = fa.MultiHeadAttention(**options)
    variables = jax.jit(layer.init)(nnx.Rngs(params=3).params(), X)
    chex.assert_trees_all_equal(nnx.to_pure_dict(nnx.state(module)), variables["params"])


@every_option
def test_values_and_gradients_are_those_of_linen(options):
    module, layer, variables = pair(options)
    limits = {"causal": True, "query_lengths": LENGTHS}

    def loss(module, x):
        attended = module(x, **limits)
        return squares(attended), attended

    def loss_of_linen(variables, x):
        attended = layer.apply(variables, x, **limits)
        return squares(attended), attended

    own = nnx.jit(nnx.grad(loss, argnums=(0, 1), has_aux=True))
    (gradients, of_inputs), attended = own(module, X)
    of_linen = jax.jit(jax.grad(loss_of_linen, (0, 1), has_aux=True))
    expected = of_linen(variables, X)
    gradients = {"params": nnx.to_pure_dict(gradients)}
    chex.assert_trees_all_equal(((gradients, of_inputs), attended), expected)
    assert np.abs(gradients["params"]["query"]["kernel"]).max() > 1e-3


@every_option
def test_decoding_is_that_of_linen(options):
    """A prompt with one shorter row comes first, then a token. With `rotary`, in a window."""
    module, layer, variables = pair(options)
    window = (3, 0) if "rotary" in options else None
    of_kind = {"window": window} if window else {"max_length": 9}
    of_kind["dtype"] = options.get("dtype")
    cache = module.init_cache((B,), **of_kind)
    chex.assert_trees_all_equal(cache, layer.init_cache(D, (B,), **of_kind))

    limits = {"window": window, "mask": lambda q, k: k != 1}
    limits["bias"] = lambda q, k: 0.1 * jnp.subtract(*fa.masks.aligned(q, k))

    def steps(decode, cache):
        first, cache = decode(X[:, :4], cache, lengths=LENGTHS - 3, **limits)
        second, cache = decode(X[:, 4:5], cache, **limits)
        return first, second, cache

    attended = nnx.jit(lambda module, cache: steps(module.decode, cache))(module, cache)
    of_linen = lambda variables, cache: steps(
        functools.partial(layer.apply, variables, method="decode"), cache
    )
    chex.assert_trees_all_equal(attended, jax.jit(of_linen)(variables, cache))
    np.testing.assert_array_equal(attended[-1].length, [5, 2])


def test_a_memory_of_other_widths_and_its_cache_are_those_of_linen():
    sizes = {"key_features": 8, "value_features": 4, "out_features": 3}
    module, layer, variables = pair(sizes, in_key_features=10, in_value_features=6)
    lengths = {"key_lengths": np.array([5, 2])}
    expected = layer.apply(variables, X, MEMORY, NUMBERS, **lengths)
    chex.assert_trees_all_equal(module(X, MEMORY, NUMBERS, **lengths), expected)
    cache = module.extend(module.init_cache((B,), 5), MEMORY, NUMBERS, np.array([5, 2]))
    empty = layer.init_cache(D, (B,), 5)
    arguments = empty, MEMORY, NUMBERS, np.array([5, 2])
    filled = layer.apply(variables, *arguments, method="extend")
    chex.assert_trees_all_equal(cache, filled)
    expected = layer.apply(variables, X, cache=filled)
    chex.assert_trees_all_equal(module(X, cache=cache), expected)
    shared = MultiHeadAttention(H, D, in_key_features=10, rngs=nnx.Rngs(0))
    assert shared.value.kernel.shape == (10, H, D // H)


def test_dropout_takes_a_new_key_at_each_call_as_linen_takes_it():
    module, layer, variables = pair({"dropout_rate": 0.5})
    seed = nnx.Rngs(0)
    seed.params()
    stream = seed.dropout.fork()  # as the module
    call = nnx.jit(lambda module: module(X, train=True))
    for _ in range(2):
        expected = layer.apply(variables, X, train=True, rngs={"dropout": stream()})
        chex.assert_trees_all_close(call(module), expected, rtol=1e-6)
    rngs = {"dropout": nnx.Rngs(5).dropout()}
    expected = layer.apply(variables, X, train=True, rngs=rngs)
    for rngs in (nnx.Rngs(5), nnx.Rngs(params=1, dropout=5)):
        chex.assert_trees_all_equal(module(X, train=True, rngs=rngs), expected)
    steps = [module.decode(X, module.init_cache((B,), T), train=True)[0] for _ in range(2)]
    assert np.abs(steps[0].context - steps[1].context).max() > 0.1


def test_dropout_is_on_where_nnx_says_so():
    module, layer, variables = pair({"dropout_rate": 0.5})
    expected = layer.apply(variables, X).context
    is_plain = lambda module, **options: np.array_equal(module(X, **options).context, expected)
    assert is_plain(module)
    assert not is_plain(module, train=True)
    assert not is_plain(nnx.view(module, deterministic=False))
    assert is_plain(module)
    nnx.Sequential(module).train()
    assert not is_plain(module)
    assert not np.array_equal(module.decode(X, module.init_cache((B,), T))[0].context, expected)
    assert is_plain(module, train=False)
    assert is_plain(nnx.view(module, deterministic=True))
    module.eval()
    assert is_plain(module)
    count = int(module.rngs.count[...])
    is_plain(module)
    assert int(module.rngs.count[...]) == count


def test_modules_and_examples_are_mapped():
    @nnx.split_rngs(splits=3)
    @nnx.vmap
    def make(rngs):
        return MultiHeadAttention(H, D, dropout_rate=0.5, rngs=rngs)

    modules = make(nnx.Rngs(0))
    assert modules.query.kernel.shape == (3, D, H, D // H)
    contexts = nnx.vmap(lambda module, x: module(x).context, in_axes=(0, None))(modules, X)
    graph, state = nnx.split(modules)
    for number in range(3):
        module = nnx.merge(graph, jax.tree.map(lambda leaf, i=number: leaf[i], state))
        np.testing.assert_allclose(contexts[number], module(X).context, atol=1e-5)
    assert np.abs(contexts[0] - contexts[1]).max() > 1e-2
    dropped = nnx.vmap(lambda module, x: module(x, train=True).context, in_axes=(0, None))
    assert np.abs(dropped(modules, X) - contexts).max() > 1e-2
    examples = jax.vmap(lambda x: module(x).context)(X)
    np.testing.assert_allclose(examples, module(X).context, atol=1e-5)


@pytest.mark.parametrize(
    ("of_nnx", "own"),
    [
        ({}, {}),
        ({"use_bias": False, "normalize_qk": True}, {"use_bias": False, "query_key_norm": True}),
        ({"num_heads": 4, "num_kv_heads": 2}, {"num_heads": 4, "num_key_heads": 2}),
    ],
)
def test_parameters_of_nnx_move_both_ways(of_nnx, own):
    module, _, _ = pair(own)
    other = nnx.MultiHeadAttention(
        **{"num_heads": H} | of_nnx, in_features=D, decode=False, rngs=nnx.Rngs(1)
    )
    for source, target in ((module, other), (other, module)):
        nnx.update(target, jax.tree.map(lambda leaf: 2 * leaf, nnx.state(source, nnx.Param)))
        nnx.update(source, nnx.state(target, nnx.Param))
        context = module(X, causal=True).context
        np.testing.assert_allclose(context, other(X, is_causal=True), atol=1e-5, rtol=1e-5)


def test_the_lens_acts_on_it_as_on_linen():
    module, layer, variables = pair({})
    call = nnx.jit(lambda module: module(X))
    before = call(module)
    with fa.Lens(temperature=5.0):
        expected = jax.jit(lambda variables: layer.apply(variables, X))(variables)
        chex.assert_trees_all_equal(call(module), expected)
    assert np.abs(before.weights - expected.weights).max() > 0.1
    chex.assert_trees_all_equal(call(module), before)


def test_one_program_serves_all_modules_of_the_same_attributes():
    traces = []

    @nnx.jit
    def call(module):
        traces.append(module)
        return module(X).context

    make = lambda seed: MultiHeadAttention(H, D, score=fa.AdditiveScore(4), rngs=nnx.Rngs(seed))
    contexts = [call(module) for module in (make(0), make(1), nnx.clone(make(0)))]
    assert len(traces) == 1
    np.testing.assert_array_equal(contexts[0], contexts[2])
    assert np.abs(contexts[0] - contexts[1]).max() > 1e-2
