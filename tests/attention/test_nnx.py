"""The modules of nnx are the layers of linen: the same parameters, results and gradients, to the
last bit; and they keep the conventions of nnx.
"""

import functools
import pickle

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import flax_attn.attention as fa
import flax_attn.attention.nnx as fx
from tests.attention.compiled import normal

B, T, D, H = 2, 7, 12, 2
SHAPES = (B, T, D), (B, 5, 10), (B, 5, 6), (B, 5, D)
X, MEMORY, NUMBERS, KEYS = (jnp.asarray(normal(i, *shape)) for i, shape in enumerate(SHAPES))
LENGTHS, KEY_LENGTHS = np.array([7, 4]), np.array([5, 2])
MEMORY_LIMITS = {"key_lengths": KEY_LENGTHS, "query_lengths": LENGTHS}
SELF = {"causal": True, "lengths": LENGTHS}
FREQUENCIES = fa.scaled_frequencies(4, 2.0)
MASK = np.random.default_rng(3).random((B, 1, T, T)) < 0.6


def heads(library, *, num_heads=H, score=None, norm=None, **options):
    """Multi-head attention of a library, with a score of four features or a class of norm."""
    if score is not None:
        widths = {"in_features": D // H, "rngs": nnx.Rngs(4)} if library is fx else {}
        options["score"] = fa.AdditiveScore(4) if library is fa else fx.AdditiveScore(4, **widths)
    if norm is not None:
        options["query_key_norm"] = (nn if library is fa else nnx).RMSNorm
    return made(library, "MultiHeadAttention", num_heads, **options)


def made(library, name, *args, in_features=D, **options):
    """A layer of one of the libraries. That of nnx gets widths and `rngs`, too."""
    if library is fa:
        options = {key: value for key, value in options.items() if not key.startswith("in_")}
        return getattr(fa, name)(*args, **options)
    fields = getattr(fx, name).__dataclass_fields__
    widths = {"in_features": in_features} if "in_features" in fields else {}
    return getattr(fx, name)(*args, **options, **widths, rngs=nnx.Rngs(0))


def attention(library, score=None, **options):
    make = {
        "additive": lambda: made(library, "AdditiveScore", 4, in_key_features=10),
        "projected": lambda: made(library, "AdditiveScore", D, project_keys=False),
        "concat": lambda: made(library, "ConcatScore", 4, in_key_features=10),
        "bilinear": lambda: made(library, "BilinearScore", use_bias=True, in_key_features=10),
        "trilinear": lambda: made(library, "TrilinearScore"),
    }
    score = {} if score is None else {"score": make[score]()}
    return made(library, options.pop("layer", "Attention"), **score, **options)


def block(library, name="EncoderBlock", *, cross=(), norm=None, gated=False, **options):
    parts = [heads(library), *cross, made(library, "FeedForward", 16, gated=gated)]
    if cross:
        parts[1] = cross[0] and heads(library, in_key_features=10)
    if norm is not None:
        options["norm"] = (nn if library is fa else nnx).RMSNorm
    return made(library, name, *parts, **options)


# layers by name: how one is made, its inputs, and the arguments of a call
LAYERS = {
    "Attention": (attention, (X, KEYS), MEMORY_LIMITS),
    "Attention in half precision": (attention, (X, KEYS), {"dtype": jnp.bfloat16}),
    "AdditiveScore": (functools.partial(attention, score="additive"), (X, MEMORY), MEMORY_LIMITS),
    "AdditiveScore of keys": (functools.partial(attention, score="projected"), (X, KEYS), {}),
    "ConcatScore": (functools.partial(attention, score="concat"), (X, MEMORY), MEMORY_LIMITS),
    "BilinearScore": (functools.partial(attention, score="bilinear"), (X, MEMORY), {}),
    "TrilinearScore": (functools.partial(attention, score="trilinear"), (X, KEYS), MEMORY_LIMITS),
    "HardAttention": (
        functools.partial(attention, score="trilinear", layer="HardAttention"), (X, KEYS), {},
    ),
    "SelfAttention": (lambda lib: made(lib, "SelfAttention", 16, 4), (X,), SELF),
    "SelfAttention with biases": (
        lambda lib: made(lib, "SelfAttention", 8, 4, use_bias=True, scale=0.5),
        (X,),
        {"mask": MASK[:, 0]},
    ),
    "LocalAttention": (
        lambda lib: made(lib, "LocalAttention", 2, in_key_features=10), (X, MEMORY), MEMORY_LIMITS,
    ),
    "PredictiveLocalAttention": (
        lambda lib: made(lib, "PredictiveLocalAttention", 2, 8, in_key_features=10),
        (X, MEMORY),
        MEMORY_LIMITS,
    ),
    "MultiHeadAttention": (heads, (X,), {"causal": True, "query_lengths": LENGTHS}),
    "MultiHeadAttention to a memory": (
        functools.partial(heads, key_features=8, value_features=4, out_features=3,
                          in_key_features=10, in_value_features=6),
        (X, MEMORY, NUMBERS),
        MEMORY_LIMITS,
    ),
    "MultiHeadAttention without biases": (
        functools.partial(heads, use_bias=False, out_bias=True), (X,), {"mask": MASK},
    ),
    "MultiHeadAttention, rotary": (
        functools.partial(heads, rotary=True, rotary_features=4, rotary_frequencies=FREQUENCIES),
        (X,),
        {"window": (3, 0)},
    ),
    "MultiHeadAttention, grouped": (
        functools.partial(heads, num_heads=4, num_key_heads=2, key_features=16, sinks=True),
        (X,),
        {},
    ),
    "MultiHeadAttention, gate": (functools.partial(heads, output_gate=True), (X,), {}),
    "MultiHeadAttention, norms": (functools.partial(heads, query_key_norm=True), (X,), {}),
    "MultiHeadAttention, RMS norms": (functools.partial(heads, norm=True), (X,), {}),
    "MultiHeadAttention, score": (functools.partial(heads, score=True), (X,), {}),
    "LinearAttention": (
        lambda lib: made(lib, "LinearAttention", 2), (X,), {"query_lengths": LENGTHS},
    ),
    "LinearAttention, decays of features": (
        lambda lib: made(lib, "LinearAttention", 2, 1, "gated", decay_per_feature=True,
                         output_gate=False, use_bias=True),
        (X,),
        {},
    ),
    "AttentionPooling": (lambda lib: made(lib, "AttentionPooling"), (X,), {"lengths": LENGTHS}),
    "AttentionPooling, hidden": (
        lambda lib: made(lib, "AttentionPooling", 5), (X,), {"lengths": LENGTHS},
    ),
    "StructuredSelfAttention": (
        lambda lib: made(lib, "StructuredSelfAttention", 5, 3), (X,), {"lengths": LENGTHS},
    ),
    "InputAttentionCell": (
        lambda lib: made(lib, "InputAttentionCell", 6, 3, in_features=10, alpha=2.0),
        (NUMBERS[:, 0], MEMORY[:, 0]),
        {},
    ),
    "LearnedPositions": (lambda lib: made(lib, "LearnedPositions", 9, 4), (5,), {}),
    "FeedForward": (lambda lib: made(lib, "FeedForward", 16), (X,), {}),
    "FeedForward with a gate": (
        lambda lib: made(lib, "FeedForward", 16, activation=nn.silu, gated=True), (X,), {},
    ),
    "EncoderBlock": (block, (X,), SELF),
    "EncoderBlock of BERT": (functools.partial(block, pre_norm=False), (X,), {"mask": MASK}),
    "EncoderBlock of OLMo": (
        functools.partial(block, pre_norm=False, output_norm=True, norm=True), (X,), {},
    ),
    "EncoderBlock of Gemma": (functools.partial(block, output_norm=True, gated=True), (X,), {}),
    "DecoderBlock": (
        functools.partial(block, name="DecoderBlock", cross=[True]),
        (X, MEMORY),
        {"lengths": LENGTHS, "memory_lengths": KEY_LENGTHS},
    ),
    "DecoderBlock of GPT-J": (
        functools.partial(block, name="DecoderBlock", cross=[None], parallel=True), (X,), {},
    ),
}  # fmt: skip


def with_parameters(module):
    """Gives a module parameters that are normal at random, biases too; returns those for linen."""
    rng = np.random.default_rng(2)
    state = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.4, leaf.shape), leaf.dtype),
        nnx.state(module, nnx.Param),
    )
    nnx.update(module, state)
    return {"params": nnx.to_pure_dict(state)}


def squares(outputs):
    floats = [leaf for leaf in jax.tree.leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in floats)


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_outputs_and_gradients_are_those_of_linen(name):
    make, inputs, call = LAYERS[name]
    options = {"dtype": dtype} if (dtype := call.get("dtype")) else {}
    call = {key: value for key, value in call.items() if key != "dtype"}
    module, layer = make(fx, **options), make(fa, **options)
    variables = with_parameters(module)
    arrays = [array for array in inputs if not isinstance(array, int)]
    numbers = [number for number in inputs if isinstance(number, int)]
    of_linen = (
        jax.eval_shape(functools.partial(layer.init, **call), jax.random.key(0), *numbers, *arrays)
        if not numbers
        else jax.eval_shape(lambda key: layer.init(key, *numbers), jax.random.key(0))
    )
    shapes = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)
    assert shapes(variables["params"]) == shapes(of_linen.get("params", {}))

    def loss(module, *arrays):
        outputs = module(*numbers, *arrays, **call)
        return squares(outputs), outputs

    def loss_of_linen(variables, *arrays):
        outputs = layer.apply(variables, *numbers, *arrays, **call)
        return squares(outputs), outputs

    of = tuple(range(1 + len(arrays)))
    module.eval()
    own = nnx.jit(nnx.grad(loss, argnums=of, has_aux=True))(module, *arrays)
    expected = jax.jit(jax.grad(loss_of_linen, of, has_aux=True))(variables, *arrays)
    (gradient, *others), outputs = own
    chex.assert_trees_all_equal(
        (({"params": nnx.to_pure_dict(gradient)}, *others), outputs), expected
    )


def test_every_layer_of_linen_is_in_the_table_and_in_nnx():
    is_layer = lambda value: isinstance(value, type) and issubclass(value, nn.Module)
    layers = {name for name in fa.__all__ if is_layer(getattr(fa, name))}
    assert layers <= set(fx.__all__)
    tested = {name.partition(" ")[0].rstrip(",") for name in LAYERS} | {"BlockStack"}
    assert layers - tested == {"RelativeBias"}  # below


def test_a_bias_of_distances_is_that_of_linen():
    module, layer = fx.RelativeBias(H, rngs=nnx.Rngs(0)), fa.RelativeBias(H)
    variables = with_parameters(module)
    positions = jnp.arange(T)[:, None], jnp.arange(9)[None, :]
    expected = layer.apply(variables, method=lambda layer: layer()(*positions))
    np.testing.assert_array_equal(module()(*positions), expected)


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("scan", [False, True])
def test_a_stack_of_blocks_is_that_of_linen(scan, remat):
    layer = fa.BlockStack(block(fa), 3, scan=scan, remat=remat)
    make = lambda rngs: fx.EncoderBlock(
        fx.MultiHeadAttention(H, in_features=D, rngs=rngs),
        fx.FeedForward(16, in_features=D, rngs=rngs),
        rngs=rngs,
    )
    module = fx.BlockStack(make, 3, scan=scan, remat=remat, rngs=nnx.Rngs(0))
    params = with_parameters(module)["params"]["blocks"]
    params = {"block": params} if scan else {f"blocks_{i}": params[i] for i in range(3)}
    loss = lambda function: lambda *args: (squares(out := function(*args)), out)
    expected = jax.jit(jax.grad(loss(functools.partial(layer.apply, **SELF)), 1, has_aux=True))(
        {"params": params}, X
    )
    call = loss(lambda module, x: module(x, **SELF))
    chex.assert_trees_all_equal(
        nnx.jit(nnx.grad(call, argnums=1, has_aux=True))(module, X), expected
    )
    gradients, (_, weights) = expected
    assert weights.shape == (3, B, H, T, T)
    assert np.abs(gradients).max() > 0.1
    if not scan:
        return
    plain = fa.BlockStack(block(fa), 3)
    split = {
        f"blocks_{i}": jax.tree.map(lambda leaf, i=i: leaf[i], params["block"]) for i in range(3)
    }
    chex.assert_trees_all_close(plain.apply({"params": split}, X, **SELF), expected[1], atol=1e-5)


@pytest.mark.parametrize("scan", [False, True])
def test_a_stack_takes_blocks_that_return_the_context_alone(scan):
    alone = fa.EncoderBlock(fa.MultiHeadAttention(H), fa.FeedForward(16), return_weights=False)
    layer, stack = (
        fa.BlockStack(one, 2, scan=scan) for one in (alone, alone.clone(return_weights=True))
    )
    variables = layer.init(jax.random.key(0), X)
    context, weights = layer.apply(variables, X)
    np.testing.assert_array_equal(context, stack.apply(variables, X).context)
    assert weights is None


def test_a_stack_keeps_the_axis_of_its_blocks_whole():
    mesh = jax.make_mesh((1,), ("hidden",), (jax.sharding.AxisType.Auto,))
    sharded = {"out_sharding": (None, "hidden")}
    make = lambda rngs: fx.EncoderBlock(
        fx.MultiHeadAttention(H, in_features=D, rngs=rngs),
        fx.FeedForward(16, in_features=D, kernel_metadata=sharded, rngs=rngs),
        rngs=rngs,
    )
    with jax.set_mesh(mesh):
        module = fx.BlockStack(make, 3, scan=True, rngs=nnx.Rngs(0))
        assert module(X).context.shape == X.shape
    kernel = module.blocks.feed_forward.hidden.kernel
    assert kernel.get_metadata("out_sharding") == (None, None, "hidden")


@pytest.mark.parametrize("options", [{}, {"rotary": True}, {"num_heads": 4, "num_key_heads": 2}])
def test_decoding_is_that_of_linen(options):
    """A prompt with one shorter row comes first, then a token. With `rotary`, in a window."""
    module, layer = heads(fx, **options), heads(fa, **options)
    variables = with_parameters(module)
    window = (3, 0) if "rotary" in options else None
    size = {"window": window} if window else {"max_length": 9}
    cache = module.init_cache((B,), **size)
    chex.assert_trees_all_equal(cache, layer.init_cache(D, (B,), **size))

    def steps(decode, cache):
        limits = {"window": window, "mask": lambda q, k: k != 1}
        first, cache = decode(X[:, :4], cache, lengths=LENGTHS - 3, **limits)
        second, cache = decode(X[:, 4:5], cache, **limits)
        return first, second, cache

    attended = nnx.jit(lambda module, cache: steps(module.decode, cache))(module, cache)
    of_linen = lambda variables, cache: steps(
        functools.partial(layer.apply, variables, method="decode"), cache
    )
    chex.assert_trees_all_equal(attended, jax.jit(of_linen)(variables, cache))
    np.testing.assert_array_equal(attended[-1].length, [5, 2])


def test_the_cache_of_a_memory_is_that_of_linen():
    options = {"key_features": 8, "value_features": 4}
    widths = {"in_key_features": 10, "in_value_features": 6}
    module, layer = heads(fx, **options, **widths), heads(fa, **options)
    variables = with_parameters(module)
    cache = module.extend(module.init_cache((B,), 5), MEMORY, NUMBERS, KEY_LENGTHS)
    arguments = layer.init_cache(D, (B,), 5), MEMORY, NUMBERS, KEY_LENGTHS
    filled = layer.apply(variables, *arguments, method="extend")
    chex.assert_trees_all_equal(cache, filled)
    expected = layer.apply(variables, X, cache=filled)
    chex.assert_trees_all_equal(module(X, cache=cache), expected)


DROPPING = {
    "attention": lambda: fx.MultiHeadAttention(
        H, in_features=D, dropout_rate=0.5, rngs=nnx.Rngs(0)
    ),
    "self": lambda: fx.SelfAttention(8, 4, in_features=D, dropout_rate=0.5, rngs=nnx.Rngs(0)),
    "network": lambda: fx.FeedForward(16, in_features=D, dropout_rate=0.5, rngs=nnx.Rngs(0)),
    "block": lambda: block(fx, dropout_rate=0.5),
    "bridged": lambda: fx.EncoderBlock(  # a network of the user's own, with dropout of nnx
        heads(fx), nnx.Sequential(nnx.Linear(D, D, rngs=nnx.Rngs(1)),
                                  nnx.Dropout(0.5, rngs=nnx.Rngs(2))), rngs=nnx.Rngs(0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_is_on_where_nnx_says_so(name):
    module = DROPPING[name]()
    model = nnx.Sequential(module)
    first = lambda outputs: outputs[0] if isinstance(outputs, tuple) else outputs
    call = nnx.jit(lambda module, **options: first(module(X, **options)), static_argnames="train")
    assert not np.array_equal(call(module), call(module))  # on at first, with new keys
    model.eval()
    expected = call(module)
    np.testing.assert_array_equal(call(module), expected)
    np.testing.assert_array_equal(call(nnx.view(module, deterministic=True)), expected)
    assert "deterministic" in nnx.view_info(module)
    assert not np.array_equal(call(nnx.view(module, deterministic=False)), expected)
    if name != "bridged":
        assert not np.array_equal(call(module, train=True), expected)
    model.train()
    assert not np.array_equal(call(module), expected)
    if name != "bridged":
        np.testing.assert_array_equal(call(module, train=False), expected)


def test_dropout_without_a_key_is_an_error_until_the_model_is_evaluated():
    layer = fx.Attention(dropout_rate=0.5)
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        layer(X, KEYS)
    layer.eval()
    chex.assert_trees_all_equal(layer(X, KEYS), fx.Attention()(X, KEYS))


def test_hard_attention_draws_in_training():
    layer = fx.HardAttention(rngs=nnx.Rngs(sample=0))
    drawn = [layer(X, KEYS).weights for _ in range(2)]
    assert not np.array_equal(*drawn)
    layer.eval()
    chex.assert_trees_all_equal(layer(X, KEYS), fa.HardAttention().apply({}, X, KEYS))


def test_weights_are_sown_where_nnx_captures_them():
    model = block(fx)
    assert model(X, need_weights=False).weights is None
    call = nnx.capture(lambda model: model(X, need_weights=False), nnx.Intermediate)
    (_, weights), sown = call(model)
    assert weights is None
    ((path, own),) = nnx.to_flat_state(sown)
    assert path == ("attention", "attention_weights")
    (own,) = own.get_value()
    np.testing.assert_allclose(own, model(X).weights, rtol=1e-6)
    outputs, sown = fa.SelfAttention(8, 4, return_weights=False).init_with_output(
        jax.random.key(0), X, mutable=["params", "intermediates"]
    )
    (weights,) = sown["intermediates"]["attention_weights"]
    assert outputs.shape == (B, T, 4) and weights.shape == (B, T, T)  # noqa: PT018


def test_layers_that_return_no_weights_stand_in_a_sequential():
    linen = nn.Sequential(
        [
            block(fa, return_weights=False),
            heads(fa, return_weights=False),
            block(fa, "DecoderBlock", cross=[None], return_weights=False),
            made(fa, "AttentionPooling", return_weights=False),
        ]
    )
    module = nnx.Sequential(
        block(fx, return_weights=False),
        heads(fx, return_weights=False),
        block(fx, "DecoderBlock", cross=[None], return_weights=False),
        made(fx, "AttentionPooling", return_weights=False),
    )
    params = with_parameters(module)["params"]["layers"]
    variables = {"params": {f"layers_{i}": params[i] for i in range(4)}}
    shapes = jax.eval_shape(linen.init, jax.random.key(0), X)["params"]
    chex.assert_trees_all_equal_structs(variables["params"], dict(shapes))
    chex.assert_shape(module(X), (B, D))
    np.testing.assert_allclose(module(X), linen.apply(variables, X), atol=1e-5)
    seen = []
    with fa.Lens(change={"*weights": lambda site, weights: seen.append(weights) or weights}):
        module(X)
    assert len(seen) == 4


def test_metadata_and_sharded_initialisers_reach_the_parameters():
    module = fx.MultiHeadAttention(
        H, in_features=D, kernel_metadata={"spec": "heads"}, rngs=nnx.Rngs(0)
    )
    assert module.query.kernel.get_metadata()["spec"] == "heads"
    module = fx.MultiHeadAttention(
        H,
        in_features=D,
        kernel_metadata={"spec": "heads"},
        out_kernel_metadata={"spec": "rows"},
        out_bias_metadata={"spec": "whole"},
        rngs=nnx.Rngs(0),
    )
    specs = [module.key.kernel, module.out.kernel, module.out.bias]
    assert [one.get_metadata()["spec"] for one in specs] == ["heads", "rows", "whole"]
    init = nnx.with_metadata(nnx.initializers.lecun_normal(), spec="rows")
    for layer in (
        fx.MultiHeadAttention(H, in_features=D, kernel_init=init, rngs=nnx.Rngs(0)).out,
        fx.AdditiveScore(4, in_features=D, kernel_init=init, rngs=nnx.Rngs(0)),
        fx.FeedForward(16, in_features=D, kernel_metadata={"spec": "rows"}, rngs=nnx.Rngs(0)).out,
    ):
        kernel = getattr(layer, "query_kernel", None) or layer.kernel
        assert kernel.get_metadata()["spec"] == "rows"


@pytest.mark.parametrize("scan", [False, True])
def test_the_sharding_of_a_stack_is_that_of_its_blocks(scan):
    def make(rngs):
        init = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "heads"))
        attention = fx.MultiHeadAttention(H, in_features=D, kernel_init=init, rngs=rngs)
        return fx.EncoderBlock(attention, made(fx, "FeedForward", 16), rngs=rngs)

    with jax.set_mesh(jax.make_mesh((1,), ("heads",), (jax.sharding.AxisType.Auto,))):
        stack = fx.BlockStack(make, 2, scan=scan, rngs=nnx.Rngs(0))
        blocks = nnx.get_partition_spec(nnx.state(stack))["blocks"]
        assert nnx.jit(lambda stack: stack(X))(stack).context.shape == X.shape
    specs = [
        (blocks if scan else blocks[0])["attention"][name]["kernel"] for name in ("key", "out")
    ]
    expected = jax.P(None, None, "heads") if scan else jax.P(None, "heads")
    assert [spec.get_value() for spec in specs] == [expected] * 2


def test_attention_is_pickled():
    layer = heads(fx, dropout_rate=0.5)
    layer.eval()
    chex.assert_trees_all_equal(pickle.loads(pickle.dumps(layer))(X), layer(X))


def test_modules_and_examples_are_mapped():
    @nnx.split_rngs(splits=3)
    @nnx.vmap
    def make(rngs):
        return fx.MultiHeadAttention(H, in_features=D, dropout_rate=0.5, rngs=rngs)

    modules = make(nnx.Rngs(0))
    modules.eval()
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
    module = heads(fx, **own)
    with_parameters(module)
    other = nnx.MultiHeadAttention(
        **{"num_heads": H} | of_nnx, in_features=D, decode=False, rngs=nnx.Rngs(1)
    )
    for source, target in ((module, other), (other, module)):
        nnx.update(target, jax.tree.map(lambda leaf: 2 * leaf, nnx.state(source, nnx.Param)))
        nnx.update(source, nnx.state(target, nnx.Param))
        context = module(X, causal=True).context
        np.testing.assert_allclose(context, other(X, is_causal=True), atol=1e-5, rtol=1e-5)


def test_a_lens_knows_layers_by_their_paths():
    make = lambda rngs: fx.EncoderBlock(
        fx.MultiHeadAttention(H, in_features=D, rngs=rngs),
        fx.FeedForward(16, in_features=D, rngs=rngs),
        rngs=rngs,
    )
    model = fx.BlockStack(make, 2, rngs=nnx.Rngs(0))
    fx.name_layers(model)
    call = nnx.jit(lambda model: model(X))
    before, names = call(model), []

    def change(site, weights):
        names.append(site)
        return jnp.full_like(weights, 1 / T) if site == "blocks/1/attention/weights" else weights

    with fa.Lens(change={"*weights": change}):
        after = call(model)
    assert names == ["blocks/0/attention/weights", "blocks/1/attention/weights"]
    np.testing.assert_array_equal(after.weights[0], before.weights[0])
    np.testing.assert_allclose(after.weights[1], 1 / T)
    chex.assert_trees_all_equal(call(model), before)


def test_one_program_serves_all_modules_of_the_same_attributes():
    traces = []

    @nnx.jit
    def call(module):
        traces.append(module)
        return module(X).context

    make = lambda seed: (
        heads(fx, score=True)
        if seed is None
        else fx.MultiHeadAttention(
            H,
            in_features=D,
            kernel_init=nnx.with_metadata(nnx.initializers.lecun_normal(), spec="heads"),
            rngs=nnx.Rngs(seed),
        )
    )
    contexts = [call(module) for module in (make(0), make(1), nnx.clone(make(0)))]
    assert len(traces) == 1
    np.testing.assert_array_equal(contexts[0], contexts[2])
    assert np.abs(contexts[0] - contexts[1]).max() > 1e-2


def test_a_recurrent_cell_stands_in_the_loop_of_nnx():
    cell = fx.InputAttentionCell(6, 3, in_features=D, return_weights=False, rngs=nnx.Rngs(0))
    outputs = nnx.RNN(cell)(X)
    assert outputs.shape == (B, T, 3)
    carry = cell.initialize_carry((B, D))
    for t in range(T):
        carry, output = cell(carry, X[:, t])
        np.testing.assert_allclose(outputs[:, t], output, atol=1e-6)


def test_a_model_is_trained_by_an_optimizer_of_nnx():
    model = nnx.Sequential(
        block(fx, dropout_rate=0.1, return_weights=False),
        made(fx, "AttentionPooling", return_weights=False),
    )
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        loss = lambda model: jnp.mean(jnp.square(model(X) - 1))
        value, gradients = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradients)
        return value

    losses = [step(model, optimizer) for _ in range(30)]
    assert losses[-1] < losses[0] / 2
