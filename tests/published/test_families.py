"""Tiny random models of every family, as transformers writes them, beside transformers.

`python -m pip install "flax-attn[published]"` installs what makes them.
"""

from pathlib import Path

import chex
import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
tr = pytest.importorskip("transformers")

import flax_attn  # noqa: E402
from flax_attn.attention import scaled_frequencies  # noqa: E402
from flax_attn.models import by_block  # noqa: E402
from flax_attn.models.decoding import Decoding, translate  # noqa: E402
from flax_attn.models.generation import Sampling, generate  # noqa: E402
from flax_attn.published import families  # noqa: E402
from flax_attn.published.families import frequencies_of, read  # noqa: E402
from flax_attn.published.folder import ModelConfig  # noqa: E402
from flax_attn.published.modules import Decoder, Encoder, EncoderDecoder  # noqa: E402
from tests import serving  # noqa: E402
from tests.published.folders import WRITES, write  # noqa: E402

tr.logging.set_verbosity_error()
LENGTHS = np.array([12, 7, 3], np.int32)
GENERATED = 40


@pytest.fixture(params=WRITES)
def pair(request, tmp_path):
    """A model of a family as this library reads it, and as transformers does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TQDM_DISABLE", "1")
        folder = write(request.param, tmp_path)
        published = read(folder)
        options = {"dtype": torch.float32, "attn_implementation": "eager"}
        theirs = getattr(tr, WRITES[request.param][0]).from_pretrained(folder, **options)
    return published, theirs.eval()


def tensor(array):
    return torch.tensor(array.astype(np.int64))


def check_close(got, expected, share):
    """Compares numbers beside the largest of them."""
    largest = np.abs(expected).max()
    np.testing.assert_allclose(got, expected, atol=share * largest, rtol=0)


@pytest.mark.filterwarnings("ignore")  # of transformers
def test_a_model_gives_the_numbers_of_transformers(pair, monkeypatch):
    monkeypatch.setattr(by_block, "is_large", lambda model, params: True)
    (config, model, params), theirs = pair
    rng = np.random.default_rng(0)
    apply = jax.jit(
        lambda params, inputs: model.apply({"params": params}, inputs, need_weights=True)
    )
    if isinstance(model, Decoder):
        tokens = rng.integers(0, model.vocabulary_size, (3, 40)).astype(np.int32)
        with torch.no_grad():
            expected = theirs(tensor(tokens), output_attentions=True)
        outputs, aux = apply(params, tokens)
        is_hybrid = "gated_delta" in model.attentions
        # states decay by powers of numbers near 0; norms over all heads make large scores
        exact = 10 if is_hybrid else 2 if model.query_key_norm == "all" else 1
        check_close(outputs, expected.logits.numpy(), exact * 2e-6)
        weights = aux["attention"].values()
        softmax = [own for own, kind in zip(weights, model.attentions) if kind == "full"]
        for own, other in zip(softmax, expected.attentions, strict=True):
            np.testing.assert_allclose(own, other.numpy(), atol=exact * 1e-6)
        check_greedy(model, params, theirs, tokens[:, :10])
    elif isinstance(model, Encoder):
        tokens = rng.integers(5, model.vocabulary_size, (3, 12)).astype(np.int32)
        is_real = np.arange(12) < LENGTHS[:, None]
        tokens = np.where(is_real, tokens, config.content["pad_token_id"]).astype(np.int32)
        with torch.no_grad():
            mask = tensor(is_real)
            expected = theirs(tensor(tokens), attention_mask=mask, output_attentions=True)
        outputs, aux = apply(params, {"tokens": tokens, "lengths": LENGTHS})
        states = expected.logits if "logits" in expected else expected.last_hidden_state
        real = is_real if outputs.ndim == 3 else slice(None)
        check_close(np.asarray(outputs)[real], states.numpy()[real], 2e-6)
        for own, other in zip(aux["attention"].values(), expected.attentions, strict=True):
            for row, length in enumerate(LENGTHS):
                ours, its = own[row, :, :length, :length], other[row, :, :length, :length]
                np.testing.assert_allclose(ours, its.numpy(), atol=1e-6)
    elif isinstance(model, EncoderDecoder):
        source, target = rng.integers(2, model.vocabulary_size, (2, 3, 12)).astype(np.int32)
        is_real = np.arange(12) < LENGTHS[:, None]
        with torch.no_grad():
            own = {"input_ids": tensor(source), "attention_mask": tensor(is_real)}
            expected = theirs(**own, decoder_input_ids=tensor(target), output_attentions=True)
        outputs, aux = apply(
            params, {"source": source, "source_lengths": LENGTHS, "target": target}
        )
        check_close(outputs, expected.logits.numpy(), 2e-6)
        stacks = {"encoder": expected.encoder_attentions, "decoder": expected.decoder_attentions}
        for stack, others in (stacks | {"cross": expected.cross_attentions}).items():
            for i, other in enumerate(others):
                for row, length in enumerate(LENGTHS):
                    rows = length if stack == "encoder" else 12
                    keys = 12 if stack == "decoder" else length
                    weights = aux["attention"][f"{stack}{i}"][row, :, :rows, :keys]
                    np.testing.assert_allclose(weights, other[row, :, :rows, :keys], atol=1e-6)
    else:
        images = rng.normal(size=(2, 24, 24, model.channels)).astype(np.float32)
        with torch.no_grad():
            expected = theirs(torch.tensor(images).permute(0, 3, 1, 2), output_attentions=True)
        outputs, aux = apply(params, images)
        states = expected.logits if "logits" in expected else expected.last_hidden_state
        check_close(outputs, states.numpy(), 2e-6)
        for own, other in zip(aux["attention"].values(), expected.attentions, strict=True):
            np.testing.assert_allclose(own, other.numpy(), atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_model_in_parts_gives_the_same_as_a_whole(pair):
    (_, model, params), _ = pair
    rng, shapes = np.random.default_rng(0), families.sample(model)
    inputs = jax.tree.map(lambda one: rng.integers(1, 5, one.shape).astype(one.dtype), shapes)
    options = {"need_weights": True}
    apply = jax.jit(lambda inputs: model.apply({"params": params}, inputs, **options))
    expected, aux = apply(inputs)
    x, lengths = by_block.begin(model, params, inputs), by_block.lengths_of(inputs)
    x, weights, _ = by_block.through(model, params, x, lengths=lengths, **options)
    check_close(by_block.end(model, params, x), expected, 2e-6)
    chex.assert_trees_all_close(weights, aux["attention"], atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("symbolic_sizes")
@pytest.mark.parametrize("name", ["gpt2", "llama_3_tied", "gemma3", "qwen3_5"])
def test_an_export_writes_in_plain_jax_what_generate_writes(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    model = flax_attn.load(write(name, tmp_path / "folder"))
    flax_attn.export(model, tmp_path / "exported")
    prompts = [model.task.inputs.encoded(text) for text in ("the cat sat on", "a dog")]
    assert len({*map(len, prompts)}) == 2
    parts = generate(model.model, model.params[0], prompts, GENERATED, Sampling(0.0))
    expected = np.concatenate([*parts], axis=1)
    np.testing.assert_array_equal(serving.write(tmp_path, prompts, GENERATED), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in WRITES if name.startswith("t5")])
def test_an_encoder_and_decoder_writes_the_tokens_of_transformers(name, tmp_path):
    """With caches, rows of several lengths, and texts that end and that do not."""
    folder = write(name, tmp_path)
    config, model, params = read(folder)
    theirs = tr.T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 30, 20).astype(np.int32)
    is_real = np.arange(30) < lengths[:, None]
    source = np.where(is_real, rng.integers(2, model.vocabulary_size, (20, 30)), 0).astype(np.int32)
    options = {"max_new_tokens": GENERATED, "do_sample": False}
    with torch.no_grad():
        written = theirs.generate(tensor(source), attention_mask=tensor(is_real), **options)
    end = config.content["eos_token_id"]
    end = end if end in written else int(written[0, 8])  # no text came to its end
    inputs = {"source": source, "source_lengths": lengths}
    options = {"end": end, "max_length": GENERATED}
    found = translate(model, params, inputs, Decoding(beam=1), **options)
    for (own,), (_, *row) in zip(found, written.tolist(), strict=True):
        assert own.tokens == row[: row.index(end) if end in row else None]
        assert own.ended == (end in row)
    assert len({tuple(one.tokens) for (one,) in found}) > 5
    assert 0 < sum(own.ended for (own,) in found) < 20


@pytest.mark.filterwarnings("ignore")
def test_a_hybrid_model_shows_signed_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    model = flax_attn.load(write("qwen3_5_images", tmp_path))
    weights = model.predict("the cat sat on the mat").attention["block0"][0]
    assert weights.min() < 0 < weights.max()
    np.testing.assert_array_equal(weights, np.tril(weights))


def test_the_older_spelling_of_rotary_options_means_the_same():
    """As folders of Gemma 3 have it. Blocks with a window are not scaled."""
    linear, types = {"rope_type": "linear", "factor": 8.0}, ["sliding_attention", "full_attention"]
    older = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": linear}
    local = {"rope_type": "default", "rope_theta": 1e4}
    newer = dict(zip(types, (local, linear | {"rope_theta": 1e6})))
    expected = (
        scaled_frequencies(8, 1.0, max_period=1e4),
        scaled_frequencies(8, 8.0, max_period=1e6),
    )
    for options in (older, {"rope_parameters": newer}):
        got = frequencies_of(ModelConfig(options, Path("config.json")), types, 8)
        assert got == (expected, (1.0, 1.0))


def check_greedy(model, params, theirs, prompts):
    """Every token that is written with the cache is the likeliest there, or as likely but for the
    last digits.
    """
    parts = generate(model, params, prompts.tolist(), GENERATED, Sampling(0.0, 0))
    written = np.concatenate([prompts, *parts], axis=1)
    assert written.shape[1] == prompts.shape[1] + GENERATED
    with torch.no_grad():
        logits = theirs(tensor(written)).logits.numpy()
    before = logits[:, prompts.shape[1] - 1 : -1]
    chosen = np.take_along_axis(before, written[:, prompts.shape[1] :, None], axis=-1)[..., 0]
    assert (before.max(axis=-1) - chosen <= 4e-6 * np.abs(logits).max()).all()
