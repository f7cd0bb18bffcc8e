"""An export says what the run says, to a program that has neither Flax nor `flax_attn`."""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load, load_file

import flax_attn
from flax_attn.__main__ import main
from flax_attn.data.tokenizers import described
from flax_attn.errors import UsageError
from flax_attn.experiment.exporting import as_json, as_safetensors, takes_any_length
from flax_attn.models import CNN, LSTM, BiLSTM, CNNAttention, ResidualAttention
from flax_attn.models.generation import Sampling, generate
from tests import serving, tiny
from tests.accelerators.programs import largest
from tests.published import tiny as published

pytestmark = pytest.mark.usefixtures("symbolic_sizes")

ROOT = Path(__file__).parents[2]
TWO = {"num_seeds": 2, "seed": 3}
RNG = np.random.default_rng(0)
SIGNALS = RNG.normal(size=(64, 30)).astype(np.float32) * 3 + 1
IMAGES = RNG.integers(0, 256, (60, 8, 8), np.uint8)
SHADES = ["dark" if image.mean() < 127.5 else "light" for image in IMAGES]
TEXTS = ["a fine film", "a lovely little film", "a poor film", "an awful film"] * 8
JUDGED = TEXTS, ["good", "good", "bad", "bad"] * 8
SOURCES = ["a b c", "d e", "f g h i", "b a"] * 8
PAIRS = SOURCES, [source[::-1] for source in SOURCES]
PATCHES = TWO | {"model.patch_size": 4, "model.features": 8, "model.num_blocks": 1}
PATCHES |= {"model.num_heads": 2, "model.hidden_features": 8}
SERIES = {"data.num_train": 32, "data.num_valid": 8, "data.num_test": 8, "model.features": 8}
KINDS = {  # the config, its data and what is changed of it
    "cnn": ("shapes_cnn", (SIGNALS, np.cumsum(SIGNALS, axis=1)), {"model.features": 8}),
    "attention": ("shapes_attention", (SIGNALS, SIGNALS[:, ::-1]), tiny.ATTENTION),
    "carry": ("shapes_lstm", (SIGNALS, SIGNALS[:, ::-1]), {"model.features": 8}),
    "images": ("mnist_transformer", (IMAGES, SHADES), PATCHES),
    "texts": ("text_csv", JUDGED, TWO | tiny.TEXTS),
    "ngrams": ("ag_news_best", JUDGED, {"data.num_buckets": 1, "model.features": 8}),
    "series": ("series_input_attention", None, SERIES),
    "pairs": ("reverse_bahdanau", PAIRS, tiny.PAIRS),
    "transformer": ("translate_multi30k_transformer", PAIRS, {"model.features": 8}),
}
full = lambda *values: pytest.param(*values, marks=pytest.mark.slow)

ELSEWHERE = """
import sys
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import load_file

folder = Path(sys.argv[1])
program = jax.export.deserialize((folder / "prediction.jax").read_bytes())
assert program.platforms == ("cpu", "cuda", "tpu")
for number, path in enumerate(sys.argv[2:]):
    inputs = dict(np.load(path))
    outputs = program.call(inputs.get("inputs", inputs))
    attention = {f"attention/{name}": array for name, array in outputs.pop("attention").items()}
    np.savez(path + ".outputs.npz", **outputs, **attention)
parameters = load_file(folder / "params.safetensors")
assert all(name.startswith("params.") for name in parameters)
assert "flax" not in sys.modules
assert "flax_attn" not in sys.modules
"""


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Runs of each kind with their exports, by name, made when they are asked for."""
    folder, made = tmp_path_factory.mktemp("exports"), {}

    def make(name):
        if name not in made:
            config, rows, changes = KINDS[name]
            data = None if rows is None else {"train": rows, "test": rows}
            options = {"num_epochs": 1, "workdir": folder / name, "overrides": tiny.STEPS | changes}
            with tiny.untrained():
                run = flax_attn.train(f"{config}:quick", data=data, **options)
            made[name] = run, flax_attn.export(run, folder / f"{name} export")
        return made[name]

    return make


def elsewhere(folder, *batches):
    """What the program says of batches, in a process with jax, numpy and safetensors alone."""
    paths = [folder / f"batch{number}.npz" for number in range(len(batches))]
    for path, batch in zip(paths, batches):
        np.savez(path, **(batch if isinstance(batch, dict) else {"inputs": batch}))
    command = [sys.executable, "-c", ELSEWHERE, str(folder), *map(str, paths)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [dict(np.load(f"{path}.outputs.npz")) for path in paths]


def assert_same(outputs, prediction):
    np.testing.assert_allclose(outputs["outputs"], prediction.outputs, atol=1e-5, rtol=1e-5)
    names = {name.partition("/")[2] for name in outputs if name.startswith("attention/")}
    assert names == set(prediction.attention)
    for name, weights in prediction.attention.items():
        np.testing.assert_allclose(outputs[f"attention/{name}"], weights, atol=1e-5)


@pytest.mark.parametrize("name", ["attention", full("cnn"), full("carry")])
def test_signals_are_in_the_users_units(exports, name, no_pictures):
    run, folder = exports(name)
    (outputs,) = elsewhere(folder, SIGNALS[:5, :, None])
    prediction = run.predict(SIGNALS[:5, :, None])
    assert_same(outputs, prediction)
    assert bool(prediction.attention) == (name == "attention")


@pytest.mark.parametrize("name", ["attention", full("cnn")])
def test_signals_of_another_length_are_those_of_the_model(exports, name, no_pictures):
    run, folder = exports(name)
    signals = np.concatenate([SIGNALS, SIGNALS[:, :7]], axis=1)[:3, :, None]
    (outputs,) = elsewhere(folder, signals)
    mean, std = run.task.inputs.normalization
    normalized = jnp.asarray((signals - mean) / std)
    expected, _ = run.model.apply({"params": run.params[0]}, normalized)
    np.testing.assert_allclose(outputs["outputs"], expected * std + mean, atol=1e-4, rtol=1e-5)


@pytest.mark.slow
def test_images_have_the_mean_probabilities_of_the_seeds(exports, no_pictures):
    run, folder = exports("images")
    assert list(run.params) == [3, 4]
    (outputs,) = elsewhere(folder, IMAGES[:5].astype(np.float32) / 255)
    assert_same(outputs, run.predict(IMAGES[:5]))
    assert outputs["outputs"].shape == (5, 2)
    assert json.loads((folder / "labels.json").read_text()) == ["dark", "light"]


@pytest.mark.parametrize("name", ["texts", full("ngrams")])
def test_texts_of_any_length_have_their_classes(exports, name, no_pictures):
    run, folder = exports(name)
    batches = ["a film"], ["an awful film", "a fine little film of a poor film", "lovely"]
    outputs = elsewhere(folder, *map(run.task.inputs.encode, batches))
    for texts, answer in zip(batches, outputs):
        assert_same(answer, run.predict(texts))
    assert json.loads((folder / "tokenizer.json").read_text())["entries"][0] == "<PAD>"


@pytest.mark.parametrize("name", ["texts", full("ngrams"), full("pairs")])
def test_another_program_makes_the_same_tokens_by_the_note(exports, name, no_pictures):
    run, folder = exports(name)
    texts = ["A FINE film!", "an awful, (truly) awful film - isn't it?", "Unheard words", "a b c"]
    command = [sys.executable, str(ROOT / "tests" / "by_rules.py"), str(folder)]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    options = {"env": environment, "cwd": folder, "capture_output": True, "text": True}
    done = subprocess.run(command, input=json.dumps(texts), **options, timeout=60)
    assert done.returncode == 0, done.stderr
    tokens = json.loads(done.stdout)
    if name == "pairs":
        encoder = run.task.inputs
        rows = {"tokenizer.json": encoder.source, "target_tokenizer.json": encoder.target}
        for file, tokenizer in rows.items():
            assert tokens[file] == [tokenizer.encode(encoder.clean(text)) for text in texts]
        return
    inputs = run.task.inputs.encode(texts)
    for file, key in {"tokenizer.json": "tokens", "pairs.json": "pairs"}.items():
        if file in tokens:
            padded = [row + [0] * (inputs[key].shape[1] - len(row)) for row in tokens[file]]
            np.testing.assert_array_equal(padded, inputs[key])
    assert {0, 1} < set(inputs["tokens"].ravel().tolist())


def test_a_note_on_byte_pairs_names_the_package_that_reads_them():
    for kind in ("bpe", "bytes"):
        note = described({"kind": kind, "model": {}})
        assert note["package"] == "tokenizers"
        assert "from_str" in note["read"]


def test_the_command_writes_an_export(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "shapes", "out"]) == 0
    assert capsys.readouterr().out == "wrote out\n"
    program = jax.export.deserialize(Path("out/prediction.jax").read_bytes())
    assert [str(size) for size in program.in_avals[0].shape] == ["b", "t", "1"]
    Path("run").mkdir()
    Path("run/config.json").touch()
    for arguments, named in (
        (["nothing", "out"], "nothing"),
        (["shapes", "out", "--platform=gpu"], "'gpu'"),
        (["shapes", "run"], "config.json"),
    ):
        assert main(["export", *arguments]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert named in err


@pytest.mark.slow
def test_series_of_any_length_are_predicted(exports, no_pictures):
    run, folder = exports("series")
    series = RNG.normal(size=(5, 31, 8)).astype(np.float32)
    outputs = elsewhere(folder, series, series[:2, :1], series[:, :20])
    for own, rows in zip(outputs, (series, series[:2, :1])):
        computed = run.task.compute(run.model, list(run.params.values()), rows)
        np.testing.assert_allclose(own["outputs"], computed["outputs"], atol=1e-5)
    assert_same(outputs[2], run.predict(series[:, :20]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs", "transformer"])
def test_translations_are_the_greedy_ones(exports, name, no_pictures):
    run, folder = exports(name)
    sources = ["a b", "c d e f g h i a b", "b"]
    (outputs,) = elsewhere(folder, run.task.inputs.encode(sources))
    for i, (best,) in enumerate(run.predict(sources, beam=1).translations):
        length = outputs["lengths"][i]
        assert outputs["tokens"][i].tolist() == best.tokens + [0] * (
            run.task.inputs.max_length - length
        )
        np.testing.assert_allclose(outputs["scores"][i], best.score, rtol=1e-4)
        weights = outputs["attention/alignment"][i, :length, : best.alignment.shape[1]]
        np.testing.assert_allclose(weights, best.alignment, atol=1e-5)


@pytest.mark.slow
def test_a_program_for_one_platform_has_its_forms_and_linear_memory(tmp_path, no_pictures):
    length = 2560  # in blocks on a CPU
    changes = {"data.max_length": length, "model.num_blocks": 1, "model.num_heads": 1}
    changes |= {"model.features": 8}
    (tmp_path / "own.txt").write_text("a line of a text\n" * 3000)
    changes |= {"data.file": str(tmp_path / "own.txt")}
    with tiny.untrained():
        run = flax_attn.train(
            "text_file:quick",
            num_epochs=1,
            workdir=tmp_path / "run",
            overrides=tiny.STEPS | {"batch_size": 1} | changes,
        )
    folder = flax_attn.export(run, tmp_path / "out", platforms=["cpu", "tpu"], rows=2)
    program = lambda name: jax.export.deserialize((folder / name).read_bytes())
    whole, of_cpu, of_tpu = map(
        program, ("prediction.jax", "prediction.cpu.jax", "prediction.tpu.jax")
    )
    assert (of_cpu.platforms, of_tpu.platforms) == (("cpu",), ("tpu",))
    assert of_cpu.in_avals[0].shape == (2, length)
    assert largest(of_cpu.mlir_module()) < length**2 / 4
    tokens = np.asarray(RNG.integers(1, 9, (2, length)), np.int32)
    expected = whole.call(tokens)["outputs"]
    np.testing.assert_allclose(of_cpu.call(tokens)["outputs"], expected, atol=1e-5)
    note = json.loads((folder / "export.json").read_text())
    assert note["programs"]["prediction.tpu.jax"]["inputs"]["shape"] == [2, length]
    for platforms, rows in ((["gpu"], 1), ("tpu", 1), (["tpu"], 0), ((), 4)):
        with pytest.raises(UsageError, match=r"platforms|rows"):
            flax_attn.export(run, folder, platforms=platforms, rows=rows)


def test_parameters_of_each_seed_are_there_by_name(exports, no_pictures):
    run, folder = exports("texts")
    assert json.loads((folder / "export.json").read_text())["params"] == {
        "3": "params.safetensors",
        "4": "params-4.safetensors",
    }
    for seed, name in ((3, "params.safetensors"), (4, "params-4.safetensors")):
        stored = load_file(folder / name)
        kernel = run.params[seed]["hidden"]["kernel"]
        np.testing.assert_array_equal(stored["params.hidden.kernel"], kernel, strict=True)
        assert len(stored) == len(jax.tree.leaves(run.params[seed]))


def test_a_transposed_parameter_is_stored_as_it_is():
    kernel = np.arange(6.0).reshape(2, 3).T
    stored = load(as_safetensors({"layer": {"kernel": kernel}}))
    np.testing.assert_array_equal(stored["params.layer.kernel"], kernel)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("attention", ["b", "t", 1], {"outputs": ["b", "t", 1]}),
        full("carry", ["b", 30, 1], {"outputs": ["b", 30, 1]}),
        full("images", ["b", 8, 8], {"outputs": ["b", 2]}),
        ("texts", {"tokens": ["b", "t"], "lengths": ["b"]}, {"outputs": ["b", 2]}),
        full(
            "pairs",
            {"source": ["b", "s"], "source_lengths": ["b"]},
            {"tokens": ["b", 10], "lengths": ["b"], "scores": ["b"]},
        ),
    ],
)
def test_the_note_has_names_and_shapes(exports, name, inputs, outputs, no_pictures):
    _, folder = exports(name)
    note = json.loads((folder / "export.json").read_text())
    shapes = lambda tree: jax.tree.map(
        lambda leaf: leaf["shape"], tree, is_leaf=lambda node: "shape" in node
    )
    assert shapes(note["inputs"]) == inputs
    assert {key: shapes(note["outputs"][key]) for key in outputs} == outputs
    assert all((folder / file).exists() for file in (*note["files"], *note["params"].values()))
    tasks = {"images": "image-classes", "texts": "text-classes", "pairs": "text-text"}
    assert note["task"] == tasks.get(name, "signal-signal")
    assert bool(note["texts"]) == (name in ("texts", "pairs"))


@pytest.mark.parametrize(
    ("model", "any_length"),
    [
        (CNN(8), True),
        (CNNAttention(8), True),
        (ResidualAttention(8), True),
        (BiLSTM(8), True),
        (CNN(8, binary_positions=True), False),
        (LSTM(8), False),
    ],
)
def test_parameters_say_whether_a_model_takes_any_length(model, any_length):
    assert takes_any_length(model, jnp.zeros((2, 30, 1))) == any_length


def test_a_path_will_do_and_files_are_replaced(exports, tmp_path, no_pictures):
    run, folder = exports("attention")
    (tmp_path / "export.json").write_text("old")
    assert flax_attn.export(str(run.path), tmp_path) == tmp_path
    names = sorted(path.name for path in folder.iterdir() if "batch" not in path.name)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in ("params.safetensors", "export.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


HEADS = (
    {  # folders of published models, and inputs
        "gpt2": (published.write_gpt2, ["a cat", "the cat sat"]),
        "hybrid": (published.write_hybrid, ["a cat", "the cat sat"]),
        "vit": (published.write_vit, IMAGES[:3] / 255),
        "vit states": (functools.partial(published.write_vit, classes=False), IMAGES[:3] / 255),
    }
    | {
        head: (functools.partial(published.write_bert, head=head), ["a cat [MASK]", "the [MASK]"])
        for head in ("words", "classes", "tokens", "number", "states")
    }
)


@pytest.mark.parametrize(
    "name", [name if name in ("gpt2", "tokens") else full(name) for name in HEADS]
)
def test_a_published_model_predicts_with_the_parameters_beside_it(name, tmp_path):
    write, given = HEADS[name]
    model = flax_attn.load(write(tmp_path / "folder"))
    folder = flax_attn.export(model, tmp_path / "exported", need_weights=True)
    program = jax.export.deserialize((folder / "prediction.jax").read_bytes())
    inputs, predicted = model.task.inputs.read(given).arrays, model.predict(given)
    is_decoder = name in ("gpt2", "hybrid")
    lengths = inputs.pop("lengths") if is_decoder else None
    params = load_file(folder / "params.safetensors")
    outputs = program.call(params, inputs["tokens"] if is_decoder else inputs)
    got = outputs["outputs"]
    got = got[np.arange(len(lengths)), lengths - 1] if is_decoder else got
    np.testing.assert_allclose(got, predicted.outputs, atol=1e-5)
    for block, weights in predicted.attention.items():
        for ours, its in zip(outputs["attention"][block], weights):
            shown = tuple(map(slice, its.shape))
            np.testing.assert_allclose(ours[shown], its, atol=1e-5)
    if predicted.names and not is_decoder:
        assert json.loads((folder / "labels.json").read_text()) == predicted.names


def test_an_export_of_an_encoder_and_decoder_writes_what_it_predicts(tmp_path):
    model = flax_attn.load(published.write_t5(tmp_path / "folder"))
    folder = flax_attn.export(model, tmp_path / "exported")
    program = jax.export.deserialize((folder / "prediction.jax").read_bytes())
    texts = ["a dog sat", "the cat sat on a dog"]
    outputs = program.call(
        load_file(folder / "params.safetensors"), model.task.inputs.encode(texts)
    )
    rows = zip(np.asarray(outputs["tokens"]), outputs["lengths"])
    written = [model.task.inputs.write(tokens[:length].tolist()) for tokens, length in rows]
    assert written == model.predict(texts).outputs


def test_the_page_on_serving_writes_what_the_model_writes(tmp_path):
    model = flax_attn.load(published.write_gpt2(tmp_path / "folder"))
    flax_attn.export(model, tmp_path / "exported")
    serving.run(serving.PAGE + "Path('text').write_text(text)", tmp_path)
    prompt = "The cat sat on the mat because"
    expected = model.generate(prompt, length=32, temperature=0).texts[0]  # before it reads anew
    assert (tmp_path / "text").read_text().startswith(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "gpt2", "hybrid"])
def test_decode_steps_write_what_generate_writes(name, tmp_path, no_pictures):
    sizes = {"data.max_length": 64, "model.features": 16, "model.num_blocks": 2}
    changes = tiny.STEPS | sizes | {"data.num_lines": 400, "model.num_key_heads": 2}
    if name == "run":
        options = {"num_epochs": 1, "workdir": tmp_path / "run", "overrides": changes}
        model = flax_attn.train("names:quick", **options)
    else:
        model = flax_attn.load(HEADS[name][0](tmp_path / "folder"))
    flax_attn.export(model, tmp_path / "exported")
    prompts = [model.task.inputs.encoded(text) for text in ("kanidafo", "ka")]
    params = next(iter(model.params.values()))
    parts = generate(model.model, params, prompts, 40, Sampling(0.0))
    expected = np.concatenate([*parts], axis=1)
    assert len({*expected.ravel().tolist()}) > 3  # not one token for ever
    np.testing.assert_array_equal(serving.write(tmp_path, prompts, 40), expected)


@pytest.mark.parametrize("text", ["é", "\ud800"])
def test_every_text_that_a_run_may_hold_is_written(text):
    assert json.loads(as_json([text])) == [text]


class Halved(nn.Module):
    """A model of one's own that looks at its batch size."""

    @nn.compact
    def __call__(self, inputs, *, train=False):
        return nn.Dense(1)(inputs) / len(inputs), {}


def test_what_cannot_be_exported_is_told_in_one_line(exports, tmp_path, monkeypatch, no_pictures):
    run, _ = exports("attention")
    model = Halved()
    params = model.init(jax.random.key(0), jnp.zeros((2, 30, 1)))["params"]
    own = dataclasses.replace(run, model=model, params={0: params})
    with pytest.raises(UsageError, match="every batch size and length") as error:
        flax_attn.export(own, tmp_path / "own")
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "own").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="File exists"):
        flax_attn.export(run, tmp_path / "file")
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(UsageError, match=r"flax-attn\[export\]"):
        flax_attn.export(run, tmp_path / "none")
