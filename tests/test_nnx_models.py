"""Six models of `flax.nnx` from the layers of `flax_attn.attention.nnx`: each is trained, saved and
restored, and trained on eight virtual devices.
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from jax.sharding import AxisType
from numpy.testing import assert_allclose, assert_array_equal

from flax_attn.attention import nnx as fx
from tests import on_devices
from tests.nnx_gpt import Nnx

pytestmark = pytest.mark.slow
B, D, TOKENS = 16, 16, 6
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def make_attention(rngs, **options):
    return fx.MultiHeadAttention(4, in_features=D, dropout_rate=0.1, rngs=rngs, **options)


def encoder_block(rngs):
    return fx.EncoderBlock(
        make_attention(rngs), fx.FeedForward(32, in_features=D, rngs=rngs), rngs=rngs
    )


def decoder_block(rngs):
    network = fx.FeedForward(32, gated=True, in_features=D, rngs=rngs)
    attention = make_attention(rngs, num_key_heads=2, rotary=True)
    return fx.DecoderBlock(attention, make_attention(rngs), network, norm=nnx.RMSNorm, rngs=rngs)


def numbers(rng, size=4):
    rows = rng.normal(size=(B, size)).astype(np.float32)
    return (rows,), np.argsort(-rows)


class ViT(nnx.Module):  # tells images whose upper half is the brighter one
    def __init__(self, rngs):
        self.patch = nnx.Conv(1, D, (4, 4), strides=4, rngs=rngs)
        self.positions = fx.LearnedPositions(4, D, rngs=rngs)
        self.blocks = fx.BlockStack(encoder_block, 2, scan=True, rngs=rngs)
        self.pooling = fx.AttentionPooling(in_features=D, rngs=rngs)
        self.out = nnx.Linear(D, 2, rngs=rngs)

    def __call__(self, images):  # (b, 8, 8, 1)
        x = self.patch(images).reshape(images.shape[0], 4, D) + self.positions(4)[None]
        return self.out(self.pooling(self.blocks(x).context).context)

    def batch(rng):
        is_upper = rng.integers(2, size=B)
        halves = np.where((np.arange(8) < 4) == is_upper[:, None], 1, -1)[:, :, None, None]
        return ((rng.normal(size=(B, 8, 8, 1)) + halves).astype(np.float32),), is_upper


class GPT(Nnx):  # writes texts that count up, or down
    def __init__(self, rngs):
        cut = {"out_sharding": (None, "heads")}  # heads, and hidden units
        options = {"dropout_rate": 0.1, "kernel_metadata": cut, "rngs": rngs}
        super().__init__(TOKENS, 10, D, num_heads=4, num_blocks=2, **options)

    def batch(rng):
        first, step = rng.integers(TOKENS, size=(B, 1)), rng.choice([-1, 1], size=(B, 1))
        tokens = (first + step * np.arange(11)) % TOKENS
        return (tokens[:, :-1],), tokens[:, 1:]


class Transformer(nnx.Module):  # reverses sequences of different lengths
    def __init__(self, rngs):
        self.embedding = nnx.Embed(TOKENS, D, rngs=rngs)
        self.positions = fx.LearnedPositions(6, D, rngs=rngs)
        self.encoder = fx.BlockStack(encoder_block, 1, rngs=rngs)
        self.decoder = fx.BlockStack(decoder_block, 1, remat=True, rngs=rngs)

    def __call__(self, source, lengths, target):
        embed = lambda tokens: self.embedding(tokens) + self.positions(tokens.shape[1])[None]
        memory = self.encoder(embed(source), lengths=lengths).context
        limits = {"memory_lengths": lengths, "lengths": lengths}
        return self.embedding.attend(self.decoder(embed(target), memory=memory, **limits).context)

    def batch(rng):
        lengths = rng.integers(2, 7, size=B)
        real = np.arange(6) < lengths[:, None]
        source = np.where(real, rng.integers(1, TOKENS, size=(B, 6)), 0)
        places = np.maximum(lengths[:, None] - 1 - np.arange(6), 0)
        target = np.where(real, np.take_along_axis(source, places, axis=1), 0)
        return (source, lengths, np.pad(target, ((0, 0), (1, 0)))[:, :-1]), target


class SetTransformer(nnx.Module):  # finds the maximum and the mean of a set
    def __init__(self, rngs):
        self.embed = nnx.Linear(1, D, rngs=rngs)
        self.block = encoder_block(rngs)
        self.queries = nnx.Param(rngs.params.normal((2, D)))
        self.pool = make_attention(rngs, return_weights=False)
        self.out = nnx.Linear(2 * D, 2, rngs=rngs)

    def __call__(self, numbers, lengths):  # (b, t), (b,)
        x = self.block(self.embed(numbers[..., None]), lengths=lengths).context
        queries = jnp.broadcast_to(self.queries[...], (numbers.shape[0], 2, D))
        return self.out(self.pool(queries, x, key_lengths=lengths).reshape(-1, 2 * D))

    def batch(rng):
        ((rows,), _), lengths = numbers(rng, 5), rng.integers(1, 6, size=B)
        targets = [[row[:length].max(), row[:length].mean()] for row, length in zip(rows, lengths)]
        return (rows, lengths), np.array(targets)


class PointerNetwork(nnx.Module):  # points to numbers in descending order
    def __init__(self, rngs):
        self.embed = nnx.Linear(1, D, rngs=rngs)
        self.block = encoder_block(rngs)
        self.ranks = fx.LearnedPositions(4, D, rngs=rngs)
        self.pointer = fx.Attention(score=fx.AdditiveScore(D, in_features=D, rngs=rngs))

    def __call__(self, numbers):  # (b, 4)
        x = self.block(self.embed(numbers[..., None])).context
        weights = self.pointer(jnp.broadcast_to(self.ranks(4), x.shape), x).weights
        return jnp.log(weights)  # (b, ranks, numbers)

    batch = numbers


class IrregularSeries(nnx.Module):  # fills in values at other times; distances are a bias
    def __init__(self, rngs):
        widths = {"key_features": D, "in_features": 1, "in_key_features": 2, "out_features": D}
        self.attention = fx.MultiHeadAttention(2, dropout_rate=0.1, **widths, rngs=rngs)
        self.decay = nnx.Param(jnp.zeros((1, 2, 1, 1)))  # of each head
        self.network = fx.FeedForward(32, in_features=D, rngs=rngs)
        self.out = nnx.Linear(D, 1, rngs=rngs)

    def __call__(self, times, values, asked):
        keys = jnp.stack([times, values], axis=-1)  # NaN where a value is missing
        bias = -jnp.exp(self.decay) * jnp.abs(asked[:, None, :, None] - times[:, None, None])
        mask = ~jnp.isnan(values)[:, None, None, :]
        context = self.attention(asked[..., None], keys, bias=bias, mask=mask).context
        return self.out(context + self.network(context))[..., 0]

    def batch(rng):
        times, asked, phases = (rng.uniform(0, 6, (B, n)).astype(np.float32) for n in (12, 3, 1))
        values = np.where(rng.random((B, 12)) < 0.8, np.sin(times + phases), np.nan)
        return (times, values, asked), np.sin(asked + phases)


# models by name, the loss, and the steps of training
MODELS = {
    "ViT": (ViT, cross_entropy, 40),
    "GPT": (GPT, cross_entropy, 40),
    "Transformer": (Transformer, cross_entropy, 100),
    "set": (SetTransformer, optax.squared_error, 60),
    "pointer": (PointerNetwork, cross_entropy, 60),
    "series": (IrregularSeries, optax.squared_error, 80),
}


@functools.partial(nnx.jit, static_argnums=2)
def step(model, optimizer, name, batch):
    (inputs, targets), loss_of = batch, MODELS[name][1]
    loss = lambda model: loss_of(model(*inputs), targets).mean()
    loss, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return loss


call = nnx.jit(lambda model, *inputs: model(*inputs))


def batch_of(name, seed=0):
    return MODELS[name][0].batch(np.random.default_rng(seed))


def make(name, optimizer):
    model = MODELS[name][0](nnx.Rngs(0))
    return model, nnx.Optimizer(model, optimizer, wrt=nnx.Param)


def mesh(*sizes):
    return jax.set_mesh(jax.make_mesh(sizes, ("data", "heads"), (AxisType.Auto,) * 2))


@functools.cache
def train(name):
    model, optimizer = make(name, optax.adam(0.01))
    losses = [step(model, optimizer, name, batch_of(name, seed)) for seed in range(MODELS[name][2])]
    return model, nnx.view(model, deterministic=True), losses


@pytest.fixture(autouse=True)
def one_device():
    with mesh(1, 1):
        yield


@pytest.mark.parametrize("name", MODELS)
def test_a_trained_model_is_restored_with_its_outputs_and_dropout(name, tmp_path):
    model, tested, losses = train(name)
    assert np.mean(losses[-5:]) < losses[0] / 2
    restored, (inputs, _) = MODELS[name][0](nnx.Rngs(1)), batch_of(name, 100)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "model", nnx.state(model))
        checkpointer.wait_until_finished()
        nnx.update(restored, checkpointer.restore(tmp_path / "model", nnx.state(restored)))
    dropped = [call(model, *inputs) for _ in range(2)]
    assert not np.array_equal(*dropped)
    assert_array_equal([call(restored, *inputs) for _ in range(2)], dropped)
    restored.eval()
    for one in (restored, tested):
        assert_array_equal(call(one, *inputs), call(tested, *inputs))


def test_decoding_by_steps_is_the_whole():
    model, ((tokens,), targets) = train("GPT")[1], batch_of("GPT", 100)
    decode, caches, logits = nnx.jit(GPT.decode), model.start(B), []
    for part in np.split(tokens, [4, 5, 6], axis=1):
        of_part, caches = decode(model, jnp.asarray(part), caches)
        logits.append(of_part)
    logits = np.concatenate(logits, axis=1)
    assert_allclose(logits, call(model, tokens), atol=1e-5)
    assert np.mean(logits.argmax(-1)[:, 1:] == targets[:, 1:]) > 0.9


def test_sets_have_no_order_missing_values_no_effect_and_pointers_are_weights():
    ((rows,), _), lengths = numbers(np.random.default_rng(2), 5), np.full(B, 3)
    others = np.c_[rows[:, [2, 0, 1]], np.full((B, 2), np.nan)]
    outputs = call(train("set")[1], rows, lengths)
    assert_allclose(call(train("set")[1], others, lengths), outputs, atol=1e-5)
    times, values, asked = batch_of("series", 100)[0]
    later = np.where(np.isnan(values), 9, times)
    outputs = call(train("series")[1], times, values, asked)
    assert_array_equal(call(train("series")[1], later, values, asked), outputs)
    (rows,), order = batch_of("pointer", 100)
    weights = np.exp(call(train("pointer")[1], rows))
    assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert np.mean(weights.argmax(-1) == order) > 0.6


def step_on(name, *sizes):
    with mesh(*sizes):
        model, optimizer = make(name, optax.sgd(0.1))
        loss = step(model, optimizer, name, jax.device_put(batch_of(name), jax.P("data")))
        state = nnx.state(model, nnx.Param)
        cut = any("heads" in leaf.sharding.spec for leaf in jax.tree.leaves(state))
        return jax.device_get([loss, *jax.tree.leaves(state)]), cut


def test_a_step_on_eight_devices_is_that_on_one():
    for name, (apart, cut) in on_devices.on(8, "tests.test_nnx_models").items():
        assert apart < 1e-5
        assert cut == (name == "GPT")


if __name__ == "__main__":
    result = {}
    for name in MODELS:
        (one, _), (eight, cut) = step_on(name, 1, 1), step_on(name, 4, 2)
        result[name] = max(float(np.abs(a - b).max()) for a, b in zip(one, eight)), cut
    print(json.dumps(result))
