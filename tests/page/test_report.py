"""The page of runs as text: joined modules, safe data, equal bytes; bad input is told in a line."""

import base64
import json
import os
import re
import subprocess
import zlib

import numpy as np
import pytest
from scipy.stats import kendalltau

from flax_attn.__main__ import main
from flax_attn.errors import UsageError
from flax_attn.page import data
from flax_attn.page.joining import FOLDER, digest, join
from flax_attn.page.report import MAIN, STILL, drawn_curve, report, script_of
from flax_attn.tasks import KINDS as KINDS_OF_TASK
from flax_attn.tasks import read
from flax_attn.tasks.replies import pack
from tests.explore.living import NODE, needs_node
from tests.written_runs import KINDS, write_run

MODULES = sorted(FOLDER.rglob("*.mjs"))
FORBIDDEN = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")


def in_node(module, function, *arguments):
    """What a function of a page's module returns, as JSON."""
    call = f"{function}(...{json.dumps(arguments)})"
    script = f'import {{ {function} }} from "{(FOLDER / module).as_uri()}";'
    script += f"console.log(JSON.stringify({call}));"
    command = [NODE, "--input-type=module", "--eval", script]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def data_of(page):
    """The data of a page."""
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(packed):
    raw = zlib.decompress(base64.b64decode(packed["data"]))
    return ((np.frombuffer(raw, np.uint8) / 255.0) ** 2).reshape(packed["shape"])


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
    run = read(write_run(tmp_path / "run", config={"derived": {"std": 50.0}}))
    error = 50 * np.sqrt(run.summary["metrics"]["test/mse"]["mean"])
    tallest = run.examples["targets"].max()
    said = data_of(report([run]))["runs"][0]["sentence"]
    assert f"with an error of {error:.2g} for heights up to {tallest:.3g} (mean of 2" in said


@needs_node
def test_runs_of_different_data_stand_in_tables_of_their_own():
    runs = [
        {"kind": "texts", "data": data, "files": files, "measured": "accuracy"}
        for data, files in (("sst", ["a"]), ("ag_news", ["a"]), ("sst", ["a"]), ("sst", ["b"]))
    ]
    groups = [[runs[0], runs[2]], [runs[1]], [runs[3]]]
    assert in_node("pictures/table.mjs", "groupsOf", runs) == groups


def test_a_page_knows_the_files_of_a_run_by_their_sums(tmp_path):
    files = {"b.csv": "1" * 64, "a.csv": "2" * 64}
    runs = [
        read(write_run(tmp_path / name, config={"derived": {"std": 1.0} | derived}))
        for name, derived in (("made", {}), ("own", {"files": files}))
    ]
    shown = data_of(report(runs))["runs"]
    assert [run["files"] for run in shown] == [[], ["1" * 64, "2" * 64]]


@needs_node
def test_labels_across_that_would_run_together_are_thinned_out():
    script = f'import {{ roomy, scale }} from "{(FOLDER / "pictures/axes.mjs").as_uri()}";'
    script += (
        "const of = (right) => roomy(scale(0, 5000, 58, right), right).map((own) => own.text);"
    )
    script += "console.log(JSON.stringify([of(640), of(310), of(60)]));"
    command = [NODE, "--input-type=module", "--eval", script]
    drawn = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    thousands = ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]
    assert json.loads(drawn) == [thousands, thousands[::2], thousands[:1]]


@needs_node
def test_a_curve_has_a_gap_where_a_value_is_not_a_number(tmp_path):
    script = f'import {{ path, scale }} from "{(FOLDER / "pictures/axes.mjs").as_uri()}";'
    script += "const own = scale(0, 4, 0, 4);"
    script += "console.log(path([0, 1, 2, 3, 4], [0, 1, NaN, 3, 4], own, own));"
    command = [NODE, "--input-type=module", "--eval", script]
    drawn = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert re.findall("[ML]", drawn) == ["M", "L", "M", "L"]


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


@needs_node
def test_agreement_is_kendalls_tau_with_ties():
    rng = np.random.default_rng(0)
    for _ in range(3):
        one, other = rng.integers(0, 4, (2, 9)).tolist()
        tau = in_node("pictures/evidence.mjs", "kendall", one, other)
        assert tau == pytest.approx(kendalltau(one, other).statistic)


@needs_node
@pytest.mark.parametrize(("data", "expected"), [("mnist", [0.25, 1]), ("image_files", [0.75, 0])])
def test_a_model_is_asked_with_images_as_it_was_trained_on_them(data, expected):
    """A page has ink, 1 for black. The digits of MNIST are white on black, files are not."""
    example = {"image": {"shape": [1, 2], "data": [0.25, 1]}}
    asked = in_node("views/images.mjs", "storedImage", {"data": data}, example)
    assert asked["inputs"]["data"] == expected


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


VIEWS = sorted(path.stem for path in (FOLDER / "views").glob("*.mjs"))


@pytest.mark.parametrize("main_module", [MAIN, STILL])
@pytest.mark.parametrize("kinds", [*([kind] for kind in VIEWS), VIEWS], ids="-".join)
def test_the_joined_script_is_one_sound_module(kinds, main_module, tmp_path):
    script = script_of(kinds, main_module == MAIN)
    assert not re.search(r"^(?:import|export)\b", script, re.MULTILINE)
    assert "</script" not in script
    assert "<!--" not in script
    if NODE:
        (tmp_path / "joined.mjs").write_text(script)
        subprocess.run([NODE, "--check", tmp_path / "joined.mjs"], check=True)


def test_a_kind_of_task_has_one_view_of_its_name(tmp_path):
    assert set(VIEWS) == set(KINDS_OF_TASK)
    for kind in VIEWS:
        text = (FOLDER / "views" / f"{kind}.mjs").read_text(encoding="utf-8")
        assert re.findall(r'^addKind\("(\w+)"', text, re.MULTILINE) == [kind]
    run = read(write_run(tmp_path / "run"))
    strange = run._replace(summary=run.summary | {"pictures": "signal"})
    with pytest.raises(UsageError, match="unknown kind of task 'signal'; did you mean 'signals'"):
        report([strange])


@needs_node
def test_a_page_refuses_a_kind_that_is_not_among_its_views():
    script = f'import "{(FOLDER / "views" / "texts.mjs").as_uri()}";'
    script += f'import {{ kindOf }} from "{(FOLDER / "kinds.mjs").as_uri()}";'
    script += 'kindOf({ name: "own", kind: "texts" }); kindOf({ name: "own", kind: "numbers" });'
    command = [NODE, "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "expected a kind of task among texts, got numbers of the run own;" in done.stderr


def test_the_modules_keep_the_rules_of_the_house():
    assert len(MODULES) > 15
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        assert max(map(len, lines)) <= 100, path.name
        assert lines[0].startswith("// "), path.name
        assert not [word for word in FORBIDDEN if word in text], path.name
        assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), path.name


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.mjs": 'import { f } from "./b.mjs";', "b.mjs": "const f = 1;"}, "does not export"),
        ({"a.mjs": 'import { f } from "./b.mjs";\nconst f = 2;', "b.mjs": "export const f = 1;"},
         "both define f"),
        ({"a.mjs": 'import * as b from "./b.mjs";', "b.mjs": ""}, "on one line"),
    ],
)  # fmt: skip
def test_the_joiner_refuses_what_would_break(files, said, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        join(["a.mjs"], tmp_path)


def test_the_joiner_puts_each_module_once_before_what_imports_it(tmp_path):
    (tmp_path / "a.mjs").write_text(
        'import { f } from "./b.mjs";\nimport { g } from "./c.mjs";\ng();'
    )
    (tmp_path / "b.mjs").write_text("/** Says\n * f. */\nexport function f() {\n  // one\n}")
    (tmp_path / "c.mjs").write_text('import { f } from "./b.mjs";\nexport const g = f;')
    lines = [line for line in join(["a.mjs"], tmp_path).splitlines() if not line.startswith("// ")]
    assert lines == ["function f() {", "}", "const g = f;", "g();"]


def test_the_joiner_knows_a_module_by_its_folder(tmp_path):
    (tmp_path / "views").mkdir()
    (tmp_path / "a.mjs").write_text(
        'import { f } from "./views/b.mjs";\nimport { g } from "./b.mjs";\nf(g);'
    )
    (tmp_path / "views" / "b.mjs").write_text(
        'import { g } from "../b.mjs";\nimport { h } from "./c.mjs";\nexport const f = g(h);'
    )
    (tmp_path / "views" / "c.mjs").write_text("export const h = 1;")
    (tmp_path / "b.mjs").write_text("export const g = (own) => own;")
    lines = join(["a.mjs"], tmp_path).splitlines()
    assert lines[::2] == ["// b.mjs", "// views/c.mjs", "// views/b.mjs", "// a.mjs"]
    assert lines[1::2] == ["const g = (own) => own;", "const h = 1;", "const f = g(h);", "f(g);"]


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
    weights = np.array([[[0.25, np.nan, np.inf, 2.0]]], np.float32)
    packed = pack(weights)
    assert packed["broken"] == [1, 2]
    np.testing.assert_allclose(unpacked(packed)[0, 0, [0, 3]], [0.25, 1], atol=0.01)


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
    path = write_run(tmp_path / "run")
    return path


def told(capsys, *arguments):
    """The line that a command ends with."""
    assert main(["report", "--no-model", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


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


@pytest.mark.parametrize("name", ["examples.npz", "metrics.jsonl", "summary.json", "config.json"])
@pytest.mark.parametrize("how", ["cut", "changed", "gone"])
def test_a_damaged_run_is_told_by_name_and_the_report_stays(name, how, run, tmp_path, capsys):
    output, sound = tmp_path / "report.html", write_run(tmp_path / "sound")
    output.write_text("before")
    path = run / name
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        cut = content[: len(content) // 2]
        path.write_bytes(cut if how == "cut" else content + b" ")
    assert str(run) in told(capsys, sound, run, "-o", output)
    assert output.read_text() == "before"
    assert not list(tmp_path.glob(".*"))


def test_what_is_no_run_or_one_of_another_version_is_told(run, tmp_path, capsys):
    assert "no run directory" in told(capsys, tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in told(capsys, tmp_path / "empty")
    assert f"choose another directory, such as {run}" in told(capsys, run.parent)
    (tmp_path / "weights.npz").touch()
    said = f"flax-attn report {tmp_path}/weights.npz shows weights"
    assert said in told(capsys, tmp_path / "weights")
    older = write_run(tmp_path / "older", "texts", config={"derived": {}})
    assert "do not fit the classes" in told(capsys, older, "-o", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("flags", [[], ["--no-model"]])
def test_an_output_is_checked_before_a_run_is_read(flags, run, capsys, monkeypatch):
    monkeypatch.setattr(kinds, "read_runs", lambda paths: pytest.fail("a run is read"))
    assert main(["report", str(run), *flags, "-o", "/proc/report.html"]) == 2
    assert "cannot write -o /proc/report.html" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_told(run, tmp_path, capsys):
    assert "got the directory" in told(capsys, run, "-o", tmp_path)
    assert "ends in .html" in told(capsys, run, "-o", tmp_path / "report.txt")
    assert "no directory" in told(capsys, run, "-o", tmp_path / "none" / "report.html")
    (tmp_path / "loop.html").symlink_to("loop.html")
    assert "symbolic links" in told(capsys, run, "-o", tmp_path / "loop.html")
    assert "cannot write -o /proc/report.html" in told(capsys, run, "-o", "/proc/report.html")
    (run / "checkpoints" / "1").mkdir(parents=True)
    inside = run / "checkpoints" / "1" / "report.html"
    assert "none of the files that training wrote" in told(capsys, run, "-o", inside)
    if os.geteuid():
        os.chmod(tmp_path, 0o500)
        assert "cannot write" in told(capsys, run, "-o", tmp_path / "report.html")
        os.chmod(tmp_path, 0o700)


def test_a_report_may_have_as_long_a_name_as_a_file(run, tmp_path):
    output = tmp_path / ("x" * 250 + ".html")
    assert main(["report", "--no-model", str(run), "-o", str(output)]) == 0
    assert output.stat().st_size > 0


def test_a_full_disk_leaves_the_old_report(run, tmp_path, capsys, monkeypatch):
    output = tmp_path / "report.html"
    output.write_text("before")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    assert "No space left" in told(capsys, run, "-o", output)
    assert output.read_bytes() == b"before"


def test_runs_of_equal_names_have_their_paths(tmp_path):
    runs = [read(write_run(tmp_path / name / "run")) for name in "ab"]
    names = [run["name"] for run in data_of(report(runs))["runs"]]
    assert names == [str(run.path) for run in runs]


def test_an_accuracy_of_classes_has_the_number_of_its_test_examples(tmp_path):
    run = read(write_run(tmp_path / "run", "texts"))
    assert data.num_test(run) is None
    run.summary["classes"] = {"a": {"support": 29}, "b": {"support": 31.0}}
    assert data.run_data(run)["num_test"] == 60
    run.summary["measured"] = "loss"
    assert data.num_test(run) is None


@pytest.mark.parametrize("missing", ["platform", "matmul_precision"])
def test_a_page_says_where_it_was_trained_where_the_run_says_it(missing):
    said = {"platform": "tpu", "matmul_precision": "default"}
    assert data.trained_on(said) == "tpu, with float32 multiplied in bfloat16"
    assert data.trained_on(said | {"matmul_precision": "highest"}) == "tpu"
    del said[missing]
    assert data.trained_on(said) is None
