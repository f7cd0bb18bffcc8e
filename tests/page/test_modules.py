"""The JavaScript modules are tested by Node; they keep rules, and Python's constants."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from flax_attn.data import shapes
from flax_attn.explore import under_lens
from flax_attn.page.joining import FOLDER, join
from flax_attn.page.report import MAIN, PUBLISHED, STILL, script_of
from flax_attn.page.weights import VIEW
from flax_attn.tasks import asking
from tests.explore import living

MODULES = sorted(FOLDER.rglob("*.mjs"))
FORBIDDEN = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")
TASKS = {
    (signals.stem, target.stem)
    for signals in (FOLDER / "inputs").glob("*.mjs")
    for target in (FOLDER / "targets").glob("*.mjs")
}
CONSTANTS = """
import { NORMALIZERS } from "./controls/settings.mjs";
import { CENTERS, HEIGHTS, LENGTH } from "./shapes/numbers.mjs";
import { normalizers } from "./pictures/normalizers.mjs";
const names = [NORMALIZERS, CENTERS, HEIGHTS, LENGTH, normalizers.top_k.formula];
console.log(JSON.stringify(names));
"""


@living.needs_node
def test_node_finds_that_each_module_computes_what_it_should():
    tests = [str(path) for path in sorted(Path(__file__).parent.glob("test_*.mjs"))]
    done = subprocess.run([living.NODE, "--test", *tests], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@living.needs_node
def test_the_page_has_the_constants_of_the_library():
    command = [living.NODE, "--input-type=module", "-e", CONSTANTS]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True)
    offered, centers, heights, length, top = json.loads(done.stdout)
    assert tuple(offered) == asking.NORMALIZERS
    assert (tuple(centers), tuple(heights)) == (shapes.CENTER_RANGE, shapes.HEIGHT_RANGE)
    assert length == shapes.LENGTH
    assert f"the {under_lens.TOP} largest" in top


def test_the_modules_keep_the_rules_of_the_house():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert max(map(len, text.splitlines())) <= 100, path.name
        assert text.startswith("// "), path.name
        assert not [word for word in FORBIDDEN if word in text], path.name
        assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), path.name


@pytest.mark.parametrize(
    "script",
    [
        *(lambda main=main: script_of(TASKS, main == MAIN) for main in (MAIN, STILL)),
        *(lambda task=task: script_of([task], True) for task in sorted(TASKS)[::4]),
        lambda: join([PUBLISHED, MAIN]),
        lambda: join([VIEW]),
    ],
)
def test_a_joined_script_is_one_sound_module(script, tmp_path):
    text = script()
    assert not re.search(r"^(?:import|export)\b", text, re.MULTILINE)
    assert "</script" not in text
    assert "<!--" not in text
    if living.NODE:
        (tmp_path / "joined.mjs").write_text(text)
        subprocess.run([living.NODE, "--check", tmp_path / "joined.mjs"], check=True)


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def test_modules_import_what_is_exported():
    """The joined script has one scope, which would hide an import of what is not exported."""
    names = re.compile(r'^import \{ ([\w, $]+) \} from "(.+)";$')
    for path in MODULES:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("import"):
                wanted, other = names.fullmatch(line).groups()
                exported = (path.parent / other).read_text(encoding="utf-8")
                for name in wanted.split(", "):
                    assert re.search(rf"^export .*\b{re.escape(name)}\b", exported, re.MULTILINE)


def test_the_joiner_puts_each_module_once_before_what_imports_it(tmp_path):
    files = {
        "a.mjs": 'import { f } from "./views/b.mjs";\nimport { g } from "./b.mjs";\nf(g);',
        "views/b.mjs": 'import { g } from "../b.mjs";\n/** Says\n * f. */\nexport const f = g;',
        "b.mjs": "export function g() {\n  // one\n}",
    }
    write(tmp_path, files)
    lines = join(["a.mjs"], tmp_path).splitlines()
    assert [line for line in lines if line.startswith("//")] == [
        "// b.mjs",
        "// views/b.mjs",
        "// a.mjs",
    ]
    assert [line for line in lines if not line.startswith("//")] == [
        *("function g() {", "}", "const f = g;", "f(g);"),
    ]
