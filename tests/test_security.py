"""What `SECURITY.md` promises: no code comes from a run directory or a data file."""

import ast
import json
import shutil
from pathlib import Path

import pytest

import flax_attn
from flax_attn.errors import UsageError
from flax_attn.runs.sums import SUMS
from tests import tiny

PACKAGE = Path(flax_attn.__file__).parent
NEVER = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "subprocess", "yaml"}
EXECUTE = {"eval", "exec", "__import__", "system", "popen", "import_module", "run_path"}
MAY_IMPORT = {  # the classes that a caller allows, the configs that a user names, and lazy imports
    "experiment/foreign.py",
    "config_files.py",
    "__init__.py",
    "attention/__init__.py",
}


def test_nothing_is_unpickled_or_executed():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not NEVER & {alias.name.split(".")[0] for alias in node.names}, name
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in NEVER, name
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert called not in EXECUTE or name in MAY_IMPORT, f"{name} calls {called}"
                for option in node.keywords:
                    is_false = isinstance(option.value, ast.Constant) and not option.value.value
                    assert option.arg != "allow_pickle" or is_false, name


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path, overrides = tmp_path_factory.mktemp("runs") / "run", tiny.SHAPES | tiny.CNN
    with tiny.untrained():
        run = flax_attn.train("shapes_cnn:quick", workdir=path, num_epochs=1, overrides=overrides)
    return run.path


@pytest.mark.parametrize("key", ["model", "data"])
@pytest.mark.parametrize("name", ["os:system", "antigravity:fly"])
def test_a_run_that_names_a_function_runs_nothing(run, tmp_path, key, name):
    copy = shutil.copytree(run, tmp_path / "run")
    config = json.loads((copy / "config.json").read_text())
    config[key]["name"] = name
    (copy / "config.json").write_text(json.dumps(config))
    (copy / SUMS).unlink()  # as in a run of an earlier version
    with pytest.raises(UsageError, match=f"{key}.name"):
        flax_attn.load(copy)
