"""The page of runs as text: safe data, equal bytes; bad input is a one-line error."""

import base64
import json
import math
import re
import zlib

import numpy as np
import pytest

from flax_attn import tasks
from flax_attn.__main__ import main
from flax_attn.page import data
from flax_attn.page.joining import FOLDER, digest
from flax_attn.page.report import drawn_curve, report
from flax_attn.runs.reading import read
from flax_attn.tasks.replies import pack
from tests.written_runs import KINDS, write_run


def data_of(page):
    """The data of a page."""
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(packed):
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    sizes, bits = np.split(raw, [math.prod(packed["shape"])])
    signs = 1 - 2.0 * np.unpackbits(bits, count=len(sizes)) if "top" in packed else 1
    return (signs * packed.get("top", 1) * (sizes / 255.0) ** 2).reshape(packed["shape"])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_runs_give_equal_pages_with_every_weight(kind, tmp_path):
    run = read(write_run(tmp_path / kind, kind))
    page = report([run])
    assert page == report([read(tmp_path / kind)])
    shown = data_of(page)["runs"][0]
    kept = run.attention
    assert [entry["name"] for entry in shown["attention"]] == list(kept)
    for i, example in enumerate(shown["examples"]):
        for name, packed in example["attention"].items():
            weights = data.weights_of(run, i)[name]
            assert list(weights.shape) == packed["shape"]
            off = np.abs(np.sqrt(unpacked(packed)) - np.sqrt(weights))
            assert off.max() <= 0.5 / 255 + 1e-6
    assert len(shown["examples"]) == (1 if kind == "language" else len(run.examples["inputs"]))


def test_the_error_in_a_sentence_is_in_the_units_of_the_data(tmp_path):
    run = read(
        write_run(tmp_path / "run", config={"derived": {"inputs": {"mean": 0.0, "std": 50.0}}})
    )
    error = 50 * np.sqrt(run.summary["metrics"]["test/mse"]["mean"])
    tallest = run.examples["targets"].max()
    said = data_of(report([run]))["runs"][0]["sentence"]
    assert f"RMSE {error:.2g} (heights up to {tallest:.3g}), mean of 2" in said


def test_a_page_knows_the_files_of_a_run_by_their_sums(tmp_path):
    files = {"b.csv": "1" * 64, "a.csv": "2" * 64}
    runs = [
        read(write_run(tmp_path / name, config={"derived": {"std": 1.0} | derived}))
        for name, derived in (("made", {}), ("own", {"files": files}))
    ]
    shown = data_of(report(runs))["runs"]
    assert [run["files"] for run in shown] == [[], ["1" * 64, "2" * 64]]


def test_without_javascript_a_curve_that_falls_goes_down(tmp_path):
    run = read(write_run(tmp_path / "run"))
    measured = f"test/{run.measured}"
    rows = [row | {measured: 3.0 - row["epoch"] / 10} for row in run.rows]
    drawn = drawn_curve(run._replace(rows=rows))
    heights = [
        float(y) for y in re.findall(r"[\d.]+,([\d.]+)", re.search('points="(.*?)"', drawn)[1])
    ]
    assert heights == sorted(heights)  # an SVG counts downwards
    assert heights[0] < heights[-1]


def test_the_policy_names_the_hashes_of_script_and_style(tmp_path):
    page = report([read(write_run(tmp_path / "run"))])
    script = re.search(r'<script type="module" id="script">(.*?)</script>', page, re.DOTALL)[1]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    policy = re.search(r'Policy" content="(.*?)">', page)[1]
    assert f"script-src {digest(script)};" in policy
    assert f"style-src {digest(style)};" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "connect-src 'none'" in policy
    assert "connect-src 'self'" in report([read(tmp_path / "run")], mode="explore")


def luminance(colour):
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_every_colour_of_text_is_read_on_every_ground():
    css = (FOLDER / "page.css").read_text()
    themes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(themes) == 3  # light, dark, print
    for theme in themes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for ground in ("ground", "panel"):
            for ink in colours.keys() - {"ground", "panel", "edge"}:
                pair = sorted(luminance(colours[name]) for name in (ink, ground))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (ink, ground, theme)


def test_what_json_cannot_hold_is_said_and_what_steers_is_escaped():
    values = {"a\u202e": [float("nan"), float("-inf"), 1.5, "\x1b"]}
    assert data.safe(values) == {"a\\u202e": ["NaN", "-Infinity", 1.5, "\\x1b"]}


def test_large_attention_is_cut_with_a_line_that_says_so(tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(1200), (2, 1200)).astype(np.float32)
    words = np.array([["w"] * 1200] * 2)
    held = {"inputs": np.full((2, 1200), 5), "lengths": np.array([1200, 1200]), "words": words}
    held |= {"targets": np.zeros(2, int), "predictions": np.full((2, 2), 0.5)}
    run = read(
        write_run(tmp_path / "run", "texts", examples=held | {"attention/attention": weights})
    )
    page = report([run])
    assert len(page) < 1_500_000
    (shown,) = data_of(page)["runs"]
    assert [line.partition(":")[0] for line in shown["lines"]] == ["Attention is large here"] * 2
    row = unpacked(shown["examples"][0]["attention"]["attention"])[0, 7]
    assert 32 <= (row > 0).sum() <= 80
    assert row.argmax() == weights[0, 7].argmax()


def test_weights_that_are_no_numbers_come_as_such():
    weights = np.array([[[0.25, np.nan, np.inf, 1.002]]], np.float32)
    packed = pack(weights)
    assert packed["broken"] == [1, 2]
    np.testing.assert_allclose(unpacked(packed)[0, 0, [0, 3]], [0.25, 1], atol=0.01)


@pytest.mark.parametrize("largest", [0.02, 0.7, 40.0])
def test_weights_that_are_no_shares_come_with_their_signs(largest):
    weights = np.random.default_rng(0).uniform(-largest, largest, (2, 3, 5))
    np.testing.assert_allclose(unpacked(pack(weights)), weights, atol=0.005 * largest)
    assert ("top" in pack(np.abs(weights))) == (largest > 1)


def test_changed_keys_make_the_command_and_no_config_of_another_is_run(tmp_path):
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'harm')!r}, 'w')\n")
    changed = {"name": "shapes_attention:quick", "num_epochs": 7, "batch_size": 4}
    pairs, is_known = data.changes(changed)
    assert is_known
    assert pairs == {"num_epochs": [7, 5]}
    said = data.command(changed, pairs)
    assert said == "flax-attn train shapes_attention:quick --num_epochs=7"
    assert data.changes({"name": str(evil)}) == ({}, False)
    assert not (tmp_path / "harm").exists()


# the command


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def test_the_command_writes_one_file_or_prints_it(run, tmp_path, capsysbinary):
    output = tmp_path / "report.htm"
    assert main(["report", "--no-model", str(run), "-o", str(output)]) == 0
    assert capsysbinary.readouterr().out.startswith(b"wrote ")
    text = output.read_bytes()
    assert main(["report", "--no-model", str(run), "-o", "-"]) == 0
    assert capsysbinary.readouterr().out == text
    output.write_bytes(b"")
    (tmp_path / "link.html").symlink_to(output)
    assert main(["report", "--no-model", str(run), "-o", str(tmp_path / "link.html")]) == 0
    assert (tmp_path / "link.html").is_symlink()
    assert output.read_bytes() == text
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["link.html", "report.htm", "run"]


@pytest.mark.parametrize(
    "output", ["/proc/report.html", "report.txt", ".", "none/report.html", "run/config.html"]
)
def test_an_output_is_checked_before_a_run_is_read(output, run, capsys, monkeypatch):
    monkeypatch.setattr(tasks, "read_runs", lambda paths: pytest.fail("a run is read"))
    monkeypatch.chdir(run.parent)
    if output == "run/config.html":
        (run / "config.html").symlink_to("config.json")
    assert main(["report", "--no-model", str(run), "-o", output]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "-o" in err


def test_an_accuracy_of_classes_has_the_number_of_its_test_examples(tmp_path):
    run = read(write_run(tmp_path / "run", "texts"))
    assert data.num_test(run) is None
    run.summary["classes"] = {"a": {"support": 29}, "b": {"support": 31.0}}
    assert data.run_data(run)["num_test"] == 60
    run.summary["measured"] = "loss"
    assert data.num_test(run) is None
